//! When history cannot be kept: the run reports its result all the same, and what was there stays there.

use std::os::unix::fs::PermissionsExt as _;

use cofferdam_testkit::{Mounted, Need, Way, host};

use crate::auditing::tamper;
use crate::{ran, runs};

#[test]
fn a_directory_that_cannot_be_written_costs_a_warning_and_nothing_else() {
    let host = host!();
    let file = host.dir().join("file");
    std::fs::write(&file, "").unwrap();
    let place = file.join("below");
    let ran = host
        .launch(["run", "--", "sh", "-c", "echo hi; exit 4"])
        .env("COFFERDAM_DATA_DIR", &place)
        .finish();
    assert_eq!(ran.code(), 4);
    assert_eq!(ran.out(), "hi\n");
    assert!(ran.err().contains("[history.unavailable]"), "{ran:#?}");
    let ran = host
        .launch(["run", "--", "sh", "-c", "exit 4"])
        .env("COFFERDAM_DATA_DIR", &place)
        .json()
        .finish();
    assert_eq!(ran.code(), 4);
    assert!(ran.record()["unrecorded"].is_string(), "{ran:#?}");
}

#[test]
fn a_read_only_directory_can_still_be_read() {
    let host = host!();
    let way = Way::User;
    let run = || host.launch(["run", "--", "echo", "hi"]).way(way).finish();
    run().assert_success();
    assert_eq!(runs(&host, way).len(), 1);
    let dir = host.history(way);
    for place in [dir.clone(), dir.join("spool"), dir.join("objects")] {
        std::fs::set_permissions(&place, std::fs::Permissions::from_mode(0o500)).unwrap();
    }
    let ran = run();
    ran.assert_success();
    assert!(ran.err().contains("[history.unavailable]"), "{ran:#?}");
    assert_eq!(runs(&host, way).len(), 1);
    for place in [dir.clone(), dir.join("spool"), dir.join("objects")] {
        std::fs::set_permissions(&place, std::fs::Permissions::from_mode(0o700)).unwrap();
    }
}

/// A disk that is full: first the output goes, never the ending.
#[test]
fn a_full_disk_costs_output_before_it_costs_the_ending() {
    let host = host!(Need::Root);
    let dir = host.history(Way::Root);
    let _mounted = Mounted::tmpfs(&dir, "size=256k");
    let flood = "head -c 2000000 /dev/zero | tr '\\0' x; exit 5";
    let ran = host.run(["run", "--", "sh", "-c", flood]);
    assert_eq!(ran.code(), 5);
    assert_eq!(ran.stdout.len(), 2_000_000);
}

/// What does not fit is not there at all, neither half a file nor half an import.
#[test]
fn a_full_disk_leaves_no_half_file() {
    let host = host!(Need::Root);
    let dir = host.workspace(Way::Root);
    let workspace = format!("{}:rw", dir.display());
    let script = "head -c 400000 /dev/urandom > noise";
    ran(&host, &["--workspace", &workspace], script);
    ran(&host, &[], "echo small");
    let bundle = host.dir().join("good.zip").display().to_string();
    host.run(["export", "--all", "-o", &bundle])
        .assert_success();
    let full = host.dir().join("full");
    std::fs::create_dir(&full).unwrap();
    let _mounted = Mounted::tmpfs(&full, "size=256k");
    let place = |name: &str| full.join(name).display().to_string();
    let (zip, file, saved, data) = (place("x.zip"), place("file"), place("saved"), place("data"));
    let names = |dir: &std::path::Path| std::fs::read_dir(dir).map_or(0, Iterator::count);
    host.run(["export", "--all", "-o", &zip])
        .assert_refused(125, "output.write_failed");
    host.run(["artifacts", "get", "latest~1", "noise", "-o", &file])
        .assert_refused(125, "output.write_failed");
    assert_eq!(names(&full), 0);
    let save = host.run(["runs", "save", "latest~1", "-o", &saved]);
    assert_eq!(save.code(), 125);
    assert_eq!(names(&full.join("saved")), 0);
    let import = host.run(["--data-dir", &data, "import", &bundle]);
    import.assert_refused(125, "history.unavailable");
    let count = host.run(["--data-dir", &data, "runs", "list", "--count"]);
    assert_eq!(count.out(), "0\n");
    assert_eq!(names(&full.join("data/objects/new")), 0);
    host.run(["--data-dir", &data, "audit", "verify"])
        .assert_success();
}

#[test]
fn a_damaged_database_is_told_and_left_alone() {
    let host = host!();
    host.run(["run", "--", "true"]).assert_success();
    assert_eq!(runs(&host, Way::Root).len(), 1);
    let database = host.history(Way::Root).join("history.db");
    for suffix in ["-wal", "-shm"] {
        let _ = std::fs::remove_file(database.with_extension(format!("db{suffix}")));
    }
    let damaged = b"this is not a database".repeat(1000);
    std::fs::write(&database, &damaged).unwrap();
    let list = host.run(["runs", "list"]);
    assert_eq!(list.code(), 125);
    assert!(list.err().contains("[history.damaged]"), "{list:#?}");
    assert!(list.err().contains("history.db"), "{list:#?}");
    // Runs go on, and their journals wait.
    host.run(["run", "--", "true"]).assert_success();
    assert_eq!(std::fs::read(&database).unwrap(), damaged);
    let waiting = std::fs::read_dir(host.history(Way::Root).join("spool")).unwrap();
    let waiting = waiting
        .flatten()
        .filter(|entry| entry.path().extension() == Some("run".as_ref()));
    assert_eq!(waiting.count(), 1);
    std::fs::remove_file(&database).unwrap();
    assert_eq!(runs(&host, Way::Root).len(), 1);
}

/// A newer cofferdam was here, or it is the database of another program: it is left as it is, and runs wait in their journals.
#[test]
fn a_database_that_is_not_ours_to_read_is_left_alone() {
    let host = host!();
    ran(&host, &[], "true");
    assert_eq!(runs(&host, Way::Root).len(), 1);
    let dir = host.history(Way::Root);
    for (sql, undo, code) in [
        (
            "PRAGMA user_version = 99",
            "PRAGMA user_version = 2",
            "history.newer_format",
        ),
        (
            "PRAGMA application_id = 7",
            "PRAGMA application_id = 1668245092",
            "history.damaged",
        ),
    ] {
        tamper(&dir, sql);
        let before = runs_waiting(&dir);
        for args in [
            &["runs", "list"][..],
            &["audit", "verify"],
            &["runs", "prune"],
        ] {
            host.run(args).assert_refused(125, code);
        }
        let ran = host.run(["run", "--", "echo", "hi"]);
        assert_eq!(
            (ran.code(), ran.out().as_str(), ran.err().as_str()),
            (0, "hi\n", "")
        );
        assert_eq!(runs_waiting(&dir), before + 1);
        tamper(&dir, undo);
    }
    assert_eq!(runs(&host, Way::Root).len(), 3);
    assert_eq!(runs_waiting(&dir), 0);
    host.run(["audit", "verify"]).assert_success();
}

fn runs_waiting(dir: &std::path::Path) -> usize {
    let entries = std::fs::read_dir(dir.join("spool"));
    let entries = entries.into_iter().flatten().flatten();
    let is_journal = |path: std::path::PathBuf| path.extension() == Some("run".as_ref());
    entries.filter(|entry| is_journal(entry.path())).count()
}
