//! A process that says one thing to a daemon when its owner has gone without a word. What a daemon does for us outlives us; this is who asks it to stop when
//! we were killed. It borrows our memory, so that it costs no copy of it, and makes system calls only.

use std::mem::ManuallyDrop;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::sockopt::{self, Timeout};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType};
use rustix::pipe::PipeFlags;
use rustix::process::{WaitId, WaitIdOptions};
use rustix::thread::Timespec;

use crate::clone::{self, Stack};
use crate::{janitor, raw};

/// Where the daemon listens, in the form that the kernel wants.
#[derive(Debug, Clone)]
pub struct Address(Place);

#[derive(Debug, Clone)]
enum Place {
    Unix(SocketAddrUnix),
    Inet(SocketAddr),
}

impl Address {
    pub fn unix(path: &Path) -> Result<Self, Errno> {
        SocketAddrUnix::new(path).map(|address| Self(Place::Unix(address)))
    }

    pub fn inet(address: SocketAddr) -> Self {
        Self(Place::Inet(address))
    }
}

/// The owner's hold on the process. Dropping it has the message said, now, and waits until it was; [`Farewell::unneeded`] ends it in silence.
#[derive(Debug)]
pub struct Farewell {
    pidfd: OwnedFd,
    lifeline: Option<OwnedFd>,
    /// Borrowed by the process until it has ended.
    work: ManuallyDrop<Box<Work>>,
}

struct Work {
    address: Place,
    message: Vec<u8>,
    wake: i32,
    stack: Stack,
}

impl std::fmt::Debug for Work {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Work")
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

/// How an answer begins that says: done.
const DONE: &[u8] = b"HTTP/1.1 2";
/// What is being made while we die is not there yet when it is first asked for.
const NAPS_MS: [i64; 8] = [50, 100, 200, 400, 800, 1600, 1600, 1600];
const PATIENCE: Duration = Duration::from_secs(60);

impl Farewell {
    /// Starts the process. `message` is one whole HTTP request, which is repeated until it is answered with success, a few times.
    pub fn start(address: Address, message: Vec<u8>) -> Result<Self, Errno> {
        let (wake, lifeline) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
        let mut work = Box::new(Work {
            address: address.0,
            message,
            wake: wake.as_raw_fd(),
            stack: clone::stack(32 * 1024),
        });
        let mut stack = std::mem::take(&mut work.stack);
        let argument = (&raw const *work).cast_mut().cast();
        // SAFETY: `watch` makes raw system calls only. `work` and `stack` are heap memory that is freed only after the process has been reaped, or that
        // lives on in the shared memory when this process ends first.
        let started = unsafe { clone::spawn_sharing_memory(&mut stack, 0, watch, argument) };
        work.stack = stack;
        let (_, pidfd) = started?;
        Ok(Self {
            pidfd,
            lifeline: Some(lifeline),
            work: ManuallyDrop::new(work),
        })
    }

    /// Has the message said without anybody waiting for that.
    pub fn alone(self) {
        std::thread::spawn(move || drop(self));
    }

    /// All is done already: nothing is said.
    pub fn unneeded(self) {
        if let Some(lifeline) = &self.lifeline {
            let _ = rustix::io::write(lifeline, b"!");
        }
    }
}

impl Drop for Farewell {
    fn drop(&mut self) {
        self.lifeline = None;
        let id = || WaitId::PidFd(self.pidfd.as_fd());
        while let Err(Errno::INTR) = rustix::process::waitid(id(), WaitIdOptions::EXITED) {}
        // SAFETY: the process has ended, and this is the only place that drops it.
        unsafe { ManuallyDrop::drop(&mut self.work) };
    }
}

/// Where the process begins.
extern "C" fn watch(argument: *mut libc::c_void) -> libc::c_int {
    // SAFETY: `Farewell::start` handed us a live `Work`, which outlives this process.
    let work = unsafe { &*argument.cast::<Work>() };
    let _ = rustix::thread::set_name(c"cofferdam-last");
    janitor::shield();
    janitor::keep(&mut [work.wake]);
    // SAFETY: open in this process for its whole life: `keep` spared it.
    let wake = unsafe { BorrowedFd::borrow_raw(work.wake) };
    let word = loop {
        match rustix::io::read(wake, &mut [0u8; 1]) {
            Err(Errno::INTR) => {}
            other => break other,
        }
    };
    if word != Ok(0) {
        raw::exit(0);
    }
    for nap in NAPS_MS {
        if say(work) == Ok(()) {
            break;
        }
        let _ = rustix::thread::nanosleep(&Timespec {
            tv_sec: nap / 1000,
            tv_nsec: nap % 1000 * 1_000_000,
        });
    }
    raw::exit(0)
}

/// One attempt; an answer that is not a success is one more error.
fn say(work: &Work) -> Result<(), Errno> {
    let family = match &work.address {
        Place::Unix(_) => AddressFamily::UNIX,
        Place::Inet(SocketAddr::V4(_)) => AddressFamily::INET,
        Place::Inet(SocketAddr::V6(_)) => AddressFamily::INET6,
    };
    let socket = rustix::net::socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    for side in [Timeout::Recv, Timeout::Send] {
        sockopt::set_socket_timeout(&socket, side, Some(PATIENCE))?;
    }
    match &work.address {
        Place::Unix(address) => rustix::net::connect(&socket, address)?,
        Place::Inet(address) => rustix::net::connect(&socket, address)?,
    }
    let mut rest = work.message.as_slice();
    while !rest.is_empty() {
        let sent = rustix::net::send(&socket, rest, SendFlags::NOSIGNAL)?;
        rest = rest.get(sent..).unwrap_or_default();
    }
    let mut answer = [0u8; DONE.len()];
    let mut have = 0;
    while let Some(room @ [_, ..]) = answer.get_mut(have..) {
        let (_, got) = rustix::net::recv(&socket, room, RecvFlags::empty())?;
        if got == 0 {
            break;
        }
        have += got;
    }
    if answer.as_slice() == DONE {
        Ok(())
    } else {
        Err(Errno::AGAIN)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::os::unix::net::UnixListener;

    use super::*;

    fn daemon() -> (tempfile::TempDir, UnixListener, Address) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        let address = Address::unix(&path).unwrap();
        (dir, listener, address)
    }

    fn answer(listener: &UnixListener, with: &[u8]) -> Vec<u8> {
        let (mut peer, _) = listener.accept().unwrap();
        let mut heard = vec![0; 5];
        peer.read_exact(&mut heard).unwrap();
        peer.write_all(with).unwrap();
        heard
    }

    #[test]
    fn the_message_is_said_again_until_it_is_answered_with_success() {
        let (_dir, listener, address) = daemon();
        let farewell = Farewell::start(address, b"hello".to_vec()).unwrap();
        let hearing = std::thread::spawn(move || {
            let first = answer(&listener, b"HTTP/1.1 404 Not Found\r\n\r\n");
            (first, answer(&listener, b"HTTP/1.1 204 No Content\r\n\r\n"))
        });
        drop(farewell);
        let heard = hearing.join().unwrap();
        assert_eq!(heard, (b"hello".to_vec(), b"hello".to_vec()));
    }

    #[test]
    fn nothing_is_said_when_nothing_is_needed() {
        let (_dir, listener, address) = daemon();
        Farewell::start(address, b"hello".to_vec())
            .unwrap()
            .unneeded();
        listener.set_nonblocking(true).unwrap();
        let nobody = listener.accept().unwrap_err();
        assert_eq!(nobody.kind(), std::io::ErrorKind::WouldBlock);
    }
}
