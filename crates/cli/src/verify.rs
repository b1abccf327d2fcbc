//! `cofferdam verify`: does an envelope answer its payload? Believes nothing that the worker says; with `--rerun` it does the work again.

use std::process::ExitCode;

use cofferdam_contract::canonical;
use cofferdam_contract::codes::ErrorCode;
use cofferdam_contract::comparison::{self, Comparison};
use cofferdam_contract::envelope::{ResultEnvelope, Status};
use cofferdam_contract::mode::NetworkReach;
use cofferdam_contract::network::Network;
use cofferdam_contract::output_class::{Difference, Side};
use cofferdam_contract::problem::{Problem, Problems};
use cofferdam_contract::request::Gpus;
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
use crate::keys::Trust;
use crate::policy;
use crate::receipt::{self, Signed};
use crate::rootfs;
use crate::seal::document::Document;
use crate::seal::open;
use crate::terminal::output;
use crate::terminal::waiting::Waiting;

pub(crate) fn verify(args: &VerifyArgs, places: Places) -> Result<ExitCode, Failure> {
    if args.payload == args.envelope && args.payload.as_os_str() == "-" {
        let message = "payload and envelope cannot both be `-`; name a file for one of them";
        return Err(Failure::new(ErrorCode::InputInvalid, message));
    }
    let sealed = open(&Document::read(&args.payload)?)?;
    let document = Document::read(&args.envelope)?;
    let dir = history::place(places.data_dir.clone());
    let trust = Trust::new(&args.trust, dir.as_ref())?;
    // A stranger's text that is no envelope is a finding, not a failure of ours.
    let findings = match ResultEnvelope::parse(&document.bytes) {
        Err(problems) => Findings {
            holds: false,
            problems: problems.into_vec(),
            signature: None,
            rerun: None,
        },
        Ok(envelope) => {
            let mut problems = envelope
                .check(&sealed)
                .err()
                .map(Problems::into_vec)
                .unwrap_or_default();
            let signature = signature(&sealed, &envelope, &trust, &mut problems);
            let rerun = args
                .rerun
                .then(|| rerun(args, &sealed, &envelope, &places, dir.as_ref()));
            let rerun = rerun.transpose()?;
            Findings {
                holds: problems.is_empty() && rerun.as_ref().is_none_or(|rerun| rerun.agrees),
                problems,
                signature,
                rerun,
            }
        }
    };
    failure::print(&if args.json {
        output::document("cofferdam.verification/1", &findings)?
    } else {
        lines(&findings)
    })?;
    Ok(findings.exit_code())
}

#[derive(Debug, Serialize)]
struct Findings {
    /// Without any problem, here or in the rerun.
    holds: bool,
    problems: Vec<Problem>,
    /// Absent where it is not signed.
    #[serde(skip_serializing_if = "Option::is_none")]
    signature: Option<Signed>,
    rerun: Option<Rerun>,
}

#[derive(Debug, Serialize)]
struct Rerun {
    agrees: bool,
    #[serde(flatten)]
    comparison: Comparison,
    /// What was compared.
    output_class: &'static str,
    /// The deadline is for the worker who was asked; whoever checks comes later.
    deadline_passed: bool,
    status: Status,
    violation: Option<Violation>,
    differences: Vec<Problem>,
}

/// The rerun differs, and that proves nothing.
const NOT_COMPARABLE: u8 = 2;

impl Findings {
    fn exit_code(&self) -> ExitCode {
        let comparison = self.rerun.as_ref().map(|rerun| &rerun.comparison);
        match comparison {
            _ if self.holds => ExitCode::SUCCESS,
            Some(Comparison::NotComparable { .. }) if self.problems.is_empty() => {
                ExitCode::from(NOT_COMPARABLE)
            }
            _ => ExitCode::FAILURE,
        }
    }
}

fn signature(
    sealed: &Sealed,
    envelope: &ResultEnvelope,
    trust: &Trust,
    problems: &mut Vec<Problem>,
) -> Option<Signed> {
    let Some(line) = &envelope.receipt else {
        if trust.is_required() {
            let fix = "is missing, and only what is signed counts";
            problems.push(Problem::new("receipt", "nothing", fix));
        }
        return None;
    };
    let mut signed = receipt::signed_by(line, Some((sealed, envelope)), trust);
    problems.append(&mut signed.problems);
    Some(signed)
}

/// Does the work here and compares what must be the same: the status, the output, and the rule that was broken. Times and memory are not. An answer that is known already is not
/// asked for: it could be the very one that is doubted.
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
        seed: execute::seed(args.fixed, sealed)?,
        gpus: &Gpus::None,
        cancel: None,
    };
    let _waiting = Waiting::on("running the payload again");
    let (ours, _) = execute::answer(
        sealed,
        (place, &Network::Denied),
        docker,
        image,
        dir,
        worker,
        None,
    )?;
    let comparison = comparison::compare(sealed.payload(), claimed, &ours);
    Ok(Rerun {
        agrees: comparison == Comparison::Same,
        differences: differences(claimed, &ours, &comparison),
        comparison,
        output_class: sealed.payload().output_class.name(),
        deadline_passed: sealed.check_deadline(Timestamp::now()).is_err(),
        status: ours.status,
        violation: violation(&ours),
    })
}

/// Field by field, for people.
fn differences(
    claimed: &ResultEnvelope,
    ours: &ResultEnvelope,
    comparison: &Comparison,
) -> Vec<Problem> {
    let first = match comparison {
        Comparison::Same => return Vec::new(),
        Comparison::Different { first_difference } => Some(first_difference),
        Comparison::NotComparable {
            first_difference, ..
        } => first_difference.as_ref(),
    };
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
    let (found, claimed_violation) = (violation(ours), violation(claimed));
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
    if let Some(first) = first.filter(|_| left == right && ours.status == claimed.status) {
        compare(
            first.pointer.trim_start_matches('/'),
            found != claimed_violation,
            first.claimed.to_string(),
            first.found.to_string(),
        );
    }
    differences
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

fn first(difference: &Difference) -> String {
    let shown = |value: &serde_json::Value, side: Side| match difference.missing {
        Some(missing) if missing == side => "nothing".to_owned(),
        _ => format!("`{}`", short(&value.to_string())),
    };
    let place = match difference.pointer.as_str() {
        "" => "the whole output",
        pointer => pointer,
    };
    format!(
        "the first difference is at {place}: claimed {}, found {}",
        shown(&difference.claimed, Side::Claimed),
        shown(&difference.found, Side::Found)
    )
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
    let signer = findings
        .signature
        .as_ref()
        .and_then(|signed| signed.signer.as_ref());
    if let Some(signer) = signer {
        line(&format!("signed by {}", receipt::name_of(signer)));
    }
    if let Some(rerun) = &findings.rerun {
        if rerun.deadline_passed {
            line("note: the deadline has passed; it was run again all the same");
        }
        for difference in &rerun.differences {
            line(&format!("rerun: {difference}"));
        }
        match &rerun.comparison {
            Comparison::Same => line("rerun: the same status, output and verdict"),
            Comparison::Different { first_difference } => {
                line(&format!(
                    "rerun: another answer; {}",
                    first(first_difference)
                ));
            }
            Comparison::NotComparable {
                detail,
                first_difference,
                ..
            } => {
                line(&format!("rerun: not comparable: {detail}"));
                if let Some(difference) = first_difference {
                    line(&format!("rerun: {}", first(difference)));
                }
            }
        }
    }
    if findings.holds {
        line("holds");
    }
    text
}
