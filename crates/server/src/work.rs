//! Carrying out one run: its workspace, the compile step where there is one, the run itself through the engine. Blocks; has a thread of its own.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cofferdam_contract::ending::Ending;
use cofferdam_contract::kept_record::KeptRecord;
use cofferdam_contract::limits::Limits;
use cofferdam_contract::record::RunRecord;
use cofferdam_contract::request::{Grant, Network, Request, Workspace, WorkspaceAccess};
use cofferdam_contract::seal::Sealed;
use cofferdam_contract::task::Task as ContractTask;
use cofferdam_contract::units::{Bytes, Cap};
use cofferdam_engine::host::Host;
use cofferdam_engine::pipeline::{
    self, Evidence, Input, KeptFiles, LiveUsage, OnLimit, Recording, Sink, Streams,
};
use cofferdam_engine::pool::{Pool, Private, Seat};
use cofferdam_store::model::RunKind;
use cofferdam_store::private_dir::PrivateDir;
use cofferdam_store::results::ResultKey;
use cofferdam_store::sift::redact;
use cofferdam_store::{DataDir, RunId};
use cofferdam_toolchain::ResultChannel;

use crate::asked_image::RootWish;
use crate::away::Sent;
use crate::backends::{self, Asked, Backends};
use crate::body::Room;
use crate::config::Remembrance;
use crate::fault::Fault;
use crate::inputs::{self, Inputs};
use crate::kept;
use crate::known::{Declared, KnownAnswers};
use crate::language;
use crate::live::{Finished, Live, Stage};
use crate::payload;
use crate::project::{self, ProjectTask};
use crate::trace::RunPhase;
use crate::workspace::PlacedFile;

/// What is to be done, checked as far as it can be before its turn.
#[derive(Debug, Clone)]
pub(crate) struct Work {
    pub(crate) kind: RunKind,
    pub(crate) task: Task,
    pub(crate) limits: Limits,
    pub(crate) stdin: Vec<u8>,
    pub(crate) tags: BTreeMap<String, String>,
    pub(crate) parent: Option<RunId>,
    pub(crate) workspace: WorkspaceWish,
    /// What the program may do there. Compiling always writes.
    pub(crate) access: WorkspaceAccess,
    pub(crate) network: Network,
    pub(crate) root: RootWish,
    /// Where randomness begins, if it must give the same each time.
    pub(crate) seed: Option<u64>,
    /// The payload that it came in, where it did.
    pub(crate) sealed: Option<Arc<Sealed>>,
    /// Of the request that it came with; held until it is done.
    pub(crate) room: Option<Room>,
    pub(crate) declared: Declared,
    pub(crate) known: Option<ResultKey>,
    /// What is sent of it where another machine carries it out.
    pub(crate) errand: Option<Box<Sent>>,
}

#[derive(Debug, Clone)]
pub(crate) enum Task {
    Command(CommandTask),
    /// A command as it was sealed.
    Payload(Arc<Sealed>),
    /// Several commands: what its ecosystem does for an action.
    Project(Box<ProjectTask>),
}

#[derive(Debug, Clone)]
pub(crate) struct CommandTask {
    pub(crate) argv: Vec<OsString>,
    pub(crate) env: Vec<(OsString, OsString)>,
    pub(crate) cwd: Option<PathBuf>,
    /// Run before, in the same workspace; when it fails, nothing else is run.
    pub(crate) compile: Option<Box<CompileStep>>,
    /// Whether the program can answer apart from what it prints.
    pub(crate) channel: ResultChannel,
    /// The program is run once for each of them, instead of once.
    pub(crate) inputs: Option<Box<Inputs>>,
}

#[derive(Debug, Clone)]
pub(crate) struct CompileStep {
    pub(crate) argv: Vec<OsString>,
    pub(crate) env: Vec<(OsString, OsString)>,
    pub(crate) limits: Limits,
}

#[derive(Debug, Clone)]
pub(crate) enum WorkspaceWish {
    None,
    /// A directory of its own with these files, which goes afterwards; what the program leaves there becomes artifacts.
    Private(Vec<PlacedFile>),
}

/// What is left of a run that nothing needs any more. Dropping it takes time.
#[derive(Debug, Default)]
pub(crate) struct Left {
    workspace: Option<PrivateDir>,
}

/// What every run of the daemon shares.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place<'a> {
    pub(crate) dir: &'a DataDir,
    pub(crate) kept: &'a Remembrance,
    pub(crate) known: &'a KnownAnswers,
    pub(crate) host: &'a Host,
    pub(crate) pool: Option<&'a Pool>,
    pub(crate) backends: &'a Backends,
}

impl Place<'_> {
    pub(crate) fn recording(&self) -> Recording {
        let mut recording = Recording::new(self.dir.clone());
        recording.rules = self.kept.rules.clone();
        recording
    }
}

impl Work {
    /// About how many bytes of what a client sent it holds.
    pub(crate) fn weight(&self) -> usize {
        let pairs = |pairs: &[(OsString, OsString)]| -> usize {
            pairs
                .iter()
                .map(|(name, value)| name.len() + value.len())
                .sum()
        };
        let texts = |texts: &[OsString]| -> usize { texts.iter().map(|text| text.len()).sum() };
        let files = match &self.workspace {
            WorkspaceWish::None => 0,
            WorkspaceWish::Private(files) => files.iter().map(PlacedFile::weight).sum(),
        };
        let task = match &self.task {
            Task::Payload(sealed) => match &sealed.payload().task {
                ContractTask::Wasm(task) => task.module_base64.len(),
                _ => sealed.stdin().len(),
            },
            Task::Project(task) => task.weight(),
            Task::Command(task) => {
                let inputs = task.inputs.as_ref().map_or(0, |inputs| {
                    let each = inputs.each.iter().map(|input| {
                        let event = input.event.as_ref().map_or(0, PlacedFile::weight);
                        input.stdin.len() + texts(&input.argv) + event
                    });
                    each.sum()
                });
                texts(&task.argv) + pairs(&task.env) + inputs
            }
        };
        self.stdin.len() + files + task
    }

    /// The values of variables whose names say that they are secrets.
    fn env_secrets(request: &Request) -> Vec<Vec<u8>> {
        let sensitive = request.env.iter().filter_map(|(name, value)| {
            let is_sensitive = name.to_str().is_some_and(redact::is_sensitive_name);
            is_sensitive.then(|| value.as_encoded_bytes().to_vec())
        });
        sensitive.collect()
    }

    pub(crate) fn secrets(&self) -> Vec<Vec<u8>> {
        let request = self.request(None).ok();
        request.as_ref().map_or_else(Vec::new, Self::env_secrets)
    }

    pub(crate) fn command_line(&self) -> Vec<String> {
        match &self.task {
            Task::Command(task) => readable(&task.argv),
            Task::Project(task) => task.command_line(),
            Task::Payload(sealed) => match sealed.to_request(payload::place(sealed, None)) {
                Ok(request) => readable(&request.argv),
                Err(_) => Vec::new(),
            },
        }
    }

    /// What it takes of the memory budget, whichever step needs more; `None` for no limit.
    pub(crate) fn memory(&self) -> Option<Bytes> {
        let own = self.limits.memory.at_most()?;
        let task = match &self.task {
            Task::Command(task) => task,
            Task::Payload(sealed) => return Some(own.max(backends::memory_to_compile(sealed))),
            Task::Project(_) => return Some(own),
        };
        let own = match &task.inputs {
            Some(inputs) => inputs.memory()?,
            None => own,
        };
        match &task.compile {
            Some(step) => Some(own.max(step.limits.memory.at_most()?)),
            None => Some(own),
        }
    }

    /// Whether the program can answer apart from what it prints.
    pub(crate) fn answers(&self) -> bool {
        self.channel().is_open()
    }

    pub(crate) fn channel(&self) -> ResultChannel {
        match &self.task {
            Task::Command(task) => task.channel,
            Task::Payload(_) | Task::Project(_) => ResultChannel::None,
        }
    }

    /// The run as the engine will be asked for it, for checks before its turn comes.
    pub(crate) fn request(&self, workspace: Option<PathBuf>) -> Result<Request, Fault> {
        match &self.task {
            // Not the network that it asks for, but what it was given.
            Task::Payload(sealed) => sealed
                .to_request(payload::place(sealed, workspace))
                .map_err(|error| {
                    let code = cofferdam_contract::codes::ErrorCode::BackendUnsupportedTask;
                    Fault::coded(code, error.to_string())
                })
                .map(|request| request.reaching(&self.network)),
            // Stands for its steps, of which more is known when it is unpacked.
            Task::Project(task) => Ok(self.plain(vec!["true".into()], task.env.clone(), workspace)),
            Task::Command(task) => {
                let mut request = Request {
                    cwd: task.cwd.clone(),
                    ..self.plain(task.argv.clone(), task.env.clone(), workspace)
                };
                self.root.give(&mut request);
                Ok(request)
            }
        }
    }

    /// The engine's own checks, and whether it can be made to give the same each time where that was asked for.
    pub(crate) fn grant(&self, request: Request) -> Result<Grant, Fault> {
        let grant = Grant::new(request)?;
        Ok(match self.seed {
            Some(seed) => grant.deterministic(seed)?,
            None => grant,
        })
    }

    fn plain(
        &self,
        argv: Vec<OsString>,
        env: Vec<(OsString, OsString)>,
        workspace: Option<PathBuf>,
    ) -> Request {
        Request {
            env,
            limits: self.limits.clone(),
            network: self.network.clone(),
            workspace: workspace.map(|path| Workspace {
                path,
                access: self.access,
            }),
            ..Request::command(argv)
        }
    }

    /// What has to be removed when its end is known is `left`.
    pub(crate) fn carry_out(
        self,
        live: &Live,
        place: Place<'_>,
        left: &mut Left,
    ) -> Result<Finished, Fault> {
        #[cfg(test)]
        tests::panic_if_asked(&self);
        let mut seat = self.seat(place);
        let private = self.prepare(live.id, place.dir, seat.as_mut())?;
        if let (Task::Project(task), Some(private)) = (&self.task, private.as_ref()) {
            return project::carry_out(&self, task, live, place, private);
        }
        let path = private.as_ref().map(|dir| dir.path().to_owned());
        if let Some(mut failed) = self.compile(live, place, path.clone())? {
            kept::keep(place, live, &self, &mut failed);
            return Ok(Finished::without_files(failed, Stage::Compile));
        }
        if let Some((inputs, private)) = self.inputs().zip(private.as_ref()) {
            let (mut record, outcomes) = inputs::carry_out(&self, inputs, live, place, private)?;
            kept::keep(place, live, &self, &mut record);
            return Ok(Finished {
                inputs: Some(outcomes),
                ..Finished::without_files(record, Stage::Run)
            });
        }
        let channel = self.channel();
        let mut request = self.request(path)?;
        request.limits.wall_time = within(request.limits.wall_time, live.deadline);
        let mut recording = place.recording();
        let files = KeptFiles::default();
        recording.files = Some(files.clone());
        recording.artifacts = place.kept.artifacts;
        recording.run_id = live.id;
        recording.kind = self.kind;
        recording.tags = self.tags;
        recording.parent = self.parent;
        recording.sender = Some(live.tenant.clone());
        recording.execution_id.clone_from(&live.execution_id);
        recording.payload = self.sealed.as_ref().map(|sealed| sealed.json().clone());
        let asked = Asked {
            code: payload::brought_along(self.task),
            image: self.root.container().map(str::to_owned),
            seed: self.seed,
        };
        let stdin = input_of(self.stdin);
        let cancel = live.cancel.descriptor()?;
        let cancel = cancel.as_ref().map(|cancel| cancel.as_fd());
        let mut streams = streams(&request, stdin, recording, cancel, Arc::clone(&live.usage));
        streams.result = channel.is_open().then_some(language::KEEP_OF_CHANNEL);
        let phase = live.trace.phase(RunPhase::Run);
        let grant = Grant::new(request)?;
        let (quarters, host) = (seat.into(), place.host);
        let ran = place.backends.run(quarters, &asked, grant, streams, host);
        drop(phase);
        let mut record = ran?;
        let _phase = live.trace.phase(RunPhase::Record);
        let answer = language::answer(channel, &record);
        let known = self.known.zip(KeptRecord::of(&record));
        // Read; no use in remembering it twice.
        record.result = None;
        let (artifacts, left_out) = files.told();
        if artifacts.is_empty() && left_out.is_empty() {
            place.known.keep(known, live, &place.kept.rules);
        }
        left.workspace = private;
        Ok(Finished {
            artifacts,
            left_out,
            answer,
            ..Finished::without_files(record, Stage::Run)
        })
    }

    fn inputs(&self) -> Option<&Inputs> {
        match &self.task {
            Task::Command(task) => task.inputs.as_deref(),
            Task::Payload(_) | Task::Project(_) => None,
        }
    }

    /// A sandbox of the pool's, if it has such.
    fn seat(&self, place: Place<'_>) -> Option<Seat> {
        let is_one = self.inputs().is_none()
            && !matches!(self.task, Task::Project(_))
            && matches!(self.root, RootWish::Hosts);
        // What stands already was built for anybody: its addresses, clocks and numbers are its own.
        let pool = place.pool.filter(|_| is_one && self.seed.is_none())?;
        let private = match &self.workspace {
            WorkspaceWish::None => Private::Nothing,
            WorkspaceWish::Private(_) if self.access == WorkspaceAccess::ReadWrite => {
                Private::Workspace
            }
            WorkspaceWish::Private(_) => return None,
        };
        let request = self.request(None).ok()?;
        pool.seat_or_build(&request, EVIDENCE, private)
    }

    fn prepare(
        &self,
        run: RunId,
        dir: &DataDir,
        mut seat: Option<&mut Seat>,
    ) -> Result<Option<PrivateDir>, Fault> {
        let WorkspaceWish::Private(files) = &self.workspace else {
            return Ok(None);
        };
        let private = match seat.as_deref_mut().and_then(Seat::take_workspace) {
            Some(private) => private,
            None => PrivateDir::create(dir, run)?,
        };
        let is_there = |file: &&PlacedFile| {
            let seat = seat.as_deref();
            seat.is_some_and(|seat| seat.has_placed(&file.path, &file.content))
        };
        for file in files.iter().filter(|file| !is_there(file)) {
            let placed = private.place(&file.path, &file.content, file.executable.mode());
            placed.map_err(|error| {
                tracing::warn!(run_id = %run, %error, "a file could not be placed");
                let fix =
                    "cannot be placed; no file may have the name of another or of its directory";
                Fault::invalid("files", &file.path, fix)
            })?;
        }
        Ok(Some(private))
    }

    /// The record of a compile step that failed; `None` when there is none or it went well.
    fn compile(
        &self,
        live: &Live,
        place: Place<'_>,
        workspace: Option<PathBuf>,
    ) -> Result<Option<RunRecord>, Fault> {
        let Task::Command(CommandTask {
            compile: Some(step),
            ..
        }) = &self.task
        else {
            return Ok(None);
        };
        let mut request = self.request(workspace)?;
        request.argv.clone_from(&step.argv);
        request.env.clone_from(&step.env);
        self.root.give(&mut request);
        request.limits.clone_from(&step.limits);
        request.network = Network::Denied;
        if let Some(workspace) = &mut request.workspace {
            workspace.access = WorkspaceAccess::ReadWrite;
        }
        request.limits.wall_time = within(request.limits.wall_time, live.deadline);
        let mut recording = place.recording();
        recording.rules = live.rules(&place.kept.rules);
        recording.kind = RunKind::Build;
        recording.parent = Some(live.id);
        recording.sender = Some(live.tenant.clone());
        recording.artifacts = None;
        let cancel = live.cancel.descriptor()?;
        let cancel = cancel.as_ref().map(|cancel| cancel.as_fd());
        let streams = streams(
            &request,
            Input::Empty,
            recording,
            cancel,
            Arc::clone(&live.usage),
        );
        let _phase = live.trace.phase(RunPhase::Build);
        let record = pipeline::run(self.grant(request)?, streams, place.host)?;
        let went_well = record.ending == Ending::Exited { code: 0 };
        Ok((!went_well).then_some(record))
    }
}

pub(crate) fn input_of(bytes: Vec<u8>) -> Input {
    match bytes {
        bytes if bytes.is_empty() => Input::Empty,
        bytes => Input::Bytes(bytes),
    }
}

/// A client wants to know what its program tried.
const EVIDENCE: Evidence = Evidence::Full;

/// Everything within the output limit is kept, so that what is cut off is always over the limit.
pub(crate) fn streams<'a>(
    request: &Request,
    stdin: Input,
    recording: Recording,
    cancel: Option<BorrowedFd<'a>>,
    usage: Arc<LiveUsage>,
) -> Streams<'a> {
    const WITHOUT_LIMIT: usize = 16 << 20;
    let at_most = request
        .limits
        .output
        .at_most()
        .map_or(WITHOUT_LIMIT, |limit| {
            usize::try_from(limit.get()).unwrap_or(WITHOUT_LIMIT)
        });
    Streams {
        usage: Some(usage),
        stdin,
        stdout: Sink::Keep { at_most },
        stderr: Sink::Keep { at_most },
        result: None,
        on_output_limit: OnLimit::Stop,
        evidence: EVIDENCE,
        cancel,
        recording: Some(recording),
    }
}

/// A run never goes on after its deadline, however long it waited.
pub(crate) fn within(limit: Cap<Duration>, deadline: Instant) -> Cap<Duration> {
    let left = deadline
        .saturating_duration_since(Instant::now())
        .max(Limits::WALL_TIME.min);
    Cap::AtMost(limit.at_most().map_or(left, |limit| limit.min(left)))
}

fn readable(argv: &[OsString]) -> Vec<String> {
    argv.iter()
        .map(|argument| argument.to_string_lossy().into_owned())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::accepted::Accepted;
    use crate::archive::Archive;
    use crate::auth::Caller;
    use crate::config::{Callbacks, RunBounds};
    use crate::language::Languages;
    use crate::live::{Outcome, Phase};
    use crate::metrics::Metrics;
    use crate::reports::Reports;
    use crate::runner::Runner;
    use crate::submission::RunRequest;

    const ASKED: &str = "panic";

    pub(super) fn panic_if_asked(work: &Work) {
        assert!(!work.tags.contains_key(ASKED), "as asked");
    }

    #[test]
    fn a_panic_in_one_run_is_its_own_fault_and_the_next_one_runs() {
        let top = tempfile::tempdir().unwrap();
        let dir = DataDir::at(top.path().join("data"));
        dir.create().unwrap();
        let archive = Arc::new(Archive::new(dir.clone(), Remembrance::default()));
        let bounds = RunBounds {
            at_once: Some(1),
            ..RunBounds::default()
        };
        let metrics = Arc::new(Metrics::default());
        let reports = Reports::start(&Callbacks::default(), &dir, &metrics).unwrap();
        let accepted = Accepted::open(&dir).unwrap();
        let runner = Arc::new(Runner::new(
            bounds,
            archive,
            metrics,
            Arc::new(reports),
            accepted,
            Vec::new(),
        ));
        let languages = Languages::new(&[]).unwrap();
        let run = |tags: serde_json::Value| {
            let request = serde_json::json!({"command": ["true"], "tags": tags});
            let request: RunRequest = crate::body::typed(request).unwrap();
            let made = request
                .check(runner.bounds(), &languages, &runner.host)
                .unwrap();
            let caller = Caller::local();
            let live = runner.submit(made, &caller).unwrap();
            let began = Instant::now();
            loop {
                if let Phase::Ended(ended) = live.phase() {
                    return ended;
                }
                assert!(began.elapsed() < Duration::from_secs(60));
                std::thread::sleep(Duration::from_millis(5));
            }
        };
        let failed = run(serde_json::json!({ASKED: "x"}));
        let Outcome::Failed(fault) = &failed.outcome else {
            panic!("{failed:?}");
        };
        assert_eq!(fault.code, "internal");
        let next = run(serde_json::json!({}));
        assert!(matches!(&next.outcome, Outcome::Finished(_)), "{next:?}");
        assert_eq!(runner.load().running, 0);
    }
}
