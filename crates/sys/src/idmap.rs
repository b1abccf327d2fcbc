//! Id-mapped mounts: a directory whose files belong to one user appears inside as if they belonged to the sandbox's. A privileged caller's own files can
//! so be handed to an unprivileged identity without a `chown` that would outlive the run.

use std::ffi::CStr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions};

use crate::clone;
use crate::janitor;
use crate::mount::{self, ATTR_IDMAP, MountAttr};
use crate::raw;

const STACK: usize = 16 * 1024;

/// An owner on disk, and who that owner is to be seen as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owner {
    pub disk_uid: u32,
    pub disk_gid: u32,
    pub seen_uid: u32,
    pub seen_gid: u32,
}

/// Why a mount could not be id-mapped.
#[derive(Debug, thiserror::Error)]
pub enum IdmapError {
    #[error("cannot open the directory: {0}")]
    Open(Errno),
    #[error("cannot make the user namespace that holds the mapping: {0}")]
    Namespace(Errno),
    #[error("this file system cannot be id-mapped: {0}")]
    Unsupported(Errno),
}

/// A detached copy of the mount at `path` through which `owner.disk_*` is seen as `owner.seen_*`, both ways.
pub fn mapped_tree(path: &CStr, owner: &Owner) -> Result<OwnedFd, IdmapError> {
    let tree = mount::clone_tree(path).map_err(IdmapError::Open)?;
    let namespace = mapping_namespace(owner).map_err(IdmapError::Namespace)?;
    let attr = MountAttr {
        set: ATTR_IDMAP,
        userns_fd: u64::from(namespace.as_raw_fd().cast_unsigned()),
        ..MountAttr::default()
    };
    mount::set_attributes(tree.as_fd(), &attr).map_err(IdmapError::Unsupported)?;
    Ok(tree)
}

/// A user namespace exists only as long as something refers to it: a process makes it, we take a descriptor, the process ends.
///
/// It shares our memory. A copy of it would be made for nothing, and would leave every page of ours to be copied again when somebody next writes to it.
fn mapping_namespace(owner: &Owner) -> Result<OwnedFd, Errno> {
    let parent = rustix::process::getpid();
    let mut stack = clone::stack(STACK);
    let argument = (&raw const parent).cast_mut().cast();
    let made = unsafe {
        // SAFETY: `wait_to_be_killed` makes raw system calls only. The process is reaped below, before `stack` and `parent` go.
        clone::spawn_sharing_memory(&mut stack, libc::CLONE_NEWUSER, wait_to_be_killed, argument)
    };
    let (pid, pidfd) = made?;
    let dir = format!("/proc/{}", pid.as_raw_nonzero());
    let taken = write_map(&dir, "uid_map", owner.disk_uid, owner.seen_uid)
        .and_then(|()| write_map(&dir, "gid_map", owner.disk_gid, owner.seen_gid))
        .and_then(|()| {
            let flags = OFlags::RDONLY | OFlags::CLOEXEC;
            rustix::fs::openat(CWD, format!("{dir}/ns/user"), flags, Mode::empty())
        });
    let _ = rustix::process::pidfd_send_signal(&pidfd, Signal::KILL);
    let id = || WaitId::PidFd(pidfd.as_fd());
    while let Err(Errno::INTR) = rustix::process::waitid(id(), WaitIdOptions::EXITED) {}
    taken
}

fn write_map(dir: &str, file: &str, inside: u32, outside: u32) -> Result<(), Errno> {
    let opened = rustix::fs::openat(
        CWD,
        format!("{dir}/{file}"),
        OFlags::WRONLY | OFlags::CLOEXEC,
        Mode::empty(),
    )?;
    rustix::io::write(&opened, format!("{inside} {outside} 1").as_bytes()).map(drop)
}

/// The namespace's only process. It must not outlive a parent that was killed before it could kill us.
extern "C" fn wait_to_be_killed(argument: *mut libc::c_void) -> libc::c_int {
    // SAFETY: `mapping_namespace` handed us its own pid, which lives until we have ended.
    let parent = unsafe { *argument.cast::<Pid>() };
    let _ = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
    if rustix::process::getppid() != Some(parent) {
        raw::exit(1);
    }
    janitor::shield();
    loop {
        // SAFETY: takes nothing; returns only when a signal arrives, and ours is SIGKILL.
        let _ = unsafe { raw::syscall(libc::SYS_pause, [0; 6]) };
    }
}
