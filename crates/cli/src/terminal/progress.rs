//! How far long work has come, on one line of the terminal that goes away again. Silent for work that is done at once, and where nobody looks.

use std::io::{IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

/// Work that takes a while.
#[derive(Debug)]
pub(crate) struct Progress {
    what: &'static str,
    next: Instant,
    is_shown: bool,
    is_watched: bool,
}

/// Shorter work is over before anybody wonders.
const PATIENCE: Duration = Duration::from_millis(500);
const BETWEEN: Duration = Duration::from_millis(100);

impl Progress {
    pub(crate) fn new(what: &'static str) -> Self {
        Self {
            what,
            next: Instant::now() + PATIENCE,
            is_shown: false,
            is_watched: std::io::stderr().is_terminal(),
        }
    }

    pub(crate) fn at(&mut self, done: u64, of: u64) {
        let now = Instant::now();
        if !self.is_watched || now < self.next {
            return;
        }
        self.next = now + BETWEEN;
        self.is_shown = true;
        let mut stderr = std::io::stderr();
        let _ = write!(stderr, "\r{} {done}/{of}\u{1b}[K", self.what);
        let _ = stderr.flush();
    }

    pub(crate) fn clear(&mut self) {
        if std::mem::take(&mut self.is_shown) {
            let _ = write!(std::io::stderr(), "\r\u{1b}[K");
        }
    }
}

/// An error message must not stand behind a half-finished line.
impl Drop for Progress {
    fn drop(&mut self) {
        self.clear();
    }
}
