//! Disk: the scratch space, whose size the kernel holds, and a writable workspace, which has to be watched.

use std::path::Path;

use cofferdam_testkit::hostile::Hostile;
use cofferdam_testkit::{Finished, Host, Launch, Mounted, Need, Way, host};

const SCRATCH: &str = "stopped: disk limit of 4 MiB reached in the scratch space (/tmp, /dev/shm, home); raise it with --disk";
const WORKSPACE: &str =
    "stopped: disk limit of 4 MiB reached in the workspace; raise it with --disk";

/// Asks for four times the limit.
fn fill_scratch(host: &Host, way: Way, attack: &str, dir: &str) -> Finished {
    let disk = Hostile::Disk.compile();
    let args = [
        "run",
        "--disk",
        "4m",
        "--timeout",
        "10s",
        "--mount",
        &disk.mount(),
        "--",
        &disk.inside(),
        attack,
        dir,
        "16",
    ];
    let run = host.launch(args).way(way).json().finish();
    assert_eq!(run.enforced_by("disk"), "tmpfs+rlimit", "{way:?}");
    run
}

#[track_caller]
fn assert_scratch_holds(attack: &str, dir: &str) {
    let host = host!(Need::Gcc);
    for way in Way::all() {
        let run = fill_scratch(&host, way, attack, dir);
        run.assert_stopped("disk", 153, SCRATCH);
        assert!(
            run.usage("disk_bytes") <= f64::from((4 << 20) + (256 << 10)),
            "{way:?}: {run:#?}"
        );
    }
}

/// Sixteen times the limit, so that a look every few milliseconds has something to find.
#[track_caller]
fn assert_workspace_holds(attack: &str) {
    let host = host!(Need::Gcc);
    for way in Way::all() {
        let workspace = host.workspace(way);
        assert_stopped_in(&host, way, attack, &workspace);
    }
}

/// For what an ordinary user cannot look into: there the free space of the whole file system decides, which others in the machine fill and empty as well.
#[track_caller]
fn assert_workspace_alone_holds(attack: &str) {
    let host = host!(Need::Gcc, Need::Root);
    for way in Way::all() {
        let workspace = host.workspace(way);
        let _alone = Mounted::tmpfs(&workspace, "size=256m");
        host.give(&workspace, way);
        assert_stopped_in(&host, way, attack, &workspace);
    }
}

/// Asks for this many MiB in a workspace that is given so.
fn fill_workspace<'a>(
    host: &'a Host,
    way: Way,
    (attack, mib): (&str, u32),
    given: &str,
) -> Launch<'a> {
    let disk = Hostile::Disk.compile();
    let args = [
        "run",
        "--disk",
        "4m",
        "--timeout",
        "10s",
        "--workspace",
        given,
        "--mount",
        &disk.mount(),
        "--",
        &disk.inside(),
        attack,
        "/work",
        &mib.to_string(),
    ];
    host.launch(args).way(way).json()
}

#[track_caller]
fn assert_stopped_in(host: &Host, way: Way, attack: &str, workspace: &Path) {
    let given = format!("{}:rw", workspace.display());
    let run = fill_workspace(host, way, (attack, 64), &given).finish();
    assert_eq!(run.enforced_by("disk"), "tmpfs+rlimit+poll", "{way:?}");
    assert_eq!(
        (run.ending(), run.code()),
        ("disk", 153),
        "{way:?}: {attack}: {run:#?}"
    );
}

#[test]
fn one_big_file_in_tmp_is_stopped() {
    assert_scratch_holds("one", "/tmp");
}

#[test]
fn many_files_in_tmp_are_stopped() {
    assert_scratch_holds("many", "/tmp");
}

#[test]
fn the_home_directory_shares_the_limit() {
    assert_scratch_holds("many", "/home/sandbox");
}

#[test]
fn dev_shm_shares_the_limit() {
    assert_scratch_holds("many", "/dev/shm");
}

/// Such files are gone with the program, so a limit that fired a moment before its end may leave no evidence; that it held is certain.
#[test]
fn unlinked_files_in_tmp_count() {
    let host = host!(Need::Gcc);
    for way in Way::all() {
        let run = fill_scratch(&host, way, "unlinked", "/tmp");
        match run.ending() {
            "exited" => assert_eq!(
                (run.code(), run.err().as_str()),
                (3, "write: No space left on device\n"),
                "{way:?}: {run:#?}"
            ),
            _ => {
                run.assert_stopped("disk", 153, SCRATCH);
            }
        }
    }
}

#[test]
fn a_bomb_of_empty_files_is_stopped() {
    assert_scratch_holds("inodes", "/tmp");
}

#[test]
fn a_file_as_large_as_allowed_can_be_written() {
    let host = host!();
    for way in Way::all() {
        let run = host
            .launch([
                "run",
                "--disk",
                "4m",
                "--",
                "dd",
                "if=/dev/zero",
                "of=/tmp/x",
                "bs=1M",
                "count=3",
            ])
            .way(way)
            .json()
            .finish();
        run.assert_success();
    }
}

#[test]
fn copy_on_write_changes_share_the_limit() {
    let host = host!(Need::Gcc);
    for way in Way::all() {
        let given = format!("{}:cow", host.workspace(way).display());
        let run = fill_workspace(&host, way, ("many", 16), &given).finish();
        run.assert_stopped("disk", 153, SCRATCH);
    }
}

#[test]
fn one_big_file_in_the_workspace_is_stopped() {
    assert_workspace_holds("one");
}

#[test]
fn many_files_in_the_workspace_are_stopped() {
    assert_workspace_holds("many");
}

#[test]
fn the_message_names_the_workspace() {
    let host = host!(Need::Gcc);
    let way = Way::all()[0];
    let given = format!("{}:rw", host.workspace(way).display());
    fill_workspace(&host, way, ("many", 64), &given)
        .finish()
        .assert_stopped("disk", 153, WORKSPACE);
}

#[test]
fn unlinked_files_in_the_workspace_count() {
    assert_workspace_holds("unlinked");
}

#[test]
fn unlinked_files_kept_by_a_mapping_count() {
    assert_workspace_alone_holds("mapped");
}

#[test]
fn files_below_many_directories_count() {
    assert_workspace_holds("deep");
}

#[test]
fn files_in_thousands_of_directories_count() {
    let host = host!(Need::Gcc);
    for way in Way::all() {
        let given = format!("{}:rw", host.workspace(way).display());
        // A caller with as few descriptors as a shell usually has.
        let run = fill_workspace(&host, way, ("wide", 64), &given)
            .from_shell("ulimit -n 256; exec \"$@\"")
            .finish();
        assert_eq!(
            (run.ending(), run.code()),
            ("disk", 153),
            "{way:?}: {run:#?}"
        );
    }
}

#[test]
fn files_in_a_locked_directory_count() {
    assert_workspace_alone_holds("locked");
}

#[test]
fn reserved_blocks_count() {
    assert_workspace_holds("reserved");
}

#[test]
fn what_the_caller_put_into_the_workspace_does_not_count() {
    let host = host!();
    for way in Way::all() {
        let workspace = host.workspace(way);
        std::fs::write(workspace.join("large"), vec![1; 8 << 20]).unwrap();
        let given = format!("{}:rw", workspace.display());
        let run = host
            .launch([
                "run",
                "--disk",
                "4m",
                "--workspace",
                &given,
                "--",
                "sh",
                "-c",
                "echo x >small; sleep 1.2",
            ])
            .way(way)
            .json()
            .finish();
        run.assert_success();
    }
}
