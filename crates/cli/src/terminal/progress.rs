//! How far long work has come, on one line of the terminal that goes away again. Silent for work that is done at once, and where nobody looks.

use std::time::{Duration, Instant};

use super::foot::{Foot, PATIENCE};

/// Work that takes a while.
#[derive(Debug)]
pub(crate) struct Progress {
    what: &'static str,
    next: Instant,
    foot: Foot,
}

const BETWEEN: Duration = Duration::from_millis(100);

impl Progress {
    pub(crate) fn new(what: &'static str) -> Self {
        Self {
            what,
            next: Instant::now() + PATIENCE,
            foot: Foot::default(),
        }
    }

    pub(crate) fn at(&mut self, done: u64, of: u64) {
        let now = Instant::now();
        if now >= self.next {
            self.next = now + BETWEEN;
            self.foot.draw(&format!("{} {done}/{of}", self.what), None);
        }
    }

    pub(crate) fn clear(&mut self) {
        self.foot.clear();
    }
}
