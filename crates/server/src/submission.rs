//! What a client asks to be run, as it is sent, and how that becomes work. Every problem is found at once and before anything waits.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use cofferdam_contract::limits::Limits;
use cofferdam_contract::problem::{Problem, Problems};
use cofferdam_contract::request::WorkspaceAccess;
use cofferdam_engine::host::Host;
use cofferdam_store::RunId;
use cofferdam_store::model::RunKind;
use cofferdam_toolchain::{Mode, ResultChannel};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::asked_files::{self, FileRequest, one_of};
use crate::asked_image;
use crate::asked_kind;
pub(crate) use crate::asked_limits::LimitsRequest;
use crate::asked_network;
use crate::asked_tags;
use crate::away::{Given, Sent};
use crate::config::{Carrier, RunBounds};
use crate::fault::Fault;
use crate::idempotency::KeyUse;
use crate::inputs::{self, Base, InputRequest};
use crate::known::Declared;
use crate::language::{InputWish, Languages, Wish};
use crate::project::{ProjectRequest, ProjectTask};
use crate::runner::KeptPlace;
use crate::work::{CommandTask, Task, Work, WorkspaceWish};
use crate::workspace::PlacedFile;

/// A run to be made: a command, source code in a language, or an action of a project.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("oneOf" = crate::guide::kinds_of_run()))]
pub(crate) struct RunRequest {
    /// The program and its arguments. Either this, or `language` and `code`, or `project`.
    pub(crate) command: Option<Vec<String>>,
    pub(crate) language: Option<String>,
    pub(crate) code: Option<String>,
    /// Build, test or otherwise act on a project that comes along.
    pub(crate) project: Option<ProjectRequest>,
    /// Arguments for the program in `code`.
    #[serde(default)]
    pub(crate) args: Vec<String>,
    /// What the handler in `code` is called with; without it, `code` is a plain script.
    pub(crate) event: Option<Value>,
    /// Compile `code` once and run it for each of these, each in a sandbox of its own.
    pub(crate) inputs: Option<Vec<InputRequest>>,
    /// Placed in a private, writable workspace, `/work` inside, where the program starts.
    #[serde(default)]
    pub(crate) files: Vec<FileRequest>,
    /// Give a private workspace even without files; what is left there becomes artifacts.
    #[serde(default)]
    pub(crate) workspace: bool,
    #[serde(default)]
    pub(crate) env: BTreeMap<String, String>,
    /// Text for standard input.
    pub(crate) stdin: Option<String>,
    /// Bytes for standard input, in base64.
    pub(crate) stdin_base64: Option<String>,
    /// Where the program starts, as seen inside.
    pub(crate) cwd: Option<String>,
    #[serde(default)]
    pub(crate) limits: LimitsRequest,
    /// What may be reached, within what the operator allows: `none` (default), `allow=HOST[:PORT],…`, or `full` for all of that.
    pub(crate) network: Option<String>,
    /// The image whose files are the root, one of those that the operator allows; this machine's own programs without it.
    pub(crate) image: Option<String>,
    /// Found by these later. A run with a tag is kept until somebody removes it.
    #[serde(default)]
    pub(crate) tags: BTreeMap<String, String>,
    /// The run that this one belongs to.
    pub(crate) parent: Option<String>,
    /// Higher goes first among the runs of one token.
    #[serde(default)]
    pub(crate) priority: i8,
    /// From arrival: ended by then, waiting included.
    pub(crate) deadline_ms: Option<u64>,
    /// The client's own name for it, used in reports and kept with the run; the run's id unless said.
    pub(crate) execution_id: Option<String>,
    /// Where the result is sent as well; an address that the operator allows.
    pub(crate) callback_url: Option<String>,
    /// The same answer each time: one that is known may be given instead of a run.
    #[serde(default)]
    pub(crate) pure: bool,
    /// Run it so that it gives the same each time: fixed time, seeded randomness, and more, which `determinism` tells item by item. Not for a project, and not with a network.
    #[serde(default)]
    pub(crate) deterministic: bool,
    /// Where randomness begins in a deterministic run; 0 unless said.
    pub(crate) seed: Option<u64>,
    /// Answer when it has ended (default), or at once with 202.
    #[serde(default = "yes")]
    pub(crate) wait: bool,
    /// Files that came beside the JSON.
    #[serde(skip)]
    pub(crate) uploads: Vec<PlacedFile>,
    /// The archive of a project that came beside the JSON.
    #[serde(skip)]
    pub(crate) archive: Option<Vec<u8>>,
    #[serde(skip)]
    pub(crate) handler: HandlerWish,
    /// What compiling has at most, where a front door says so.
    #[serde(skip)]
    pub(crate) compile: Option<LimitsRequest>,
    /// Whether it came with an Idempotency-Key, so that it goes on without its client.
    #[serde(skip)]
    pub(crate) has_key: bool,
}

/// Whether a handler is called.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum HandlerWish {
    /// With an event it is, and must be there; without one the code is a script.
    #[default]
    AsEventSays,
    /// When the code has one.
    IfThere,
}

/// What both kinds of requests come to.
struct Prepared {
    task: Task,
    /// `None` for no workspace.
    files: Option<Vec<PlacedFile>>,
    stdin: Vec<u8>,
    limits: Limits,
}

/// Several runs at once.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct BatchRequest {
    pub(crate) runs: Vec<RunRequest>,
    /// Answer when all have ended (default), or at once with 202. Holds for all of them.
    #[serde(default = "yes")]
    pub(crate) wait: bool,
}

/// Work with how it is to be queued.
#[derive(Debug)]
pub(crate) struct Submission {
    pub(crate) work: Work,
    pub(crate) priority: i8,
    pub(crate) deadline: Duration,
    pub(crate) origin: Origin,
}

/// What a client said about its run besides the work.
#[derive(Debug, Default)]
pub(crate) struct Origin {
    pub(crate) execution_id: Option<String>,
    pub(crate) callback_url: Option<String>,
    /// What was asked, where that must outlive the daemon.
    pub(crate) request: Option<Vec<u8>>,
    pub(crate) key: Option<KeyUse>,
    /// In the queue, where it was waited for.
    pub(crate) place: Option<KeptPlace>,
}

const fn yes() -> bool {
    true
}

impl RunRequest {
    /// Whether checking it looks nothing up and unpacks nothing.
    pub(crate) fn is_checked_quickly(&self) -> bool {
        self.uploads.is_empty()
            && self.callback_url.is_none()
            && self.network.is_none()
            && self.image.is_none()
            && self.project.is_none()
            && self.inputs.is_none()
    }

    /// Blocks where a language is asked for that has not been probed yet.
    pub(crate) fn check(
        mut self,
        bounds: &RunBounds,
        languages: &Languages,
        host: &Host,
    ) -> Result<Submission, Fault> {
        let mut problems = Vec::new();
        // Before the files are taken.
        let mut origin = self.origin();
        let whole = (bounds.carrier == Carrier::Fleet).then(|| self.with_files());
        if bounds.carrier == Carrier::Fleet && self.image.is_some() {
            let fix = "images are not on the fleet; leave it out, or ask a daemon that runs here";
            problems.push(Problem::new("image", "", fix));
        }
        let uploads = std::mem::take(&mut self.uploads);
        let files = asked_files::placed(&self.files, uploads, &mut problems);
        let stdin = self.input(&mut problems);
        let parent = self.parent_id(&mut problems);
        asked_tags::check(&self.tags, &mut problems);
        self.check_inputs(bounds, &mut problems);
        asked_kind::check(&self, &mut problems);
        self.check_name(&mut problems);
        // Also where the language's own defaults will take their place: what was asked for is the same.
        let defaults = match &self.project {
            Some(_) => &cofferdam_project::limits::PROJECT,
            None => &bounds.defaults,
        };
        let limits = self.limits.merged(defaults, bounds, &mut problems);
        let project = self.project_task(!files.is_empty(), &mut problems);
        let network = asked_network::within(&self, &bounds.network, &mut problems);
        let root = asked_image::within(&self, &bounds.images, &mut problems);
        let seed = self.seed(&mut problems);
        Problems::check(problems)?;
        let Prepared {
            task,
            files,
            stdin,
            limits,
        } = match (project, &self.language, &self.code) {
            (Some(task), _, _) => Prepared {
                task: Task::Project(Box::new(task)),
                files: Some(files),
                stdin,
                limits,
            },
            (None, Some(language), Some(code)) => {
                let wish = Wish {
                    code: code.clone(),
                    mode: self.mode(),
                    args: self.args.clone(),
                    files,
                    env: self.env.clone().into_iter().collect(),
                    stdin,
                    inputs: self.input_wishes(),
                };
                let mut planned =
                    languages.plan(language, wish, &bounds.defaults, host, root.unpacked())?;
                if let Some(step) = &mut planned.task.compile {
                    bounds.ceilings.lower(&mut step.limits);
                    if let Some(most) = &self.compile {
                        most.lower(&mut step.limits);
                    }
                }
                let mut problems = Vec::new();
                let limits = self.limits.merged(&planned.defaults, bounds, &mut problems);
                Problems::check(problems)?;
                if let Some(inputs) = &self.inputs {
                    let base = Base {
                        limits: &limits,
                        bounds,
                    };
                    let inputs = inputs::check(inputs, planned.inputs, base)?;
                    planned.task.inputs = Some(Box::new(inputs));
                }
                Prepared {
                    task: Task::Command(planned.task),
                    files: Some(planned.files),
                    stdin: planned.stdin,
                    limits,
                }
            }
            _ => Prepared {
                task: Task::Command(self.command_task()),
                files: (self.workspace || !files.is_empty()).then_some(files),
                stdin,
                limits,
            },
        };
        let given = Given {
            limits: &limits,
            network: &network,
            compile: task.compile_limits(),
        };
        let errand = whole.map(|whole| Box::new(Sent::of(whole, given)));
        if let Some(errand) = &errand {
            origin.request = Some(errand.text.clone().into_bytes());
        }
        let declared = Declared::of(&self, languages);
        let workspace = files.map_or(WorkspaceWish::None, WorkspaceWish::Private);
        let deadline = self.deadline(&task, &limits, bounds);
        let work = Work {
            kind: match &task {
                Task::Project(task) => task.kind(),
                Task::Command(_) | Task::Payload(_) => RunKind::Command,
            },
            task,
            limits,
            stdin,
            tags: self.tags,
            parent,
            workspace,
            access: WorkspaceAccess::ReadWrite,
            network,
            root,
            seed,
            sealed: None,
            room: None,
            declared,
            known: None,
            errand,
        };
        asked_network::check_mode(&work.network, bounds)?;
        check_grant(&work)?;
        Ok(Submission {
            work,
            priority: self.priority,
            deadline,
            origin,
        })
    }

    fn mode(&self) -> Mode {
        let of_first = || self.inputs.as_ref()?.first()?.event.clone();
        match (self.handler, self.event.clone().or_else(of_first)) {
            (HandlerWish::IfThere, event) => Mode::Auto { event },
            (HandlerWish::AsEventSays, Some(event)) => Mode::Handler { event },
            (HandlerWish::AsEventSays, None) => Mode::Script,
        }
    }

    fn origin(&self) -> Origin {
        let outlives = !self.wait || self.has_key;
        Origin {
            execution_id: self.execution_id.clone(),
            callback_url: self.callback_url.clone(),
            request: outlives.then(|| self.whole()),
            key: None,
            place: None,
        }
    }

    /// As one document, whichever way its files came.
    fn whole(&self) -> Vec<u8> {
        serde_json::to_vec(&self.with_files()).unwrap_or_default()
    }

    fn with_files(&self) -> Self {
        let mut whole = self.clone();
        let uploads = std::mem::take(&mut whole.uploads);
        whole
            .files
            .extend(uploads.into_iter().map(FileRequest::from));
        if let (Some(project), Some(archive)) = (&mut whole.project, whole.archive.take()) {
            project.archive_base64 = Some(data_encoding::BASE64.encode(&archive));
        }
        whole
    }

    fn seed(&self, problems: &mut Vec<Problem>) -> Option<u64> {
        match (self.deterministic, self.seed) {
            (true, seed) => Some(seed.unwrap_or(0)),
            (false, None) => None,
            (false, Some(seed)) => {
                let fix = "is for a deterministic run; say `deterministic: true`, or leave it out";
                problems.push(Problem::new("seed", seed, fix));
                None
            }
        }
    }

    fn check_name(&self, problems: &mut Vec<Problem>) {
        let Some(name) = &self.execution_id else {
            return;
        };
        if cofferdam_callback::message::check_id("execution_id", name).is_err() {
            let fix =
                "use 1 to 128 letters, digits, `_`, `-`, `.`, beginning with a letter or digit";
            problems.push(Problem::new("execution_id", name, fix));
        }
    }

    fn project_task(
        &mut self,
        has_files: bool,
        problems: &mut Vec<Problem>,
    ) -> Option<ProjectTask> {
        let archive = self.archive.take();
        let Some(project) = &self.project else {
            if archive.is_some() {
                let fix = "came as a part, and the request does not say what to do with it";
                problems.push(Problem::new("project", "", fix));
            }
            return None;
        };
        let mut task = project.check(archive, has_files, problems);
        let env = self.env.iter();
        task.env = env
            .map(|(name, value)| (name.into(), value.into()))
            .collect();
        Some(task)
    }

    fn command_task(&self) -> CommandTask {
        let env = self.env.iter();
        let argv = self.command.iter().flatten();
        CommandTask {
            argv: argv.map(OsString::from).collect(),
            env: env
                .map(|(name, value)| (name.into(), value.into()))
                .collect(),
            cwd: self.cwd.clone().map(PathBuf::from),
            compile: None,
            channel: ResultChannel::None,
            inputs: None,
        }
    }

    /// Each input has its own; one for all would be a second meaning.
    fn check_inputs(&self, bounds: &RunBounds, problems: &mut Vec<Problem>) {
        let Some(inputs) = &self.inputs else {
            return;
        };
        let beside = [
            ("stdin", self.stdin.is_some() || self.stdin_base64.is_some()),
            ("args", !self.args.is_empty()),
            ("event", self.event.is_some()),
            ("pure", self.pure),
        ];
        for (field, is_given) in beside {
            if is_given {
                let fix = "is given beside inputs; give it in each of them";
                problems.push(Problem::new(field, "", fix));
            }
        }
        if self.code.is_none() {
            let fix = "are for a program in `code`; send a command several times as a batch";
            problems.push(Problem::new("inputs", inputs.len(), fix));
        }
        problems.extend(InputRequest::problems(inputs, bounds));
    }

    fn input_wishes(&self) -> Vec<InputWish> {
        let inputs = self.inputs.iter().flatten();
        let wish = |input: &InputRequest| InputWish {
            args: input.args.clone(),
            stdin: input.stdin(&mut Vec::new()),
            event: input.event.clone(),
        };
        inputs.map(wish).collect()
    }

    fn deadline(&self, task: &Task, limits: &Limits, bounds: &RunBounds) -> Duration {
        match self.deadline_ms {
            Some(milliseconds) => Duration::from_millis(milliseconds).min(bounds.longest_deadline),
            // Its own time, and as long again to wait for its turn, but at least a minute.
            None => {
                let inputs = match task {
                    Task::Command(task) => task.inputs.as_ref(),
                    Task::Payload(_) | Task::Project(_) => None,
                };
                let own = match inputs {
                    Some(inputs) => inputs.wall_time(bounds.longest),
                    None => limits.wall_time.at_most().unwrap_or(bounds.longest),
                };
                own.saturating_add(own.max(Duration::from_secs(60)))
                    .min(bounds.longest_deadline)
            }
        }
    }

    fn input(&self, problems: &mut Vec<Problem>) -> Vec<u8> {
        one_of(
            ("stdin", self.stdin.as_deref()),
            ("stdin_base64", self.stdin_base64.as_deref()),
            problems,
        )
        .unwrap_or_default()
    }

    fn parent_id(&self, problems: &mut Vec<Problem>) -> Option<RunId> {
        let text = self.parent.as_ref()?;
        let parsed = text.parse().ok();
        if parsed.is_none() {
            problems.push(Problem::new("parent", text, "is not the id of a run"));
        }
        parsed
    }
}

/// The engine's own checks, before anything waits. Where the workspace will be is not known yet, and its name does not matter.
pub(crate) fn check_grant(work: &Work) -> Result<(), Fault> {
    let workspace = match work.workspace {
        WorkspaceWish::None => None,
        WorkspaceWish::Private(_) => Some(PathBuf::from("/tmp")),
    };
    work.grant(work.request(workspace)?)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(request: Value) -> Result<Submission, Fault> {
        crate::body::typed::<RunRequest>(request)?.check(
            &RunBounds::default(),
            &Languages::new(&[]).map_err(|bad| Fault::internal(format!("{bad:?}")))?,
            &Host::detect(),
        )
    }

    #[test]
    fn every_problem_is_named_at_once() {
        let detail = check(json!({
            "command": ["true"], "code": "x",
            "files": [{"path": "../x", "content": "a"}, {"path": "b", "content_base64": "!"}],
            "stdin": "a", "stdin_base64": "YQ==",
            "limits": {"wall_time_ms": 7200000, "memory_bytes": 1},
            "parent": "zzz",
            "tags": {"": "x"},
        }))
        .unwrap_err()
        .detail;
        for field in [
            "command:",
            "files[0].path:",
            "files[1].content_base64:",
            "stdin_base64:",
            "limits.wall_time_ms:",
            "limits.memory:",
            "parent:",
            "tags:",
        ] {
            assert!(detail.contains(field), "{field} in {detail}");
        }
    }

    #[test]
    fn what_is_left_out_gets_the_defaults() {
        let made = check(json!({"command": ["true"]})).unwrap();
        assert_eq!(made.work.limits, Limits::DEFAULT);
        assert_eq!(made.deadline, Duration::from_secs(600));
        assert!(matches!(made.work.workspace, WorkspaceWish::None));
    }

    #[test]
    fn nothing_runs_without_a_program() {
        assert_eq!(
            check(json!({"command": []})).unwrap_err().code,
            "input.invalid"
        );
        assert_eq!(
            check(json!({"command": ["a\u{0}b"]})).unwrap_err().code,
            "input.invalid"
        );
        let env = json!({"command": ["a"], "env": {"A=B": "c"}});
        assert_eq!(check(env).unwrap_err().code, "input.invalid");
        let source = json!({"language": "cobol", "code": "x"});
        assert_eq!(check(source).unwrap_err().code, "input.invalid");
    }
}
