//! `cofferdam worker`: takes payloads from a fleet and runs them by the same path as `cofferdam execute`.

use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use cofferdam_contract::codes::ErrorCode;
use cofferdam_contract::envelope::{ENGINE_VERSION, ResultEnvelope};
use cofferdam_contract::mode::{Deed, NetworkReach};
use cofferdam_contract::record::RunRecord;
use cofferdam_contract::request::{BackendName, Gpus, Network};
use cofferdam_contract::seal::Sealed;
use cofferdam_engine::doctor::{self, Mark, Report};
use cofferdam_engine::gpu;
use cofferdam_engine::host::Host;
use cofferdam_fleet::Sign;
use cofferdam_fleet::class::Capabilities;
use cofferdam_fleet::worker::{Brought, Done, Executor, Refusal, Whose, Worker};
use cofferdam_server::{Workplace, document_of};
use cofferdam_store::DataDir;
use cofferdam_store::bundle::SigningKey;
use cofferdam_store::keyring::KeyRing;
use cofferdam_store::model::RunKind;
use cofferdam_toolchain::Catalogue;
use jiff::Timestamp;
use rustix::event::{PollFd, PollFlags};
use tokio::sync::watch;

use super::public::Permission;
use super::way::{connected, runtime, say};
use crate::arguments::fleet::WorkerArgs;
use crate::arguments::{ContainerArgs, HistoryArgs, Places};
use crate::config::Switch;
use crate::containers;
use crate::execute;
use crate::failure::Failure;
use crate::history;
use crate::keys;
use crate::policy;
use crate::receipt;
use crate::seal::entropy;
use crate::serve;

pub(crate) fn worker(args: &WorkerArgs, places: Places) -> Result<ExitCode, Failure> {
    let dir = history::place(places.data_dir.clone()).ok_or_else(keys::nowhere)?;
    let key = Arc::new(Key(signing(args, &dir)?));
    // From here on signals do not end this process: they drain it.
    let signals = cofferdam_engine::cancel_on_signals()?;
    let gpus = args.gpu.clone().unwrap_or(Gpus::None);
    let capabilities = Capabilities {
        gpus: gpu::count(&gpus)?,
        ..capabilities()?
    };
    if capabilities.backends.is_empty() {
        let message = "no backend works here; `cofferdam doctor` says what is missing";
        return Err(Failure::new(ErrorCode::BackendUnavailable, message));
    }
    let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let slots = args.slots.unwrap_or(u32::try_from(cpus).unwrap_or(1));
    let incarnation: String = entropy()?
        .0
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let workplace = workplace(args, &places, &dir, slots)?;
    let places = Arc::new(places);
    let (ask, drain) = watch::channel(false);
    std::thread::spawn(move || {
        let mut fds = [PollFd::new(&signals, PollFlags::IN)];
        while rustix::event::poll(&mut fds, None).is_err() {}
        let _ = ask.send(true);
        // Whoever asks gets an answer to one question: the channel stays open.
        std::thread::park();
    });
    runtime()?.block_on(async {
        let fleet = connected(&args.server.nats, &args.server.way, &places).await?;
        let executor = Arc::new(Here {
            workplace,
            name: args.name.clone(),
            key: Arc::clone(&key),
            network: args.network.network(),
            gpus,
            history: args.history.clone(),
            places: Arc::clone(&places),
            dir,
            permission: Permission::of(&fleet, &args.bond.chain, &places)?,
        });
        let backends = capabilities.backends.join(", ");
        say(&format!(
            "{} takes work for {backends}, {slots} at a time",
            args.name
        ));
        let worker = Worker {
            fleet,
            name: args.name.clone(),
            incarnation,
            slots,
            engine: ENGINE_VERSION.to_owned(),
            capabilities,
            signer: key,
            bond: args.bond.bond.map(|bond| bond.to_string()),
            executor,
        };
        let done = worker.work(drain, say).await?;
        say(&format!(
            "{} has drained; it gave {done} answers",
            args.name
        ));
        Ok(ExitCode::SUCCESS)
    })
}

/// Where requests of a daemon are carried out. What they leave is kept for whoever asks for it, so that there is none without a history.
fn workplace(
    args: &WorkerArgs,
    places: &Places,
    dir: &DataDir,
    slots: u32,
) -> Result<Option<Workplace>, Failure> {
    let settings = history::settings(places.config.clone())?;
    if args.history.no_history || settings.enabled.value == Switch::Off {
        return Ok(None);
    }
    let kept = serve::remembrance(&settings)?;
    Workplace::new(dir, slots, args.network.network(), kept)
        .map(Some)
        .map_err(|refused| Failure::new(ErrorCode::Internal, refused.to_string()))
}

/// The key that was named, or one of its own, made at the first start.
fn signing(args: &WorkerArgs, dir: &DataDir) -> Result<SigningKey, Failure> {
    if let Some(key) = &args.sign {
        return keys::signing(key, Some(dir));
    }
    let ring = KeyRing::of(dir);
    let name = format!("worker-{}", args.name.replace(':', "_"));
    if !ring.has_secret(&name) {
        ring.generate(&name)?;
    }
    Ok(ring.signing(&name)?)
}

pub(crate) struct Key(SigningKey);

impl Key {
    pub(crate) const fn new(key: SigningKey) -> Self {
        Self(key)
    }

    pub(crate) const fn signing(&self) -> &SigningKey {
        &self.0
    }
}

impl Sign for Key {
    fn public_key(&self) -> String {
        self.0.public_key().to_string()
    }

    fn sign(&self, message: &[u8]) -> [u8; 64] {
        self.0.sign_message(message)
    }
}

/// What `doctor` finds: a backend whose limits are not all held is none.
pub(crate) fn capabilities() -> Result<Capabilities, Failure> {
    let report = doctor::examine(&Host::detect(), None);
    let mut backends = Vec::new();
    if is_fit(&report) {
        backends.push(BackendName::Native.as_str().to_owned());
        if cfg!(feature = "wasm") {
            backends.push(BackendName::Wasm.as_str().to_owned());
        }
    }
    let works = report
        .backends
        .iter()
        .filter(|backend| backend.mark == Mark::Ok);
    backends.extend(works.map(|backend| backend.name.to_owned()));
    let catalogue =
        Catalogue::builtin().map_err(|bad| Failure::new(ErrorCode::Internal, bad.to_string()))?;
    let mut languages = Vec::new();
    for language in catalogue.all() {
        let is_there = |program: &str| Path::new("/usr/bin").join(program).exists();
        let mut toolchains = language.toolchains.iter();
        if toolchains.any(|toolchain| toolchain.programs().into_iter().all(is_there)) {
            languages.push(language.name.clone());
            languages.extend(language.aliases.iter().cloned());
        }
    }
    let held = report
        .limits
        .iter()
        .filter(|limit| limit.mark != Mark::Missing);
    let mut limits: Vec<String> = held.map(|limit| limit.limit.as_str().to_owned()).collect();
    limits.dedup();
    Ok(Capabilities {
        backends,
        languages,
        // Those that its operator gives.
        gpus: 0,
        memory_mb: memory_mb(),
        limits,
    })
}

fn is_fit(report: &Report) -> bool {
    let mut limits = report.limits.iter();
    report.works && limits.all(|limit| limit.mark != Mark::Missing)
}

fn memory_mb() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let total = text.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kb = total.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
    kb.unwrap_or(0) / 1024
}

/// Runs payloads on this machine.
pub(crate) struct Here {
    /// None where no history is kept.
    workplace: Option<Workplace>,
    name: String,
    key: Arc<Key>,
    network: Network,
    gpus: Gpus,
    history: HistoryArgs,
    places: Arc<Places>,
    dir: DataDir,
    permission: Permission,
}

impl Executor for Here {
    fn execute(&self, sealed: &Sealed, cancel: OwnedFd) -> Result<Done, Refusal> {
        self.permission.ask(sealed)?;
        let answered = self.answer(sealed, &cancel).map_err(refused)?;
        Ok(answered.0)
    }

    fn carry_out(
        &self,
        sealed: &Sealed,
        request: &[u8],
        cancel: OwnedFd,
    ) -> Result<Brought, Refusal> {
        self.permission.ask(sealed)?;
        let brought = match request {
            [] => self.answer(sealed, &cancel).map(|(done, record)| Brought {
                done,
                more: document_of(&record),
                files: Vec::new(),
            }),
            _ => self.errand(sealed, request, &cancel),
        };
        brought.map_err(refused)
    }

    fn contents(&self, sha256: &str) -> Option<Vec<u8>> {
        self.workplace.as_ref()?.contents(sha256)
    }
}

fn refused(failure: Failure) -> Refusal {
    Refusal {
        whose: match failure.code() {
            ErrorCode::PayloadExpired => Whose::Payload,
            _ => Whose::Worker,
        },
        reason: failure.words(),
    }
}

impl Here {
    /// One that gives no network and keeps no history.
    pub(crate) fn plain(name: &str, key: Arc<Key>, places: Places, dir: DataDir) -> Self {
        Self {
            workplace: None,
            name: name.to_owned(),
            key,
            network: Network::Denied,
            gpus: Gpus::None,
            history: HistoryArgs {
                no_history: true,
                ..HistoryArgs::default()
            },
            places: Arc::new(places),
            dir,
            permission: Permission::NotNeeded,
        }
    }

    /// A request of a daemon, by the path that the daemon itself would take.
    fn errand(
        &self,
        sealed: &Sealed,
        request: &[u8],
        cancel: &OwnedFd,
    ) -> Result<Brought, Failure> {
        sealed
            .check_deadline(Timestamp::now())
            .map_err(|expired| Failure::new(ErrorCode::PayloadExpired, expired.to_string()))?;
        let network = NetworkReach::from(&sealed.payload().network);
        let mode = policy::in_force(&self.places)?;
        policy::refuse(
            mode,
            [Deed::Run(BackendName::Native), Deed::Network(network)],
        )?;
        let workplace = self.workplace.as_ref().ok_or_else(|| {
            let message = "this worker keeps no history, and a request of a daemon is kept";
            Failure::new(ErrorCode::BackendUnsupportedTask, message)
        })?;
        let done = workplace
            .carry_out(sealed, request, &self.name, cancel)
            .map_err(|refused| Failure::new(ErrorCode::ServerRefused, refused.to_string()))?;
        let mut envelope = done.envelope;
        receipt::sign(sealed, &mut envelope, &self.key.0)?;
        Ok(Brought {
            done: signed(envelope)?,
            more: done.document,
            files: done.files,
        })
    }

    fn answer(&self, sealed: &Sealed, cancel: &OwnedFd) -> Result<(Done, RunRecord), Failure> {
        sealed
            .check_deadline(Timestamp::now())
            .map_err(|expired| Failure::new(ErrorCode::PayloadExpired, expired.to_string()))?;
        let backend = execute::backend(None, sealed, policy::in_force(&self.places)?);
        let (docker, merged) = containers::load(&self.places, backend, &ContainerArgs::default())?;
        policy::obey(&merged, NetworkReach::from(&sealed.payload().network))?;
        let settings = history::settings(self.places.config.clone())?;
        let dir = self.places.data_dir.clone();
        let mut recording = history::recording(&self.history, dir, &settings)?;
        if let Some(recording) = &mut recording {
            recording.kind = RunKind::Payload;
            recording.payload = Some(sealed.json().clone());
        }
        let kept_in = recording.as_ref().map(|recording| recording.dir.clone());
        let (mut envelope, record) = execute::answer(
            sealed,
            (execute::place(backend, None), &self.network),
            docker,
            None,
            Some(&self.dir),
            execute::Worker {
                id: &self.name,
                seed: sealed.payload().seed,
                gpus: &self.gpus,
                cancel: Some(cancel.as_fd()),
            },
            recording,
        )?;
        receipt::sign(sealed, &mut envelope, &self.key.0)?;
        history::afterwards(&record, kept_in.as_ref(), &settings);
        Ok((signed(envelope)?, record))
    }
}

fn signed(envelope: ResultEnvelope) -> Result<Done, Failure> {
    let text = serde_json::to_string(&envelope)
        .map_err(|error| Failure::new(ErrorCode::Internal, error.to_string()))?;
    Ok(Done {
        envelope: text,
        logs: envelope.logs,
    })
}
