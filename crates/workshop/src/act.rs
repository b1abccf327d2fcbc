//! The way through an action: find the projects, ask each ecosystem for its steps, run them, and put together what came of it.

use std::path::Path;
use std::sync::PoisonError;

use cofferdam_contract::codes::ErrorCode;
use cofferdam_contract::ending::EndingRecord;
use cofferdam_contract::request::{BackendName, WorkspaceAccess};
use cofferdam_project::action::{Coverage, Lack, Place, Reach};
use cofferdam_project::{
    Action, Bounds, Detection, Options, Project, ProjectKind, Step, detect_until, ecosystem,
};

use crate::attempts::{Attempts, sum_up};
use crate::error::WorkError;
use crate::git::Git;
use crate::outcome::{Outcome, ProjectOutcome, StepOutcome, Verdict};
use crate::shelf::Shelf;
use crate::step::Bench;
use crate::{own, tools};

/// What is asked for.
#[derive(Debug, Clone)]
pub struct Wish {
    pub action: Action,
    pub options: Options,
    pub attempts: Attempts,
    /// Projects by manifest, directory or name; none for all that no other one acts on.
    pub projects: Vec<String>,
}

/// Whether a project is acted on together with others.
#[derive(Debug, Clone, Copy)]
enum Among {
    None,
    Others,
}

/// A step, once it is known where its reports will lie.
type Planner<'a> = dyn Fn(&Path) -> Option<Step> + 'a;

impl Wish {
    pub fn plain(action: Action) -> Self {
        Self {
            action,
            options: Options::default(),
            attempts: Attempts::One,
            projects: Vec::new(),
        }
    }
}

/// What lies in the tree, as far as time is left and nobody has ended it: the first step then ends at once.
pub(crate) fn look(bench: &Bench<'_>) -> Result<Detection, WorkError> {
    let root = &bench.root;
    detect_until(root, &Bounds::default(), &|| bench.is_over()).map_err(|error| {
        let what = format!("cannot search `{}`", root.display());
        WorkError::io(ErrorCode::InputUnreadable, &what, &error)
    })
}

/// Does what is asked for, in all projects that it concerns.
pub fn act(bench: &Bench<'_>, mut wish: Wish) -> Result<Outcome, WorkError> {
    if bench.backend == BackendName::Host {
        wish.options.reach = Reach::Host;
    }
    let found = look(bench)?;
    // Of what goes with the run nobody will use git.
    let git = (bench.shelf == Shelf::Own).then(|| Git::look(&bench.root));
    let mut outcomes = Vec::new();
    let named = match wish.projects.is_empty() {
        true => own::override_of(bench, &found, &wish)?,
        false => None,
    };
    match named {
        Some(outcome) => outcomes.push(outcome),
        None => {
            let chosen = choose(wish.action, &found, &wish.projects)?;
            let among = match chosen.len() {
                1 => Among::None,
                _ => Among::Others,
            };
            for project in &chosen {
                let mut outcome = ProjectOutcome::new(project);
                match one(bench, project, &found, &wish, (among, &mut outcome)) {
                    Ok(()) => {}
                    // Where nothing else is there to be told, it is the answer.
                    Err(error) if chosen.len() == 1 && outcome.steps.is_empty() => {
                        return Err(error);
                    }
                    // What others did, and what this one did before, is told all the same.
                    Err(error) => {
                        outcome.verdict = Verdict::Stopped;
                        outcome.detail = Some(error.to_string());
                    }
                }
                let is_over = bench.is_over() || outcome.steps.last().is_some_and(was_canceled);
                outcomes.push(outcome);
                if is_over {
                    break;
                }
            }
        }
    }
    let mut outcome = sum_up(wish.action, outcomes, wish.attempts);
    outcome
        .warnings
        .extend(git.and_then(|git| git.warning(&bench.root)));
    if wish.options.coverage == Coverage::Yes && outcome.coverage.is_none() {
        let warning =
            "coverage was asked for, and none could be read: look at what the test runner says";
        outcome.warnings.push(warning.to_owned());
    }
    Ok(outcome)
}

/// Those that were named, or all that no other one acts on.
fn choose<'a>(
    action: Action,
    found: &'a Detection,
    named: &[String],
) -> Result<Vec<&'a Project>, WorkError> {
    let fits = |project: &Project, name: &str| {
        let name = name.trim_end_matches('/').trim_start_matches("./");
        project.manifest == name || project.path == name || project.name.as_deref() == Some(name)
    };
    for name in named {
        if !found.projects.iter().any(|project| fits(project, name)) {
            let known: Vec<&str> = found
                .projects
                .iter()
                .take(20)
                .map(|project| project.manifest.as_str())
                .collect();
            let fix = format!(
                "there is no such project here; there are: {}",
                known.join(", ")
            );
            return Err(WorkError::problem("--only", name, fix));
        }
    }
    if action == Action::Run {
        let named = found
            .projects
            .iter()
            .filter(|project| named.iter().any(|name| fits(project, name)));
        return program(found, &named.collect::<Vec<_>>()).map(|project| vec![project]);
    }
    let projects: Vec<&Project> = if named.is_empty() {
        found.tops().collect()
    } else {
        let all = found.projects.iter();
        all.filter(|project| named.iter().any(|name| fits(project, name)))
            .collect()
    };
    if projects.is_empty() {
        let notes = found
            .notes
            .first()
            .map_or_else(String::new, |note| format!(" ({note})"));
        let message =
            format!("there is no project here{notes}; `cofferdam detect` shows what is recognised");
        return Err(WorkError::new(ErrorCode::InputInvalid, message));
    }
    Ok(projects)
}

/// The one program of those that were named, or of the tree: whoever starts one does not mean all of them.
fn program<'a>(found: &'a Detection, named: &[&'a Project]) -> Result<&'a Project, WorkError> {
    let is_meant = |project: &&Project| {
        let holds = |top: &&Project| {
            top.manifest == project.manifest || top.members.contains(&project.manifest)
        };
        project.program.is_some() && (named.is_empty() || named.iter().any(holds))
    };
    let all: Vec<&Project> = found.projects.iter().filter(is_meant).collect();
    let tops = all
        .iter()
        .filter(|project| project.kind != ProjectKind::Member);
    match (all.as_slice(), tops.copied().collect::<Vec<_>>().as_slice()) {
        ([only], _) | (_, [only]) => Ok(only),
        ([], _) => {
            let fix = "there is no program here: no project that says what is started; add one (a script `start`, main.py, src/main.rs, main.go, <OutputType>Exe, mainClass), or name a command `run` in .agent/config.yml";
            Err(WorkError::new(ErrorCode::InputInvalid, fix))
        }
        (several, _) => {
            let manifests = several.iter().take(20).map(|one| one.manifest.as_str());
            let known = manifests.collect::<Vec<_>>().join(", ");
            let fix = format!("there is more than one program; name one of: {known}");
            Err(WorkError::problem("--only", "", fix))
        }
    }
}

fn one(
    bench: &Bench<'_>,
    project: &Project,
    found: &Detection,
    wish: &Wish,
    (among, outcome): (Among, &mut ProjectOutcome),
) -> Result<(), WorkError> {
    // Where reports will lie is the same for all inside; on the host each step has its own.
    let first = bench.reports()?;
    let plan = |reports: &Path| {
        ecosystem::steps(
            wish.action,
            project,
            found,
            &wish.options,
            &bench.places(reports),
        )
    };
    let steps = match plan(first.path()) {
        Ok(steps) => steps,
        Err(why) => {
            // One of many without tests is no failure; the only one is, and so is what cannot be done as it was asked for.
            outcome.detail = Some(why.why.clone());
            return match (why.kind, among) {
                (Lack::Nothing, Among::Others) => Ok(()),
                (Lack::NotSo, _) | (_, Among::None) => {
                    Err(WorkError::new(ErrorCode::InputInvalid, why.to_string()))
                }
            };
        }
    };
    if steps.is_empty() {
        outcome.detail = Some(format!("there is nothing to {}", wish.action.as_str()));
        return Ok(());
    }
    drop(first);
    let tools = tools::find(project, wish.action, bench)?;
    for index in 0..steps.len() {
        let is_last = attempts(
            bench,
            outcome,
            wish,
            &tools,
            (index, &|reports| {
                plan(reports)
                    .ok()
                    .and_then(|steps| steps.into_iter().nth(index))
            }),
        )?;
        if is_last {
            break;
        }
    }
    outcome.verdict = outcome
        .steps
        .iter()
        .map(|step| step.verdict)
        .max()
        .unwrap_or(Verdict::Nothing);
    Ok(())
}

/// Runs one step as often as is asked for. Whether the steps after it have no sense any more.
fn attempts(
    bench: &Bench<'_>,
    outcome: &mut ProjectOutcome,
    wish: &Wish,
    tools: &tools::Tools,
    (index, plan): (usize, &Planner<'_>),
) -> Result<bool, WorkError> {
    let mut is_bad = false;
    for attempt in 1.. {
        let reports = bench.reports()?;
        let Some(step) = plan(reports.path()) else {
            return Ok(true);
        };
        let in_project = step
            .reports
            .iter()
            .any(|at| matches!(at.place, Place::Project { .. }));
        if in_project && bench.access == WorkspaceAccess::CopyOnWrite {
            return Err(WorkError::problem(
                "--cow",
                "",
                "the report of these tests is written into the project, and would go with it; leave it out",
            ));
        }
        let has_tests = !step.reports.is_empty();
        let mut done = bench.run(&outcome.manifest, &step, tools, &reports, attempt)?;
        done.index = index;
        let failed = !matches!(done.verdict, Verdict::Passed | Verdict::Nothing);
        let stopped = done.verdict == Verdict::Stopped;
        // What the tests reach is told of the last attempt.
        for earlier in outcome.steps.iter_mut().filter(|step| step.index == index) {
            if let Some(read) = earlier.coverage.take() {
                let mut budget = bench.budget.lock().unwrap_or_else(PoisonError::into_inner);
                budget.coverage().forget(&read);
            }
        }
        outcome.steps.push(done);
        let more = has_tests
            && !stopped
            && match wish.attempts {
                Attempts::One => false,
                Attempts::Retry(more) => failed && attempt <= more,
                Attempts::Repeat(times) => attempt < times,
            };
        is_bad = stopped || (failed && !has_tests);
        if !more {
            break;
        }
    }
    Ok(is_bad)
}

fn was_canceled(step: &StepOutcome) -> bool {
    matches!(&step.ending.ending, EndingRecord::Stopped { cause, .. } if cause == "canceled")
}
