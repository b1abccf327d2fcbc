//! Two runs compared. Says what is the same and what is not; how that is shown is another matter.

use std::collections::{BTreeMap, BTreeSet};

use cofferdam_contract::ending::{EndingRecord, Stream};
use cofferdam_store::RunId;
use cofferdam_store::log::{self, Chunk};
use cofferdam_store::model::{Closing, Digest, Outcome, Status, StoredRun};
use cofferdam_workshop::TestsDiff;
use jiff::Timestamp;
use serde::Serialize;

use super::unified::{self, Bounds, StreamDiff};
use super::words;
use crate::arguments::history::DiffArgs;
use crate::terminal::amount;

pub(crate) const SCHEMA: &str = "cofferdam.diff/1";

/// A run with its output.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Side<'a> {
    pub(crate) run: &'a StoredRun,
    pub(crate) output: &'a [Chunk],
}

/// What counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scope {
    Everything,
    Stream(Stream),
    Ending,
}

#[derive(Debug, Serialize)]
pub(crate) struct Comparison {
    pub(crate) schema: &'static str,
    pub(crate) same: bool,
    /// What differs of what counts.
    pub(crate) differences: Vec<&'static str>,
    pub(crate) a: About,
    pub(crate) b: About,
    /// Shown, and never a difference.
    pub(crate) usage: Vec<Figure>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) environment: Option<Names>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) artifacts: Option<Artifacts>,
    /// Where both told of tests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tests: Option<TestsDiff>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) stdout: Option<StreamDiff>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) stderr: Option<StreamDiff>,
}

#[derive(Debug, Serialize)]
pub(crate) struct About {
    pub(crate) run_id: RunId,
    pub(crate) started_at: Timestamp,
    pub(crate) command: String,
    pub(crate) status: Status,
    pub(crate) ending: String,
    pub(crate) exit_code: Option<i32>,
    pub(crate) signal: Option<String>,
    pub(crate) cause: Option<String>,
}

/// One measured figure of both.
#[derive(Debug, PartialEq, Serialize)]
pub(crate) struct Figure {
    pub(crate) name: &'static str,
    pub(crate) unit: Unit,
    pub(crate) a: Option<f64>,
    pub(crate) b: Option<f64>,
    pub(crate) change_percent: Option<f64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Unit {
    Milliseconds,
    Bytes,
    Number,
}

/// Of `b` against `a`.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Names {
    pub(crate) added: Vec<String>,
    pub(crate) removed: Vec<String>,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Artifacts {
    pub(crate) added: Vec<String>,
    pub(crate) removed: Vec<String>,
    pub(crate) changed: Vec<ChangedArtifact>,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
pub(crate) struct ChangedArtifact {
    pub(crate) path: String,
    pub(crate) a: Digest,
    pub(crate) b: Digest,
}

impl Scope {
    pub(crate) const fn of(args: &DiffArgs) -> Self {
        if args.stdout_only {
            Self::Stream(Stream::Stdout)
        } else if args.stderr_only {
            Self::Stream(Stream::Stderr)
        } else if args.exit_code_only {
            Self::Ending
        } else {
            Self::Everything
        }
    }

    fn includes(self, stream: Stream) -> bool {
        match self {
            Self::Everything => true,
            Self::Stream(only) => only == stream,
            Self::Ending => false,
        }
    }
}

pub(crate) fn compare(a: Side<'_>, b: Side<'_>, scope: Scope, context: usize) -> Comparison {
    let everything = scope == Scope::Everything;
    let stream = |stream| {
        let bytes = |side: Side<'_>| log::stream(side.output, stream);
        let compared = || StreamDiff {
            a_not_kept: words::not_kept(a.run, stream),
            b_not_kept: words::not_kept(b.run, stream),
            ..unified::compare(&bytes(a), &bytes(b), context, Bounds::USUAL)
        };
        scope.includes(stream).then(compared)
    };
    let (stdout, stderr) = (stream(Stream::Stdout), stream(Stream::Stderr));
    let environment = everything.then(|| names(a.run, b.run));
    let artifacts = everything.then(|| artifacts(a.run, b.run));
    let tests = everything
        .then(|| cofferdam_workshop::compare(a.run, b.run))
        .flatten();
    let ending = everything || scope == Scope::Ending;
    let differs = |diff: &Option<StreamDiff>| diff.as_ref().is_some_and(|diff| !diff.same);
    let found = [
        ("ending", ending && !same_ending(a.run, b.run)),
        ("stdout", differs(&stdout)),
        ("stderr", differs(&stderr)),
        (
            "environment",
            environment.as_ref().is_some_and(|names| !names.is_empty()),
        ),
        (
            "tests",
            tests.as_ref().is_some_and(|found| !found.is_empty()),
        ),
        (
            "artifacts",
            artifacts.as_ref().is_some_and(|found| !found.is_empty()),
        ),
    ];
    let differences: Vec<&str> = found
        .into_iter()
        .filter_map(|(name, differs)| differs.then_some(name))
        .collect();
    Comparison {
        schema: SCHEMA,
        same: differences.is_empty(),
        differences,
        a: about(a.run),
        b: about(b.run),
        usage: usage(a.run, b.run),
        environment,
        artifacts,
        tests,
        stdout,
        stderr,
    }
}

fn closing(run: &StoredRun) -> Option<&Closing> {
    match &run.outcome {
        Outcome::Ended(closing) => Some(closing),
        Outcome::Running | Outcome::Interrupted { .. } => None,
    }
}

/// Texts that explain are not compared.
fn same_ending(a: &StoredRun, b: &StoredRun) -> bool {
    let (Some(left), Some(right)) = (closing(a), closing(b)) else {
        return a.status == b.status;
    };
    let key = |ending: &EndingRecord| match ending {
        EndingRecord::Exited => ("exited", None, None),
        EndingRecord::Signaled => ("signaled", None, None),
        EndingRecord::Stopped { cause, limit, .. } => {
            ("stopped", Some(cause.clone()), limit.clone())
        }
        EndingRecord::NeverStarted { code, .. } => {
            ("never_started", Some(code.as_str().to_owned()), None)
        }
    };
    key(&left.ending) == key(&right.ending)
        && left.exit_code == right.exit_code
        && left.signal == right.signal
}

fn about(run: &StoredRun) -> About {
    let closing = closing(run);
    About {
        run_id: run.opening.run_id,
        started_at: run.opening.started_at,
        command: words::command(&run.opening.command),
        status: run.status,
        ending: words::ending(&run.outcome),
        exit_code: closing.and_then(|closing| closing.exit_code),
        signal: closing.and_then(|closing| closing.signal.clone()),
        cause: run.outcome.cause().map(str::to_owned),
    }
}

fn usage(a: &StoredRun, b: &StoredRun) -> Vec<Figure> {
    type Read = fn(&Closing) -> Option<f64>;
    let figures: [(&'static str, Unit, Read); 6] = [
        ("duration", Unit::Milliseconds, |c| Some(c.usage.wall_ms)),
        ("cpu", Unit::Milliseconds, |c| Some(c.usage.cpu_ms)),
        ("memory_peak", Unit::Bytes, |c| {
            c.usage.memory_peak_bytes.map(|n| n as f64)
        }),
        ("processes_peak", Unit::Number, |c| {
            c.usage.processes_peak.map(|n| n as f64)
        }),
        ("output", Unit::Bytes, |c| Some(c.usage.output_bytes as f64)),
        ("scratch", Unit::Bytes, |c| {
            c.usage.disk_bytes.map(|n| n as f64)
        }),
    ];
    figures
        .into_iter()
        .map(|(name, unit, read)| {
            let (a, b) = (closing(a).and_then(read), closing(b).and_then(read));
            let change_percent = a.zip(b).and_then(|(a, b)| amount::change(a, b));
            Figure {
                name,
                unit,
                a,
                b,
                change_percent,
            }
        })
        .collect()
}

fn names(a: &StoredRun, b: &StoredRun) -> Names {
    let set =
        |run: &StoredRun| -> BTreeSet<String> { run.opening.environment.iter().cloned().collect() };
    let (a, b) = (set(a), set(b));
    Names {
        added: b.difference(&a).cloned().collect(),
        removed: a.difference(&b).cloned().collect(),
    }
}

fn artifacts(a: &StoredRun, b: &StoredRun) -> Artifacts {
    let map = |run: &StoredRun| -> BTreeMap<String, Digest> {
        let kept = closing(run).map(|closing| closing.artifacts.as_slice());
        let kept = kept.unwrap_or_default().iter();
        kept.map(|artifact| (artifact.path.clone(), artifact.digest))
            .collect()
    };
    let (a, b) = (map(a), map(b));
    let only = |these: &BTreeMap<String, Digest>, those: &BTreeMap<String, Digest>| {
        let mine = these.keys().filter(|path| !those.contains_key(*path));
        mine.cloned().collect()
    };
    let changed = a.iter().filter_map(|(path, digest)| {
        let other = b.get(path).filter(|other| *other != digest)?;
        Some(ChangedArtifact {
            path: path.clone(),
            a: *digest,
            b: *other,
        })
    });
    Artifacts {
        added: only(&b, &a),
        removed: only(&a, &b),
        changed: changed.collect(),
    }
}

impl Names {
    pub(crate) fn is_empty(&self) -> bool {
        self.added.is_empty() && self.removed.is_empty()
    }
}

impl Artifacts {
    pub(crate) fn is_empty(&self) -> bool {
        self.added.is_empty() && self.removed.is_empty() && self.changed.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runs::sample::{self, err, out};

    fn found(a: &StoredRun, b: &StoredRun, scope: Scope) -> Vec<&'static str> {
        let (x, y) = ([out(0, b"1\n"), err(1, b"e\n")], [out(5, b"2\n")]);
        let side = |run, output| Side { run, output };
        compare(side(a, &x), side(b, &y), scope, 3).differences
    }

    #[test]
    fn only_what_counts_makes_runs_differ() {
        let (a, mut b) = (sample::exited(0), sample::exited(0));
        b.opening.run_id = sample::id(9);
        b.opening.command = vec!["other".to_owned()];
        if let Outcome::Ended(closing) = &mut b.outcome {
            closing.usage.wall_ms = 9999.0;
            closing.usage.memory_peak_bytes = None;
        }
        let output = [out(0, b"x"), out(1, b"y")];
        let joined = [out(0, b"xy")];
        let left = Side {
            run: &a,
            output: &output,
        };
        let right = Side {
            run: &b,
            output: &joined,
        };
        let comparison = compare(left, right, Scope::Everything, 3);
        assert!(comparison.same, "{comparison:?}");
        assert_eq!(comparison.usage[0].change_percent, Some(710.3));
        assert_eq!(comparison.usage[2].change_percent, None);
    }

    #[test]
    fn each_thing_that_counts_is_found() {
        let (a, mut b) = (sample::exited(0), sample::exited(3));
        b.opening.environment = vec!["LANG".to_owned(), "NEW".to_owned()];
        if let Outcome::Ended(closing) = &mut b.outcome {
            closing.artifacts = vec![
                sample::artifact("dist/app.js", b"2"),
                sample::artifact("x", b""),
            ];
        }
        assert_eq!(
            found(&a, &b, Scope::Everything),
            ["ending", "stdout", "stderr", "environment", "artifacts"]
        );
        assert_eq!(found(&a, &b, Scope::Stream(Stream::Stdout)), ["stdout"]);
        assert_eq!(found(&a, &b, Scope::Ending), ["ending"]);
        assert_eq!(
            names(&a, &b),
            Names {
                added: vec!["NEW".to_owned()],
                removed: vec!["CI".to_owned()]
            }
        );
        let found = artifacts(&a, &b);
        assert_eq!(
            (found.added, found.removed.len()),
            (vec!["x".to_owned()], 0)
        );
        assert_eq!(found.changed[0].path, "dist/app.js");
    }

    #[test]
    fn endings_are_compared_by_what_ended_them() {
        let same = |a: &StoredRun, b: &StoredRun| same_ending(a, b);
        let mut other_words = sample::out_of_memory();
        if let Outcome::Ended(closing) = &mut other_words.outcome
            && let EndingRecord::Stopped { detail, .. } = &mut closing.ending
        {
            "otherwise said".clone_into(detail);
        }
        assert!(same(&sample::out_of_memory(), &other_words));
        assert!(!same(&sample::out_of_memory(), &sample::exited(137)));
        assert!(!same(&sample::exited(0), &sample::exited(1)));
        assert!(!same(&sample::signaled(), &sample::never_started()));
        assert!(!same(&sample::running(), &sample::interrupted()));
        assert!(same(&sample::interrupted(), &sample::interrupted()));
    }
}
