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
        Ok(Self {
            middle,
            deep,
            parent: some_parent(history)?.unwrap_or(middle),
            middle_at: history.get(middle)?.opening.started_at,
        })
    }
}

fn some_parent(history: &History) -> Result<Option<RunId>, StoreError> {
    let mut query = Query {
        limit: 200,
        ..Query::default()
    };
    loop {
        let page = history.list(&query)?;
        let parent = page.runs.iter().find_map(|run| run.parent);
        if parent.is_some() || page.next.is_none() {
            return Ok(parent);
        }
        query.before = page.next;
    }
}

/// A question that is put together word by word.
#[derive(Clone)]
struct Ask(Query);

fn ask() -> Ask {
    Ask(Query {
        limit: 50,
        ..Query::default()
    })
}

impl Ask {
    fn set(mut self, change: impl FnOnce(&mut Query)) -> Self {
        change(&mut self.0);
        self
    }

    fn status(self, status: Status) -> Self {
        self.set(|query| query.statuses.push(StatusFilter::Status(status)))
    }

    fn failed(self) -> Self {
        self.status(Status::Failure)
    }

    fn cause(self, cause: &str) -> Self {
        self.set(|query| query.statuses.push(StatusFilter::Cause(cause.to_owned())))
    }

    fn exit(self, code: i32) -> Self {
        self.set(|query| query.exit_code = Some(code))
    }

    fn glob(self, pattern: impl Into<String>) -> Self {
        self.set(|query| query.command = Some(pattern.into()))
    }

    fn tag(self, key: &str, value: &str) -> Self {
        let pair = (key.to_owned(), Some(value.to_owned()));
        self.set(|query| query.tags.push(pair))
    }

    fn key(self, key: &str) -> Self {
        self.set(|query| query.tags.push((key.to_owned(), None)))
    }

    fn kind(self, kind: RunKind) -> Self {
        self.set(|query| query.kind = Some(kind))
    }

    fn backend(self, name: &str) -> Self {
        self.set(|query| query.backend = Some(name.to_owned()))
    }

    fn parent(self, id: RunId) -> Self {
        self.set(|query| query.parent = Some(id))
    }

    fn longer(self, ms: u64) -> Self {
        self.set(|query| query.longer_than = Some(Duration::from_millis(ms)))
    }

    fn shorter(self, ms: u64) -> Self {
        self.set(|query| query.shorter_than = Some(Duration::from_millis(ms)))
    }

    fn with_artifacts(self) -> Self {
        self.set(|query| query.has_artifacts = Some(true))
    }

    fn without_artifacts(self) -> Self {
        self.set(|query| query.has_artifacts = Some(false))
    }

    fn since(self, at: Timestamp) -> Self {
        self.set(|query| query.since = Some(at))
    }

    fn until(self, at: Timestamp) -> Self {
        self.set(|query| query.until = Some(at))
    }

    fn before(self, id: RunId) -> Self {
        self.set(|query| query.before = Some(id))
    }

    fn limit(self, limit: usize) -> Self {
        self.set(|query| query.limit = limit)
    }
}

const HOUR: SignedDuration = SignedDuration::from_hours(1);
const WEEK: SignedDuration = SignedDuration::from_hours(168);
const MINUTE_MS: u64 = 60_000;
const DAY_MS: u64 = 86_400_000;

pub(crate) fn all(landmarks: &Landmarks) -> Vec<Case> {
    let fixed = places(landmarks)
        .into_iter()
        .chain(few_values())
        .chain(others(landmarks))
        .chain(commands())
        .chain(combinations(landmarks))
        .chain(against_each_other());
    let fixed = fixed.map(|(name, ask)| Case {
        name,
        query: Box::new(move |_| ask.0.clone()),
    });
    fixed.chain(other_every_time()).collect()
}

type Named = Vec<(&'static str, Ask)>;

fn places(landmarks: &Landmarks) -> Named {
    let at = landmarks.middle_at;
    vec![
        ("everything", ask()),
        ("everything, 1000 at once", ask().limit(1000)),
        ("before the middle", ask().before(landmarks.middle)),
        ("far back", ask().before(landmarks.deep)),
        ("since the middle", ask().since(at)),
        ("until the middle", ask().until(at)),
        ("an hour in the middle", ask().since(at).until(at + HOUR)),
        (
            "since tomorrow: 0",
            ask().since(Timestamp::now() + 24 * HOUR),
        ),
        ("until 1970: 0", ask().until(Timestamp::UNIX_EPOCH)),
    ]
}

fn few_values() -> Named {
    vec![
        ("success (82 %)", ask().status(Status::Success)),
        ("failure (11 %)", ask().failed()),
        ("failure, 1000 at once", ask().failed().limit(1000)),
        ("interrupted (0.2 %)", ask().status(Status::Interrupted)),
        ("running (3 runs)", ask().status(Status::Running)),
        ("cause memory", ask().cause("memory")),
        ("cause output (rare)", ask().cause("output")),
        ("cause nonsense: 0", ask().cause("nonsense")),
        ("failure or memory", ask().failed().cause("memory")),
        ("exit code 0", ask().exit(0)),
        ("exit code 101", ask().exit(101)),
        ("exit code 37 (rare)", ask().exit(37)),
        ("exit code 999: 0", ask().exit(999)),
        ("kind test (5 %)", ask().kind(RunKind::Test)),
        ("kind command (70 %)", ask().kind(RunKind::Command)),
        ("backend native (95 %)", ask().backend("native")),
        ("backend container (0.1 %)", ask().backend("container")),
        ("backend none: 0", ask().backend("none")),
        ("with artifacts (5 %)", ask().with_artifacts()),
        ("without artifacts", ask().without_artifacts()),
    ]
}

fn others(landmarks: &Landmarks) -> Named {
    let nobody = RunId::floor(landmarks.middle_at);
    vec![
        ("tag env=ci (7 %)", ask().tag("env", "ci")),
        ("tag env=prod (0.5 %)", ask().tag("env", "prod")),
        ("tag env (10 %)", ask().key("env")),
        ("tag ticket (1 %)", ask().key("ticket")),
        ("tag ticket=T-17 (2 runs)", ask().tag("ticket", "T-17")),
        ("tag none: 0", ask().key("none")),
        ("parent", ask().parent(landmarks.parent)),
        ("parent without children: 0", ask().parent(nobody)),
        ("longer than 1 s (30 %)", ask().longer(1000)),
        ("longer than 5 s (9 %)", ask().longer(5000)),
        ("longer than 1 min (0.4 %)", ask().longer(MINUTE_MS)),
        ("longer than a day: 0", ask().longer(DAY_MS)),
        ("shorter than 100 ms (23 %)", ask().shorter(100)),
        ("shorter than 2 ms (rare)", ask().shorter(2)),
        ("1 s to 1.01 s", ask().longer(1000).shorter(1010)),
        (
            "over 2 s and under 1 s: 0",
            ask().longer(2000).shorter(1000),
        ),
    ]
}

fn commands() -> Named {
    vec![
        ("cargo…", ask().glob("cargo")),
        ("zzz…: 0", ask().glob("zzz")),
        ("cargo * crate_5 *", ask().glob("cargo * crate_5 *")),
        ("*test* (25 %)", ask().glob("*test*")),
        ("*needle_1234*", ask().glob("*needle_1234*")),
        ("*needle_199*src", ask().glob("*needle_199*src")),
        ("*nowhere*: 0", ask().glob("*nowhere*")),
        ("*zq*: 0, no trigram", ask().glob("*zq*")),
        ("*7[!0-9]q*: 0, no trigram", ask().glob("*7[!0-9]q*")),
        ("*Test*: 0, by case", ask().glob("*Test*")),
        ("?????????9999*", ask().glob("?????????9999*")),
        ("make*-12345", ask().glob("make*-12345")),
        ("*99999*", ask().glob("*99999*")),
        ("*--seed 100*", ask().glob("*--seed 100*")),
        ("*job_1*.py*", ask().glob("*job_1*.py*")),
        ("*9?.mjs*", ask().glob("*9?.mjs*")),
    ]
}

fn combinations(landmarks: &Landmarks) -> Named {
    let (deep, at) = (landmarks.deep, landmarks.middle_at);
    let week = || ask().since(at).until(at + WEEK);
    vec![
        ("failure + cargo…", ask().failed().glob("cargo")),
        ("failure + *needle_77*", ask().failed().glob("*needle_77*")),
        ("failure + *zq*: 0", ask().failed().glob("*zq*")),
        ("failure + 1 s", ask().failed().longer(1000)),
        ("failure + 1 min", ask().failed().longer(MINUTE_MS)),
        ("failure + env=prod", ask().failed().tag("env", "prod")),
        ("failure + env=ci", ask().failed().tag("env", "ci")),
        ("failure, far back", ask().failed().before(deep)),
        ("failure until the middle", ask().failed().until(at)),
        ("env=ci + ticket", ask().tag("env", "ci").key("ticket")),
        (
            "env=ci + ticket=x: 0",
            ask().tag("env", "ci").tag("ticket", "x"),
        ),
        (
            "env + 1 s + *test*",
            ask().key("env").longer(1000).glob("*test*"),
        ),
        ("env=ci + *zq*: 0", ask().tag("env", "ci").glob("*zq*")),
        (
            "test + artifacts + host",
            ask().kind(RunKind::Test).with_artifacts().backend("host"),
        ),
        (
            "container + memory",
            ask().backend("container").cause("memory"),
        ),
        ("*test*, far back", ask().before(deep).glob("*test*")),
        ("a week + failure + cargo…", week().failed().glob("cargo")),
        ("a week + *nowhere*: 0", week().glob("*nowhere*")),
        ("a week + 1 min", week().longer(MINUTE_MS)),
    ]
}

/// Each common, and never together.
fn against_each_other() -> Named {
    let success = || ask().status(Status::Success);
    vec![
        ("success + exit code 1: 0", success().exit(1)),
        ("success + longer than a day: 0", success().longer(DAY_MS)),
        (
            "interrupted + 1 ms: 0",
            ask().status(Status::Interrupted).longer(1),
        ),
        (
            "env=ci + env=dev: 0",
            ask().tag("env", "ci").tag("env", "dev"),
        ),
        (
            "cargo… + running: 0",
            ask().glob("cargo t*zz").status(Status::Running),
        ),
        (
            "env + 1 min + memory",
            ask().key("env").longer(MINUTE_MS).cause("memory"),
        ),
    ]
}

fn other_every_time() -> Vec<Case> {
    let whole = |turn: usize| {
        let turn = u64::try_from(turn).unwrap_or(0);
        let number = (turn * 7919 + 5003) % COMMANDS;
        ask().glob(command(number).join(" ")).0
    };
    let contains = |turn: usize| ask().glob(format!("*{}*", 10_000 + turn * 37)).0;
    vec![
        Case {
            name: "a whole command line",
            query: Box::new(whole),
        },
        Case {
            name: "*NUMBER*",
            query: Box::new(contains),
        },
    ]
}

/// Counted, without a promise.
pub(crate) fn counts() -> Vec<(&'static str, Query)> {
    let counted = [
        ("everything", ask()),
        ("failure", ask().failed()),
        ("tag env", ask().key("env")),
        ("longer than 1 s", ask().longer(1000)),
        ("*test*", ask().glob("*test*")),
        ("failure + cargo…", ask().failed().glob("cargo")),
    ];
    counted.map(|(name, ask)| (name, ask.0)).to_vec()
}

/// The one kind of question that reads every command line there is: common letters, no two of them together, and no match. It takes as long as there are different commands.
pub(crate) fn unindexed() -> (&'static str, Query) {
    (
        "*e[!a-z0-9 ]s*: 0, no index",
        ask().glob("*e[!a-z0-9 ]s*").0,
    )
}
