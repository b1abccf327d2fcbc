//! The way through a verb: find the projects, ask each ecosystem for its steps, run them, and put together what came of it.

use std::collections::{BTreeMap, HashSet};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use cofferdam_contract::codes::ErrorCode;
use cofferdam_contract::ending::{Ending, StopCause};
use cofferdam_contract::mode::NetworkReach;
use cofferdam_contract::request::{BackendName, WorkspaceAccess};
use cofferdam_engine::host::Host;
use cofferdam_project::action::{Place, Reach};
use cofferdam_project::report::{Counts, Status, TestCase};
use cofferdam_project::{
    Action, Bounds, Detection, Options, Project, Step, detect, ecosystem, limits,
};
use cofferdam_store::private_dir;

use super::git::Git;
use super::outcome::{Outcome, ProjectOutcome, StepOutcome, Verdict};
use super::step::Bench;
use super::tee::Show;
use super::{task, tell, tools};
use crate::arguments::Places;
use crate::arguments::project::ActArgs;
use crate::cache;
use crate::config::{self, Flags, Sources};
use crate::failure::Failure;
use crate::history;
use crate::policy;
use crate::run::flags;
use crate::terminal::output::note;

/// What is asked for.
#[derive(Debug)]
pub(super) struct Wish {
    pub(super) action: Action,
    pub(super) options: Options,
    pub(super) attempts: Attempts,
    pub(super) junit: Option<PathBuf>,
}

/// How often tests are run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Attempts {
    One,
    /// Up to this many times more, while something fails.
    Retry(u32),
    /// This many times, whatever happens.
    Repeat(u32),
}

/// A step, once it is known where its reports will lie.
type Planner<'a> = dyn Fn(&Path) -> Option<Step> + 'a;

impl Wish {
    pub(super) fn plain(action: Action) -> Self {
        Self {
            action,
            options: Options::default(),
            attempts: Attempts::One,
            junit: None,
        }
    }
}

pub(super) fn act(args: ActArgs, places: Places, mut wish: Wish) -> Result<ExitCode, Failure> {
    let cancel = cofferdam_engine::cancel_on_signals().map_err(Failure::from)?;
    let tell = tell::Tell::new(&args, wish.junit.take())?;
    let chosen = args.project.clone();
    let bench = bench(args, places, wish.action, cancel.as_fd())?;
    if bench.merged.backend.value == BackendName::Host {
        wish.options.reach = Reach::Host;
    }
    let found = detect(&bench.root, &Bounds::default()).map_err(|error| {
        let what = format!("cannot search `{}`", bench.root.display());
        Failure::io(ErrorCode::InputUnreadable, &what, &error)
    })?;
    let git = Git::look(&bench.root);
    if chosen.is_empty()
        && let Some(outcome) = task::override_of(&bench, &found, &wish)?
    {
        let mut outcome = sum_up(wish.action, vec![outcome], wish.attempts);
        outcome.warnings.extend(git.warning(&bench.root));
        tell.outcome(&outcome, &bench.root)?;
        return Ok(ExitCode::from(outcome.exit_code));
    }
    let projects = choose(&found, &chosen)?;
    if wish.action == Action::Restore && bench.show == Show::Person {
        note(&restore_note(&bench, wish.options.reach));
    }
    private_dir::sweep_best_effort(&bench.data_dir);
    let mut outcomes = Vec::new();
    for project in projects {
        let outcome = one(&bench, project, &found, &wish)?;
        let is_over = outcome.steps.last().is_some_and(was_canceled);
        outcomes.push(outcome);
        if is_over {
            break;
        }
    }
    let mut outcome = sum_up(wish.action, outcomes, wish.attempts);
    outcome.warnings.extend(git.warning(&bench.root));
    tell.outcome(&outcome, &bench.root)?;
    Ok(ExitCode::from(outcome.exit_code))
}

pub(super) fn bench(
    args: ActArgs,
    places: Places,
    action: Action,
    cancel: BorrowedFd<'_>,
) -> Result<Bench<'_>, Failure> {
    let root = args.path.canonicalize().map_err(|error| {
        let what = format!("cannot use `{}`", args.path.display());
        Failure::io(ErrorCode::InputUnreadable, &what, &error)
    })?;
    let merged = config::load(Sources::of_process(
        places.config.clone(),
        Flags {
            mode: places.mode,
            ..flags(&args.limits, args.backend)
        },
        limits::PROJECT,
    ))
    .map_err(|problems| Failure::problems(ErrorCode::ConfigInvalid, &problems))?;
    policy::obey(&merged, NetworkReach::None)?;
    let data_dir = history::place(places.data_dir.clone()).ok_or_else(|| {
        Failure::problem(
            "--data-dir",
            "",
            "says where reports are laid; name a directory",
        )
    })?;
    let cache = cache::place(args.cache_dir.as_deref(), &root)?;
    cache::remember_best_effort(&cache, &root);
    Ok(Bench {
        action,
        root,
        cache,
        data_dir,
        access: if args.cow {
            WorkspaceAccess::CopyOnWrite
        } else {
            WorkspaceAccess::ReadWrite
        },
        env: args.env,
        mounts: args.mount,
        waive: args.waive,
        history: args.history,
        places,
        merged,
        show: if args.json || args.quiet {
            Show::Nobody
        } else {
            Show::Person
        },
        host: Host::detect(),
        cancel,
    })
}

fn restore_note(bench: &Bench<'_>, reach: Reach) -> String {
    let cache = bench.cache.display();
    match reach {
        Reach::Offline => format!(
            "cofferdam: restoring without network, from the cache in {cache}; --backend host fetches into it, without isolation"
        ),
        Reach::Host => format!(
            "cofferdam: fetching with your network and without isolation, into the cache in {cache}"
        ),
    }
}

/// Those that were named, or all that no other one acts on.
fn choose<'a>(found: &'a Detection, named: &[String]) -> Result<Vec<&'a Project>, Failure> {
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
            return Err(Failure::problem("--project", name, fix));
        }
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
        return Err(Failure::new(ErrorCode::InputInvalid, message));
    }
    Ok(projects)
}

fn one(
    bench: &Bench<'_>,
    project: &Project,
    found: &Detection,
    wish: &Wish,
) -> Result<ProjectOutcome, Failure> {
    let mut outcome = ProjectOutcome::new(project);
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
            // One of many without tests is no failure; the only one is.
            outcome.detail = Some(why.why.clone());
            if found.tops().count() == 1 || wish.action != Action::Test {
                return Err(Failure::new(ErrorCode::InputInvalid, why.to_string()));
            }
            return Ok(outcome);
        }
    };
    if steps.is_empty() {
        outcome.detail = Some(format!("there is nothing to {}", wish.action.as_str()));
        return Ok(outcome);
    }
    drop(first);
    let tools = match bench.merged.backend.value {
        BackendName::Host => tools::Tools::default(),
        _ => tools::find(project, &bench.mounts)?,
    };
    for index in 0..steps.len() {
        let is_last = attempts(
            bench,
            &mut outcome,
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
    Ok(outcome)
}

/// Runs one step as often as is asked for. Whether the steps after it have no sense any more.
fn attempts(
    bench: &Bench<'_>,
    outcome: &mut ProjectOutcome,
    wish: &Wish,
    tools: &tools::Tools,
    (index, plan): (usize, &Planner<'_>),
) -> Result<bool, Failure> {
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
            return Err(Failure::problem(
                "--cow",
                "",
                "the report of these tests is written into the project, and would go with it; leave it out",
            ));
        }
        let has_tests = !step.reports.is_empty();
        let mut done = bench.run(&step, tools, &reports, attempt)?;
        done.index = index;
        let failed = !matches!(done.verdict, Verdict::Passed | Verdict::Nothing);
        let stopped = done.verdict == Verdict::Stopped;
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
    matches!(step.ending.ending, Ending::Stopped(StopCause::Canceled))
}

pub(super) fn sum_up(
    action: Action,
    mut projects: Vec<ProjectOutcome>,
    attempts: Attempts,
) -> Outcome {
    let mut flaky = Vec::new();
    if let Attempts::Retry(_) = attempts {
        for project in &mut projects {
            forgive(project, &mut flaky);
        }
    }
    let tested: Vec<&StepOutcome> = projects
        .iter()
        .flat_map(|project| last_attempts(project))
        .collect();
    let mut counts = None;
    for tests in tested.iter().filter_map(|step| step.tests.as_ref()) {
        let sum: &mut Counts = counts.get_or_insert_default();
        sum.total += tests.counts.total;
        sum.passed += tests.counts.passed;
        sum.failed += tests.counts.failed;
        sum.skipped += tests.counts.skipped;
    }
    let verdict = projects
        .iter()
        .map(|project| project.verdict)
        .max()
        .unwrap_or(Verdict::Nothing);
    let worst = projects
        .iter()
        .flat_map(|project| &project.steps)
        .filter(|step| step.verdict == verdict);
    let exit_code = match verdict {
        Verdict::Nothing | Verdict::Passed => 0,
        Verdict::Failed | Verdict::Unreadable | Verdict::Stopped => {
            worst.map(StepOutcome::exit_code).max().unwrap_or(1)
        }
    };
    Outcome {
        action,
        verdict,
        exit_code,
        counts,
        warnings: Vec::new(),
        flaky,
        projects,
    }
}

/// The last attempt of each step.
pub(super) fn last_attempts(project: &ProjectOutcome) -> Vec<&StepOutcome> {
    let mut last: BTreeMap<usize, &StepOutcome> = BTreeMap::new();
    for step in &project.steps {
        last.insert(step.index, step);
    }
    last.into_values().collect()
}

/// With retries the last attempt counts, and what failed in an earlier one and passed in the last is flaky.
fn forgive(project: &mut ProjectOutcome, flaky: &mut Vec<String>) {
    let key = |case: &TestCase| (case.suite.clone(), case.name.clone());
    let verdicts: Vec<Verdict> = last_attempts(project)
        .iter()
        .map(|step| step.verdict)
        .collect();
    for last in last_attempts(project) {
        let earlier = project
            .steps
            .iter()
            .filter(|step| step.index == last.index && step.attempt < last.attempt);
        let failed: HashSet<_> = earlier
            .filter_map(|step| step.tests.as_ref())
            .flat_map(|tests| {
                tests
                    .tests
                    .iter()
                    .filter(|case| case.status == Status::Failed)
                    .map(key)
            })
            .collect();
        let cases = last.tests.iter().flat_map(|tests| &tests.tests);
        for case in
            cases.filter(|case| case.status == Status::Passed && failed.contains(&key(case)))
        {
            flaky.push(case.full_name());
        }
    }
    project.verdict = verdicts.into_iter().max().unwrap_or(project.verdict);
}
