//! `cofferdam submit --fleet`: a sealed payload for many machines. With --wait this process coordinates its job: it checks, compares and decides.

use std::path::Path;
use std::process::ExitCode;

use cofferdam_contract::codes::ErrorCode;
use cofferdam_contract::envelope::Status;
use cofferdam_contract::payload::Purity;
use cofferdam_contract::seal::Sealed;
use cofferdam_contract::task::Task;
use cofferdam_fleet::class::Class;
use cofferdam_fleet::coordinator::Coordinator;
use cofferdam_fleet::model::{EndOutcome, JobRecord};
use cofferdam_fleet::{Fleet, Submission};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::way::{connected, runtime, say, trust};
use crate::arguments::Places;
use crate::arguments::remote::SubmitArgs;
use crate::execute;
use crate::failure::{self, Failure};
use crate::seal::document::Document;
use crate::seal::{entropy, open, pretty};
use crate::terminal::output::document;
use crate::terminal::waiting::Waiting;

const SCHEMA: &str = "cofferdam.submission/1";

pub(crate) fn submit(args: &SubmitArgs, url: &str, places: &Places) -> Result<ExitCode, Failure> {
    let work = args.work.as_deref().unwrap_or(Path::new("-"));
    let sealed = open(&Document::read(work)?)?;
    check(args, &sealed)?;
    let trust = trust(args.to_fleet.trusted.as_deref())?;
    let audited = is_audited(args.to_fleet.audit_rate, &sealed)?;
    runtime()?.block_on(async {
        let fleet = connected(url, &args.to_fleet.way, places).await?;
        let class = Class::of(&sealed, execute::backend(None, &sealed, None));
        warn_of_few(&fleet, &class, args.to_fleet.replicas).await?;
        let accepted = fleet
            .submit(&Submission {
                sealed: &sealed,
                class,
                tenant: &args.to_fleet.tenant,
                replicas: args.to_fleet.replicas,
                audited,
            })
            .await?;
        let job = &sealed.payload().payload_id;
        if !args.wait {
            failure::print(&match args.project.json {
                true => document(SCHEMA, &json!({ "job": job, "accepted": accepted }))?,
                false => format!("{job}\n"),
            })?;
            return Ok(ExitCode::SUCCESS);
        }
        let mut coordinator = Coordinator::new(&fleet, trust);
        let waiting = Waiting::on("waiting for the fleet");
        let record = coordinator.wait_for(job).await?;
        let envelope = coordinator.answer(&record).await?;
        drop(waiting);
        tell(args, &record, envelope)
    })
}

fn check(args: &SubmitArgs, sealed: &Sealed) -> Result<(), Failure> {
    let payload = sealed.payload();
    sealed
        .check_deadline(Timestamp::now())
        .map_err(|expired| Failure::new(ErrorCode::PayloadExpired, expired.to_string()))?;
    if matches!(payload.task, Task::Project(_)) {
        let message = "task: a project lies on one machine and cannot be sent to a fleet; use `cofferdam submit --project`";
        return Err(Failure::new(ErrorCode::BackendUnsupportedTask, message));
    }
    if payload.purity == Purity::Varies && args.to_fleet.replicas > 1 {
        let fix = "cannot be more than 1: the payload says `pure`: false, and answers that vary cannot be compared";
        return Err(Failure::problem(
            "--replicas",
            &args.to_fleet.replicas.to_string(),
            fix,
        ));
    }
    Ok(())
}

/// Nobody knows before which ones are checked.
fn is_audited(rate: f64, sealed: &Sealed) -> Result<bool, Failure> {
    if rate <= 0.0 || sealed.payload().purity == Purity::Varies {
        return Ok(false);
    }
    let random = entropy()?.0;
    let first = [random[0], random[1], random[2], random[3]];
    Ok(f64::from(u32::from_le_bytes(first)) / f64::from(u32::MAX) < rate)
}

async fn warn_of_few(fleet: &Fleet, class: &Class, replicas: u32) -> Result<(), Failure> {
    let workers = fleet.workers().await?;
    let fits = workers
        .iter()
        .filter(|worker| worker.alive && worker.advert.capabilities.can_take(class));
    let fits = u32::try_from(fits.count()).unwrap_or(u32::MAX);
    if fits < replicas {
        say(&format!(
            "{fits} workers can do this now, and {replicas} are needed; the job waits for others until its deadline"
        ));
    }
    Ok(())
}

fn tell(
    args: &SubmitArgs,
    record: &JobRecord,
    envelope: Option<Vec<u8>>,
) -> Result<ExitCode, Failure> {
    let envelope: Option<Value> = envelope.and_then(|bytes| serde_json::from_slice(&bytes).ok());
    let end = record.end.as_ref();
    let is_agreed = end.is_some_and(|end| end.outcome == EndOutcome::Agreed);
    let status = envelope.as_ref().map(|envelope| envelope["status"].clone());
    let is_success = status == serde_json::to_value(Status::Success).ok();
    if args.project.json {
        let told =
            json!({ "job": record.job, "end": end, "held": record.entries, "envelope": envelope });
        failure::print(&document(SCHEMA, &told)?)?;
    } else if let Some(envelope) = envelope.as_ref().filter(|_| is_agreed) {
        failure::print(&pretty(envelope)?)?;
    } else {
        let reason = end
            .and_then(|end| end.reason.as_deref())
            .unwrap_or("there is no answer");
        say(&format!("{} is not verified: {reason}", record.job));
    }
    Ok(match is_agreed && is_success {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}
