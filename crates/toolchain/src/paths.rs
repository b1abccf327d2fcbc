//! Names of files that strangers choose. They must stay below the workspace, mean the same to every program, and not take each other's
//! or our own place.

use std::collections::BTreeSet;

use cofferdam_contract::problem::Problem;

/// What is ours in a workspace: the shim, the event, what a compiler makes. Hidden, so that it is no artifact.
pub const RESERVED_DIR: &str = ".cofferdam";
/// Files beside the main one.
pub const MAX_FILES: usize = 1000;
/// Of all files together.
pub const MAX_FILES_BYTES: usize = 64 << 20;

const MAX_PATH: usize = 1024;
const MAX_COMPONENT: usize = 255;
const MAX_DEPTH: usize = 32;

/// What is wrong with a relative path, and the fix.
pub(crate) fn problem(path: &str) -> Option<String> {
    let told = |text: &str| Some(text.to_owned());
    if path.is_empty() {
        return told("is empty; name a file");
    }
    if path.len() > MAX_PATH {
        return Some(format!("is longer than {MAX_PATH} bytes; shorten it"));
    }
    if path.chars().any(char::is_control) {
        return told("has a control character in it; remove it");
    }
    if path.starts_with('/') {
        return told("is absolute; name it relative to the workspace");
    }
    if path.starts_with('-') {
        return told("begins with `-`, which programs take for an option; rename it");
    }
    let components: Vec<&str> = path.split('/').collect();
    if components.len() > MAX_DEPTH {
        return Some(format!(
            "is more than {MAX_DEPTH} directories deep; flatten it"
        ));
    }
    if components.contains(&"..") {
        return told("leaves the workspace; remove `..`");
    }
    if components.iter().any(|c| c.is_empty() || *c == ".") {
        return told("has an empty or `.` part; remove it, and no slash at the end");
    }
    if components.iter().any(|c| c.len() > MAX_COMPONENT) {
        return Some(format!(
            "has a part longer than {MAX_COMPONENT} bytes; shorten it"
        ));
    }
    let is_reserved = components
        .first()
        .is_some_and(|first| first.eq_ignore_ascii_case(RESERVED_DIR));
    is_reserved.then(|| format!("is in `{RESERVED_DIR}`, which is reserved; put it elsewhere"))
}

/// Problems between paths that are each fine: the same twice, or a file where another needs a directory. `main` was there first.
pub(crate) fn collisions(main: &str, others: &[(String, &str)]) -> Vec<Problem> {
    let mut files = BTreeSet::from([main]);
    let mut dirs: BTreeSet<&str> = parents(main).collect();
    let mut found = Vec::new();
    for (field, path) in others {
        let fix = if *path == main {
            Some("is the main file; put it into `code`, or rename one of them")
        } else if files.contains(path) {
            Some("is there twice; remove one of them")
        } else if dirs.contains(path) || parents(path).any(|dir| files.contains(dir)) {
            Some("is a file and a directory at once; rename one of them")
        } else {
            None
        };
        found.extend(fix.map(|fix| Problem::new(field.clone(), path, fix)));
        files.insert(path);
        dirs.extend(parents(path));
    }
    found
}

/// `a/b/c` has `a` and `a/b`.
fn parents(path: &str) -> impl Iterator<Item = &str> {
    path.match_indices('/').filter_map(|(at, _)| path.get(..at))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ordinary_names_are_fine() {
        for path in [
            "main.py",
            "a/b/c.txt",
            "ünïcode/文件",
            ".hidden",
            "a b",
            "..a",
            "a-b",
            "it's",
        ] {
            assert_eq!(problem(path), None, "{path}");
        }
    }

    #[test]
    fn hostile_names_are_refused() {
        let long = "a".repeat(256);
        let very_long = "a/".repeat(600) + "a";
        let deep = "a/".repeat(32) + "a";
        for path in [
            "",
            "/",
            "/etc/passwd",
            "..",
            "../x",
            "a/../x",
            "a/..",
            ".",
            "./a",
            "a//b",
            "a/",
            "a\0b",
            "a\nb",
            "\u{7f}",
            "-rf",
            ".cofferdam",
            ".cofferdam/shim.py",
            ".Cofferdam/x",
            &long,
            &very_long,
            &deep,
        ] {
            assert!(problem(path).is_some(), "{path:?}");
        }
    }

    #[test]
    fn files_that_take_each_others_place_are_named() {
        let others: Vec<(String, &str)> = [
            "src",
            "x",
            "x",
            "src/main.py",
            "x/y",
            "src/main.py/z",
            "fine/a",
            "fine/b",
        ]
        .into_iter()
        .enumerate()
        .map(|(i, path)| (format!("files[{i}]"), path))
        .collect();
        let found: Vec<String> = collisions("src/main.py", &others)
            .iter()
            .map(|problem| problem.field.clone())
            .collect();
        assert_eq!(
            found,
            ["files[0]", "files[2]", "files[3]", "files[4]", "files[5]"]
        );
    }

    proptest! {
        #[test]
        fn an_accepted_name_stays_below_the_workspace(path in "[a./\\-~\\\\\u{0}é]{0,12}") {
            if problem(&path).is_none() {
                let plain = std::path::Path::new(&path)
                    .components()
                    .all(|part| matches!(part, std::path::Component::Normal(_)));
                prop_assert!(plain && !path.contains('\0') && !path.ends_with('/'));
            }
        }
    }
}
