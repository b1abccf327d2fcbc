//! The questions that are measured: every filter alone, with common, rare and absent values, and combinations, on the first page and far back.

use std::time::Duration;

use cofferdam_store::database::{Query, StatusFilter};
use cofferdam_store::model::{RunKind, Status};
use cofferdam_store::{History, RunId, StoreError};
use jiff::{SignedDuration, Timestamp};

use crate::generate::{COMMANDS, command};

pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) query: Box<dyn Fn(usize) -> Query>,
}

/// Places in the history to begin at.
pub(crate) struct Landmarks {
    middle: RunId,
    deep: RunId,
    parent: RunId,
    middle_at: Timestamp,
}

impl Landmarks {
    pub(crate) fn find(history: &History) -> Result<Self, StoreError> {
        let runs = history.stats()?.runs;
        let middle = history.resolve(&format!("latest~{}", runs / 2))?;
        let deep = history.resolve(&format!("latest~{}", runs * 99 / 100))?;
        let mut before = None;
        let parent = loop {
            let page = history.list(&Query {
                before,
                limit: 200,
                ..Query::default()
            })?;
            if let Some(parent) = page.runs.iter().find_map(|run| run.parent) {
                break parent;
            }
            before = page.next;
            if before.is_none() {
                break middle;
            }
        };
        Ok(Self {
            middle,
            deep,
            parent,
            middle_at: history.get(middle)?.opening.started_at,
        })
    }
}

fn page() -> Query {
    Query {
        limit: 50,
        ..Query::default()
    }
}

fn status(status: Status) -> Vec<StatusFilter> {
    vec![StatusFilter::Status(status)]
}

fn cause(cause: &str) -> Vec<StatusFilter> {
    vec![StatusFilter::Cause(cause.to_owned())]
}

fn tag(key: &str, value: Option<&str>) -> Vec<(String, Option<String>)> {
    vec![(key.to_owned(), value.map(str::to_owned))]
}

fn glob(pattern: impl Into<String>) -> Query {
    Query {
        command: Some(pattern.into()),
        ..page()
    }
}

/// Another command line every time.
fn some_command(turn: usize) -> String {
    let turn = u64::try_from(turn).unwrap_or(0);
    command((turn * 7919 + 5003) % COMMANDS).join(" ")
}

const SECOND: Duration = Duration::from_secs(1);

pub(crate) fn all(landmarks: &Landmarks) -> Vec<Case> {
    let mut cases = Vec::new();
    let mut add = |name, query: Box<dyn Fn(usize) -> Query>| cases.push(Case { name, query });
    singles(&mut add, landmarks);
    commands(&mut add);
    combinations(&mut add, landmarks);
    cases
}

type Add<'a> = &'a mut dyn FnMut(&'static str, Box<dyn Fn(usize) -> Query>);

fn singles(add: Add<'_>, landmarks: &Landmarks) {
    let (middle, deep, parent) = (landmarks.middle, landmarks.deep, landmarks.parent);
    let at = landmarks.middle_at;
    let mut fixed = |name, query: Query| add(name, Box::new(move |_| query.clone()));
    fixed("everything", page());
    fixed(
        "everything, 1000 at once",
        Query {
            limit: 1000,
            ..page()
        },
    );
    fixed(
        "everything, before the middle",
        Query {
            before: Some(middle),
            ..page()
        },
    );
    fixed(
        "everything, far back",
        Query {
            before: Some(deep),
            ..page()
        },
    );
    fixed(
        "since the middle",
        Query {
            since: Some(at),
            ..page()
        },
    );
    fixed(
        "until the middle",
        Query {
            until: Some(at),
            ..page()
        },
    );
    let hour = SignedDuration::from_hours(1);
    fixed(
        "one hour in the middle",
        Query {
            since: Some(at),
            until: Some(at + hour),
            ..page()
        },
    );
    let now = Timestamp::now();
    fixed(
        "since tomorrow: nothing",
        Query {
            since: Some(now + SignedDuration::from_hours(24)),
            ..page()
        },
    );
    fixed(
        "until 1980: nothing",
        Query {
            until: Timestamp::from_second(315_532_800).ok(),
            ..page()
        },
    );
    fixed(
        "status success (82 %)",
        Query {
            statuses: status(Status::Success),
            ..page()
        },
    );
    fixed(
        "status failure (11 %)",
        Query {
            statuses: status(Status::Failure),
            ..page()
        },
    );
    fixed(
        "status interrupted (0.2 %)",
        Query {
            statuses: status(Status::Interrupted),
            ..page()
        },
    );
    fixed(
        "status running (3 runs)",
        Query {
            statuses: status(Status::Running),
            ..page()
        },
    );
    fixed(
        "cause memory",
        Query {
            statuses: cause("memory"),
            ..page()
        },
    );
    fixed(
        "cause output (rare)",
        Query {
            statuses: cause("output"),
            ..page()
        },
    );
    fixed(
        "cause nonsense: nothing",
        Query {
            statuses: cause("nonsense"),
            ..page()
        },
    );
    let both = [status(Status::Failure), cause("memory")].concat();
    fixed(
        "status failure or cause memory",
        Query {
            statuses: both,
            ..page()
        },
    );
    fixed(
        "exit code 0",
        Query {
            exit_code: Some(0),
            ..page()
        },
    );
    fixed(
        "exit code 101",
        Query {
            exit_code: Some(101),
            ..page()
        },
    );
    fixed(
        "exit code 37 (rare)",
        Query {
            exit_code: Some(37),
            ..page()
        },
    );
    fixed(
        "exit code 999: nothing",
        Query {
            exit_code: Some(999),
            ..page()
        },
    );
    fixed(
        "kind test (5 %)",
        Query {
            kind: Some(RunKind::Test),
            ..page()
        },
    );
    fixed(
        "kind command (70 %)",
        Query {
            kind: Some(RunKind::Command),
            ..page()
        },
    );
    fixed(
        "backend native (95 %)",
        Query {
            backend: Some("native".into()),
            ..page()
        },
    );
    fixed(
        "backend container (0.1 %)",
        Query {
            backend: Some("container".into()),
            ..page()
        },
    );
    fixed(
        "backend none: nothing",
        Query {
            backend: Some("none".into()),
            ..page()
        },
    );
    fixed(
        "tag env=ci (7 %)",
        Query {
            tags: tag("env", Some("ci")),
            ..page()
        },
    );
    fixed(
        "tag env=prod (0.5 %)",
        Query {
            tags: tag("env", Some("prod")),
            ..page()
        },
    );
    fixed(
        "tag env (10 %)",
        Query {
            tags: tag("env", None),
            ..page()
        },
    );
    fixed(
        "tag ticket (1 %)",
        Query {
            tags: tag("ticket", None),
            ..page()
        },
    );
    fixed(
        "tag ticket=T-17 (2 runs)",
        Query {
            tags: tag("ticket", Some("T-17")),
            ..page()
        },
    );
    fixed(
        "tag none: nothing",
        Query {
            tags: tag("none", None),
            ..page()
        },
    );
    fixed(
        "parent",
        Query {
            parent: Some(parent),
            ..page()
        },
    );
    fixed(
        "parent without children",
        Query {
            parent: Some(RunId::floor(at)),
            ..page()
        },
    );
    fixed(
        "longer than 1 s (30 %)",
        Query {
            longer_than: Some(SECOND),
            ..page()
        },
    );
    fixed(
        "longer than 1 min (0.4 %)",
        Query {
            longer_than: Some(60 * SECOND),
            ..page()
        },
    );
    fixed(
        "longer than a day: nothing",
        Query {
            longer_than: Some(86_400 * SECOND),
            ..page()
        },
    );
    fixed(
        "shorter than 100 ms (23 %)",
        Query {
            shorter_than: Some(SECOND / 10),
            ..page()
        },
    );
    fixed(
        "shorter than 2 ms (rare)",
        Query {
            shorter_than: Some(SECOND / 500),
            ..page()
        },
    );
    fixed(
        "with artifacts (5 %)",
        Query {
            has_artifacts: Some(true),
            ..page()
        },
    );
    fixed(
        "without artifacts",
        Query {
            has_artifacts: Some(false),
            ..page()
        },
    );
}

fn commands(add: Add<'_>) {
    add("command, whole", Box::new(|turn| glob(some_command(turn))));
    let mut fixed = |name, query: Query| add(name, Box::new(move |_| query.clone()));
    fixed("command cargo… (common prefix)", glob("cargo"));
    fixed(
        "command cargo test --package crate_5 *",
        glob("cargo test --package crate_5 *"),
    );
    fixed("command zzz…: nothing", glob("zzz"));
    fixed("command *test* (25 %)", glob("*test*"));
    fixed("command *needle_1234*", glob("*needle_1234*"));
    fixed("command *needle_199*src", glob("*needle_199*src"));
    fixed("command *nowhere*: nothing", glob("*nowhere*"));
    fixed("command *zq*: nothing, too short to index", glob("*zq*"));
    fixed("command *7[!0-9]py*: no index", glob("*7[!0-9]p*"));
    fixed("command *Test*: nothing, by case", glob("*Test*"));
    fixed("command ?????????9999*", glob("?????????9999*"));
    fixed("command make*-12345", glob("make*-12345"));
    fixed("command *99999*", glob("*99999*"));
    fixed("command *--seed 100*", glob("*--seed 100*"));
    fixed("command *job_1*.py*", glob("*job_1*.py*"));
    add(
        "command *NUMBER*",
        Box::new(|turn| glob(format!("*{}*", 10_000 + turn * 37))),
    );
}

fn combinations(add: Add<'_>, landmarks: &Landmarks) {
    let (deep, at) = (landmarks.deep, landmarks.middle_at);
    let mut fixed = |name, query: Query| add(name, Box::new(move |_| query.clone()));
    let failed = || Query {
        statuses: status(Status::Failure),
        ..page()
    };
    fixed(
        "failure + command cargo",
        Query {
            command: Some("cargo".into()),
            ..failed()
        },
    );
    fixed(
        "failure + command *needle_77*",
        Query {
            command: Some("*needle_77*".into()),
            ..failed()
        },
    );
    fixed(
        "failure + command *zq*: nothing",
        Query {
            command: Some("*zq*".into()),
            ..failed()
        },
    );
    fixed(
        "failure + longer than 1 s",
        Query {
            longer_than: Some(SECOND),
            ..failed()
        },
    );
    fixed(
        "failure + longer than a minute",
        Query {
            longer_than: Some(60 * SECOND),
            ..failed()
        },
    );
    fixed(
        "failure + tag env=prod",
        Query {
            tags: tag("env", Some("prod")),
            ..failed()
        },
    );
    fixed(
        "failure + tag env=ci",
        Query {
            tags: tag("env", Some("ci")),
            ..failed()
        },
    );
    fixed(
        "failure, far back",
        Query {
            before: Some(deep),
            ..failed()
        },
    );
    fixed(
        "success + exit code 1: nothing",
        Query {
            statuses: status(Status::Success),
            exit_code: Some(1),
            ..page()
        },
    );
    fixed(
        "interrupted + longer than 1 ms: nothing",
        Query {
            statuses: status(Status::Interrupted),
            longer_than: Some(SECOND / 1000),
            ..page()
        },
    );
    fixed(
        "success + longer than an hour: nothing",
        Query {
            statuses: status(Status::Success),
            longer_than: Some(36_000 * SECOND),
            ..page()
        },
    );
    fixed(
        "two tags",
        Query {
            tags: [tag("env", Some("ci")), tag("ticket", None)].concat(),
            ..page()
        },
    );
    fixed(
        "two tags, one value that is nowhere",
        Query {
            tags: [tag("env", Some("ci")), tag("ticket", Some("x"))].concat(),
            ..page()
        },
    );
    fixed(
        "test + artifacts + host",
        Query {
            kind: Some(RunKind::Test),
            has_artifacts: Some(true),
            backend: Some("host".into()),
            ..page()
        },
    );
    fixed(
        "container + memory",
        Query {
            backend: Some("container".into()),
            statuses: cause("memory"),
            ..page()
        },
    );
    fixed(
        "failure until the middle",
        Query {
            until: Some(at),
            ..failed()
        },
    );
    fixed(
        "between 1 s and 1.01 s",
        Query {
            longer_than: Some(SECOND),
            shorter_than: Some(Duration::from_millis(1010)),
            ..page()
        },
    );
    fixed(
        "impossible duration: nothing",
        Query {
            longer_than: Some(2 * SECOND),
            shorter_than: Some(SECOND),
            ..page()
        },
    );
    fixed(
        "success + 1 s + *test* + env",
        Query {
            statuses: status(Status::Success),
            longer_than: Some(SECOND),
            command: Some("*test*".into()),
            tags: tag("env", None),
            ..page()
        },
    );
    fixed(
        "command *test* far back",
        Query {
            before: Some(deep),
            command: Some("*test*".into()),
            ..page()
        },
    );
    fixed(
        "command *zq* + env=ci: nothing",
        Query {
            tags: tag("env", Some("ci")),
            command: Some("*zq*".into()),
            ..page()
        },
    );
    fixed(
        "one week + failure + cargo",
        Query {
            since: Some(at),
            until: Some(at + SignedDuration::from_hours(168)),
            command: Some("cargo".into()),
            ..failed()
        },
    );
    let week = at + SignedDuration::from_hours(168);
    fixed(
        "one week + command *nowhere*",
        Query {
            since: Some(at),
            until: Some(week),
            command: Some("*nowhere*".into()),
            ..page()
        },
    );
}

/// Counted, without a promise.
pub(crate) fn counts() -> Vec<(&'static str, Query)> {
    vec![
        ("everything", page()),
        (
            "failures",
            Query {
                statuses: status(Status::Failure),
                ..page()
            },
        ),
        (
            "tag env",
            Query {
                tags: tag("env", None),
                ..page()
            },
        ),
        (
            "longer than 1 s",
            Query {
                longer_than: Some(SECOND),
                ..page()
            },
        ),
        ("command *test*", glob("*test*")),
        (
            "failures of cargo",
            Query {
                statuses: status(Status::Failure),
                command: Some("cargo".into()),
                ..page()
            },
        ),
    ]
}
