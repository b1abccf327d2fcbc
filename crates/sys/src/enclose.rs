//! How the sandbox's init walls itself in: signals, descriptors, identity, the steps of the blueprint. Allocates nothing.

use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;
use rustix::net::RecvFlags;

use crate::blueprint::{Blueprint, Isolation, Privileged};
use crate::child::Building;
use crate::init::Failure;
use crate::protocol::{KIND_MAPPED, Stage};
use crate::raw;
use crate::steps::{self, Built};

/// Leaves what was inherited: signals, descriptors, the session, and, where there are namespaces, the identity.
pub(crate) fn detach(
    blueprint: &Blueprint,
    control: BorrowedFd<'_>,
    keep: &[i32],
) -> Result<(), Failure> {
    reset_signals();
    close_all_but(keep).map_err(|errno| (Stage::Descriptors, errno))?;
    let _ = rustix::process::setsid();
    await_mapping(control)?;
    let at_identity = |errno| (Stage::Identity, errno);
    match blueprint.isolation {
        Isolation::None => {
            let own = rustix::process::getpid();
            rustix::process::set_child_subreaper(Some(own)).map_err(at_identity)?;
        }
        Isolation::Namespaces(identity) => {
            // A process that sits at the old root is moved to the new one with it; one that sits elsewhere on the host would stay there.
            rustix::process::chdir(c"/").map_err(at_identity)?;
            if identity.privileged == Privileged::Yes {
                take_identity(identity.inside_uid, identity.inside_gid).map_err(at_identity)?;
            }
            leave_session_keyring_best_effort();
        }
    }
    Ok(())
}

/// Builds what programs see, and leaves what they must not.
pub(crate) fn build(
    blueprint: &Blueprint,
    before_pivot: Option<&Building>,
) -> Result<Built, Failure> {
    if blueprint.isolation != Isolation::None {
        rustix::process::umask(Mode::empty());
    }
    let at_step = |(index, errno)| (Stage::Step(u32::try_from(index).unwrap_or(u32::MAX)), errno);
    let built =
        steps::execute(&blueprint.steps, &blueprint.trees, before_pivot).map_err(at_step)?;
    steps::leave_old_root(&built).map_err(|errno| (Stage::OldRoot, errno))?;
    Ok(built)
}

/// All signals blocked (they are read from a descriptor), all dispositions default: what the supervisor ignores, such as SIGPIPE, a program must not.
fn reset_signals() {
    let everything: u64 = u64::MAX;
    let default = [0usize; 4]; // struct kernel_sigaction with SIG_DFL, no flags, empty mask
    // SAFETY: the kernel reads 8 bytes of mask.
    let _ = unsafe {
        raw::syscall(
            libc::SYS_rt_sigprocmask,
            [
                libc::SIG_SETMASK.cast_unsigned() as usize,
                (&raw const everything).addr(),
                0,
                8,
                0,
                0,
            ],
        )
    };
    for signal in 1..=64 {
        // SAFETY: the kernel reads one kernel_sigaction (32 bytes) and writes nothing. SIGKILL and SIGSTOP answer EINVAL, as they should.
        let _ = unsafe {
            raw::syscall(
                libc::SYS_rt_sigaction,
                [signal, default.as_ptr().addr(), 0, 8, 0, 0],
            )
        };
    }
}

/// Closes every inherited descriptor but `keep`, and puts /dev/null on the standard ones.
fn close_all_but(keep: &[i32]) -> Result<(), Errno> {
    let null = rustix::fs::openat(
        CWD,
        c"/dev/null",
        OFlags::RDWR | OFlags::CLOEXEC,
        Mode::empty(),
    )?;
    for standard in 0..3 {
        // SAFETY: duplicates a descriptor that we hold onto a standard one, which nothing in this process owns through a type.
        unsafe {
            raw::syscall(
                libc::SYS_dup3,
                [
                    null.as_raw_fd().cast_unsigned() as usize,
                    standard,
                    libc::O_CLOEXEC.cast_unsigned() as usize,
                    0,
                    0,
                    0,
                ],
            )?
        };
    }
    // `null` itself falls to the range closed below.
    std::mem::forget(null);
    let mut from: u32 = 3;
    for &fd in keep {
        let fd = fd.cast_unsigned();
        if fd > from {
            close_range(from, fd - 1)?;
        }
        from = fd + 1;
    }
    close_range(from, u32::MAX)
}

fn close_range(first: u32, last: u32) -> Result<(), Errno> {
    // SAFETY: no type in this process still owns a descriptor in the range and will use it: we are a fresh copy and only `keep` is used from here on.
    unsafe {
        raw::syscall(
            libc::SYS_close_range,
            [first as usize, last as usize, 0, 0, 0, 0],
        )
    }
    .map(drop)
}

/// Waits until the parent has written our id maps. A parent that is gone has written none.
fn await_mapping(control: BorrowedFd<'_>) -> Result<(), Failure> {
    let mut byte = [0u8; 1];
    match rustix::net::recv(control, &mut byte, RecvFlags::empty()) {
        Ok((1, _)) if byte[0] == KIND_MAPPED => Ok(()),
        Ok(_) => raw::exit(1),
        Err(errno) => Err((Stage::Identity, errno)),
    }
}

pub(crate) fn take_identity(uid: u32, gid: u32) -> Result<(), Errno> {
    let uid = rustix::process::Uid::from_raw(uid);
    let gid = rustix::process::Gid::from_raw(gid);
    rustix::thread::set_thread_groups(&[])?;
    rustix::thread::set_thread_res_gid(gid, gid, gid)?;
    rustix::thread::set_thread_res_uid(uid, uid, uid)
}

/// The caller's session keyring stays outside. Best effort: where a container forbids the call, the filter forbids it to programs too.
pub(crate) fn leave_session_keyring_best_effort() {
    const JOIN_SESSION_KEYRING: usize = 1;
    // SAFETY: a null name asks for a new anonymous keyring; nothing is read.
    let _ = unsafe { raw::syscall(libc::SYS_keyctl, [JOIN_SESSION_KEYRING, 0, 0, 0, 0, 0]) };
}
