//! A worker that lies: it runs what it is given, changes its answer and signs that.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use cofferdam_contract::canonical;
use cofferdam_contract::envelope::{ResultEnvelope, proof_of_work};
use cofferdam_contract::seal::Sealed;
use cofferdam_fleet::class::Capabilities;
use cofferdam_fleet::worker::{Done, Executor, Refusal, Whose, Worker};
use cofferdam_fleet::{Address, Fleet};
use serde_json::json;
use tokio::sync::{oneshot, watch};

use crate::fleet::{Here, Key, runtime};
use crate::receipt;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lie {
    /// An output that is larger than the payload allows.
    Oversize,
    /// A proof that does not fit its output.
    Proof,
}

struct Liar {
    here: Here,
    key: Arc<Key>,
    lie: Lie,
}

impl Executor for Liar {
    fn execute(&self, sealed: &Sealed, cancel: OwnedFd) -> Result<Done, Refusal> {
        let done = self.here.execute(sealed, cancel)?;
        self.changed(sealed, &done).map_err(|reason| Refusal {
            reason,
            whose: Whose::Worker,
        })
    }
}

impl Liar {
    fn changed(&self, sealed: &Sealed, done: &Done) -> Result<Done, String> {
        let words = |error: serde_json::Error| error.to_string();
        let mut envelope: ResultEnvelope = serde_json::from_str(&done.envelope).map_err(words)?;
        match self.lie {
            Lie::Proof => envelope.proof_of_work = "0".repeat(64),
            Lie::Oversize => {
                let output = json!({"stdout": "x".repeat(2 << 10), "stderr": ""});
                let bytes = canonical::to_bytes(&output).map_err(|error| error.to_string())?;
                envelope.proof_of_work = proof_of_work(&envelope.payload_id, &bytes);
                envelope.output_size_kb =
                    f64::from(u32::try_from(bytes.len()).unwrap_or(u32::MAX)) / 1024.0;
                envelope.output = output;
            }
        }
        receipt::sign(sealed, &mut envelope, self.key.signing()).map_err(|bad| bad.words())?;
        Ok(Done {
            envelope: serde_json::to_string(&envelope).map_err(words)?,
            logs: envelope.logs,
        })
    }
}

/// One in a thread of its own, until it is dropped.
pub(super) struct Hand {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

/// What a liar is made of.
pub(super) struct Cast {
    pub(super) here: Here,
    pub(super) key: Arc<Key>,
    pub(super) name: String,
    pub(super) bond: Option<String>,
    pub(super) url: String,
    pub(super) capabilities: Capabilities,
}

impl Hand {
    pub(super) fn start(cast: Cast, lie: Lie) -> Self {
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::spawn(move || {
            let Ok(runtime) = runtime() else {
                return;
            };
            runtime.block_on(async {
                tokio::select! {
                    () = work(cast, lie) => {}
                    _ = stopped => {}
                }
            });
            runtime.shutdown_background();
        });
        Self {
            stop: Some(stop),
            thread: Some(thread),
        }
    }
}

async fn work(cast: Cast, lie: Lie) {
    let address = Address {
        url: cast.url,
        ..Address::default()
    };
    let Ok(fleet) = Fleet::connect(&address, None).await else {
        return;
    };
    // Nobody asks it to drain: it goes with its scene.
    let (_kept, drain) = watch::channel(false);
    let worker = Worker {
        fleet,
        incarnation: format!("{}-1", cast.name),
        name: cast.name,
        slots: 1,
        engine: cofferdam_contract::envelope::ENGINE_VERSION.to_owned(),
        capabilities: cast.capabilities,
        signer: Arc::clone(&cast.key) as _,
        bond: cast.bond,
        executor: Arc::new(Liar {
            here: cast.here,
            key: cast.key,
            lie,
        }),
    };
    let _ = worker.work(drain, |_| {}).await;
}

impl Drop for Hand {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
