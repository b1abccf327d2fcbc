//! Who the sandbox is outside, and the directories of the caller's that only a privileged process can hand to somebody else.

use std::ffi::CString;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use cofferdam_contract::request::{MountAccess, Root, WorkspaceAccess};
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
/// A process that starts many, as a daemon does, has 256 more, which no neighbour in the order of pids has.
const MORE_BASE: u32 = OUTSIDE_BASE + 0x0040_0000;

/// An outside id that no other sandbox alive has.
fn distinct_id() -> u32 {
    static STARTED: AtomicU32 = AtomicU32::new(0);
    let pid = std::process::id();
    match STARTED.fetch_add(1, Ordering::Relaxed) {
        0 => OUTSIDE_BASE + (pid & 0x003f_ffff),
        count => MORE_BASE + ((pid & 0x3_ffff) << 8 | (count & 0xff)),
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
    if let Root::Dir(dir) = &walls.root {
        check_is_dir("the root is not a directory:", dir)?;
    }
    let mut identity = match host.privilege {
        Privilege::User { uid, gid } => {
            return Ok((identity(uid, gid, Privileged::No), trees));
        }
        Privilege::Root => {
            let distinct = distinct_id();
            identity(distinct, distinct, Privileged::Yes)
        }
    };
    if let Root::Dir(dir) = &walls.root {
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
                why: format!("`{}` belongs to root and {error}", path.display()),
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
