//! `cofferdam task`, and the commands of the repo contract that take the place of ours: run it, do as usual, or do nothing because the project says so.

use std::os::fd::AsFd as _;
use std::process::ExitCode;

use cofferdam_contract::codes::ErrorCode;
use cofferdam_project::{Action, Beneath, Bounds, Detection, Ecosystem, ProjectKind, Step, detect};
use serde_json::json;

use super::act::{self, Attempts, Wish};
use super::contract::{self, Contract, Entry, Variables};
use super::git::Git;
use super::outcome::{ProjectOutcome, Verdict};
use super::step::Bench;
use super::tell::Tell;
use super::tools;
use crate::arguments::Places;
use crate::arguments::project::TaskArgs;
use crate::failure::{self, Failure};
use crate::terminal::text::safe;

pub(crate) fn task(mut args: TaskArgs, places: Places) -> Result<ExitCode, Failure> {
    let cancel = cofferdam_engine::cancel_on_signals().map_err(Failure::from)?;
    // With a list there is no command to name: what stands there is the directory.
    if let Some(path) = args.name.take_if(|_| args.list) {
        if args.act.path != std::path::Path::new(".") {
            return Err(Failure::problem(
                "--list",
                &path,
                "shows all commands; leave the name out",
            ));
        }
        args.act.path = path.into();
    }
    let json = args.act.json;
    let tell = Tell::new(&args.act, None)?;
    let bench = act::bench(args.act, places, Action::Build, cancel.as_fd())?;
    let found = search(&bench)?;
    let Some(contract) = load(&bench, &found)? else {
        let message = format!(
            "there is no {} in `{}`; its key `commands` names commands",
            contract::FILE,
            bench.root.display()
        );
        return Err(Failure::new(ErrorCode::InputInvalid, message));
    };
    let Some(name) = args.name else {
        list(&contract, json)?;
        return Ok(ExitCode::SUCCESS);
    };
    let Some(entry) = contract.commands.get(&name) else {
        let known: Vec<&str> = contract.commands.keys().map(String::as_str).collect();
        let fix = format!(
            "there is no such command in {}; there are: {}",
            contract::FILE,
            known.join(", ")
        );
        return Err(Failure::problem("NAME", &name, fix));
    };
    if *entry == Entry::Disabled {
        let message = format!(
            "`{name}` is disabled in {}; give it a command there",
            contract::FILE
        );
        return Err(Failure::new(ErrorCode::InputInvalid, message));
    }
    let git = Git::look(&bench.root);
    let outcome = carry_out(&bench, &found, entry)?;
    let mut outcome = act::sum_up(Action::Build, vec![outcome], Attempts::One);
    outcome.warnings.extend(git.warning(&bench.root));
    tell.outcome(&outcome, &bench.root)?;
    Ok(ExitCode::from(outcome.exit_code))
}

/// What the project itself wants for this; `None` where it says nothing.
pub(super) fn override_of(
    bench: &Bench<'_>,
    found: &Detection,
    wish: &Wish,
) -> Result<Option<ProjectOutcome>, Failure> {
    let Some(contract) = load(bench, found)? else {
        return Ok(None);
    };
    let name = wish.action.as_str();
    match contract.commands.get(name) {
        None => Ok(None),
        Some(Entry::Disabled) => {
            let mut outcome = nothing();
            outcome.detail = Some(format!("`{name}` is disabled there"));
            Ok(Some(outcome))
        }
        Some(entry) => {
            if wish.options.filter.is_some() {
                let fix = format!(
                    "`{name}` in {} takes no filter; name a project with --project, or leave it out",
                    contract::FILE
                );
                return Err(Failure::problem(
                    "--filter",
                    wish.options.filter.as_deref().unwrap_or_default(),
                    fix,
                ));
            }
            carry_out(bench, found, entry).map(Some)
        }
    }
}

fn search(bench: &Bench<'_>) -> Result<Detection, Failure> {
    detect(&bench.root, &Bounds::default()).map_err(|error| {
        let what = format!("cannot search `{}`", bench.root.display());
        Failure::io(ErrorCode::InputUnreadable, &what, &error)
    })
}

fn load(bench: &Bench<'_>, found: &Detection) -> Result<Option<Contract>, Failure> {
    let unreadable = |error: std::io::Error| {
        let what = format!("cannot read `{}`", bench.root.display());
        Failure::io(ErrorCode::InputUnreadable, &what, &error)
    };
    let project = Beneath::open(&bench.root).map_err(unreadable)?;
    let variables = variables(bench, found);
    contract::read(&project, &variables)
        .map_err(|problems| Failure::lines(ErrorCode::InputInvalid, problems))
}

/// As the command sees them. What a project does not have has no value, and using it is an error.
fn variables(bench: &Bench<'_>, found: &Detection) -> Variables {
    let places = bench.places(std::path::Path::new(""));
    let root = places.root.clone();
    let at = |path: &str| {
        if path == "." {
            root.clone()
        } else {
            format!("{root}/{path}")
        }
    };
    let mut known = Variables::from([
        ("project_root", root.clone()),
        ("configuration", "Debug".to_owned()),
        ("output_dir", format!("{root}/out")),
        ("artifact_dir", format!("{root}/artifacts")),
        ("platform", "linux-x64".to_owned()),
    ]);
    if let Some(first) = found.tops().next() {
        known.insert("project_path", at(&first.manifest));
        known.insert("project_dir", at(&first.path));
        known.insert("runtime", first.ecosystem.as_str().to_owned());
        if let Some(name) = &first.name {
            known.insert("project_name", name.clone());
        }
    }
    if let Some(solution) = found
        .projects
        .iter()
        .find(|project| project.kind == ProjectKind::Solution)
    {
        known.insert("solution_path", at(&solution.manifest));
        known.insert("solution_dir", at(&solution.path));
    }
    known
}

/// Its commands one after the other, until one fails.
fn carry_out(
    bench: &Bench<'_>,
    found: &Detection,
    entry: &Entry,
) -> Result<ProjectOutcome, Failure> {
    let mut outcome = nothing();
    let commands = match entry {
        Entry::Disabled => return Ok(outcome),
        Entry::Run(commands) => commands,
    };
    let tools = tools::find_best_effort(found, &bench.mounts);
    for (index, command) in commands.iter().enumerate() {
        let reports = bench.reports()?;
        let places = bench.places(reports.path());
        let dir = command
            .dir
            .as_deref()
            .map_or(".", |dir| dir.trim_end_matches('/'));
        let mut step = Step::shell(&command.line, dir, found, &places);
        step.env.extend(command.env.iter().cloned());
        step.at_most = command.timeout;
        let mut done = bench.run(&step, &tools, &reports, 1)?;
        done.index = index;
        outcome.verdict = outcome.verdict.max(done.verdict);
        outcome.steps.push(done);
        if outcome.verdict > Verdict::Passed {
            break;
        }
    }
    Ok(outcome)
}

fn nothing() -> ProjectOutcome {
    ProjectOutcome {
        manifest: contract::FILE.to_owned(),
        ecosystem: None::<Ecosystem>,
        name: None,
        verdict: Verdict::Nothing,
        detail: None,
        steps: Vec::new(),
    }
}

fn list(contract: &Contract, json: bool) -> Result<(), Failure> {
    let lines = |entry: &Entry| match entry {
        Entry::Disabled => None,
        Entry::Run(commands) => Some(
            commands
                .iter()
                .map(|command| command.line.clone())
                .collect::<Vec<_>>(),
        ),
    };
    if json {
        let commands: serde_json::Map<String, serde_json::Value> = contract
            .commands
            .iter()
            .map(|(name, entry)| (name.clone(), json!(lines(entry))))
            .collect();
        return failure::print(&format!(
            "{}\n",
            json!({ "schema": "cofferdam.tasks/1", "commands": commands })
        ));
    }
    let mut text = String::new();
    for (name, entry) in &contract.commands {
        let said = lines(entry).map_or_else(|| "(disabled)".to_owned(), |lines| lines.join(" && "));
        text.push_str(&format!("{name:16}  {}\n", safe(&said)));
    }
    failure::print(&text)
}
