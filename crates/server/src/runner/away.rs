//! A run whose turn has come and that other machines carry out: its thread waits for it, and its end is kept and told like every other.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::Runner;
use super::endings::{canceled, expired, never_started};
use crate::away::{Away, FrontDoor};
use crate::fault::Fault;
use crate::live::{Live, Outcome};
use crate::self_test;

impl Runner {
    pub(crate) fn with_front_door(mut self, door: Option<FrontDoor>) -> Self {
        self.front_door = door;
        self
    }

    /// Whether anything can be run.
    pub(crate) fn test(&self) -> Result<(), String> {
        match &self.front_door {
            Some(door) => door.check(),
            None => self_test::try_once(&self.host),
        }
    }

    /// Whether the fleet is asked for it even past its deadline: it may have ended there in time, when no daemon was here.
    pub(super) fn may_have_answer(&self, live: &Live) -> bool {
        self.front_door.is_some() && live.taken_up
    }

    pub(super) fn perform_away(self: &Arc<Self>, door: &FrontDoor, live: &Live) {
        let carried_out = catch_unwind(AssertUnwindSafe(|| match live.take_work() {
            Some(work) => door.carry_out(&work, live, self.place(None), &|| self.begin(live)),
            None => Away::Failed(Fault::internal("the work was taken already")),
        }));
        let away = carried_out.unwrap_or_else(|_| {
            Away::Failed(Fault::internal("a fault of the daemon; its log says more"))
        });
        let (outcome, ending) = match away {
            Away::Finished(finished) => (Outcome::Finished(finished), None),
            Away::Failed(fault) => {
                let ending = never_started(&fault);
                (Outcome::Failed(fault), Some(ending))
            }
            Away::Canceled => (
                Outcome::CanceledInQueue,
                Some(canceled("canceled before there was an answer")),
            ),
            Away::Expired => (Outcome::Expired, Some(expired(live))),
            Away::Left => {
                // It was promised: nothing is told, and the next daemon waits for it.
                let mut state = self.state();
                state.release(live);
                drop(state);
                self.quiet.notify_all();
                return;
            }
        };
        match ending {
            Some(ending) => self.archive.keep_unrun(live, ending),
            None => self.archive.ended(),
        }
        let conclusion = self.conclude(live, outcome);
        self.tell(live, &conclusion);
        let mut state = self.state();
        state.release(live);
        self.finish(live, conclusion, &mut state);
        self.dispatch(&mut state);
        drop(state);
        self.quiet.notify_all();
    }
}
