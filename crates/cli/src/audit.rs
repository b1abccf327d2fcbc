//! `cofferdam audit`: the chain of what was recorded and removed, and whether anybody changed it.

use std::process::ExitCode;

use cofferdam_store::History;
use cofferdam_store::audit::{self, Entry, Report};
use serde_json::json;

use crate::arguments::Places;
use crate::arguments::bundle::{AuditArgs, AuditVerb};
use crate::failure::{self, Failure};
use crate::runs::{Kept, open_history};
use crate::seal::pretty;
use crate::terminal::amount;
use crate::terminal::progress::Progress;
use crate::terminal::text::safe;

pub(crate) fn audit(args: &AuditArgs, places: Places) -> Result<ExitCode, Failure> {
    let history = open_history(&Kept::find(places)?)?;
    match args.verb {
        AuditVerb::Verify { json } => verify(&history, json),
        AuditVerb::List {
            limit,
            before,
            json,
        } => {
            let entries = audit::list(&history, limit, before)?;
            failure::print(&if json {
                pretty(&json!({"schema": "cofferdam.audit/1", "entries": entries}))?
            } else {
                entries.iter().map(line).collect()
            })?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn verify(history: &History, as_json: bool) -> Result<ExitCode, Failure> {
    let mut progress = Progress::new("checking");
    let report = audit::verify_with(history, |done, of| progress.at(done, of))?;
    progress.clear();
    failure::print(&if as_json {
        pretty(&json!({
            "schema": "cofferdam.audit-report/1",
            "holds": report.findings.is_empty(),
            "report": report,
        }))?
    } else {
        in_words(&report)
    })?;
    Ok(if report.findings.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn in_words(report: &Report) -> String {
    let mut text: String = report
        .findings
        .iter()
        .map(|finding| format!("{}\n", safe(&finding.to_string())))
        .collect();
    let entries = format!("{} entries", report.entries);
    let runs = amount::count(report.runs, "run");
    let verdict = if report.findings.is_empty() {
        "holds"
    } else {
        "does not hold"
    };
    text.push_str(&format!(
        "{verdict}: {entries}, {runs}; the last entry is {} with hash {}\n",
        report.last.seq, report.last.hash
    ));
    text
}

fn line(entry: &Entry) -> String {
    format!(
        "{:>6}  {}  {:<16}  {}\n",
        entry.seq,
        entry.at,
        safe(&entry.event),
        safe(&entry.subject)
    )
}
