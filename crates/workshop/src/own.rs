//! The commands that a project names itself: one by name, or in the place of ours. Run it, do as usual, or do nothing because the project says so.

use std::path::Path;

use cofferdam_contract::codes::ErrorCode;
use cofferdam_contract::request::BackendName;
use cofferdam_project::action::{Coverage, FailFast};
use cofferdam_project::commands::{self, Contract, Entry, Variables};
use cofferdam_project::{Action, Beneath, Detection, Ecosystem, ProjectKind, Step};

use crate::act::{Wish, look};
use crate::attempts::{Attempts, sum_up};
use crate::error::WorkError;
use crate::git::Git;
use crate::outcome::{Outcome, ProjectOutcome, Verdict};
use crate::shelf::Shelf;
use crate::step::Bench;
use crate::tools;

/// Runs one of the commands by name.
pub fn task(bench: &Bench<'_>, name: &str) -> Result<Outcome, WorkError> {
    let found = look(bench)?;
    let contract = must(bench, &found)?;
    let Some(entry) = contract.commands.get(name) else {
        let known: Vec<&str> = contract.commands.keys().map(String::as_str).collect();
        let fix = format!(
            "there is no such command in {}; there are: {}",
            commands::FILE,
            known.join(", ")
        );
        return Err(WorkError::problem("NAME", name, fix));
    };
    if *entry == Entry::Disabled {
        let message = format!(
            "`{name}` is disabled in {}; give it a command there",
            commands::FILE
        );
        return Err(WorkError::new(ErrorCode::InputInvalid, message));
    }
    only_inside(bench, name)?;
    let git = (bench.shelf == Shelf::Own).then(|| Git::look(&bench.root));
    let outcome = carry_out(bench, &found, entry)?;
    let mut outcome = sum_up(Action::Build, vec![outcome], Attempts::One);
    outcome
        .warnings
        .extend(git.and_then(|git| git.warning(&bench.root)));
    Ok(outcome)
}

/// The commands that the project names.
pub fn commands(bench: &Bench<'_>) -> Result<Contract, WorkError> {
    must(bench, &look(bench)?)
}

fn must(bench: &Bench<'_>, found: &Detection) -> Result<Contract, WorkError> {
    load(bench, found)?.ok_or_else(|| {
        // Of what was sent to a daemon, the place there is nobody's business.
        let place = match bench.shelf {
            Shelf::Own => format!("`{}`", bench.root.display()),
            Shelf::Shared => "the project".to_owned(),
        };
        let file = commands::FILE;
        let message = format!("there is no {file} in {place}; its key `commands` names commands");
        WorkError::new(ErrorCode::InputInvalid, message)
    })
}

/// What the project itself wants for this; `None` where it says nothing.
pub(crate) fn override_of(
    bench: &Bench<'_>,
    found: &Detection,
    wish: &Wish,
) -> Result<Option<ProjectOutcome>, WorkError> {
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
            only_inside(bench, name)?;
            if let Some((field, value, why)) = unheeded(wish) {
                let fix = format!(
                    "`{name}` in {} {why}; name a project with --only, or leave this out",
                    commands::FILE
                );
                return Err(WorkError::problem(field, &value, fix));
            }
            carry_out(bench, found, entry).map(Some)
        }
    }
}

/// What was asked for and a line for a shell knows nothing of. Better refused than left out in silence.
fn unheeded(wish: &Wish) -> Option<(&'static str, String, &'static str)> {
    let options = &wish.options;
    let filter = options.filter.clone();
    let filter = filter.map(|filter| ("--filter", filter, "takes no filter"));
    let args = options.args.first().cloned();
    let args = args.map(|arg| ("ARGS", arg, "takes no arguments"));
    let fail_fast = (options.fail_fast == FailFast::Yes).then_some((
        "--fail-fast",
        String::new(),
        "cannot stop at the first failure",
    ));
    let coverage = (options.coverage == Coverage::Yes).then_some((
        "--coverage",
        String::new(),
        "measures no coverage",
    ));
    let attempts = match wish.attempts {
        Attempts::One => None,
        Attempts::Retry(more) => Some(("--retries", more.to_string(), "is run once")),
        Attempts::Repeat(times) => Some(("--repeat", times.to_string(), "is run once")),
    };
    filter.or(args).or(fail_fast).or(coverage).or(attempts)
}

/// A stranger has written it, and without walls it would have the rights of the caller.
fn only_inside(bench: &Bench<'_>, name: &str) -> Result<(), WorkError> {
    if bench.backend != BackendName::Host {
        return Ok(());
    }
    let fix = format!(
        "`{name}` is a command of the project itself ({}) and runs only inside; leave --backend host out, or name projects with --only to do as usual in them",
        commands::FILE
    );
    Err(WorkError::problem("--backend", "host", fix))
}

fn load(bench: &Bench<'_>, found: &Detection) -> Result<Option<Contract>, WorkError> {
    let unreadable = |error: std::io::Error| {
        let what = format!("cannot read `{}`", bench.root.display());
        WorkError::io(ErrorCode::InputUnreadable, &what, &error)
    };
    let project = Beneath::open(&bench.root).map_err(unreadable)?;
    let variables = variables(bench, found);
    commands::read(&project, &variables).map_err(|lines| WorkError {
        code: ErrorCode::InputInvalid,
        lines,
    })
}

/// As the command sees them. What a project does not have has no value, and using it is an error.
fn variables(bench: &Bench<'_>, found: &Detection) -> Variables {
    let places = bench.places(Path::new(""));
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
) -> Result<ProjectOutcome, WorkError> {
    let mut outcome = nothing();
    let commands = match entry {
        Entry::Disabled => return Ok(outcome),
        Entry::Run(commands) => commands,
    };
    let tools = tools::find_best_effort(found, bench);
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
        if bench.action == Action::Run && index + 1 == commands.len() {
            step = step.program();
        }
        let mut done = bench.run(commands::FILE, &step, &tools, &reports, 1)?;
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
        manifest: commands::FILE.to_owned(),
        ecosystem: None::<Ecosystem>,
        name: None,
        verdict: Verdict::Nothing,
        detail: None,
        steps: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_command_of_the_project_would_leave_out_is_refused() {
        let told = |change: &dyn Fn(&mut Wish)| {
            let mut wish = Wish::plain(Action::Test);
            change(&mut wish);
            unheeded(&wish).map(|(field, ..)| field)
        };
        assert_eq!(told(&|_| ()), None);
        let filter = |wish: &mut Wish| wish.options.filter = Some("a".to_owned());
        assert_eq!(told(&filter), Some("--filter"));
        let args = |wish: &mut Wish| wish.options.args.push("a".to_owned());
        assert_eq!(told(&args), Some("ARGS"));
        let fail_fast = |wish: &mut Wish| wish.options.fail_fast = FailFast::Yes;
        assert_eq!(told(&fail_fast), Some("--fail-fast"));
        let coverage = |wish: &mut Wish| wish.options.coverage = Coverage::Yes;
        assert_eq!(told(&coverage), Some("--coverage"));
        let retries = |wish: &mut Wish| wish.attempts = Attempts::Retry(1);
        assert_eq!(told(&retries), Some("--retries"));
        let repeat = |wish: &mut Wish| wish.attempts = Attempts::Repeat(2);
        assert_eq!(told(&repeat), Some("--repeat"));
    }
}
