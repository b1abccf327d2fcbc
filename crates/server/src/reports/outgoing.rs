//! When something is told. Everything goes into the outbox, on threads that may block; the couriers bring it from there. A report that cannot be kept is tried again until it is, or until
//! the daemon ends: then what was promised about the run is still on the disk, and the next start tells it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use cofferdam_callback::message::{
    self, BadMessage, ContainerExited, ContainerReady, ExitReason, HeartbeatReport, ResultReport,
    StatusReport,
};
use cofferdam_callback::{ControlPlane, Courier, Doorkeeper, Policy};
use cofferdam_store::log::Chunk;
use cofferdam_store::model::{Artifact, Outcome as StoredOutcome, StoredRun};
use cofferdam_store::outbox::{Enqueued, Limits, Message, Outbox, TraceHeaders};
use cofferdam_store::{DataDir, RunId, StoreError};
use jiff::Timestamp;

use super::contents::{self, Cancelled};
use super::couriers;
use super::heartbeat::Heart;
use super::session::Mark;
use crate::config::Callbacks;
use crate::fault::{Fault, Refusal};
use crate::live::{Ended, Live};
use crate::metrics::Metrics;
use crate::random;
use crate::server::EndedBy;
use crate::trace::RunPhase;

/// Tells others about runs; nobody, where nobody is configured.
#[derive(Debug)]
pub(crate) struct Reports {
    outgoing: Option<Outgoing>,
    stopping: AtomicBool,
    starting: AtomicBool,
}

#[derive(Debug)]
struct Outgoing {
    outbox: Outbox,
    plane: Option<ControlPlane>,
    policy: Policy,
    door: Doorkeeper,
    heart: Heart,
    courier: Mutex<Option<Courier>>,
    metrics: Arc<Metrics>,
    session: String,
    pod: Option<String>,
    mark: Mark,
    waiting: AtomicU64,
    waiting_bytes: AtomicU64,
}

/// Whether a report is safe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Told {
    /// In the outbox, or there is nobody to tell.
    Yes,
    /// The daemon ends and the outbox cannot be written.
    NotYet,
}

/// What a run is called outside, and who wants to hear of it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct About<'a> {
    pub(crate) run: RunId,
    pub(crate) execution_id: Option<&'a str>,
    pub(crate) callback_url: Option<&'a str>,
}

/// How long names may be looked up for one request.
pub(crate) const LOOKUPS: Duration = Duration::from_secs(3);
/// Between two tries to keep a report.
const KEEP_AGAIN: Duration = Duration::from_millis(200);

impl Reports {
    pub(crate) fn start(
        config: &Callbacks,
        dir: &DataDir,
        metrics: &Arc<Metrics>,
    ) -> Result<Self, StoreError> {
        let mut reports = Self {
            outgoing: None,
            stopping: AtomicBool::new(false),
            starting: AtomicBool::new(false),
        };
        if !config.is_on() {
            warn_of_forgotten_best_effort(dir);
            return Ok(reports);
        }
        let outbox = Outbox::open_with(dir, config.outbox)?;
        let courier = couriers::start(&outbox, config, metrics)?;
        let outgoing = Outgoing {
            plane: config.control_plane.clone(),
            door: Doorkeeper::new(config.policy.clone()),
            policy: config.policy.clone(),
            heart: Heart::new(config.heartbeat),
            courier: Mutex::new(Some(courier)),
            metrics: Arc::clone(metrics),
            session: config
                .session
                .clone()
                .unwrap_or_else(|| format!("sess_{}", random::hex::<8>())),
            pod: config.pod.clone(),
            mark: Mark::of(dir),
            waiting: AtomicU64::new(0),
            waiting_bytes: AtomicU64::new(0),
            outbox,
        };
        outgoing.look();
        reports.outgoing = Some(outgoing);
        Ok(reports)
    }

    /// The thread that says which runs go on.
    pub(crate) fn start_heart(self: &Arc<Self>) -> std::io::Result<Option<JoinHandle<()>>> {
        if self.outgoing.is_none() {
            return Ok(None);
        }
        let reports = Arc::clone(self);
        let thread = std::thread::Builder::new().name("heartbeat".to_owned());
        let beat = move || {
            if let Some(outgoing) = &reports.outgoing {
                let say = |run, execution: &str| outgoing.heartbeat(run, execution);
                outgoing.heart.beat(say, || {
                    outgoing.look();
                    outgoing.mark.touch();
                });
            }
        };
        thread.spawn(beat).map(Some)
    }

    /// Whether anybody would be told about a run.
    pub(crate) fn wanted(&self, callback_url: Option<&str>) -> bool {
        let outgoing = self.outgoing.as_ref();
        outgoing.is_some_and(|outgoing| outgoing.plane.is_some() || callback_url.is_some())
    }

    /// Whether this address would be called. Blocks while its name is looked up, until then.
    pub(crate) fn check_address(&self, url: &str, until: Instant) -> Result<(), Fault> {
        const LONGEST: usize = 2048;
        if url.len() > LONGEST {
            let detail = format!("callback URL: {} bytes; use at most {LONGEST}", url.len());
            return Err(Refusal::CallbackRefused.because(detail));
        }
        let checked = match &self.outgoing {
            Some(outgoing) => {
                let left = until.saturating_duration_since(Instant::now());
                outgoing.door.check(url, left)
            }
            None => Policy::default().check(url),
        };
        checked
            .map(drop)
            .map_err(|refused| Refusal::CallbackRefused.because(refused.to_string()))
    }

    /// Nothing is taken on whose report might find no room. What clients want called themselves may take half of it, so that an address which never answers stops nobody else.
    pub(crate) fn admit(&self, callback_url: Option<&str>) -> Result<(), Fault> {
        let Some(outgoing) = &self.outgoing else {
            return Ok(());
        };
        let limits = outgoing.outbox.limits();
        let (messages, bytes) = (
            outgoing.waiting.load(Ordering::Acquire),
            outgoing.waiting_bytes.load(Ordering::Acquire),
        );
        // What is on its way needs room too.
        let spared = if callback_url.is_some() { 2 } else { 10 };
        let is_full = |amount: u64, most: u64| amount >= most - most / spared;
        if is_full(messages, limits.messages) || is_full(bytes, limits.bytes) {
            let detail = format!("{messages} reports with {bytes} bytes wait to be delivered");
            return Err(Refusal::OutboxFull.because(detail));
        }
        Ok(())
    }

    /// The daemon can run things. If the one before it went without a word, that is told first.
    pub(crate) fn ready(&self, port: u16) {
        let Some((outgoing, plane)) = self.to_plane() else {
            return;
        };
        if let Some(before) = outgoing.mark.before() {
            let report = ContainerExited {
                exit_code: 137,
                exited_at: before.last_seen,
                exit_reason: ExitReason::Sigkill,
            };
            self.put(outgoing, plane.container_exited(&before.session, &report));
        }
        outgoing.mark.begin(&outgoing.session);
        let host = rustix::system::uname();
        let host = host.nodename().to_string_lossy().into_owned();
        let report = ContainerReady {
            pod_name: outgoing.pod.clone().unwrap_or_else(|| host.clone()),
            container_id: host,
            executor_port: port,
            ready_at: Timestamp::now(),
        };
        self.put(outgoing, plane.container_ready(&outgoing.session, &report));
    }

    /// The daemon ends.
    pub(crate) fn exited(&self, by: Option<EndedBy>) {
        let Some((outgoing, plane)) = self.to_plane() else {
            return;
        };
        let report = ContainerExited {
            exit_code: by.map_or(0, |by| i32::from(by.exit_code())),
            exited_at: Timestamp::now(),
            exit_reason: match by {
                Some(EndedBy::Terminate) => ExitReason::Sigterm,
                Some(EndedBy::Interrupt) | None => ExitReason::Normal,
            },
        };
        let message = plane.container_exited(&outgoing.session, &report);
        if self.put(outgoing, message) == Told::Yes {
            outgoing.mark.end();
        }
    }

    /// A run has its turn.
    pub(crate) fn started(&self, live: &Live, at: Timestamp) {
        let Some((outgoing, plane)) = self.to_plane() else {
            return;
        };
        let phase = live.trace.phase(RunPhase::Callback);
        let execution = live.about().execution();
        let report = StatusReport::Running { started_at: at };
        let message = plane.status(&execution, &report);
        // Once: its result says the same and more, and a full outbox must not keep it from being run.
        if let Ok(mut message) = of_run(live.id, Some(phase.headers()), message)
            && let Err(error) = outgoing.keep(&mut message)
        {
            tracing::warn!(%error, run = message.run, "that a run has begun is not told");
        }
        outgoing.heart.add(live.id, execution);
    }

    /// A run has ended. When this says yes, its result is safe.
    pub(crate) fn ended(&self, live: &Live, ended: &Ended) -> Told {
        let Some(outgoing) = &self.outgoing else {
            return Told::Yes;
        };
        outgoing.heart.remove(live.id);
        let cancelled = if self.is_stopping() {
            Cancelled::ByTheEnd
        } else {
            Cancelled::ByClient
        };
        let report = contents::result(ended, &live.id.to_string(), cancelled);
        let phase = live.trace.phase(RunPhase::Callback);
        let trace = Some(phase.headers());
        self.tell(live.about(), trace, &report, contents::artifacts_of(ended))
    }

    /// A run of a daemon that was killed: what the history knows of it, if anything.
    pub(crate) fn recovered(
        &self,
        about: About<'_>,
        found: Option<(&StoredRun, &[Chunk])>,
        answers: bool,
    ) -> Told {
        let Some((run, output)) = found else {
            let why = "the daemon was killed before it ran";
            let report = contents::unrun(message::ResultStatus::Crashed, why.to_owned());
            return self.tell(about, None, &report, &[]);
        };
        let left = match &run.outcome {
            StoredOutcome::Ended(closing) => closing.artifacts.as_slice(),
            StoredOutcome::Running | StoredOutcome::Interrupted { .. } => &[],
        };
        self.tell(
            about,
            None,
            &contents::recovered(run, output, answers),
            left,
        )
    }

    /// What an earlier daemon left is told before this one serves, and must not keep it from that: what the outbox does not take now is tried by the next start.
    pub(crate) fn set_starting(&self, starting: bool) {
        self.starting.store(starting, Ordering::Release);
    }

    /// From now on what is cancelled is cancelled because of the end.
    pub(crate) fn stopping(&self) {
        self.stopping.store(true, Ordering::Release);
    }

    /// Sends what is due, for at most so long. What is left stays in the outbox.
    pub(crate) fn stop(&self, at_most: Duration) {
        let Some(outgoing) = &self.outgoing else {
            return;
        };
        outgoing.heart.stop();
        let mut courier = outgoing
            .courier
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(courier) = courier.take() {
            let stopped = courier.stop(at_most);
            tracing::debug!(?stopped, "no more is delivered");
        }
    }

    /// The result first: a peer that takes nothing after a change of state must have it.
    fn tell(
        &self,
        about: About<'_>,
        trace: Option<TraceHeaders>,
        report: &ResultReport,
        left: &[Artifact],
    ) -> Told {
        let Some(outgoing) = &self.outgoing else {
            return Told::Yes;
        };
        let execution = about.execution();
        let mut messages = Vec::new();
        if let Some(plane) = &outgoing.plane {
            messages.push(plane.result(&execution, report));
            let status = contents::status(report, Timestamp::now());
            messages.extend(status.map(|status| plane.status(&execution, &status)));
            let artifacts = contents::artifacts(left);
            messages.extend(artifacts.map(|artifacts| plane.artifacts(&execution, &artifacts)));
        }
        if let Some(url) = about.callback_url {
            messages.push(message::to_client(
                &outgoing.policy,
                url,
                &execution,
                report,
            ));
        }
        for message in messages {
            if self.put(outgoing, of_run(about.run, trace.clone(), message)) == Told::NotYet {
                return Told::NotYet;
            }
        }
        Told::Yes
    }

    /// Into the outbox, however long that takes.
    fn put(&self, outgoing: &Outgoing, made: Result<Message, BadMessage>) -> Told {
        let mut message = match made {
            Ok(message) => message,
            Err(error) => {
                // Checked when it was submitted; the operator has forbidden it since.
                tracing::error!(%error, "a report cannot be made");
                return Told::Yes;
            }
        };
        let mut tries: u32 = 0;
        loop {
            let seen = outgoing.outbox.rung();
            let Err(error) = outgoing.keep(&mut message) else {
                return Told::Yes;
            };
            if self.is_stopping() || self.starting.load(Ordering::Acquire) {
                tracing::error!(%error, run = message.run, "a report waits for the next start");
                return Told::NotYet;
            }
            if tries.is_multiple_of(50) {
                tracing::error!(%error, run = message.run, "a report cannot be kept yet; its run waits");
            }
            tries += 1;
            outgoing.outbox.wait(seen, KEEP_AGAIN);
        }
    }

    fn to_plane(&self) -> Option<(&Outgoing, &ControlPlane)> {
        let outgoing = self.outgoing.as_ref()?;
        Some((outgoing, outgoing.plane.as_ref()?))
    }

    fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }
}

impl Outgoing {
    /// One try. What can never be kept is told to the operator and counts as kept.
    fn keep(&self, message: &mut Message) -> Result<(), StoreError> {
        loop {
            let kept = self.outbox.enqueue(message.clone(), Timestamp::now());
            self.look();
            match kept {
                Ok(Enqueued::New(_)) => return Ok(()),
                Ok(Enqueued::Known(id)) => {
                    let owner = self.outbox.run_of(id)?;
                    let is_other = owner.is_some_and(|owner| owner != message.run);
                    if !is_other || message.idempotency_key.ends_with(&message.run) {
                        return Ok(());
                    }
                    // Another run under the same name: its report is a message of its own.
                    message.idempotency_key =
                        format!("{}:{}", message.idempotency_key, message.run);
                }
                Err(StoreError::Invalid { why, .. }) => {
                    tracing::error!(run = message.run, why, "a report cannot be kept");
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn heartbeat(&self, run: RunId, execution: &str) {
        let Some(plane) = &self.plane else {
            return;
        };
        let report = HeartbeatReport {
            timestamp: Timestamp::now(),
            progress: None,
        };
        let kept = of_run(run, None, plane.heartbeat(execution, &report))
            .map_err(|error| error.to_string())
            .and_then(|message| {
                let kept = self.outbox.enqueue(message, report.timestamp);
                kept.map_err(|error| error.to_string())
            });
        // The next one says the same.
        if let Err(error) = kept {
            tracing::warn!(run_id = %run, error, "a heartbeat was left out");
        }
    }

    /// How much waits, for admission and for the metrics.
    fn look(&self) {
        match self.outbox.waiting() {
            Ok((messages, bytes)) => {
                self.waiting.store(messages, Ordering::Release);
                self.waiting_bytes.store(bytes, Ordering::Release);
                self.metrics.outbox(messages, bytes);
            }
            Err(error) => tracing::error!(%error, "the outbox cannot be read"),
        }
    }
}

impl About<'_> {
    fn execution(&self) -> String {
        self.execution_id
            .map_or_else(|| self.run.to_string(), str::to_owned)
    }
}

/// Order is kept per run of ours: a client may use one name twice.
fn of_run(
    run: RunId,
    trace: Option<TraceHeaders>,
    made: Result<Message, BadMessage>,
) -> Result<Message, BadMessage> {
    made.map(|message| Message {
        run: run.to_string(),
        trace,
        ..message
    })
}

/// An operator who leaves out what was configured before should know what waits.
fn warn_of_forgotten_best_effort(dir: &DataDir) {
    if !dir.outbox().exists() {
        return;
    }
    let waiting = Outbox::open_with(dir, Limits::default()).and_then(|outbox| outbox.waiting());
    if let Ok((messages @ 1.., _)) = waiting {
        tracing::warn!(
            messages,
            "reports wait to be delivered, and nobody is configured to be told"
        );
    }
}
