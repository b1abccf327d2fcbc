//! How a person ends a run: Ctrl-C and its relatives become a descriptor that the supervisor watches.

use std::os::fd::OwnedFd;

use cofferdam_sys::signals;
use rustix::process::Signal;

use crate::error::EngineError;

/// A descriptor that becomes readable when this process is asked to end. The signals no longer end it by themselves.
pub fn cancel_on_signals() -> Result<OwnedFd, EngineError> {
    signals::watch(&[Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT])
        .map_err(EngineError::system("watch for signals"))
}
