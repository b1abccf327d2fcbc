//! Finding and reading the reports of a step. They are a stranger's files: read beneath a directory that is held, without following links, and in the project only if
//! they are new since the step began.

use std::collections::BTreeMap;

use cofferdam_project::action::{Place, ReportAt};
use cofferdam_project::beneath::{Beneath, Stamp};
use cofferdam_project::report::{self, Format, MAX_REPORT, TestReport};

/// More files than any test run writes.
const MAX_FILES: usize = 10_000;

/// What lay in the project before a step.
#[derive(Debug, Default)]
pub(super) struct Before {
    files: BTreeMap<String, Vec<(String, Stamp)>>,
}

/// What a step left and said.
#[derive(Debug)]
pub(super) struct Left<'a> {
    pub(super) own: &'a Beneath,
    pub(super) project: &'a Beneath,
    pub(super) stdout: &'a [u8],
    pub(super) stderr: &'a [u8],
}

impl Before {
    pub(super) fn look(project: &Beneath, reports: &[ReportAt]) -> Self {
        let mut files = BTreeMap::new();
        for at in reports {
            if let Place::Project { dir, .. } = &at.place {
                files.insert(
                    dir.clone(),
                    project.files(dir, MAX_FILES).unwrap_or_default(),
                );
            }
        }
        Self { files }
    }

    fn had(&self, dir: &str, file: &(String, Stamp)) -> bool {
        self.files
            .get(dir)
            .is_some_and(|files| files.contains(file))
    }
}

/// The tests that a step tells of. The first place that holds any counts; files in the project count together.
pub(super) fn gather(reports: &[ReportAt], before: &Before, left: &Left<'_>) -> TestReport {
    let mut merged = TestReport::default();
    for at in reports {
        let read = one(at, before, left);
        let is_shared = matches!(at.place, Place::Project { .. });
        if !read.tests.is_empty() && !is_shared {
            return read;
        }
        merged.add(read);
    }
    merged
}

fn one(at: &ReportAt, before: &Before, left: &Left<'_>) -> TestReport {
    match &at.place {
        Place::Stdout => parse(at.format, "standard output", left.stdout),
        Place::Stderr => parse(at.format, "standard error", left.stderr),
        Place::Own(name) => file(left.own, name, at.format),
        Place::OwnAll(suffix) => {
            let files = left.own.files(".", MAX_FILES).unwrap_or_default();
            let names = files.into_iter().map(|(name, _)| name);
            all(
                left.own,
                names.filter(|name| name.ends_with(suffix)),
                at.format,
            )
        }
        Place::Project {
            dir,
            prefix,
            suffix,
        } => {
            let files = left.project.files(dir, MAX_FILES).unwrap_or_default();
            let new = files.into_iter().filter(|file| !before.had(dir, file));
            let names = new.map(|(name, _)| name);
            let names = names.filter(|name| name.starts_with(prefix) && name.ends_with(suffix));
            all(
                left.project,
                names.map(|name| format!("{dir}/{name}")),
                at.format,
            )
        }
    }
}

fn all(dir: &Beneath, names: impl Iterator<Item = String>, format: Format) -> TestReport {
    let mut merged = TestReport::default();
    for name in names {
        merged.add(file(dir, &name, format));
    }
    merged
}

fn file(dir: &Beneath, name: &str, format: Format) -> TestReport {
    match dir.read(name, MAX_REPORT) {
        Ok(bytes) => parse(format, name, &bytes),
        Err(error) => problem(name, &error.to_string()),
    }
}

fn parse(format: Format, name: &str, bytes: &[u8]) -> TestReport {
    report::parse(format, bytes).unwrap_or_else(|bad| problem(name, &bad.to_string()))
}

fn problem(name: &str, why: &str) -> TestReport {
    TestReport {
        tests: Vec::new(),
        problems: vec![format!("{name}: {why}")],
    }
}
