//! The verbs `golden run` and `golden bless`: each case in a directory and a sandbox of its own.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::process::ExitCode;

use cofferdam_contract::codes::{self, ErrorCode};
use cofferdam_contract::ending::{Ending, StopCause};
use cofferdam_contract::limits::Limits;
use cofferdam_contract::mode::Deed;
use cofferdam_contract::record::RunRecord;
use cofferdam_contract::request::{
    BackendName, Gpus, Grant, Network, Request, Root, Workspace, WorkspaceAccess,
};
use cofferdam_engine::host::Host;
use cofferdam_engine::pipeline::{self, Streams};
use cofferdam_store::private_dir::{self, PrivateDir};
use cofferdam_store::{DataDir, RunId};
use serde_json::json;

use super::case::{self, Case, Difference, What};
use super::tree::{self, Entry, Tree};
use crate::arguments::Places;
use crate::arguments::golden::{GoldenArgs, GoldenCases, GoldenVerb};
use crate::config::{self, Flags, Sources};
use crate::failure::{self, Failure};
use crate::runs::unified::{LineKind, StreamDiff};
use crate::terminal::amount;
use crate::terminal::colour::{Colour, Paint, When};
use crate::terminal::output::note;
use crate::terminal::size::Target;
use crate::terminal::text::safe;
use crate::terminal::waiting::Waiting;
use crate::{history, policy, run};

/// How much of each stream is compared.
const KEPT: usize = 16 << 20;

pub(crate) fn golden(args: GoldenArgs, places: Places) -> Result<ExitCode, Failure> {
    let (args, is_bless) = match args.verb {
        GoldenVerb::Run(args) => (args, false),
        GoldenVerb::Bless(args) => (args, true),
    };
    let cancel = cofferdam_engine::cancel_on_signals().map_err(Failure::from)?;
    let cases = chosen(&args)?;
    let stage = Stage::new(args, places, cancel.as_fd())?;
    let mut results = Vec::new();
    let mut is_partial = false;
    let waiting = Waiting::on("running the cases");
    for case in cases {
        let Some(told) = stage.run(&case)? else {
            drop(waiting);
            note(&format!(
                "cofferdam: canceled; `{}` and the cases after it were not compared, and what they expect is as it was",
                safe(&case.name)
            ));
            return Ok(ExitCode::from(codes::EXIT_CANCELED));
        };
        let differences = case.differences(&told.tree, &told.cut);
        is_partial |= !told.cut.is_empty();
        if is_bless && !differences.is_empty() && told.cut.is_empty() {
            case.bless(&told.tree)
                .map_err(|error| unusable(&case.dir, &error))?;
        }
        results.push((case.name, differences));
    }
    drop(waiting);
    let differing = results
        .iter()
        .filter(|(_, differences)| !differences.is_empty())
        .count();
    let text = if stage.json {
        as_json(&results, is_bless)
    } else {
        for_people(&results, is_bless)
    };
    failure::print(&text)?;
    let is_bad = is_partial || (differing > 0 && !is_bless);
    Ok(ExitCode::from(u8::from(is_bad)))
}

fn chosen(args: &GoldenCases) -> Result<Vec<Case>, Failure> {
    let all = case::read_all(&args.dir).map_err(|error| unusable(&args.dir, &error))?;
    for name in &args.case {
        if !all.iter().any(|case| case.name == *name) {
            let known: Vec<&str> = all.iter().map(|case| case.name.as_str()).collect();
            let fix = format!("there is no such case; there are: {}", known.join(", "));
            return Err(Failure::problem("--case", name, fix));
        }
    }
    let chosen: Vec<Case> = all
        .into_iter()
        .filter(|case| args.case.is_empty() || args.case.contains(&case.name))
        .collect();
    if chosen.is_empty() {
        let shown = args.dir.to_string_lossy();
        return Err(Failure::problem(
            "DIR",
            &shown,
            "holds no case; a case is a directory with a file `command`",
        ));
    }
    Ok(chosen)
}

fn unusable(dir: &std::path::Path, error: &std::io::Error) -> Failure {
    let what = format!("cannot use `{}`", dir.display());
    Failure::io(ErrorCode::InputUnreadable, &what, error)
}

/// What a case did.
struct Told {
    tree: Tree,
    /// Streams of which only the beginning is there.
    cut: Vec<&'static str>,
}

/// What all cases share.
struct Stage<'a> {
    data_dir: DataDir,
    limits: Limits,
    mounts: Vec<OsString>,
    env: Vec<OsString>,
    json: bool,
    host: Host,
    cancel: BorrowedFd<'a>,
}

impl<'a> Stage<'a> {
    fn new(args: GoldenCases, places: Places, cancel: BorrowedFd<'a>) -> Result<Self, Failure> {
        let flags = Flags {
            mode: places.mode,
            ..run::flags(&args.limits, None)
        };
        let merged = config::load(Sources::of_process(places.config, flags, Limits::STREAMING))
            .map_err(|problems| Failure::problems(ErrorCode::ConfigInvalid, &problems))?;
        // Cases have no other, whatever the configuration says.
        policy::refuse(merged.mode.value, [Deed::Run(BackendName::Native)])?;
        let data_dir = history::place(places.data_dir).ok_or_else(|| {
            Failure::problem(
                "--data-dir",
                "",
                "says where cases are laid out; name a directory",
            )
        })?;
        private_dir::sweep_best_effort(&data_dir);
        Ok(Self {
            data_dir,
            limits: merged.limits(),
            mounts: args.mount,
            env: args.env,
            json: args.json,
            host: Host::detect(),
            cancel,
        })
    }

    /// Lays a case out, runs it, and looks at what it left; `None` where a person ended it. Only what the command itself did can be compared or blessed.
    fn run(&self, case: &Case) -> Result<Option<Told>, Failure> {
        let dir = PrivateDir::create(&self.data_dir, RunId::new())?;
        for (path, entry) in &case.input {
            match entry {
                Entry::File { bytes, is_program } => {
                    dir.place(path, bytes, if *is_program { 0o755 } else { 0o644 })?
                }
                Entry::Link(_) => {
                    let message = format!(
                        "{}: input/{path} is a link; put the file itself there",
                        case.name
                    );
                    return Err(Failure::new(ErrorCode::InputInvalid, message));
                }
            }
        }
        let record = self.carry_out(case, &dir)?;
        match &record.ending {
            Ending::Stopped(StopCause::Canceled) => return Ok(None),
            Ending::NeverStarted(failure) => {
                let message = format!("{}: {}", case.name, failure.message);
                return Err(Failure::new(failure.code(), message));
            }
            Ending::Exited { .. } | Ending::Signaled { .. } | Ending::Stopped(_) => {}
        }
        let left = tree::read(dir.path()).map_err(|error| {
            let message = format!("{}: what it left {error}", case.name);
            Failure::new(ErrorCode::InputInvalid, message)
        })?;
        let bytes = |stream: &cofferdam_contract::record::CapturedStream| {
            stream.bytes().unwrap_or_default()
        };
        let tree = case.told(
            codes::exit_code(&record.ending),
            &bytes(&record.stdout),
            &bytes(&record.stderr),
            left,
        );
        let streams = [("stdout", &record.stdout), ("stderr", &record.stderr)];
        let cut = streams.into_iter().filter(|(_, stream)| stream.truncated);
        Ok(Some(Told {
            tree,
            cut: cut.map(|(name, _)| name).collect(),
        }))
    }

    fn carry_out(&self, case: &Case, dir: &PrivateDir) -> Result<RunRecord, Failure> {
        let env = self.env.iter().map(|text| run::variable(text.clone()));
        let mounts = self.mounts.iter().map(|text| run::mount(text.clone()));
        let request = Request {
            argv: vec!["/bin/sh".into(), "-c".into(), case.command.clone().into()],
            env: env.collect::<Result<_, _>>()?,
            cwd: None,
            limits: self.limits.clone(),
            waived: Vec::new(),
            network: Network::Denied,
            root: Root::HostUsr,
            workspace: Some(Workspace {
                path: dir.path().to_owned(),
                access: WorkspaceAccess::ReadWrite,
            }),
            mounts: mounts.collect::<Result<_, _>>()?,
            backend: BackendName::Native,
            gpus: Gpus::None,
        };
        let grant = Grant::new(request)
            .map_err(|problems| Failure::problems(ErrorCode::InputInvalid, &problems))?;
        let streams = Streams {
            cancel: Some(self.cancel),
            ..Streams::kept(KEPT)
        };
        Ok(pipeline::run(grant, streams, &self.host)?)
    }
}

fn as_json(results: &[(String, Vec<Difference>)], is_bless: bool) -> String {
    let cases: Vec<serde_json::Value> = results
        .iter()
        .map(|(name, differences)| {
            let differences: Vec<serde_json::Value> = differences
                .iter()
                .map(|found| match &found.what {
                    What::Missing => json!({ "path": found.path, "kind": "missing" }),
                    What::Unexpected => json!({ "path": found.path, "kind": "unexpected" }),
                    What::Cut => json!({ "path": found.path, "kind": "cut" }),
                    What::Changed(diff) => json!({ "path": found.path, "kind": "changed", "diff": diff }),
                })
                .collect();
            json!({ "name": name, "as_expected": differences.is_empty(), "differences": differences })
        })
        .collect();
    format!(
        "{}\n",
        json!({ "schema": "cofferdam.golden/1", "blessed": is_bless, "cases": cases })
    )
}

fn for_people(results: &[(String, Vec<Difference>)], is_bless: bool) -> String {
    let paint = Paint::of(When::Auto, Target::of_stdout());
    let mut text = String::new();
    let mut differing = 0;
    for (name, differences) in results {
        let name = safe(name);
        if differences.is_empty() {
            let _ = writeln!(text, "{}  {name}", paint.paint(Colour::Green, "ok"));
            continue;
        }
        differing += 1;
        let is_cut = differences
            .iter()
            .any(|found| matches!(found.what, What::Cut));
        let word = if is_bless && !is_cut {
            paint.paint(Colour::Yellow, "blessed")
        } else {
            paint.paint(Colour::Red, "differs")
        };
        let _ = writeln!(text, "{word}  {name}");
        for found in differences {
            let path = safe(&found.path);
            match &found.what {
                What::Missing => {
                    let _ = writeln!(
                        text,
                        "{}",
                        paint.paint(Colour::Red, &format!("--- {path}: is missing"))
                    );
                }
                What::Unexpected => {
                    let _ = writeln!(
                        text,
                        "{}",
                        paint.paint(Colour::Green, &format!("+++ {path}: is not expected"))
                    );
                }
                What::Cut => {
                    let why = format!(
                        "!!! {path}: is longer than the {} MiB that are compared; let the command write less",
                        KEPT >> 20
                    );
                    let _ = writeln!(text, "{}", paint.paint(Colour::Red, &why));
                }
                What::Changed(diff) => changed(&mut text, &path, diff, paint),
            }
        }
    }
    let verb = if is_bless {
        "blessed"
    } else {
        "not as expected"
    };
    let _ = writeln!(
        text,
        "{}: {} as expected, {differing} {verb}",
        amount::count(u64::try_from(results.len()).unwrap_or(u64::MAX), "case"),
        results.len() - differing
    );
    text
}

fn changed(text: &mut String, path: &str, diff: &StreamDiff, paint: Paint) {
    let _ = writeln!(
        text,
        "{}",
        paint.paint(
            Colour::Bold,
            &format!("--- expected/{path}\n+++ now/{path}")
        )
    );
    if diff.not_shown.is_some() {
        let _ = writeln!(text, "they differ, and not in lines of text");
    }
    for hunk in &diff.hunks {
        let _ = writeln!(text, "{}", paint.paint(Colour::Cyan, &hunk.header));
        for line in &hunk.lines {
            let shown = safe(line.text.trim_end_matches('\n'));
            let _ = match line.kind {
                LineKind::Same => writeln!(text, " {shown}"),
                LineKind::Removed => {
                    writeln!(text, "{}", paint.paint(Colour::Red, &format!("-{shown}")))
                }
                LineKind::Added => {
                    writeln!(text, "{}", paint.paint(Colour::Green, &format!("+{shown}")))
                }
            };
        }
    }
}
