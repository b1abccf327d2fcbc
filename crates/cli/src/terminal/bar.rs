//! A bar that fills while something large comes, on one line of the terminal that goes away again. Silent where nobody looks.

use std::time::{Duration, Instant};

use super::amount;
use super::foot::Foot;

/// Something large that comes in pieces.
#[derive(Debug)]
pub(crate) struct Bar {
    what: &'static str,
    next: Instant,
    foot: Foot,
}

const BETWEEN: Duration = Duration::from_millis(100);
const WIDTH: u64 = 30;

impl Bar {
    pub(crate) fn new(what: &'static str) -> Self {
        Self {
            what,
            next: Instant::now(),
            foot: Foot::default(),
        }
    }

    /// So many bytes of so many; the line goes when all are there.
    pub(crate) fn at(&mut self, done: u64, of: u64) {
        let now = Instant::now();
        if done >= of {
            self.foot.clear();
        } else if now >= self.next {
            self.next = now + BETWEEN;
            self.foot.draw(&line(self.what, done, of), None);
        }
    }
}

/// The numbers first: on a narrow terminal the bar is what is cut.
fn line(what: &str, done: u64, of: u64) -> String {
    let full = (u128::from(done) * u128::from(WIDTH) / u128::from(of.max(1))).min(WIDTH.into());
    let full = usize::try_from(full).unwrap_or(0);
    let bar: String = (0..usize::try_from(WIDTH).unwrap_or(0))
        .map(|at| if at < full { '#' } else { '-' })
        .collect();
    let (done, of) = (amount::bytes(done), amount::bytes(of));
    format!("{what} {done} of {of} [{bar}]")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_fills_from_left_to_right() {
        assert_eq!(
            line("pulling", 512, 1024),
            "pulling 512 B of 1 KiB [###############---------------]"
        );
        assert!(line("x", 0, 0).contains("[-----"));
        assert!(line("x", u64::MAX, u64::MAX).contains("####]"));
    }
}
