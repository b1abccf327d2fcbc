//! Calls that the filter asks about: refused and counted, let through and counted, or answered where the run must give the same each time.

use std::os::fd::AsFd;

use cofferdam_sys::seccomp::{self, Received};
use rustix::io::Errno;

use super::Supervisor;
use crate::fixed::{Caller, Taken};

impl Supervisor<'_> {
    pub(super) fn fill_random(&mut self) {
        if let Some(fixed) = &mut self.run.fixed {
            fixed.fill_device();
        }
    }

    /// Has a call answered that would differ from run to run. The program's process has calls of its own to make before it is the program, and those are the kernel's to answer; it
    /// says when it goes, and by the time that the program calls, that has been said.
    pub(super) fn answer_call(&mut self) {
        while self.run.fixed.is_some() && self.started.is_none() {
            match self.run.sandbox.receive() {
                Ok(Some(event)) => self.note(event),
                _ => break,
            }
        }
        self.note_denial();
    }

    /// Answers a refused call and counts it.
    fn note_denial(&mut self) {
        let Some(listener) = &self.listener else {
            return;
        };
        match seccomp::receive(listener.as_fd()) {
            Ok(Received::Call(call)) => {
                if let Some(fixed) = &mut self.run.fixed {
                    let caller = match self.started {
                        Some(_) => Caller::Program,
                        None => Caller::Starter,
                    };
                    if fixed.take(listener.as_fd(), &call, caller) == Taken::Yes {
                        return;
                    }
                }
                if let Some(mapping) = call.shared_mapping() {
                    self.run.watch.shared_memory_asked(call.pid, mapping);
                    let _ = seccomp::let_through(listener.as_fd(), call.id);
                    return;
                }
                *self.denied.entry(call.number).or_default() += 1;
                let errno = seccomp::errno_for(call.number, self.run.terms.variants);
                let _ = seccomp::respond(listener.as_fd(), call.id, errno);
            }
            Ok(Received::Gone) | Err(Errno::INTR | Errno::AGAIN) => {}
            // Nobody is left who could call.
            Err(_) => self.listener = None,
        }
    }
}
