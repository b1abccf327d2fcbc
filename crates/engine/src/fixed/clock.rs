//! The one clock of a run. It goes on a little whenever somebody looks, so that whoever waits for it to pass is not waiting for ever, and by what was waited out. How long the machine really took
//! never shows.
//!
//! A wait is made by the kernel, in earnest: others may have work to do meanwhile. Whether it was waited out or ended early is known when the thread calls again: by then as much time has passed
//! as the wait was to take, or it has not. Whoever only sleeps may end without calling again, so a sleep that is over counts for everybody.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// 2000-01-01T00:00:00Z, as in WebAssembly: no program is older, and none takes it for an unset clock.
pub(super) const EPOCH: Duration = Duration::from_secs(946_684_800);
/// What the clocks since the start of the machine say at the beginning. Less than any machine has been up: a wait until a point in time can end early then, and never late.
pub(super) const START: Duration = Duration::from_secs(1);
/// About what a look takes, so that a program which looks until a second is over needs about a second.
const STEP: Duration = Duration::from_micros(10);
/// Threads whose waits are remembered.
const MOST_WAITS: usize = 65_536;
const MOST_SLEEPS: usize = 1024;

/// By how many nanoseconds the clocks of a program that begins about now must differ from ours.
pub(crate) fn offsets() -> [i64; 2] {
    let start = i64::try_from(START.as_nanos()).unwrap_or(0);
    [ClockId::Monotonic, ClockId::Boottime].map(|clock| start.saturating_sub(nanos(now(clock))))
}

/// Until when a thread waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Until {
    /// So long from now.
    After(Duration),
    /// Until the clocks since the start of the machine say so.
    Monotonic(Duration),
    /// Until the wall clock says so: long past for the kernel, which knows what time it really is.
    Wall(Duration),
}

/// What ends a wait, besides its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Waiting {
    /// Nothing but a signal.
    Sleep,
    /// Whatever it is that the thread waits for.
    Event,
}

#[derive(Debug)]
pub(super) struct Clock {
    /// Since the beginning.
    moved: Duration,
    waits: HashMap<u32, Wait>,
    sleeps: HashMap<u32, Wait>,
    /// How far the monotonic clock of the program's kernel is from ours; 0 where it has none of its own.
    offset: i64,
}

#[derive(Debug)]
struct Wait {
    since: Instant,
    lasts: Duration,
    /// What the clock says when it was waited out.
    until: Duration,
}

impl Wait {
    fn is_over(&self) -> bool {
        self.since.elapsed() >= self.lasts
    }
}

impl Clock {
    pub(super) fn new() -> Self {
        Self {
            moved: Duration::ZERO,
            waits: HashMap::new(),
            sleeps: HashMap::new(),
            offset: 0,
        }
    }

    /// The program's kernel counts from another beginning.
    pub(super) fn set_offset(&mut self, offset: i64) {
        self.offset = offset;
    }

    /// Time since the beginning, for a thread that asks.
    pub(super) fn look(&mut self, thread: u32) -> Duration {
        self.settle(thread);
        let now = self.moved;
        self.moved = self.moved.saturating_add(STEP);
        now
    }

    /// A thread begins to wait. A wait of no length is none.
    pub(super) fn wait(&mut self, thread: u32, waiting: Waiting, until: Until) {
        self.settle(thread);
        // First: whoever is kept waiting between these two must not seem to have waited less.
        let since = Instant::now();
        let (lasts, until) = match until {
            Until::After(lasts) => (lasts, self.moved.saturating_add(lasts)),
            Until::Monotonic(at) => {
                let kernel = nanos(now(ClockId::Monotonic)).saturating_add(self.offset);
                let kernel = Duration::from_nanos(u64::try_from(kernel).unwrap_or(0));
                (at.saturating_sub(kernel), at.saturating_sub(START))
            }
            Until::Wall(at) => {
                let lasts = at.saturating_sub(now(ClockId::Realtime));
                (lasts, at.saturating_sub(EPOCH))
            }
        };
        let (waits, most) = match waiting {
            Waiting::Sleep => (&mut self.sleeps, MOST_SLEEPS),
            Waiting::Event => (&mut self.waits, MOST_WAITS),
        };
        if until <= self.moved || waits.len() >= most {
            return;
        }
        let wait = Wait {
            since,
            lasts,
            until,
        };
        waits.insert(thread, wait);
    }

    /// A thread that calls again does not wait any more.
    pub(super) fn settle(&mut self, thread: u32) {
        if let Some(wait) = self.waits.remove(&thread)
            && wait.is_over()
        {
            self.moved = self.moved.max(wait.until);
        }
        for (_, wait) in self.sleeps.extract_if(|_, wait| wait.is_over()) {
            self.moved = self.moved.max(wait.until);
        }
        self.sleeps.remove(&thread);
    }
}

fn now(clock: ClockId) -> Duration {
    Duration::try_from(clock_gettime(clock)).unwrap_or_default()
}

fn nanos(time: Duration) -> i64 {
    i64::try_from(time.as_nanos()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looking_moves_the_clock_and_real_time_does_not() {
        let mut clock = Clock::new();
        let looks = [0, 1, 2].map(|_| clock.look(5));
        assert_eq!(looks, [Duration::ZERO, STEP, 2 * STEP]);
    }

    #[test]
    fn a_wait_moves_the_clock_only_when_it_was_waited_out() {
        let mut clock = Clock::new();
        let long = Duration::from_secs(3600);
        clock.wait(5, Waiting::Event, Until::After(long));
        assert_eq!(clock.look(5), Duration::ZERO, "ended early");
        clock.wait(5, Waiting::Event, Until::Wall(EPOCH + long));
        assert_eq!(clock.look(6), STEP, "another thread does not wait");
        assert_eq!(clock.look(5), long, "for the kernel it was over at once");
        clock.set_offset(offsets()[0]);
        clock.wait(5, Waiting::Event, Until::Monotonic(START + 2 * long));
        assert_eq!(clock.look(5), long + STEP, "ended early");
        clock.wait(5, Waiting::Event, Until::Monotonic(START));
        assert_eq!(clock.look(5), long + 2 * STEP, "the clock never goes back");
    }

    #[test]
    fn a_sleep_that_is_over_counts_for_everybody() {
        let mut clock = Clock::new();
        let long = Duration::from_secs(3600);
        clock.wait(5, Waiting::Sleep, Until::After(long));
        assert_eq!(clock.look(6), Duration::ZERO);
        clock.wait(7, Waiting::Sleep, Until::Wall(EPOCH + long));
        assert_eq!(clock.look(6), long);
        assert_eq!(clock.look(5), long + STEP, "its own sleep was cut short");
    }

    #[test]
    fn two_threads_that_wait_at_the_same_time_do_not_wait_twice() {
        let mut clock = Clock::new();
        let at = Until::Wall(EPOCH + Duration::from_secs(9));
        clock.wait(5, Waiting::Event, at);
        clock.wait(6, Waiting::Event, at);
        assert_eq!(clock.look(5), Duration::from_secs(9));
        assert_eq!(clock.look(6), Duration::from_secs(9) + STEP);
    }
}
