//! The JSON of Jest, which Vitest writes too, read as it comes. A file that could not be loaded has no tests and is a problem of its own.

use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};

use super::budget::Budget;
use super::few::{Each, Few, Members, Plain, ReadMembers, pass_by};
use super::model::{BadReport, Status, TestCase, TestReport};
use super::place;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Assertion {
    #[serde(default)]
    ancestor_titles: Few<String>,
    #[serde(default)]
    title: String,
    #[serde(default)]
    status: String,
    #[serde(default)]
    duration: Option<f64>,
    #[serde(default)]
    failure_messages: Few<String>,
    #[serde(default)]
    failure_details: Few<Detail>,
    #[serde(default)]
    location: Option<Location>,
}

#[derive(Deserialize)]
struct Location {
    line: u32,
}

/// What a matcher compared, where it says so.
#[derive(Default)]
struct Detail {
    expected: Option<String>,
    actual: Option<String>,
}

pub(super) fn parse(bytes: &[u8], budget: &mut Budget) -> Result<TestReport, BadReport> {
    let mut top = Top {
        report: TestReport::default(),
        budget,
        has_results: false,
    };
    let mut reader = serde_json::Deserializer::from_slice(bytes);
    Members(&mut top)
        .deserialize(&mut reader)
        .and_then(|()| reader.end())
        .map_err(|error| BadReport(error.to_string()))?;
    match top.has_results {
        true => Ok(top.report),
        false => Err(BadReport("it has no `testResults`".to_owned())),
    }
}

struct Top<'b> {
    report: TestReport,
    budget: &'b mut Budget,
    has_results: bool,
}

impl<'de> ReadMembers<'de> for Top<'_> {
    fn member<A: MapAccess<'de>>(&mut self, name: &str, value: &mut A) -> Result<(), A::Error> {
        match name {
            "testResults" => {
                self.has_results = true;
                value.next_value_seed(Files(self))
            }
            _ => pass_by(value),
        }
    }
}

struct Files<'t, 'b>(&'t mut Top<'b>);

impl<'de> DeserializeSeed<'de> for Files<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Files<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of files")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        let Top { report, budget, .. } = self.0;
        loop {
            let (first, known) = (report.tests.len(), report.beyond.total);
            let mut file = File {
                report,
                budget,
                name: String::new(),
                status: String::new(),
                message: String::new(),
            };
            if list.next_element_seed(Members(&mut file))?.is_none() {
                return Ok(());
            }
            let File {
                name,
                status,
                message,
                ..
            } = file;
            let is_empty = (report.tests.len(), report.beyond.total) == (first, known);
            if is_empty && status == "failed" {
                report.problem(format!("{name}: {}", message.trim()));
            }
            for at in first..report.tests.len() {
                report.amend(at, budget, |case| case.file = Some(name.clone()));
            }
        }
    }
}

struct File<'f> {
    report: &'f mut TestReport,
    budget: &'f mut Budget,
    name: String,
    status: String,
    message: String,
}

impl<'de> ReadMembers<'de> for File<'_> {
    fn member<A: MapAccess<'de>>(&mut self, name: &str, value: &mut A) -> Result<(), A::Error> {
        let text = match name {
            "assertionResults" => {
                let (report, budget) = (&mut *self.report, &mut *self.budget);
                return value.next_value_seed(Each::new(|test| {
                    report.push(case(test), budget);
                }));
            }
            "name" => &mut self.name,
            "status" => &mut self.status,
            "message" => &mut self.message,
            _ => return pass_by(value),
        };
        *text = value.next_value::<Plain>()?.0.unwrap_or_default();
        Ok(())
    }
}

fn case(test: Assertion) -> TestCase {
    let status = match test.status.as_str() {
        "passed" | "focused" => Status::Passed,
        "pending" | "skipped" | "todo" | "disabled" => Status::Skipped,
        _ => Status::Failed,
    };
    let mut case = TestCase::new(test.title, status);
    let titles = test.ancestor_titles.0.join(" › ");
    case.suite = Some(titles).filter(|suite| !suite.is_empty());
    case.duration_ms = test.duration;
    case.line = test.location.map(|at| at.line);
    if status == Status::Failed {
        let stack = test.failure_messages.0.join("\n");
        case.message = stack.lines().next().map(str::to_owned);
        case.line = place::first(&stack).map(|at| at.1).or(case.line);
        let told = test.failure_details.0.into_iter().next();
        let told = told.unwrap_or_default();
        case.expected = told.expected;
        case.actual = told.actual;
        case.stack = Some(stack);
    }
    case
}

impl<'de> Deserialize<'de> for Detail {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let mut detail = Self::default();
        Members(&mut detail).deserialize(from)?;
        Ok(detail)
    }
}

impl<'de> ReadMembers<'de> for Detail {
    fn member<A: MapAccess<'de>>(&mut self, name: &str, value: &mut A) -> Result<(), A::Error> {
        match name {
            "matcherResult" => value.next_value_seed(Members(&mut Compared(self))),
            _ => pass_by(value),
        }
    }
}

struct Compared<'d>(&'d mut Detail);

impl<'de> ReadMembers<'de> for Compared<'_> {
    fn member<A: MapAccess<'de>>(&mut self, name: &str, value: &mut A) -> Result<(), A::Error> {
        let text = match name {
            "expected" => &mut self.0.expected,
            "actual" => &mut self.0.actual,
            _ => return pass_by(value),
        };
        *text = value.next_value::<Plain>()?.0;
        Ok(())
    }
}
