//! What is put around a program, as far as a request decides it. Two requests with equal walls can be served by the same sandbox, whatever they run in it: that is what lets a sandbox be
//! built before its request is there. Nothing else of a request reaches the blueprint.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::path::PathBuf;

use cofferdam_contract::request::{Mount, MountAccess, Root, Workspace, WorkspaceAccess};
use cofferdam_contract::units::{Bytes, Cap};
use cofferdam_sys::blueprint::{Blueprint, Fixed, Identity, Isolation, NetworkNamespace, Routes};
use cofferdam_sys::doors::Door;
use cofferdam_sys::landlock::Rules;
use cofferdam_sys::seccomp::{Denied, Filter, Listener, Variants};

use crate::error::EngineError;
use crate::fixed;
use crate::host::{Host, Privilege};
use crate::native::{self, Scratch};
use crate::plan::{self, Evidence};
use crate::program::HOME;

/// The part of a request that decides how its sandbox is built.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Walls {
    pub(crate) root: Root,
    pub(crate) workspace: Option<Workspace>,
    pub(crate) mounts: Vec<Mount>,
    pub(crate) disk: Cap<Bytes>,
    /// How many are shown.
    pub(crate) cpus: Option<usize>,
    pub(crate) variants: Variants,
    /// Nodes of GPUs, shown where they are.
    pub(crate) devices: Vec<PathBuf>,
    pub(crate) evidence: Evidence,
    /// The ways out: a sandbox that has others, or none, is another sandbox.
    pub(crate) doors: Vec<Door>,
    /// For a run that must give the same each time: where its randomness begins. No other run is served by such walls.
    pub(crate) seed: Option<u64>,
}

/// Scratch space that the root itself takes: a few small files.
const ROOT_PAGES: u64 = 64 * 4096;

impl Walls {
    /// Nothing of the caller's, nothing limited.
    pub(crate) fn bare() -> Self {
        Self {
            root: Root::HostUsr,
            workspace: None,
            mounts: Vec::new(),
            disk: Cap::Unlimited,
            cpus: None,
            variants: Variants::NONE,
            devices: Vec::new(),
            evidence: Evidence::Ending,
            doors: Vec::new(),
            seed: None,
        }
    }

    /// Decides who the sandbox is outside, and draws it.
    pub(crate) fn draw(&self, host: &Host) -> Result<Blueprint, EngineError> {
        let (identity, trees) = native::identify(self, host)?;
        let steps = native::steps(self, &trees, self.scratch(), self.cpus, host)?;
        Ok(Blueprint {
            isolation: Isolation::Namespaces(identity),
            steps,
            trees: trees.prepared,
            filter: Filter::build(self.variants, Denied::Notify)
                .program()
                .to_vec(),
            listener: Listener::Wanted,
            landlock: host.landlock_abi.map(|abi| self.landlock_rules(abi)),
            routes: match self.evidence {
                Evidence::Full => Routes::Counted,
                Evidence::Ending => Routes::Ignored,
            },
            network: NetworkNamespace::New,
            doors: self.doors.clone(),
            cpus: self
                .cpus
                .map(|count| plan::choose(count, host))
                .unwrap_or_default(),
            fixed: self.seed.map(|_| Fixed {
                offsets: fixed::offsets(),
            }),
            lease: trees.lease.map(|lease| Box::new(lease) as _),
        })
    }

    /// Whether its network can be made by the caller: root, and no way out of the sandbox has to be opened in it with rights that only its own would give.
    pub(crate) fn can_be_given_a_network(&self, host: &Host) -> bool {
        host.privilege == Privilege::Root && self.doors.is_empty()
    }

    fn scratch(&self) -> Scratch {
        let bytes = self.disk.at_most().map_or(u64::MAX >> 12, Bytes::get);
        let inodes = (bytes / 4096).clamp(16_384, 1 << 20);
        Scratch {
            bytes: bytes.saturating_add(ROOT_PAGES),
            inodes,
        }
    }

    /// Everything may be read; only scratch, devices, /proc and what the caller made writable may be written.
    fn landlock_rules(&self, abi: u32) -> Rules {
        let mut writable: Vec<CString> = ["/tmp", "/dev", "/proc", HOME]
            .into_iter()
            .filter_map(|path| CString::new(path).ok())
            .collect();
        let workspace_writable = self
            .workspace
            .as_ref()
            .is_some_and(|workspace| workspace.access != WorkspaceAccess::ReadOnly);
        if workspace_writable {
            writable.extend(CString::new(Workspace::INSIDE));
        }
        for mount in self
            .mounts
            .iter()
            .filter(|mount| mount.access == MountAccess::ReadWrite)
        {
            writable.extend(CString::new(mount.target.as_os_str().as_encoded_bytes()));
        }
        Rules {
            abi,
            readable: CString::new("/").into_iter().collect(),
            writable,
        }
    }
}

/// What a record says about the walls that stood.
pub(crate) fn isolation(identity: &Identity, root: &Root, host: &Host) -> BTreeMap<String, String> {
    let landlock = host
        .landlock_abi
        .map_or_else(|| "absent".to_owned(), |abi| format!("abi {abi}"));
    let uid = format!("{} (outside {})", identity.inside_uid, identity.outside_uid);
    let image = match root {
        Root::Image(image) => Some(image),
        Root::HostUsr | Root::Dir(_) => None,
    };
    let image = image.map(|image| {
        let user = match image.user.as_str() {
            "" => "root",
            user => user,
        };
        [
            ("image", image.name.clone()),
            ("image_digest", image.digest.clone()),
            // There is one user here, whoever the image would have.
            ("image_user", format!("{user}, as {}", identity.inside_uid)),
        ]
    });
    [
        ("namespaces", "user,pid,mount,net,ipc,uts,cgroup".to_owned()),
        ("root", "read-only".to_owned()),
        ("seccomp", "filter".to_owned()),
        ("landlock", landlock),
        ("uid", uid),
    ]
    .into_iter()
    .chain(image.into_iter().flatten())
    .map(|(part, by)| (part.to_owned(), by))
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sandbox_built_for_anybody_does_not_serve_a_run_that_must_give_the_same_each_time() {
        let seeded = |seed| Walls {
            seed,
            ..Walls::bare()
        };
        assert_ne!(seeded(Some(7)), Walls::bare());
        assert_ne!(seeded(Some(7)), seeded(Some(8)));
        assert_eq!(seeded(Some(7)), seeded(Some(7)));
    }
}
