//! One line at the foot of the terminal that says which step runs, how many of its tests have ended, and how long it takes. It makes way for what the tools say and goes when it is done with;
//! where standard error is no terminal there is none.

use std::io::{self, Write as _};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use cofferdam_project::report::Counts;

use super::amount;
use super::colour::Colour;
use super::foot::{self, Foot, PATIENCE};
use super::text::safe;

const EVERY: Duration = Duration::from_millis(200);
/// A longer beginning of a line is shown as it is.
const LONGEST: usize = 16 << 10;

/// The line, and who draws it.
#[derive(Debug)]
pub(crate) struct CountsLine {
    state: Arc<Mutex<State>>,
    stop: Option<Sender<()>>,
    drawer: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct State {
    step: Option<Step>,
    /// Of the steps before it.
    before: Counts,
    foot: Foot,
    /// The beginning of a line whose end has not come. It is shown when it is whole, and until then as what goes on.
    held: Vec<u8>,
}

#[derive(Debug)]
struct Step {
    name: String,
    attempt: u32,
    since: Instant,
    /// `None` where its tests are not told before the end.
    counts: Option<Counts>,
}

impl CountsLine {
    /// `None` where nobody would see it.
    pub(crate) fn of_stderr() -> Option<Self> {
        if !foot::is_seen() {
            return None;
        }
        let state = Arc::new(Mutex::new(State {
            step: None,
            before: Counts::default(),
            foot: Foot::default(),
            held: Vec::new(),
        }));
        let (stop, stopped) = mpsc::channel();
        let of_thread = Arc::clone(&state);
        let drawer = std::thread::Builder::new()
            .name("line".to_owned())
            .spawn(move || {
                while let Err(RecvTimeoutError::Timeout) = stopped.recv_timeout(EVERY) {
                    lock(&of_thread).draw();
                }
            });
        Some(Self {
            state,
            stop: Some(stop),
            drawer: drawer.ok(),
        })
    }

    pub(crate) fn began(&self, name: &str, attempt: u32, counts: bool) {
        let mut state = lock(&self.state);
        if let Some(before) = state.step.take().and_then(|step| step.counts)
            && attempt == 1
        {
            state.before.total += before.total;
            state.before.failed += before.failed;
            state.before.skipped += before.skipped;
        }
        state.step = Some(Step {
            name: name.to_owned(),
            attempt,
            since: Instant::now(),
            counts: counts.then(Counts::default),
        });
    }

    /// The same where counts come as sums over all steps already.
    pub(crate) fn renamed(&self, name: &str, attempt: u32, counts: bool) {
        lock(&self.state).step = None;
        self.began(name, attempt, counts);
    }

    pub(crate) fn counted(&self, counts: Counts) {
        if let Some(step) = &mut lock(&self.state).step {
            step.counts = Some(counts);
        }
    }

    /// Makes way for what a tool says. A person who has gone away is no reason to stop the tool.
    pub(crate) fn write(&self, bytes: &[u8]) {
        let mut state = lock(&self.state);
        state.held.extend_from_slice(bytes);
        let whole = match state.held.iter().rposition(|byte| *byte == b'\n') {
            Some(end) => end + 1,
            None if state.held.len() > LONGEST => state.held.len(),
            None => return,
        };
        state.foot.clear();
        let shown: Vec<u8> = state.held.drain(..whole).collect();
        let _ = io::stderr().write_all(&shown);
    }
}

impl Drop for CountsLine {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(drawer) = self.drawer.take() {
            let _ = drawer.join();
        }
        let mut state = lock(&self.state);
        state.foot.clear();
        let held = std::mem::take(&mut state.held);
        if !held.is_empty() {
            let _ = io::stderr().write_all(&held);
            let _ = io::stderr().write_all(b"\n");
        }
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl State {
    fn draw(&mut self) {
        let Some(step) = &self.step else {
            return;
        };
        let elapsed = step.since.elapsed();
        if elapsed < PATIENCE {
            return;
        }
        let held = String::from_utf8_lossy(&self.held);
        let (text, colour) = step.line(self.before, elapsed, held.trim());
        self.foot.draw(&text, Some(colour));
    }
}

impl Step {
    /// The numbers first: on a narrow terminal the name is what is cut.
    fn line(&self, before: Counts, elapsed: Duration, said: &str) -> (String, Colour) {
        let mut parts = Vec::new();
        let mut colour = Colour::Dim;
        if let Some(counts) = self.counts {
            parts.push(format!("{} tests", before.total + counts.total));
            let failed = before.failed + counts.failed;
            if failed > 0 {
                parts.push(format!("{failed} failed"));
                colour = Colour::Red;
            }
            let skipped = before.skipped + counts.skipped;
            if skipped > 0 {
                parts.push(format!("{skipped} skipped"));
            }
        }
        // Tenths of a second would only flicker.
        let whole = Duration::from_secs(elapsed.as_secs());
        parts.push(amount::milliseconds(whole.as_secs_f64() * 1000.0));
        if self.attempt > 1 {
            parts.push(format!("attempt {}", self.attempt));
        }
        // What a tool is in the middle of saying names the test that runs.
        let what = if said.is_empty() { &self.name } else { said };
        (format!("{}  {}", parts.join(", "), safe(what)), colour)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(counts: Option<Counts>, attempt: u32) -> Step {
        Step {
            name: "a\u{1b}[2J.json".to_owned(),
            attempt,
            since: Instant::now(),
            counts,
        }
    }

    #[test]
    fn the_line_says_what_has_ended_and_how_long_it_takes() {
        let counts = Counts {
            total: 12,
            passed: 10,
            failed: 1,
            skipped: 1,
        };
        let before = Counts {
            total: 3,
            ..Counts::default()
        };
        let (text, colour) = step(Some(counts), 2).line(before, Duration::from_millis(4200), "");
        assert!(
            text.starts_with("15 tests, 1 failed, 1 skipped, 4"),
            "{text}"
        );
        assert!(text.contains("attempt 2"), "{text}");
        assert_eq!(colour, Colour::Red);
        assert!(!text.contains('\u{1b}'), "{text}");
        let (text, colour) =
            step(None, 1).line(Counts::default(), Duration::from_secs(61), "test_b ...");
        assert!(
            !text.contains("tests") && text.ends_with("test_b ..."),
            "{text}"
        );
        assert_eq!(colour, Colour::Dim);
    }
}
