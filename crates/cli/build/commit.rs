//! The commit that a work tree stands at, read from the repository's own files: a machine that builds need not have git.

use std::fs;
use std::path::{Path, PathBuf};

/// Where HEAD is.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) commit: String,
    /// The files whose change means that HEAD has moved. All of them exist.
    pub(crate) decided_by: Vec<PathBuf>,
}

/// `None` without a repository, or with one whose HEAD names nothing yet.
pub(crate) fn head(root: &Path) -> Option<Head> {
    let git = git_dir(root)?;
    // A worktree has its HEAD for itself and its branches with all others.
    let shared = match fs::read_to_string(git.join("commondir")) {
        Ok(path) => git.join(path.trim_end()),
        Err(_) => git.clone(),
    };
    let head = git.join("HEAD");
    let text = fs::read_to_string(&head).ok()?;
    let text = text.trim_end();
    let (loose, packed) = match text.strip_prefix("ref: ") {
        None => (None, None),
        Some(name) => (
            Some(shared.join(name)),
            Some((shared.join("packed-refs"), name)),
        ),
    };
    let commit = match (&loose, &packed) {
        (Some(loose), Some((packed, name))) => fs::read_to_string(loose)
            .ok()
            .or_else(|| in_packed(packed, name))?,
        _ => text.to_owned(),
    };
    // The log of HEAD grows with every move of it, also where a packed branch becomes a loose one.
    let decided_by = [Some(head), loose, packed.map(|(path, _)| path)]
        .into_iter()
        .flatten()
        .chain([git.join("logs/HEAD")]);
    let commit = commit.trim_end().to_owned();
    let is_name = commit.len() >= 40 && commit.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_name.then(|| Head {
        commit,
        decided_by: decided_by.filter(|path| path.is_file()).collect(),
    })
}

/// As people write it.
pub(crate) fn short(commit: &str) -> &str {
    commit.get(..12).unwrap_or(commit)
}

/// `.git` is a directory, or in a worktree a file that says where it is.
fn git_dir(root: &Path) -> Option<PathBuf> {
    let git = root.join(".git");
    if git.is_dir() {
        return Some(git);
    }
    let text = fs::read_to_string(git).ok()?;
    Some(root.join(text.strip_prefix("gitdir: ")?.trim_end()))
}

fn in_packed(packed: &Path, name: &str) -> Option<String> {
    let text = fs::read_to_string(packed).ok()?;
    let mut lines = text.lines().filter_map(|line| line.split_once(' '));
    lines
        .find(|(_, found)| *found == name)
        .map(|(commit, _)| commit.to_owned())
}
