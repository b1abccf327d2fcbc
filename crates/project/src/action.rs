//! What can be done with a project, and the form in which each ecosystem says how: a list of steps. Nothing here starts one.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::apart::Apart;
use crate::coverage::{CoverageAt, CoverageFormat};
use crate::diagnostic::Speaker;
use crate::model::{Detection, PackageManager};
use crate::report::Format;

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    Restore,
    Build,
    Test,
    Lint,
    Format,
    /// Its program is started.
    Run,
}

/// How it is asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Options {
    /// Only tests whose name fits, in the test runner's own words.
    pub filter: Option<String>,
    /// Stop at the first failure.
    pub fail_fast: FailFast,
    pub coverage: Coverage,
    pub reach: Reach,
    pub trust: Trust,
    /// For the program that is started.
    pub args: Vec<String>,
}

/// Whether a tool may execute parts of the project where there are no walls.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Trust {
    Yes,
    #[default]
    No,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum FailFast {
    Yes,
    #[default]
    No,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Coverage {
    Yes,
    #[default]
    No,
}

/// Whether a step can fetch anything.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Reach {
    /// Loopback alone: what is not in a cache cannot be had, and must not be waited for.
    #[default]
    Offline,
    /// The host's own network.
    Host,
}

/// Where things are, as the step sees them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Places {
    /// The directory that was searched.
    pub root: String,
    /// Holds a directory for each cache.
    pub caches: String,
    /// An empty directory of this run's own, for reports.
    pub reports: String,
}

/// One command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    pub argv: Vec<String>,
    pub env: Vec<(String, String)>,
    pub cwd: String,
    pub caches: Vec<Cache>,
    /// Where its tests are told: the first that holds any counts. What stands further down says less, but says it while the tests run.
    pub reports: Vec<ReportAt>,
    /// Where it says which lines its tests reached, where that was asked for.
    pub coverage: Option<CoverageAt>,
    /// Who says something about the source in its output.
    pub speakers: Vec<Speaker>,
    /// Whether its standard output is for programs.
    pub output: Output,
    /// Shorter than what the caller allows, where the project says so.
    pub at_most: Option<Duration>,
    /// Files of ours that lie in the directory for reports when it starts: name and contents.
    pub aids: Vec<(&'static str, &'static str)>,
    /// What it sees of the project instead of all of it, where there are no walls.
    pub apart: Option<Apart>,
    /// What of the project decides where it writes to, where there are no walls.
    pub guards: Guards,
}

/// What is looked at before a tool without walls writes into the project. Names are relative to the searched directory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Guards {
    /// Files that it may write to: none may be anything but a regular file.
    pub written: Vec<String>,
    /// Files that would have it write elsewhere, and that nobody has looked into.
    pub absent: Vec<String>,
    /// The same, in the directories above the searched one.
    pub absent_above: Option<&'static str>,
    /// With this argument it writes nothing: where one of those is there, it gets it instead of being refused.
    pub careful: Option<&'static str>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Output {
    ForPeople,
    ForPrograms,
    /// What the project's program prints: the result itself, passed on as it is.
    OfProgram,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReportAt {
    pub place: Place,
    pub format: Format,
}

/// Where a report lies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// A file in the directory for reports.
    Own(String),
    /// Every file in the directory for reports whose name ends so.
    OwnAll(&'static str),
    /// Files in a directory of the project, relative to the searched one, that are new since the step began.
    Project {
        dir: String,
        prefix: &'static str,
        suffix: &'static str,
    },
    Stdout,
    Stderr,
}

/// A place where a package manager keeps what it fetched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Cache {
    Npm,
    Yarn,
    Pnpm,
    Pip,
    Cargo,
    Go,
    Maven,
    Nuget,
}

/// What keeps two runs from spoiling a cache that both of them use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sharing {
    /// The tool itself: it writes beside and renames, or takes locks in the cache.
    ByTool,
    /// Nobody, unless the runs take turns: one that writes is alone.
    InTurn,
}

/// Why there is no step.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{manifest}: {why}")]
pub struct Unavailable {
    pub kind: Lack,
    pub manifest: String,
    /// With what to do about it.
    pub why: String,
}

/// What is missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lack {
    /// The project has nothing for it, such as tests.
    Nothing,
    /// It was asked for in a way that is not possible.
    NotSo,
}

impl Action {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Restore => "restore",
            Self::Build => "build",
            Self::Test => "test",
            Self::Lint => "lint",
            Self::Format => "format",
            Self::Run => "run",
        }
    }
}

impl Cache {
    pub const ALL: [Self; 8] = [
        Self::Npm,
        Self::Yarn,
        Self::Pnpm,
        Self::Pip,
        Self::Cargo,
        Self::Go,
        Self::Maven,
        Self::Nuget,
    ];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Npm => "npm",
            Self::Yarn => "yarn",
            Self::Pnpm => "pnpm",
            Self::Pip => "pip",
            Self::Cargo => "cargo",
            Self::Go => "go",
            Self::Maven => "maven",
            Self::Nuget => "nuget",
        }
    }

    /// Maven finds out what runs the tests only when it runs them, and no command fetches that before.
    pub const fn is_written_by_builds(self) -> bool {
        matches!(self, Self::Maven)
    }

    /// What the tool guarantees to runs that use the cache at the same time. Locks in a temporary directory are no guarantee: each sandbox has its own.
    pub const fn sharing(self) -> Sharing {
        match self {
            // Contents by their hash, renamed into place (npm, pnpm); lock files in the cache itself (cargo, go).
            Self::Npm | Self::Pnpm | Self::Cargo | Self::Go => Sharing::ByTool,
            // yarn asks for `--mutex`, wheels are copied to their name, Maven says so of its repository, NuGet's locks are in /tmp.
            Self::Yarn | Self::Pip | Self::Maven | Self::Nuget => Sharing::InTurn,
        }
    }

    /// What the projects of a tree use, by their lock files.
    pub fn chosen(found: &Detection) -> Vec<Self> {
        let managers = found
            .projects
            .iter()
            .filter_map(|project| project.package_manager);
        let mut caches: Vec<Self> = managers.map(Self::of).collect();
        caches.sort();
        caches.dedup();
        caches
    }

    /// Where a package manager keeps what it fetched.
    const fn of(manager: PackageManager) -> Self {
        match manager {
            PackageManager::Npm => Self::Npm,
            PackageManager::Yarn => Self::Yarn,
            PackageManager::Pnpm => Self::Pnpm,
            PackageManager::Pip | PackageManager::Uv => Self::Pip,
            PackageManager::Cargo => Self::Cargo,
            PackageManager::Go => Self::Go,
            PackageManager::Maven => Self::Maven,
            PackageManager::Nuget => Self::Nuget,
        }
    }

    /// The variable by which the package manager finds it.
    pub const fn variable(self) -> &'static str {
        match self {
            Self::Npm => "npm_config_cache",
            Self::Yarn => "YARN_CACHE_FOLDER",
            Self::Pnpm => "npm_config_store_dir",
            Self::Pip => "PIP_CACHE_DIR",
            Self::Cargo => "CARGO_HOME",
            Self::Go => "GOMODCACHE",
            Self::Maven => "COFFERDAM_MAVEN_REPOSITORY",
            Self::Nuget => "NUGET_PACKAGES",
        }
    }
}

impl Places {
    pub(crate) fn cache(&self, cache: Cache) -> String {
        format!("{}/{}", self.caches, cache.as_str())
    }

    pub(crate) fn report(&self, name: &str) -> String {
        format!("{}/{name}", self.reports)
    }

    /// A directory of the project, as the step sees it.
    pub(crate) fn dir(&self, relative: &str) -> String {
        if relative == "." {
            self.root.clone()
        } else {
            format!("{}/{relative}", self.root)
        }
    }
}

impl Step {
    /// A line for a shell that the project itself has written, in a directory of the project. Everybody may have spoken in its output.
    pub fn shell(line: &str, dir: &str, found: &Detection, places: &Places) -> Self {
        let mut step = Self::new(places.dir(dir), ["/bin/sh", "-c", line]);
        for cache in Cache::chosen(found) {
            step = step.cache(cache, places);
        }
        for speaker in Speaker::ALL {
            step = step.speaker(speaker);
        }
        step
    }

    pub(crate) fn new<A: Into<String>>(cwd: String, argv: impl IntoIterator<Item = A>) -> Self {
        Self {
            argv: argv.into_iter().map(Into::into).collect(),
            env: Vec::new(),
            cwd,
            caches: Vec::new(),
            reports: Vec::new(),
            coverage: None,
            speakers: Vec::new(),
            output: Output::ForPeople,
            at_most: None,
            aids: Vec::new(),
            apart: None,
            guards: Guards::default(),
        }
    }

    pub(crate) fn arg(mut self, arg: impl Into<String>) -> Self {
        self.argv.push(arg.into());
        self
    }

    pub(crate) fn args<A: Into<String>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.argv.extend(args.into_iter().map(Into::into));
        self
    }

    pub(crate) fn env(mut self, name: &str, value: impl Into<String>) -> Self {
        self.env.push((name.to_owned(), value.into()));
        self
    }

    pub(crate) fn cache(mut self, cache: Cache, places: &Places) -> Self {
        self.caches.push(cache);
        self.env(cache.variable(), places.cache(cache))
    }

    pub(crate) fn report(mut self, place: Place, format: Format) -> Self {
        self.reports.push(ReportAt { place, format });
        self
    }

    pub(crate) fn covered(mut self, name: &'static str, format: CoverageFormat) -> Self {
        self.coverage = Some(CoverageAt { name, format });
        self
    }

    pub(crate) fn aid(mut self, name: &'static str, contents: &'static str) -> Self {
        self.aids.push((name, contents));
        self
    }

    pub(crate) fn speaker(mut self, speaker: Speaker) -> Self {
        self.speakers.push(speaker);
        self
    }

    pub(crate) fn for_programs(mut self) -> Self {
        self.output = Output::ForPrograms;
        self
    }

    /// The step that is the program itself.
    pub fn program(mut self) -> Self {
        self.output = Output::OfProgram;
        self
    }
}
