//! What a demonstration stands on: a nats-server, workers as processes of their own, and for public enforcement a chain with the contract. All of it goes with it.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use cofferdam_chain::{Account, Act, B256, U256};
use cofferdam_contract::codes::ErrorCode;
use cofferdam_contract::rules::Standing;
use cofferdam_contract::seal::{Draft, Sealed};
use cofferdam_fleet::class::Class;
use cofferdam_fleet::coordinator::{Coordinator, Trust};
use cofferdam_fleet::model::{ClaimState, JobRecord, Settings};
use cofferdam_fleet::{Address, Drain, Fleet, LocalLedger, Submission};
use cofferdam_store::DataDir;
use cofferdam_store::keyring::KeyRing;
use jiff::Timestamp;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::liar::{Cast, Hand, Lie};
use super::town::{self, OWNER, SETTLER, Town, chain_key};
use crate::arguments::Places;
use crate::arguments::chain::{DemoArgs, EnforcementArg};
use crate::chain::bonds;
use crate::execute;
use crate::failure::Failure;
use crate::fleet::{self, Here, Key};
use crate::seal::entropy;

/// What every worker has at stake, in wei.
pub(super) const STAKE: u64 = 1_000_000;
/// What of it is locked for each job, and can be lost by it.
pub(super) const JOB_BOND: u64 = 500_000;
/// Longer than anything takes on a machine with other work to do.
pub(super) const PATIENCE: Duration = Duration::from_secs(90);

/// A process that goes with its holder.
pub(super) struct Process(pub(super) Child);

impl Process {
    /// Stops it where it stands: no sign of life, and no end.
    pub(super) fn freeze(&self) {
        let pid = rustix::process::Pid::from_child(&self.0);
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::STOP);
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub(super) struct Stage {
    pub(super) fleet: Fleet,
    coordinator: Coordinator,
    town: Option<Town>,
    url: String,
    number: u32,
    /// How many bonds there are.
    bonds: usize,
    honest: Vec<Process>,
    _nats: Process,
    dir: TempDir,
}

impl Stage {
    pub(super) async fn set(args: &DemoArgs, places: &Places) -> Result<Self, Failure> {
        let dir = tempfile::Builder::new().prefix("cofferdam-demo-").tempdir();
        let dir = dir
            .map_err(|error| Failure::io(ErrorCode::Internal, "cannot make a directory", &error))?;
        let (nats, url) = nats(&args.nats_server, dir.path())?;
        let silence = u64::try_from(args.heartbeat_timeout.as_millis())
            .unwrap_or(u64::MAX)
            .max(300);
        let mut settings = Settings {
            grace_ms: silence / 2,
            heartbeat_timeout_ms: silence,
            // Nobody is asked in the place of a liar: the others suffice.
            max_replacements: 0,
            ..Settings::default()
        };
        let town = match args.enforcement {
            EnforcementArg::Local => None,
            EnforcementArg::Public => {
                Some(town::set(args.anvil.as_deref(), dir.path(), &mut settings)?)
            }
        };
        let address = Address {
            url: url.clone(),
            ..Address::default()
        };
        crate::policy::refuse(
            crate::policy::in_force(places)?,
            [cofferdam_contract::mode::Deed::Daemon(&url)],
        )?;
        let fleet = Fleet::connect(&address, Some(settings)).await?;
        let mut coordinator = Coordinator::new(&fleet, Trust::FirstUse);
        if let Some(town) = &town {
            coordinator = coordinator.with_bonds(Arc::clone(&town.on_chain) as _);
        }
        let mut stage = Self {
            fleet,
            coordinator,
            town,
            url,
            number: 0,
            bonds: 0,
            honest: Vec::new(),
            _nats: nats,
            dir,
        };
        for name in ["w1", "w2"] {
            let process = stage.worker(name)?;
            stage.honest.push(process);
        }
        stage.ready(2).await?;
        Ok(stage)
    }

    pub(super) fn is_public(&self) -> bool {
        self.town.is_some()
    }

    /// A worker of our own binary. It has a key, and on a chain a bond.
    pub(super) fn worker(&mut self, name: &str) -> Result<Process, Failure> {
        let (data, bond) = self.bonded(name)?;
        let program = std::env::current_exe();
        let program = program.map_err(|error| {
            Failure::io(ErrorCode::Internal, "cannot find this program", &error)
        })?;
        let mut command = Command::new(program);
        command.arg("--data-dir").arg(data.path());
        command.args([
            "worker",
            "--nats",
            &self.url,
            "--name",
            name,
            "--slots",
            "1",
            "--no-history",
        ]);
        if let (Some(town), Some(bond)) = (&self.town, bond) {
            command.args(["--chain-rpc", &town.url, "--bond", &bond]);
        }
        started(command, "cofferdam worker")
    }

    /// One that lies, in this process.
    pub(super) fn liar(&mut self, name: &str, lie: Lie) -> Result<Hand, Failure> {
        let (data, bond) = self.bonded(name)?;
        let key = KeyRing::of(&data).signing(&format!("worker-{name}"))?;
        let key = Arc::new(Key::new(key));
        let places = Places {
            config: None,
            data_dir: Some(data.path().to_owned()),
            mode: None,
        };
        let here = Here::plain(name, Arc::clone(&key), places, data);
        let cast = Cast {
            here,
            key,
            name: name.to_owned(),
            bond,
            url: self.url.clone(),
            capabilities: fleet::capabilities()?,
        };
        Ok(Hand::start(cast, lie))
    }

    /// The data directory of a worker with its key in it, and the account of its bond.
    fn bonded(&mut self, name: &str) -> Result<(DataDir, Option<String>), Failure> {
        let data = DataDir::at(self.dir.path().join(name));
        let ring = KeyRing::of(&data);
        ring.generate(&format!("worker-{name}"))?;
        let public = ring.signing(&format!("worker-{name}"))?.public_key();
        let Some(town) = &self.town else {
            return Ok((data, None));
        };
        let key = chain_key(SETTLER + 1 + self.bonds)?;
        self.bonds += 1;
        let stake = Act::Stake {
            identity: B256::from(public.bytes()),
            wei: U256::from(STAKE),
        };
        town.ledger.act(&key, &stake, None)?;
        Ok((data, Some(key.address().to_string())))
    }

    /// Waits until so many workers take work.
    pub(super) async fn ready(&self, count: usize) -> Result<(), Failure> {
        let until = Instant::now() + PATIENCE;
        while self.fleet.status().await?.workers_ready != count {
            if Instant::now() > until {
                let message = format!(
                    "{count} workers should be ready, and are not after {} s; `cofferdam doctor` says what is missing",
                    PATIENCE.as_secs()
                );
                return Err(Failure::new(ErrorCode::BackendUnavailable, message));
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(())
    }

    pub(super) async fn drain_honest(&self, wanted: Drain) -> Result<(), Failure> {
        for name in ["w1", "w2"] {
            self.fleet.drain(name, wanted).await?;
        }
        Ok(())
    }

    /// A payload that runs a line of shell.
    pub(super) fn payload(&mut self, script: &str, changes: &Value) -> Result<Sealed, Failure> {
        self.number += 1;
        let hour = jiff::SignedDuration::from_hours(1);
        let deadline = Timestamp::now()
            .saturating_add(hour)
            .unwrap_or(Timestamp::MAX);
        let mut draft = json!({
            "payload_id": format!("DEMO-{}", self.number), "contract_id": "DEMO", "scope": "a demonstration",
            "deadline": deadline.to_string(), "max_memory_mb": 128, "max_runtime_seconds": 30,
            "task": {"kind": "command", "argv": ["/bin/sh", "-c", script]},
        });
        for (name, value) in changes.as_object().into_iter().flatten() {
            draft[name] = value.clone();
        }
        let bad = |found: cofferdam_contract::problem::Problems| {
            Failure::problems(ErrorCode::PayloadInvalid, &found)
        };
        let sealed = Draft::from_value(draft)
            .map_err(bad)?
            .seal(Timestamp::now(), entropy()?);
        sealed.map_err(bad)
    }

    pub(super) async fn submit(&self, sealed: &Sealed, replicas: u32) -> Result<(), Failure> {
        let submission = Submission {
            sealed,
            class: Class::of(sealed, execute::backend(None, sealed, None)),
            tenant: "demo",
            replicas,
            audited: false,
        };
        self.fleet.submit(&submission).await?;
        Ok(())
    }

    /// Waits for the end of a job; its record and its envelope.
    pub(super) async fn ended(&mut self, sealed: &Sealed) -> Result<(JobRecord, Value), Failure> {
        let job = sealed.payload().payload_id.clone();
        let waited = tokio::time::timeout(PATIENCE, self.coordinator.wait_for(&job)).await;
        let record = waited.map_err(|_| {
            let message = format!("{job} has not ended after {} s", PATIENCE.as_secs());
            Failure::new(ErrorCode::Internal, message)
        })??;
        let envelope = self.coordinator.answer(&record).await?;
        let envelope = envelope.and_then(|bytes| serde_json::from_slice(&bytes).ok());
        Ok((record, envelope.unwrap_or_default()))
    }

    /// How long a worker may give no sign of life.
    pub(super) const fn silence(&self) -> Duration {
        Duration::from_millis(self.fleet.settings().heartbeat_timeout_ms)
    }

    /// Waits until a worker holds a job and has given a sign of life.
    pub(super) async fn holds(&self, sealed: &Sealed, worker: &str) -> Result<(), Failure> {
        let job = &sealed.payload().payload_id;
        let until = Instant::now() + PATIENCE;
        loop {
            let record = self.fleet.job_record(job).await?;
            let claims = self.fleet.claims(&record).await?;
            let alive = |state: &ClaimState| matches!(state, ClaimState::Held { worker: holder, beats, .. } if holder == worker && *beats > 0);
            if claims.iter().any(|(_, claim)| alive(&claim.state)) {
                return Ok(());
            }
            if Instant::now() > until {
                let message = format!("{worker} does not take {job}");
                return Err(Failure::new(ErrorCode::Internal, message));
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    pub(super) async fn standing(&self, worker: &str) -> Result<Standing, Failure> {
        Ok(LocalLedger::new(&self.fleet).standing(worker).await?)
    }

    /// How a worker's bond stands when everything that was decided is on the chain; nothing without one.
    pub(super) async fn bond(&self, worker: &str) -> Result<Option<Account>, Failure> {
        let Some(town) = &self.town else {
            return Ok(None);
        };
        let until = Instant::now() + PATIENCE;
        while town.on_chain.outbox().counts()?.open > 0 {
            if Instant::now() > until {
                let message = format!("settlements are open after {} s", PATIENCE.as_secs());
                return Err(Failure::new(ErrorCode::Internal, message));
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let account = LocalLedger::new(&self.fleet).bond_of(worker).await?;
        let address = account.and_then(|text| text.parse().ok());
        Ok(address
            .map(|address| town.ledger.account(address))
            .transpose()?)
    }

    /// Lets a payload use the network.
    pub(super) fn permit(&self, sealed: &Sealed) -> Result<(), Failure> {
        let Some(town) = &self.town else {
            return Ok(());
        };
        let now = u64::try_from(Timestamp::now().as_second()).unwrap_or(0);
        let permit = Act::Permit {
            job: bonds::on_chain(&sealed.digest()),
            until: now.saturating_add(3600),
        };
        // The settler's own transactions are under way; the owner permits.
        town.ledger.act(&chain_key(OWNER)?, &permit, None)?;
        Ok(())
    }
}

pub(super) fn missing(program: &Path, fix: &str, error: &std::io::Error) -> Failure {
    let message = format!("cannot start `{}`: {error}; {fix}", program.display());
    Failure::new(ErrorCode::BackendUnavailable, message)
}

fn started(mut command: Command, what: &str) -> Result<Process, Failure> {
    command.stdin(Stdio::null()).stdout(Stdio::null());
    let child = command.stderr(Stdio::null()).spawn();
    child
        .map(Process)
        .map_err(|error| Failure::io(ErrorCode::Internal, &format!("cannot start {what}"), &error))
}

/// It takes a free port by itself and writes down which.
fn nats(program: &Path, dir: &Path) -> Result<(Process, String), Failure> {
    let mut command = Command::new(program);
    command.args(["-a", "127.0.0.1", "-p", "-1", "-js", "-sd"]);
    command
        .arg(dir.join("nats"))
        .arg("--ports_file_dir")
        .arg(dir);
    let log_file = dir.join("nats.log");
    let log = std::fs::File::create(&log_file)
        .map_err(|error| Failure::io(ErrorCode::Internal, "cannot make a file", &error))?;
    command.stdin(Stdio::null()).stdout(Stdio::null());
    let child = command.stderr(log).spawn();
    let fix = "install it (Debian: nats-server), or name it with --nats-server";
    let mut process = Process(child.map_err(|error| missing(program, fix, &error))?);
    let file: PathBuf = dir.join(format!("nats-server_{}.ports", process.0.id()));
    let until = Instant::now() + PATIENCE;
    while Instant::now() < until {
        let text = std::fs::read_to_string(&file).unwrap_or_default();
        let said: Value = serde_json::from_str(&text).unwrap_or_default();
        if let Some(url) = said["nats"][0].as_str() {
            return Ok((process, url.to_owned()));
        }
        if let Ok(Some(status)) = process.0.try_wait() {
            let log = std::fs::read_to_string(&log_file).unwrap_or_default();
            let last = log.lines().last().unwrap_or_default();
            let message = format!("`{}` ended ({status}): {last}", program.display());
            return Err(Failure::new(ErrorCode::BackendUnavailable, message));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let message = format!(
        "`{}` does not say where it listens; version 2.9 or newer is needed",
        program.display()
    );
    Err(Failure::new(ErrorCode::BackendUnavailable, message))
}
