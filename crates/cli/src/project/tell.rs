//! Telling what came of it: for a person with places to click on and the lines of source, as JSON, and into files as JUnit and SARIF.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use cofferdam_contract::codes::ErrorCode;
use cofferdam_project::diagnostic::{self, Diagnostic, Severity};
use cofferdam_project::report;
use cofferdam_project::{Action, Beneath};
use cofferdam_workshop::{Outcome, ProjectOutcome, SCHEMA, StepOutcome, Tests, Tried, Verdict};

use super::sheet::Sheet;
use crate::arguments::project::ActArgs;
use crate::failure::{self, Failure};
use crate::terminal::amount;
use crate::terminal::colour::{Colour, Paint, When};
use crate::terminal::output::Document;
use crate::terminal::size::Target;
use crate::terminal::text::{cut, safe};

/// More than these nobody reads in a terminal; `--json` has them all.
const MOST_DIAGNOSTICS: usize = 50;
const MOST_FAILURES: usize = 50;
const LONGEST_LINE: usize = 160;
const MAX_SOURCE: u64 = 4 << 20;

/// How it is to be told.
#[derive(Debug)]
pub(crate) struct Tell {
    json: bool,
    junit: Option<Sheet>,
    sarif: Option<Sheet>,
}

impl Tell {
    pub(super) fn new(args: &ActArgs, junit: Option<PathBuf>) -> Result<Self, Failure> {
        Self::of(args.json, junit.as_ref(), args.sarif.as_ref())
    }

    /// Files are held from now on.
    pub(crate) fn of(
        json: bool,
        junit: Option<&PathBuf>,
        sarif: Option<&PathBuf>,
    ) -> Result<Self, Failure> {
        let hold = |flag: &str, path: Option<&PathBuf>| {
            path.map(|path| Sheet::hold(flag, path)).transpose()
        };
        Ok(Self {
            json,
            junit: hold("--junit", junit)?,
            sarif: hold("--sarif", sarif)?,
        })
    }

    pub(crate) fn outcome(&self, outcome: &Outcome, root: &Path) -> Result<(), Failure> {
        let steps: Vec<&StepOutcome> = outcome
            .projects
            .iter()
            .flat_map(ProjectOutcome::last_attempts)
            .collect();
        if let Some(sheet) = &self.junit {
            let all = outcome.as_they_count();
            sheet.write(&report::junit(&all))?;
        }
        if let Some(sheet) = &self.sarif {
            let all: Vec<Diagnostic> = steps
                .iter()
                .flat_map(|step| step.diagnostics.clone())
                .collect();
            let document = diagnostic::sarif(&all, env!("CARGO_PKG_VERSION"));
            sheet.write(&format!("{document:#}\n"))?;
        }
        if self.json {
            let document = Document {
                schema: SCHEMA,
                content: outcome,
            };
            let mut text = serde_json::to_string(&document)
                .map_err(|error| Failure::new(ErrorCode::Internal, error.to_string()))?;
            text.push('\n');
            return failure::print(&text);
        }
        let mut page = Page {
            text: String::new(),
            paint: Paint::of(When::Auto, Target::of_stdout()),
            source: Beneath::open(root).ok(),
        };
        for project in &outcome.projects {
            page.project(project, &outcome.tried(project));
        }
        page.sum(outcome);
        for warning in &outcome.warnings {
            crate::terminal::output::note(&format!("cofferdam: {}", safe(warning)));
        }
        if outcome.action == Action::Run {
            // Standard output is the program's, and what it failed with is its own to say.
            let is_own = steps.last().is_some_and(|step| step.is_program)
                && outcome.verdict == Verdict::Failed;
            if outcome.verdict != Verdict::Passed && !is_own {
                crate::terminal::output::note(page.text.trim_end());
            }
            return Ok(());
        }
        failure::print(&page.text)
    }
}

struct Page {
    text: String,
    paint: Paint,
    source: Option<Beneath>,
}

impl Page {
    fn project(&mut self, project: &ProjectOutcome, tried: &[Tried<'_>]) {
        let steps = project.last_attempts();
        let found: Vec<&Diagnostic> = steps.iter().flat_map(|step| &step.diagnostics).collect();
        for diagnostic in found.iter().take(MOST_DIAGNOSTICS) {
            self.diagnostic(diagnostic);
        }
        self.more(found.len(), MOST_DIAGNOSTICS, "diagnostics");
        let failed: Vec<&Tried<'_>> = tried.iter().filter(|tried| tried.failed > 0).collect();
        for tried in failed.iter().take(MOST_FAILURES) {
            self.failure(tried);
        }
        self.more(failed.len(), MOST_FAILURES, "failures");
        for tests in steps.iter().filter_map(|step| step.tests.as_ref()) {
            self.problems(tests);
        }
        let colour = colour(project.verdict);
        let mark = self.paint.paint(colour, project.verdict.as_str());
        let _ = write!(self.text, "{mark}  {}", safe(&project.manifest));
        let detail = steps.iter().rev().find_map(|step| step.detail.as_deref());
        if let Some(detail) = detail.or(project.detail.as_deref()) {
            let _ = write!(self.text, ": {}", cut(&safe(detail), 400));
        }
        self.text.push('\n');
        for said in steps.iter().filter_map(|step| step.said.as_deref()) {
            for line in said.lines().rev().take(10).collect::<Vec<_>>().iter().rev() {
                let _ = writeln!(self.text, "    {}", cut(&safe(line), LONGEST_LINE));
            }
        }
    }

    fn more(&mut self, there: usize, shown: usize, what: &str) {
        if there > shown {
            let _ = writeln!(
                self.text,
                "… and {} more {what}; --json has them all",
                there - shown
            );
        }
    }

    /// `file:line:column: error[CODE]: message`, and the line it is about.
    fn diagnostic(&mut self, found: &Diagnostic) {
        let mut place = safe(found.file.as_deref().unwrap_or_default());
        for number in [found.line, found.column].into_iter().flatten() {
            let _ = write!(place, ":{number}");
        }
        if !place.is_empty() {
            place.push_str(": ");
        }
        let code = found
            .code
            .as_deref()
            .map_or_else(String::new, |code| format!("[{}]", safe(code)));
        let severity = self.paint.paint(
            match found.severity {
                Severity::Error => Colour::Red,
                Severity::Warning => Colour::Yellow,
                Severity::Note => Colour::Blue,
            },
            &format!("{}{code}", found.severity.as_str()),
        );
        let mut lines = found.message.lines();
        let first = safe(lines.next().unwrap_or_default());
        let _ = writeln!(
            self.text,
            "{}{severity}: {first}",
            self.paint.paint(Colour::Bold, &place)
        );
        for line in lines.take(8) {
            let _ = writeln!(self.text, "    {}", cut(&safe(line), LONGEST_LINE));
        }
        self.source_line(found);
    }

    fn source_line(&mut self, found: &Diagnostic) {
        let (Some(file), Some(number)) = (&found.file, found.line) else {
            return;
        };
        let text = self
            .source
            .as_ref()
            .and_then(|source| source.text(file, MAX_SOURCE).ok());
        let at = usize::try_from(number)
            .unwrap_or(usize::MAX)
            .saturating_sub(1);
        let Some(line) = text.as_deref().and_then(|text| text.lines().nth(at)) else {
            return;
        };
        let line = cut(&safe(&line.replace('\t', " ")), LONGEST_LINE);
        let _ = writeln!(self.text, "  {number:>5} | {line}");
        let column = found
            .column
            .and_then(|column| usize::try_from(column).ok())
            .filter(|column| *column <= LONGEST_LINE);
        if let Some(column) = column {
            let caret = self.paint.paint(Colour::Red, "^");
            let _ = writeln!(
                self.text,
                "        | {}{caret}",
                " ".repeat(column.saturating_sub(1))
            );
        }
    }

    fn failure(&mut self, tried: &Tried<'_>) {
        let case = tried.case;
        let cross = self.paint.paint(Colour::Red, "✗");
        let _ = write!(self.text, "{cross} {}", cut(&safe(&case.full_name()), 200));
        if tried.attempts > 1 {
            let _ = write!(self.text, ": {} of {} failed", tried.failed, tried.attempts);
        }
        self.text.push('\n');
        if let Some(message) = &case.message {
            for line in message.lines().take(5) {
                let _ = writeln!(self.text, "    {}", cut(&safe(line), LONGEST_LINE));
            }
        }
        if let (Some(expected), Some(actual)) = (&case.expected, &case.actual) {
            let _ = writeln!(
                self.text,
                "    expected {}, got {}",
                cut(&safe(expected), 100),
                cut(&safe(actual), 100)
            );
        }
        if let Some(file) = &case.file {
            let line = case
                .line
                .map_or_else(String::new, |line| format!(":{line}"));
            let _ = writeln!(self.text, "    at {}{line}", safe(file));
        }
    }

    fn problems(&mut self, tests: &Tests) {
        for problem in tests.problems.iter().take(10) {
            let bang = self.paint.paint(Colour::Yellow, "!");
            let mut lines = problem.lines().filter(|line| !line.trim().is_empty());
            let _ = writeln!(
                self.text,
                "{bang} {}",
                cut(&safe(lines.next().unwrap_or_default()), LONGEST_LINE)
            );
            for line in lines.take(5) {
                let _ = writeln!(self.text, "    {}", cut(&safe(line), LONGEST_LINE));
            }
        }
    }

    fn sum(&mut self, outcome: &Outcome) {
        for name in outcome.flaky.iter().take(MOST_FAILURES) {
            let mark = self.paint.paint(Colour::Yellow, "flaky");
            let _ = writeln!(
                self.text,
                "{mark} {}: passed at another attempt",
                cut(&safe(name), 200)
            );
        }
        if let Some(counts) = &outcome.counts {
            let ms: f64 = outcome
                .projects
                .iter()
                .flat_map(|project| &project.steps)
                .map(|step| step.wall_ms)
                .sum();
            let _ = writeln!(
                self.text,
                "{}: {} passed, {} failed, {} skipped in {}",
                amount::count(u64::try_from(counts.total).unwrap_or(u64::MAX), "test"),
                counts.passed,
                counts.failed,
                counts.skipped,
                amount::milliseconds(ms)
            );
        }
        if let Some(covered) = &outcome.coverage {
            let lines = covered.lines;
            let tenths = (lines.covered * 1000).checked_div(lines.total).unwrap_or(0);
            let _ = writeln!(
                self.text,
                "coverage: {}.{} % ({} of {} lines in {} files)",
                tenths / 10,
                tenths % 10,
                lines.covered,
                lines.total,
                covered.files.len()
            );
        }
        if outcome.action != Action::Test {
            let steps = outcome.projects.iter().flat_map(|project| &project.steps);
            let errors: usize = steps.clone().map(StepOutcome::errors).sum();
            let all: usize = steps.map(|step| step.diagnostics.len()).sum();
            if all > 0 {
                let _ = writeln!(self.text, "{errors} errors, {} warnings", all - errors);
            }
        }
    }
}

const fn colour(verdict: Verdict) -> Colour {
    match verdict {
        Verdict::Nothing => Colour::Dim,
        Verdict::Passed => Colour::Green,
        Verdict::Failed | Verdict::Unreadable | Verdict::Stopped => Colour::Red,
    }
}
