//! `cofferdam run --language`: source code instead of a command. Finds what runs the language inside the sandbox, lays the files out in a directory of the run's own, compiles
//! there if the language is compiled, and reads what a handler answered.

use std::os::fd::BorrowedFd;

use cofferdam_contract::codes::ErrorCode;
use cofferdam_contract::ending::{Ending, StopCause};
use cofferdam_contract::limits::Limits;
use cofferdam_contract::record::{CapturedStream, RunRecord};
use cofferdam_contract::request::{Grant, Request, Workspace, WorkspaceAccess};
use cofferdam_engine::host::Host;
use cofferdam_engine::pipeline::{self, OnLimit, Streams};
use cofferdam_images::Rootfs;
use cofferdam_store::private_dir::{self, PrivateDir};
use cofferdam_store::{DataDir, RunId};
use cofferdam_toolchain::{
    Answer, Catalogue, Job, Language, MAX_RESULT_BYTES, Mode, Source, Step, Toolchain, answer, plan,
};

use crate::arguments::RunArgs;
use crate::failure::{self, Failure};
use crate::seal::document::Document;

/// Source code that is ready to run.
#[derive(Debug)]
pub(crate) struct Prepared {
    pub(crate) job: Job,
    dir: PrivateDir,
}

/// This machine, and the image whose programs are used instead of its own.
pub(crate) type On<'a> = (&'a Host, Option<&'a Rootfs>);

/// How much of what a compiler or a probe says is kept.
const KEPT: usize = 256 << 10;

/// Everything that may compile or run this language, whichever of them is chosen; nothing where nobody knows it.
pub(crate) fn programs(name: &str) -> Vec<String> {
    let catalogue = Catalogue::builtin().ok();
    let language = catalogue
        .as_ref()
        .and_then(|catalogue| catalogue.find(name).ok());
    let toolchains = language.iter().flat_map(|language| &language.toolchains);
    toolchains
        .flat_map(Toolchain::programs)
        .map(str::to_owned)
        .collect()
}

/// Finds a toolchain and lays the job out; nothing where that was canceled. Nothing of the user's has run yet.
pub(crate) fn prepare(
    name: &str,
    source: &Source,
    data_dir: &DataDir,
    on: On<'_>,
    cancel: Option<BorrowedFd<'_>>,
) -> Result<Option<Prepared>, Failure> {
    let catalogue =
        Catalogue::builtin().map_err(|bad| Failure::new(ErrorCode::Internal, bad.to_string()))?;
    let language = catalogue
        .find(name)
        .map_err(|unknown| Failure::new(ErrorCode::InputInvalid, unknown.to_string()))?;
    let Some(toolchain) = choose(language, source, on, cancel)? else {
        return Ok(None);
    };
    let job = plan(language, toolchain, source)
        .map_err(|problems| Failure::problems(ErrorCode::InputInvalid, &problems))?;
    private_dir::sweep_best_effort(data_dir);
    let dir = PrivateDir::create(data_dir, RunId::new())?;
    for file in &job.files {
        dir.place(&file.path, &file.bytes, file.mode)?;
    }
    Ok(Some(Prepared { job, dir }))
}

impl Prepared {
    /// What makes the program, where it has to be made.
    pub(crate) fn compiler(&self) -> Option<&str> {
        let step = self.job.compile.as_ref()?;
        step.argv.first().map(String::as_str)
    }

    /// As `run` takes a workspace.
    pub(crate) fn workspace(&self) -> Workspace {
        Workspace {
            path: self.dir.path().to_owned(),
            access: WorkspaceAccess::ReadWrite,
        }
    }

    /// Compiles, if the language is compiled. How that failed; `None` where it went well, or there was nothing to compile. With a seed what comes out is the same each time, as far as the compiler goes.
    pub(crate) fn failed_compile(
        &self,
        on: On<'_>,
        cancel: BorrowedFd<'_>,
        seed: Option<u64>,
    ) -> Result<Option<RunRecord>, Failure> {
        let Some(step) = &self.job.compile else {
            return Ok(None);
        };
        let limits = step.needs.raise(&Limits::DEFAULT);
        let grant = grant(step, limits, Some(self.workspace()), on, seed)?;
        let record = carry_out(grant, on, Some(cancel))?;
        Ok((record.exit_code != Some(0)).then_some(record))
    }

    /// Another event, in the place of the one before it.
    pub(crate) fn place_event(&self, event: &serde_json::Value) -> Result<(), Failure> {
        let file = self
            .job
            .event_file(event)
            .map_err(|problems| Failure::problems(ErrorCode::InputInvalid, &problems))?;
        if let Some(file) = file {
            self.dir.replace(&file.path, &file.bytes, file.mode)?;
        }
        Ok(())
    }

    /// What a handler returned, and what it threw or why there is no answer.
    pub(crate) fn told(
        &self,
        record: &RunRecord,
    ) -> (Option<serde_json::Value>, Option<serde_json::Value>) {
        let bytes = record.result.as_ref().and_then(CapturedStream::bytes);
        match answer(self.job.result, &bytes.unwrap_or_default()) {
            Ok(Answer::Returned(value)) => (Some(value), None),
            Ok(Answer::Raised(raised)) => (None, Some(serde_json::json!(raised))),
            Ok(Answer::Nothing) => (None, None),
            Err(bad) => {
                let raised = serde_json::json!({ "type": "NoAnswer", "message": bad.to_string(), "traceback": "" });
                (None, Some(raised))
            }
        }
    }

    /// What the channel must keep, if there is one: one byte more than an answer may have shows an excess.
    pub(crate) fn result(&self) -> Option<usize> {
        self.job.result.is_open().then_some(MAX_RESULT_BYTES + 1)
    }

    /// The value that a handler returned, as one line; nothing where there was none. A handler that failed has said so itself.
    pub(crate) fn answer(&self, record: &RunRecord) -> Result<Option<String>, String> {
        let bytes = record.result.as_ref().and_then(CapturedStream::bytes);
        match answer(self.job.result, &bytes.unwrap_or_default()) {
            Ok(Answer::Returned(value)) => Ok(Some(format!("{value}\n"))),
            Ok(Answer::Raised(_) | Answer::Nothing) => Ok(None),
            Err(bad) => Err(bad.to_string()),
        }
    }
}

/// What the arguments name. May wait for standard input, or for whoever writes to a pipe.
pub(crate) fn source(args: &RunArgs) -> Result<Source, Failure> {
    let code = match (&args.code, &args.file) {
        (Some(code), None) => code.clone(),
        (None, Some(path)) => read(path)?,
        _ => {
            return Err(Failure::problem(
                "--language",
                args.language.as_deref().unwrap_or_default(),
                "needs source code; give a file, `-` for standard input, or --code TEXT",
            ));
        }
    };
    let mode = match &args.event {
        None => Mode::Script,
        Some(text) => Mode::Handler {
            event: event(text)?,
        },
    };
    let words = args
        .command
        .iter()
        .map(|word| word.to_str().map(str::to_owned));
    let Some(words) = words.collect() else {
        return Err(Failure::problem(
            "arguments",
            "…",
            "are not UTF-8; write plain text",
        ));
    };
    Ok(Source {
        mode,
        args: words,
        ..Source::script(code)
    })
}

fn event(text: &str) -> Result<serde_json::Value, Failure> {
    cofferdam_contract::strict_json::parse(text.as_bytes())
        .map_err(|bad| Failure::new(ErrorCode::InputMalformedJson, format!("--event: {bad}")))
}

fn read(path: &std::path::Path) -> Result<String, Failure> {
    let document = Document::read(path)?;
    String::from_utf8(document.bytes).map_err(|_| {
        let message = format!("{}: is not UTF-8; save it as UTF-8", document.name);
        Failure::new(ErrorCode::InputUnreadable, message)
    })
}

/// The first toolchain that works inside, and can do what is asked; nothing where the search was canceled.
fn choose<'a>(
    language: &'a Language,
    source: &Source,
    on: On<'_>,
    cancel: Option<BorrowedFd<'_>>,
) -> Result<Option<&'a Toolchain>, Failure> {
    let wants_handler = !matches!(source.mode, Mode::Script);
    let mut reasons = Vec::new();
    for toolchain in &language.toolchains {
        if wants_handler && !toolchain.has_handler() {
            reasons.push(format!("{} has no handlers", toolchain.program()));
            continue;
        }
        match probe(toolchain, on, cancel) {
            Ok(Probed::Works) => return Ok(Some(toolchain)),
            Ok(Probed::Canceled) => return Ok(None),
            Err(why) => reasons.push(why),
        }
    }
    let (name, reasons) = (&language.name, reasons.join("; "));
    let message = match on.1 {
        None => format!(
            "--language: {name} does not work here: {reasons}; install one of them where the sandbox sees it, below /usr"
        ),
        Some(_) => format!(
            "--language: {name} does not work in the image: {reasons}; use an image that has one of them"
        ),
    };
    Err(Failure::new(ErrorCode::BackendUnsupportedTask, message))
}

enum Probed {
    Works,
    Canceled,
}

fn probe(
    toolchain: &Toolchain,
    on: On<'_>,
    cancel: Option<BorrowedFd<'_>>,
) -> Result<Probed, String> {
    let is_of_host = on.1.is_none();
    let missing = toolchain
        .programs()
        .into_iter()
        .find(|program| is_of_host && !is_in_view(program));
    if let Some(program) = missing {
        return Err(format!("{program} is not installed"));
    }
    if is_of_host && toolchain.min_version.is_none() {
        return Ok(Probed::Works);
    }
    let step = Step {
        argv: toolchain.probe.clone(),
        env: Vec::new(),
        needs: cofferdam_toolchain::Needs::default(),
    };
    let record = grant(&step, Limits::DEFAULT, None, on, None)
        .and_then(|grant| carry_out(grant, on, cancel))
        .map_err(|_| format!("{} could not be tried", toolchain.program()))?;
    if record.ending == Ending::Stopped(StopCause::Canceled) {
        return Ok(Probed::Canceled);
    }
    if record.exit_code != Some(0) {
        return Err(format!("{} does not start", toolchain.program()));
    }
    let mut said = record.stdout.bytes().unwrap_or_default();
    said.extend(record.stderr.bytes().unwrap_or_default());
    match toolchain.version_from(&said) {
        Ok(_) => Ok(Probed::Works),
        Err(unusable) => Err(unusable.to_string()),
    }
}

/// Where the sandbox looks for programs; all of it is below /usr.
fn is_in_view(program: &str) -> bool {
    let dirs = ["/usr/local/bin", "/usr/bin", "/usr/local/sbin", "/usr/sbin"];
    program.contains('/')
        || dirs
            .iter()
            .any(|dir| std::path::Path::new(dir).join(program).exists())
}

fn grant(
    step: &Step,
    limits: Limits,
    workspace: Option<Workspace>,
    (_, image): On<'_>,
    seed: Option<u64>,
) -> Result<Grant, Failure> {
    let mut request = Request {
        env: step
            .env
            .iter()
            .map(|(name, value)| (name.into(), value.into()))
            .collect(),
        limits,
        workspace,
        ..Request::command(&step.argv)
    };
    if let Some(image) = image {
        image.furnish(&mut request);
    }
    let invalid = |problems| Failure::problems(ErrorCode::InputInvalid, &problems);
    let grant = Grant::new(request).map_err(invalid)?;
    match seed {
        Some(seed) => grant.deterministic(seed).map_err(invalid),
        None => Ok(grant),
    }
}

fn carry_out(
    grant: Grant,
    (host, _): On<'_>,
    cancel: Option<BorrowedFd<'_>>,
) -> Result<RunRecord, Failure> {
    let streams = Streams {
        on_output_limit: OnLimit::Discard,
        cancel,
        ..Streams::kept(KEPT)
    };
    Ok(pipeline::run(grant, streams, host)?)
}

/// Everything that a compiler said.
pub(crate) fn show(record: &RunRecord) {
    use std::io::Write as _;
    for stream in [&record.stdout, &record.stderr] {
        let bytes = stream.bytes().unwrap_or_default();
        let _ = std::io::stderr().write_all(&bytes);
    }
}

/// For whoever asked for an answer and got none.
pub(crate) fn tell_bad_answer(why: &str) {
    use std::io::Write as _;
    let _ = writeln!(std::io::stderr(), "cofferdam: {}", failure::visible(why));
}
