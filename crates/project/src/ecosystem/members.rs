//! Which manifests belong to a workspace that names its members by patterns.

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};

use crate::detect::Tree;
use crate::model::{Project, ProjectKind, parent};

/// The patterns of all workspaces of a tree together: each is compiled, and a stranger has written them.
#[derive(Debug)]
pub(super) struct Patterns {
    left: usize,
    refused: usize,
}

/// More than any workspace has.
const MOST_OF_ONE: usize = 200;
/// More than any tree has.
const MOST: usize = 2_000;
const LONGEST: usize = 200;

impl Default for Patterns {
    fn default() -> Self {
        Self {
            left: MOST,
            refused: 0,
        }
    }
}

impl Patterns {
    /// Makes those projects members whose directory, relative to the workspace's, fits a pattern and no exclusion. Returns their manifests.
    pub(super) fn adopt(
        &mut self,
        tree: &mut Tree<'_>,
        projects: &mut [Project],
        top: &str,
        patterns: &[String],
        excluded: &[String],
    ) -> Vec<String> {
        let (Some(wanted), Some(refused)) = (self.set(patterns), self.set(excluded)) else {
            return Vec::new();
        };
        let adopted = projects.iter_mut().filter_map(|project| {
            let dir = parent(&project.manifest);
            let relative = match top {
                "." => Some(dir),
                _ => dir
                    .strip_prefix(top)
                    .and_then(|rest| rest.strip_prefix('/')),
            };
            let relative = relative.filter(|relative| *relative != "." && dir != top)?;
            let is_member = wanted.is_match(relative) && !refused.is_match(relative);
            is_member.then(|| {
                project.kind = ProjectKind::Member;
                project.manifest.as_str()
            })
        });
        tree.hold(adopted)
    }

    /// Says what was passed by.
    pub(super) fn tell(&self, tree: &mut Tree<'_>) {
        if self.refused > 0 {
            let refused = self.refused;
            tree.note(format!(
                "the members of {refused} workspaces are not looked for: together they name them by more than {MOST} patterns, or by one that is too long; search a smaller part"
            ));
        }
    }

    /// `None` where there is no room for all of them: a part would find the wrong members.
    fn set(&mut self, patterns: &[String]) -> Option<GlobSet> {
        let is_long = patterns.iter().any(|pattern| pattern.len() > LONGEST);
        if patterns.len() > self.left.min(MOST_OF_ONE) || is_long {
            self.refused += 1;
            return None;
        }
        self.left -= patterns.len();
        let mut builder = GlobSetBuilder::new();
        for pattern in patterns {
            let pattern = pattern.trim_start_matches("./").trim_end_matches('/');
            // A pattern that cannot be read fits nothing.
            if let Ok(glob) = GlobBuilder::new(pattern).literal_separator(true).build() {
                builder.add(glob);
            }
        }
        Some(builder.build().unwrap_or_default())
    }
}
