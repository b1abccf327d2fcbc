//! `cofferdam fleet` and `cofferdam ledger`: what a fleet does, and who kept its rules.

mod public;
mod submit;
pub(crate) mod way;
mod worker;

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use cofferdam_contract::codes::ErrorCode;
use cofferdam_contract::rules::{Deed as Held, Rules, Standing};
use cofferdam_fleet::coordinator::Coordinator;
use cofferdam_fleet::model::{EndOutcome, Enforcement, Settings};
use cofferdam_fleet::{Drain, Fleet, FleetError, LocalLedger};
use jiff::Timestamp;
use serde_json::json;

pub(crate) use submit::submit;
pub(crate) use way::{runtime, say};
pub(crate) use worker::{Here, Key, capabilities, worker};

use crate::arguments::Places;
use crate::arguments::fleet::{FleetArgs, FleetVerb, LedgerArgs, LedgerVerb};
use crate::failure::{self, Failure, visible};
use crate::seal::document::Document;
use crate::terminal::output::document;
use way::{changed as changed_fleet, connected};

impl From<FleetError> for Failure {
    fn from(error: FleetError) -> Self {
        Self::new(error.code(), error.to_string())
    }
}

const FLEET: &str = "cofferdam.fleet/1";
const LEDGER: &str = "cofferdam.ledger/1";

pub(crate) fn fleet(args: &FleetArgs, places: &Places) -> Result<ExitCode, Failure> {
    let change = change(&args.verb, places)?;
    let (url, way) = (&args.server.nats, &args.server.way);
    runtime()?.block_on(async {
        let fleet = match change {
            Some(change) => changed_fleet(url, way, places, change).await?,
            None => connected(url, way, places).await?,
        };
        done(&args.verb, &fleet, places).await
    })
}

/// What `init` has hold from now on. What it does not name stays as it is: a fleet that exists may enforce its rules on a chain.
fn change(
    verb: &FleetVerb,
    places: &Places,
) -> Result<Option<impl FnOnce(&mut Settings)>, Failure> {
    let FleetVerb::Init {
        grace,
        heartbeat_timeout,
        max_starts,
        rules,
        public,
        ..
    } = verb
    else {
        return Ok(None);
    };
    let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let (grace, silence, starts) = (grace.map(ms), heartbeat_timeout.map(ms), *max_starts);
    let rules = rules.as_deref().map(read_rules).transpose()?;
    let enforcement = public::enforcement(public, places)?;
    Ok(Some(move |settings: &mut Settings| {
        settings.grace_ms = grace.unwrap_or(settings.grace_ms);
        settings.heartbeat_timeout_ms = silence.unwrap_or(settings.heartbeat_timeout_ms);
        settings.max_starts = starts.unwrap_or(settings.max_starts);
        if let Some(rules) = rules {
            settings.rules = rules;
        }
        if let Some(enforcement) = enforcement {
            settings.enforcement = enforcement;
        }
    }))
}

async fn done(verb: &FleetVerb, fleet: &Fleet, places: &Places) -> Result<ExitCode, Failure> {
    let text = match verb {
        FleetVerb::Init { json, .. } => match json {
            true => document(FLEET, fleet.settings())?,
            false => match &fleet.settings().enforcement {
                Enforcement::Local => "the fleet is ready\n".to_owned(),
                Enforcement::Public {
                    chain_id, contract, ..
                } => format!(
                    "the fleet is ready; bonds are at the contract {contract} on the chain {chain_id}\n"
                ),
            },
        },
        FleetVerb::Status { json } => {
            let status = fleet.status().await?;
            match json {
                true => document(FLEET, &status)?,
                false => {
                    let mut text = format!(
                        "workers   {} of {} ready, {} of {} slots busy\njobs      {} open, {} dead letters, {} results\n",
                        status.workers_ready,
                        status.workers,
                        status.slots_busy,
                        status.slots,
                        status.jobs_open,
                        status.dead_letters,
                        status.results
                    );
                    for queue in &status.queues {
                        text.push_str(&visible(&format!(
                            "queue     {} for {}: {} waiting, {} taken",
                            queue.class, queue.tenant, queue.waiting, queue.taken
                        )));
                        text.push('\n');
                    }
                    text
                }
            }
        }
        FleetVerb::Workers { json } => workers(fleet, *json).await?,
        FleetVerb::Drain { name, undo, json } => {
            let wanted = if *undo { Drain::No } else { Drain::Yes };
            fleet.drain(name, wanted).await?;
            changed(
                *json,
                "worker",
                name,
                if *undo { "undrained" } else { "drained" },
            )?
        }
        FleetVerb::Jobs { job: None, json } => jobs(fleet, *json).await?,
        FleetVerb::Jobs {
            job: Some(job),
            json,
        } => one_job(fleet, job, *json).await?,
        FleetVerb::Requeue { job, json } => {
            fleet.requeue(job).await?;
            changed(*json, "job", job, "requeued")?
        }
        FleetVerb::Cancel { job, json } => {
            fleet.cancel(job).await?;
            changed(*json, "job", job, "canceled")?
        }
        FleetVerb::Forget { job, json } => {
            fleet.forget(job).await?;
            changed(*json, "job", job, "forgotten")?
        }
        FleetVerb::Coordinate { trusted, settling } => {
            let trust = way::trust(trusted.as_deref())?;
            let mut coordinator = Coordinator::new(fleet, trust);
            if let Some(bonds) = public::bonds(fleet, settling, places)? {
                coordinator = coordinator.with_bonds(bonds);
            }
            coordinator.coordinate(way::say).await?;
            String::new()
        }
    };
    failure::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// Where there is nothing to say but that it is done, words would only be in the way.
fn changed(json: bool, what: &str, name: &str, done: &str) -> Result<String, Failure> {
    match json {
        true => document(FLEET, &json!({ what: name, "done": done })),
        false => Ok(String::new()),
    }
}

fn read_rules(file: &Path) -> Result<Rules, Failure> {
    let document = Document::read(file)?;
    let value = cofferdam_contract::strict_json::parse(&document.bytes)
        .map_err(|bad| Failure::new(ErrorCode::InputMalformedJson, bad.to_string()))?;
    Rules::read(value).map_err(|found| Failure::problems(ErrorCode::ConfigInvalid, &found))
}

async fn workers(fleet: &Fleet, json: bool) -> Result<String, Failure> {
    let workers = fleet.workers().await?;
    let ledger = LocalLedger::new(fleet);
    let mut standings = Vec::new();
    for worker in &workers {
        standings.push(ledger.standing(&worker.advert.name).await?);
    }
    if json {
        let mut told = json!(workers);
        for (place, standing) in told.as_array_mut().into_iter().flatten().zip(&standings) {
            place["reputation"] = json!(standing.reputation);
        }
        return document(FLEET, &json!({ "workers": told }));
    }
    let mut text = String::new();
    for (worker, standing) in workers.iter().zip(&standings) {
        let advert = &worker.advert;
        let state = match worker.alive {
            true => format!("{:?}", advert.state).to_lowercase(),
            false => format!("gone for {:.0} s", worker.silent_seconds),
        };
        let line = format!(
            "{}  {state}  {} of {} slots  {} done  reputation {}  {}, {} MB{}",
            advert.name,
            advert.running.len(),
            advert.slots,
            advert.done,
            standing.reputation,
            advert.capabilities.backends.join(","),
            advert.capabilities.memory_mb,
            advert
                .bond
                .as_ref()
                .map_or_else(String::new, |bond| format!("  bond {bond}"))
        );
        text.push_str(&visible(&line));
        text.push('\n');
    }
    Ok(text)
}

async fn jobs(fleet: &Fleet, json: bool) -> Result<String, Failure> {
    let jobs = fleet.jobs().await?;
    if json {
        return document(FLEET, &json!({ "jobs": jobs }));
    }
    let mut text = String::new();
    for job in &jobs {
        let reason = job.reason.as_deref().or(job.waits.as_deref());
        let reason = reason.unwrap_or_default();
        let line = format!(
            "{}  {}  {}  {} {reason}",
            job.job,
            job.state,
            job.tenant,
            job.workers.join(",")
        );
        text.push_str(visible(&line).trim_end());
        text.push('\n');
    }
    Ok(text)
}

async fn one_job(fleet: &Fleet, job: &str, json: bool) -> Result<String, Failure> {
    let record = fleet.job_record(job).await?;
    let events = fleet.events(job).await?;
    let dead = fleet.dead_letters(job).await?;
    let claims = fleet.claims(&record).await?;
    let waits = fleet.waits(&record).await?;
    if json {
        let mut told =
            json!({ "job": record, "claims": claims, "events": events, "dead_letters": dead });
        if let Some(waits) = waits {
            told["waits"] = json!(waits);
        }
        return document(FLEET, &told);
    }
    let state = match record.end.as_ref().map(|end| end.outcome) {
        None => "open",
        Some(EndOutcome::Agreed) => "agreed",
        Some(EndOutcome::Disputed) => "disputed",
        Some(EndOutcome::Failed) => "failed",
        Some(EndOutcome::Canceled) => "canceled",
    };
    let mut lines = vec![format!(
        "{}  {state}, {} replicas, {}",
        record.job, record.replicas, record.class
    )];
    if let Some(reason) = record.end.as_ref().and_then(|end| end.reason.as_ref()) {
        lines.push(format!("reason  {reason}"));
    }
    if let Some(waits) = waits {
        lines.push(format!("waits   {waits}"));
    }
    for event in &events {
        let slot = event
            .slot
            .map_or_else(String::new, |slot| format!(" slot {slot}"));
        let worker = event.worker.as_deref().unwrap_or_default();
        lines.push(format!(
            "{}  {}{slot} {worker} {}",
            event.at, event.what, event.detail
        ));
    }
    for held in &record.entries {
        lines.push(format!(
            "held    {}: {}",
            held.worker,
            deed(&held.entry.what, &held.entry.evidence)
        ));
    }
    Ok(shown(&lines))
}

pub(crate) fn ledger(args: &LedgerArgs, places: &Places) -> Result<ExitCode, Failure> {
    let text = runtime()?.block_on(async {
        let fleet = connected(&args.server.nats, &args.server.way, places).await?;
        let ledger = LocalLedger::new(&fleet);
        match &args.verb {
            LedgerVerb::Show { json } => {
                let standings = ledger.standings().await?;
                if *json {
                    let all: serde_json::Map<_, _> = standings
                        .iter()
                        .map(|(worker, standing)| (worker.clone(), json!(standing)))
                        .collect();
                    return document(LEDGER, &json!({ "workers": all }));
                }
                let line = |(worker, standing): &(String, Standing)| {
                    format!("{worker}  {}", told(standing))
                };
                Ok::<_, Failure>(shown(&standings.iter().map(line).collect::<Vec<_>>()))
            }
            LedgerVerb::History { worker, json } => {
                let standing = ledger.standing(worker).await?;
                if *json {
                    return document(LEDGER, &standing);
                }
                let mut lines = vec![format!("{worker}  {}", told(&standing))];
                for entry in &standing.entries {
                    lines.push(format!(
                        "{}  {}  {}",
                        entry.at,
                        entry.job,
                        deed(&entry.what, &entry.evidence)
                    ));
                }
                Ok(shown(&lines))
            }
            LedgerVerb::Lift {
                worker,
                reason,
                json,
            } => {
                let standing = ledger.lift(worker, reason).await?;
                if *json {
                    return document(LEDGER, &standing);
                }
                Ok(shown(&[format!("{worker}  {}", told(&standing))]))
            }
        }
    })?;
    failure::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

fn told(standing: &Standing) -> String {
    let mut text = format!(
        "reputation {}, {} confirmed",
        standing.reputation, standing.confirmed
    );
    for (offence, count) in &standing.offences {
        text.push_str(&format!(", {count} {}", offence.as_str()));
    }
    if let Some(left) = standing.quarantine_left(Timestamp::now()) {
        text.push_str(&format!(", in quarantine for {} s", left.as_secs()));
    }
    text
}

fn deed(what: &Held, evidence: &str) -> String {
    match what {
        Held::Confirmed => format!("confirmed ({evidence})"),
        Held::Offence(offence) => format!("{}: {evidence}", offence.as_str()),
        Held::Lifted => format!("quarantine lifted: {evidence}"),
    }
}

/// Strangers wrote some of it.
fn shown(lines: &[String]) -> String {
    lines
        .iter()
        .map(|line| format!("{}\n", visible(line).trim_end()))
        .collect()
}
