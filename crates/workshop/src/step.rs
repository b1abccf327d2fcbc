//! Running one step: the request, the run, and reading what it left.

use std::collections::HashSet;
use std::ffi::OsString;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use cofferdam_contract::codes::ErrorCode;
use cofferdam_contract::ending::{Ending, Stream};
use cofferdam_contract::enforcement::LimitName;
use cofferdam_contract::limits::Limits;
use cofferdam_contract::record::RunRecord;
use cofferdam_contract::request::{BackendName, Grant, Mount, Workspace, WorkspaceAccess};
use cofferdam_engine::host::Host;
use cofferdam_engine::pipeline::{Evidence, Input, LiveUsage, OnLimit, Results, Sink, Streams};
use cofferdam_project::action::{Output, Place, ReportAt};
use cofferdam_project::diagnostic;
use cofferdam_project::report::{Budget, MAX_REPORT, Status, Tally, TestReport};
use cofferdam_project::{Action, Beneath, Cache, Places, Step};
use cofferdam_store::model::RunKind;
use cofferdam_store::private_dir::PrivateDir;
use cofferdam_store::{DataDir, RunId};
use rustix::event::{PollFd, PollFlags, Timespec};

use crate::apart;
use crate::cache::{self, Held, Use};
use crate::carrier::Carrier;
use crate::coverage::{self, Seen};
use crate::ears::{Ears, Found, Open};
use crate::error::WorkError;
use crate::follow::Follow;
use crate::gather::Before;
use crate::outcome::{Ended, StepOutcome, Tests, Verdict, judge};
use crate::shelf::Shelf;
use crate::tee::{Listening, Shown, Tee};
use crate::tools::Tools;
use crate::watcher::{Begun, Watcher};

/// Everything that the steps of one call share.
#[derive(Debug)]
pub struct Bench<'a> {
    pub action: Action,
    /// The project's directory.
    pub root: PathBuf,
    /// Holds a directory for each cache.
    pub cache: PathBuf,
    pub shelf: Shelf,
    /// Where reports are laid.
    pub data_dir: DataDir,
    pub access: WorkspaceAccess,
    pub env: Vec<(OsString, OsString)>,
    pub mounts: Vec<Mount>,
    pub waived: Vec<LimitName>,
    pub backend: BackendName,
    /// For each step.
    pub limits: Limits,
    /// No step goes on after it.
    pub until: Option<Instant>,
    /// Where the limits are for all steps together: what was used of them so far.
    pub together: Option<Mutex<Spent>>,
    pub host: &'a Host,
    pub cancel: Option<BorrowedFd<'a>>,
    /// What a step takes while it runs.
    pub usage: Option<Arc<LiveUsage>>,
    pub watcher: Arc<dyn Watcher>,
    pub carrier: Arc<dyn Carrier>,
    /// For the program of a project that is run; end of file at once for everything else.
    pub stdin: Option<BorrowedFd<'a>>,
    /// What may still be kept of the tests of all steps together.
    pub budget: Arc<Mutex<Budget>>,
}

/// What the steps before have used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Spent {
    pub cpu: Duration,
    pub output: u64,
}

pub(crate) const INSIDE_CACHES: &str = "/cache";
pub(crate) const INSIDE_REPORTS: &str = "/reports";
/// How much of what a program prints is in the answer; its run in the history has all of it.
const PRINTED: usize = 1 << 20;
/// How much of an output that nobody could understand is repeated.
const SAID: usize = 4 << 10;

impl Bench<'_> {
    /// Without walls everything is where it is.
    pub(crate) fn is_host(&self) -> bool {
        self.backend == BackendName::Host
    }

    /// Whether the time is over or somebody has ended it.
    pub(crate) fn is_over(&self) -> bool {
        let is_late = self.until.is_some_and(|until| Instant::now() >= until);
        is_late
            || self.cancel.is_some_and(|cancel| {
                let mut fds = [PollFd::from_borrowed_fd(cancel, PollFlags::IN)];
                rustix::event::poll(&mut fds, Some(&Timespec::default())).is_ok_and(|n| n > 0)
            })
    }

    /// Where a step finds things. The directory for reports is another one for each step.
    pub(crate) fn places(&self, reports: &Path) -> Places {
        if self.is_host() {
            let text = |path: &Path| path.to_string_lossy().into_owned();
            return Places {
                root: text(&self.root),
                caches: text(&self.cache),
                reports: text(reports),
            };
        }
        Places {
            root: Workspace::INSIDE.to_owned(),
            caches: INSIDE_CACHES.to_owned(),
            reports: INSIDE_REPORTS.to_owned(),
        }
    }

    /// A directory of its own for the reports of one step.
    pub(crate) fn reports(&self) -> Result<PrivateDir, WorkError> {
        Ok(PrivateDir::create(&self.data_dir, RunId::new())?)
    }

    /// Runs a step and reads what it left.
    pub(crate) fn run(
        &self,
        manifest: &str,
        step: &Step,
        tools: &Tools,
        reports: &PrivateDir,
        attempt: u32,
    ) -> Result<StepOutcome, WorkError> {
        // Held until the step has ended. On a shared shelf nobody writes, so that nobody waits.
        let uses: Vec<Use> = match self.shelf {
            Shelf::Own => step.caches.iter().map(|each| self.use_of(*each)).collect(),
            Shelf::Shared => Vec::new(),
        };
        let _held = self.hold(&uses)?;
        for (name, contents) in &step.aids {
            reports.place(name, contents.as_bytes(), 0o644)?;
        }
        let project = self.beneath(&self.root)?;
        let before = Before::look(&project, &step.reports);
        let mut request = self.request(step, tools, reports.path());
        let mut apart = None;
        if self.is_host() {
            let careful = apart::guard(&step.guards, &self.root, &project)?;
            request.argv.extend(careful.map(Into::into));
            if let Some(wanted) = &step.apart {
                let own = self.reports()?;
                let top = apart::lay_out(wanted, &project, &own)?;
                let root = self.places(Path::new("")).root;
                request.cwd = Some(top.join(below(&step.cwd, &root)));
                apart = Some((wanted, own));
            }
        }
        let grant = Grant::new(request)
            .map_err(|problems| WorkError::problems(ErrorCode::InputInvalid, &problems))?;
        let mut recording = self.watcher.recording()?;
        let stdout = tally(&step.reports, &Place::Stdout);
        let stderr = tally(&step.reports, &Place::Stderr);
        let is_heard = stdout.is_some() || stderr.is_some();
        // What a container writes is seen when it has ended.
        let follow = match is_heard || self.backend == BackendName::Docker {
            true => None,
            false => self.follow(&step.reports, reports.path()),
        };
        self.watcher.began(&Begun {
            manifest,
            argv: &step.argv,
            attempt,
            counts: is_heard || follow.is_some(),
        });
        let shown = match step.output {
            Output::ForPeople | Output::OfProgram => Shown::Yes,
            Output::ForPrograms => Shown::No,
        };
        // What a tool says before a program begins is no part of what that prints.
        let told_as = match (self.action, &step.output) {
            (Action::Run, Output::ForPeople) => Stream::Stderr,
            _ => Stream::Stdout,
        };
        let (to_stdout, stdout) = self.listen(told_as, shown, stdout)?;
        let (to_stderr, stderr) = self.listen(Stream::Stderr, Shown::Yes, stderr)?;
        let ears = Arc::new(Mutex::new(Ears::Open(Open {
            stdout,
            stderr,
            project,
            own: reports.path().to_owned(),
            before,
            reports: step.reports.clone(),
            budget: Arc::clone(&self.budget),
        })));
        if let Some(recording) = &mut recording {
            let ears = Arc::clone(&ears);
            recording.results = Some(Results::new(move || Ears::found(&ears)?.kept()));
            recording.kind = kind(self.action);
            // A build leaves thousands of files that the next one makes again.
            recording.artifacts = None;
        }
        let streams = Streams {
            stdin: self.input(step)?,
            stdout: Sink::Pass { to: to_stdout },
            stderr: Sink::Pass { to: to_stderr },
            result: None,
            on_output_limit: OnLimit::Stop,
            evidence: Evidence::Full,
            cancel: self.cancel,
            recording,
            usage: self.usage.clone(),
        };
        let record = self.carrier.run(grant, streams, self.host)?;
        drop(follow);
        if let (Some((wanted, own)), Ending::Exited { code: 0 }) = (&apart, &record.ending) {
            apart::take_back(wanted, &self.beneath(&self.root)?, own)?;
        }
        self.spend(&record);
        self.watcher.ended(&record);
        let mut outcome = self.outcome(step, &record, Ears::take(&ears), attempt);
        let root = self.places(Path::new("")).root;
        let seen = Seen {
            root: &root,
            dir: below(&step.cwd, &root),
        };
        outcome.coverage = step.coverage.as_ref().and_then(|at| {
            let mut budget = self.budget.lock().unwrap_or_else(PoisonError::into_inner);
            coverage::read(at, reports.path(), seen, budget.coverage(), &|| {
                self.is_over()
            })
        });
        Ok(outcome)
    }

    /// Waits for its turn where caches need turns, and says so.
    fn hold(&self, uses: &[Use]) -> Result<Held, WorkError> {
        let waits = |cache: Cache| {
            let name = cache.as_str();
            let line = format!("cofferdam: waiting for the {name} cache, which another run uses\n");
            self.watcher.said(Stream::Stderr, line.as_bytes());
        };
        match self.until {
            Some(until) => cache::hold_until(until, &self.cache, uses, self.cancel, &waits),
            None => cache::hold(&self.cache, uses, self.cancel, &waits),
        }
    }

    /// Only the program itself reads what a person types: tools have no questions to ask.
    fn input(&self, step: &Step) -> Result<Input, WorkError> {
        match self.stdin.filter(|_| step.output == Output::OfProgram) {
            None => Ok(Input::Empty),
            Some(stdin) => stdin
                .try_clone_to_owned()
                .map(Input::From)
                .map_err(|error| {
                    WorkError::io(ErrorCode::Internal, "cannot pass standard input on", &error)
                }),
        }
    }

    /// Where tests are told while they run, but into a file. Progress is worth no failure.
    fn follow(&self, reports: &[ReportAt], dir: &Path) -> Option<Follow> {
        reports.iter().find_map(|at| {
            let Place::Own(name) = &at.place else {
                return None;
            };
            let tally = Tally::of(at.format)?;
            Follow::begin(dir, name, tally, Arc::clone(&self.watcher)).ok()
        })
    }

    fn listen(
        &self,
        stream: Stream,
        shown: Shown,
        tally: Option<Tally>,
    ) -> Result<(OwnedFd, Tee), WorkError> {
        let at_most = usize::try_from(MAX_REPORT).unwrap_or(usize::MAX);
        let listening = Listening {
            stream,
            shown,
            tally,
            to: Arc::clone(&self.watcher),
        };
        Tee::new(listening, at_most)
            .map_err(|error| WorkError::io(ErrorCode::Internal, "cannot listen to a tool", &error))
    }

    fn outcome(&self, step: &Step, record: &RunRecord, found: Found, attempt: u32) -> StepOutcome {
        let Found {
            tests,
            stdout,
            stderr,
        } = found;
        let root = self.places(Path::new("")).root;
        let (stdout, stderr) = (
            String::from_utf8_lossy(&stdout),
            String::from_utf8_lossy(&stderr),
        );
        let dir = below(&step.cwd, &root);
        let mut diagnostics = diagnostic::read(&step.speakers, &[&stdout, &stderr], &root);
        for found in &mut diagnostics {
            // Tools name files as seen from where they were started.
            if let Some(file) = found.file.as_mut().filter(|file| !file.starts_with('/'))
                && !dir.is_empty()
                && !file.starts_with(&format!("{dir}/"))
            {
                *file = format!("{dir}/{file}");
            }
        }
        // A test that failed is told as such, and not once more by the traceback that it printed.
        let cases = tests.iter().flat_map(|tests| &tests.tests);
        let failed: HashSet<(Option<String>, Option<u32>)> = cases
            .filter(|case| case.status == Status::Failed)
            .map(|case| {
                let file = case.file.as_deref();
                (
                    file.map(|file| diagnostic::relative(file, &root)),
                    case.line,
                )
            })
            .collect();
        diagnostics.retain(|found| !failed.contains(&(found.file.clone(), found.line)));
        let mut budget = self.budget.lock().unwrap_or_else(PoisonError::into_inner);
        diagnostics.truncate(budget.diagnostics(diagnostics.len()));
        drop(budget);
        let (verdict, detail) = judge(record, tests.as_ref());
        let is_silent =
            diagnostics.is_empty() && tests.as_ref().is_none_or(|tests| tests.counts().total == 0);
        let is_bad = !matches!(verdict, Verdict::Passed | Verdict::Nothing);
        let is_program = step.output == Output::OfProgram;
        StepOutcome {
            argv: step.argv.clone(),
            index: 0,
            run_id: record.run_id.clone(),
            wall_ms: record.usage.wall_ms,
            ending: Ended::from(&record.ending),
            attempt,
            verdict,
            detail,
            diagnostics,
            tests: tests.map(|tests| told(tests, &root)),
            coverage: None,
            is_program,
            printed: is_program.then(|| head(&stdout, PRINTED)),
            said: (is_bad && is_silent && !is_program).then(|| {
                let both = format!("{}\n{}", tail(&stdout, SAID), tail(&stderr, SAID));
                tail(both.trim_end(), SAID)
            }),
        }
    }

    fn beneath(&self, dir: &Path) -> Result<Beneath, WorkError> {
        Beneath::open(dir).map_err(|error| {
            let what = format!("cannot read `{}`", dir.display());
            WorkError::io(ErrorCode::InputUnreadable, &what, &error)
        })
    }
}

/// Paths as a person in the project would write them.
fn told(tests: TestReport, root: &str) -> Tests {
    let counts = tests.counts();
    let mut cases = tests.tests;
    for case in &mut cases {
        if let Some(file) = &mut case.file {
            *file = diagnostic::relative(file, root);
        }
    }
    Tests {
        counts,
        tests: cases,
        problems: tests.problems,
    }
}

/// Counts the tests that this stream tells of, where a report on it tells them one by one.
fn tally(reports: &[ReportAt], stream: &Place) -> Option<Tally> {
    let told = reports.iter().find(|at| at.place == *stream)?;
    Tally::of(told.format)
}

/// Under which kind the history has a step.
const fn kind(action: Action) -> RunKind {
    match action {
        Action::Test => RunKind::Test,
        Action::Restore | Action::Build | Action::Lint | Action::Format => RunKind::Build,
        Action::Run => RunKind::Command,
    }
}

/// A directory of the project, relative to it.
fn below<'a>(dir: &'a str, root: &str) -> &'a str {
    dir.strip_prefix(root)
        .unwrap_or_default()
        .trim_start_matches('/')
}

fn head(text: &str, at_most: usize) -> String {
    text.get(..text.floor_char_boundary(at_most))
        .unwrap_or_default()
        .to_owned()
}

fn tail(text: &str, at_most: usize) -> String {
    let from = text.len().saturating_sub(at_most);
    text.get(text.ceil_char_boundary(from)..)
        .unwrap_or_default()
        .to_owned()
}
