//! What the tests stand on: a real server, workers in threads of their own that can be dropped in the middle of anything, and payloads whose scope says what the worker does with them.

use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use cofferdam_contract::canonical;
use cofferdam_contract::carried_record::CarriedRecord;
use cofferdam_contract::ending::Ending;
use cofferdam_contract::envelope::{Answerer, ProducedBy, ResultEnvelope, Status, proof_of_work};
use cofferdam_contract::ids::Entropy;
use cofferdam_contract::receipt::{Receipt, Statement};
use cofferdam_contract::record::{CapturedStream, FinishedRun, RunRecord};
use cofferdam_contract::request::BackendName;
use cofferdam_contract::seal::{Draft, Sealed};
use cofferdam_contract::usage::Usage;
use cofferdam_fleet::class::{Capabilities, Class};
use cofferdam_fleet::coordinator::{Coordinator, Trust};
use cofferdam_fleet::model::{JobRecord, Settings};
use cofferdam_fleet::worker::{Brought, Done, Executor, Refusal, Whose, Worker};
use cofferdam_fleet::{Accepted, Address, Fleet, FleetError, Sign, Submission};
use cofferdam_store::bundle::SigningKey;
use cofferdam_testkit::nats::Nats;
use jiff::Timestamp;
use rustix::event::{PollFd, PollFlags, Timespec};
use serde_json::{Value, json};
use tokio::sync::watch;

/// Longer than anything takes on a machine with other work to do.
pub(crate) const PATIENCE: Duration = Duration::from_secs(90);

/// For tests that are not about silence: a machine that stands still for a moment is no crash.
pub(crate) fn calm() -> Settings {
    Settings {
        grace_ms: 10_000,
        heartbeat_timeout_ms: 10_000,
        ..quick()
    }
}

/// For tests that wait for a silence: long enough for a machine with other work to do.
pub(crate) fn quick() -> Settings {
    Settings {
        grace_ms: 1000,
        heartbeat_timeout_ms: 4000,
        max_starts: 50,
        ..Settings::default()
    }
}

pub(crate) fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
}

pub(crate) async fn connect(nats: &Nats, settings: Option<Settings>) -> Fleet {
    let address = Address {
        url: nats.url(),
        ..Address::default()
    };
    Fleet::connect(&address, settings).await.unwrap()
}

static NUMBER: AtomicUsize = AtomicUsize::new(0);

/// A payload; what its scope says is what a worker makes of it.
pub(crate) fn payload(scope: &str, changes: Value) -> Sealed {
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let mut draft = json!({
        "payload_id": format!("JOB-{}-{number}", std::process::id()),
        "contract_id": "CONTRACT-1", "scope": scope, "deadline": "2099-01-01T00:00:00Z",
        "task": {"kind": "command", "argv": ["/bin/true"]},
        "max_memory_mb": 64,
    });
    for (name, value) in changes.as_object().unwrap() {
        draft[name] = value.clone();
    }
    let draft = Draft::from_value(draft).unwrap();
    draft.seal(Timestamp::now(), Entropy([7; 16])).unwrap()
}

pub(crate) async fn submit(
    fleet: &Fleet,
    sealed: &Sealed,
    replicas: u32,
) -> Result<Accepted, FleetError> {
    submit_as(fleet, sealed, replicas, "t", false).await
}

pub(crate) async fn submit_as(
    fleet: &Fleet,
    sealed: &Sealed,
    replicas: u32,
    tenant: &str,
    audited: bool,
) -> Result<Accepted, FleetError> {
    let wanted = Submission {
        sealed,
        class: Class::of(sealed, BackendName::Native),
        tenant,
        replicas,
        audited,
    };
    fleet.submit(&wanted).await
}

/// Waits for the end of a job, and not for ever.
pub(crate) async fn ended(fleet: &Fleet, sealed: &Sealed) -> JobRecord {
    let mut coordinator = Coordinator::new(fleet, Trust::FirstUse);
    let job = &sealed.payload().payload_id;
    let record = tokio::time::timeout(PATIENCE, coordinator.wait_for(job)).await;
    match record {
        Ok(record) => record.unwrap(),
        Err(_) => panic!("{job} does not end: {:#?}", fleet.job_record(job).await),
    }
}

pub(crate) struct Key(pub(crate) SigningKey);

impl Key {
    pub(crate) fn of(name: &str) -> Self {
        let mut seed = [0; 32];
        for (place, byte) in seed.iter_mut().zip(name.bytes().cycle()) {
            *place = byte;
        }
        Self(SigningKey::from_seed(&seed))
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

/// An honest answer.
pub(crate) fn answer(sealed: &Sealed, worker: &str, output: &Value) -> ResultEnvelope {
    static RESULT: AtomicUsize = AtomicUsize::new(0);
    let payload_id = &sealed.payload().payload_id;
    let bytes = canonical::to_bytes(output).unwrap();
    let number = RESULT.fetch_add(1, Ordering::Relaxed);
    #[allow(clippy::cast_precision_loss, reason = "small numbers")]
    let size = bytes.len() as f64 / 1024.0;
    let envelope = json!({
        "result_id": format!("RESULT-{}-{number}", std::process::id()),
        "payload_id": payload_id, "worker_id": worker, "status": Status::Success, "output": output,
        "proof_of_work": proof_of_work(payload_id, &bytes), "logs": ["a line"],
        "runtime_seconds": 0.1, "cpu_seconds": 0.1, "memory_used_mb": 1.0, "output_size_kb": size,
        "error_message": null, "completed_at": Timestamp::now().to_string(), "verdict": null,
        "enforced_by": {}, "partial_output": null,
    });
    let mut envelope: ResultEnvelope = serde_json::from_value(envelope).unwrap();
    envelope.produced_by = Some(ProducedBy {
        engine_version: "0.1.0".into(),
        backend: "native".into(),
        ending: "exited:0".into(),
        run_id: "run".into(),
    });
    envelope
}

pub(crate) fn sign(sealed: &Sealed, envelope: &mut ResultEnvelope, key: &SigningKey) {
    let about = match Statement::new(sealed, envelope, key.public_key().to_string()) {
        Ok(about) => about,
        // One who answers for another payload signs that as it can be signed.
        Err(_) => return,
    };
    let signature = key.sign_message(&about.message().unwrap());
    let receipt = Receipt {
        statement: about,
        signature,
    };
    envelope.receipt = Some(receipt.line().unwrap());
}

/// How a worker answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Manner {
    Honest,
    /// Another output, with everything about it right.
    Lies,
    ForgesProof,
    OtherPayload,
    OthersName,
    Replays,
    Oversize,
    Garbage,
    OverLimits,
    /// It says that it cannot.
    Refuses,
    /// It runs until it is ended, whatever it was given.
    Hangs,
    /// The record of a request's run is not the one that it signed for.
    OtherRecord,
    /// The record of a request's run does not come at all.
    NoRecord,
    /// Beside the right record, what a handler returned is another.
    OtherAnswer,
    /// A request's run leaves [`FILES`].
    LeavesFiles,
}

pub(crate) const FILES: usize = 400;

pub(crate) struct Scripted {
    pub(crate) name: String,
    pub(crate) manner: Manner,
    pub(crate) runs: Arc<AtomicUsize>,
}

impl Executor for Scripted {
    fn execute(&self, sealed: &Sealed, cancel: OwnedFd) -> Result<Done, Refusal> {
        self.runs.fetch_add(1, Ordering::Relaxed);
        let scope = &sealed.payload().scope;
        let milliseconds = scope
            .strip_prefix("takes ")
            .and_then(|rest| rest.parse().ok());
        let time = match self.manner {
            Manner::Hangs => Duration::from_secs(3600),
            _ => Duration::from_millis(milliseconds.unwrap_or(1)),
        };
        wait(&cancel, time);
        let large = scope
            .strip_prefix("writes ")
            .and_then(|rest| rest.parse().ok());
        let mut output = json!({"stdout": "x".repeat(large.unwrap_or(1)), "stderr": ""});
        if self.manner == Manner::Refuses {
            return Err(Refusal {
                reason: "there is no room".into(),
                whose: Whose::Worker,
            });
        }
        if self.manner == Manner::Garbage {
            return Ok(Done {
                envelope: "{\"nothing\": 1}".into(),
                logs: Vec::new(),
            });
        }
        match self.manner {
            Manner::Lies => output = json!({"stdout": "a lie", "stderr": ""}),
            Manner::Oversize => output = json!({"stdout": "x".repeat(200 << 10), "stderr": ""}),
            _ => {}
        }
        let mut envelope = answer(sealed, &self.name, &output);
        match self.manner {
            Manner::ForgesProof => envelope.proof_of_work = "0".repeat(64),
            Manner::OtherPayload => envelope.payload_id = "JOB-OTHER".into(),
            Manner::OthersName => envelope.worker_id = "somebody".into(),
            Manner::Replays => envelope.completed_at = "2020-01-01T00:00:00Z".into(),
            Manner::OverLimits => envelope.memory_used_mb = Some(4000.0),
            _ => {}
        }
        sign(sealed, &mut envelope, &Key::of(&self.name).0);
        Ok(Done {
            envelope: serde_json::to_string(&envelope).unwrap(),
            logs: envelope.logs,
        })
    }

    fn carry_out(
        &self,
        sealed: &Sealed,
        request: &[u8],
        _cancel: OwnedFd,
    ) -> Result<Brought, Refusal> {
        self.runs.fetch_add(1, Ordering::Relaxed);
        let run = record(std::str::from_utf8(request).unwrap());
        let by = Answerer {
            result_id: format!("RESULT-{}", self.name),
            worker_id: self.name.clone(),
        };
        let mut envelope = ResultEnvelope::new(sealed, &run, by).unwrap();
        sign(sealed, &mut envelope, &Key::of(&self.name).0);
        let told = match self.manner {
            Manner::OtherRecord => record("something else"),
            _ => run,
        };
        let more = match self.manner {
            Manner::NoRecord => "{}".to_owned(),
            Manner::OtherAnswer => {
                let record = CarriedRecord::of(&told);
                json!({"record": record, "answer": {"value": "a lie"}}).to_string()
            }
            _ => json!({ "record": CarriedRecord::of(&told) }).to_string(),
        };
        Ok(Brought {
            done: Done {
                envelope: serde_json::to_string(&envelope).unwrap(),
                logs: Vec::new(),
            },
            more,
            files: match self.manner {
                Manner::LeavesFiles => (0..FILES)
                    .map(|number| canonical::Digest::of(number.to_string().as_bytes()).hex())
                    .collect(),
                _ => Vec::new(),
            },
        })
    }

    /// Whatever it is asked for: its name.
    fn contents(&self, sha256: &str) -> Option<Vec<u8>> {
        Some(sha256.as_bytes().to_vec())
    }
}

/// What a worker that runs a request brings with it.
fn record(output: &str) -> RunRecord {
    let now = Timestamp::now();
    RunRecord::new(FinishedRun {
        run_id: "run".into(),
        backend: BackendName::Native,
        ending: Ending::Exited { code: 0 },
        stdout: CapturedStream::new(output.as_bytes(), u64::try_from(output.len()).unwrap()),
        stderr: CapturedStream::new(b"", 0),
        result: None,
        usage: Usage {
            wall: Duration::from_millis(5),
            ..Usage::default()
        },
        enforced_by: Default::default(),
        isolation: Default::default(),
        denials: Vec::new(),
        changes: None,
        started_at: now,
        ended_at: now,
    })
}

/// As long as it takes, or until it is ended.
fn wait(cancel: &OwnedFd, time: Duration) {
    let until = Instant::now() + time;
    while let Some(left) = until.checked_duration_since(Instant::now()) {
        let left = Timespec::try_from(left).unwrap();
        let mut fds = [PollFd::from_borrowed_fd(cancel.as_fd(), PollFlags::IN)];
        if rustix::event::poll(&mut fds, Some(&left)).is_ok_and(|ready| ready > 0) {
            return;
        }
    }
}

/// A worker in a thread of its own. Dropping it is a crash: nothing is said to anybody.
pub(crate) struct Hand {
    stop: Option<tokio::sync::oneshot::Sender<()>>,
    drain: watch::Sender<bool>,
    thread: Option<std::thread::JoinHandle<()>>,
    pub(crate) runs: Arc<AtomicUsize>,
}

pub(crate) fn hand(nats: &Nats, name: &str, manner: Manner) -> Hand {
    hand_with(nats, name, manner, 0)
}

/// One that says that it gives so many GPUs.
pub(crate) fn hand_with(nats: &Nats, name: &str, manner: Manner, gpus: u32) -> Hand {
    let (stop, stopped) = tokio::sync::oneshot::channel();
    let (drain, draining) = watch::channel(false);
    let (url, name) = (nats.url(), name.to_owned());
    let runs = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&runs);
    let thread = std::thread::spawn(move || {
        let runtime = runtime();
        runtime.block_on(async {
            let address = Address {
                url,
                ..Address::default()
            };
            let work = async {
                // A server that is away right now is there again in a moment.
                let fleet = loop {
                    match Fleet::connect(&address, None).await {
                        Ok(fleet) => break fleet,
                        Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
                    }
                };
                let number = NUMBER.fetch_add(1, Ordering::Relaxed);
                let worker = Worker {
                    fleet,
                    incarnation: format!("{name}-{number}"),
                    slots: 1,
                    engine: "test".into(),
                    capabilities: Capabilities {
                        backends: vec!["native".into()],
                        memory_mb: 512,
                        gpus,
                        ..Capabilities::default()
                    },
                    signer: Arc::new(Key::of(&name)),
                    bond: None,
                    executor: Arc::new(Scripted {
                        name: name.clone(),
                        manner,
                        runs: counted,
                    }),
                    name,
                };
                let _ = worker.work(draining, |_| {}).await;
            };
            tokio::select! {
                () = work => {}
                _ = stopped => {}
            }
        });
        runtime.shutdown_background();
    });
    Hand {
        stop: Some(stop),
        drain,
        thread: Some(thread),
        runs,
    }
}

impl Hand {
    pub(crate) fn drain(mut self) {
        self.drain.send(true).unwrap();
        self.thread.take().unwrap().join().unwrap();
    }

    pub(crate) fn runs(&self) -> usize {
        self.runs.load(Ordering::Relaxed)
    }
}

impl Drop for Hand {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Until it is so, and not for ever.
pub(crate) async fn until<F: Future<Output = bool>>(what: &str, mut so: impl FnMut() -> F) {
    let deadline = Instant::now() + PATIENCE;
    while !so().await {
        assert!(Instant::now() < deadline, "{what}: not in time");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
