//! Tests of Node.js packages: how each test runner is brought to write a report beside what it tells people.

use super::node::{is_no_test, local, manager, script};
use super::runner::Ask;
use crate::action::{Coverage, FailFast, Place, Step};
use crate::coverage::CoverageFormat;
use crate::diagnostic::Speaker;
use crate::model::{Framework, PackageManager, Project};
use crate::report::Format;

/// One step for each package that has tests; a workspace asks its members.
pub(super) fn steps(ask: &Ask<'_>) -> Result<Vec<Step>, String> {
    let members = ask.project.members.iter().filter_map(|manifest| {
        ask.detection
            .projects
            .iter()
            .find(|project| project.manifest == *manifest)
    });
    let mut found: Vec<Step> = members.filter_map(|member| step(ask, member)).collect();
    if found.is_empty() {
        found.extend(step(ask, ask.project));
    }
    if found.is_empty() {
        return Err("has no tests: there is no script `test` and no test runner that is known; add one to package.json".to_owned());
    }
    Ok(found)
}

fn step(ask: &Ask<'_>, project: &Project) -> Option<Step> {
    let written = project
        .test_script
        .as_deref()
        .filter(|text| !is_no_test(text));
    let framework = project.frameworks.first();
    let step = match (framework, written) {
        (Some(Framework::Jest), _) => jest(ask, runner(ask, project, "jest")),
        (Some(Framework::Vitest), _) => vitest(ask, runner(ask, project, "vitest")),
        (Some(Framework::Mocha), _) => mocha(ask, runner(ask, project, "mocha")),
        (_, Some(_)) => node_test(ask, script(ask, "test", &project.path)),
        (Some(_), None) => node_test(
            ask,
            Step::new(ask.places.dir(&project.path), ["node", "--test"]),
        ),
        (None, None) => return None,
    };
    Some(step.speaker(Speaker::Tsc).speaker(Speaker::Npm))
}

/// Through the script where arguments can be handed to it, since it may say more; the program itself otherwise.
fn runner(ask: &Ask<'_>, project: &Project, program: &str) -> Step {
    let takes_arguments = project.test_script.as_deref().is_some_and(|text| {
        text.split_whitespace().next() == Some(program) && !text.contains(['&', '|', ';', '>'])
    });
    if !takes_arguments {
        return local(ask, program, &project.path);
    }
    let step = script(ask, "test", &project.path);
    match manager(ask.project) {
        PackageManager::Yarn | PackageManager::Pnpm => step,
        _ => step.arg("--"),
    }
}

/// What Jest, Vitest and Mocha write at the end is lost with a run that is stopped: a reporter of ours tells each test as it ends.
const REPORTER: &str = "cofferdam-reporter.cjs";
const EVENTS: &str = "events.jsonl";
const JEST: &str = include_str!("reporter/jest.cjs");
const VITEST: &str = include_str!("reporter/vitest.cjs");
const MOCHA: &str = include_str!("reporter/mocha.cjs");

/// Where our reporter writes.
fn telling(ask: &Ask<'_>, step: Step, reporter: &'static str) -> Step {
    step.aid(REPORTER, reporter)
        .env("COFFERDAM_EVENTS", ask.places.report(EVENTS))
}

fn jest(ask: &Ask<'_>, mut step: Step) -> Step {
    let file = ask.places.report("jest.json");
    step = telling(ask, step, JEST)
        .args(["--ci", "--json", "--testLocationInResults"])
        .args([
            "--reporters=default".to_owned(),
            format!("--reporters={}", ask.places.report(REPORTER)),
        ])
        .arg(format!("--outputFile={file}"));
    if let Some(filter) = &ask.options.filter {
        step = step.arg(format!("--testNamePattern={filter}"));
    }
    if ask.options.fail_fast == FailFast::Yes {
        step = step.arg("--bail");
    }
    if ask.options.coverage == Coverage::Yes {
        step = step
            .args(["--coverage", "--coverageReporters=lcovonly"])
            .arg(format!(
                "--coverageDirectory={}",
                ask.places.report("coverage")
            ))
            .covered("lcov.info", CoverageFormat::Lcov);
    }
    step.report(Place::Own("jest.json".to_owned()), Format::Jest)
        .report(Place::Own(EVENTS.to_owned()), Format::Events)
}

fn vitest(ask: &Ask<'_>, mut step: Step) -> Step {
    let file = ask.places.report("vitest.json");
    step = telling(ask, step, VITEST)
        .args(["--run", "--reporter=default", "--reporter=json"])
        .arg(format!("--reporter={}", ask.places.report(REPORTER)))
        .arg(format!("--outputFile.json={file}"));
    if let Some(filter) = &ask.options.filter {
        step = step.arg(format!("--testNamePattern={filter}"));
    }
    if ask.options.fail_fast == FailFast::Yes {
        step = step.arg("--bail=1");
    }
    if ask.options.coverage == Coverage::Yes {
        step = step
            .args(["--coverage.enabled", "--coverage.reporter=lcovonly"])
            .arg(format!(
                "--coverage.reportsDirectory={}",
                ask.places.report("coverage")
            ))
            .covered("lcov.info", CoverageFormat::Lcov);
    }
    step.report(Place::Own("vitest.json".to_owned()), Format::Jest)
        .report(Place::Own(EVENTS.to_owned()), Format::Events)
}

fn mocha(ask: &Ask<'_>, mut step: Step) -> Step {
    step = telling(ask, step, MOCHA)
        .arg("--reporter")
        .arg(ask.places.report(REPORTER));
    if let Some(filter) = &ask.options.filter {
        step = step.args(["--grep", filter]);
    }
    if ask.options.fail_fast == FailFast::Yes {
        step = step.arg("--bail");
    }
    step.report(Place::Own(EVENTS.to_owned()), Format::Events)
}

/// By variable, so that whatever the script starts writes the reports. TAP is written while the tests run.
fn node_test(ask: &Ask<'_>, step: Step) -> Step {
    let mut words = vec![
        "--test-reporter=spec".to_owned(),
        "--test-reporter-destination=stdout".to_owned(),
    ];
    for (reporter, file) in [("junit", "node.xml"), ("tap", "node.tap")] {
        words.push(format!("--test-reporter={reporter}"));
        words.push(format!(
            "--test-reporter-destination={}",
            quoted(&ask.places.report(file))
        ));
    }
    if let Some(filter) = &ask.options.filter {
        words.push(format!("--test-name-pattern={}", quoted(filter)));
    }
    step.env("NODE_OPTIONS", words.join(" "))
        .report(Place::Own("node.xml".to_owned()), Format::Junit)
        .report(Place::Own("node.tap".to_owned()), Format::Tap)
}

/// As the variable is split: words in double quotes, with a backslash before what would end them.
fn quoted(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-".contains(c);
    if text.chars().all(plain) {
        return text.to_owned();
    }
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}
