//! Every question answers what a look at each run would answer, whichever way it takes. The thresholds between the ways are low in tests.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;
use proptest::sample::select;

use super::fixture::{Place, exited, id, interrupted, nth_second, opening, stopped};
use super::glob::Glob;
use super::{NewRun, Query, StatusFilter};
use crate::id::RunId;
use crate::model::{Artifact, ArtifactKind, Digest, Outcome, RunKind, Status};

const RUNS: i64 = 400;

/// Some of everything, with values that go together and values that exclude each other.
fn runs() -> Vec<NewRun> {
    (0..RUNS).map(some_run).collect()
}

fn some_run(n: i64) -> NewRun {
    let mut run = match n % 11 {
        0..=5 => exited(n, 0),
        6 => exited(n, 1),
        7 => exited(n, 101),
        8 => stopped(n, "memory"),
        9 => stopped(n, if n % 2 == 0 { "wall_time" } else { "canceled" }),
        _ => interrupted(n),
    };
    let opening = &mut run.opening;
    opening.command = match n % 5 {
        0 => vec!["cargo".into(), "test".into(), format!("case_{n}")],
        1 => vec!["make".into(), "-j8".into()],
        2 => vec!["sh".into(), "-c".into(), format!("echo {}", n % 17)],
        3 => vec![format!("*{n}%\"'")],
        _ => vec!["é".repeat(usize::try_from(n % 4).unwrap_or(0))],
    };
    opening.kind = if n % 7 == 0 {
        RunKind::Test
    } else {
        RunKind::Command
    };
    opening.backend = if n % 3 == 0 { "host" } else { "native" }.to_owned();
    if n % 4 == 0 {
        opening
            .tags
            .insert("env".into(), if n % 8 == 0 { "ci" } else { "dev" }.into());
    }
    if n % 9 == 0 {
        opening.tags.insert("ticket".into(), format!("T-{n}"));
    }
    opening.sender = (n % 5 != 2).then(|| if n % 10 == 3 { "few" } else { "many" }.to_owned());
    opening.parent = (n % 6 == 1).then(|| id(n % 3));
    // Named a little before or after it began.
    opening.started_at += SignedDuration::from_millis(n % 13 * 700 - 4000);
    if let Outcome::Ended(closing) = &mut run.outcome
        && n % 10 == 0
    {
        closing.artifacts = vec![Artifact {
            path: "a".into(),
            digest: Digest::of(b"a"),
            bytes: 1,
            media_type: "text/plain".into(),
            kind: ArtifactKind::Added,
            mode: 0o644,
        }];
    }
    run
}

fn fits(query: &Query, run: &NewRun) -> bool {
    let (opening, outcome) = (&run.opening, &run.outcome);
    let closing = match outcome {
        Outcome::Ended(closing) => Some(closing),
        Outcome::Running | Outcome::Interrupted { .. } => None,
    };
    let wall = closing.map(|closing| closing.usage.wall_ms);
    let ms = |duration: Duration| duration.as_secs_f64() * 1000.0;
    let status = |wanted: &StatusFilter| match wanted {
        StatusFilter::Status(status) => *status == outcome.status(),
        StatusFilter::Cause(cause) => Some(cause.as_str()) == outcome.cause(),
    };
    let tag = |(key, value): &(String, Option<String>)| match (opening.tags.get(key), value) {
        (None, _) => false,
        (Some(_), None) => true,
        (Some(found), Some(wanted)) => found == wanted,
    };
    let line = opening.command.join(" ");
    let glob = query.command.as_deref().map(Glob::new);
    query.since.is_none_or(|at| opening.started_at >= at)
        && query.until.is_none_or(|at| opening.started_at < at)
        && (query.statuses.is_empty() || query.statuses.iter().any(status))
        && query
            .exit_code
            .is_none_or(|code| closing.and_then(|closing| closing.exit_code) == Some(code))
        && glob.is_none_or(|glob| glob.is_ok_and(|glob| glob.matches(&line)))
        && query.tags.iter().all(tag)
        && query.kind.is_none_or(|kind| kind == opening.kind)
        && query
            .backend
            .as_ref()
            .is_none_or(|name| *name == opening.backend)
        && query.parent.is_none_or(|id| Some(id) == opening.parent)
        && (query.sender.is_none() || query.sender == opening.sender)
        && query
            .longer_than
            .is_none_or(|than| wall.is_some_and(|wall| wall > ms(than)))
        && query
            .shorter_than
            .is_none_or(|than| wall.is_some_and(|wall| wall < ms(than)))
        && query.has_artifacts.is_none_or(|wanted| {
            wanted == closing.is_some_and(|closing| !closing.artifacts.is_empty())
        })
        && query.before.is_none_or(|before| opening.run_id < before)
}

fn query() -> impl Strategy<Value = Query> {
    let second = 0..RUNS;
    let time = || {
        let at = (second.clone(), 0..1000i64).prop_map(|(n, ms)| {
            Timestamp::from_millisecond(nth_second(n) * 1000 + ms).unwrap_or_default()
        });
        proptest::option::weighted(0.2, at)
    };
    let statuses = proptest::collection::vec(
        prop_oneof![
            select(&Status::ALL[..]).prop_map(StatusFilter::Status),
            select(vec!["memory", "canceled", "wall_time", "x"])
                .prop_map(|cause| StatusFilter::Cause(cause.to_owned())),
        ],
        1..3,
    );
    let statuses = proptest::option::weighted(0.3, statuses).prop_map(Option::unwrap_or_default);
    let patterns = vec![
        "cargo",
        "*test*",
        "*case_1*",
        "*",
        "",
        "*-j8",
        "make*",
        "sh -c echo ?",
        "*1[0-5]",
        "é*",
        "é",
        "[*]*",
        "*%\"'",
        "*zzz*",
        "*j8",
        "*cho*1?",
        "*\"'*",
        "*zq*",
        "*ec*5",
        "*t c*",
        "*se_?",
        "zzz",
        "?",
        "*o*o*",
        "*echo 16*",
    ];
    let tags = proptest::option::weighted(
        0.3,
        proptest::collection::vec(
            (
                select(vec!["env", "ticket", "none"]).prop_map(str::to_owned),
                proptest::option::of(
                    select(vec!["ci", "dev", "T-36", "T-72"]).prop_map(str::to_owned),
                ),
            ),
            1..3,
        ),
    )
    .prop_map(Option::unwrap_or_default);
    let maybe_ms = || {
        proptest::option::weighted(
            0.2,
            (0..RUNS.unsigned_abs()).prop_map(Duration::from_millis),
        )
    };
    let sender = proptest::option::weighted(
        0.3,
        select(vec!["few", "many", "nobody"]).prop_map(str::to_owned),
    );
    let first = (
        time(),
        time(),
        statuses,
        tags,
        maybe_ms(),
        maybe_ms(),
        sender,
    );
    let second = (
        proptest::option::weighted(0.2, select(vec![0, 1, 101, 7])),
        proptest::option::weighted(0.5, select(patterns).prop_map(str::to_owned)),
        proptest::option::weighted(0.2, select(&RunKind::ALL[..])),
        proptest::option::weighted(
            0.2,
            select(vec!["native", "host", "x"]).prop_map(str::to_owned),
        ),
        proptest::option::weighted(0.1, (0..4i64).prop_map(id)),
        proptest::option::weighted(0.2, any::<bool>()),
        proptest::option::weighted(0.2, (0..RUNS).prop_map(id)),
        1..60usize,
    );
    (first, second).prop_map(|(a, b)| Query {
        since: a.0,
        until: a.1,
        statuses: a.2,
        tags: a.3,
        longer_than: a.4,
        shorter_than: a.5,
        sender: a.6,
        exit_code: b.0,
        command: b.1,
        kind: b.2,
        backend: b.3,
        parent: b.4,
        has_artifacts: b.5,
        before: b.6,
        limit: b.7,
    })
}

/// Every page of a list, which must not be longer than was asked for.
fn pages(place: &Place, query: &Query) -> Result<Vec<RunId>, TestCaseError> {
    let mut found = Vec::new();
    let mut query = query.clone();
    loop {
        let page = place.history.list(&query);
        let page = page.map_err(|error| TestCaseError::fail(error.to_string()))?;
        prop_assert!(page.runs.len() <= query.limit);
        found.extend(page.runs.iter().map(|run| run.run_id));
        prop_assert_eq!(page.next, page.next.and(found.last().copied()));
        if page.next.is_none() {
            return Ok(found);
        }
        query.before = page.next;
    }
}

#[test]
fn every_question_is_answered_as_by_looking_at_each_run() {
    let mut place = Place::new().unwrap();
    let all = runs();
    place.history.record(&all).unwrap();
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig {
        cases: 1500,
        failure_persistence: None,
        ..ProptestConfig::default()
    });
    let tested = runner.run(&query(), |query| {
        let fitting = all.iter().rev().filter(|run| fits(&query, run));
        let expected: Vec<RunId> = fitting.map(|run| run.opening.run_id).collect();
        prop_assert_eq!(&pages(&place, &query)?, &expected);
        let count = place.history.count(&query);
        let count = count.map_err(|error| TestCaseError::fail(error.to_string()))?;
        prop_assert_eq!(count, u64::try_from(expected.len()).unwrap_or(0));
        Ok(())
    });
    tested.unwrap();
}

#[test]
fn pages_stay_as_they_are_while_runs_come_in() {
    let mut place = Place::new().unwrap();
    place
        .history
        .record(&(0..50).map(some_run).collect::<Vec<_>>())
        .unwrap();
    let mut query = Query {
        limit: 10,
        ..Query::default()
    };
    let mut found = Vec::new();
    let mut newer = 1000;
    loop {
        let page = place.history.list(&query).unwrap();
        found.extend(page.runs.iter().map(|run| run.run_id));
        place.history.record(&[exited(newer, 0)]).unwrap();
        newer += 1;
        query.before = page.next;
        if page.next.is_none() {
            break;
        }
    }
    let expected: Vec<RunId> = (0..50).rev().map(id).collect();
    assert_eq!(found, expected);
}

#[test]
fn a_line_of_a_list_says_what_the_run_says() {
    let mut place = Place::new().unwrap();
    let run = some_run(120);
    place.history.record(std::slice::from_ref(&run)).unwrap();
    place.history.begin(&[opening(121)]).unwrap();
    let page = place
        .history
        .list(&Query {
            limit: 2,
            ..Query::default()
        })
        .unwrap();
    let (going_on, ended) = (&page.runs[0], &page.runs[1]);
    assert_eq!(
        (going_on.status, going_on.duration_ms),
        (Status::Running, None)
    );
    assert_eq!(ended.run_id, run.opening.run_id);
    assert_eq!(ended.started_at, run.opening.started_at);
    assert_eq!(ended.command, run.opening.command.join(" "));
    assert_eq!(ended.tags, BTreeMap::from([("env".into(), "ci".into())]));
    assert_eq!(
        (ended.status, ended.cause.as_deref()),
        (run.outcome.status(), run.outcome.cause())
    );
    assert_eq!(page.next, None);
}

#[test]
fn a_page_of_nothing_and_a_page_of_everything() {
    let mut place = Place::new().unwrap();
    place
        .history
        .record(&(0..5).map(some_run).collect::<Vec<_>>())
        .unwrap();
    let of = |limit| {
        place
            .history
            .list(&Query {
                limit,
                ..Query::default()
            })
            .unwrap()
    };
    assert_eq!((of(0).runs.len(), of(0).next), (0, None));
    assert_eq!((of(5).runs.len(), of(5).next), (5, None));
    assert_eq!((of(4).runs.len(), of(4).next), (4, Some(id(1))));
    assert_eq!(of(usize::MAX).runs.len(), 5);
}
