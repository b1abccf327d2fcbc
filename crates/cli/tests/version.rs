//! What `--version` says, and how the commit in it is found.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "the functions beside a test are as much test as it is"
)]

#[path = "../build/commit.rs"]
mod commit;

use std::path::Path;
use std::process::Command;

use cofferdam_testkit::desk;
use cofferdam_testkit::docker::{skip, succeed, which};

#[test]
fn the_version_is_that_of_the_package_and_a_commit_where_it_is_shipped() {
    let said = desk!().ok(&["--version"]);
    let version = said.strip_prefix("cofferdam ").unwrap().trim_end();
    let rest = version.strip_prefix(env!("CARGO_PKG_VERSION")).unwrap();
    // Debug builds name none unless they are told one.
    if !rest.is_empty() {
        let commit = rest
            .strip_prefix(" (")
            .and_then(|rest| rest.strip_suffix(')'));
        assert!(commit.is_some_and(|commit| !commit.is_empty()), "{said}");
    }
}

#[test]
fn the_commit_is_found_as_git_finds_it_however_it_is_kept() {
    if which("git").is_none() {
        let _: Option<()> = skip("git");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (tree, beside) = (dir.path().join("tree"), dir.path().join("beside"));
    std::fs::create_dir(&tree).unwrap();
    assert_eq!(commit::head(&tree), None);
    git(&tree, &["init", "--quiet", "--initial-branch", "main"]);
    assert_eq!(commit::head(&tree), None, "nothing was committed yet");

    git(
        &tree,
        &["commit", "--quiet", "--allow-empty", "--message", "one"],
    );
    let loose = found(&tree);
    git(&tree, &["pack-refs", "--all"]);
    assert_eq!(found(&tree).0, loose.0, "packed");
    let beside_text = beside.to_str().unwrap();
    git(
        &tree,
        &["worktree", "add", "--quiet", "-b", "side", beside_text],
    );
    git(
        &beside,
        &["commit", "--quiet", "--allow-empty", "--message", "two"],
    );
    assert_ne!(found(&beside).0, loose.0, "a worktree");

    // Every move of HEAD changes one of the files that are watched.
    let before = found(&tree).1;
    git(
        &tree,
        &["commit", "--quiet", "--allow-empty", "--message", "three"],
    );
    assert_ne!(found(&tree).1, before);
    let before = found(&tree).1;
    git(&tree, &["checkout", "--quiet", "--detach", "HEAD~1"]);
    assert_ne!(found(&tree).1, before);
}

/// The commit, which must be git's own answer, and what the watched files hold.
#[track_caller]
fn found(tree: &Path) -> (String, Vec<String>) {
    let head = commit::head(tree).unwrap();
    assert_eq!(head.commit, git(tree, &["rev-parse", "HEAD"]).trim_end());
    assert_eq!(commit::short(&head.commit).len(), 12);
    let read = |path| std::fs::read_to_string(path).unwrap();
    (head.commit, head.decided_by.iter().map(read).collect())
}

fn git(tree: &Path, args: &[&str]) -> String {
    let mut git = Command::new("git");
    git.args(["-c", "user.name=test", "-c", "user.email=test@example.org"])
        .arg("-C")
        .arg(tree)
        .args(args)
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("HOME", tree);
    succeed(&mut git)
}
