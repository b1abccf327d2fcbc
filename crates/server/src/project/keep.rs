//! What is kept of a project's run: the record under its own id, its results, its reports as files, and the directories that the client asked for.

use std::collections::BTreeSet;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use cofferdam_contract::ending::EndingRecord;
use cofferdam_contract::record::RunRecord;
use cofferdam_contract::units::Bytes;
use cofferdam_engine::pipeline::Secrets;
use cofferdam_project::diagnostic::{self, Diagnostic};
use cofferdam_project::report;
use cofferdam_project::{Action, Beneath};
use cofferdam_store::RunId;
use cofferdam_store::collect::{self, ArtifactLimits, Collected};
use cofferdam_store::journal::Journal;
use cofferdam_store::model::{Closing, LeftOut, StreamSeen};
use cofferdam_store::objects::Objects;
use cofferdam_store::private_dir::PrivateDir;
use cofferdam_store::sift::redact;
use cofferdam_workshop::{Outcome, ProjectOutcome};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::desk::Desk;
use crate::fault::Fault;
use crate::work::Place;

/// Where the reports stand among the artifacts.
pub(super) const REPORTS: &str = "cofferdam-reports";
/// Whoever waits for the end does not wait longer than this for files to be looked at.
const COLLECTING: Duration = Duration::from_secs(10);

/// The reports, and what the client asked for of the project. Trouble is told among what is left out.
pub(super) fn files(
    outcome: &Outcome,
    keep: &[String],
    root: &Path,
    desk: &Desk,
    place: Place<'_>,
) -> Collected {
    let mut all = Collected::default();
    let Some(limits) = place.kept.artifacts else {
        return all;
    };
    // For all directories together.
    let until = Instant::now() + COLLECTING;
    let wrote = reports(outcome, desk, place).and_then(|dir| {
        let held = Beneath::open(dir.path())
            .and_then(|top| top.dir(REPORTS))
            .map_err(|error| Fault::internal(format!("cannot read reports: {error}")))?;
        collect_under(held.as_fd(), REPORTS, desk, place, limits, until)
    });
    match wrote {
        Ok(collected) => add(&mut all, collected),
        Err(fault) => left_out(&mut all, REPORTS, &fault.detail),
    }
    let unique: BTreeSet<&str> = keep.iter().map(String::as_str).collect();
    for path in unique {
        // The project's own code ran here: nothing is followed on the way.
        let held = Beneath::open(root).and_then(|top| top.dir(path));
        match held {
            Ok(held) => match collect_under(
                held.as_fd(),
                path,
                desk,
                place,
                rest_of(limits, &all),
                until,
            ) {
                Ok(collected) => add(&mut all, collected),
                Err(fault) => left_out(&mut all, path, &fault.detail),
            },
            Err(error) => left_out(&mut all, path, &format!("is no directory there: {error}")),
        }
    }
    all
}

fn reports(outcome: &Outcome, desk: &Desk, place: Place<'_>) -> Result<PrivateDir, Fault> {
    let dir = PrivateDir::create(place.dir, RunId::new())?;
    let steps = || {
        outcome
            .projects
            .iter()
            .flat_map(ProjectOutcome::last_attempts)
    };
    let write = |name: &str, text: &str| {
        let (clean, _) = redact::redact_text(desk.rules(), text);
        dir.place(&format!("{REPORTS}/{name}"), clean.as_bytes(), 0o644)
    };
    let mut document = json!(outcome);
    redact::redact_json(desk.rules(), &mut document);
    let text = format!("{document}\n");
    dir.place(&format!("{REPORTS}/project.json"), text.as_bytes(), 0o644)?;
    if outcome.action == Action::Test {
        write("junit.xml", &report::junit(&outcome.as_they_count()))?;
    }
    let found: Vec<Diagnostic> = steps().flat_map(|step| step.diagnostics.clone()).collect();
    if outcome.action != Action::Test || !found.is_empty() {
        let mut sarif = diagnostic::sarif(&found, env!("CARGO_PKG_VERSION"));
        redact::redact_json(desk.rules(), &mut sarif);
        let text = format!("{sarif:#}\n");
        dir.place(
            &format!("{REPORTS}/diagnostics.sarif"),
            text.as_bytes(),
            0o644,
        )?;
    }
    Ok(dir)
}

fn collect_under(
    dir: BorrowedFd<'_>,
    path: &str,
    desk: &Desk,
    place: Place<'_>,
    limits: ArtifactLimits,
    until: Instant,
) -> Result<Collected, Fault> {
    let scanner = Secrets(desk.rules());
    let give_up = || Instant::now() >= until;
    let rules = collect::Rules {
        limits,
        scanner: Some(&scanner),
        give_up: Some(&give_up),
    };
    let mut collected = collect::collect(dir, None, &Objects::open(place.dir), &rules)?;
    let below = |name: &str| match name {
        "." => path.to_owned(),
        name => format!("{path}/{name}"),
    };
    for artifact in &mut collected.artifacts {
        artifact.path = below(&artifact.path);
    }
    for left_out in &mut collected.left_out {
        left_out.path = below(&left_out.path);
    }
    Ok(collected)
}

/// The limits are the run's, not each directory's.
fn rest_of(limits: ArtifactLimits, kept: &Collected) -> ArtifactLimits {
    let bytes: u64 = kept.artifacts.iter().map(|artifact| artifact.bytes).sum();
    let files = u64::try_from(kept.artifacts.len()).unwrap_or(u64::MAX);
    ArtifactLimits {
        per_run: Bytes::new(limits.per_run.get().saturating_sub(bytes)),
        files: limits.files.saturating_sub(files),
        ..limits
    }
}

fn add(all: &mut Collected, more: Collected) {
    let known: BTreeSet<String> = all
        .artifacts
        .iter()
        .map(|artifact| artifact.path.clone())
        .collect();
    // One directory inside another, both asked for.
    let new = more.artifacts.into_iter();
    all.artifacts
        .extend(new.filter(|artifact| !known.contains(&artifact.path)));
    all.left_out.extend(more.left_out);
}

fn left_out(all: &mut Collected, path: &str, why: &str) {
    all.left_out.push(LeftOut {
        path: path.to_owned(),
        why: why.to_owned(),
    });
}

/// Closes the journal of the request's run. Returns why it is not in the history, if it is not.
pub(super) fn close(
    journal: Result<Journal, String>,
    record: &RunRecord,
    results: Option<Value>,
    collected: &Collected,
    desk: &Desk,
) -> Option<String> {
    let journal = match journal {
        Ok(journal) => journal,
        Err(why) => return Some(why),
    };
    let mut redactions = desk.redacted_in_opening();
    let mut results = results;
    if let Some(results) = &mut results {
        redactions += redact::redact_json(desk.rules(), results);
    }
    let mut ending = EndingRecord::from(&record.ending);
    if let EndingRecord::NeverStarted { message, .. } = &mut ending {
        let (clean, found) = redact::redact_text(desk.rules(), message);
        *message = clean;
        redactions += found;
    }
    let closing = Closing {
        ended_at: record.ended_at.parse().unwrap_or_else(|_| Timestamp::now()),
        ending,
        exit_code: record.exit_code,
        signal: record.signal.clone(),
        usage: record.usage,
        enforced_by: record.enforced_by.clone(),
        isolation: record.isolation.clone(),
        denials: Vec::new(),
        changes: None,
        redactions,
        stdout: StreamSeen::default(),
        stderr: StreamSeen::default(),
        artifacts: collected.artifacts.clone(),
        left_out: collected.left_out.clone(),
        results,
        // Its steps are runs of their own, and have none.
        network: None,
        determinism: None,
    };
    journal.finish(closing).err().map(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use cofferdam_store::model::{Artifact, ArtifactKind, Digest};

    use super::*;

    fn kept(path: &str, bytes: u64) -> Collected {
        let artifact = Artifact {
            path: path.to_owned(),
            bytes,
            digest: Digest::of(b""),
            media_type: "text/plain".to_owned(),
            kind: ArtifactKind::Added,
            mode: 0o644,
        };
        Collected {
            artifacts: vec![artifact],
            ..Collected::default()
        }
    }

    #[test]
    fn what_was_kept_of_one_directory_is_not_there_for_the_next() {
        let limits = ArtifactLimits {
            per_run: Bytes::new(100),
            files: 3,
            ..ArtifactLimits::default()
        };
        let mut all = kept("a/x", 60);
        add(&mut all, kept("a/x", 60));
        assert_eq!(all.artifacts.len(), 1);
        let rest = rest_of(limits, &all);
        assert_eq!((rest.per_run, rest.files), (Bytes::new(40), 2));
        add(&mut all, kept("b/x", 70));
        let rest = rest_of(limits, &all);
        assert_eq!((rest.per_run, rest.files), (Bytes::new(0), 1));
        assert_eq!(rest.per_file, limits.per_file);
    }
}
