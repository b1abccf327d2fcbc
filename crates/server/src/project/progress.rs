//! How far the steps of a project have come, for those who follow its run.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use cofferdam_project::report::Counts;
use serde_json::{Value, json};

/// The step that runs, or ran last.
#[derive(Debug, Default)]
pub(crate) struct Progress(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    now: Option<Now>,
    /// Of the steps before it, without attempts that do not count any more.
    before: Counts,
    /// Grows with each change.
    version: u64,
}

#[derive(Debug)]
struct Now {
    project: String,
    step: u32,
    attempt: u32,
    since: Instant,
    took: Option<Duration>,
    /// `None` where its tests are not told before the end.
    counts: Option<Counts>,
}

impl Progress {
    pub(crate) fn began(&self, project: &str, attempt: u32, counts: bool) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let last = state.now.take();
        let step = last.as_ref().map_or(1, |last| match attempt {
            1 => last.step + 1,
            _ => last.step,
        });
        if let Some(ended) = last.and_then(|last| last.counts)
            && attempt == 1
        {
            state.before = sum(state.before, ended);
        }
        state.now = Some(Now {
            project: project.to_owned(),
            step,
            attempt,
            since: Instant::now(),
            took: None,
            counts: counts.then(Counts::default),
        });
        state.version += 1;
    }

    pub(crate) fn counted(&self, counts: Counts) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(now) = &mut state.now {
            now.counts = Some(counts);
            state.version += 1;
        }
    }

    pub(crate) fn ended(&self) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(now) = &mut state.now {
            now.took = Some(now.since.elapsed());
            state.version += 1;
        }
    }

    /// What is new since a version, with its own. Whoever asks seldom sees the last state and misses none that stays.
    pub(crate) fn since(&self, version: u64) -> Option<(u64, Value)> {
        let state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = state.now.as_ref().filter(|_| state.version > version)?;
        let elapsed = now.took.unwrap_or_else(|| now.since.elapsed());
        let told = json!({
            "project": now.project,
            "step": now.step,
            "attempt": now.attempt,
            "elapsed_ms": crate::view::milliseconds(elapsed),
            "counts": now.counts.map(|counts| sum(state.before, counts)),
        });
        Some((state.version, told))
    }
}

fn sum(a: Counts, b: Counts) -> Counts {
    Counts {
        total: a.total + b.total,
        passed: a.passed + b.passed,
        failed: a.failed + b.failed,
        skipped: a.skipped + b.skipped,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passed(n: usize) -> Counts {
        Counts {
            total: n,
            passed: n,
            ..Counts::default()
        }
    }

    #[test]
    fn counts_add_up_over_steps_and_begin_anew_with_each_attempt() {
        let progress = Progress::default();
        assert!(progress.since(0).is_none());
        progress.began("a", 1, true);
        progress.counted(passed(2));
        progress.ended();
        progress.began("b", 1, true);
        progress.counted(passed(5));
        progress.began("b", 2, true);
        progress.counted(passed(1));
        let (version, told) = progress.since(0).unwrap();
        assert_eq!((&told["project"], &told["step"]), (&json!("b"), &json!(2)));
        assert_eq!(told["counts"]["passed"], json!(3));
        assert!(progress.since(version).is_none());
        progress.began("c", 1, false);
        assert_eq!(progress.since(version).unwrap().1["counts"], Value::Null);
    }
}
