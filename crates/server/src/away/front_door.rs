//! The daemon as the front door of a fleet: a run is put there under its own id, waited for, checked, and its record taken in here as if it had been made here. A daemon that ends leaves
//! its work on the fleet; the next one finds it there by its id.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use cofferdam_contract::codes::ErrorCode;
use cofferdam_contract::envelope::ResultEnvelope;
use cofferdam_contract::ids::Entropy;
use cofferdam_contract::payload::Purity;
use cofferdam_contract::request::{BackendName, Network};
use cofferdam_contract::seal::{Draft, Sealed};
use cofferdam_contract::task::Task as ContractTask;
use cofferdam_fleet::class::Class;
use cofferdam_fleet::coordinator::{Coordinator, Trust};
use cofferdam_fleet::judge::Published;
use cofferdam_fleet::model::{Carried, EndOutcome, JobRecord};
use cofferdam_fleet::{
    Errand as FleetErrand, Fleet, FleetError, LARGEST, LARGEST_RECORD, Submission, scope_of,
};
use cofferdam_store::RunId;
use cofferdam_store::objects::Objects;
use jiff::Timestamp;
use serde_json::json;
use tokio::runtime::Handle;
use tokio::sync::watch;

use super::brought::Brought;
use crate::config::FrontDoorConfig;
use crate::fault::Fault;
use crate::kept;
use crate::live::{Finished, Live};
use crate::random;
use crate::work::{Place, Task, Work};

/// How a run on the fleet came out.
#[derive(Debug)]
pub(crate) enum Away {
    Finished(Box<Finished>),
    Failed(Fault),
    Canceled,
    /// Its deadline passed before a worker took it.
    Expired,
    /// This daemon ends, and the run goes on without it.
    Left,
}

/// The way to the fleet.
#[derive(Debug)]
pub(crate) struct FrontDoor {
    fleet: Fleet,
    handle: Handle,
    trust: Trust,
    replicas: u32,
    audit_rate: f64,
    leaving: watch::Sender<bool>,
}

/// Between attempts at what a server that is away cannot do.
const AGAIN: Duration = Duration::from_millis(200);
/// For as long a server that is away is waited for where no deadline says otherwise. After its deadline a run may still be on its way here for this long; then it is canceled, and after as long again it is given up.
const GRACE: Duration = Duration::from_secs(60);

/// For what is of use and need not be.
const HEARD_WITHIN: Duration = Duration::from_secs(5);

impl FrontDoor {
    pub(crate) fn open(config: &FrontDoorConfig, handle: &Handle) -> Result<Self, FleetError> {
        let fleet = handle.block_on(Fleet::connect(&config.address, None))?;
        Ok(Self {
            fleet,
            handle: handle.clone(),
            trust: config.trust.clone(),
            replicas: config.replicas,
            audit_rate: config.audit_rate,
            leaving: watch::Sender::new(false),
        })
    }

    /// Whoever waits for something on the fleet stops waiting.
    pub(crate) fn leave(&self) {
        self.leaving.send_replace(true);
    }

    /// Whether the fleet can be talked to.
    pub(crate) fn check(&self) -> Result<(), String> {
        let status = self.handle.block_on(self.fleet.status());
        status.map(drop).map_err(|error| error.to_string())
    }

    /// Nobody here waits for it: it need not be carried out. A fleet that cannot be talked to now carries it out, and what comes of it goes with its age.
    pub(crate) fn give_up(&self, run: RunId) {
        let job = run.to_string();
        let canceled = async { tokio::time::timeout(HEARD_WITHIN, self.fleet.cancel(&job)).await };
        match self.handle.block_on(canceled) {
            Ok(Ok(()) | Err(FleetError::NoSuchJob { .. } | FleetError::Unfit { .. })) => {}
            Ok(Err(error)) => {
                tracing::warn!(%run, %error, "a run could not be cancelled on the fleet")
            }
            Err(_) => tracing::warn!(%run, "a run could not be cancelled on the fleet: no answer"),
        }
    }

    /// Blocks until it has ended. `began` is called when a worker has taken it.
    pub(crate) fn carry_out(
        &self,
        work: &Work,
        live: &Live,
        place: Place<'_>,
        began: &dyn Fn(),
    ) -> Away {
        let going = async {
            let mut leaving = self.leaving.subscribe();
            tokio::select! {
                away = self.go(work, live, place, began) => away,
                _ = leaving.wait_for(|leaving| *leaving) => Away::Left,
            }
        };
        self.handle.block_on(going)
    }

    async fn go(&self, work: &Work, live: &Live, place: Place<'_>, began: &dyn Fn()) -> Away {
        let job = live.id.to_string();
        let submitted = tokio::select! {
            submitted = self.submit(work, live, &job) => submitted,
            () = live.cancel.asked() => {
                // It may be there all the same.
                return match until_heard(Instant::now() + GRACE, || self.fleet.cancel(&job)).await {
                    Ok(()) => self.awaited(work, live, &job, place, began).await,
                    Err(_) => Away::Canceled,
                };
            }
        };
        match submitted {
            Ok(()) => self.awaited(work, live, &job, place, began).await,
            Err(away) => away,
        }
    }

    /// Why it is not put on the fleet now.
    fn unfit(&self, work: &Work, live: &Live) -> Option<Away> {
        if Instant::now() >= live.deadline {
            return Some(Away::Expired);
        }
        let is_compared = self.replicas > 1 || self.audit_rate > 0.0;
        (is_compared && matches!(work.task, Task::Project(_))).then(|| {
            // Its reports say how long everything took, so that no two are the same.
            let detail = "what comes of a project is not compared, and this front door compares (--fleet-replicas, --fleet-audit-rate); send it to one that does not";
            Away::Failed(Fault::coded(ErrorCode::InputInvalid, detail))
        })
    }

    async fn submit(&self, work: &Work, live: &Live, job: &str) -> Result<(), Away> {
        if let Some(why) = self.unfit(work, live) {
            // What an earlier daemon put there may have ended in time.
            let known = until_heard(soon(live), || self.fleet.job_record(job)).await;
            return known.map(drop).map_err(|error| match error {
                FleetError::NoSuchJob { .. } => why,
                other => Away::Failed(fault(&other)),
            });
        }
        let (sealed, request) = match (&work.sealed, &work.errand) {
            (Some(sealed), _) => (Sealed::clone(sealed), String::new()),
            (None, Some(sent)) => {
                let sealed = seal(work, live, &sent.text).map_err(Away::Failed)?;
                (sealed, sent.text.clone())
            }
            (None, None) => {
                return Err(Away::Failed(Fault::internal("nothing can be sent of it")));
            }
        };
        let mut class = Class::of(&sealed, backend(&sealed));
        if let Some(sent) = &work.errand {
            class.language.clone_from(&sent.language);
        }
        let is_compared = sealed.payload().purity != Purity::Varies;
        let wanted = || FleetErrand {
            submission: Submission {
                sealed: &sealed,
                class: class.clone(),
                tenant: &live.tenant,
                replicas: if is_compared { self.replicas } else { 1 },
                audited: is_compared && is_audited(self.audit_rate),
            },
            job,
            request: request.clone(),
        };
        loop {
            match self.fleet.submit_errand(wanted()).await {
                Ok(_) => return Ok(()),
                Err(FleetError::Talk { .. }) if Instant::now() < live.deadline => {
                    tokio::time::sleep(AGAIN).await;
                }
                Err(FleetError::Talk { .. }) => return Err(Away::Expired),
                Err(error) => return Err(Away::Failed(fault(&error))),
            }
        }
    }

    async fn awaited(
        &self,
        work: &Work,
        live: &Live,
        job: &str,
        place: Place<'_>,
        began: &dyn Fn(),
    ) -> Away {
        let mut coordinator = Coordinator::new(&self.fleet, self.trust.clone());
        // One whose deadline passed while nobody waited for it may have been answered.
        let until = soon(live);
        let mut is_canceled = false;
        let record = async {
            let mut ended = std::pin::pin!(coordinator.wait_for(job));
            let mut taken = std::pin::pin!(self.fleet.until_taken(job));
            let mut canceled = std::pin::pin!(async {
                live.cancel.asked().await;
                // Whatever it says: it has ended then, or will have.
                let _ = until_heard(until + GRACE, || self.fleet.cancel(job)).await;
            });
            let mut is_taken = false;
            loop {
                tokio::select! {
                    ended = &mut ended => break ended,
                    () = &mut taken, if !is_taken => {
                        is_taken = true;
                        began();
                    }
                    () = &mut canceled, if !is_canceled => is_canceled = true,
                }
            }
        };
        let stop = async {
            let _ = until_heard(until + GRACE, || self.fleet.cancel(job)).await;
        };
        let record = match by(until, GRACE, record, stop).await {
            Some(Ok(record)) => record,
            Some(Err(error)) => return Away::Failed(fault(&error)),
            None => return Away::Expired,
        };
        let end = record.end.as_ref();
        let reason = end.and_then(|end| end.reason.clone()).unwrap_or_default();
        let when = When {
            is_canceled,
            is_over: Instant::now() >= until,
            is_late: Timestamp::now() > record.deadline,
        };
        let away = match came_to(end.map(|end| end.outcome), when) {
            Came::Answered => {
                match self
                    .take_in(&mut coordinator, &record, work, live, place)
                    .await
                {
                    Ok(finished) => Away::Finished(Box::new(finished)),
                    Err(fault) => Away::Failed(fault),
                }
            }
            Came::Expired => Away::Expired,
            Came::Canceled => Away::Canceled,
            Came::Failed(code) => Away::Failed(Fault::coded(code, reason)),
        };
        // What is taken in is here; the rest goes with its age.
        if let Err(error) = self.fleet.release(&record).await {
            tracing::warn!(%error, "what a run had on the fleet could not be removed");
        }
        away
    }

    /// The record, with its files, becomes one of this history.
    async fn take_in(
        &self,
        coordinator: &mut Coordinator,
        record: &JobRecord,
        work: &Work,
        live: &Live,
        place: Place<'_>,
    ) -> Result<Finished, Fault> {
        // Whoever wrote the end may trust workers that we do not.
        let until = soon(live);
        let published = loop {
            match coordinator.verified(record).await {
                Err(FleetError::Talk { .. }) if Instant::now() < until => {
                    tokio::time::sleep(AGAIN).await;
                }
                other => break other,
            }
        };
        let published = published
            .map_err(|error| unbelieved(&error))?
            .ok_or_else(|| Fault::internal("a job that was agreed on has no answer"))?;
        let envelope = self.fetched(&published.envelope, LARGEST, until).await?;
        let envelope: ResultEnvelope = serde_json::from_slice(&envelope)
            .map_err(|error| Fault::coded(ErrorCode::EnvelopeInvalid, error.to_string()))?;
        let more = published.more.as_ref();
        let more = more.ok_or_else(|| Fault::internal("an answer has no record"))?;
        let more = self.fetched(more, LARGEST_RECORD, until).await?;
        let mut brought: Brought = serde_json::from_slice(&more).map_err(|error| {
            let detail = format!("what a worker sent cannot be read: {error}");
            Fault::coded(ErrorCode::EnvelopeInvalid, detail)
        })?;
        brought.hold_to(place.kept.artifacts);
        self.keep_files(&brought, &published, place, until).await?;
        let mut finished = brought.finished();
        finished.record.run_id = live.id.to_string();
        let name = envelope.worker_id.clone();
        finished.record.isolation.insert("worker".to_owned(), name);
        kept::keep_whole(place, live, work, &mut finished);
        finished.envelope = work.sealed.is_some().then(|| Box::new(envelope));
        Ok(finished)
    }

    async fn keep_files(
        &self,
        brought: &Brought,
        published: &Published,
        place: Place<'_>,
        until: Instant,
    ) -> Result<(), Fault> {
        let files = until_heard(until, || self.fleet.files_of(published)).await;
        let files = files.map_err(|error| unbelieved(&error))?;
        let lies: HashMap<String, &Carried> = files
            .iter()
            .filter_map(|carried| match carried {
                Carried::Object { sha256, .. } => Some((sha256.hex(), carried)),
                Carried::Inline { .. } => None,
            })
            .collect();
        let objects = Objects::open(place.dir);
        // No more than is kept of a file: what is said to be larger has been left out.
        for (digest, bytes) in brought.files() {
            let Some(carried) = lies.get(&digest) else {
                let detail = "a worker names a file and did not send it";
                return Err(Fault::coded(ErrorCode::EnvelopeInvalid, detail));
            };
            // Its digest is checked on the way, and its size, which is what it was let in by.
            let contents = until_heard(until, || self.fleet.fetch_exactly(carried, bytes));
            let contents = contents.await.map_err(|error| unbelieved(&error))?;
            objects.put(&contents)?;
        }
        Ok(())
    }

    async fn fetched(
        &self,
        carried: &Carried,
        most: usize,
        until: Instant,
    ) -> Result<Vec<u8>, Fault> {
        let fetched = until_heard(until, || self.fleet.fetch_at_most(carried, most));
        fetched.await.map_err(|error| unbelieved(&error))
    }
}

/// When a server that does not come back is no longer waited for. One whose deadline passed while nobody looked gets as much time as any other.
fn soon(live: &Live) -> Instant {
    live.deadline.max(Instant::now()) + GRACE
}

/// A server that is away is waited for until then.
async fn until_heard<T, F: Future<Output = Result<T, FleetError>>>(
    until: Instant,
    ask: impl Fn() -> F,
) -> Result<T, FleetError> {
    loop {
        match ask().await {
            Err(FleetError::Talk { .. }) if Instant::now() < until => {
                tokio::time::sleep(AGAIN).await;
            }
            other => return other,
        }
    }
}

/// What had happened when a job ended.
#[derive(Debug, Clone, Copy)]
struct When {
    /// A client had asked for its end.
    is_canceled: bool,
    /// It was past the time for which it is waited, so that we asked for its end.
    is_over: bool,
    /// Its deadline had passed.
    is_late: bool,
}

/// What an end on the fleet means for whoever asked here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Came {
    Answered,
    Canceled,
    Expired,
    Failed(ErrorCode),
}

/// An answer that came in time counts, however late it is heard of.
fn came_to(outcome: Option<EndOutcome>, when: When) -> Came {
    match outcome {
        Some(EndOutcome::Agreed) => Came::Answered,
        Some(EndOutcome::Canceled) if !when.is_canceled && when.is_over => Came::Expired,
        Some(EndOutcome::Canceled) => Came::Canceled,
        Some(EndOutcome::Failed) if when.is_late => Came::Expired,
        Some(EndOutcome::Disputed) => Came::Failed(ErrorCode::EnvelopeInvalid),
        Some(EndOutcome::Failed) | None => Came::Failed(ErrorCode::BackendUnavailable),
    }
}

/// Waits for an end until then, and for a while longer when it is being stopped. Whoever does not heed that is not waited for.
async fn by<T>(
    until: Instant,
    grace: Duration,
    ended: impl Future<Output = T>,
    stop: impl Future<Output = ()>,
) -> Option<T> {
    let mut ended = std::pin::pin!(ended);
    if let Ok(ended) = tokio::time::timeout_at(until.into(), &mut ended).await {
        return Some(ended);
    }
    let stopped = async {
        tokio::select! {
            biased;
            ended = &mut ended => return ended,
            () = stop => {}
        }
        ended.await
    };
    tokio::time::timeout(grace, stopped).await.ok()
}

fn backend(sealed: &Sealed) -> BackendName {
    match &sealed.payload().task {
        ContractTask::Wasm(_) => BackendName::Wasm,
        ContractTask::Command(_) | ContractTask::Source(_) | ContractTask::Project(_) => {
            BackendName::Native
        }
    }
}

/// Nobody knows before which ones are checked.
fn is_audited(rate: f64) -> bool {
    let [a, b, c, d, ..] = random::bytes::<16>();
    f64::from(u32::from_le_bytes([a, b, c, d])) / f64::from(u32::MAX) < rate
}

/// A payload that stands for a request. Its limits bound all of it, compiling included; what the run itself is held to is in the request.
fn seal(work: &Work, live: &Live, request: &str) -> Result<Sealed, Fault> {
    let internal = |problem: String| Fault::internal(format!("it cannot be sealed: {problem}"));
    let now = Timestamp::now();
    let left = live.deadline.saturating_duration_since(Instant::now());
    let deadline = now.checked_add(left.max(Duration::from_secs(1)));
    let deadline = deadline.map_err(|error| internal(error.to_string()))?;
    let most = work.outer_limits();
    // As JSON a byte can take six.
    let output = most.output_bytes.saturating_mul(6).min(8 << 20) / 1024 + 1;
    let draft = json!({
        "payload_id": format!("RUN-{}", live.id),
        "contract_id": "cofferdam-front-door",
        "scope": scope_of(request.as_bytes()),
        "deadline": deadline.to_string(),
        "task": {"kind": "command", "argv": live.command},
        "max_runtime_seconds": most.wall_time.as_secs_f64(),
        "max_cpu_seconds": most.cpu_time.as_secs_f64(),
        "max_memory_mb": most.memory_bytes.div_ceil(1 << 20),
        "max_output_size_kb": output,
        "network_allowed": work.network != Network::Denied,
    });
    let draft = Draft::from_value(draft).map_err(|found| internal(found.to_string()))?;
    let sealed = draft.seal(now, Entropy(random::bytes()));
    sealed.map_err(|found| internal(found.to_string()))
}

/// Of what a worker has sent: it is the worker's if that is not there, or is not what it was said to be.
fn unbelieved(error: &FleetError) -> Fault {
    match error {
        FleetError::Damaged { .. } => Fault::coded(ErrorCode::EnvelopeInvalid, error.to_string()),
        _ => fault(error),
    }
}

fn fault(error: &FleetError) -> Fault {
    tracing::warn!(%error, "the fleet");
    Fault::coded(error.code(), error.to_string())
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use super::*;

    #[test]
    fn a_deadline_that_passed_is_told_apart_from_a_wish_and_from_a_failure() {
        use EndOutcome::{Agreed, Canceled, Disputed, Failed};
        let unavailable = Came::Failed(ErrorCode::BackendUnavailable);
        let invalid = Came::Failed(ErrorCode::EnvelopeInvalid);
        for (outcome, canceled, over, late, came) in [
            (Some(Agreed), true, true, true, Came::Answered),
            (Some(Canceled), false, true, true, Came::Expired),
            (Some(Canceled), true, true, true, Came::Canceled),
            (Some(Canceled), false, false, true, Came::Canceled),
            (Some(Failed), false, false, true, Came::Expired),
            (Some(Failed), false, false, false, unavailable),
            (Some(Disputed), false, true, true, invalid),
            (None, false, true, true, unavailable),
        ] {
            let when = When {
                is_canceled: canceled,
                is_over: over,
                is_late: late,
            };
            assert_eq!(came_to(outcome, when), came, "{outcome:?} {when:?}");
        }
    }

    #[test]
    fn a_server_that_is_away_is_waited_for_and_not_for_ever() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap();
        runtime.block_on(async {
            let asked = std::cell::Cell::new(0);
            let third = || {
                asked.set(asked.get() + 1);
                ready(match asked.get() {
                    3 => Ok(asked.get()),
                    _ => Err(FleetError::Talk {
                        what: "ask",
                        why: "away".to_owned(),
                    }),
                })
            };
            let now = Instant::now();
            let given_up = until_heard(now, third).await;
            assert!(matches!(given_up, Err(FleetError::Talk { .. })));
            assert_eq!(asked.get(), 1);
            let heard = until_heard(now + Duration::from_secs(600), third).await;
            assert!(matches!(heard, Ok(3)));
        });
    }

    #[test]
    fn a_run_that_does_not_end_after_its_deadline_is_stopped_and_then_given_up() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap();
        runtime.block_on(async {
            let (now, short, long) = (
                Instant::now(),
                Duration::from_millis(20),
                Duration::from_secs(600),
            );
            // One that heeds nothing, whether it can be told to stop or not.
            assert_eq!(by(now, short, pending::<u8>(), ready(())).await, None);
            assert_eq!(by(now, short, pending::<u8>(), pending()).await, None);
            // One that ends when it is stopped, and one that ends by itself.
            let stopped = watch::Sender::new(false);
            let mut told = stopped.subscribe();
            let ended = async { told.wait_for(|told| *told).await.is_ok() };
            let stop = async {
                stopped.send_replace(true);
            };
            assert_eq!(by(now, long, ended, stop).await, Some(true));
            assert_eq!(by(now + long, long, ready(1), pending()).await, Some(1));
        });
    }
}
