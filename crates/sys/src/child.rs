//! From a copy of init to the program: the last steps before `execve`, in a process that borrows init's memory until then. Allocates nothing.

use std::cell::UnsafeCell;
use std::ffi::CStr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use rustix::io::Errno;
use rustix::process::Rlimit;
use rustix::thread::{CpuSet, UnshareFlags};

use crate::blueprint::{Blueprint, Isolation};
use crate::clone;
use crate::init::Failure;
use crate::protocol::{self, ProgramHeader, Stage};
use crate::{landlock, raw, seccomp};

/// A program's standard streams, and the version 1 cgroups that it enters.
pub(crate) struct Stdio<'a> {
    streams: [BorrowedFd<'a>; 3],
    joins: &'a [Option<OwnedFd>],
}

impl<'a> Stdio<'a> {
    /// From the descriptors of a message: three streams, then the join files.
    pub(crate) fn take(fds: &'a [Option<OwnedFd>]) -> Option<Self> {
        let [Some(stdin), Some(stdout), Some(stderr), joins @ ..] = fds else {
            return None;
        };
        Some(Self {
            streams: [stdin.as_fd(), stdout.as_fd(), stderr.as_fd()],
            joins,
        })
    }
}

/// What the new process reads, and the one place where it leaves word of a failure.
struct Start<'a> {
    blueprint: &'a Blueprint,
    control: BorrowedFd<'a>,
    ruleset: Option<BorrowedFd<'a>>,
    stdio: Stdio<'a>,
    program: *mut u64,
    failure: UnsafeCell<Option<Failure>>,
}

/// Starts the program described at `program` (laid out by [`protocol::Program`]) and returns its pid once it has been executed.
pub(crate) fn start(
    blueprint: &Blueprint,
    control: BorrowedFd<'_>,
    ruleset: Option<&OwnedFd>,
    program: *mut u64,
    length: usize,
    stdio: Stdio<'_>,
) -> Result<i32, Failure> {
    relocate(program, length).map_err(|errno| (Stage::Exec, errno))?;
    let start = Start {
        blueprint,
        control,
        ruleset: ruleset.map(OwnedFd::as_fd),
        stdio,
        program,
        failure: UnsafeCell::new(None),
    };
    // Large enough for unoptimised builds; only touched pages are real.
    let mut stack = [const { std::mem::MaybeUninit::uninit() }; 128 * 1024];
    // SAFETY: `entry` keeps to raw system calls; `start` and `stack` outlive the child's use of them, since the call returns only after the child
    // has executed the program or ended.
    let pid =
        unsafe { clone::spawn_until_exec(&mut stack, entry, (&raw const start).cast_mut().cast()) };
    let pid = pid.map_err(|errno| (Stage::Clone, errno))?;
    match start.failure.into_inner() {
        None => Ok(pid.as_raw_nonzero().get()),
        Some(failure) => Err(failure),
    }
}

/// Turns the tables' offsets into addresses.
fn relocate(program: *mut u64, length: usize) -> Result<(), Errno> {
    let header_words = size_of::<ProgramHeader>() / 8;
    let words = length / 8;
    if words < header_words {
        return Err(Errno::BADMSG);
    }
    // SAFETY: the caller's buffer holds `length` bytes, aligned for words, and nobody else looks at it.
    let table = unsafe { std::slice::from_raw_parts_mut(program, words) };
    let base = program.expose_provenance() as u64;
    let length = length as u64;
    let table_len = usize::try_from(table[5]).unwrap_or(usize::MAX);
    let entries = table
        .get_mut(1..header_words.saturating_add(table_len))
        .ok_or(Errno::BADMSG)?;
    for (index, entry) in entries.iter_mut().enumerate() {
        let is_count = index == 4;
        if *entry >= length && !is_count {
            return Err(Errno::BADMSG);
        }
        if *entry != 0 && !is_count {
            *entry += base;
        }
    }
    Ok(())
}

/// Where the new process begins. Only ever returns by failing.
extern "C" fn entry(argument: *mut libc::c_void) -> libc::c_int {
    // SAFETY: `start` handed us a live `Start`, and sleeps until we have executed or ended.
    let start = unsafe { &*argument.cast::<Start<'_>>() };
    let Err(failure) = become_program(start);
    // SAFETY: the only other user of the cell sleeps until we have ended.
    unsafe { *start.failure.get() = Some(failure) };
    raw::exit(127)
}

fn become_program(start: &Start<'_>) -> Result<std::convert::Infallible, Failure> {
    let at = |stage: Stage| move |errno: Errno| (stage, errno);
    let blueprint = start.blueprint;
    let isolated = blueprint.isolation != Isolation::None;
    for join in start.stdio.joins.iter().flatten() {
        rustix::io::write(join, b"0").map_err(at(Stage::Cgroup))?;
    }
    if isolated {
        // SAFETY: this process is a single thread.
        unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWCGROUP) }
            .map_err(at(Stage::CgroupNamespace))?;
    }
    let _ = rustix::process::setsid();
    for (resource, value) in &blueprint.rlimits {
        let limit = Rlimit {
            current: Some(*value),
            maximum: Some(*value),
        };
        rustix::process::setrlimit(*resource, limit).map_err(at(Stage::Rlimits))?;
    }
    pin(&blueprint.cpus).map_err(at(Stage::Affinity))?;
    // SAFETY: a laid-out, relocated program: its pointers lead to NUL-terminated strings in the same buffer.
    let (header, cwd) = unsafe {
        let header = *start.program.cast::<ProgramHeader>();
        (header, CStr::from_ptr(pointer(header.cwd)))
    };
    rustix::process::chdir(cwd).map_err(at(Stage::Cwd))?;
    streams_onto_standard(start.stdio.streams).map_err(at(Stage::Descriptors))?;
    unblock_signals();
    if isolated {
        rustix::thread::set_no_new_privs(true).map_err(at(Stage::NoNewPrivs))?;
        drop_capabilities().map_err(at(Stage::Capabilities))?;
    }
    if let Some(ruleset) = start.ruleset {
        landlock::restrict_self(ruleset).map_err(at(Stage::Landlock))?;
    }
    if !blueprint.filter.is_empty() {
        install_filter(start).map_err(at(Stage::Seccomp))?;
    }
    Err((Stage::Exec, execute(&header)))
}

fn pin(cpus: &[usize]) -> Result<(), Errno> {
    if cpus.is_empty() {
        return Ok(());
    }
    let mut set = CpuSet::new();
    for &cpu in cpus {
        set.set(cpu);
    }
    rustix::thread::sched_setaffinity(None, &set)
}

/// The received descriptors are all above 2, where /dev/null sits, so the order cannot matter. Everything else closes on `execve`.
fn streams_onto_standard(streams: [BorrowedFd<'_>; 3]) -> Result<(), Errno> {
    for (stream, standard) in streams.iter().zip(0..) {
        // SAFETY: replaces a standard descriptor, which no type in this process owns.
        unsafe {
            raw::syscall(
                libc::SYS_dup3,
                [
                    stream.as_raw_fd().cast_unsigned() as usize,
                    standard,
                    0,
                    0,
                    0,
                    0,
                ],
            )?
        };
    }
    Ok(())
}

fn unblock_signals() {
    let nothing: u64 = 0;
    let how = libc::SIG_SETMASK.cast_unsigned() as usize;
    // SAFETY: the kernel reads 8 bytes of mask.
    let _ = unsafe {
        raw::syscall(
            libc::SYS_rt_sigprocmask,
            [how, (&raw const nothing).addr(), 0, 8, 0, 0],
        )
    };
}

fn drop_capabilities() -> Result<(), Errno> {
    let none = rustix::thread::CapabilitySet::empty();
    let sets = rustix::thread::CapabilitySets {
        effective: none,
        permitted: none,
        inheritable: none,
    };
    rustix::thread::set_capabilities(None, sets)
}

/// Installs the filter; its listener, if there is one, goes to the supervisor and is closed here.
fn install_filter(start: &Start<'_>) -> Result<(), Errno> {
    let Some(listener) = seccomp::install(&start.blueprint.filter, start.blueprint.listener)?
    else {
        return Ok(());
    };
    // SAFETY: a new descriptor that the kernel has just made for us.
    let listener = unsafe { OwnedFd::from_raw_fd(listener) };
    protocol::send(start.control, &protocol::listener(), &[listener.as_fd()])
}

/// Tries each candidate as a shell does: a file that is there and cannot be executed is remembered, one that is missing is not.
fn execute(header: &ProgramHeader) -> Errno {
    let mut remembered = Errno::NOENT;
    let mut candidate =
        std::ptr::with_exposed_provenance::<u64>(usize::try_from(header.candidates).unwrap_or(0));
    loop {
        // SAFETY: the table ends with a null entry, at which we stop.
        let path = unsafe { *candidate };
        if path == 0 {
            return remembered;
        }
        let args = [path, header.argv, header.env].map(|word| usize::try_from(word).unwrap_or(0));
        // SAFETY: a NUL-terminated path and two null-terminated tables of NUL-terminated strings.
        match unsafe { raw::syscall(libc::SYS_execve, [args[0], args[1], args[2], 0, 0, 0]) } {
            Err(Errno::NOENT | Errno::NOTDIR) | Ok(_) => {}
            Err(Errno::ACCESS) => remembered = Errno::ACCESS,
            Err(errno) => return errno,
        }
        // SAFETY: still within the table: its null entry has not been reached.
        candidate = unsafe { candidate.add(1) };
    }
}

fn pointer(word: u64) -> *const libc::c_char {
    std::ptr::with_exposed_provenance(usize::try_from(word).unwrap_or(0))
}
