//! What goes, in which order, and what stays.

use std::time::Duration;

use cofferdam_contract::units::{Bytes, Cap};
use cofferdam_store::database::{PruneMode, PruneReason, Pruned, Query, Retention};
use cofferdam_store::{RunId, StoreError, audit};
use jiff::{SignedDuration, Timestamp};

use crate::fixture::{self, Place, Tested, nth_second, tagged};
use cofferdam_store::database::NewRun;
use cofferdam_store::model::Opening;

const KEEP_ALL: Retention = Retention {
    max_age: Cap::Unlimited,
    max_age_of_failures: Cap::Unlimited,
    max_runs: Cap::Unlimited,
    max_bytes: Cap::Unlimited,
};

/// An hour between one run and the next, so that the time a test takes decides nothing.
const HOUR: i64 = 3600;

fn id(n: i64) -> RunId {
    fixture::id(n * HOUR)
}

fn opening(n: i64) -> Opening {
    fixture::opening(n * HOUR)
}

fn exited(n: i64, code: i32) -> NewRun {
    fixture::exited(n * HOUR, code)
}

fn interrupted(n: i64) -> NewRun {
    fixture::interrupted(n * HOUR)
}

/// Older than the n-th run, younger than the one before it.
fn age_of(n: i64) -> Duration {
    let at = Timestamp::from_second(nth_second(n * HOUR)).unwrap_or_default();
    let age = Timestamp::now().duration_since(at) + SignedDuration::from_mins(30);
    age.unsigned_abs()
}

/// A dry run says the same as the removal after it, and changes nothing.
fn prune(place: &mut Place, retention: &Retention) -> Result<Pruned, StoreError> {
    let all = Query {
        limit: 1000,
        ..Query::default()
    };
    let before = place.history.list(&all)?;
    let dry = place.history.prune(retention, PruneMode::DryRun)?;
    assert_eq!(place.history.list(&all)?, before);
    let done = place.history.prune(retention, PruneMode::Remove)?;
    assert_eq!(done, dry);
    assert_eq!(place.history.stats()?.runs, done.kept_runs);
    assert_eq!(audit::verify(&place.history)?.findings, vec![]);
    Ok(done)
}

fn ids(pruned: &Pruned) -> Vec<(RunId, PruneReason)> {
    pruned
        .runs
        .iter()
        .map(|run| (run.run_id, run.why))
        .collect()
}

#[test]
fn the_old_go_failures_later_and_tagged_and_running_never() -> Tested {
    let mut place = Place::new()?;
    place.history.begin(&[opening(0)])?;
    place.history.record(&[
        exited(1, 1),
        exited(2, 0),
        tagged(exited(3, 0), "keep", "me"),
        interrupted(4),
        exited(5, 0),
        exited(6, 1),
        exited(7, 0),
    ])?;
    let retention = Retention {
        max_age: Cap::AtMost(age_of(6)),
        max_age_of_failures: Cap::AtMost(age_of(3)),
        ..KEEP_ALL
    };
    let pruned = prune(&mut place, &retention)?;
    let aged = |n| (id(n), PruneReason::Age);
    assert_eq!(ids(&pruned), vec![aged(1), aged(2), aged(5)]);
    assert_eq!(pruned.kept_runs, 5);
    assert!(pruned.freed_bytes > 0 && pruned.kept_bytes > 0);
    assert!(place.history.get(id(5)).is_err());
    Ok(())
}

/// Such a run comes with a bundle, or waited in a queue: it decides about itself alone.
#[test]
fn a_run_that_began_long_after_its_id_does_not_keep_those_behind_it() -> Tested {
    let mut place = Place::new()?;
    let mut odd = exited(1, 0);
    odd.opening.started_at = "2100-01-01T00:00:00Z".parse()?;
    place
        .history
        .record(&[odd, exited(2, 0), exited(3, 0), exited(7, 0)])?;
    let retention = Retention {
        max_age: Cap::AtMost(age_of(6)),
        ..KEEP_ALL
    };
    let pruned = prune(&mut place, &retention)?;
    let aged = |n| (id(n), PruneReason::Age);
    assert_eq!(ids(&pruned), vec![aged(2), aged(3)]);
    Ok(())
}

#[test]
fn then_the_number_then_the_size_the_oldest_first() -> Tested {
    let mut place = Place::new()?;
    let runs: Vec<_> = (1..=10).map(|n| exited(n, 0)).collect();
    place.history.record(&runs)?;
    place
        .history
        .record(&[tagged(exited(0, 0), "keep", "me")])?;
    let all = place.history.prune(&KEEP_ALL, PruneMode::DryRun)?;
    let one = all.kept_bytes / all.kept_runs;
    let retention = Retention {
        max_age: Cap::AtMost(age_of(3)),
        max_runs: Cap::AtMost(7),
        max_bytes: Cap::AtMost(Bytes::new(one * 5 + one / 2)),
        ..KEEP_ALL
    };
    let pruned = prune(&mut place, &retention)?;
    use PruneReason::{Age, Count, Size};
    let expected = [
        (1, Age),
        (2, Age),
        (3, Count),
        (4, Count),
        (5, Size),
        (6, Size),
    ];
    assert_eq!(ids(&pruned), expected.map(|(n, why)| (id(n), why)).to_vec());
    assert_eq!(pruned.kept_runs, 5);
    assert!(pruned.kept_bytes <= one * 5 + one / 2);
    assert_eq!(prune(&mut place, &retention)?.runs, vec![]);
    Ok(())
}

#[test]
fn limits_of_zero_leave_what_must_stay() -> Tested {
    let mut place = Place::new()?;
    place.history.begin(&[opening(0)])?;
    place
        .history
        .record(&[exited(1, 0), tagged(exited(2, 0), "keep", "me")])?;
    let nothing = Retention {
        max_age: Cap::AtMost(Duration::ZERO),
        max_age_of_failures: Cap::AtMost(Duration::MAX),
        max_runs: Cap::AtMost(0),
        max_bytes: Cap::AtMost(Bytes::new(0)),
    };
    let pruned = prune(&mut place, &nothing)?;
    assert_eq!((pruned.runs.len(), pruned.kept_runs), (1, 2));
    Ok(())
}

#[test]
fn removing_by_name_takes_tagged_runs_and_no_running_ones() -> Tested {
    let mut place = Place::new()?;
    place.history.begin(&[opening(1)])?;
    place
        .history
        .record(&[tagged(exited(2, 0), "keep", "me"), exited(3, 0)])?;
    let refused = place
        .history
        .remove(&[id(3), id(1)], PruneMode::Remove)
        .unwrap_err();
    assert!(matches!(refused, StoreError::Invalid { field: "run", .. }));
    let unknown = place
        .history
        .remove(&[id(3), id(99)], PruneMode::Remove)
        .unwrap_err();
    assert!(matches!(unknown, StoreError::NoSuchRun { .. }));
    assert_eq!(place.history.stats()?.runs, 3);
    let named = [id(2), id(3), id(2)];
    let dry = place.history.remove(&named, PruneMode::DryRun)?;
    assert_eq!(
        ids(&dry),
        [(id(2), PruneReason::Named), (id(3), PruneReason::Named)]
    );
    assert_eq!(place.history.remove(&named, PruneMode::Remove)?, dry);
    assert_eq!(place.history.stats()?.runs, 1);
    let kept: Vec<String> = audit::list(&place.history, 9, None)?
        .into_iter()
        .map(|entry| entry.event)
        .collect();
    assert_eq!(
        kept,
        ["run.removed", "run.removed", "run.ended", "run.ended"]
    );
    Ok(())
}

#[test]
fn space_is_given_back_and_commands_are_forgotten() -> Tested {
    let mut place = Place::new()?;
    let mut runs: Vec<_> = (0..300).map(|n| exited(n, 0)).collect();
    for run in &mut runs {
        run.opening.environment = vec!["X".repeat(4000)];
    }
    place.history.record(&runs)?;
    let retention = Retention {
        max_runs: Cap::AtMost(1),
        ..KEEP_ALL
    };
    place.history.prune(&retention, PruneMode::DryRun)?;
    let before = place.history.stats()?.database_bytes;
    prune(&mut place, &retention)?;
    let stats = place.history.stats()?;
    assert!(
        stats.database_bytes < before / 2,
        "{} {before}",
        stats.database_bytes
    );
    assert_eq!(
        stats.top_commands,
        vec![("echo number 1076400".to_owned(), 1)]
    );
    let query = Query {
        command: Some("*number 360*".into()),
        limit: 9,
        ..Query::default()
    };
    assert_eq!(place.history.list(&query)?.runs, vec![]);
    Ok(())
}

#[test]
fn figures_are_exact() -> Tested {
    let mut place = Place::new()?;
    assert_eq!(place.history.stats()?.duration_ms, None);
    let runs: Vec<_> = (1..=200).map(|n| exited(n, 0)).collect();
    place.history.record(&runs)?;
    place.history.record(&[interrupted(0)])?;
    let stats = place.history.stats()?;
    let duration = stats.duration_ms.ok_or("no durations")?;
    assert_eq!(
        (duration.p50, duration.p95, duration.p99, duration.max),
        (360_000.0, 684_000.0, 712_800.0, 720_000.0)
    );
    assert_eq!(stats.runs, 201);
    assert_eq!(stats.oldest, Timestamp::from_second(nth_second(0)).ok());
    assert_eq!(
        stats.newest,
        Timestamp::from_second(nth_second(200 * HOUR)).ok()
    );
    Ok(())
}
