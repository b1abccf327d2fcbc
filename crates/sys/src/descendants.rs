//! Ends every descendant of the calling process, for the one backend that has no pid namespace to do it. Allocates nothing.
//!
//! The caller is a subreaper, so a descendant cannot slip away by being orphaned. Everything found is stopped before anything is killed: what is
//! stopped cannot fork, so the search ends even against a program that forks as fast as it can.

use std::ffi::CStr;

use rustix::fs::{CWD, Mode, OFlags, RawDir};
use rustix::io::Errno;
use rustix::process::{Pid, Signal};

use crate::raw;

/// Processes looked at in one pass, the lowest numbers first.
const TABLE: usize = 16 * 1024;
/// A bound on the work against a program that out-forks us; the caller's cgroup, when there is one, has ended it already.
const PASSES: usize = 200;

#[derive(Clone, Copy)]
struct Process {
    pid: u32,
    parent: u32,
    ours: bool,
}

/// How long what dies by itself is waited for, in naps, before it is looked for.
const NAPS: usize = 16;

/// Stops, then kills, then reaps all descendants of this process. Looking for them means to look at every process of the machine, so first it is seen whether there are any: for a subreaper, to
/// have no children is to have no descendants. What a tool has left is dying already.
pub(crate) fn kill_all() {
    for _ in 0..NAPS {
        if reap_all() == Left::Nobody {
            return;
        }
        nap();
    }
    kill_all_but(&[]);
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Left {
    Nobody,
    Somebody,
}

/// Reaps what has ended, of every kind.
fn reap_all() -> Left {
    let flags = (libc::WNOHANG | libc::__WALL).cast_unsigned() as usize;
    loop {
        // SAFETY: nothing is written: both pointers are null.
        match unsafe { raw::syscall(libc::SYS_wait4, [usize::MAX, 0, flags, 0, 0, 0]) } {
            Err(Errno::CHILD) => return Left::Nobody,
            Ok(0) => return Left::Somebody,
            Ok(_) | Err(Errno::INTR) => {}
            Err(_) => return Left::Somebody,
        }
    }
}

/// Until a child ends, whose signal init holds back, or for a quarter of a millisecond.
fn nap() {
    let child: u64 = 1 << (libc::SIGCHLD - 1);
    let at_most = rustix::thread::Timespec {
        tv_sec: 0,
        tv_nsec: 250_000,
    };
    let (set, time) = (
        (&raw const child).expose_provenance(),
        (&raw const at_most).expose_provenance(),
    );
    // SAFETY: the kernel reads 8 bytes of mask and one timespec, and writes nothing.
    let _ = unsafe { raw::syscall(libc::SYS_rt_sigtimedwait, [set, 0, time, 8, 0, 0]) };
}

/// Whether this process has other direct children than these, as its own entry in /proc says: quick, and good enough where nobody tries to hide. Where the kernel does not say, it has.
pub fn has_children_but(spared: &[u32]) -> bool {
    let Ok(tasks) = std::fs::read_dir("/proc/self/task") else {
        return true;
    };
    for task in tasks.flatten() {
        let Ok(text) = std::fs::read_to_string(task.path().join("children")) else {
            return true;
        };
        let is_spared = |pid: &str| pid.parse().is_ok_and(|pid| spared.contains(&pid));
        if !text.split_whitespace().all(is_spared) {
            return true;
        }
    }
    false
}

/// The direct children of this process. That it has none is seen at once; otherwise every process is looked at, since a list in /proc may leave one out while another ends.
pub fn children() -> Vec<u32> {
    if !has_children_but(&[]) {
        return Vec::new();
    }
    let own = rustix::process::getpid()
        .as_raw_nonzero()
        .get()
        .cast_unsigned();
    let mut table = vec![
        Process {
            pid: 0,
            parent: 0,
            ours: false
        };
        TABLE
    ];
    let found = list(&mut table).unwrap_or(0);
    table[..found]
        .iter()
        .filter(|process| process.parent == own)
        .map(|process| process.pid)
        .collect()
}

/// As [`kill_all`], sparing the children in `spared` and what is below them: for a process that has children of its own.
pub fn kill_all_but(spared: &[u32]) {
    let own = rustix::process::getpid()
        .as_raw_nonzero()
        .get()
        .cast_unsigned();
    let mut table = [Process {
        pid: 0,
        parent: 0,
        ours: false,
    }; TABLE];
    let mut stopped_before = usize::MAX;
    for _ in 0..PASSES {
        let found = find(own, spared, &mut table);
        signal_all(&table[..found], Signal::STOP);
        let stopped = table[..found].iter().filter(|process| process.ours).count();
        if stopped == stopped_before {
            break;
        }
        stopped_before = stopped;
    }
    for _ in 0..PASSES {
        let found = find(own, spared, &mut table);
        signal_all(&table[..found], Signal::KILL);
        reap_each(&table[..found]);
        if !table[..found].iter().any(|process| process.ours) {
            return;
        }
        let _ = rustix::thread::nanosleep(&rustix::thread::Timespec {
            tv_sec: 0,
            tv_nsec: 500_000,
        });
    }
}

fn signal_all(table: &[Process], signal: Signal) {
    for process in table.iter().filter(|process| process.ours) {
        if let Some(pid) = Pid::from_raw(process.pid.cast_signed()) {
            let _ = rustix::process::kill_process(pid, signal);
        }
    }
}

/// By number: the ends of others, which are spared, are for others to see.
fn reap_each(table: &[Process]) {
    let flags = (libc::WNOHANG | libc::__WALL).cast_unsigned() as usize;
    for process in table.iter().filter(|process| process.ours) {
        // SAFETY: nothing is written: both pointers are null.
        let _ = unsafe { raw::syscall(libc::SYS_wait4, [process.pid as usize, 0, flags, 0, 0, 0]) };
    }
}

/// Fills the table with all processes and marks the descendants of `own`.
fn find(own: u32, spared: &[u32], table: &mut [Process]) -> usize {
    let found = list(table).unwrap_or(0);
    let table = &mut table[..found];
    loop {
        let mut changed = false;
        for at in 0..table.len() {
            if table[at].ours {
                continue;
            }
            let parent = table[at].parent;
            let below = parent == own && !spared.contains(&table[at].pid)
                || table.iter().any(|other| other.ours && other.pid == parent);
            if below {
                table[at].ours = true;
                changed = true;
            }
        }
        if !changed {
            return found;
        }
    }
}

fn list(table: &mut [Process]) -> Result<usize, Errno> {
    let proc = rustix::fs::openat(
        CWD,
        c"/proc",
        OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    )?;
    let mut buffer = [std::mem::MaybeUninit::<u8>::uninit(); 8192];
    let mut entries = RawDir::new(&proc, &mut buffer);
    let mut found = 0;
    while let Some(entry) = entries.next() {
        let entry = entry?;
        let Some(pid) = number(entry.file_name().to_bytes()) else {
            continue;
        };
        let Some(parent) = parent_of(&proc, entry.file_name()) else {
            continue;
        };
        let Some(place) = table.get_mut(found) else {
            break;
        };
        *place = Process {
            pid,
            parent,
            ours: false,
        };
        found += 1;
    }
    Ok(found)
}

/// The parent's pid is the second field after the command name, which may itself hold anything, parentheses included.
fn parent_of(proc: &rustix::fd::OwnedFd, pid: &CStr) -> Option<u32> {
    let dir = rustix::fs::openat(
        proc,
        pid,
        OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    )
    .ok()?;
    let stat = rustix::fs::openat(
        &dir,
        c"stat",
        OFlags::RDONLY | OFlags::CLOEXEC,
        Mode::empty(),
    )
    .ok()?;
    let mut text = [0u8; 512];
    let length = rustix::io::read(&stat, &mut text).ok()?;
    let text = text.get(..length)?;
    let name_end = text.iter().rposition(|&byte| byte == b')')?;
    text.get(name_end + 1..)?
        .split(|&byte| byte == b' ')
        .nth(2)
        .and_then(number)
}

fn number(text: &[u8]) -> Option<u32> {
    text.iter()
        .try_fold(0u32, |sum, &byte| {
            let digit = byte.checked_sub(b'0').filter(|&digit| digit < 10)?;
            sum.checked_mul(10)?.checked_add(digit.into())
        })
        .filter(|_| !text.is_empty())
}
