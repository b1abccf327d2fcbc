//! What a run waits for besides its program: its deadline, by the machine's own clock even where the program's is another; the caller's wish to end it; and, before it starts, the
//! whole of its input where that must not depend on when it comes.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;

use cofferdam_contract::ending::StopCause;
use cofferdam_contract::units::Cap;
use cofferdam_engine::pipeline::Input;
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// What ends a run from outside, whatever its program does.
#[derive(Debug)]
pub(crate) struct Alarm {
    deadline: Option<(Duration, AsyncFd<OwnedFd>)>,
    cancel: Option<AsyncFd<OwnedFd>>,
}

impl Alarm {
    /// The time begins now.
    pub(crate) fn new(
        limit: Cap<Duration>,
        cancel: Option<BorrowedFd<'_>>,
    ) -> std::io::Result<Self> {
        let deadline = match limit {
            Cap::AtMost(limit) => Some((limit, watched(timer(limit)?)?)),
            Cap::Unlimited => None,
        };
        let cancel = match cancel {
            Some(cancel) => Some(watched(cancel.try_clone_to_owned()?)?),
            None => None,
        };
        Ok(Self { deadline, cancel })
    }

    /// Returns when the run must end, and why.
    pub(crate) async fn rings(&self) -> StopCause {
        let late = async {
            match &self.deadline {
                Some((limit, timer)) => {
                    let _ = timer.readable().await;
                    StopCause::WallTime { limit: *limit }
                }
                None => std::future::pending().await,
            }
        };
        let canceled = async {
            match &self.cancel {
                Some(cancel) => {
                    let _ = cancel.readable().await;
                    StopCause::Canceled
                }
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            cause = canceled => cause,
            cause = late => cause,
        }
    }
}

#[allow(
    deprecated,
    reason = "its replacement is unsafe for types that could lend a descriptor that is not theirs; this one owns it"
)]
fn watched(descriptor: OwnedFd) -> std::io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::with_interest(descriptor, Interest::READABLE)
}

fn timer(limit: Duration) -> Result<OwnedFd, Errno> {
    let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
    let timer = rustix::time::timerfd_create(TimerfdClockId::Monotonic, flags)?;
    let once = Itimerspec {
        it_interval: Timespec::default(),
        it_value: Timespec::try_from(limit).map_err(|_| Errno::OVERFLOW)?,
    };
    rustix::time::timerfd_settime(&timer, TimerfdTimerFlags::empty(), &once)?;
    Ok(timer)
}

/// No input of a deterministic run may be larger.
const LARGEST_INPUT: usize = 64 << 20;

/// All of the input, or as much as there is when the caller cancels.
pub(crate) fn whole(input: Input, cancel: Option<BorrowedFd<'_>>) -> wasmtime::Result<Input> {
    let Input::From(from) = input else {
        return Ok(input);
    };
    let mut bytes = Vec::new();
    loop {
        let mut fds = vec![PollFd::new(&from, PollFlags::IN)];
        fds.extend(cancel.map(|cancel| PollFd::from_borrowed_fd(cancel, PollFlags::IN)));
        match rustix::event::poll(&mut fds, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(_) => break,
        }
        if fds.get(1).is_some_and(|fd| !fd.revents().is_empty()) {
            break;
        }
        bytes.reserve(64 << 10);
        match rustix::io::read(&from, rustix::buffer::spare_capacity(&mut bytes)) {
            Ok(0) => break,
            Ok(_) if bytes.len() > LARGEST_INPUT => {
                return Err(wasmtime::Error::msg(
                    "the input of a deterministic run is read before its start, and this is more than 64 MiB",
                ));
            }
            Ok(_) | Err(Errno::AGAIN | Errno::INTR) => {}
            Err(_) => break,
        }
    }
    Ok(Input::Bytes(bytes))
}
