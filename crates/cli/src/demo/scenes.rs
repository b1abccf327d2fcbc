//! The scenes: what is done, and what has to come of it. Each says in words what was seen, or what is wrong.

use cofferdam_contract::rules::{Deed, Offence};
use cofferdam_fleet::Drain;
use cofferdam_fleet::model::{EndOutcome, Held, JobRecord};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::liar::Lie;
use super::stage::{JOB_BOND, STAKE, Stage};
use crate::failure::Failure;

#[derive(Debug, Clone, Copy)]
pub(super) struct Scene {
    pub(super) name: &'static str,
    pub(super) about: &'static str,
}

pub(super) const SCENES: [Scene; 7] = [
    Scene {
        name: "sum",
        about: "A sum is computed by two workers, and they agree.",
    },
    Scene {
        name: "timeout",
        about: "A program runs longer than it may, and is stopped.",
    },
    Scene {
        name: "oversize",
        about: "A worker answers with more output than the payload allows.",
    },
    Scene {
        name: "tampered",
        about: "A worker answers with a proof that does not fit its output.",
    },
    Scene {
        name: "network",
        about: "A program without network tries to use it.",
    },
    Scene {
        name: "logs",
        about: "A program writes six lines to its log.",
    },
    Scene {
        name: "stall",
        about: "A worker stops in the middle of its work, and another does it.",
    },
];

/// In words: what was seen, or what is wrong.
type Seen = Result<String, String>;

pub(super) async fn play(name: &str, stage: &mut Stage) -> Seen {
    let seen = match name {
        "sum" => sum(stage).await,
        "timeout" => timeout(stage).await,
        "oversize" => lies(stage, "oversizer", Lie::Oversize, Offence::OutputTooLarge).await,
        "tampered" => lies(stage, "forger", Lie::Proof, Offence::BadProof).await,
        "network" => network(stage).await,
        "logs" => logs(stage).await,
        _ => stall(stage).await,
    };
    seen.unwrap_or_else(|failure| Err(failure.words()))
}

fn agreed(record: &JobRecord) -> Result<Vec<String>, String> {
    match &record.end {
        Some(end) if end.outcome == EndOutcome::Agreed => Ok(end.workers.clone()),
        Some(end) => Err(format!(
            "it ended as {:?}: {}",
            end.outcome,
            end.reason.as_deref().unwrap_or_default()
        )),
        None => Err("it has not ended".to_owned()),
    }
}

fn expect(is_so: bool, seen: String, should: &str) -> Seen {
    match is_so {
        true => Ok(seen),
        false => Err(format!("{should}; instead: {seen}")),
    }
}

async fn sum(stage: &mut Stage) -> Result<Seen, Failure> {
    let sealed = stage.payload("echo $((19 + 23))", &json!({}))?;
    stage.submit(&sealed, 2).await?;
    let (record, envelope) = stage.ended(&sealed).await?;
    let workers = match agreed(&record) {
        Ok(workers) => workers,
        Err(wrong) => return Ok(Err(wrong)),
    };
    let (status, stdout) = (&envelope["status"], &envelope["output"]["stdout"]);
    let mut seen = format!("{status}, output {stdout}, by {}", workers.join(" and "));
    let mut is_so = status == "SUCCESS" && stdout == "42\n" && workers.len() == 2;
    for worker in ["w1", "w2"] {
        if let Some(bond) = stage.bond(worker).await? {
            is_so &= bond.reputation > 50;
            seen.push_str(&format!(
                "; {worker} has the reputation {} on the chain",
                bond.reputation
            ));
        }
    }
    Ok(expect(
        is_so,
        seen,
        "it should be SUCCESS, and the output 42",
    ))
}

async fn timeout(stage: &mut Stage) -> Result<Seen, Failure> {
    let sealed = stage.payload("sleep 5", &json!({"max_runtime_seconds": 1}))?;
    stage.submit(&sealed, 1).await?;
    let (record, envelope) = stage.ended(&sealed).await?;
    if let Err(wrong) = agreed(&record) {
        return Ok(Err(wrong));
    }
    let message = envelope["error_message"].as_str().unwrap_or_default();
    let seen = format!(
        "{}, {message}; no offence of the worker that says so",
        envelope["status"]
    );
    let is_offence = |held: &Held| matches!(held.entry.what, Deed::Offence(_));
    let is_so = envelope["status"] == "ERROR"
        && message.contains("wall time limit")
        && !record.entries.iter().any(is_offence);
    Ok(expect(is_so, seen, "it should be stopped for its time"))
}

/// Three workers, one of which lies: its answer is rejected, the others' counts, and it pays.
async fn lies(stage: &mut Stage, name: &str, lie: Lie, offence: Offence) -> Result<Seen, Failure> {
    let hand = stage.liar(name, lie)?;
    stage.ready(3).await?;
    let sealed = stage.payload("echo honest", &json!({"max_output_size_kb": 1}))?;
    stage.submit(&sealed, 3).await?;
    let (record, envelope) = stage.ended(&sealed).await?;
    drop(hand);
    let workers = match agreed(&record) {
        Ok(workers) => workers,
        Err(wrong) => return Ok(Err(wrong)),
    };
    let standing = stage.standing(name).await?;
    let mut is_so = !workers.iter().any(|worker| worker == name)
        && envelope["output"]["stdout"] == "honest\n"
        && standing.offences.get(&offence) == Some(&1)
        && standing.is_quarantined(Timestamp::now())
        && standing.reputation == 30;
    let mut seen = format!(
        "rejected: {} of {name}; in quarantine, reputation {}; the answer is that of {}",
        offence.as_str(),
        standing.reputation,
        workers.join(" and ")
    );
    if stage.is_public() {
        is_so &= slashed(stage, name, 80, &mut seen).await?;
    }
    Ok(expect(
        is_so,
        seen,
        "the answer should be rejected, and its worker held to account",
    ))
}

/// Whether so many percent of what a job can cost are gone.
async fn slashed(
    stage: &Stage,
    name: &str,
    percent: u64,
    seen: &mut String,
) -> Result<bool, Failure> {
    let Some(bond) = stage.bond(name).await? else {
        seen.push_str("; there is no bond");
        return Ok(false);
    };
    let left = u128::from(STAKE - JOB_BOND / 100 * percent);
    seen.push_str(&format!(
        "; {} wei slashed of {JOB_BOND} that were locked for the job, reputation {} on the chain",
        u128::from(STAKE).saturating_sub(bond.stake_wei),
        bond.reputation
    ));
    Ok(bond.stake_wei == left && bond.reputation == 30)
}

async fn network(stage: &mut Stage) -> Result<Seen, Failure> {
    // An address that is for documentation only: nobody would be there.
    let script = "if bash -c 'exec 3<>/dev/tcp/192.0.2.1/80' 2>/dev/null; then echo reached; else echo blocked; fi";
    let sealed = stage.payload(script, &json!({}))?;
    stage.submit(&sealed, 1).await?;
    let (record, envelope) = stage.ended(&sealed).await?;
    if let Err(wrong) = agreed(&record) {
        return Ok(Err(wrong));
    }
    let stdout = &envelope["output"]["stdout"];
    let mut is_so = stdout == "blocked\n";
    let mut seen = format!("the program says {stdout}");
    if stage.is_public() {
        let asks = stage.payload("echo never", &json!({"network_allowed": true}))?;
        stage.submit(&asks, 1).await?;
        let (record, _) = stage.ended(&asks).await?;
        let reason = record.end.and_then(|end| end.reason).unwrap_or_default();
        is_so &= reason.contains("does not permit network");
        seen.push_str(&format!(
            "; one that asks for network is refused by the contract: {reason}"
        ));
        is_so &= permitted(stage, &mut seen).await?;
    }
    Ok(expect(is_so, seen, "it should be blocked"))
}

/// The contract says yes: the same worker gets as far as the network that itself allows, which is none.
async fn permitted(stage: &mut Stage, seen: &mut String) -> Result<bool, Failure> {
    let asks = stage.payload("echo yes", &json!({"network_allowed": true}))?;
    stage.permit(&asks)?;
    stage.submit(&asks, 1).await?;
    let until = std::time::Instant::now() + super::stage::PATIENCE;
    loop {
        let events = stage.fleet.events(&asks.payload().payload_id).await?;
        let refused: Vec<&str> = events
            .iter()
            .filter(|event| event.what == "refused")
            .map(|event| event.detail.as_str())
            .collect();
        let is_answered = events.iter().any(|event| event.what == "answered");
        if is_answered || !refused.is_empty() {
            seen.push_str("; one that is permitted is taken");
            return Ok(!refused.iter().any(|why| why.contains("the contract")));
        }
        if std::time::Instant::now() > until {
            return Ok(false);
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
}

async fn logs(stage: &mut Stage) -> Result<Seen, Failure> {
    let script =
        "for line in one two three four five six; do echo \"step $line\" >&2; done; echo done";
    let sealed = stage.payload(script, &json!({}))?;
    stage.submit(&sealed, 1).await?;
    let (record, envelope) = stage.ended(&sealed).await?;
    if let Err(wrong) = agreed(&record) {
        return Ok(Err(wrong));
    }
    let logs: Vec<&Value> = envelope["logs"].as_array().into_iter().flatten().collect();
    let first = logs.first().map(ToString::to_string).unwrap_or_default();
    let seen = format!(
        "{}, {} lines, the first {first}",
        envelope["status"],
        logs.len()
    );
    let is_so = envelope["status"] == "SUCCESS" && logs.len() == 6 && first.contains("step one");
    Ok(expect(is_so, seen, "there should be six lines"))
}

async fn stall(stage: &mut Stage) -> Result<Seen, Failure> {
    stage.drain_honest(Drain::Yes).await?;
    stage.ready(0).await?;
    let process = stage.worker("staller")?;
    stage.ready(1).await?;
    // Longer than it takes to see that it lives.
    let long = stage.silence().as_secs().saturating_add(1);
    let sealed = stage.payload(&format!("sleep {long}; echo done"), &json!({}))?;
    stage.submit(&sealed, 1).await?;
    stage.holds(&sealed, "staller").await?;
    process.freeze();
    stage.drain_honest(Drain::No).await?;
    let (record, envelope) = stage.ended(&sealed).await?;
    let workers = match agreed(&record) {
        Ok(workers) => workers,
        Err(wrong) => return Ok(Err(wrong)),
    };
    let standing = stage.standing("staller").await?;
    let mut is_so = envelope["output"]["stdout"] == "done\n"
        && !workers.iter().any(|worker| worker == "staller")
        && standing.offences.get(&Offence::Stall) == Some(&1)
        && standing.is_quarantined(Timestamp::now());
    let mut seen = format!(
        "the staller is in quarantine for STALL; {} finished the work",
        workers.join(" and ")
    );
    if stage.is_public() {
        is_so &= slashed(stage, "staller", 100, &mut seen).await?;
    }
    drop(process);
    Ok(expect(
        is_so,
        seen,
        "another worker should finish, and the one that stalled be held to account",
    ))
}
