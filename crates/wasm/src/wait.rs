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

use crate::stdio::has_data;

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

    /// Why the run must end, if it must by now.
    fn rang(&self) -> Option<StopCause> {
        if self
            .cancel
            .as_ref()
            .is_some_and(|fd| has_data(fd.get_ref()))
        {
            return Some(StopCause::Canceled);
        }
        let (limit, timer) = self.deadline.as_ref()?;
        has_data(timer.get_ref()).then_some(StopCause::WallTime { limit: *limit })
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

/// What became of reading the whole of an input.
pub(crate) enum Whole {
    Read(Input),
    Stopped(StopCause),
}

/// All of the input and never a part of it, which a program would take for all. One that does not end in time, or before the caller cancels, ends the run.
pub(crate) fn whole(input: Input, alarm: &Alarm) -> wasmtime::Result<Whole> {
    let Input::From(from) = input else {
        return Ok(Whole::Read(input));
    };
    let mut bytes = Vec::new();
    loop {
        let watched = alarm.deadline.as_ref().map(|(_, timer)| timer);
        let watched = watched.into_iter().chain(&alarm.cancel);
        let mut fds = vec![PollFd::new(&from, PollFlags::IN)];
        fds.extend(watched.map(|watched| PollFd::new(watched.get_ref(), PollFlags::IN)));
        match rustix::event::poll(&mut fds, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(unreadable(errno)),
        }
        if let Some(cause) = alarm.rang() {
            return Ok(Whole::Stopped(cause));
        }
        if !has_data(&from) {
            continue;
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
            Err(errno) => return Err(unreadable(errno)),
        }
    }
    Ok(Whole::Read(Input::Bytes(bytes)))
}

fn unreadable(errno: Errno) -> wasmtime::Error {
    wasmtime::Error::msg(format!("the input cannot be read: {errno}"))
}
