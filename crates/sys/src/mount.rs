//! The calls of the mount API that rustix does not have yet, and the two that every mount of ours needs.

use std::ffi::CStr;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::CWD;
use rustix::io::Errno;
use rustix::mount::{MountAttrFlags, MoveMountFlags, OpenTreeFlags};

use crate::raw;

/// `struct mount_attr` of mount_setattr(2).
#[repr(C)]
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct MountAttr {
    pub(crate) set: u64,
    pub(crate) clear: u64,
    pub(crate) propagation: u64,
    pub(crate) userns_fd: u64,
}

pub(crate) const ATTR_IDMAP: u64 = 0x0010_0000;

/// Changes attributes of the mount behind `mount`, and of all below it.
pub(crate) fn set_attributes(mount: BorrowedFd<'_>, attr: &MountAttr) -> Result<(), Errno> {
    const AT_EMPTY_PATH_AND_RECURSIVE: usize = 0x1000 | 0x8000;
    call_setattr(mount, AT_EMPTY_PATH_AND_RECURSIVE, attr)
}

/// A detached copy of the mounts at `path`, with everything mounted below: in a user namespace a part cannot be copied without the rest.
pub(crate) fn clone_tree(path: &CStr) -> Result<OwnedFd, Errno> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_RECURSIVE;
    rustix::mount::open_tree(CWD, path, flags)
}

/// Puts a detached mount where `target` is.
pub(crate) fn attach(mount: BorrowedFd<'_>, target: &CStr) -> Result<(), Errno> {
    rustix::mount::move_mount(
        mount,
        c"",
        CWD,
        target,
        MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH,
    )
}

pub(crate) const READ_ONLY: u64 = MountAttrFlags::MOUNT_ATTR_RDONLY.bits() as u64;
pub(crate) const NO_SUID: u64 = MountAttrFlags::MOUNT_ATTR_NOSUID.bits() as u64;
pub(crate) const NO_DEV: u64 = MountAttrFlags::MOUNT_ATTR_NODEV.bits() as u64;
pub(crate) const NO_EXEC: u64 = MountAttrFlags::MOUNT_ATTR_NOEXEC.bits() as u64;

/// Sets attributes of one mount and leaves those below it alone.
pub(crate) fn set_attributes_of_one(mount: BorrowedFd<'_>, set: u64) -> Result<(), Errno> {
    const AT_EMPTY_PATH: usize = 0x1000;
    let attr = MountAttr {
        set,
        ..MountAttr::default()
    };
    call_setattr(mount, AT_EMPTY_PATH, &attr)
}

fn call_setattr(mount: BorrowedFd<'_>, flags: usize, attr: &MountAttr) -> Result<(), Errno> {
    let args = [
        mount.as_raw_fd().cast_unsigned() as usize,
        c"".as_ptr().addr(),
        flags,
        std::ptr::from_ref(attr).addr(),
        size_of::<MountAttr>(),
        0,
    ];
    // SAFETY: the kernel reads an empty string and `size_of::<MountAttr>()` bytes of `attr`.
    unsafe { raw::syscall(libc::SYS_mount_setattr, args) }.map(drop)
}
