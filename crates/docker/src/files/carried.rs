//! What is copied into a container and, where the program may write to it, back: the workspace, and directories of the host that are shown elsewhere. Each is a volume of its own.

use std::path::PathBuf;

use cofferdam_contract::request::{MountAccess, Request, Workspace, WorkspaceAccess};

/// One directory of this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Carried {
    pub(crate) path: PathBuf,
    /// Where the program sees it.
    pub(crate) inside: String,
    pub(crate) access: WorkspaceAccess,
}

impl Carried {
    /// The workspace comes first.
    pub(crate) fn all(request: &Request) -> Vec<Self> {
        let workspace = request.workspace.iter().map(|workspace| Self {
            path: workspace.path.clone(),
            inside: Workspace::INSIDE.to_owned(),
            access: workspace.access,
        });
        let mounts = request.mounts.iter().map(|mount| Self {
            path: mount.source.clone(),
            inside: mount.target.to_string_lossy().into_owned(),
            access: match mount.access {
                MountAccess::ReadWrite => WorkspaceAccess::ReadWrite,
                MountAccess::ReadOnly => WorkspaceAccess::ReadOnly,
            },
        });
        workspace.chain(mounts).collect()
    }

    pub(crate) fn is_workspace(&self) -> bool {
        self.inside == Workspace::INSIDE
    }

    /// Whether the program can write to it.
    pub(crate) const fn is_writable(&self) -> bool {
        match self.access {
            WorkspaceAccess::ReadWrite | WorkspaceAccess::CopyOnWrite => true,
            WorkspaceAccess::ReadOnly => false,
        }
    }

    /// The last part of where it is inside.
    pub(crate) fn name(&self) -> &str {
        let inside = self.inside.trim_end_matches('/');
        inside.rsplit('/').next().unwrap_or(inside)
    }
}
