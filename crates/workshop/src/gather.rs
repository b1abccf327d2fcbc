//! Finding and reading the reports of a step. They are a stranger's files: read beneath a directory that is held, without following links, and in the project only if
//! they are new since the step began.

use std::collections::BTreeMap;

use cofferdam_project::action::{Place, ReportAt};
use cofferdam_project::beneath::{Beneath, Stamp};
use cofferdam_project::report::{self, Budget, Format, MAX_REPORT, TestReport};

/// More files than any test run writes.
const MAX_FILES: usize = 10_000;

/// What lay in the project before a step.
#[derive(Debug, Default)]
pub(crate) struct Before {
    files: BTreeMap<String, Vec<(String, Stamp)>>,
}

/// What a step left and said.
#[derive(Debug)]
pub(crate) struct Left<'a> {
    pub(crate) own: &'a Beneath,
    pub(crate) project: &'a Beneath,
    pub(crate) stdout: &'a [u8],
    pub(crate) stderr: &'a [u8],
}

impl Before {
    pub(crate) fn look(project: &Beneath, reports: &[ReportAt]) -> Self {
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

/// The tests that a step tells of. The first place that holds any counts; files in the project count together. What is kept of all of them is bounded.
pub(crate) fn gather(
    reports: &[ReportAt],
    before: &Before,
    left: &Left<'_>,
    budget: &mut Budget,
) -> TestReport {
    budget.begin();
    let mut found = first(reports, before, left, budget);
    found.tell_bounds(budget);
    found
}

fn first(
    reports: &[ReportAt],
    before: &Before,
    left: &Left<'_>,
    budget: &mut Budget,
) -> TestReport {
    let mut merged = TestReport::default();
    let mut is_whole = false;
    for at in reports {
        let read = one(at, before, left, budget);
        let is_shared = matches!(at.place, Place::Project { .. });
        if read.counts().total > 0 && !is_shared {
            return read;
        }
        is_whole |= !is_shared && read.cut.is_none();
        merged.add(read);
    }
    // One that is whole and holds no test says that there was none.
    if is_whole {
        merged.cut = None;
    }
    merged
}

fn one(at: &ReportAt, before: &Before, left: &Left<'_>, budget: &mut Budget) -> TestReport {
    match &at.place {
        Place::Stdout => parse(at.format, "standard output", left.stdout, budget),
        Place::Stderr => parse(at.format, "standard error", left.stderr, budget),
        Place::Own(name) => file(left.own, name, at.format, budget),
        Place::OwnAll(suffix) => {
            let files = left.own.files(".", MAX_FILES).unwrap_or_default();
            let names = files.into_iter().map(|(name, _)| name);
            all(
                left.own,
                names.filter(|name| name.ends_with(suffix)),
                at.format,
                budget,
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
                budget,
            )
        }
    }
}

fn all(
    dir: &Beneath,
    names: impl Iterator<Item = String>,
    format: Format,
    budget: &mut Budget,
) -> TestReport {
    let mut merged = TestReport::default();
    for name in names {
        merged.add(file(dir, &name, format, budget));
    }
    merged
}

fn file(dir: &Beneath, name: &str, format: Format, budget: &mut Budget) -> TestReport {
    match dir.read(name, MAX_REPORT) {
        Ok(bytes) => parse(format, name, &bytes, budget),
        Err(error) => problem(name, &error.to_string()),
    }
}

fn parse(format: Format, name: &str, bytes: &[u8], budget: &mut Budget) -> TestReport {
    report::parse_within(format, bytes, budget)
        .unwrap_or_else(|bad| problem(name, &bad.to_string()))
}

fn problem(name: &str, why: &str) -> TestReport {
    TestReport::unreadable(format!("{name}: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPORT: &str = "<testsuite><testcase name='a'/></testsuite>";

    fn read(reports: &[ReportAt], before: &Before, left: &Left<'_>) -> TestReport {
        gather(reports, before, left, &mut Budget::default())
    }

    fn at(dir: &str) -> Vec<ReportAt> {
        vec![ReportAt {
            place: Place::Project {
                dir: dir.to_owned(),
                prefix: "TEST-",
                suffix: ".xml",
            },
            format: Format::Junit,
        }]
    }

    #[test]
    fn a_report_of_an_earlier_run_or_behind_a_link_is_not_believed() {
        let top = tempfile::tempdir().unwrap();
        let dir = top.path().join("project");
        let reports = dir.join("target/surefire-reports");
        std::fs::create_dir_all(&reports).unwrap();
        std::fs::write(reports.join("TEST-old.xml"), REPORT).unwrap();
        std::fs::write(top.path().join("outside.xml"), REPORT).unwrap();
        let project = Beneath::open(&dir).unwrap();
        let places = at("target/surefire-reports");
        let before = Before::look(&project, &places);
        let left = Left {
            own: &project,
            project: &project,
            stdout: b"",
            stderr: b"",
        };
        assert_eq!(read(&places, &before, &left).tests.len(), 0);
        std::os::unix::fs::symlink(
            top.path().join("outside.xml"),
            reports.join("TEST-link.xml"),
        )
        .unwrap();
        std::fs::write(reports.join("notes.xml"), REPORT).unwrap();
        assert_eq!(read(&places, &before, &left).tests.len(), 0);
        std::fs::write(reports.join("TEST-new.xml"), REPORT).unwrap();
        assert_eq!(read(&places, &before, &left).tests.len(), 1);
        // The same name again is new, too. Written beside it first: a file system may give the number of a file that was removed to the next one, within one tick of its clock.
        std::fs::write(reports.join("beside"), REPORT).unwrap();
        std::fs::rename(reports.join("beside"), reports.join("TEST-old.xml")).unwrap();
        assert_eq!(read(&places, &before, &left).tests.len(), 2);
        // The whole directory became a link.
        std::fs::rename(&reports, top.path().join("away")).unwrap();
        std::os::unix::fs::symlink(top.path().join("away"), &reports).unwrap();
        assert_eq!(read(&places, &before, &left).tests.len(), 0);
    }

    #[test]
    fn what_is_told_last_counts_where_nothing_else_was_told() {
        let dir = tempfile::tempdir().unwrap();
        let own = Beneath::open(dir.path()).unwrap();
        let places = [
            ReportAt {
                place: Place::Own("pytest.xml".to_owned()),
                format: Format::Junit,
            },
            ReportAt {
                place: Place::Stdout,
                format: Format::PytestText,
            },
        ];
        let left = Left {
            own: &own,
            project: &own,
            stdout: b"a.py::test_x PASSED [ 50%]\n",
            stderr: b"",
        };
        let partial = read(&places, &Before::default(), &left);
        assert_eq!(
            (partial.tests.len(), partial.tests[0].name.as_str()),
            (1, "test_x")
        );
        std::fs::write(dir.path().join("pytest.xml"), REPORT).unwrap();
        assert_eq!(read(&places, &Before::default(), &left).tests[0].name, "a");
    }
}
