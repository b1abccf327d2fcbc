//! Whether what ran has changed what git executes: hooks and configuration. They run outside of the sandbox the next time that somebody uses git there, so that a person is told.

use std::path::Path;

use cofferdam_project::Beneath;
use cofferdam_project::beneath::Stamp;

/// More hooks than anybody has.
const MOST: usize = 1000;

/// What git would execute or obey, before anything ran.
#[derive(Debug)]
pub(crate) struct Git {
    files: Vec<(String, Stamp)>,
}

impl Git {
    pub(crate) fn look(root: &Path) -> Self {
        let Ok(project) = Beneath::open(root) else {
            return Self { files: Vec::new() };
        };
        let list = |dir: &str| project.files(dir, MOST).unwrap_or_default();
        let own = list(".git")
            .into_iter()
            .filter(|(name, _)| name.starts_with("config"));
        let hooks = list(".git/hooks")
            .into_iter()
            .map(|(name, stamp)| (format!("hooks/{name}"), stamp));
        // Of a worktree or a submodule `.git` is a file that names another place.
        let elsewhere = list(".")
            .into_iter()
            .filter(|(name, _)| matches!(name.as_str(), ".git" | ".gitmodules"));
        Self {
            files: own.chain(hooks).chain(elsewhere).collect(),
        }
    }

    /// A line for a person, where something is not as it was.
    pub(crate) fn warning(&self, root: &Path) -> Option<String> {
        let now = Self::look(root);
        let changed = now.files.iter().find(|file| !self.files.contains(file));
        let name = changed.map(|(name, _)| name.as_str());
        name.map(|name| {
            format!("what ran has changed what git obeys in this project (`{name}`): look at it before you use git here, or use --cow")
        })
    }
}
