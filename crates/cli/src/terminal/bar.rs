//! A bar that fills while something large comes, on one line of the terminal that goes away again. Silent where nobody looks.

use std::io::{IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

use super::amount;

/// Something large that comes in pieces.
#[derive(Debug)]
pub(crate) struct Bar {
    what: &'static str,
    next: Instant,
    is_shown: bool,
    is_watched: bool,
}

const BETWEEN: Duration = Duration::from_millis(100);
const WIDTH: u64 = 30;

impl Bar {
    pub(crate) fn new(what: &'static str) -> Self {
        Self {
            what,
            next: Instant::now(),
            is_shown: false,
            is_watched: std::io::stderr().is_terminal(),
        }
    }

    /// So many bytes of so many; the line goes when all are there.
    pub(crate) fn at(&mut self, done: u64, of: u64) {
        let now = Instant::now();
        if !self.is_watched {
            return;
        }
        if done >= of {
            self.clear();
        } else if now >= self.next {
            self.next = now + BETWEEN;
            self.is_shown = true;
            let mut stderr = std::io::stderr();
            let _ = write!(stderr, "\r{}\u{1b}[K", line(self.what, done, of));
            let _ = stderr.flush();
        }
    }

    fn clear(&mut self) {
        if std::mem::take(&mut self.is_shown) {
            let _ = write!(std::io::stderr(), "\r\u{1b}[K");
        }
    }
}

/// An error message must not stand behind a half-finished line.
impl Drop for Bar {
    fn drop(&mut self) {
        self.clear();
    }
}

fn line(what: &str, done: u64, of: u64) -> String {
    let full = (u128::from(done) * u128::from(WIDTH) / u128::from(of.max(1))).min(WIDTH.into());
    let full = usize::try_from(full).unwrap_or(0);
    let bar: String = (0..usize::try_from(WIDTH).unwrap_or(0))
        .map(|at| if at < full { '#' } else { '-' })
        .collect();
    let (done, of) = (amount::bytes(done), amount::bytes(of));
    format!("{what} [{bar}] {done} of {of}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_fills_from_left_to_right() {
        assert_eq!(
            line("pulling", 512, 1024),
            "pulling [###############---------------] 512 B of 1 KiB"
        );
        assert!(line("x", 0, 0).contains("[-----"));
        assert!(line("x", u64::MAX, u64::MAX).contains("####]"));
    }
}
