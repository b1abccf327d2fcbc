//! Programs that cannot be run, and arguments and variables at the edge of what the kernel takes.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::PermissionsExt as _;

use cofferdam_testkit::{Way, host};

#[test]
fn a_missing_program_is_not_found() {
    let host = host!();
    for way in Way::all() {
        for program in [
            "no-such-program",
            "/no/such/program",
            "./missing",
            "/bin/true/x",
            "no\nsuch\nprogram",
        ] {
            host.launch(["run", "--", program])
                .way(way)
                .finish()
                .assert_refused(127, "program.not_found");
            let run = host.launch(["run", "--", program]).way(way).json().finish();
            assert_eq!(run.code(), 127, "{program}: {run:#?}");
            assert_eq!(
                run.record()["ending"]["code"],
                "program.not_found",
                "{program}: {run:#?}"
            );
            assert_eq!(run.record()["ending"]["kind"], "never_started", "{program}");
        }
    }
}

#[test]
fn a_program_of_the_hosts_that_is_not_in_view_is_explained() {
    let host = host!();
    let dir = host.workspace(Way::all()[0]);
    let tool = dir.join("only-here");
    std::fs::write(&tool, "#!/bin/sh\necho ran\n").unwrap();
    std::fs::set_permissions(&tool, std::fs::Permissions::from_mode(0o755)).unwrap();
    let run = host
        .launch(["run", "--", "only-here"])
        .env("PATH", format!("/usr/bin:/bin:{}", dir.display()))
        .finish();
    run.assert_refused(127, "program.not_found");
    assert!(
        run.err().contains(tool.to_str().unwrap()) && run.err().contains("--mount"),
        "{run:#?}"
    );
}

#[test]
fn what_cannot_be_executed_is_said_so() {
    let host = host!();
    for way in Way::all() {
        let dir = host.workspace(way);
        for (name, mode, content) in [
            ("plain", 0o644, "x"),
            ("unreadable", 0o000, "x"),
            ("not-a-program", 0o755, "\0\0\0\0"),
            ("bad-elf", 0o755, "\x7fELF\0\0\0"),
        ] {
            let path = dir.join(name);
            std::fs::write(&path, content).unwrap();
            host.give(&path, way);
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        }
        std::fs::create_dir(dir.join("directory")).unwrap();
        let given = format!("{}:ro", dir.display());
        for program in [
            "./plain",
            "./unreadable",
            "./not-a-program",
            "./bad-elf",
            "./directory",
            "/tmp",
            "/dev/null",
        ] {
            let run = host
                .launch(["run", "--workspace", &given, "--", program])
                .way(way)
                .finish();
            run.assert_refused(126, "program.not_executable");
        }
        let script = dir.join("script");
        std::fs::write(&script, "#!/no/such/interpreter\n").unwrap();
        std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
        let run = host
            .launch(["run", "--workspace", &given, "--", "./script"])
            .way(way)
            .finish();
        assert!(matches!(run.code(), 126 | 127), "{run:#?}");
        run.assert_refused(
            run.code(),
            if run.code() == 126 {
                "program.not_executable"
            } else {
                "program.not_found"
            },
        );
    }
}

#[test]
fn a_program_in_the_workspace_runs() {
    let host = host!();
    for way in Way::all() {
        let dir = host.workspace(way);
        let script = dir.join("run me");
        std::fs::write(&script, "#!/bin/sh\necho \"$0 $#\" \"$1\"\n").unwrap();
        std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
        for access in ["ro", "rw", "cow"] {
            let given = format!("{}:{access}", dir.display());
            let run = host
                .launch(["run", "--workspace", &given, "--", "./run me", ""])
                .way(way)
                .finish();
            assert_eq!(
                (run.out().as_str(), run.code()),
                ("./run me 1 \n", 0),
                "{way:?} {access}: {run:#?}"
            );
        }
    }
}

#[test]
fn an_empty_program_name_is_refused() {
    let host = host!();
    host.run(["run", "--", ""])
        .assert_refused(125, "input.invalid");
    host.run(["run", "--", "", "argument"])
        .assert_refused(125, "input.invalid");
}

#[test]
fn arguments_reach_the_program_byte_for_byte() {
    let host = host!();
    let odd = OsString::from_vec(b"\xff\xfe \n\t'\"$(id)`id`\\ --help".to_vec());
    let run = host.run([
        OsString::from("run"),
        "--".into(),
        "printf".into(),
        "[%s]".into(),
        odd.clone(),
        "".into(),
        "--".into(),
        "-x".into(),
    ]);
    let expected = [b"[", odd.as_encoded_bytes(), b"][][--][-x]"].concat();
    assert_eq!(run.stdout, expected, "{run:#?}");
}

/// 131,071 bytes are the longest that Linux hands to any program, so nothing longer can reach us through a command line either.
#[test]
fn the_longest_argument_and_variable_pass() {
    let host = host!();
    for way in Way::all() {
        let longest = "x".repeat(131_071);
        let run = host
            .launch(["run", "--", "printf", "%s", &longest])
            .way(way)
            .finish();
        assert_eq!(
            (run.stdout.len(), run.code()),
            (131_071, 0),
            "{way:?}: {run:#?}"
        );
        let variable = format!("BIG={}", "x".repeat(131_067));
        let run = host
            .launch([
                "run",
                "--env",
                &variable,
                "--",
                "sh",
                "-c",
                "printf %s \"$BIG\" | wc -c",
            ])
            .way(way)
            .finish();
        assert_eq!(run.out().trim(), "131067", "{way:?}: {run:#?}");
    }
}

#[test]
fn many_arguments_pass_until_the_kernels_bound_and_are_then_refused() {
    let host = host!();
    let (many, too_many) = (vec!["1234567"; 90_000], vec!["1234567"; 190_000]);
    let args = |arguments: &[&'static str]| {
        [&["run", "--", "sh", "-c", "echo $#", "sh"], arguments].concat()
    };
    // A caller with a large stack can pass more than the program inside may have.
    rustix::process::setrlimit(
        rustix::process::Resource::Stack,
        rustix::process::Rlimit {
            current: Some(64 << 20),
            maximum: rustix::process::getrlimit(rustix::process::Resource::Stack).maximum,
        },
    )
    .unwrap();
    for way in Way::all() {
        let run = host.launch(args(&many)).way(way).finish();
        assert_eq!(run.out(), "90000\n", "{way:?}: {run:#?}");
        host.launch(args(&too_many))
            .way(way)
            .finish()
            .assert_refused(125, "input.invalid");
    }
}

#[test]
fn bad_variables_are_refused_and_named() {
    let host = host!();
    for (flags, field) in [
        (&["--env", "A=1", "--env", "A=2"][..], "env.A"),
        (&["--env", "1A=x"], "1A"),
        (&["--env", "=x"], "env"),
        (&["--env", ""], "--env"),
        (&["--env", "A-B=x"], "A-B"),
        (&["--env", "NOT_IN_MY_ENVIRONMENT"], "NOT_IN_MY_ENVIRONMENT"),
    ] {
        let run = host.run([&["run"], flags, &["--", "true"]].concat());
        run.assert_refused(125, "input.invalid");
        assert!(run.err().contains(field), "{flags:?}: {run:#?}");
    }
}

#[test]
fn a_variable_can_replace_a_default_and_be_empty() {
    let host = host!();
    let run = host.run([
        "run",
        "--env",
        "HOME=/tmp",
        "--env",
        "EMPTY=",
        "--env",
        "PATH=/usr/bin",
        "--",
        "sh",
        "-c",
        "echo $HOME [$EMPTY] $PATH ${EMPTY+set}",
    ]);
    assert_eq!(run.out(), "/tmp [] /usr/bin set\n");
}

#[test]
fn all_problems_are_told_at_once() {
    let host = host!();
    let run = host.run([
        "run",
        "--env",
        "1A=x",
        "--cwd",
        "relative",
        "--mount",
        "/usr:/",
        "--mount",
        "/usr:/proc/x",
        "--pids",
        "99999999",
        "--",
        "",
    ]);
    run.assert_refused(125, "input.invalid");
    for part in [
        "1A",
        "cwd",
        "mounts[0].target",
        "mounts[1].target",
        "processes",
        "argv[0]",
    ] {
        assert!(run.err().contains(part), "{part} is missing: {run:#?}");
    }
}
