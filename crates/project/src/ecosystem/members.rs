//! Which manifests belong to a workspace that names its members by patterns.

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};

use crate::model::{Project, ProjectKind, parent};

/// More patterns than any workspace has.
const MAX_PATTERNS: usize = 200;

/// Makes those projects members whose directory, relative to the workspace's, fits a pattern and no exclusion. Returns their manifests.
pub(super) fn adopt(
    projects: &mut [Project],
    top: &str,
    patterns: &[String],
    excluded: &[String],
) -> Vec<String> {
    let (wanted, refused) = (set(patterns), set(excluded));
    let mut members = Vec::new();
    for project in projects.iter_mut() {
        let dir = parent(&project.manifest);
        let relative = match top {
            "." => Some(dir),
            _ => dir
                .strip_prefix(top)
                .and_then(|rest| rest.strip_prefix('/')),
        };
        let Some(relative) = relative.filter(|relative| *relative != "." && dir != top) else {
            continue;
        };
        if wanted.is_match(relative) && !refused.is_match(relative) {
            project.kind = ProjectKind::Member;
            members.push(project.manifest.clone());
        }
    }
    members
}

fn set(patterns: &[String]) -> GlobSet {
    let mut builder = GlobSetBuilder::new();
    for pattern in patterns.iter().take(MAX_PATTERNS) {
        let pattern = pattern.trim_start_matches("./").trim_end_matches('/');
        // A pattern that cannot be read fits nothing.
        if let Ok(glob) = GlobBuilder::new(pattern).literal_separator(true).build() {
            builder.add(glob);
        }
    }
    builder.build().unwrap_or_default()
}
