//! A process that waits for the answer to a call: its memory, its number inside the sandbox, a directory that it has open. Everything here is opened by the process's number and believed only
//! after the kernel has said that the call still waits: a number may have become somebody else's meanwhile. What lies in that memory is the program's word and decides nothing but its own answer.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;

use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags};

use crate::raw;
use crate::seccomp::{self, Notification};

/// The memory of a caller. Writing goes where the caller itself could write, and into its own copy of what it can only read.
#[derive(Debug)]
pub struct Memory(OwnedFd);

impl Memory {
    /// # Errors
    /// `SRCH` when the caller has gone.
    pub fn of(listener: BorrowedFd<'_>, call: &Notification) -> Result<Self, Errno> {
        let path = format!("/proc/{}/mem", call.pid);
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        let memory = rustix::fs::openat(CWD, path, flags, Mode::empty())?;
        still_waits(listener, call)?;
        Ok(Self(memory))
    }

    /// # Errors
    /// `FAULT` where there is no such memory.
    pub fn read<const N: usize>(&self, at: u64) -> Result<[u8; N], Errno> {
        let mut bytes = [0; N];
        match rustix::io::pread(&self.0, &mut bytes, at) {
            Ok(count) if count == N => Ok(bytes),
            _ => Err(Errno::FAULT),
        }
    }

    /// # Errors
    /// `FAULT` where there is no such memory.
    pub fn write(&self, at: u64, bytes: &[u8]) -> Result<(), Errno> {
        match rustix::io::pwrite(&self.0, bytes, at) {
            Ok(count) if count == bytes.len() => Ok(()),
            _ => Err(Errno::FAULT),
        }
    }
}

/// What the kernel told the program about itself when it began: pairs of a kind and a value.
#[derive(Debug, Default)]
pub struct Beginning(Vec<u64>);

impl Beginning {
    /// # Errors
    /// What the kernel answered; `SRCH` when the caller has gone.
    pub fn of(listener: BorrowedFd<'_>, call: &Notification) -> Result<Self, Errno> {
        let bytes = std::fs::read(format!("/proc/{}/auxv", call.pid)).map_err(errno)?;
        still_waits(listener, call)?;
        let words = bytes.as_chunks::<8>().0.iter();
        Ok(Self(words.map(|word| u64::from_ne_bytes(*word)).collect()))
    }

    /// Where the functions of the kernel's own lie in its memory, if it has them.
    pub fn vdso(&self) -> Option<u64> {
        self.value(libc::AT_SYSINFO_EHDR)
    }

    /// Where its 16 random bytes lie.
    pub fn random(&self) -> Option<u64> {
        self.value(libc::AT_RANDOM)
    }

    fn value(&self, kind: libc::c_ulong) -> Option<u64> {
        let pairs = self.0.as_chunks::<2>().0.iter();
        let found = pairs.into_iter().find(|[is, _]| *is == kind);
        found.map(|[_, value]| *value).filter(|value| *value != 0)
    }
}

/// How a calling thread is numbered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Numbers {
    /// Its process, as we see it.
    pub process: u32,
    /// The thread, as the sandbox sees it.
    pub inside: u32,
}

impl Numbers {
    /// # Errors
    /// What the kernel answered; `SRCH` when the caller has gone.
    pub fn of(listener: BorrowedFd<'_>, call: &Notification) -> Result<Self, Errno> {
        let path = format!("/proc/{}/status", call.pid);
        let status = std::fs::read_to_string(path).map_err(errno)?;
        still_waits(listener, call)?;
        let last = |key: &str| -> Option<u32> {
            let line = status.lines().find_map(|line| line.strip_prefix(key))?;
            line.split_ascii_whitespace().next_back()?.parse().ok()
        };
        let numbers = last("Tgid:").zip(last("NSpid:"));
        let (process, inside) = numbers.ok_or(Errno::BADMSG)?;
        Ok(Self { process, inside })
    }
}

/// By how many nanoseconds the caller's monotonic clock differs from ours; `None` where it is the same one.
pub fn time_offset(call: &Notification) -> Option<i64> {
    let link = |of: &str| std::fs::read_link(format!("/proc/{of}/ns/time")).ok();
    let theirs = link(&call.pid.to_string())?;
    if Some(theirs) == link("self") {
        return None;
    }
    let told = std::fs::read_to_string(format!("/proc/{}/timens_offsets", call.pid)).ok()?;
    let line = told
        .lines()
        .find_map(|line| line.strip_prefix("monotonic"))?;
    let mut numbers = line.split_ascii_whitespace();
    let (seconds, nanos): (i64, i64) =
        (numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?);
    let offset = seconds.checked_mul(1_000_000_000)?.checked_add(nanos)?;
    (offset != 0).then_some(offset)
}

/// A directory that the caller has open: the same position, moved by whoever reads.
#[derive(Debug)]
pub struct Directory(OwnedFd);

impl Directory {
    /// # Errors
    /// `BADF` for a descriptor that it does not have; `SRCH` when it has gone.
    pub fn of(
        listener: BorrowedFd<'_>,
        call: &Notification,
        process: u32,
        descriptor: u64,
    ) -> Result<Self, Errno> {
        let pid = i32::try_from(process).ok().and_then(Pid::from_raw);
        let process = rustix::process::pidfd_open(pid.ok_or(Errno::SRCH)?, PidfdFlags::empty())?;
        // The kernel looks at the lower half.
        let descriptor = i32::try_from(descriptor & 0xffff_ffff).map_err(|_| Errno::BADF)?;
        let flags = PidfdGetfdFlags::empty();
        let opened = rustix::process::pidfd_getfd(&process, descriptor, flags)?;
        still_waits(listener, call)?;
        Ok(Self(opened))
    }

    /// Where the next read begins; 0 for the first.
    ///
    /// # Errors
    /// What the kernel answered.
    pub fn position(&self) -> Result<u64, Errno> {
        rustix::fs::tell(&self.0)
    }

    /// Everything from here to the end, as the kernel writes it; `None` when that is more than `most`, and then the position is what it was.
    ///
    /// # Errors
    /// What the kernel answered: `NOTDIR` for what is no directory.
    pub fn read(&self, most: usize) -> Result<Option<Vec<u8>>, Errno> {
        const PIECE: usize = 32 << 10;
        let began = self.position()?;
        let mut all = Vec::new();
        loop {
            let from = all.len();
            if from > most {
                rustix::fs::seek(&self.0, rustix::fs::SeekFrom::Start(began))?;
                return Ok(None);
            }
            all.resize(from + PIECE, 0);
            let room = all.get_mut(from..).unwrap_or_default();
            let read = list(self.0.as_fd(), room)?;
            all.truncate(from + read);
            if read == 0 {
                return Ok(Some(all));
            }
        }
    }
}

fn list(directory: BorrowedFd<'_>, into: &mut [u8]) -> Result<usize, Errno> {
    let descriptor = directory.as_raw_fd().cast_unsigned() as usize;
    let (at, room) = (into.as_mut_ptr().expose_provenance(), into.len());
    // SAFETY: the kernel writes at most `room` bytes at `at`, which is exclusively ours for the call; any bytes are valid there.
    unsafe { raw::syscall(libc::SYS_getdents64, [descriptor, at, room, 0, 0, 0]) }
}

/// And that /proc has the numbers of our pid namespace: in another one's they are those of strangers.
fn still_waits(listener: BorrowedFd<'_>, call: &Notification) -> Result<(), Errno> {
    static OWN: OnceLock<bool> = OnceLock::new();
    let is_ours = OWN.get_or_init(|| {
        let link = std::fs::read_link("/proc/self").ok();
        let own = rustix::process::getpid().as_raw_nonzero().to_string();
        link.is_some_and(|link| link.as_os_str() == own.as_str())
    });
    match (is_ours, seccomp::is_waiting(listener, call.id)) {
        (false, _) => Err(Errno::NOSYS),
        (true, false) => Err(Errno::SRCH),
        (true, true) => Ok(()),
    }
}

fn errno(error: std::io::Error) -> Errno {
    let code = error.raw_os_error();
    code.map_or(Errno::IO, Errno::from_raw_os_error)
}
