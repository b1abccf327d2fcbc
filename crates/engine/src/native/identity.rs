//! Who the sandbox is outside, and the directories of the caller's that only a privileged process can hand to somebody else.

use std::ffi::CString;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

use cofferdam_contract::request::{MountAccess, WorkspaceAccess};
use cofferdam_sys::blueprint::{Identity, Privileged};
use cofferdam_sys::idmap::{self, IdmapError, Owner};
use rustix::fs::FileType;
use rustix::io::Errno;

use crate::error::EngineError;
use crate::host::{Host, Privilege};
use crate::walls::Walls;

/// The sandbox's user and group as the program sees them.
const INSIDE_ID: u32 = 1000;
/// Outside ids of sandboxes that root starts, above every range in use. The first of a process has an id that no other process's first has, since pids are distinct.
const OUTSIDE_BASE: u32 = 0x7000_0000;
/// A process that starts many, as a daemon does, has 4096 more, which no neighbour in the order of pids has.
const MORE_BASE: u32 = OUTSIDE_BASE + 0x0040_0000;
const MORE: usize = 4096;

static LEASED: Mutex<[u64; MORE / 64]> = Mutex::new([0; MORE / 64]);

/// An outside id for as long as this lives.
#[derive(Debug)]
pub(crate) struct Lease {
    id: u32,
    place: Option<usize>,
}

impl Lease {
    /// One that no other sandbox alive has; `None` when there are too many.
    pub(crate) fn take() -> Option<Self> {
        static STARTED: AtomicU32 = AtomicU32::new(0);
        let pid = std::process::id();
        let count = STARTED.fetch_add(1, Ordering::Relaxed);
        if count == 0 {
            let id = OUTSIDE_BASE + (pid & 0x003f_ffff);
            return Some(Self { id, place: None });
        }
        let mut leased = LEASED.lock().unwrap_or_else(PoisonError::into_inner);
        // From another place each time: what was just let go is not at once somebody else's.
        let from = usize::try_from(count).unwrap_or(0);
        let place = (0..MORE)
            .map(|step| from.wrapping_add(step) % MORE)
            .find(|place| leased[place / 64] & (1 << (place % 64)) == 0)?;
        leased[place / 64] |= 1 << (place % 64);
        let own = u32::try_from(place).unwrap_or(0);
        Some(Self {
            id: MORE_BASE + ((pid & 0x3_ffff) << 12 | own),
            place: Some(place),
        })
    }
}

impl Lease {
    pub(crate) const fn id(&self) -> u32 {
        self.id
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if let Some(place) = self.place {
            let mut leased = LEASED.lock().unwrap_or_else(PoisonError::into_inner);
            leased[place / 64] &= !(1 << (place % 64));
        }
    }
}

/// Where a source of the request is found when the sandbox is built.
#[derive(Debug, Default)]
pub(crate) struct Trees {
    /// For the root directory, the workspace and each mount: the index among the prepared trees, or `None` for a plain path.
    pub(crate) root: Option<usize>,
    pub(crate) workspace: Option<usize>,
    pub(crate) mounts: Vec<Option<usize>>,
    pub(crate) prepared: Vec<OwnedFd>,
    pub(crate) lease: Option<Lease>,
}

/// Decides the identity and prepares what needs privilege.
pub(crate) fn identify(walls: &Walls, host: &Host) -> Result<(Identity, Trees), EngineError> {
    let mut trees = Trees {
        mounts: vec![None; walls.mounts.len()],
        ..Trees::default()
    };
    if let Some(workspace) = &walls.workspace {
        check_is_dir("the workspace is not a directory:", &workspace.path)?;
    }
    if let Some(dir) = walls.root.dir() {
        check_is_dir("the root is not a directory:", dir)?;
    }
    let mut identity = match host.privilege {
        Privilege::User { uid, gid } => {
            return Ok((identity(uid, gid, Privileged::No), trees));
        }
        Privilege::Root => {
            let lease = Lease::take().ok_or_else(|| EngineError::Unavailable {
                backend: "native",
                why: format!("{MORE} sandboxes of this process are alive"),
                fix: "run fewer at once".to_owned(),
            })?;
            let distinct = lease.id;
            trees.lease = Some(lease);
            identity(distinct, distinct, Privileged::Yes)
        }
    };
    if let Some(dir) = walls.root.dir() {
        // Mount points are made in a layer above it, which takes the rights of an owner.
        trees.root = trees.hand_over(dir, Use::Root, &mut identity)?;
    }
    if let Some(workspace) = &walls.workspace {
        let used = match workspace.access {
            WorkspaceAccess::ReadOnly => Use::Reading,
            WorkspaceAccess::ReadWrite | WorkspaceAccess::CopyOnWrite => Use::Writing,
        };
        trees.workspace = trees.hand_over(&workspace.path, used, &mut identity)?;
    }
    for (at, mount) in walls.mounts.iter().enumerate() {
        let used = match mount.access {
            MountAccess::ReadOnly => Use::Reading,
            MountAccess::ReadWrite => Use::Writing,
        };
        trees.mounts[at] = trees.hand_over(&mount.source, used, &mut identity)?;
    }
    Ok((identity, trees))
}

/// What the sandbox does with a directory of the caller's; for all but reading it must be its owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Use {
    Root,
    Reading,
    Writing,
}

impl Use {
    /// What helps when the directory belongs to root and cannot be mapped to anybody else.
    const fn fix(self) -> &'static str {
        match self {
            Self::Root => "give the directory to an ordinary user with chown",
            Self::Reading | Self::Writing => {
                "give the directory to an ordinary user with chown, or use :ro"
            }
        }
    }
}

impl Trees {
    /// Maps the owner of `path` to the sandbox. Where the file system cannot do that, the sandbox becomes that owner, unless that is root.
    fn hand_over(
        &mut self,
        path: &Path,
        used: Use,
        identity: &mut Identity,
    ) -> Result<Option<usize>, EngineError> {
        let unreadable = |errno| EngineError::Unreadable {
            what: "cannot open",
            path: path.display().to_string(),
            errno,
        };
        let stat = rustix::fs::stat(path).map_err(unreadable)?;
        let owner = Owner {
            disk_uid: stat.st_uid,
            disk_gid: stat.st_gid,
            seen_uid: identity.outside_uid,
            seen_gid: identity.outside_gid,
        };
        let name =
            CString::new(path.as_os_str().as_bytes()).map_err(|_| unreadable(Errno::INVAL))?;
        match idmap::mapped_tree(&name, &owner) {
            Ok(tree) => {
                self.prepared.push(tree);
                Ok(Some(self.prepared.len() - 1))
            }
            Err(IdmapError::Open(errno)) => Err(unreadable(errno)),
            Err(IdmapError::Namespace(_) | IdmapError::Unsupported(_)) if used == Use::Reading => {
                Ok(None)
            }
            Err(_) if stat.st_uid != 0 && self.prepared.is_empty() => {
                identity.outside_uid = stat.st_uid;
                identity.outside_gid = stat.st_gid;
                Ok(None)
            }
            Err(error) => Err(EngineError::Unavailable {
                backend: "native",
                why: format!(
                    "`{}` belongs to uid {} and {error}",
                    path.display(),
                    stat.st_uid
                ),
                fix: used.fix().to_owned(),
            }),
        }
    }
}

/// Before anything is made of it: a device or a file would fail later, for reasons that nobody understands.
fn check_is_dir(otherwise: &'static str, path: &Path) -> Result<(), EngineError> {
    let failed = |what, errno| EngineError::Unreadable {
        what,
        path: path.display().to_string(),
        errno,
    };
    let stat = rustix::fs::stat(path).map_err(|errno| failed("cannot open", errno))?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
        return Err(failed(otherwise, Errno::NOTDIR));
    }
    Ok(())
}

const fn identity(outside_uid: u32, outside_gid: u32, privileged: Privileged) -> Identity {
    Identity {
        inside_uid: INSIDE_ID,
        inside_gid: INSIDE_ID,
        outside_uid,
        outside_gid,
        privileged,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn no_two_sandboxes_alive_have_the_same_outside_id() {
        let long = Lease::take().unwrap();
        for _ in 0..3 * MORE {
            assert_ne!(Lease::take().unwrap().id, long.id);
        }
        let many: Vec<_> = (0..100).map(|_| Lease::take().unwrap()).collect();
        let ids: BTreeSet<u32> = many.iter().map(|lease| lease.id).collect();
        assert_eq!(ids.len(), many.len());
        drop(many);
        let all: Vec<_> = std::iter::from_fn(Lease::take).take(2 * MORE).collect();
        assert!(all.len() <= MORE && Lease::take().is_none());
        drop(all);
        assert!(Lease::take().is_some());
    }
}
