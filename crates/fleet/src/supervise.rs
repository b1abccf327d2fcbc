//! Whether whoever holds a slot still lives, by signs of life as they are seen here: no clock but ours is believed, and silence counts only while we could hear. Pure.

use std::time::{Duration, Instant};

use cofferdam_contract::units::Cap;
use jiff::Timestamp;

use crate::model::{ClaimState, FailureKind, Settings};

/// What has been seen of one slot.
#[derive(Debug, Clone)]
pub struct Watched {
    /// Who held it, in which life.
    holder: Option<(String, String)>,
    beats: u64,
    revision: u64,
    held_since: Instant,
    changed: Instant,
}

/// What is known about a holder that is no more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Silent {
    pub worker: String,
    pub kind: FailureKind,
    pub for_how_long: Duration,
}

impl Watched {
    pub fn new(now: Instant) -> Self {
        Self {
            holder: None,
            beats: 0,
            revision: 0,
            held_since: now,
            changed: now,
        }
    }

    /// After we could not hear for a while: nobody's silence counts.
    pub fn deaf(&mut self, now: Instant) {
        self.changed = now;
        self.held_since = now;
    }

    /// Takes in how the claim looks now. Somebody is returned where another has the slot and its holder before that had been silent for as long as it takes.
    pub fn look(
        &mut self,
        state: &ClaimState,
        revision: u64,
        now: Instant,
        settings: &Settings,
    ) -> Option<Silent> {
        let (holder, beats) = match state {
            ClaimState::Held {
                worker,
                incarnation,
                beats,
            } => (Some((worker.clone(), incarnation.clone())), *beats),
            ClaimState::Free | ClaimState::Answered { .. } | ClaimState::Dead { .. } => (None, 0),
        };
        if revision == self.revision {
            return None;
        }
        let quiet = now.saturating_duration_since(self.changed);
        let gone = match &self.holder {
            Some((worker, _)) if self.holder != holder && was_long(quiet, settings) => {
                Some(Silent {
                    worker: worker.clone(),
                    kind: kind(self.beats),
                    for_how_long: quiet,
                })
            }
            _ => None,
        };
        if self.holder != holder {
            self.held_since = now;
        }
        self.holder = holder;
        self.beats = beats;
        self.revision = revision;
        self.changed = now;
        // Who answered was not silent, it was done.
        gone.filter(|_| !matches!(state, ClaimState::Answered { .. }))
    }

    /// Whether the slot has to be taken from whoever holds it: the grace is over, and there was no sign of life for too long.
    pub fn is_overdue(&self, now: Instant, settings: &Settings) -> Option<Silent> {
        let (worker, _) = self.holder.as_ref()?;
        let quiet = now.saturating_duration_since(self.changed);
        let held = now.saturating_duration_since(self.held_since);
        (held >= settings.grace() && quiet >= settings.heartbeat_timeout()).then(|| Silent {
            worker: worker.clone(),
            kind: kind(self.beats),
            for_how_long: quiet,
        })
    }

    /// Whether a slot is said to be answered for so long that the answer should be there.
    pub fn is_unanswered(&self, state: &ClaimState, now: Instant, settings: &Settings) -> bool {
        matches!(state, ClaimState::Answered { .. })
            && now.saturating_duration_since(self.changed) >= settings.heartbeat_timeout()
    }
}

/// How long an answer may be on its way after its run has ended.
const CARRYING: Duration = Duration::from_secs(1800);

/// Whether whatever began before the deadline must have come to its end long ago, however many signs of life there are.
pub(crate) fn is_long_over(deadline: Timestamp, limit: Cap<Duration>, now: Timestamp) -> bool {
    let since = Duration::try_from(now.duration_since(deadline)).unwrap_or_default();
    limit
        .at_most()
        .is_some_and(|limit| since > limit.saturating_add(CARRYING))
}

/// Somebody else's look and ours are not at the same instant.
fn was_long(quiet: Duration, settings: &Settings) -> bool {
    quiet >= settings.heartbeat_timeout().mul_f32(0.8)
}

const fn kind(beats: u64) -> FailureKind {
    match beats {
        0 => FailureKind::Crash,
        _ => FailureKind::Stall,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(worker: &str, beats: u64) -> ClaimState {
        ClaimState::Held {
            worker: worker.into(),
            incarnation: "1".into(),
            beats,
        }
    }

    fn settings() -> Settings {
        Settings::default()
    }

    /// The scenario of the seed: beats at 10 s and 20 s, then silence.
    #[test]
    fn a_worker_that_stalls_is_found_after_the_grace_and_a_crash_is_told_apart() {
        let start = Instant::now();
        let at = |second: u64| start + Duration::from_secs(second);
        let mut watched = Watched::new(start);
        assert_eq!(watched.look(&held("a", 0), 1, at(0), &settings()), None);
        assert_eq!(watched.look(&held("a", 1), 2, at(10), &settings()), None);
        assert_eq!(watched.look(&held("a", 2), 3, at(20), &settings()), None);
        assert_eq!(
            watched.is_overdue(at(59), &settings()),
            None,
            "39 s of silence, in the grace"
        );
        let silent = watched.is_overdue(at(60), &settings()).unwrap();
        assert_eq!(
            (silent.worker.as_str(), silent.kind),
            ("a", FailureKind::Stall)
        );
        let mut never = Watched::new(start);
        never.look(&held("b", 0), 1, at(0), &settings());
        assert_eq!(
            never.is_overdue(at(60), &settings()).unwrap().kind,
            FailureKind::Crash
        );
        let mut alive = Watched::new(start);
        alive.look(&held("c", 9), 1, at(45), &settings());
        assert_eq!(alive.is_overdue(at(74), &settings()), None);
    }

    #[test]
    fn signs_of_life_do_not_hold_a_slot_for_ever() {
        let deadline = Timestamp::from_second(1_000_000).unwrap();
        let limit = Duration::from_secs(60);
        let after = |second| deadline + jiff::SignedDuration::from_secs(second);
        let is_over = |second| is_long_over(deadline, Cap::AtMost(limit), after(second));
        assert!(!is_over(-100) && !is_over(60) && !is_over(1860) && is_over(1861));
        assert!(!is_long_over(deadline, Cap::Unlimited, after(1 << 20)));
    }

    #[test]
    fn a_slot_that_another_took_over_blames_only_who_was_seen_to_be_silent() {
        let start = Instant::now();
        let at = |second: u64| start + Duration::from_secs(second);
        let mut watched = Watched::new(start);
        watched.look(&held("a", 3), 5, at(0), &settings());
        let silent = watched.look(&held("b", 0), 6, at(30), &settings()).unwrap();
        assert_eq!(
            (silent.worker.as_str(), silent.kind),
            ("a", FailureKind::Stall)
        );
        assert_eq!(
            watched.look(&held("c", 0), 7, at(32), &settings()),
            None,
            "b was heard 2 s ago"
        );
        let mut deaf = Watched::new(start);
        deaf.look(&held("a", 3), 5, at(0), &settings());
        deaf.deaf(at(29));
        assert_eq!(
            deaf.look(&held("b", 0), 6, at(30), &settings()),
            None,
            "we could not hear"
        );
        let answered = ClaimState::Answered { worker: "a".into() };
        let mut done = Watched::new(start);
        done.look(&held("a", 3), 5, at(0), &settings());
        assert_eq!(done.look(&answered, 6, at(40), &settings()), None);
    }
}
