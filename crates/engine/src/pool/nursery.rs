//! The interpreters that wait to be copied: started when one is first wanted, anew when one has ended or another version lies in its place, and left alone for a while when it cannot be had.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use cofferdam_contract::request::Request;

use crate::error::EngineError;
use crate::interpreter::Interpreter;
use crate::zygote::Zygote;

#[derive(Debug)]
pub(super) struct Nursery {
    cots: Vec<Cot>,
}

#[derive(Debug)]
struct Cot {
    interpreter: Arc<Interpreter>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    zygote: Option<Zygote>,
    /// After a failure, not before this: runs start cold meanwhile.
    not_before: Option<Instant>,
}

const AFTER_A_FAILURE: Duration = Duration::from_secs(10);

impl Nursery {
    pub(super) fn new(interpreters: Vec<Interpreter>) -> Self {
        let cots = interpreters.into_iter().map(|interpreter| Cot {
            interpreter: Arc::new(interpreter),
            state: Mutex::default(),
        });
        Self {
            cots: cots.collect(),
        }
    }

    /// The interpreter that a request can have a copy of.
    pub(super) fn choose(&self, request: &Request) -> Option<Arc<Interpreter>> {
        let cot = self
            .cots
            .iter()
            .find(|cot| cot.interpreter.suits(request))?;
        // Whoever holds the lock is just using it.
        let is_put_off = cot.state.try_lock().is_ok_and(|state| state.is_put_off());
        (!is_put_off).then(|| Arc::clone(&cot.interpreter))
    }

    /// Does something with one that waits.
    pub(super) fn with(
        &self,
        interpreter: &Arc<Interpreter>,
        work: impl FnOnce(&Zygote) -> Result<(), EngineError>,
    ) -> Result<(), EngineError> {
        let missing = EngineError::system("find an interpreter");
        let cot = self.cot(interpreter);
        let cot = cot.ok_or_else(|| missing(rustix::io::Errno::NOENT))?;
        let mut state = cot.state();
        let done = state.current(interpreter).and_then(work);
        if done.is_err() {
            state.put_off();
        }
        done
    }

    /// What it sent did not arrive.
    pub(super) fn put_off(&self, interpreter: &Arc<Interpreter>) {
        if let Some(cot) = self.cot(interpreter) {
            cot.state().put_off();
        }
    }

    fn cot(&self, interpreter: &Arc<Interpreter>) -> Option<&Cot> {
        let mut cots = self.cots.iter();
        cots.find(|cot| Arc::ptr_eq(&cot.interpreter, interpreter))
    }
}

impl Cot {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Whatever it was: the next one begins anew.
    fn put_off(&mut self) {
        self.zygote = None;
        self.not_before = Some(Instant::now() + AFTER_A_FAILURE);
    }

    fn is_put_off(&self) -> bool {
        self.not_before.is_some_and(|time| Instant::now() < time)
    }

    fn current(&mut self, interpreter: &Interpreter) -> Result<&Zygote, EngineError> {
        let kept = self.zygote.take().filter(Zygote::is_current);
        let zygote = match kept {
            Some(zygote) => zygote,
            None => Zygote::start(interpreter)?,
        };
        Ok(self.zygote.insert(zygote))
    }
}
