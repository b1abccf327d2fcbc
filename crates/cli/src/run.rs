//! `cofferdam run`: a command inside limits, streaming, with the command's own exit code.

use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::process::ExitCode;

use cofferdam_contract::codes::{self, ErrorCode};
use cofferdam_contract::ending::{Ending, StopCause};
use cofferdam_contract::enforcement::LimitName;
use cofferdam_contract::limits::Limits;
use cofferdam_contract::mode::{Deed, NetworkReach};
use cofferdam_contract::record::RunRecord;
use cofferdam_contract::request::{
    BackendName, Gpus, Grant, Mount, MountAccess, Network, Request, Root, Workspace,
    WorkspaceAccess,
};
use cofferdam_engine::headstart::Headstart;
use cofferdam_engine::host::Host;
use cofferdam_engine::pipeline::{Evidence, Input, OnLimit, Quarters, Sink, Streams};
use cofferdam_store::results::WorkspaceIs;
use cofferdam_toolchain::{Mode, Source};

use crate::arguments::{LimitArgs, OnOutputLimit, Places, RunArgs};
use crate::burst;
use crate::cache;
use crate::config::{self, DockerFlags, Flags, Merged, Sources};
use crate::containers;
use crate::failure::{self, Failure};
use crate::history;
use crate::inputs::{self, Each, OneInput};
use crate::language::{self, Prepared};
use crate::policy;
use crate::pure::{self, Pure, Wish};
use crate::rootfs;
use crate::terminal::waiting::Waiting;
use crate::wasm;

pub(crate) fn run(mut args: RunArgs, places: Places) -> Result<ExitCode, Failure> {
    let headstart = headstart(&args, &places);
    let host = Host::detect();
    let mode = places.mode;
    let load = |args: &RunArgs, built_in| {
        let flags = Flags {
            mode,
            docker: containers::flags(&args.container),
            ..flags(&args.limits, args.backend)
        };
        config::load(Sources::of_process(places.config.clone(), flags, built_in))
            .map_err(|problems| Failure::problems(ErrorCode::ConfigInvalid, &problems))
    };
    let mut merged = load(&args, Limits::STREAMING)?;
    let network = args.network.network();
    policy::obey(&merged, NetworkReach::from(&network))?;
    if args.language.is_some() {
        // Code is compiled there, whatever the configuration says.
        policy::refuse(merged.mode.value, [Deed::Run(BackendName::Native)])?;
    }
    // Read before signals are taken over: whoever waits for a pipe can still be ended with Ctrl-C.
    let inputs = args.inputs.as_deref().map(inputs::read).transpose()?;
    let is_code = args.language.is_some();
    let source = is_code.then(|| language::source(&args)).transpose()?;
    let cancel = cofferdam_engine::cancel_on_signals().map_err(Failure::from)?;
    if let Some(done) = burst::hand_over(&args, &merged, &cancel)? {
        return Ok(done);
    }
    let dir = history::place(places.data_dir.clone());
    // Held until the run has ended.
    let image = rootfs::find(&args.container, merged.backend.value, dir.as_ref())?;
    let on = (&host, image.as_ref());
    let code = match source.zip(args.language.as_deref()) {
        Some((source, name)) => {
            let source = with_event(source, inputs.as_deref());
            match prepared((name, &source), &places, on, cancel.as_fd())? {
                Some(code) => Some(code),
                None => return Ok(canceled()),
            }
        }
        None => None,
    };
    let pure = args.pure.then(|| args.cache.beside(&args.history));
    let json = args.json;
    // A known answer needs no compiling.
    if let Some(code) = code.as_ref().filter(|_| pure.is_none())
        && let Some(failed) = code.failed_compile(on, cancel.as_fd(), args.begins_at())?
    {
        return not_compiled(&failed, json);
    }
    let capture = json.then_some(args.capture);
    let mut stdin = input(args.stdin.as_deref())?;
    let (mut stdout, mut stderr) = sinks(&args)?;
    let on_output_limit = match args.on_output_limit {
        OnOutputLimit::Stop => OnLimit::Stop,
        OnOutputLimit::Discard => OnLimit::Discard,
    };
    let evidence = if json {
        Evidence::Full
    } else {
        Evidence::Ending
    };
    if let Some(code) = &code {
        merged = load(&args, code.job.run.needs.raise(&Limits::STREAMING))?;
    }
    let asked = wasm::asked(&mut args, merged.backend.value, code.is_some())?;
    let docker = containers::settings(&merged, &args.container)?;
    if let Some(root) = image.as_ref().and(args.root.as_deref()) {
        let fix = "is one root and --image another; leave one of them out";
        return Err(Failure::problem("--root", &root.to_string_lossy(), fix));
    }
    let backends = containers::backends(dir.as_ref(), docker);
    let mut recording =
        history::recording(&args.history, places.data_dir.clone(), &merged.history)?;
    let kept_in = recording.as_ref().map(|recording| recording.dir.clone());
    if let Some(code) = &code {
        let added = code.job.run.env.iter();
        let added = added.map(|(name, value)| format!("{name}={value}").into());
        args.env.splice(0..0, added);
        args.command = code.job.run.argv.iter().map(Into::into).collect();
    }
    let kept = args.history.clone();
    // Held until the run has ended.
    let volumes = cache::for_run(&args, merged.backend.value, cancel.as_fd())?;
    let mut request = request(args, &merged)?;
    volumes.give(&mut request);
    if let Some(code) = &code {
        request.workspace = Some(code.workspace());
    }
    if let Some(image) = &image {
        image.furnish(&mut request);
    }
    if let (Some(inputs), Some(code)) = (inputs, &code) {
        let each = Each {
            code,
            request,
            host: &host,
            cancel: cancel.as_fd(),
            seed: asked.seed,
            on_output_limit,
        };
        let dir = places.data_dir;
        let again = || match recording.take() {
            Some(first) => Ok(Some(first)),
            None => history::recording(&kept, dir.clone(), &merged.history),
        };
        let afterwards =
            |record: &RunRecord| history::afterwards(record, kept_in.as_ref(), &merged.history);
        return each.run(inputs, again, afterwards);
    }
    let about = pure::about(&request);
    let grant = Grant::new(request)
        .map_err(|problems| Failure::problems(ErrorCode::InputInvalid, &problems))?;
    let mut pure_run = None;
    if let Some(cache) = &pure {
        let dir = history::place(places.data_dir);
        let wish = Wish {
            request: grant.request(),
            workspace: code
                .as_ref()
                .map_or(WorkspaceIs::Callers, |_| WorkspaceIs::Fresh),
            asked: &asked,
            compiler: code.as_ref().and_then(Prepared::compiler),
            on_output_limit,
            capture,
            host: &host,
            dir: dir.as_ref(),
            cache,
        };
        let Some(mut run) = Pure::new(&wish, stdin, cancel.as_fd())? else {
            return Ok(canceled());
        };
        if let Some(record) = run.answer()? {
            return Ok(ExitCode::from(tell(&record, code.as_ref(), json)?));
        }
        if let Some(code) = &code
            && let Some(failed) = code.failed_compile(on, cancel.as_fd(), asked.seed)?
        {
            return not_compiled(&failed, json);
        }
        (stdin, stdout, stderr) = run.streams();
        pure_run = Some(run);
    }
    let streams = Streams {
        stdin,
        stdout,
        stderr,
        result: code.as_ref().and_then(Prepared::result),
        on_output_limit,
        evidence,
        cancel: Some(cancel.as_fd()),
        recording,
        usage: None,
    };
    // What a program prints meanwhile is the terminal's own.
    let waiting = (json || pure_run.is_some()).then(|| Waiting::on("running"));
    let record = backends.run(Quarters::New(headstart), &asked, grant, streams, &host)?;
    drop(waiting);
    if let Some(run) = &pure_run {
        run.ran(&record, &about)?;
    }
    let exit_code = tell(&record, code.as_ref(), json)?;
    history::afterwards(&record, kept_in.as_ref(), &merged.history);
    Ok(ExitCode::from(exit_code))
}

/// Where it looks as if a sandbox of ours will be built here and now.
fn headstart(args: &RunArgs, places: &Places) -> Option<Headstart> {
    let here = places.mode != Some(cofferdam_contract::mode::Mode::Burst);
    let ours = here && matches!(args.backend, None | Some(BackendName::Native));
    let soon = args.language.is_none() && args.network.network() == Network::Denied;
    (ours && soon).then(Headstart::begin).flatten()
}

fn canceled() -> ExitCode {
    ExitCode::from(codes::exit_code(&Ending::Stopped(StopCause::Canceled)))
}

/// A handler is laid out with the first event; the others take its place.
fn with_event(mut source: Source, inputs: Option<&[OneInput]>) -> Source {
    if let Some(event) = inputs.and_then(|inputs| inputs.first()?.event.clone()) {
        source.mode = Mode::Handler { event };
    }
    source
}

/// Source code of a language, ready to run; nothing where somebody canceled.
fn prepared(
    (name, source): (&str, &Source),
    places: &Places,
    on: language::On<'_>,
    cancel: BorrowedFd<'_>,
) -> Result<Option<Prepared>, Failure> {
    let dir = history::place(places.data_dir.clone()).ok_or_else(|| {
        Failure::problem(
            "--data-dir",
            "",
            "says where the code is laid out; name a directory",
        )
    })?;
    language::prepare(name, source, &dir, on, Some(cancel))
}

/// What a compiler refuses is told as it told it, with its own exit code.
fn not_compiled(record: &RunRecord, json: bool) -> Result<ExitCode, Failure> {
    match json {
        true => failure::print(&to_json(record)?)?,
        false => language::show(record),
    }
    Ok(ExitCode::from(codes::exit_code(&record.ending)))
}

/// Tells how it went, and what the command line exits with.
fn tell(record: &RunRecord, code: Option<&Prepared>, json: bool) -> Result<u8, Failure> {
    let exit_code = codes::exit_code(&record.ending);
    if json {
        failure::print(&to_json(record)?)?;
        return Ok(exit_code);
    }
    explain(&record.ending);
    history::tell_unrecorded(record);
    let has_ended = matches!(record.ending, Ending::Exited { .. });
    let Some(code) = code.filter(|_| has_ended) else {
        return Ok(exit_code);
    };
    match code.answer(record) {
        Ok(value) => {
            failure::print(&value.unwrap_or_default())?;
            Ok(exit_code)
        }
        Err(why) => {
            language::tell_bad_answer(&why);
            Ok(exit_code.max(1))
        }
    }
}

pub(crate) fn flags(limits: &LimitArgs, backend: Option<BackendName>) -> Flags {
    Flags {
        mode: None,
        backend,
        wall_time: limits.timeout,
        cpu_time: limits.cpu_time,
        memory: limits.memory,
        output: limits.output_limit,
        processes: limits.pids,
        disk: limits.disk,
        open_files: limits.open_files,
        cpus: limits.cpus,
        disk_io: limits.disk_io(),
        docker: DockerFlags::default(),
    }
}

fn request(args: RunArgs, merged: &Merged) -> Result<Request, Failure> {
    Ok(Request {
        argv: args.command,
        env: args
            .env
            .into_iter()
            .map(variable)
            .collect::<Result<_, _>>()?,
        cwd: args.cwd,
        limits: merged.limits(),
        waived: args
            .waive
            .iter()
            .map(|name| waived(name))
            .collect::<Result<_, _>>()?,
        network: args.network.network(),
        root: args.root.map_or(Root::HostUsr, Root::Dir),
        workspace: args.workspace.map(workspace),
        mounts: args
            .mount
            .into_iter()
            .map(mount)
            .collect::<Result<_, _>>()?,
        backend: merged.backend.value,
        gpus: args.gpu.unwrap_or(Gpus::None),
    })
}

/// `KEY=VALUE`, or `KEY` for the caller's own value.
pub(crate) fn variable(text: OsString) -> Result<(OsString, OsString), Failure> {
    let bytes = text.as_bytes();
    match bytes.iter().position(|&byte| byte == b'=') {
        Some(at) => Ok((os(&bytes[..at]), os(&bytes[at + 1..]))),
        None => match std::env::var_os(&text) {
            Some(value) => Ok((text, value)),
            None => Err(Failure::problem(
                "--env",
                &text.to_string_lossy(),
                "you have no such variable; write KEY=VALUE",
            )),
        },
    }
}

pub(crate) fn waived(name: &str) -> Result<LimitName, Failure> {
    let wanted = name.replace('-', "_");
    LimitName::ALL
        .into_iter()
        .find(|limit| limit.as_str() == wanted)
        .ok_or_else(|| {
            let known = LimitName::ALL.map(LimitName::as_str).join(", ");
            Failure::problem(
                "--waive",
                name,
                format!("there is no such limit; the limits are {known}"),
            )
        })
}

/// `DIR[:ro|rw|cow]`. A directory whose own name ends like that can be given with the access spelled out.
pub(crate) fn workspace(text: OsString) -> Workspace {
    let (path, access) = match split_suffix(&text, &[":rw", ":ro", ":cow"]) {
        Some((path, ":rw")) => (path, WorkspaceAccess::ReadWrite),
        Some((path, ":cow")) => (path, WorkspaceAccess::CopyOnWrite),
        Some((path, _)) => (path, WorkspaceAccess::ReadOnly),
        None => (text, WorkspaceAccess::ReadOnly),
    };
    Workspace {
        path: path.into(),
        access,
    }
}

/// `FROM:TO[:ro|rw]`.
pub(crate) fn mount(text: OsString) -> Result<Mount, Failure> {
    let (pair, access) = match split_suffix(&text, &[":rw", ":ro"]) {
        Some((pair, ":rw")) => (pair, MountAccess::ReadWrite),
        Some((pair, _)) => (pair, MountAccess::ReadOnly),
        None => (text.clone(), MountAccess::ReadOnly),
    };
    let bytes = pair.as_bytes();
    let Some(at) = bytes
        .iter()
        .rposition(|&byte| byte == b':')
        .filter(|&at| at > 0)
    else {
        return Err(Failure::problem(
            "--mount",
            &text.to_string_lossy(),
            "write FROM:TO, such as /data:/data:ro",
        ));
    };
    Ok(Mount {
        source: os(&bytes[..at]).into(),
        target: os(&bytes[at + 1..]).into(),
        access,
    })
}

fn split_suffix(text: &OsStr, suffixes: &[&'static str]) -> Option<(OsString, &'static str)> {
    suffixes.iter().find_map(|suffix| {
        let rest = text.as_bytes().strip_suffix(suffix.as_bytes())?;
        Some((os(rest), *suffix))
    })
}

fn os(bytes: &[u8]) -> OsString {
    OsString::from_vec(bytes.to_vec())
}

/// By default the caller's own standard input, unless that is a terminal which belongs to somebody else: reading it from the background would stop us.
fn input(stdin: Option<&std::path::Path>) -> Result<Input, Failure> {
    let own = || {
        let stdin = std::io::stdin();
        let foreign_terminal = rustix::termios::isatty(&stdin)
            && rustix::termios::tcgetpgrp(&stdin).ok() != Some(rustix::process::getpgrp());
        if foreign_terminal {
            return Ok(Input::Empty);
        }
        let copy = stdin.as_fd().try_clone_to_owned();
        copy.map(Input::From).map_err(|error| {
            Failure::io(
                ErrorCode::InputUnreadable,
                "cannot use standard input",
                &error,
            )
        })
    };
    match stdin {
        None => own(),
        Some(path) if path.as_os_str() == "-" => own(),
        Some(path) if path.as_os_str() == "none" => Ok(Input::Empty),
        Some(path) => match open_input(path) {
            Ok(file) if file.metadata().is_ok_and(|found| found.is_dir()) => Err(Failure::problem(
                "--stdin",
                &path.to_string_lossy(),
                "this is a directory; name a file",
            )),
            Ok(file) => Ok(Input::From(file.into())),
            Err(error) => {
                let what = format!("--stdin: cannot read `{}`", path.display());
                Err(Failure::io(ErrorCode::InputUnreadable, &what, &error))
            }
        },
    }
}

/// Without waiting: a named pipe that nobody writes to is not worth hanging for before any clock runs.
pub(crate) fn open_input(path: &std::path::Path) -> std::io::Result<std::fs::File> {
    use std::os::unix::fs::OpenOptionsExt as _;
    let flags = rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::NOCTTY;
    std::fs::OpenOptions::new()
        .read(true)
        .custom_flags(flags.bits().cast_signed())
        .open(path)
}

fn sinks(args: &RunArgs) -> Result<(Sink, Sink), Failure> {
    if args.json {
        let at_most = usize::try_from(args.capture.get()).unwrap_or(usize::MAX);
        return Ok((Sink::Keep { at_most }, Sink::Keep { at_most }));
    }
    let pass = |copy: std::io::Result<OwnedFd>| {
        copy.map(|to| Sink::Pass { to }).map_err(|error| {
            Failure::io(
                ErrorCode::OutputWriteFailed,
                "cannot use an output stream",
                &error,
            )
        })
    };
    let stdout = pass(std::io::stdout().as_fd().try_clone_to_owned())?;
    let stderr = pass(std::io::stderr().as_fd().try_clone_to_owned())?;
    Ok((stdout, stderr))
}

/// The one line that a stop or a failed start is worth.
fn explain(ending: &Ending) {
    use std::io::Write as _;
    let line = match ending {
        Ending::Exited { .. } | Ending::Signaled { .. } => return,
        Ending::Stopped(cause) => cause.explain(),
        Ending::NeverStarted(failure) => {
            format!("{} [{}]", failure.message, failure.code().as_str())
        }
    };
    let line = failure::visible(&failure::without_secrets(&line));
    let _ = writeln!(std::io::stderr(), "cofferdam: {line}");
}

fn to_json(record: &RunRecord) -> Result<String, Failure> {
    let mut text = serde_json::to_string(record)
        .map_err(|error| Failure::new(ErrorCode::Internal, error.to_string()))?;
    text.push('\n');
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_workspace_is_read_only_unless_said_otherwise() {
        let access = |text: &str| workspace(text.into()).access;
        assert_eq!(access("./job"), WorkspaceAccess::ReadOnly);
        assert_eq!(access("./job:rw"), WorkspaceAccess::ReadWrite);
        assert_eq!(access("./job:cow"), WorkspaceAccess::CopyOnWrite);
        assert_eq!(workspace("a:b".into()).path, std::path::Path::new("a:b"));
    }

    #[test]
    fn a_mount_splits_at_its_last_colon() {
        let read = mount("/a:b:/c:rw".into()).unwrap();
        assert_eq!(
            (read.source, read.target, read.access),
            ("/a:b".into(), "/c".into(), MountAccess::ReadWrite)
        );
        assert!(mount("/data".into()).is_err());
    }

    #[test]
    fn an_unknown_waiver_names_the_limits() {
        let failure = waived("memroy").unwrap_err();
        assert!(format!("{failure:?}").contains("wall_time"), "{failure:?}");
    }
}
