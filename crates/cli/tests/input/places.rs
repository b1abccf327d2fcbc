//! Workspaces, mounts, roots, working directories and input files that do not work.

use std::os::unix::fs::PermissionsExt as _;

use cofferdam_testkit::{Need, Way, host};

#[test]
fn a_workspace_must_be_a_directory_that_exists() {
    let host = host!();
    let file = host.dir().join("file");
    std::fs::write(&file, "x").unwrap();
    for way in Way::all() {
        for access in ["ro", "rw", "cow"] {
            for path in ["/no/such/dir", file.to_str().unwrap(), "/dev/null"] {
                let given = format!("{path}:{access}");
                let run = host
                    .launch(["run", "--workspace", &given, "--", "true"])
                    .way(way)
                    .finish();
                run.assert_refused(125, "input.unreadable");
                assert!(run.err().contains(path), "{way:?} {given}: {run:#?}");
            }
        }
    }
    host.run(["run", "--workspace", "", "--", "true"])
        .assert_refused(125, "input.invalid");
    host.run(["run", "--workspace", ":rw", "--", "true"])
        .assert_refused(125, "input.invalid");
}

#[test]
fn a_workspace_that_the_caller_may_not_read_is_refused() {
    let host = host!(Need::UnprivilegedUser);
    let dir = host.workspace(Way::Root);
    std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(0o700)).unwrap();
    for access in ["ro", "rw", "cow"] {
        let given = format!("{}:{access}", dir.display());
        let run = host
            .launch([
                "run",
                "--workspace",
                &given,
                "--",
                "sh",
                "-c",
                "ls -A; touch x; echo $?",
            ])
            .way(Way::User)
            .finish();
        // Either it is refused, or the program meets the same closed door.
        assert!(
            run.code() != 0 || run.out().trim() == "1",
            "{access}: {run:#?}"
        );
        assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 0);
    }
}

#[test]
fn bad_mounts_are_refused_and_named() {
    let host = host!();
    for (spec, code) in [
        ("/usr", "input.invalid"),
        ("", "input.invalid"),
        (":", "input.invalid"),
        (":/data", "input.invalid"),
        ("/usr:", "input.invalid"),
        ("/usr:data", "input.invalid"),
        ("/usr:/", "input.invalid"),
        ("/usr://", "input.invalid"),
        ("/usr:/..", "input.invalid"),
        ("/usr:/data/../etc", "input.invalid"),
        ("/usr:/./data", "input.invalid"),
        ("/usr:/proc", "input.invalid"),
        ("/usr:/proc/self", "input.invalid"),
        ("/usr:/dev/shm", "input.invalid"),
        ("/usr:/etc/passwd", "input.invalid"),
        ("/usr:/tmp/x", "input.invalid"),
        ("/usr:/work", "input.invalid"),
        ("/usr:/work/x", "input.invalid"),
        ("/no/such/file:/data", "input.unreadable"),
    ] {
        for way in Way::all() {
            let run = host
                .launch(["run", "--mount", spec, "--", "true"])
                .way(way)
                .finish();
            run.assert_refused(125, code);
        }
    }
    let nested = host.run([
        "run",
        "--mount",
        "/usr:/data",
        "--mount",
        "/usr:/data/x",
        "--",
        "true",
    ]);
    nested.assert_refused(125, "input.invalid");
    let twice = host.run([
        "run",
        "--mount",
        "/usr:/data",
        "--mount",
        "/bin:/data",
        "--",
        "true",
    ]);
    twice.assert_refused(125, "input.invalid");
}

/// Places that the sandbox itself is made of: a clear refusal, or the mount; never a half-built sandbox that runs.
#[test]
fn a_mount_over_the_system_works_or_is_refused() {
    let host = host!();
    let dir = host.workspace(Way::Root);
    std::fs::write(dir.join("probe"), "x").unwrap();
    for target in [
        "/usr",
        "/bin",
        "/lib",
        "/usr/new",
        "/home",
        "/home/sandbox",
        "/home/sandbox/x",
        "/data",
        "/deep/er/data",
        "/bin/x",
    ] {
        for way in Way::all() {
            let spec = format!("{}:{target}", dir.display());
            let run = host
                .launch([
                    "run",
                    "--mount",
                    &spec,
                    "--",
                    "/usr/bin/cat",
                    &format!("{target}/probe"),
                ])
                .way(way)
                .finish();
            match run.code() {
                0 => assert_eq!(run.out(), "x", "{way:?} {target}: {run:#?}"),
                code @ (125..=127) => {
                    let error = [
                        "sandbox.setup_failed",
                        "input.invalid",
                        "program.not_found",
                        "program.not_executable",
                    ]
                    .into_iter()
                    .find(|error| run.err().contains(error));
                    run.assert_refused(code, error.unwrap_or("no code"));
                }
                _ => panic!("{way:?} {target}: {run:#?}"),
            }
        }
    }
}

#[test]
fn more_mounts_than_a_sandbox_holds_are_refused_clearly() {
    let host = host!();
    for (count, fits) in [(30, true), (400, false)] {
        for way in Way::all() {
            let dirs: Vec<_> = (0..3)
                .map(|n| {
                    let dir = host.workspace(way);
                    std::fs::write(dir.join("which"), n.to_string()).unwrap();
                    dir
                })
                .collect();
            let mounts: Vec<String> = (0..count)
                .map(|n| format!("{}:/data{n}", dirs[n % 3].display()))
                .collect();
            let mut args = vec!["run"];
            for mount in &mounts {
                args.extend(["--mount", mount]);
            }
            args.extend(["--", "sh", "-c", "cat /data*/which | wc -c; cat /data0/which /data1/which /data2/which /data29/which"]);
            let run = host.launch(args).way(way).finish();
            if fits {
                assert_eq!(run.out(), "30\n0122", "{way:?}: {run:#?}");
            } else {
                assert_eq!(run.code(), 125, "{way:?}: {run:#?}");
                let error = if run.err().contains("input.invalid") {
                    "input.invalid"
                } else {
                    "sandbox.setup_failed"
                };
                run.assert_refused(125, error);
            }
        }
    }
}

#[test]
fn a_working_directory_must_exist_inside() {
    let host = host!();
    for way in Way::all() {
        host.launch(["run", "--cwd", "/no/such/dir", "--", "true"])
            .way(way)
            .finish()
            .assert_refused(125, "sandbox.setup_failed");
        host.launch(["run", "--cwd", "/etc/passwd", "--", "true"])
            .way(way)
            .finish()
            .assert_refused(125, "sandbox.setup_failed");
        host.launch(["run", "--cwd", "relative", "--", "true"])
            .way(way)
            .finish()
            .assert_refused(125, "input.invalid");
        assert_eq!(
            host.launch(["run", "--cwd", "/tmp", "--", "pwd"])
                .way(way)
                .finish()
                .out(),
            "/tmp\n"
        );
    }
}

#[test]
fn an_input_file_must_be_readable() {
    let host = host!();
    let secret = host.dir().join("unreadable");
    std::fs::write(&secret, "x").unwrap();
    std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(0o000)).unwrap();
    for way in Way::all() {
        host.launch(["run", "--stdin", "/no/such/file", "--", "cat"])
            .way(way)
            .finish()
            .assert_refused(125, "input.unreadable");
        host.launch(["run", "--stdin", "/", "--", "cat"])
            .way(way)
            .finish()
            .assert_refused(125, "input.invalid");
        if way == Way::User {
            host.launch(["run", "--stdin", secret.to_str().unwrap(), "--", "cat"])
                .way(way)
                .finish()
                .assert_refused(125, "input.unreadable");
        }
    }
}

/// Nobody will ever write to it, so waiting for somebody to would hang before any limit counts.
#[test]
fn a_fifo_without_a_writer_as_input_does_not_hang_beyond_the_deadline() {
    let host = host!();
    let fifo = host.dir().join("fifo");
    rustix::fs::mkfifoat(
        rustix::fs::CWD,
        &fifo,
        rustix::fs::Mode::from_raw_mode(0o666),
    )
    .unwrap();
    let run = host.run([
        "run",
        "--timeout",
        "300ms",
        "--stdin",
        fifo.to_str().unwrap(),
        "--",
        "cat",
    ]);
    assert_eq!(run.code(), 124, "{run:#?}");
}

#[test]
fn a_root_must_be_a_directory_that_exists() {
    let host = host!();
    for way in Way::all() {
        for path in ["/no/such/root", "/etc/passwd"] {
            let run = host
                .launch(["run", "--root", path, "--", "true"])
                .way(way)
                .finish();
            assert_eq!(run.code(), 125, "{way:?} {path}: {run:#?}");
            let error = ["input.unreadable", "input.invalid", "sandbox.setup_failed"]
                .into_iter()
                .find(|error| run.err().contains(error));
            run.assert_refused(125, error.unwrap_or("no code"));
        }
    }
}
