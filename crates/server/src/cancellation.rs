//! How a run is told to end, whenever that is asked: before it runs, while it runs, or after it has ended. A run that waits holds no descriptor for it: thousands may wait, and every sandbox that
//! is built starts with a copy of the table of them.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::event::EventfdFlags;
use tokio::sync::watch;

use crate::fault::Fault;

#[derive(Debug, Default)]
pub(crate) struct Cancellation {
    state: Mutex<State>,
    /// For whoever waits for the word without a descriptor.
    word: watch::Sender<bool>,
}

#[derive(Debug, Default)]
enum State {
    #[default]
    Quiet,
    /// Before anybody watches.
    Asked,
    Watched(Arc<OwnedFd>),
    /// Remembering a result takes no descriptor.
    Over,
}

impl Cancellation {
    /// Harmless for a run that has ended.
    pub(crate) fn ask(&self) {
        self.word.send_replace(true);
        let mut state = self.state();
        match &*state {
            State::Quiet => *state = State::Asked,
            State::Watched(descriptor) => set(descriptor),
            State::Asked | State::Over => {}
        }
    }

    /// Until it was asked for.
    pub(crate) async fn asked(&self) {
        let mut word = self.word.subscribe();
        // The sender lives in `self`.
        let _ = word.wait_for(|asked| *asked).await;
    }

    /// Readable once it was asked for, for whoever supervises; `None` after the end.
    pub(crate) fn descriptor(&self) -> Result<Option<Arc<OwnedFd>>, Fault> {
        let mut state = self.state();
        let was_asked = match &*state {
            State::Watched(descriptor) => return Ok(Some(Arc::clone(descriptor))),
            State::Over => return Ok(None),
            State::Quiet => false,
            State::Asked => true,
        };
        let made = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let made =
            made.map_err(|errno| Fault::internal(format!("cannot make an eventfd: {errno}")))?;
        if was_asked {
            set(&made);
        }
        let made = Arc::new(made);
        *state = State::Watched(Arc::clone(&made));
        Ok(Some(made))
    }

    pub(crate) fn end(&self) {
        *self.state() = State::Over;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Full would mean that it was asked 2^64 times.
fn set(descriptor: &OwnedFd) {
    let one: u64 = 1;
    let _ = rustix::io::write(descriptor, &one.to_ne_bytes());
}

#[cfg(test)]
mod tests {
    use rustix::event::{PollFd, PollFlags, Timespec};

    use super::*;

    fn is_told(descriptor: &OwnedFd) -> bool {
        let mut fds = [PollFd::new(descriptor, PollFlags::IN)];
        rustix::event::poll(&mut fds, Some(&Timespec::default())) == Ok(1)
    }

    #[test]
    fn it_is_told_whether_it_was_asked_before_or_while_somebody_watches() {
        let early = Cancellation::default();
        early.ask();
        assert!(is_told(&early.descriptor().unwrap().unwrap()));
        let late = Cancellation::default();
        let descriptor = late.descriptor().unwrap().unwrap();
        assert!(!is_told(&descriptor));
        late.ask();
        assert!(is_told(&descriptor));
        assert!(Arc::ptr_eq(
            &descriptor,
            &late.descriptor().unwrap().unwrap()
        ));
    }

    #[test]
    fn after_the_end_there_is_nothing_to_watch() {
        let over = Cancellation::default();
        drop(over.descriptor().unwrap());
        over.end();
        over.ask();
        assert!(over.descriptor().unwrap().is_none());
    }
}
