//! Runs whose record is not the engine's own: one that did not compile, and one that stands for many inputs. The history has them under their own id, like every other.

use cofferdam_contract::ending::{EndingRecord, Stream};
use cofferdam_contract::record::RunRecord;
use cofferdam_contract::units::Bytes;
use cofferdam_store::StoreError;
use cofferdam_store::journal::Journal;
use cofferdam_store::model::{Closing, StreamSeen};
use cofferdam_store::sift::redact;
use jiff::Timestamp;

use crate::archive;
use crate::live::Live;
use crate::work::{Place, Work};

/// As much as the engine gives the journal of a run.
const JOURNAL: Bytes = Bytes::new(64 << 20);

/// Writes the record down as that of `live`. Trouble never changes the run: it is told in the record.
pub(crate) fn keep(place: Place<'_>, live: &Live, work: &Work, record: &mut RunRecord) {
    if let Err(error) = write(place, live, work, record) {
        tracing::error!(run_id = %live.id, %error, "a run could not be kept");
        record.unrecorded = Some(error.to_string());
    }
}

fn write(place: Place<'_>, live: &Live, work: &Work, record: &RunRecord) -> Result<(), StoreError> {
    let rules = &live.rules(&place.kept.rules);
    let (mut opening, mut redactions) = archive::opening_of(live, rules);
    opening.parent = work.parent;
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
        ending: EndingRecord::from(&record.ending),
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
        artifacts: Vec::new(),
        left_out: Vec::new(),
        results: None,
        network,
    })
}
