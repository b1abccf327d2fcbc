//! Whether the scratch space of a container is full: asked when its program has failed, by a descriptor that was opened while it ran, since the space goes with the container. Only where the
//! daemon is on this machine and lets itself be looked at.

use std::os::fd::OwnedFd;

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};

use crate::container::SCRATCH;

/// The scratch space of one container.
#[derive(Debug)]
pub(crate) struct Scratch(OwnedFd);

impl Scratch {
    /// By the container's first process. `None` where nobody may look.
    pub(crate) fn open(pid: i64) -> Option<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::openat(CWD, format!("/proc/{pid}/root"), flags, Mode::empty());
        // A link in an image leads nowhere outside.
        let below = SCRATCH.trim_start_matches('/');
        let dir = rustix::fs::openat2(
            root.ok()?,
            below,
            flags,
            Mode::empty(),
            ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS,
        );
        dir.ok().map(Self)
    }

    pub(crate) fn is_full(&self) -> bool {
        let stat = rustix::fs::fstatfs(&self.0);
        stat.is_ok_and(|stat| stat.f_bfree == 0 || stat.f_files > 0 && stat.f_ffree == 0)
    }
}
