//! A workspace on its way into a container and back.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::Path;

use cofferdam_contract::ending::{DiskPlace, Ending, StopCause};
use cofferdam_contract::record::ChangeKind;
use cofferdam_contract::request::WorkspaceAccess;
use cofferdam_contract::units::{Bytes, Cap};
use cofferdam_testkit::docker::Dockerd;

use crate::support::{exited, mib, run, script, with_workspace};

fn workspace() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("a.txt"), "one\n").unwrap();
    fs::create_dir(dir.path().join("sub")).unwrap();
    fs::write(dir.path().join("sub/deep"), "x".repeat(100_000)).unwrap();
    fs::write(dir.path().join("tool"), "#!/bin/sh\necho ran\n").unwrap();
    let executable = fs::Permissions::from_mode(0o755);
    fs::set_permissions(dir.path().join("tool"), executable).unwrap();
    symlink("a.txt", dir.path().join("link")).unwrap();
    symlink("/etc/shadow", dir.path().join("out")).unwrap();
    dir
}

/// Everything in a directory: contents of files, targets of links.
fn listing(dir: &Path) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut next = vec![dir.to_owned()];
    while let Some(place) = next.pop() {
        for entry in fs::read_dir(place).unwrap().flatten() {
            let path = entry.path();
            let kind = entry.file_type().unwrap();
            let name = path.strip_prefix(dir).unwrap().display().to_string();
            let value = if kind.is_symlink() {
                fs::read_link(&path).unwrap().display().to_string()
            } else if kind.is_dir() {
                next.push(path);
                "/".to_owned()
            } else {
                fs::read_to_string(&path).unwrap()
            };
            found.insert(name, value);
        }
    }
    found
}

const CHANGE: &str = "set -e; pwd; ./tool; cat link; test $(wc -c <sub/deep) = 100000
    echo two >a.txt; echo new >new; mkdir made; echo x >made/file; ln -s made/file made/link; chmod 755 new; rm -r sub; ln new second";

#[test]
fn a_writable_workspace_comes_back_as_the_program_left_it() {
    let Some(daemon) = Dockerd::start() else {
        return;
    };
    let dir = workspace();
    // Somebody else's, as an ordinary user's directory is to root.
    std::os::unix::fs::chown(dir.path(), Some(1234), Some(1234)).unwrap();
    let asked = with_workspace(script(CHANGE), dir.path(), WorkspaceAccess::ReadWrite);
    let record = run(&daemon, asked);
    exited(&record, 0);
    assert_eq!(record.stdout.data, "/work\nran\none\n");
    assert_eq!(record.changes, None);
    let expected = [
        ("a.txt", "two\n"),
        ("link", "a.txt"),
        ("made", "/"),
        ("made/file", "x\n"),
        ("made/link", "made/file"),
        ("new", "new\n"),
        ("out", "/etc/shadow"),
        ("second", "new\n"),
        ("tool", "#!/bin/sh\necho ran\n"),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()));
    assert_eq!(listing(dir.path()), expected.into());
    let new = fs::metadata(dir.path().join("new")).unwrap();
    assert_eq!(
        (new.uid(), new.mode() & 0o7777, new.nlink()),
        (1234, 0o755, 1)
    );
}

#[test]
fn a_copy_on_write_workspace_stays_and_its_changes_are_listed() {
    let Some(daemon) = Dockerd::start() else {
        return;
    };
    let dir = workspace();
    let before = listing(dir.path());
    let asked = with_workspace(script(CHANGE), dir.path(), WorkspaceAccess::CopyOnWrite);
    let record = run(&daemon, asked);
    exited(&record, 0);
    assert_eq!(listing(dir.path()), before);
    let changes = record.changes.unwrap();
    let changes: Vec<(&str, ChangeKind)> = changes
        .iter()
        .map(|change| (&*change.path, change.kind))
        .collect();
    let expected = [
        ("a.txt", ChangeKind::Modified),
        ("made", ChangeKind::Added),
        ("made/file", ChangeKind::Added),
        ("made/link", ChangeKind::Added),
        ("new", ChangeKind::Added),
        ("second", ChangeKind::Added),
        ("sub", ChangeKind::Deleted),
        ("sub/deep", ChangeKind::Deleted),
    ];
    assert_eq!(changes, expected);
}

#[test]
fn a_read_only_workspace_is_read_and_not_written() {
    let Some(daemon) = Dockerd::start() else {
        return;
    };
    let dir = workspace();
    let private = fs::Permissions::from_mode(0o600);
    fs::set_permissions(dir.path().join("a.txt"), private).unwrap();
    let before = listing(dir.path());
    let attempts = "cat a.txt; ./tool; for c in 'echo x >a.txt' 'echo x >new' 'rm a.txt' 'chmod 777 .' 'mv tool t'; do \
                    (eval \"$c\") 2>/dev/null && echo \"$c\"; done; exit 0";
    let asked = with_workspace(script(attempts), dir.path(), WorkspaceAccess::ReadOnly);
    let record = run(&daemon, asked);
    exited(&record, 0);
    assert_eq!(record.stdout.data, "one\nran\n");
    assert_eq!(listing(dir.path()), before);
}

#[test]
fn what_the_program_makes_of_links_leads_nowhere_on_the_host() {
    let Some(daemon) = Dockerd::start() else {
        return;
    };
    let outer = tempfile::tempdir().unwrap();
    let dir = outer.path().join("work");
    fs::create_dir_all(dir.join("sub")).unwrap();
    fs::write(outer.path().join("secret"), "safe").unwrap();
    let target = outer.path().display();
    // A link where a directory was, and files that a careless reader would write through it.
    let attack = format!(
        "rm -r sub; ln -s {target} sub; ln -s {target}/secret key; mkfifo pipe; mkdir d; echo x >d/secret"
    );
    let asked = with_workspace(script(&attack), &dir, WorkspaceAccess::ReadWrite);
    exited(&run(&daemon, asked), 0);
    // And again: now the links are there from the beginning.
    let again = "rm sub key; mkdir sub; echo taken >sub/secret; echo taken >key";
    let asked = with_workspace(script(again), &dir, WorkspaceAccess::ReadWrite);
    exited(&run(&daemon, asked), 0);
    assert_eq!(
        fs::read_to_string(outer.path().join("secret")).unwrap(),
        "safe"
    );
    assert_eq!(
        fs::read_to_string(dir.join("sub/secret")).unwrap(),
        "taken\n"
    );
    assert_eq!(fs::read_to_string(dir.join("key")).unwrap(), "taken\n");
    assert!(!dir.join("pipe").exists());
}

#[test]
fn a_workspace_that_grows_beyond_the_limit_ends_the_run() {
    let Some(daemon) = Dockerd::start() else {
        return;
    };
    let dir = workspace();
    let fill =
        "i=0; while :; do dd if=/dev/zero of=/work/$i bs=1M count=1 2>/dev/null; i=$((i+1)); done";
    let mut asked = with_workspace(script(fill), dir.path(), WorkspaceAccess::CopyOnWrite);
    asked.limits.disk = mib(20);
    asked.limits.memory = Cap::Unlimited;
    let record = run(&daemon, asked);
    let cause = StopCause::Disk {
        limit: Bytes::new(20 << 20),
        place: DiskPlace::Workspace,
    };
    assert_eq!(record.ending, Ending::Stopped(cause));
}

#[test]
fn a_file_that_cannot_be_read_is_named_and_nothing_is_left() {
    let Some(daemon) = Dockerd::start() else {
        return;
    };
    let asked = with_workspace(
        script("true"),
        Path::new("/no/such/dir"),
        WorkspaceAccess::ReadOnly,
    );
    let error = crate::support::try_run(asked, &crate::support::settings(&daemon)).unwrap_err();
    assert!(error.to_string().contains("/no/such/dir"), "{error}");
    daemon.assert_clean();
}
