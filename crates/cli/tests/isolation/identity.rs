//! Who a program is: inside, an ordinary user without any privilege; outside, nobody who owns anything.

use std::os::unix::fs::PermissionsExt as _;

use cofferdam_testkit::{Need, Way, host};

#[test]
fn the_program_is_an_ordinary_user_without_privileges() {
    let host = host!();
    for way in Way::all() {
        let script = "id -u; id -g; id -un; grep -e '^Cap' -e NoNewPrivs -e '^Seccomp:' -e '^Groups' /proc/self/status | tr -d '\\t '";
        let run = host
            .launch(["run", "--", "sh", "-c", script])
            .way(way)
            .finish();
        let none = "0000000000000000";
        let groups = run
            .out()
            .lines()
            .find_map(|line| line.strip_prefix("Groups:").map(str::to_owned));
        let expected = format!(
            "1000\n1000\nsandbox\nGroups:{}\nCapInh:{none}\nCapPrm:{none}\nCapEff:{none}\nCapBnd:{none}\nCapAmb:{none}\nNoNewPrivs:1\nSeccomp:2\n",
            groups.unwrap_or_default()
        );
        assert_eq!(run.out(), expected, "{way:?}: {run:#?}");
        assert!(!run.out().contains("Groups:0"), "{way:?}: root's group");
    }
}

#[test]
fn outside_the_program_is_not_root_while_it_runs() {
    let host = host!(Need::Root);
    for way in Way::all() {
        let mut run = host
            .launch(["run", "--", "sh", "-c", "echo ready; sleep 60"])
            .way(way)
            .start();
        run.await_output("ready");
        let sleeper = run.await_process(|process| process.name == "sleep");
        assert!(
            sleeper.uids.iter().all(|&uid| uid != 0),
            "{way:?}: {sleeper:?}"
        );
        assert_eq!(sleeper.status("CapEff").unwrap(), "0000000000000000");
        assert_ne!(
            sleeper.status("Gid").unwrap().split_whitespace().next(),
            Some("0"),
            "{way:?}"
        );
        let own = std::process::id();
        let host_namespaces: std::collections::BTreeSet<String> =
            std::fs::read_dir(format!("/proc/{own}/ns"))
                .unwrap()
                .map(|entry| {
                    std::fs::read_link(entry.unwrap().path())
                        .unwrap()
                        .display()
                        .to_string()
                })
                .collect();
        let shared: Vec<String> = sleeper
            .namespaces()
            .intersection(&host_namespaces)
            .filter(|name| !name.starts_with("time"))
            .cloned()
            .collect();
        assert_eq!(
            shared,
            Vec::<String>::new(),
            "{way:?}: namespaces shared with the host"
        );
        run.signal(rustix::process::Signal::TERM);
        assert_eq!(run.finish().code(), 130);
    }
}

#[test]
fn two_runs_of_root_are_different_users_outside() {
    let host = host!(Need::Root);
    let start = || {
        let mut run = host
            .launch(["run", "--", "sh", "-c", "echo ready; sleep 60"])
            .start();
        run.await_output("ready");
        let uids = run.await_process(|process| process.name == "sleep").uids;
        (run, uids)
    };
    let (first, second) = (start(), start());
    assert_ne!(first.1, second.1);
    for (run, _) in [first, second] {
        run.signal(rustix::process::Signal::TERM);
        assert_eq!(run.finish().code(), 130);
    }
}

#[test]
fn a_set_uid_program_gains_nothing() {
    let host = host!(Need::Root);
    for way in Way::all() {
        let workspace = host.workspace(way);
        for program in ["id", "cat"] {
            let copy = workspace.join(program);
            std::fs::copy(format!("/usr/bin/{program}"), &copy).unwrap();
            std::fs::set_permissions(&copy, std::fs::Permissions::from_mode(0o6755)).unwrap();
        }
        for access in ["ro", "rw", "cow"] {
            let given = format!("{}:{access}", workspace.display());
            let run = host.launch(["run", "--workspace", &given, "--", "sh", "-c", "./id -u; ./id -ru; ./id -g; ./cat /proc/self/status | grep CapEff | tr -d '\\t'"]).way(way).finish();
            assert!(
                run.out()
                    .starts_with("1000\n1000\n1000\nCapEff:0000000000000000\n"),
                "{way:?} {access}: {run:#?}"
            );
            assert!(!run.out().contains("uid=0"), "{way:?} {access}: {run:#?}");
        }
    }
}

/// What a program makes in a workspace of root's belongs to root on disk, so it must not be able to make a program that runs as its owner.
#[test]
fn no_set_uid_program_is_planted_in_the_workspace() {
    let host = host!(Need::Python);
    let script = "
import os
def attempt(what):
    try: what()
    except OSError: pass
for n in range(6): open(f'planted{n}', 'w').close()
attempt(lambda: os.chmod('planted0', 0o6755))
attempt(lambda: os.fchmod(os.open('planted1', os.O_RDONLY), 0o4755))
attempt(lambda: os.chmod('planted2', 0o2755))
attempt(lambda: os.close(os.open('planted-open', os.O_CREAT | os.O_WRONLY, 0o6755)))
attempt(lambda: os.mknod('planted-node', 0o106755))
attempt(lambda: os.mkdir('planted-dir', 0o2755))
attempt(lambda: os.chmod('.', 0o2755))
os.umask(0)
attempt(lambda: os.close(os.open('planted-open2', os.O_CREAT | os.O_WRONLY, 0o6777)))
";
    for way in Way::all() {
        let workspace = host.workspace(way);
        let given = format!("{}:rw", workspace.display());
        let run = host
            .launch(["run", "--workspace", &given, "--", "python3", "-c", script])
            .way(way)
            .json()
            .finish();
        run.assert_success();
        let mut planted: Vec<String> = Vec::new();
        for entry in std::fs::read_dir(&workspace).unwrap().flatten() {
            let mode = entry.metadata().unwrap().permissions().mode();
            if mode & 0o6000 != 0 && entry.metadata().unwrap().is_file() {
                planted.push(format!("{:?} {mode:o}", entry.file_name()));
            }
        }
        assert_eq!(planted, Vec::<String>::new(), "{way:?}");
    }
}

#[test]
fn the_hosts_environment_is_not_seen() {
    let host = host!();
    for way in Way::all() {
        let run = host.launch(["run", "--env", "GIVEN=1", "--env", "PASSED", "--", "sh", "-c", "env | sort | grep -v -e MARK -e '^_='; cat /proc/self/environ | tr '\\0' '\\n' | grep -c SECRET"])
            .way(way)
            .env("AWS_SECRET", "hunter2")
            .env("LD_PRELOAD_SECRET", "x")
            .env("PASSED", "2")
            .finish();
        let expected = "GIVEN=1\nHOME=/home/sandbox\nLANG=C.UTF-8\nLOGNAME=sandbox\nPASSED=2\n\
            PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\nPWD=/home/sandbox\nSHELL=/bin/sh\nTMPDIR=/tmp\nUSER=sandbox\n0\n";
        assert_eq!(run.out(), expected, "{way:?}");
    }
}

#[test]
fn names_of_the_host_are_not_seen() {
    let host = host!();
    let own = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    for way in Way::all() {
        let run = host.launch(["run", "--", "sh", "-c", "hostname; cat /etc/hostname /proc/sys/kernel/hostname; cut -d: -f1 /etc/passwd /etc/group | xargs; getent passwd 1000"]).way(way).finish();
        let expected = "sandbox\nsandbox\nsandbox\nroot sandbox nobody root sandbox nogroup\nsandbox:x:1000:1000:sandbox:/home/sandbox:/bin/sh\n";
        assert_eq!(run.out(), expected, "{way:?}");
    }
    assert_eq!(
        std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap(),
        own
    );
}

#[test]
fn no_core_is_dumped() {
    let host = host!();
    for way in Way::all() {
        let workspace = host.workspace(way);
        let given = format!("{}:rw", workspace.display());
        let run = host
            .launch([
                "run",
                "--workspace",
                &given,
                "--",
                "sh",
                "-c",
                "ulimit -c unlimited 2>/dev/null; ulimit -c; kill -SEGV $$",
            ])
            .way(way)
            .json()
            .finish();
        assert_eq!(
            (run.ending(), run.code(), run.out().as_str()),
            ("signaled", 139, "0\n"),
            "{way:?}: {run:#?}"
        );
        assert_eq!(run.record()["signal"], "SIGSEGV");
        assert_eq!(std::fs::read_dir(&workspace).unwrap().count(), 0, "{way:?}");
    }
}

/// What a process passes on beyond descriptors and variables: ignored signals, a fixed address layout, a weight for the kernel's choice when memory is short.
#[test]
fn settings_of_the_callers_process_are_not_inherited() {
    let _host = host!();
    let caller = "trap '' USR1 RTMIN+5; echo 500 > /proc/self/oom_score_adj; exec setarch -R \"$0\" run -- sh -c \"$1\"";
    let program =
        "grep SigIgn /proc/self/status; cat /proc/self/personality /proc/self/oom_score_adj";
    let seen = std::process::Command::new("bash")
        .args(["-c", caller, env!("CARGO_BIN_EXE_cofferdam"), program])
        .output()
        .unwrap();
    assert_eq!(
        String::from_utf8_lossy(&seen.stdout),
        "SigIgn:\t0000000000000000\n00000000\n0\n",
        "{seen:?}"
    );
}
