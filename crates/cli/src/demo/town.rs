//! The chain of a demonstration: our own, served by a process of its own, or anvil. With the contract on it, people who have money, and a thread that settles.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use cofferdam_chain::{
    Act, Embedded, HowLong, Key, Ledger, Node, Policy, Settler, Terms, U256, give,
};
use cofferdam_contract::codes::ErrorCode;
use cofferdam_fleet::model::{Enforcement, Settings};
use cofferdam_store::DataDir;
use serde_json::Value;

use super::stage::{JOB_BOND, PATIENCE, Process, STAKE, missing};
use crate::chain::bonds::{BondTerms, OnChain};
use crate::failure::Failure;

/// Keys that every chain of anvil has money for, and everybody knows: for nothing but a demonstration.
const KEYS: [&str; 8] = [
    "ac0974bec39a17e36ba4a6b4d238ff944bacb478cbed5efcae784d7bf4f2ff80",
    "59c6995e998f97a5a0044966f0945389dc9e86dae88c7a8412f4603b6b78690d",
    "5de4111afa1a4b94908f83103eb1f1706367c2e68ca870fc3fb9a804cdab365a",
    "7c852118294e51e653712a81e05800f419141751be58f605c371e15141b007a6",
    "47e179ec197488593b187f80a00eb0da91f1b9d0b13f8733639f19c30a34926a",
    "8b3a350cf5c34c9194ca85829a2df0ec3153be0318b5e2d3348e872092edffba",
    "92db14e403b83dfe3df233f83dfa3a0d7096f21ca9b0d6d6b8d88b2b4ec1564e",
    "4bbbf85ce3377467afe5d46f804f221813b2bb87f24d81f60f1fcdbf7cbf4356",
];
pub(super) const OWNER: usize = 0;
pub(super) const SETTLER: usize = 1;
/// What each of them is given on a chain of our own, in wei.
const MONEY: u64 = 1_000_000_000_000_000_000;

pub(super) struct Town {
    pub(super) ledger: Ledger,
    pub(super) on_chain: Arc<OnChain>,
    pub(super) url: String,
    _chain: Process,
}

pub(super) fn chain_key(number: usize) -> Result<Key, Failure> {
    let text = KEYS.get(number).copied().unwrap_or_default();
    Ok(Key::from_hex(text, "the demonstration")?)
}

pub(super) fn set(
    anvil: Option<&Path>,
    dir: &Path,
    settings: &mut Settings,
) -> Result<Town, Failure> {
    let (chain, url) = match anvil {
        Some(program) => anvil_at(program)?,
        None => own(dir)?,
    };
    let owner = chain_key(OWNER)?;
    let terms = Terms {
        treasury: owner.address(),
        protocol_share: 5_000,
        withdrawal_delay_seconds: 7 * 24 * 3600,
    };
    let (ledger, _) = Ledger::deploy(Node::at(&url), &owner, &terms, None)?;
    for settler in [OWNER, SETTLER] {
        let allow = Act::SetSettler {
            settler: chain_key(settler)?.address(),
            allowed: true,
        };
        ledger.act(&owner, &allow, None)?;
    }
    settings.enforcement = Enforcement::Public {
        chain_id: ledger.place().chain,
        contract: ledger.place().contract.to_string(),
        minimum_bond: STAKE.to_string(),
        job_bond: JOB_BOND.to_string(),
    };
    let again = || Ledger::open(Node::at(&url), ledger.place().contract, None);
    let data = DataDir::at(dir.join("coordinator"));
    let bond = BondTerms {
        minimum: STAKE.into(),
        job: JOB_BOND.into(),
    };
    let on_chain = Arc::new(OnChain::new(again()?, &data, settings.rules.clone(), bond)?);
    let policy = Policy {
        // Blocks come with transactions only, and nobody takes one back.
        confirmations: 1,
        ..Policy::default()
    };
    let settler = Settler::new(
        again()?,
        chain_key(SETTLER)?,
        Arc::clone(on_chain.outbox()),
        policy,
    );
    std::thread::spawn(move || {
        let wait = |pause: Duration| {
            std::thread::sleep(pause.min(Duration::from_millis(250)));
            true
        };
        let _ = settler.run(HowLong::ForEver, |_| {}, wait);
    });
    Ok(Town {
        ledger,
        on_chain,
        url,
        _chain: chain,
    })
}

/// A chain of our own that our own program serves, in a process of its own.
fn own(dir: &Path) -> Result<(Process, String), Failure> {
    let data = DataDir::at(dir.join("chain"));
    let chain = Arc::new(Embedded::open(&data)?);
    let owner = Embedded::owner(&data)?;
    for number in 0..KEYS.len() {
        let to = chain_key(number)?.address();
        let node = Node::here(Arc::clone(&chain));
        give(&node, &owner, to, U256::from(MONEY), None)?;
    }
    let program = std::env::current_exe()
        .map_err(|error| Failure::io(ErrorCode::Internal, "cannot find this program", &error))?;
    let mut command = Command::new(&program);
    command.arg("--data-dir").arg(data.path());
    command.args(["chain", "node", "--listen", "127.0.0.1:0", "--json"]);
    // The chain is this one, whatever the caller uses elsewhere.
    command.env_remove("COFFERDAM_CHAIN_RPC");
    let mut process = spoken(command, &program, "see what `cofferdam chain node` says")?;
    let url = process.0.stdout.take().and_then(|stdout| {
        let line = in_time(move || {
            let mut line = String::new();
            BufReader::new(stdout).read_line(&mut line).ok()?;
            Some(line)
        })?;
        let told: Value = serde_json::from_str(&line).ok()?;
        Some(told["url"].as_str()?.to_owned())
    });
    Ok((process, url.ok_or_else(|| silent(&program))?))
}

fn anvil_at(program: &Path) -> Result<(Process, String), Failure> {
    let mut command = Command::new(program);
    command.args(["--host", "127.0.0.1", "--port", "0"]);
    let fix = "install it (npm: @foundry-rs/anvil), or leave --anvil out";
    let mut anvil = spoken(command, program, fix)?;
    let url = listening(&mut anvil).ok_or_else(|| silent(program))?;
    Ok((anvil, url))
}

/// Started, and what it says can be read.
fn spoken(mut command: Command, program: &Path, fix: &str) -> Result<Process, Failure> {
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let child = command.stderr(Stdio::null()).spawn();
    Ok(Process(
        child.map_err(|error| missing(program, fix, &error))?,
    ))
}

/// A program that the user names may say nothing for ever.
fn in_time<T: Send + 'static>(read: impl FnOnce() -> Option<T> + Send + 'static) -> Option<T> {
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || tell.send(read()));
    told.recv_timeout(PATIENCE).ok().flatten()
}

fn silent(program: &Path) -> Failure {
    let message = format!("`{}` does not say where it listens", program.display());
    Failure::new(ErrorCode::BackendUnavailable, message)
}

fn listening(anvil: &mut Process) -> Option<String> {
    let mut lines = BufReader::new(anvil.0.stdout.take()?);
    let (port, mut lines) = in_time(move || {
        loop {
            let mut line = String::new();
            if lines.read_line(&mut line).ok()? == 0 {
                return None;
            }
            if let Some(place) = line.trim().strip_prefix("Listening on ") {
                return Some((place.to_owned(), lines));
            }
        }
    })?;
    // It writes a line for each question, and stops when nobody reads them.
    std::thread::spawn(move || std::io::copy(&mut lines, &mut std::io::sink()));
    Some(format!("http://{port}"))
}
