//! Running one step: the request, the run, and reading what it left.

use std::collections::HashSet;
use std::ffi::OsString;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use cofferdam_contract::codes::ErrorCode;
use cofferdam_contract::ending::Ending;
use cofferdam_contract::limits::Limits;
use cofferdam_contract::record::RunRecord;
use cofferdam_contract::request::{
    BackendName, Gpus, Grant, Mount, MountAccess, Network, Request, Root, Workspace,
    WorkspaceAccess,
};
use cofferdam_contract::units::Cap;
use cofferdam_engine::host::Host;
use cofferdam_engine::pipeline::{
    self, Evidence, Input, OnLimit, Recording, Results, Sink, Streams,
};
use cofferdam_project::action::Output;
use cofferdam_project::diagnostic;
use cofferdam_project::report::{MAX_REPORT, Status, TestReport};
use cofferdam_project::{Action, Beneath, Cache, Places, Step};
use cofferdam_store::model::RunKind;
use cofferdam_store::private_dir::PrivateDir;
use cofferdam_store::{DataDir, RunId};

use super::ears::{Ears, Found, Open};
use super::gather::Before;
use super::outcome;
use super::outcome::{Ended, StepOutcome, Tests, Verdict, judge};
use super::tee::{Show, Tee};
use super::tools::Tools;
use crate::arguments::{HistoryArgs, Places as ConfigPlaces};
use crate::cache::{self, Use};
use crate::config::Merged;
use crate::failure::Failure;
use crate::{history, run};

/// Everything that the steps of one call share.
#[derive(Debug)]
pub(super) struct Bench<'a> {
    pub(super) action: Action,
    pub(super) root: PathBuf,
    pub(super) cache: PathBuf,
    pub(super) data_dir: DataDir,
    pub(super) access: WorkspaceAccess,
    pub(super) env: Vec<OsString>,
    pub(super) mounts: Vec<OsString>,
    pub(super) waive: Vec<String>,
    pub(super) history: HistoryArgs,
    pub(super) places: ConfigPlaces,
    pub(super) merged: Merged,
    pub(super) show: Show,
    pub(super) host: Host,
    pub(super) cancel: BorrowedFd<'a>,
}

const INSIDE_REPORTS: &str = "/reports";
/// How much of an output that nobody could understand is repeated.
const SAID: usize = 4 << 10;

impl Bench<'_> {
    /// Without walls everything is where it is.
    fn is_host(&self) -> bool {
        self.merged.backend.value == BackendName::Host
    }

    /// Where a step finds things. The directory for reports is another one for each step.
    pub(super) fn places(&self, reports: &Path) -> Places {
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
            caches: cache::INSIDE.to_owned(),
            reports: INSIDE_REPORTS.to_owned(),
        }
    }

    /// A directory of its own for the reports of one step.
    pub(super) fn reports(&self) -> Result<PrivateDir, Failure> {
        Ok(PrivateDir::create(&self.data_dir, RunId::new())?)
    }

    /// Runs a step and reads what it left.
    pub(super) fn run(
        &self,
        step: &Step,
        tools: &Tools,
        reports: &PrivateDir,
        attempt: u32,
    ) -> Result<StepOutcome, Failure> {
        // Held until the step has ended.
        let uses: Vec<Use> = step
            .caches
            .iter()
            .map(|cache| self.use_of(*cache))
            .collect();
        let _held = cache::hold(&self.cache, &uses, self.cancel)?;
        let project = self.beneath(&self.root)?;
        let before = Before::look(&project, &step.reports);
        let request = self.request(step, tools, reports.path())?;
        let grant = Grant::new(request)
            .map_err(|problems| Failure::problems(ErrorCode::InputInvalid, &problems))?;
        let mut recording = self.recording()?;
        let kept_in = recording.as_ref().map(|recording| recording.dir.clone());
        let (to_stdout, stdout) = self.listen(match step.output {
            Output::ForPeople => self.show,
            Output::ForPrograms => Show::Nobody,
        })?;
        let (to_stderr, stderr) = self.listen(self.show)?;
        let ears = Arc::new(Mutex::new(Ears::Open(Open {
            stdout,
            stderr,
            project,
            own: reports.path().to_owned(),
            before,
            reports: step.reports.clone(),
        })));
        if let Some(recording) = &mut recording {
            let ears = Arc::clone(&ears);
            recording.results = Some(Results::new(move || Ears::found(&ears)?.kept()));
        }
        let streams = Streams {
            stdin: Input::Empty,
            stdout: Sink::Pass { to: to_stdout },
            stderr: Sink::Pass { to: to_stderr },
            result: None,
            on_output_limit: OnLimit::Stop,
            evidence: Evidence::Full,
            cancel: Some(self.cancel),
            recording,
            usage: None,
        };
        let record = pipeline::run(grant, streams, &self.host)?;
        history::tell_unrecorded(&record);
        history::afterwards(&record, kept_in.as_ref(), &self.merged.history);
        let found = Ears::found(&ears).unwrap_or_default();
        Ok(self.outcome(step, record, &found, attempt))
    }

    fn listen(&self, show: Show) -> Result<(OwnedFd, Tee), Failure> {
        let at_most = usize::try_from(MAX_REPORT).unwrap_or(usize::MAX);
        Tee::new(show, at_most)
            .map_err(|error| Failure::io(ErrorCode::Internal, "cannot listen to a tool", &error))
    }

    fn outcome(&self, step: &Step, record: RunRecord, found: &Found, attempt: u32) -> StepOutcome {
        let Found {
            tests,
            stdout,
            stderr,
        } = found;
        let root = self.places(Path::new("")).root;
        let mut said = String::from_utf8_lossy(stdout).into_owned();
        said.push('\n');
        said.push_str(&String::from_utf8_lossy(stderr));
        let dir = step
            .cwd
            .strip_prefix(&root)
            .unwrap_or_default()
            .trim_start_matches('/');
        let mut diagnostics = diagnostic::read(&step.speakers, &said, &root);
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
        let (verdict, detail) = judge(&record, tests.as_ref());
        let is_silent =
            diagnostics.is_empty() && tests.as_ref().is_none_or(|tests| tests.tests.is_empty());
        let is_bad = !matches!(verdict, Verdict::Passed | Verdict::Nothing);
        let mut outcome = StepOutcome {
            argv: step.argv.clone(),
            index: 0,
            run_id: record.run_id.clone(),
            wall_ms: record.usage.wall_ms,
            ending: Ended {
                code: match record.ending {
                    Ending::Exited { code } => Some(code),
                    Ending::Signaled { .. } | Ending::Stopped(_) | Ending::NeverStarted(_) => None,
                },
                ending: record.ending,
            },
            attempt,
            verdict,
            detail,
            diagnostics,
            tests: None,
            said: (is_bad && is_silent).then(|| tail(said.trim_end(), SAID)),
        };
        outcome.tests = tests.clone().map(|tests| self.told(tests, &root));
        outcome
    }

    /// Paths as a person in the project would write them.
    fn told(&self, tests: TestReport, root: &str) -> outcome::Tests {
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

    fn request(&self, step: &Step, tools: &Tools, reports: &Path) -> Result<Request, Failure> {
        let mut env: Vec<(OsString, OsString)> = Vec::new();
        if let Some(path) = &tools.path
            && !self.is_host()
        {
            set(
                &mut env,
                "PATH".into(),
                format!("{path}:/usr/local/bin:/usr/bin:/bin").into(),
            );
        }
        for (name, value) in &step.env {
            set(&mut env, name.into(), value.into());
        }
        for text in &self.env {
            let (name, value) = run::variable(text.clone())?;
            set(&mut env, name, value);
        }
        let waived = self.waive.iter().map(|name| run::waived(name));
        Ok(Request {
            argv: step.argv.iter().map(Into::into).collect(),
            env,
            cwd: Some(step.cwd.clone().into()),
            limits: self.limits(step),
            waived: waived.collect::<Result<_, _>>()?,
            network: Network::Denied,
            root: Root::HostUsr,
            workspace: Some(Workspace {
                path: self.root.clone(),
                access: self.access,
            }),
            mounts: self.mounts(step, tools, reports)?,
            backend: self.merged.backend.value,
            gpus: Gpus::None,
        })
    }

    /// What the project says of itself can only be shorter.
    fn limits(&self, step: &Step) -> Limits {
        let mut limits = self.merged.limits();
        if let Some(own) = step.at_most {
            limits.wall_time = match limits.wall_time {
                Cap::AtMost(allowed) => Cap::AtMost(allowed.min(own)),
                Cap::Unlimited => Cap::AtMost(own),
            };
        }
        limits
    }

    /// Caches can be written to only where something is fetched or installed: what one build leaves there, another must not find.
    fn use_of(&self, cache: Cache) -> Use {
        let access = match self.action {
            Action::Restore => MountAccess::ReadWrite,
            _ if cache.is_written_by_builds() => MountAccess::ReadWrite,
            Action::Build | Action::Test | Action::Lint | Action::Format => MountAccess::ReadOnly,
        };
        Use { cache, access }
    }

    /// What is shown inside besides the project.
    fn mounts(&self, step: &Step, tools: &Tools, reports: &Path) -> Result<Vec<Mount>, Failure> {
        let mut mounts = Vec::new();
        for text in &self.mounts {
            mounts.push(run::mount(text.clone())?);
        }
        if self.is_host() {
            return Ok(mounts);
        }
        mounts.extend(tools.mounts.iter().cloned());
        let uses = step.caches.iter().map(|cache| self.use_of(*cache));
        mounts.extend(uses.map(|each| each.mount(&self.cache)));
        mounts.push(Mount {
            source: reports.to_owned(),
            target: INSIDE_REPORTS.into(),
            access: MountAccess::ReadWrite,
        });
        Ok(mounts)
    }

    fn recording(&self) -> Result<Option<Recording>, Failure> {
        let dir = self.places.data_dir.clone();
        let mut recording = history::recording(&self.history, dir, &self.merged.history)?;
        if let Some(recording) = &mut recording {
            recording.kind = match self.action {
                Action::Test => RunKind::Test,
                Action::Restore | Action::Build | Action::Lint | Action::Format => RunKind::Build,
            };
            // A build leaves thousands of files that the next one makes again.
            recording.artifacts = None;
        }
        Ok(recording)
    }

    fn beneath(&self, dir: &Path) -> Result<Beneath, Failure> {
        Beneath::open(dir).map_err(|error| {
            let what = format!("cannot read `{}`", dir.display());
            Failure::io(ErrorCode::InputUnreadable, &what, &error)
        })
    }
}

fn set(env: &mut Vec<(OsString, OsString)>, name: OsString, value: OsString) {
    env.retain(|(present, _)| *present != name);
    env.push((name, value));
}

fn tail(text: &str, at_most: usize) -> String {
    let from = text.len().saturating_sub(at_most);
    text.get(text.ceil_char_boundary(from)..)
        .unwrap_or_default()
        .to_owned()
}
