//! What a worker does with work that the queue gave it, by what the claim says. Pure: one function from what is known to what is done.

use std::time::Duration;

use jiff::Timestamp;

use crate::coordinator::told;
use crate::model::{Claim, ClaimState, FailureKind, Settings, Work};

/// Who asks, and what he knows.
#[derive(Debug, Clone, Copy)]
pub(super) struct Taker<'a> {
    pub(super) name: &'a str,
    pub(super) incarnation: &'a str,
    /// Whether this very slot runs here.
    pub(super) is_running: bool,
    /// How long the claim has not changed.
    pub(super) silence: Duration,
    /// How long we have been able to hear.
    pub(super) hearing: Duration,
    pub(super) now: Timestamp,
}

/// What to do. A claim in it is to be written first; whoever is too late with that looks again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    Start(Claim),
    /// It is for somebody else, or not yet for anybody.
    Later(Option<Claim>),
    /// It is done.
    Drop,
    /// It runs here already.
    Ours,
    Bury(Claim, String),
}

/// More than this many workers have said that they cannot.
const MOST_REFUSALS: usize = 16;

pub(super) fn consider(claim: &Claim, work: &Work, taker: &Taker<'_>, settings: &Settings) -> Step {
    let mut claim = claim.clone();
    let mut is_taken_over = false;
    match &claim.state {
        ClaimState::Answered { .. } | ClaimState::Dead { .. } => return Step::Drop,
        ClaimState::Free => {}
        ClaimState::Held { incarnation, .. }
            if incarnation == taker.incarnation && taker.is_running =>
        {
            return Step::Ours;
        }
        ClaimState::Held { worker, beats, .. } => {
            let enough = settings.heartbeat_timeout();
            if taker.silence < enough || taker.hearing < enough {
                return Step::Later(None);
            }
            let kind = match beats {
                0 => FailureKind::Crash,
                _ => FailureKind::Stall,
            };
            let reason = format!("no sign of life for {:.1} s", taker.silence.as_secs_f64());
            let worker = worker.clone();
            claim.failed(&worker, kind, reason);
            claim.state = ClaimState::Free;
            is_taken_over = true;
        }
    }
    let refusals = claim
        .failures
        .iter()
        .filter(|failure| failure.kind == FailureKind::Refused);
    if work.deadline <= taker.now {
        return buried(claim, "its deadline passed");
    }
    if refusals.count() > MOST_REFUSALS {
        return buried(claim, "too many workers cannot do it");
    }
    if claim.starts >= settings.max_starts {
        return buried(claim, "it was started too often");
    }
    let is_excluded = work
        .excluded
        .iter()
        .chain(&claim.excluded)
        .any(|name| name == taker.name);
    if is_excluded {
        return Step::Later(is_taken_over.then_some(claim));
    }
    claim.starts = claim.starts.saturating_add(1);
    if !claim.takers.iter().any(|name| name == taker.name) {
        claim.takers.push(taker.name.to_owned());
    }
    claim.state = ClaimState::Held {
        worker: taker.name.to_owned(),
        incarnation: taker.incarnation.to_owned(),
        beats: 0,
    };
    Step::Start(claim)
}

fn buried(mut claim: Claim, reason: &str) -> Step {
    let reason = told(reason, &claim.failures);
    claim.state = ClaimState::Dead {
        reason: reason.clone(),
    };
    Step::Bury(claim, reason)
}

#[cfg(test)]
mod tests {
    use cofferdam_contract::canonical::Digest;

    use super::*;
    use crate::model::Carried;

    const LONG: Duration = Duration::from_secs(40);

    fn work(excluded: &[&str]) -> Work {
        Work {
            job: "J".into(),
            slot: 0,
            tenant: "t".into(),
            class: "native.command.cpu.m64".into(),
            digest: Digest::of(b""),
            payload: Carried::Inline {
                text: String::new(),
            },
            request: None,
            excluded: excluded.iter().map(ToString::to_string).collect(),
            deadline: Timestamp::from_second(100).unwrap(),
        }
    }

    fn taker(silence: Duration) -> Taker<'static> {
        Taker {
            name: "b",
            incarnation: "2",
            is_running: false,
            silence,
            hearing: LONG,
            now: Timestamp::UNIX_EPOCH,
        }
    }

    fn held(worker: &str, incarnation: &str, beats: u64) -> Claim {
        Claim {
            state: ClaimState::Held {
                worker: worker.into(),
                incarnation: incarnation.into(),
                beats,
            },
            starts: 1,
            ..Claim::default()
        }
    }

    fn step(claim: &Claim, taker: &Taker<'_>) -> Step {
        consider(claim, &work(&[]), taker, &Settings::default())
    }

    #[test]
    fn free_work_is_started_by_whoever_may() {
        let Step::Start(claim) = step(&Claim::default(), &taker(LONG)) else {
            panic!("it is free");
        };
        assert_eq!((claim.starts, claim.state), (1, held("b", "2", 0).state));
        assert_eq!(claim.takers, ["b"], "and that is remembered");
        let settings = Settings::default();
        let excluded = consider(&Claim::default(), &work(&["b"]), &taker(LONG), &settings);
        assert_eq!(excluded, Step::Later(None));
    }

    #[test]
    fn a_living_holder_keeps_it_and_a_silent_one_loses_it_and_is_excluded() {
        let young = Duration::from_secs(29);
        assert_eq!(step(&held("a", "1", 4), &taker(young)), Step::Later(None));
        let just_back = Taker {
            hearing: young,
            ..taker(LONG)
        };
        assert_eq!(
            step(&held("a", "1", 4), &just_back),
            Step::Later(None),
            "we were deaf"
        );
        let Step::Start(claim) = step(&held("a", "1", 4), &taker(LONG)) else {
            panic!("it is silent");
        };
        assert_eq!(
            (claim.starts, claim.excluded.as_slice()),
            (2, ["a".to_owned()].as_slice())
        );
        assert_eq!(claim.failures[0].kind, FailureKind::Stall);
        let Step::Start(claim) = step(&held("a", "1", 0), &taker(LONG)) else {
            panic!("it is silent");
        };
        assert_eq!(claim.failures[0].kind, FailureKind::Crash);
    }

    #[test]
    fn a_worker_in_its_next_life_does_not_get_back_what_it_lost() {
        let Step::Later(Some(claim)) = step(&held("b", "1", 4), &taker(LONG)) else {
            panic!("it is released");
        };
        assert_eq!(
            (claim.state, claim.excluded),
            (ClaimState::Free, vec!["b".to_owned()])
        );
        let ours = Taker {
            is_running: true,
            ..taker(LONG)
        };
        assert_eq!(step(&held("b", "2", 4), &ours), Step::Ours);
    }

    #[test]
    fn one_reassignment_and_no_more_and_nothing_after_the_deadline() {
        let mut twice = held("a", "1", 4);
        twice.starts = 2;
        let Step::Bury(claim, reason) = step(&twice, &taker(LONG)) else {
            panic!("it was started twice");
        };
        assert!(
            reason.contains("too often") && reason.contains("a stalled"),
            "{reason}"
        );
        assert_eq!(claim.state, ClaimState::Dead { reason });
        let late = Taker {
            now: Timestamp::from_second(100).unwrap(),
            ..taker(LONG)
        };
        assert!(
            matches!(step(&Claim::default(), &late), Step::Bury(_, reason) if reason.contains("deadline"))
        );
        for state in [
            ClaimState::Answered { worker: "a".into() },
            ClaimState::Dead {
                reason: String::new(),
            },
        ] {
            let claim = Claim {
                state,
                ..Claim::default()
            };
            assert_eq!(step(&claim, &late), Step::Drop);
        }
    }
}
