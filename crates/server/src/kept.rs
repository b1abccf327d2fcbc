//! Runs whose record is not the engine's own: one that did not compile, one that stands for many inputs, and one that another machine carried out. The history has them under their own id, like every other.

use cofferdam_contract::ending::{EndingRecord, Stream};
use cofferdam_contract::record::RunRecord;
use cofferdam_contract::units::Bytes;
use cofferdam_store::StoreError;
use cofferdam_store::journal::Journal;
use cofferdam_store::model::{Artifact, Closing, LeftOut, StreamSeen};
use cofferdam_store::sift::redact;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::archive;
use crate::live::{Finished, Live};
use crate::work::{Place, Work};

/// As much as the engine gives the journal of a run.
pub(crate) const JOURNAL: Bytes = Bytes::new(64 << 20);

/// What else than the record is kept.
#[derive(Debug, Default)]
struct Beside {
    artifacts: Vec<Artifact>,
    left_out: Vec<LeftOut>,
    results: Option<Value>,
}

/// Writes the record down as that of `live`. Trouble never changes the run: it is told in the record.
pub(crate) fn keep(place: Place<'_>, live: &Live, work: &Work, record: &mut RunRecord) {
    keep_beside(place, live, work, record, Beside::default());
}

/// A run that was carried out elsewhere, with its files and what came of its project.
pub(crate) fn keep_whole(place: Place<'_>, live: &Live, work: &Work, finished: &mut Finished) {
    let project = finished.project.as_ref();
    let beside = Beside {
        artifacts: finished.artifacts.clone(),
        left_out: finished.left_out.clone(),
        results: project.map(|done| json!({ "project": done.outcome })),
    };
    keep_beside(place, live, work, &mut finished.record, beside);
}

fn keep_beside(place: Place<'_>, live: &Live, work: &Work, record: &mut RunRecord, beside: Beside) {
    if let Err(error) = write(place, live, work, record, beside) {
        tracing::error!(run_id = %live.id, %error, "a run could not be kept");
        record.unrecorded = Some(error.to_string());
    }
}

fn write(
    place: Place<'_>,
    live: &Live,
    work: &Work,
    record: &RunRecord,
    mut beside: Beside,
) -> Result<(), StoreError> {
    let rules = &live.rules(&place.kept.rules);
    let (mut opening, mut redactions) = archive::opening_of(live, rules);
    opening.parent = work.parent;
    opening.backend.clone_from(&record.backend);
    if let Some(results) = &mut beside.results {
        redactions += redact::redact_json(rules, results);
    }
    opening.payload = work.sealed.as_ref().map(|sealed| sealed.json().clone());
    if let Some(payload) = &mut opening.payload {
        redactions += redact::redact_json(rules, payload);
    }
    let mut denials = record.denials.clone();
    for denial in &mut denials {
        let (what, found) = redact::redact_text(rules, &denial.what);
        denial.what = what;
        redactions += found;
    }
    let mut network = record.network.clone();
    for event in network.iter_mut().flat_map(|told| &mut told.events) {
        for text in [Some(&mut event.host), event.why.as_mut()]
            .into_iter()
            .flatten()
        {
            let (clean, found) = redact::redact_text(rules, text);
            *text = clean;
            redactions += found;
        }
    }
    let mut ending = EndingRecord::from(&record.ending);
    if let EndingRecord::NeverStarted { message, .. } = &mut ending {
        let (clean, found) = redact::redact_text(rules, message);
        *message = clean;
        redactions += found;
    }
    if let Ok(started_at) = record.started_at.parse() {
        opening.started_at = started_at;
    }
    let mut journal = Journal::begin(place.dir, &opening, rules.clone(), JOURNAL)?;
    for (stream, captured) in [
        (Stream::Stdout, &record.stdout),
        (Stream::Stderr, &record.stderr),
    ] {
        let bytes = captured.bytes().unwrap_or_default();
        journal.output(stream, &bytes);
        if captured.truncated {
            journal.cut(stream);
        }
    }
    journal.finish(Closing {
        ended_at: record.ended_at.parse().unwrap_or_else(|_| Timestamp::now()),
        ending,
        exit_code: record.exit_code,
        signal: record.signal.clone(),
        usage: record.usage,
        enforced_by: record.enforced_by.clone(),
        isolation: record.isolation.clone(),
        denials,
        changes: None,
        redactions,
        stdout: StreamSeen::default(),
        stderr: StreamSeen::default(),
        artifacts: beside.artifacts,
        left_out: beside.left_out,
        results: beside.results,
        network,
        determinism: record.determinism.clone(),
    })
}
