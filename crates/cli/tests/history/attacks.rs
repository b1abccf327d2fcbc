//! What a program, or somebody beside it, might do to the history, and must not get away with.

use std::time::Duration;

use cofferdam_testkit::{Need, Way, host};

use crate::{runs, told};

/// Many files that are read and not kept must not hold a run up: they are left out.
#[test]
fn files_that_are_not_kept_do_not_hold_a_run_up() {
    let host = host!();
    let dir = host.workspace(Way::Root);
    let script = "for i in $(seq 200); do truncate -s 10000000 f$i; printf '\\nAKIAABCDEFGHIJKLMNOP\\n' >> f$i; done";
    let given = format!("{}:rw", dir.display());
    let ran = host.run(["run", "--workspace", &given, "--", "sh", "-c", script]);
    ran.assert_success();
    assert!(ran.wall < Duration::from_secs(90), "{ran:#?}");
    let shown = told(&host, &["runs", "show", "latest", "--json"]);
    let left_out = shown["left_out"].to_string();
    assert!(left_out.contains("took too long"), "{left_out}");
    assert_eq!(shown["artifacts"], serde_json::json!([]));
}

/// Names so many and so long that no record could hold them.
#[test]
fn no_number_of_changes_makes_a_record_unreadable() {
    let host = host!(Need::Python);
    let dir = host.workspace(Way::Root);
    let given = format!("{}:cow", dir.display());
    let script = "import os\nd='/work'\nfor i in range(6):\n d=d+'/'+'d'*250\n os.mkdir(d)\nos.chdir(d)\nfor i in range(9000): open('%06d'%i+'n'*240,'w').close()\n";
    let ran = host
        .launch([
            "run",
            "--no-artifacts",
            "--workspace",
            &given,
            "--stdin",
            "-",
            "--",
            "python3",
            "-",
        ])
        .stdin(script)
        .finish();
    ran.assert_success();
    let all = runs(&host, Way::Root);
    assert_eq!(all[0]["status"], "success");
    let shown = told(&host, &["runs", "show", "latest", "--json"]);
    assert!(
        shown["left_out"]
            .to_string()
            .contains("more changes are not listed")
    );
}

/// A second mount, or a link that the program could lead elsewhere, is a way to the history, too.
#[test]
fn the_history_is_not_reached_by_another_name() {
    let host = host!(Need::Root);
    let real = host.dir().join("real");
    let shown = host.dir().join("shown");
    let work = host.dir().join("work");
    let elsewhere = host.dir().join("elsewhere");
    for dir in [&real, &shown, &work, &elsewhere] {
        std::fs::create_dir(dir).unwrap();
    }
    let bound = std::process::Command::new("mount")
        .arg("--bind")
        .args([&real, &shown])
        .status();
    assert!(bound.unwrap().success());
    let run = |data: &std::path::Path, workspace: &std::path::Path| {
        let given = format!("{}:rw", workspace.display());
        host.launch(["run", "--workspace", &given, "--", "true"])
            .env("COFFERDAM_DATA_DIR", data)
            .finish()
    };
    let refused = run(&real.join("data"), &shown);
    let unmounted = std::process::Command::new("umount").arg(&shown).status();
    assert!(unmounted.unwrap().success());
    refused.assert_refused(125, "input.invalid");
    std::os::unix::fs::symlink(&elsewhere, work.join("link")).unwrap();
    run(&work.join("link/data"), &work).assert_refused(125, "input.invalid");
    run(&elsewhere.join("data"), &work).assert_success();
}

/// A limit on the size of files is the journal's trouble, not the run's.
#[test]
fn a_limit_on_file_sizes_costs_the_log_and_not_the_result() {
    let host = host!();
    let ran = host
        .launch([
            "run",
            "--",
            "sh",
            "-c",
            "head -c 20000 /dev/zero | tr '\\0' a; exit 5",
        ])
        .from_shell("ulimit -f 8; exec \"$@\"")
        .finish();
    assert_eq!(ran.code(), 5);
    assert_eq!(ran.stdout.len(), 20_000);
    assert_eq!(runs(&host, Way::Root)[0]["exit_code"], 5);
}

/// Whoever has many pipes gets small ones; nothing of the output is lost in them.
#[test]
fn small_pipes_lose_nothing() {
    let host = host!(Need::UnprivilegedUser, Need::Python);
    let hog = "import os,time\nfor i in range(3):\n  if os.fork()==0: break\np=[os.pipe() for i in range(480)]\nprint('ready',flush=True)\ntime.sleep(60)";
    let mut hogs = Vec::new();
    for _ in 0..2 {
        let mut started = host
            .launch(["run", "--no-history", "--", "python3", "-c", hog])
            .way(Way::User)
            .start();
        started.await_output("ready");
        hogs.push(started);
    }
    let flood = "dd if=/dev/zero bs=64k count=64 2>/dev/null";
    let ran = host
        .launch(["run", "--", "sh", "-c", flood])
        .way(Way::User)
        .finish();
    ran.assert_success();
    assert_eq!(ran.stdout.len(), 64 * 65536);
    for started in hogs {
        started.signal(rustix::process::Signal::KILL);
        let _ = started.finish();
    }
}

/// Secrets that the program or the caller puts where nobody looks first.
#[test]
fn secrets_in_names_and_places_are_not_kept_either() {
    let host = host!();
    let secret = "ghp_0123456789abcdefghijABCDEFGHIJ012345";
    let odd = "pa\\ss\"Zx91";
    let dir = host.workspace(Way::Root);
    let given = format!("{}:rw", dir.display());
    host.launch([
        "run",
        "--env",
        &format!("MY_TOKEN={odd}"),
        "--env",
        &format!("X_{secret}=1"),
        "--tag",
        &format!("{secret}=a"),
        "--tag",
        "password=hunter2hunter2",
        "--cwd",
        &format!("/tmp/{secret}"),
        "--workspace",
        &given,
        "--",
        "sh",
        "-c",
        "true",
    ])
    .finish();
    let script = "echo x > \"$MY_TOKEN\"; echo 1 > password=abc123; echo 2 > password=def456";
    host.run([
        "run",
        "--env",
        &format!("MY_TOKEN={odd}"),
        "--workspace",
        &given,
        "--",
        "sh",
        "-c",
        script,
    ])
    .assert_success();
    for id in ["latest", "latest~1"] {
        let shown = told(&host, &["runs", "show", id, "--json"]).to_string();
        for kept in [secret, "Zx91", "hunter2", "abc123", "def456"] {
            assert!(!shown.contains(kept), "{kept} in {shown}");
        }
    }
    // Names that have become equal still name one file each.
    let list = told(&host, &["artifacts", "list", "latest", "--json"]);
    let paths: std::collections::BTreeSet<&str> = list["artifacts"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|artifact| artifact["path"].as_str())
        .collect();
    assert_eq!(paths.len(), 3, "{list}");
}

/// One journal that cannot be read hides no other.
#[test]
fn a_journal_that_cannot_be_read_is_passed_over_and_said() {
    let host = host!();
    host.run(["run", "--", "true"]).assert_success();
    let spool = host.history(Way::Root).join("spool");
    let stranger = spool.join("019a8c3e-7f2b-7abc-8def-0123456789ab.run");
    std::os::unix::fs::symlink("/etc/passwd", &stranger).unwrap();
    let newer = spool.join("019a8c3e-7f2b-7abc-8def-0123456789ac.run");
    std::fs::write(&newer, b"cofjrnl9 something else").unwrap();
    let list = host.run(["runs", "list", "--json"]);
    assert_eq!(list.told_list("runs").len(), 1);
    let said = String::from_utf8_lossy(&list.stderr).into_owned();
    assert_eq!(said.matches("is passed over").count(), 2, "{said}");
    assert!(newer.exists());
}
