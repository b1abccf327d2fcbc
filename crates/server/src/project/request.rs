//! A project as it is sent, and what it comes to. Everything that can be checked without unpacking it is checked before it waits.

use cofferdam_contract::problem::Problem;
use cofferdam_project::action::{Coverage, FailFast};
use cofferdam_project::{Action, Options};
use cofferdam_store::model::RunKind;
use cofferdam_workshop::{Attempts, Wish};
use data_encoding::BASE64;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::workspace;

/// What is to be done with a project. It comes as an archive, in the part `project` of a form or here in base64, or as `files`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ProjectRequest {
    pub(crate) action: ActionRequest,
    /// The name of the command in `.agent/config.yml`, for the action `task`.
    pub(crate) task: Option<String>,
    /// Only these projects, by manifest, directory or name.
    #[serde(default)]
    pub(crate) only: Vec<String>,
    /// Install what it depends on first, from the daemon's caches and without network.
    #[serde(default)]
    pub(crate) restore: bool,
    /// Only tests whose name fits, in the words of the test runner.
    pub(crate) filter: Option<String>,
    /// For the program, with the action `run`.
    #[serde(default)]
    pub(crate) args: Vec<String>,
    /// Stop at the first failure.
    #[serde(default)]
    pub(crate) fail_fast: bool,
    /// Measure coverage, where the test runner can.
    #[serde(default)]
    pub(crate) coverage: bool,
    /// Try again up to so many times while tests fail.
    #[serde(default)]
    #[schemars(range(max = 20))]
    pub(crate) retries: u32,
    /// Run the tests so many times; what does not pass every time has failed.
    #[serde(default = "once")]
    #[schemars(range(min = 1, max = 100))]
    pub(crate) repeat: u32,
    /// Directories of the project whose files are kept as artifacts afterwards, such as `dist`.
    #[serde(default)]
    pub(crate) keep: Vec<String>,
    /// A tar archive, compressed with gzip or not, or a git bundle.
    pub(crate) archive_base64: Option<String>,
    /// The branch or tag of a git bundle; what its HEAD names unless said.
    #[serde(rename = "ref")]
    pub(crate) git_ref: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ActionRequest {
    Restore,
    Build,
    Test,
    Lint,
    Format,
    /// Its program is started.
    Run,
    /// A command that the project names itself.
    Task,
}

/// The same, checked.
#[derive(Debug, Clone)]
pub(crate) struct ProjectTask {
    pub(crate) wish: Wish,
    /// Instead of the wish, a command of the project's own.
    pub(crate) task: Option<String>,
    pub(crate) restore: bool,
    pub(crate) keep: Vec<String>,
    pub(crate) source: Source,
    pub(crate) env: Vec<(std::ffi::OsString, std::ffi::OsString)>,
}

/// How the project came.
#[derive(Debug, Clone)]
pub(crate) enum Source {
    /// One by one, as files of every request come.
    Files,
    Archive {
        form: Form,
        bytes: Vec<u8>,
        git_ref: Option<String>,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    Tar,
    TarGz,
    GitBundle,
}

const MOST_NAMES: usize = 100;
const LONGEST: usize = 1024;

const fn once() -> u32 {
    1
}

impl ProjectRequest {
    /// With every problem; `files` says whether any came, `uploaded` is the archive that came beside the JSON.
    pub(crate) fn check(
        &self,
        uploaded: Option<Vec<u8>>,
        has_files: bool,
        problems: &mut Vec<Problem>,
    ) -> ProjectTask {
        self.check_words(problems);
        let mut wish = Wish::plain(self.action.action());
        wish.projects.clone_from(&self.only);
        wish.options = Options {
            filter: self.filter.clone(),
            args: self.args.clone(),
            fail_fast: match self.fail_fast {
                true => FailFast::Yes,
                false => FailFast::No,
            },
            coverage: match self.coverage {
                true => Coverage::Yes,
                false => Coverage::No,
            },
            ..Options::default()
        };
        wish.attempts = match (self.retries, self.repeat) {
            (0, 0 | 1) => Attempts::One,
            (0, times) => Attempts::Repeat(times),
            (more, _) => Attempts::Retry(more),
        };
        ProjectTask {
            wish,
            task: self.task.clone(),
            restore: self.restore,
            keep: self.keep.clone(),
            source: self.source(uploaded, has_files, problems),
            env: Vec::new(),
        }
    }

    fn check_words(&self, problems: &mut Vec<Problem>) {
        let mut bad = |field: &str, value: &str, fix: &str| {
            problems.push(Problem::new(format!("project.{field}"), value, fix));
        };
        match (self.action, &self.task) {
            (ActionRequest::Task, None) => bad("task", "", "is missing; name the command"),
            (ActionRequest::Task, Some(_)) | (_, None) => {}
            (_, Some(name)) => bad("task", name, "is for the action `task`; leave it out"),
        }
        if self.action != ActionRequest::Test {
            let given = [
                ("filter", self.filter.is_some()),
                ("fail_fast", self.fail_fast),
                ("coverage", self.coverage),
                ("retries", self.retries > 0),
                ("repeat", self.repeat > 1),
            ];
            for (field, _) in given.iter().filter(|(_, is_given)| *is_given) {
                bad(field, "", "is for the action `test`; leave it out");
            }
        }
        if self.action != ActionRequest::Run && !self.args.is_empty() {
            bad("args", "", "is for the action `run`; leave it out");
        }
        if self.retries > 20 {
            let asked = self.retries.to_string();
            bad("retries", &asked, "is too much; ask for at most 20");
        }
        if !(1..=100).contains(&self.repeat) {
            bad("repeat", &self.repeat.to_string(), "ask for 1 to 100");
        }
        if self.retries > 0 && self.repeat > 1 {
            bad("repeat", "", "is given beside retries; give one of them");
        }
        let texts = [
            ("task", self.task.as_slice()),
            ("filter", self.filter.as_slice()),
            ("ref", self.git_ref.as_slice()),
            ("only", self.only.as_slice()),
            ("args", self.args.as_slice()),
        ];
        for (field, texts) in texts {
            let is_bad = |text: &&String| text.len() > LONGEST || text.contains('\0');
            for text in texts.iter().filter(is_bad) {
                let shown: String = text.chars().take(100).collect();
                let fix = format!("use at most {LONGEST} bytes, and no NUL byte");
                bad(field, &shown, &fix);
            }
        }
        for name in self.git_ref.iter().filter(|name| name.starts_with('-')) {
            bad("ref", name, "is no name of a branch or a tag");
        }
        let lists = [
            ("only", self.only.len()),
            ("keep", self.keep.len()),
            ("args", self.args.len()),
        ];
        for (field, count) in lists.into_iter().filter(|(_, count)| *count > MOST_NAMES) {
            let fix = format!("is too many; name at most {MOST_NAMES}");
            bad(field, &count.to_string(), &fix);
        }
        for path in &self.keep {
            problems.extend(workspace::problem("project.keep", path));
        }
    }

    fn source(
        &self,
        uploaded: Option<Vec<u8>>,
        has_files: bool,
        problems: &mut Vec<Problem>,
    ) -> Source {
        let inside = self.archive_base64.as_ref().map(|text| {
            BASE64.decode(text.as_bytes()).unwrap_or_else(|_| {
                let fix = "is not base64";
                problems.push(Problem::new("project.archive_base64", "", fix));
                Vec::new()
            })
        });
        let archive = match (inside, uploaded) {
            (Some(_), Some(_)) => {
                let fix = "is given beside the part `project`; give one of them";
                problems.push(Problem::new("project.archive_base64", "", fix));
                return Source::Files;
            }
            (Some(bytes), None) | (None, Some(bytes)) => Some(bytes),
            (None, None) => None,
        };
        let Some(bytes) = archive else {
            if !has_files {
                let fix = "is missing; send an archive as the part `project` or in archive_base64, or files";
                problems.push(Problem::new("project", "", fix));
            }
            return Source::Files;
        };
        if has_files {
            let fix = "are given beside an archive; put them into it";
            problems.push(Problem::new("files", "", fix));
        }
        let Some(form) = Form::of(&bytes) else {
            let fix = "is neither a tar archive, plain or compressed with gzip, nor a git bundle";
            problems.push(Problem::new("project", "", fix));
            return Source::Files;
        };
        if self.git_ref.is_some() && form != Form::GitBundle {
            let fix = "is for a git bundle; leave it out";
            problems.push(Problem::new("project.ref", "", fix));
        }
        Source::Archive {
            form,
            bytes,
            git_ref: self.git_ref.clone(),
        }
    }
}

impl Form {
    /// By its first bytes.
    pub(crate) fn of(bytes: &[u8]) -> Option<Self> {
        if bytes.starts_with(b"\x1f\x8b") {
            return Some(Self::TarGz);
        }
        if bytes.starts_with(b"# v2 git bundle\n") || bytes.starts_with(b"# v3 git bundle\n") {
            return Some(Self::GitBundle);
        }
        let magic = bytes.get(257..262);
        (magic == Some(b"ustar")).then_some(Self::Tar)
    }
}

impl ActionRequest {
    /// A command of the project's own counts as a build.
    const fn action(self) -> Action {
        match self {
            Self::Restore => Action::Restore,
            Self::Build | Self::Task => Action::Build,
            Self::Test => Action::Test,
            Self::Lint => Action::Lint,
            Self::Format => Action::Format,
            Self::Run => Action::Run,
        }
    }
}

impl ProjectTask {
    /// About how many bytes of what a client sent it holds.
    pub(crate) fn weight(&self) -> usize {
        match &self.source {
            Source::Files => 0,
            Source::Archive { bytes, .. } => bytes.len(),
        }
    }

    pub(crate) fn kind(&self) -> RunKind {
        match self.wish.action {
            Action::Test => RunKind::Test,
            Action::Restore | Action::Build | Action::Lint | Action::Format => RunKind::Build,
            Action::Run => RunKind::Command,
        }
    }

    /// As the same thing is written on a command line.
    pub(crate) fn command_line(&self) -> Vec<String> {
        let mut words = vec!["cofferdam".to_owned()];
        match &self.task {
            Some(name) => words.extend(["task".to_owned(), name.clone()]),
            None if self.wish.action == Action::Run => words.push("start".to_owned()),
            None => words.push(self.wish.action.as_str().to_owned()),
        }
        if let Some(filter) = &self.wish.options.filter {
            words.extend(["--filter".to_owned(), filter.clone()]);
        }
        if !self.wish.options.args.is_empty() {
            words.push("--".to_owned());
            words.extend(self.wish.options.args.iter().cloned());
        }
        words
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn problems(request: serde_json::Value, uploaded: Option<&[u8]>) -> String {
        let request: ProjectRequest = serde_json::from_value(request).unwrap();
        let mut found = Vec::new();
        request.check(uploaded.map(<[u8]>::to_vec), false, &mut found);
        let lines: Vec<String> = found.iter().map(ToString::to_string).collect();
        lines.join("\n")
    }

    #[test]
    fn every_problem_of_a_project_is_named_at_once() {
        let found = problems(
            json!({
                "action": "build", "task": "x", "filter": "y", "retries": 21, "repeat": 0,
                "keep": ["../x"], "ref": "--upload-pack=x", "archive_base64": "!",
            }),
            None,
        );
        for field in [
            "project.task:",
            "project.filter:",
            "project.retries:",
            "project.repeat:",
            "project.keep:",
            "project.ref:",
            "project.archive_base64:",
        ] {
            assert!(found.contains(field), "{field} in {found}");
        }
        assert!(problems(json!({"action": "test"}), None).contains("is missing"));
        assert!(problems(json!({"action": "task"}), Some(b"\x1f\x8b")).contains("project.task"));
        assert!(problems(json!({"action": "test"}), Some(b"PK")).contains("neither a tar"));
        assert_eq!(problems(json!({"action": "test"}), Some(b"\x1f\x8b")), "");
    }

    #[test]
    fn an_archive_is_known_by_its_first_bytes() {
        let mut tar = vec![0; 512];
        tar[257..262].copy_from_slice(b"ustar");
        assert_eq!(Form::of(&tar), Some(Form::Tar));
        assert_eq!(Form::of(b"\x1f\x8b\x08"), Some(Form::TarGz));
        assert_eq!(Form::of(b"# v2 git bundle\nx"), Some(Form::GitBundle));
        for other in [&b""[..], b"PK\x03\x04", b"ustar", &[0; 600]] {
            assert_eq!(Form::of(other), None);
        }
    }
}
