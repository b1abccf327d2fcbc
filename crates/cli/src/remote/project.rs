//! `cofferdam submit --project`: a directory becomes an archive, the daemon works on it, and what it says and finds is shown as the verb here would show it.

use std::io::{BufReader, Write as _};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use cofferdam_contract::codes::ErrorCode;
use cofferdam_contract::units::Cap;
use cofferdam_project::report::Counts;
use cofferdam_workshop::Outcome;
use ignore::WalkBuilder;
use serde_json::{Map, Value, json};

use super::events::Events;
use super::{BREATHING, Patience, Server, ended_with_us, said, unreachable};
use crate::arguments::LimitArgs;
use crate::arguments::remote::{ProjectArgs, RemoteAction, ServerArgs};
use crate::failure::Failure;
use crate::project::Tell;
use crate::run;
use crate::terminal::counts_line::CountsLine;

pub(super) fn submit(
    server: &ServerArgs,
    dir: &Path,
    args: &ProjectArgs,
) -> Result<ExitCode, Failure> {
    let tell = Tell::of(args.json, args.junit.as_ref(), args.sarif.as_ref())?;
    let request = request(args)?;
    let archive = archive(dir, args.all_files)?;
    let cancel = cofferdam_engine::cancel_on_signals().map_err(Failure::from)?;
    let server = Server::new(server)?;
    let boundary = boundary(&archive);
    let kind = format!("multipart/form-data; boundary={boundary}");
    let bytes = body(&boundary, &request, &archive);
    let run = server.send("/v1/runs", &kind, bytes, Patience::Quiet(BREATHING))?;
    drop(archive);
    let id = run["run_id"].as_str().unwrap_or_default().to_owned();
    let run = ended_with_us(&server, &id, &cancel, || follow(&server, &id, args))?;
    tell_run(&run, &tell, dir)
}

/// Shows what the tools say and how many tests have ended, until the run has. Returns it as it ended.
fn follow(server: &Server<'_>, id: &str, args: &ProjectArgs) -> Result<Value, Failure> {
    let is_quiet = args.json || args.quiet;
    let is_run = args.action == RemoteAction::Run;
    let line = CountsLine::of_stderr().filter(|_| !is_quiet && !is_run);
    let mut step = (Value::Null, Value::Null);
    let events = server.get(&format!("/v1/runs/{id}/events"))?;
    for event in Events::new(BufReader::new(events.into_body().into_reader())) {
        let event = event?;
        match event.name.as_str() {
            "output" if !is_quiet => {
                let bytes = said(&event.data).unwrap_or_default();
                let is_printed = event.data["stream"] == "stdout";
                match &line {
                    _ if is_printed && is_run => {
                        let mut stdout = std::io::stdout().lock();
                        let _ = stdout.write_all(&bytes).and_then(|()| stdout.flush());
                    }
                    Some(line) => line.write(&bytes),
                    None => drop(std::io::stderr().write_all(&bytes)),
                }
            }
            "progress" => {
                if let Some(line) = &line {
                    show(line, &event.data, &mut step);
                }
            }
            "end" => {
                drop(line);
                // The end of a stream carries no output; what else there is it has.
                return Ok(event.data);
            }
            "error" => return Err(super::refused(&event.data)),
            _ => {}
        }
    }
    Err(unreachable("it ended before the run did"))
}

/// The daemon's counts are of all steps already.
fn show(line: &CountsLine, data: &Value, step: &mut (Value, Value)) {
    let now = (data["step"].clone(), data["attempt"].clone());
    let counts: Option<Counts> = serde_json::from_value(data["counts"].clone()).ok();
    if *step != now {
        let attempt = data["attempt"].as_u64().and_then(|n| u32::try_from(n).ok());
        let name = data["project"].as_str().unwrap_or_default();
        line.renamed(name, attempt.unwrap_or(1), counts.is_some());
        *step = now;
    }
    if let Some(counts) = counts {
        line.counted(counts);
    }
}

fn tell_run(run: &Value, tell: &Tell, dir: &Path) -> Result<ExitCode, Failure> {
    if run["project"].is_null() {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let why = match &run["error"] {
            Value::Null => text(&run["ending"]["message"]),
            error => return Err(super::refused(error)),
        };
        let message = format!(
            "run {}: {} {why}",
            text(&run["run_id"]),
            text(&run["status"])
        );
        return Err(Failure::new(ErrorCode::ServerRefused, message));
    }
    let outcome: Outcome = serde_json::from_value(run["project"].clone())
        .map_err(|error| unreachable(&format!("its answer cannot be read: {error}")))?;
    tell.outcome(&outcome, dir)?;
    Ok(ExitCode::from(outcome.exit_code))
}

fn request(args: &ProjectArgs) -> Result<Value, Failure> {
    let mut env = Map::new();
    for text in &args.env {
        let (name, value) = run::variable(text.clone())?;
        let text = |text: std::ffi::OsString| {
            text.into_string()
                .map_err(|bad| Failure::problem("--env", &bad.to_string_lossy(), "is not UTF-8"))
        };
        env.insert(text(name)?, json!(text(value)?));
    }
    let action = match args.action {
        RemoteAction::Restore => "restore",
        RemoteAction::Build => "build",
        RemoteAction::Test => "test",
        RemoteAction::Lint => "lint",
        RemoteAction::Format => "format",
        RemoteAction::Run => "run",
        RemoteAction::Task => "task",
    };
    let mut project =
        json!({ "action": action, "only": args.only, "keep": args.keep, "args": args.args });
    let given = [
        ("task", args.task.as_ref().map(|name| json!(name))),
        ("filter", args.filter.as_ref().map(|filter| json!(filter))),
        ("restore", args.restore.then(|| json!(true))),
        ("fail_fast", args.fail_fast.then(|| json!(true))),
        ("coverage", args.coverage.then(|| json!(true))),
        ("retries", (args.retries > 0).then(|| json!(args.retries))),
    ];
    for (name, value) in given {
        if let Some(value) = value {
            project[name] = value;
        }
    }
    Ok(json!({
        "project": project,
        "env": env,
        "limits": limits(&args.limits)?,
        "wait": false,
    }))
}

/// The daemon has no word for no limit at all.
fn limits(args: &LimitArgs) -> Result<Value, Failure> {
    if let Some((name, _)) = args.disk_io() {
        let fix = "is for runs on this machine; a daemon takes it from its own configuration";
        return Err(Failure::problem(name, "", fix));
    }
    fn number<T: Copy>(
        flag: &str,
        limit: Option<Cap<T>>,
        number: impl Fn(T) -> u64,
    ) -> Result<Option<u64>, Failure> {
        match limit {
            None => Ok(None),
            Some(Cap::AtMost(limit)) => Ok(Some(number(limit))),
            Some(Cap::Unlimited) => {
                let fix = "a daemon gives no run everything; leave it out or name a limit";
                Err(Failure::problem(flag, "unlimited", fix))
            }
        }
    }
    let milliseconds = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let given = [
        (
            "wall_time_ms",
            number("--timeout", args.timeout, milliseconds)?,
        ),
        (
            "cpu_time_ms",
            number("--cpu-time", args.cpu_time, milliseconds)?,
        ),
        (
            "memory_bytes",
            number("--memory", args.memory, |size| size.get())?,
        ),
        ("processes", number("--pids", args.pids, |count| count)?),
        (
            "disk_bytes",
            number("--disk", args.disk, |size| size.get())?,
        ),
        (
            "output_bytes",
            number("--output-limit", args.output_limit, |size| size.get())?,
        ),
        (
            "open_files",
            number("--open-files", args.open_files, |count| count)?,
        ),
        (
            "cpus_milli",
            number("--cpus", args.cpus, |share| u64::from(share.milli()))?,
        ),
    ];
    let given = given.into_iter();
    Ok(given
        .filter_map(|(name, value)| Some((name.to_owned(), json!(value?))))
        .collect::<Map<_, _>>()
        .into())
}

/// The source as it lies there. Links are sent as links, and what git keeps for itself stays here.
fn archive(dir: &Path, all_files: bool) -> Result<Vec<u8>, Failure> {
    let unreadable = |what: &Path, error: &std::io::Error| {
        let what = format!("cannot read `{}`", what.display());
        Failure::io(ErrorCode::InputUnreadable, &what, error)
    };
    std::fs::read_dir(dir).map_err(|error| unreadable(dir, &error))?;
    let mut builder = tar::Builder::new(Vec::new());
    builder.follow_symlinks(false);
    builder.mode(tar::HeaderMode::Deterministic);
    let mut walk = WalkBuilder::new(dir);
    walk.standard_filters(!all_files)
        .hidden(false)
        .parents(false)
        .git_global(false)
        .require_git(false)
        .follow_links(false)
        .filter_entry(|entry| entry.file_name() != ".git")
        .sort_by_file_name(std::ffi::OsStr::cmp);
    for entry in walk.build() {
        let entry = entry.map_err(|error| {
            Failure::new(ErrorCode::InputUnreadable, format!("--project: {error}"))
        })?;
        let path = entry.path();
        let is_kept = entry
            .file_type()
            .is_some_and(|kind| kind.is_file() || kind.is_symlink());
        let Some(name) = path.strip_prefix(dir).ok().filter(|_| is_kept) else {
            continue;
        };
        builder
            .append_path_with_name(path, name)
            .map_err(|error| unreadable(path, &error))?;
    }
    builder
        .into_inner()
        .map_err(|error| unreadable(dir, &error))
}

/// Something that the archive does not hold.
fn boundary(archive: &[u8]) -> String {
    let names = (0_u64..).map(|number| format!("cofferdam-{number:016x}"));
    let is_free = |name: &String| {
        let mut windows = archive.windows(name.len());
        !windows.any(|window| window == name.as_bytes())
    };
    names.into_iter().find(is_free).unwrap_or_default()
}

fn body(boundary: &str, request: &Value, archive: &[u8]) -> Vec<u8> {
    let mut body = Vec::with_capacity(archive.len() + 4096);
    let request = request.to_string();
    for (name, contents) in [("request", request.as_bytes()), ("project", archive)] {
        let head =
            format!("--{boundary}\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n");
        body.extend_from_slice(head.as_bytes());
        body.extend_from_slice(contents);
        body.extend_from_slice(b"\r\n");
    }
    body.extend_from_slice(format!("--{boundary}--\r\n").as_bytes());
    body
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_between_the_parts_is_nowhere_in_the_archive() {
        assert_eq!(boundary(b"x"), "cofferdam-0000000000000000");
        let hostile = b"\r\n--cofferdam-0000000000000000--\r\n";
        assert_eq!(boundary(hostile), "cofferdam-0000000000000001");
    }

    #[test]
    fn an_archive_holds_the_source_and_neither_what_is_ignored_nor_what_a_link_leads_to() {
        let dir = tempfile::tempdir().unwrap();
        let top = dir.path();
        for (path, text) in [
            (".gitignore", "node_modules\n"),
            ("src/a.js", "a"),
            ("node_modules/x/index.js", "x"),
            (".git/config", "secret"),
        ] {
            let path = top.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        std::os::unix::fs::symlink("/etc/passwd", top.join("link")).unwrap();
        let names = |all_files| {
            let bytes = archive(top, all_files).unwrap();
            let mut archive = tar::Archive::new(&bytes[..]);
            let entries = archive.entries().unwrap().map(Result::unwrap);
            let mut names: Vec<(String, bool)> = entries
                .map(|entry| {
                    let name = entry.path().unwrap().to_string_lossy().into_owned();
                    (name, entry.header().entry_type().is_symlink())
                })
                .collect();
            names.sort();
            names
        };
        let own = |name: &str, is_link| (name.to_owned(), is_link);
        let source = [
            own(".gitignore", false),
            own("link", true),
            own("src/a.js", false),
        ];
        assert_eq!(names(false), source);
        assert!(names(true).contains(&own("node_modules/x/index.js", false)));
        assert!(
            names(true)
                .iter()
                .all(|(name, _)| !name.starts_with(".git/"))
        );
        assert!(archive(Path::new("/no/such/dir"), false).is_err());
    }

    #[test]
    fn a_daemon_is_not_asked_for_everything() {
        let none = LimitArgs {
            timeout: Some(Cap::AtMost(Duration::from_secs(2))),
            cpu_time: None,
            memory: None,
            pids: None,
            disk: None,
            output_limit: None,
            open_files: None,
            cpus: None,
            ..LimitArgs::default()
        };
        assert_eq!(limits(&none).unwrap(), json!({"wall_time_ms": 2000}));
        let all = LimitArgs {
            timeout: Some(Cap::Unlimited),
            ..none
        };
        assert!(limits(&all).is_err());
        let disks = LimitArgs {
            io_read_iops: Some(1),
            ..LimitArgs::default()
        };
        assert!(limits(&disks).is_err());
    }
}
