//! `cofferdam execute`: a sealed payload becomes a result envelope. The digest and the deadline are checked before anything is started.

use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use cofferdam_contract::codes::ErrorCode;
use cofferdam_contract::ending::{Ending, SetupFailureKind};
use cofferdam_contract::envelope::{Answerer, PartialOutput, ResultEnvelope, Status};
use cofferdam_contract::ids;
use cofferdam_contract::mode::{Mode, NetworkReach};
use cofferdam_contract::payload::FilesystemWrite;
use cofferdam_contract::problem::{Problem, Problems};
use cofferdam_contract::record::{CapturedStream, RunRecord};
use cofferdam_contract::request::{
    BackendName, Gpus, Grant, Network, Request, Root, Workspace, WorkspaceAccess,
};
use cofferdam_contract::seal::{RunPlace, Sealed};
use cofferdam_contract::strict_json::MAX_BYTES;
use cofferdam_contract::task::{SourceTask, Task};
use cofferdam_contract::units::Bytes;
use cofferdam_engine::host::Host;
use cofferdam_engine::pipeline::{Evidence, Input, OnLimit, Quarters, Recording, Sink, Streams};
use cofferdam_images::Rootfs;
use cofferdam_server::backends::Asked;
use cofferdam_store::DataDir;
use cofferdam_store::model::RunKind;
use cofferdam_toolchain::Source;
use jiff::Timestamp;

use crate::arguments::{ExecuteArgs, FixedArgs, Places};
use crate::containers::{self, Settings};
use crate::execute_project;
use crate::failure::{self, Failure};
use crate::history;
use crate::keys;
use crate::known::{Known, Question};
use crate::language::{self, Prepared};
use crate::policy;
use crate::receipt;
use crate::rootfs;
use crate::seal::document::Document;
use crate::seal::{entropy, open, pretty};
use crate::terminal::waiting::Waiting;

pub(crate) fn execute(args: &ExecuteArgs, places: Places) -> Result<ExitCode, Failure> {
    // Read before signals are taken over: whoever waits for a pipe can still be ended with Ctrl-C.
    let sealed = open(&Document::read(&args.payload)?)?;
    let backend = backend(args.backend, &sealed, policy::in_force(&places)?);
    let now = Timestamp::now();
    sealed
        .check_deadline(now)
        .map_err(|expired| Failure::new(ErrorCode::PayloadExpired, expired.to_string()))?;
    let dir = history::place(places.data_dir.clone());
    let place = place(backend, args.workspace.as_deref());
    let (docker, merged) = containers::load(&places, backend, &args.container)?;
    policy::obey(&merged, NetworkReach::from(&sealed.payload().network))?;
    // Before the work: a key that cannot be read is no reason to have done it.
    let sign = args.sign.as_deref();
    let sign = sign
        .map(|key| keys::signing(key, dir.as_ref()))
        .transpose()?;
    let finished = |mut envelope: ResultEnvelope| {
        if let Some(key) = &sign {
            receipt::sign(&sealed, &mut envelope, key)?;
        }
        failure::print(&written(&envelope)?)?;
        Ok(match envelope.status {
            Status::Success => ExitCode::SUCCESS,
            Status::Error => ExitCode::FAILURE,
        })
    };
    let image = rootfs::find(&args.container, backend, dir.as_ref())?;
    let cache = args.cache.beside(&args.history);
    let mut question = Question::of_payload(&sealed, &place, image.as_ref(), &Host::detect());
    let seed = seed(args.fixed, &sealed)?;
    let part = format!("{seed:?}").into_bytes();
    question.parts.push(("seed", part));
    let known = Known::of_payload(&sealed, question, &cache, dir.as_ref());
    if let Some(record) = known.as_ref().and_then(Known::answer) {
        return finished(envelope(&sealed, &record, &args.worker)?);
    }
    let settings = history::settings(places.config)?;
    let mut recording = history::recording(&args.history, places.data_dir, &settings)?;
    if let Some(recording) = &mut recording {
        recording.kind = RunKind::Payload;
        recording.payload = Some(sealed.json().clone());
    }
    let kept_in = recording.as_ref().map(|recording| recording.dir.clone());
    let waiting = Waiting::on("running the payload");
    let (envelope, record) = answer(
        &sealed,
        (place, &args.network.network()),
        docker,
        image.as_ref(),
        dir.as_ref(),
        Worker {
            id: &args.worker,
            seed,
            gpus: args.gpu.as_ref().unwrap_or(&Gpus::None),
            cancel: None,
        },
        recording,
    )?;
    drop(waiting);
    let exit_code = finished(envelope)?;
    if let Some(known) = &known {
        known.keep(&record, &sealed.payload().scope);
    }
    history::tell_unrecorded(&record);
    history::afterwards(&record, kept_in.as_ref(), &settings);
    Ok(exit_code)
}

/// What a receipt may add to an envelope, in its quotes and with its name.
const RECEIPT_ROOM: usize = 2 * cofferdam_contract::receipt::LONGEST;

/// What an envelope can carry: with its quoting it must stay within what a reader of JSON accepts.
const MAX_OUTPUT: Bytes = Bytes::new(8 << 20);

/// Native unless another one is named, or the mode has another: a payload is a stranger's, and where it runs is not a matter of defaults. WebAssembly has only one place to run.
pub(crate) fn backend(
    named: Option<BackendName>,
    sealed: &Sealed,
    mode: Option<Mode>,
) -> BackendName {
    named.unwrap_or(match &sealed.payload().task {
        Task::Wasm(_) => BackendName::Wasm,
        Task::Command(_) | Task::Source(_) | Task::Project(_) => {
            mode.map_or(BackendName::Native, Mode::default_backend)
        }
    })
}

/// Whoever runs it may ask for it; what was sealed stays.
pub(crate) fn seed(fixed: FixedArgs, sealed: &Sealed) -> Result<Option<u64>, Failure> {
    fixed.agreed(sealed.payload().seed).map_err(|asked| {
        let fix = "the payload was sealed with another seed, which holds; leave this one out";
        Failure::problem("--seed", &asked.to_string(), fix)
    })
}

pub(crate) fn place(backend: BackendName, workspace: Option<&Path>) -> RunPlace {
    RunPlace {
        backend,
        root: Root::HostUsr,
        workspace: workspace.map(PathBuf::from),
        waived: Vec::new(),
    }
}

/// Who answers, and how.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Worker<'a> {
    pub(crate) id: &'a str,
    /// Where randomness begins, if the answer must be the same each time.
    pub(crate) seed: Option<u64>,
    /// What a payload that asks for them gets.
    pub(crate) gpus: &'a Gpus,
    /// What ends the run when it becomes readable; without it, a signal to this process does.
    pub(crate) cancel: Option<BorrowedFd<'a>>,
}

/// Runs a payload and makes its envelope. A program that is missing or cannot be executed is an answer too, and so is code that does not compile; a sandbox that could not be
/// built is none. Source code is laid out below `dir`.
pub(crate) fn answer(
    sealed: &Sealed,
    (place, ceiling): (RunPlace, &Network),
    docker: Settings,
    image: Option<&Rootfs>,
    dir: Option<&DataDir>,
    worker: Worker<'_>,
    recording: Option<Recording>,
) -> Result<(ResultEnvelope, RunRecord), Failure> {
    let at_most = capture(sealed)?;
    if let Task::Project(task) = &sealed.payload().task {
        if worker.seed.is_some() {
            return Err(Failure::new(
                ErrorCode::BackendUnsupportedTask,
                "--deterministic: a project's steps cannot be made to give the same each time; leave it out",
            ));
        }
        let record = execute_project::run(sealed, task, &place, dir, recording)?;
        return Ok((answered(sealed, &record, worker.id)?, record));
    }
    let host = Host::detect();
    let code = match &sealed.payload().task {
        Task::Source(task) => Some(code(task, &place, dir, (&host, image))?),
        Task::Command(_) | Task::Wasm(_) | Task::Project(_) => None,
    };
    let mut request = match &code {
        Some(code) => source_request(sealed, place, code),
        None => sealed.to_request(place).map_err(|unsupported| {
            Failure::new(ErrorCode::BackendUnsupportedTask, unsupported.to_string())
        })?,
    };
    // A payload is a stranger's: it asks, and whoever runs it says how much it gets.
    request.network = request
        .network
        .within(ceiling)
        .map_err(|problem| Failure::problems(ErrorCode::PayloadInvalid, &Problems::one(problem)))?;
    request.gpus = request
        .gpus
        .within(worker.gpus)
        .map_err(|problem| Failure::problems(ErrorCode::PayloadInvalid, &Problems::one(problem)))?;
    if let Some(image) = image {
        image.furnish(&mut request);
    }
    let grant = Grant::new(request)
        .map_err(|found| Failure::problems(ErrorCode::PayloadInvalid, &found))?;
    let signals = match worker.cancel {
        Some(_) => None,
        None => Some(cofferdam_engine::cancel_on_signals()?),
    };
    let Some(cancel) = worker.cancel.or(signals.as_ref().map(AsFd::as_fd)) else {
        return Err(Failure::new(ErrorCode::Internal, "nothing ends this run"));
    };
    if let Some(code) = &code
        && let Some(mut failed) = code.failed_compile((&host, image), cancel, worker.seed)?
    {
        failed.unrecorded = recording.map(|_| "it did not compile, and nothing was run".to_owned());
        return Ok((envelope(sealed, &failed, worker.id)?, failed));
    }
    let asked = Asked {
        code: match &sealed.payload().task {
            Task::Wasm(task) => Some(task.module()),
            Task::Command(_) | Task::Source(_) | Task::Project(_) => None,
        },
        seed: worker.seed,
        image: None,
    };
    let record = containers::backends(dir, docker).run(
        Quarters::default(),
        &asked,
        grant,
        Streams {
            recording,
            ..streams(sealed, at_most, cancel)
        },
        &host,
    )?;
    Ok((answered(sealed, &record, worker.id)?, record))
}

/// A sandbox that could not be built is no answer.
fn answered(sealed: &Sealed, record: &RunRecord, worker: &str) -> Result<ResultEnvelope, Failure> {
    if let Ending::NeverStarted(failure) = &record.ending
        && failure.kind == SetupFailureKind::Sandbox
    {
        return Err(Failure::new(failure.code(), failure.message.clone()));
    }
    envelope(sealed, record, worker)
}

/// Code runs in a directory of its own, in the sandbox that shows it as the workspace.
fn code(
    task: &SourceTask,
    place: &RunPlace,
    dir: Option<&DataDir>,
    on: language::On<'_>,
) -> Result<Prepared, Failure> {
    let unsupported = |message: &str| Failure::new(ErrorCode::BackendUnsupportedTask, message);
    if place.backend != BackendName::Native {
        return Err(unsupported(
            "--backend: source tasks run in the native backend; leave it out",
        ));
    }
    if place.workspace.is_some() {
        return Err(unsupported(
            "--workspace: source tasks have a directory of their own; leave it out",
        ));
    }
    let dir = dir.ok_or_else(|| {
        let fix = "says where the code is laid out; name a directory";
        Failure::problem("--data-dir", "", fix)
    })?;
    let source = Source::script(task.code.clone());
    // Nobody is asked to cancel here, so that there is always something.
    let prepared = language::prepare(&task.language, &source, dir, on, None)
        .map_err(|failure| failure.with_code(ErrorCode::BackendUnsupportedTask))?;
    prepared.ok_or_else(|| Failure::new(ErrorCode::Internal, "the search was canceled by nobody"))
}

fn source_request(sealed: &Sealed, place: RunPlace, code: &Prepared) -> Request {
    let payload = sealed.payload();
    let step = &code.job.run;
    let access = match payload.filesystem_write {
        FilesystemWrite::Allowed => WorkspaceAccess::ReadWrite,
        FilesystemWrite::Denied => WorkspaceAccess::ReadOnly,
    };
    Request {
        argv: step.argv.iter().map(Into::into).collect(),
        env: step
            .env
            .iter()
            .map(|(name, value)| (name.into(), value.into()))
            .collect(),
        cwd: None,
        limits: payload.limits.clone(),
        waived: place.waived,
        network: payload.network.clone(),
        root: place.root,
        workspace: Some(Workspace {
            access,
            ..code.workspace()
        }),
        mounts: Vec::new(),
        backend: place.backend,
        gpus: payload.gpus.clone(),
    }
}

/// Everything within the limit is kept, so that what is cut off is always over the limit.
fn capture(sealed: &Sealed) -> Result<usize, Failure> {
    let limit = sealed.payload().limits.output.at_most();
    match limit.filter(|limit| *limit <= MAX_OUTPUT) {
        Some(limit) => Ok(usize::try_from(limit.get()).unwrap_or(usize::MAX)),
        None => {
            let asked = limit.map_or_else(|| "unlimited".to_owned(), |limit| limit.to_string());
            let fix = format!(
                "is more than an envelope carries; ask for at most {}, and write larger results to the workspace",
                MAX_OUTPUT.get() >> 10
            );
            let problem = Problem::new("max_output_size_kb", asked, fix);
            Err(Failure::new(
                ErrorCode::LimitUnenforceable,
                problem.to_string(),
            ))
        }
    }
}

fn streams<'a>(sealed: &Sealed, at_most: usize, cancel: BorrowedFd<'a>) -> Streams<'a> {
    Streams {
        stdin: match sealed.input() {
            bytes if bytes.is_empty() => Input::Empty,
            bytes => Input::Bytes(bytes),
        },
        stdout: Sink::Keep { at_most },
        stderr: Sink::Keep { at_most },
        on_output_limit: OnLimit::Stop,
        evidence: Evidence::Full,
        cancel: Some(cancel),
        recording: None,
        usage: None,
        result: None,
    }
}

fn envelope(sealed: &Sealed, record: &RunRecord, worker: &str) -> Result<ResultEnvelope, Failure> {
    let by = Answerer {
        result_id: ids::result_id(Timestamp::now(), entropy()?),
        worker_id: worker.to_owned(),
    };
    let mut envelope = ResultEnvelope::new(sealed, record, by)
        .map_err(|error| Failure::new(ErrorCode::Internal, error.to_string()))?;
    while written(&envelope)?.len().saturating_add(RECEIPT_ROOM) > MAX_BYTES {
        let Some(partial) = &mut envelope.partial_output else {
            break;
        };
        shorten(partial);
    }
    Ok(envelope)
}

/// As people read it; on one line where it would be longer than what readers take. A list in lists is mostly indentation otherwise.
fn written(envelope: &ResultEnvelope) -> Result<String, Failure> {
    let text = pretty(envelope)?;
    if text.len().saturating_add(RECEIPT_ROOM) <= MAX_BYTES {
        return Ok(text);
    }
    let mut text = serde_json::to_string(envelope)
        .map_err(|error| Failure::new(ErrorCode::Internal, error.to_string()))?;
    text.push('\n');
    Ok(text)
}

/// Control characters and base64 take more room in JSON than they did in the stream. What is cut off counts as truncated.
fn shorten(partial: &mut PartialOutput) {
    for stream in [&mut partial.stdout, &mut partial.stderr] {
        let bytes = stream.bytes().unwrap_or_default();
        let half = bytes.get(..bytes.len() / 2).unwrap_or_default();
        *stream = CapturedStream::new(half, stream.original_bytes);
    }
}

/// For the command line, with the rule that the envelope's reader applies: a bad name is found before the work is done.
pub(crate) fn worker_id(text: &str) -> Result<String, String> {
    let is_allowed = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.' | b':');
    if text.is_empty() || text.len() > ids::MAX_ID_CHARACTERS {
        Err(format!("write 1 to {} characters", ids::MAX_ID_CHARACTERS))
    } else if !text.bytes().all(is_allowed) || text.starts_with(['.', '-']) {
        Err("use letters, digits, `-`, `_`, `.` and `:`, and begin with a letter or a digit".into())
    } else {
        Ok(text.to_owned())
    }
}
