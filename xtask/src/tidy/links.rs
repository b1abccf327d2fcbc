//! Relative links in Markdown lead somewhere. Links to other hosts are not followed: a check must not depend on the network.

use std::path::{Component, Path, PathBuf};

use super::Finding;
use super::tree::{SourceFile, Tree};

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    tree.with_extension("md")
        .flat_map(|file| check_file(tree, file))
        .collect()
}

fn check_file(tree: &Tree, file: &SourceFile) -> Vec<Finding> {
    let mut found = Vec::new();
    let mut fenced = false;
    for (number, line) in (1..).zip(file.text.lines()) {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        } else if !fenced {
            let broken = targets(line)
                .into_iter()
                .filter(|target| !leads_somewhere(tree, &file.path, target));
            found.extend(broken.map(|target| {
                Finding::new(
                    &file.path,
                    number,
                    format!("the link to `{target}` leads nowhere; correct the path or remove it"),
                )
            }));
        }
    }
    found
}

/// The targets of the inline links in a line, outside of code.
fn targets(line: &str) -> Vec<&str> {
    // In `a`b`c` every second piece is code.
    let prose = line.split('`').step_by(2);
    let starts = prose.flat_map(|piece| {
        piece
            .split("](")
            .collect::<Vec<_>>()
            .split_first()
            .map(|(_, rest)| rest.to_vec())
    });
    let ended = starts
        .flatten()
        .filter_map(|rest| rest.split_once(')').map(|(target, _)| target));
    // A title may follow: [a](b "c").
    ended
        .filter_map(|target| target.split_whitespace().next())
        .collect()
}

fn leads_somewhere(tree: &Tree, from: &Path, target: &str) -> bool {
    let path = target.split('#').next().unwrap_or_default();
    let elsewhere = target.contains("://") || target.starts_with("mailto:");
    if path.is_empty() || elsewhere {
        return true;
    }
    let base = from.parent().unwrap_or(Path::new(""));
    match resolve(&base.join(path)) {
        Some(path) => path.as_os_str().is_empty() || tree.paths.contains(&path),
        None => false,
    }
}

/// The path without `.` and `..`; `None` when it leaves the repository.
fn resolve(path: &Path) -> Option<PathBuf> {
    let mut resolved = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::Normal(part) => resolved.push(part),
            Component::ParentDir if resolved.pop() => {}
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    Some(resolved)
}

#[cfg(test)]
mod tests {
    use super::super::tree;
    use super::*;

    #[test]
    fn only_links_that_lead_nowhere_are_found() {
        let text = "# Title\n[a](b.md) [up](../README.md#top) [out](https://example.org/x) [here](#title)\n\
                    [titled](b.md \"B\") `[code](nowhere.md)`\n```\n[fenced](nowhere.md)\n```\n\
                    [gone](gone.md) and [outside](../../x)\n[dir](../docs/)\n";
        let tree = tree::of(&[
            ("docs/a.md", text),
            ("docs/b.md", ""),
            ("README.md", "[root](.) [x](docs/a.md)"),
        ]);
        let found: Vec<String> = check(&tree).iter().map(ToString::to_string).collect();
        assert_eq!(found.len(), 2, "{found:#?}");
        assert!(
            found[0].starts_with("docs/a.md:7: the link to `gone.md`"),
            "{found:?}"
        );
        assert!(
            found[1].starts_with("docs/a.md:7: the link to `../../x`"),
            "{found:?}"
        );
    }
}
