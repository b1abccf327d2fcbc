//! `cofferdam chain`: bonds on an EVM chain, and what was decided about workers.

pub(crate) mod bonds;
mod door;
pub(crate) mod place;

use std::net::SocketAddr;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cofferdam_chain::{
    Account, Act, Address, B256, ChainError, HowLong, Key, Ledger, Policy, Receipt, Settler, Terms,
    U256, give,
};
use cofferdam_contract::canonical::Digest;
use cofferdam_contract::codes::ErrorCode;
use cofferdam_store::DataDir;
use cofferdam_store::bundle::PublicKey;
use cofferdam_store::keyring::KeyRing;
use cofferdam_store::settlements::{Settlement, Settlements};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::arguments::Places;
use crate::arguments::chain::{ChainArgs, ChainVerb, JobArg, SettleArgs, is_worker_name};
use crate::failure::{self, Failure, visible, without_secrets};
use crate::history;
use crate::keys;
use crate::seal::document::Document;
use crate::seal::open;
use crate::terminal::output::document;
use crate::terminal::waiting::Waiting;
use place::{Beginning, Place};

impl From<ChainError> for Failure {
    fn from(error: ChainError) -> Self {
        Self::new(error.code(), error.to_string())
    }
}

const SCHEMA: &str = "cofferdam.chain/1";
/// The variable that may hold a key.
const KEY_VARIABLE: &str = "COFFERDAM_CHAIN_KEY";

pub(crate) fn chain(args: &ChainArgs, places: &Places) -> Result<ExitCode, Failure> {
    if let ChainVerb::Key { file } = &args.verb {
        let key = Key::generate(file)?;
        failure::print(&match args.json {
            true => document(SCHEMA, &json!({"account": key.address(), "file": file}))?,
            false => format!("{}\n", key.address()),
        })?;
        return Ok(ExitCode::SUCCESS);
    }
    let beginning = match args.verb {
        ChainVerb::Deploy { .. } | ChainVerb::Node { .. } => Beginning::Wanted,
        _ => Beginning::Not,
    };
    let place = Place::of(args.rpc.as_deref(), places, beginning)?;
    match &args.verb {
        ChainVerb::Node { listen } => return node(args, place, *listen),
        ChainVerb::Give { account, amount } => {
            let key = place.key(args.key_file.as_deref())?;
            let receipt = give(&place.node(), &key, *account, *amount, args.max_fee)?;
            return done(
                args,
                &receipt,
                &json!({"from": key.address(), "to": account}),
            );
        }
        ChainVerb::Deploy {
            treasury,
            protocol_share,
            withdrawal_delay,
            settler,
        } => {
            let key = place.key(args.key_file.as_deref())?;
            let terms = Terms {
                treasury: treasury.unwrap_or(key.address()),
                protocol_share: *protocol_share,
                withdrawal_delay_seconds: *withdrawal_delay,
            };
            return deploy(args, &place, &key, &terms, settler);
        }
        _ => {}
    }
    let ledger = Ledger::open(place.node(), place.contract(args.contract)?, None)?;
    let dir = || history::place(places.data_dir.clone()).ok_or_else(keys::nowhere);
    let text = match &args.verb {
        ChainVerb::Status { account: None } => overview(args, (&place, &ledger), &dir()?)?,
        ChainVerb::Status {
            account: Some(account),
        } => shown(args, &ledger.account(*account)?)?,
        ChainVerb::Settlements { limit, retry } => listed(args, &ledger, &dir()?, *limit, *retry)?,
        ChainVerb::Settle { how, within } => {
            let key = place.key(args.key_file.as_deref())?;
            settle(args, (ledger, key), &dir()?, how, *within)?
        }
        verb => {
            let act = act(verb, &ledger, &dir()?)?;
            let key = place.key(args.key_file.as_deref())?;
            let waiting = Waiting::on("waiting for the chain");
            let receipt = ledger.act(&key, &act, args.max_fee)?;
            let account = ledger.account(key.address())?;
            drop(waiting);
            return done(args, &receipt, &json!({ "account": account }));
        }
    };
    failure::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// Tells what a transaction came to.
fn done(args: &ChainArgs, receipt: &Receipt, more: &Value) -> Result<ExitCode, Failure> {
    let mut told = json!({"block": receipt.block, "gas_used": receipt.gas_used});
    for (name, value) in more.as_object().into_iter().flatten() {
        told[name] = value.clone();
    }
    failure::print(&match args.json {
        true => document(SCHEMA, &told)?,
        false => format!("done in block {}\n", receipt.block),
    })?;
    Ok(ExitCode::SUCCESS)
}

/// A node elsewhere serves itself.
fn node(args: &ChainArgs, place: Place, listen: SocketAddr) -> Result<ExitCode, Failure> {
    match place {
        Place::Here { chain, .. } => door::serve(chain, listen, args.json),
        Place::Node(url) => Err(Failure::problem(
            "--rpc",
            &without_secrets(&url),
            "is a node already; leave it out to serve the chain of the data directory",
        )),
    }
}

fn deploy(
    args: &ChainArgs,
    place: &Place,
    key: &Key,
    terms: &Terms,
    settlers: &[Address],
) -> Result<ExitCode, Failure> {
    let waiting = Waiting::on("waiting for the chain");
    let (ledger, receipt) = Ledger::deploy(place.node(), key, terms, args.max_fee)?;
    let owner = [key.address()];
    let settlers = match place {
        // Who owns the chain settles on it, unless others are named.
        Place::Here { .. } if settlers.is_empty() => owner.as_slice(),
        Place::Here { .. } | Place::Node(_) => settlers,
    };
    for settler in settlers {
        place.allowed(&ledger, key, *settler)?;
    }
    place.meant(&ledger)?;
    drop(waiting);
    let place = ledger.place();
    failure::print(&match args.json {
        true => document(
            SCHEMA,
            &json!({
                "chain": place.chain, "contract": place.contract, "owner": key.address(),
                "block": receipt.block, "gas_used": receipt.gas_used, "settlers": settlers,
            }),
        )?,
        false => format!("{}\n", place.contract),
    })?;
    Ok(ExitCode::SUCCESS)
}

fn act(verb: &ChainVerb, ledger: &Ledger, dir: &DataDir) -> Result<Act, Failure> {
    let until = |time: u64| {
        let now = u64::try_from(Timestamp::now().as_second()).unwrap_or(0);
        now.saturating_add(time)
    };
    Ok(match verb {
        ChainVerb::Stake { amount, worker } => Act::Stake {
            identity: identity(worker, dir)?,
            wei: *amount,
        },
        ChainVerb::Withdraw {
            amount: Some(wei), ..
        } => Act::Announce { wei: *wei },
        ChainVerb::Withdraw { cancel: true, .. } => Act::CancelWithdrawal,
        ChainVerb::Withdraw { .. } => Act::Withdraw,
        ChainVerb::Claim => Act::Claim,
        ChainVerb::Permit {
            job, revoke: true, ..
        } => Act::Revoke {
            job: digest_of(job)?,
        },
        ChainVerb::Permit { job, time, .. } => Act::Permit {
            job: digest_of(job)?,
            until: until(*time),
        },
        ChainVerb::Lock {
            job,
            worker,
            amount,
            time,
        } => Act::Lock {
            job: digest_of(job)?,
            worker: *worker,
            wei: *amount,
            until: until(*time),
        },
        ChainVerb::Release { job, worker } => Act::Release {
            job: digest_of(job)?,
            worker: *worker,
        },
        ChainVerb::Settler { account, remove } => Act::SetSettler {
            settler: *account,
            allowed: !remove,
        },
        ChainVerb::Pause => Act::SetPaused(true),
        ChainVerb::Resume => Act::SetPaused(false),
        ChainVerb::Key { .. }
        | ChainVerb::Node { .. }
        | ChainVerb::Give { .. }
        | ChainVerb::Deploy { .. }
        | ChainVerb::Status { .. }
        | ChainVerb::Settlements { .. }
        | ChainVerb::Settle { .. } => {
            let message = format!("nothing is to be signed at {}", ledger.place());
            return Err(Failure::new(ErrorCode::Internal, message));
        }
    })
}

/// A worker's identity on the chain: its public key.
fn identity(worker: &str, dir: &DataDir) -> Result<B256, Failure> {
    if let Ok(key) = worker.parse::<PublicKey>() {
        return Ok(B256::from(key.bytes()));
    }
    let fix = "is neither a worker whose key is here (worker-NAME in `cofferdam keys list`) nor a public key";
    if !is_worker_name(worker) {
        return Err(Failure::problem("--worker", worker, fix));
    }
    let ring = KeyRing::of(dir);
    let name = format!("worker-{}", worker.replace(':', "_"));
    if !ring.has_secret(&name) {
        return Err(Failure::problem("--worker", worker, fix));
    }
    Ok(B256::from(ring.signing(&name)?.public_key().bytes()))
}

fn digest_of(job: &JobArg) -> Result<B256, Failure> {
    let digest = match job.job.parse::<Digest>() {
        Ok(digest) => digest,
        Err(_) => open(&Document::read(Path::new(&job.job))?)?.digest(),
    };
    Ok(bonds::on_chain(&digest))
}

fn overview(
    args: &ChainArgs,
    (place, ledger): (&Place, &Ledger),
    dir: &DataDir,
) -> Result<String, Failure> {
    let found = ledger.overview()?;
    let outbox = Settlements::open(dir, &ledger.place().to_string())?;
    let counts = outbox.counts()?;
    let is_named = args.key_file.is_some() || place::key_variable().is_some();
    let me = match is_named || matches!(place, Place::Here { .. }) {
        true => Some(place.key(args.key_file.as_deref())?.address()),
        false => None,
    };
    let settles = me.map(|me| ledger.is_settler(me)).transpose()?;
    if args.json {
        let mut told = json!(found);
        told["settlements"] = json!(counts);
        told["account"] = json!(me);
        told["may_settle"] = json!(settles);
        return document(SCHEMA, &told);
    }
    let state = if found.paused { "paused" } else { "running" };
    let mut text = format!(
        "contract     {} on chain {}, {state}, block {}\nowner        {}\nheld         {}\nslashed      {} % for {}, the rest for those who found out\nwithdrawals  after {} s\nsettlements  {} open, {} made, {} refused\n",
        found.contract,
        found.chain,
        found.block,
        found.owner,
        ether(found.held_wei),
        f64::from(found.terms.protocol_share) / 100.0,
        found.terms.treasury,
        found.terms.withdrawal_delay_seconds,
        counts.open,
        counts.settled,
        counts.refused
    );
    if let (Some(me), Some(settles)) = (me, settles) {
        let may = if settles {
            "may settle"
        } else {
            "may not settle"
        };
        text.push_str(&format!("key          {me}, {may}\n"));
    }
    Ok(text)
}

fn shown(args: &ChainArgs, account: &Account) -> Result<String, Failure> {
    if args.json {
        return document(SCHEMA, account);
    }
    let Some(identity) = account.identity else {
        return Ok(format!(
            "{} has no bond, and {} to claim\n",
            account.address,
            ether(account.credit_wei)
        ));
    };
    let wei = |wei: u128| ether(U256::from(wei));
    Ok(format!(
        "account     {}\nworker      {identity}\nbond        {}, {} locked for jobs, {} leaving\nreputation  {}\nto claim    {}\n",
        account.address,
        wei(account.stake_wei),
        wei(account.locked_wei),
        wei(account.leaving_wei),
        account.reputation,
        ether(account.credit_wei)
    ))
}

fn listed(
    args: &ChainArgs,
    ledger: &Ledger,
    dir: &DataDir,
    limit: u32,
    retry: Option<B256>,
) -> Result<String, Failure> {
    let outbox = Settlements::open(dir, &ledger.place().to_string())?;
    if let Some(id) = retry
        && !outbox.revive(&id.to_string(), Timestamp::now())?
    {
        return Err(Failure::problem(
            "--retry",
            &id.to_string(),
            "is none that was given up; `cofferdam chain settlements` lists them",
        ));
    }
    let all = outbox.latest(limit)?;
    if args.json {
        let told: Vec<Value> = all.iter().map(told).collect();
        return document(SCHEMA, &json!({ "settlements": told }));
    }
    let line = |one: &Settlement| {
        let body: Value = serde_json::from_str(&one.body).unwrap_or_default();
        let (what, about) = match body.as_object().and_then(|body| body.iter().next()) {
            Some((kind, about)) => (kind.clone(), about.clone()),
            None => (String::new(), Value::Null),
        };
        let name = about["name"].as_str().unwrap_or_default().to_owned();
        let offence = about["offence"].as_str().unwrap_or_default().to_owned();
        let note = one.progress.note.clone().unwrap_or_default();
        let state = format!("{:?}", one.state).to_lowercase();
        let line = format!("{}  {state}  {what} {name} {offence} {note}", one.id);
        format!("{}\n", visible(&without_secrets(&line)).trim_end())
    };
    Ok(all.iter().map(line).collect())
}

fn told(one: &Settlement) -> Value {
    // By way of text: a fee may be larger than a number of JSON's.
    let text = serde_json::to_string(one).unwrap_or_default();
    let mut told: Value = serde_json::from_str(&text).unwrap_or_default();
    told["body"] = serde_json::from_str(&one.body).unwrap_or_default();
    told
}

fn settle(
    args: &ChainArgs,
    (ledger, key): (Ledger, Key),
    dir: &DataDir,
    how: &SettleArgs,
    within: Option<Duration>,
) -> Result<String, Failure> {
    let outbox = Arc::new(Settlements::open(dir, &ledger.place().to_string())?);
    let _sender = outbox.sender()?.ok_or_else(|| {
        let message = "another process settles from this data directory; it does this too";
        Failure::new(ErrorCode::ServerRefused, message)
    })?;
    let settler = Settler::new(
        ledger,
        key,
        Arc::clone(&outbox),
        policy_of(how, args.max_fee),
    );
    let until = within.map(|within| Instant::now() + within);
    let wait = |pause: Duration| {
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        std::thread::sleep(left.map_or(pause, |left| pause.min(left)));
        left.is_none_or(|left| !left.is_zero())
    };
    let done = settler.run(HowLong::UntilDone, crate::fleet::say, wait)?;
    let counts = outbox.counts()?;
    if done.open > 0 {
        let message = format!(
            "{} settlements are still open; `cofferdam chain settlements` says why",
            done.open
        );
        return Err(Failure::new(ErrorCode::ServerUnreachable, message));
    }
    match args.json {
        true => document(
            SCHEMA,
            &json!({"settled": done.settled, "refused": done.refused, "all": counts}),
        ),
        false => Ok(format!(
            "{} settled, {} refused\n",
            done.settled, done.refused
        )),
    }
}

pub(crate) fn policy_of(how: &SettleArgs, max_fee: Option<u128>) -> Policy {
    Policy {
        confirmations: how.confirmations,
        bump_after: how.bump_after,
        max_fee,
        ..Policy::default()
    }
}

/// As people write it, exactly.
fn ether(wei: U256) -> String {
    const DIGITS: usize = 18;
    let text = format!("{wei:0>19}");
    let (whole, part) = text.split_at(text.len().saturating_sub(DIGITS));
    let part = part.trim_end_matches('0');
    match part.is_empty() {
        true => format!("{whole} ether"),
        false => format!("{whole}.{part} ether"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn money_is_shown_exactly() {
        for (wei, text) in [
            (0u128, "0 ether"),
            (1, "0.000000000000000001 ether"),
            (1_500_000_000_000_000_000, "1.5 ether"),
            (20_000_000_000_000_000_000, "20 ether"),
        ] {
            assert_eq!(ether(U256::from(wei)), text);
        }
    }
}
