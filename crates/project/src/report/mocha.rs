//! Mocha's JSON, read as it comes. A test is passed, pending or failed by the list that it stands in again; those lists stand behind it, so that it is read twice.

use std::collections::HashSet;

use serde::Deserialize;
use serde::de::{DeserializeSeed, MapAccess};

use super::budget::Budget;
use super::few::{Each, Members, Plain, ReadMembers, pass_by};
use super::model::{BadReport, Status, TestCase, TestReport};
use super::place;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Test {
    #[serde(default)]
    title: String,
    #[serde(default)]
    full_title: String,
    #[serde(default)]
    file: Option<String>,
    #[serde(default)]
    duration: Option<f64>,
    #[serde(default)]
    err: Problem,
}

#[derive(Deserialize, Default)]
struct Problem {
    #[serde(default)]
    message: Plain,
    #[serde(default)]
    stack: Plain,
    #[serde(default)]
    expected: Plain,
    #[serde(default)]
    actual: Plain,
}

/// More names than these are not remembered.
const MOST_NAMES: usize = 200_000;

pub(super) fn parse(bytes: &[u8], budget: &mut Budget) -> Result<TestReport, BadReport> {
    let read = |into: &mut dyn FnMut() -> serde_json::Result<()>| {
        into().map_err(|error| BadReport(error.to_string()))
    };
    let mut lists = Lists::default();
    read(&mut || {
        let mut reader = serde_json::Deserializer::from_slice(bytes);
        Members(&mut lists).deserialize(&mut reader)?;
        reader.end()
    })?;
    let mut tests = Tests {
        lists: &lists,
        report: TestReport::default(),
        budget,
        has_tests: false,
        known: HashSet::new(),
        pass: Pass::Tests,
    };
    for pass in [Pass::Tests, Pass::Hooks] {
        tests.pass = pass;
        read(&mut || {
            let mut reader = serde_json::Deserializer::from_slice(bytes);
            Members(&mut tests).deserialize(&mut reader)
        })?;
    }
    match tests.has_tests {
        true => Ok(tests.report),
        false => Err(BadReport("it has no `tests`".to_owned())),
    }
}

type Key = (Option<String>, String);

fn key(test: &Test) -> Key {
    (test.file.clone(), test.full_title.clone())
}

/// By which list a test is known.
#[derive(Default)]
struct Lists {
    pending: HashSet<Key>,
    failed: HashSet<Key>,
}

impl<'de> ReadMembers<'de> for Lists {
    fn member<A: MapAccess<'de>>(&mut self, name: &str, value: &mut A) -> Result<(), A::Error> {
        let list = match name {
            "pending" => &mut self.pending,
            "failures" => &mut self.failed,
            _ => return pass_by(value),
        };
        value.next_value_seed(Each::new(|test: Test| {
            if list.len() < MOST_NAMES {
                list.insert(key(&test));
            }
        }))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pass {
    Tests,
    /// A hook that failed is no test, and is a failure.
    Hooks,
}

struct Tests<'l, 'b> {
    lists: &'l Lists,
    report: TestReport,
    budget: &'b mut Budget,
    has_tests: bool,
    /// Tests that failed, so that what is left of the failures are hooks.
    known: HashSet<Key>,
    pass: Pass,
}

impl<'de> ReadMembers<'de> for Tests<'_, '_> {
    fn member<A: MapAccess<'de>>(&mut self, name: &str, value: &mut A) -> Result<(), A::Error> {
        match (name, self.pass) {
            ("tests", Pass::Tests) => {
                self.has_tests = true;
                value.next_value_seed(Each::new(|test: Test| self.test(test)))
            }
            ("failures", Pass::Hooks) => value.next_value_seed(Each::new(|test: Test| {
                if !self.known.contains(&key(&test)) {
                    self.report.push(case(test, Status::Failed), self.budget);
                }
            })),
            _ => pass_by(value),
        }
    }
}

impl Tests<'_, '_> {
    fn test(&mut self, test: Test) {
        let key = key(&test);
        let is_bad = self.lists.failed.contains(&key);
        let status = match (
            is_bad || test.err.message.0.is_some(),
            self.lists.pending.contains(&key),
        ) {
            (true, _) => Status::Failed,
            (false, true) => Status::Skipped,
            (false, false) => Status::Passed,
        };
        if is_bad {
            self.known.insert(key);
        }
        self.report.push(case(test, status), self.budget);
    }
}

fn case(test: Test, status: Status) -> TestCase {
    let group = test.full_title.strip_suffix(&test.title).map(str::trim);
    let suite = group.filter(|group| !group.is_empty()).map(str::to_owned);
    let mut case = TestCase::new(test.title, status);
    case.suite = suite;
    case.file = test.file;
    case.duration_ms = test.duration;
    let Problem {
        message,
        stack,
        expected,
        actual,
    } = test.err;
    case.line = stack.0.as_deref().and_then(place::first).map(|at| at.1);
    case.message = message.0;
    case.stack = stack.0;
    case.expected = expected.0;
    case.actual = actual.0;
    case
}
