//! `cofferdam verify`: does an envelope answer its payload? Believes nothing that the worker says; with `--rerun` it does the work again.

use std::process::ExitCode;

use cofferdam_contract::canonical;
use cofferdam_contract::codes::ErrorCode;
use cofferdam_contract::envelope::{ResultEnvelope, Status};
use cofferdam_contract::mode::NetworkReach;
use cofferdam_contract::network::Network;
use cofferdam_contract::problem::{Problem, Problems};
use cofferdam_contract::seal::Sealed;
use cofferdam_contract::verdict::Violation;
use cofferdam_store::DataDir;
use jiff::Timestamp;
use serde::Serialize;

use crate::arguments::{Places, VerifyArgs};
use crate::containers;
use crate::execute;
use crate::failure::visible;
use crate::failure::{self, Failure};
use crate::history;
use crate::policy;
use crate::rootfs;
use crate::seal::document::Document;
use crate::seal::{open, pretty};

pub(crate) fn verify(args: &VerifyArgs, places: Places) -> Result<ExitCode, Failure> {
    if args.payload == args.envelope && args.payload.as_os_str() == "-" {
        let message = "payload and envelope cannot both be `-`; name a file for one of them";
        return Err(Failure::new(ErrorCode::InputInvalid, message));
    }
    let sealed = open(&Document::read(&args.payload)?)?;
    let document = Document::read(&args.envelope)?;
    // A stranger's text that is no envelope is a finding, not a failure of ours.
    let (problems, rerun) = match ResultEnvelope::parse(&document.bytes) {
        Err(problems) => (problems.into_vec(), None),
        Ok(envelope) => {
            let problems = envelope
                .check(&sealed)
                .err()
                .map(Problems::into_vec)
                .unwrap_or_default();
            let dir = history::place(places.data_dir.clone());
            let rerun = args
                .rerun
                .then(|| rerun(args, &sealed, &envelope, &places, dir.as_ref()));
            (problems, rerun.transpose()?)
        }
    };
    let findings = Findings {
        holds: problems.is_empty() && rerun.as_ref().is_none_or(|rerun| rerun.agrees),
        problems,
        rerun,
    };
    failure::print(&if args.json {
        pretty(&findings)?
    } else {
        lines(&findings)
    })?;
    Ok(if findings.holds {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

#[derive(Debug, Serialize)]
struct Findings {
    /// Without any problem, here or in the rerun.
    holds: bool,
    problems: Vec<Problem>,
    rerun: Option<Rerun>,
}

#[derive(Debug, Serialize)]
struct Rerun {
    agrees: bool,
    /// The deadline is for the worker who was asked; whoever checks comes later.
    deadline_passed: bool,
    status: Status,
    violation: Option<Violation>,
    differences: Vec<Problem>,
}

/// Does the work here and compares what must be the same: the status, the output, and the rule that was broken. Times and memory are not.
fn rerun(
    args: &VerifyArgs,
    sealed: &Sealed,
    claimed: &ResultEnvelope,
    places: &Places,
    dir: Option<&DataDir>,
) -> Result<Rerun, Failure> {
    let backend = execute::backend(args.backend, sealed, policy::in_force(places)?);
    let (docker, merged) = containers::load(places, backend, &args.container)?;
    policy::obey(&merged, NetworkReach::from(&sealed.payload().network))?;
    let place = execute::place(backend, args.workspace.as_deref());
    let image = rootfs::find(&args.container, backend, dir)?;
    let image = image.as_ref();
    let worker = execute::Worker {
        id: "verifier",
        seed: args.fixed.seed(),
    };
    let (ours, _) = execute::answer(
        sealed,
        (place, &Network::Denied),
        docker,
        image,
        dir,
        worker,
        None,
    )?;
    let (found, claimed_violation) = (violation(&ours), violation(claimed));
    let mut differences = Vec::new();
    let mut compare = |field: &str, same: bool, claimed: String, ours: String| {
        if !same {
            let fix = format!("came out as `{ours}` when it was run again");
            differences.push(Problem::new(field, claimed, fix));
        }
    };
    compare(
        "status",
        ours.status == claimed.status,
        status_name(claimed.status).to_owned(),
        status_name(ours.status).to_owned(),
    );
    compare(
        "verdict",
        found == claimed_violation,
        violation_name(claimed_violation).to_owned(),
        violation_name(found).to_owned(),
    );
    let (left, right) = (
        canonical::to_bytes(&claimed.output).ok(),
        canonical::to_bytes(&ours.output).ok(),
    );
    compare(
        "output",
        left == right,
        claimed.output.to_string(),
        short(&ours.output.to_string()),
    );
    Ok(Rerun {
        agrees: differences.is_empty(),
        deadline_passed: sealed.check_deadline(Timestamp::now()).is_err(),
        status: ours.status,
        violation: found,
        differences,
    })
}

fn violation(envelope: &ResultEnvelope) -> Option<Violation> {
    envelope.verdict.as_ref().map(|verdict| verdict.violation)
}

const fn status_name(status: Status) -> &'static str {
    match status {
        Status::Success => "SUCCESS",
        Status::Error => "ERROR",
    }
}

fn violation_name(violation: Option<Violation>) -> &'static str {
    violation.map_or("no violation", Violation::as_str)
}

fn short(text: &str) -> String {
    const KEEP: usize = 80;
    match text.char_indices().nth(KEEP) {
        Some((cut, _)) => format!("{}…", text.get(..cut).unwrap_or_default()),
        None => text.to_owned(),
    }
}

/// One finding on each line.
fn lines(findings: &Findings) -> String {
    let mut text = String::new();
    let mut line = |what: &str| {
        text.push_str(&visible(what));
        text.push('\n');
    };
    for problem in &findings.problems {
        line(&problem.to_string());
    }
    if let Some(rerun) = &findings.rerun {
        if rerun.deadline_passed {
            line("note: the deadline has passed; it was run again all the same");
        }
        for difference in &rerun.differences {
            line(&format!("rerun: {difference}"));
        }
        if rerun.agrees {
            line("rerun: the same status, output and verdict");
        }
    }
    if findings.holds {
        line("holds");
    }
    text
}
