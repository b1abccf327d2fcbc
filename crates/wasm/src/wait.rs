//! What a run waits for besides its program: its deadline, by the machine's own clock even where the program's is another; the caller's wish to end it; and, before it starts, the
//! whole of its input where that must not depend on when it comes.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use cofferdam_contract::units::Cap;
use cofferdam_engine::pipeline::Input;
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec};
use tokio::io::Interest;

use crate::stdio;

/// Returns the limit when it is reached.
pub(crate) async fn deadline(limit: Cap<Duration>) -> Duration {
    let Cap::AtMost(limit) = limit else {
        return std::future::pending().await;
    };
    let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
    let timer = rustix::time::timerfd_create(TimerfdClockId::Monotonic, flags);
    let once = Itimerspec {
        it_interval: Timespec::default(),
        it_value: Timespec::try_from(limit).unwrap_or_default(),
    };
    let set = timer.and_then(|timer| {
        rustix::time::timerfd_settime(&timer, TimerfdTimerFlags::empty(), &once)?;
        Ok(timer)
    });
    match set {
        Ok(timer) => stdio::ready(timer.as_fd(), Interest::READABLE).await,
        // Out of descriptors: every beat still looks at the clock.
        Err(_) => return std::future::pending().await,
    }
    limit
}

/// Returns when the caller wants the run to end.
pub(crate) async fn canceled(cancel: Option<BorrowedFd<'_>>) {
    match cancel {
        Some(cancel) => stdio::ready(cancel, Interest::READABLE).await,
        None => std::future::pending().await,
    }
}

/// No input of a deterministic run may be larger.
const LARGEST_INPUT: usize = 64 << 20;

/// All of the input, or as much as there is when the caller cancels.
pub(crate) fn whole(input: Input, cancel: Option<BorrowedFd<'_>>) -> Input {
    let Input::From(from) = input else {
        return input;
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
            Ok(_) if bytes.len() > LARGEST_INPUT => break,
            Ok(_) | Err(Errno::AGAIN | Errno::INTR) => {}
            Err(_) => break,
        }
    }
    Input::Bytes(bytes)
}
