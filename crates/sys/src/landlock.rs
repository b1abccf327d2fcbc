//! Landlock: a second wall behind the mounts. Even a mount that should not be writable cannot be written, and no signal or abstract socket reaches
//! a process outside the sandbox.

use std::ffi::CString;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;

use crate::raw;

/// What the sandbox may touch, by paths as they are inside.
#[derive(Debug)]
pub struct Rules {
    /// From [`abi`]: which rights this kernel knows.
    pub abi: u32,
    /// Readable and executable; normally `/`.
    pub readable: Vec<CString>,
    /// Everything below may also be made, changed and removed.
    pub writable: Vec<CString>,
}

#[repr(C)]
struct RulesetAttr {
    handled_access_fs: u64,
    handled_access_net: u64,
    scoped: u64,
}

#[repr(C, packed)]
struct PathBeneath {
    allowed_access: u64,
    parent_fd: i32,
}

const EXECUTE: u64 = 1 << 0;
const WRITE_FILE: u64 = 1 << 1;
const READ_FILE: u64 = 1 << 2;
const READ_DIR: u64 = 1 << 3;
const TRUNCATE: u64 = 1 << 14;
const IOCTL_DEV: u64 = 1 << 15;
/// Abstract sockets and signals stay inside (ABI 6).
const SCOPE_ALL: u64 = 0b11;

/// The version of Landlock that this kernel speaks; `None` when it has none or it is switched off.
pub fn abi() -> Option<u32> {
    const VERSION_QUERY: usize = 1;
    // SAFETY: with this flag the kernel reads no attribute and returns a number.
    let version = unsafe {
        raw::syscall(
            libc::SYS_landlock_create_ruleset,
            [0, 0, VERSION_QUERY, 0, 0, 0],
        )
    };
    version.ok().and_then(|v| u32::try_from(v).ok())
}

/// Builds the ruleset from paths as they are now, after the root was changed. Allocates nothing, as nothing does there.
pub(crate) fn ruleset(rules: &Rules) -> Result<OwnedFd, Errno> {
    let handled = handled_rights(rules.abi);
    let attr = RulesetAttr {
        handled_access_fs: handled,
        handled_access_net: 0,
        scoped: if rules.abi >= 6 { SCOPE_ALL } else { 0 },
    };
    // A kernel that knows less of the struct refuses what is beyond.
    let size = if rules.abi >= 6 {
        size_of::<RulesetAttr>()
    } else {
        size_of::<u64>()
    };
    // SAFETY: the kernel reads `size` bytes of `attr`.
    let fd = unsafe {
        raw::syscall(
            libc::SYS_landlock_create_ruleset,
            [(&raw const attr).addr(), size, 0, 0, 0, 0],
        )?
    };
    // SAFETY: a new descriptor that the kernel has just made for us.
    let ruleset = unsafe { OwnedFd::from_raw_fd(i32::try_from(fd).map_err(|_| Errno::BADF)?) };
    for path in &rules.readable {
        allow(&ruleset, path, (EXECUTE | READ_FILE | READ_DIR) & handled)?;
    }
    for path in &rules.writable {
        allow(&ruleset, path, handled)?;
    }
    Ok(ruleset)
}

/// Confines the calling thread and all that it will start. Needs `no_new_privs`.
pub(crate) fn restrict_self(ruleset: BorrowedFd<'_>) -> Result<(), Errno> {
    // SAFETY: takes a descriptor and flags, no pointer.
    unsafe {
        raw::syscall(
            libc::SYS_landlock_restrict_self,
            [ruleset.as_raw_fd().cast_unsigned() as usize, 0, 0, 0, 0, 0],
        )
    }
    .map(drop)
}

fn handled_rights(abi: u32) -> u64 {
    let first_version: u64 = (1 << 13) - 1;
    let refer: u64 = if abi >= 2 { 1 << 13 } else { 0 };
    let truncate = if abi >= 3 { TRUNCATE } else { 0 };
    let ioctl = if abi >= 5 { IOCTL_DEV } else { 0 };
    first_version | refer | truncate | ioctl
}

fn allow(ruleset: &OwnedFd, path: &std::ffi::CStr, rights: u64) -> Result<(), Errno> {
    const PATH_BENEATH: usize = 1;
    let place = match rustix::fs::openat(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()) {
        Ok(place) => place,
        // A root directory of the caller's need not have every place that we would allow.
        Err(Errno::NOENT) => return Ok(()),
        Err(errno) => return Err(errno),
    };
    let is_dir = rustix::fs::fstat(&place)?.st_mode & libc::S_IFMT == libc::S_IFDIR;
    let file_rights = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV;
    let rule = PathBeneath {
        allowed_access: if is_dir { rights } else { rights & file_rights },
        parent_fd: place.as_raw_fd(),
    };
    let args = [
        ruleset.as_raw_fd().cast_unsigned() as usize,
        PATH_BENEATH,
        (&raw const rule).addr(),
        0,
        0,
        0,
    ];
    // SAFETY: the kernel reads one `PathBeneath` (packed as its own struct is).
    unsafe { raw::syscall(libc::SYS_landlock_add_rule, args) }.map(drop)
}
