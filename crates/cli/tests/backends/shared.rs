//! What every such backend promises, against each of them.

use std::os::unix::fs::{MetadataExt as _, chown};

use cofferdam_testkit::{Finished, Host, Launch, Need, Way, host};
use rustix::process::Signal;

const BACKENDS: [&str; 2] = ["bubblewrap", "gvisor"];

/// Without a group, memory cannot be held behind such walls.
fn launch<'h>(host: &'h Host, way: Way, backend: &str, args: &[&str]) -> Launch<'h> {
    let mut all = vec!["run", "--backend", backend];
    if !way.has_cgroups() {
        all.extend(["--waive", "memory"]);
    }
    all.extend(args);
    host.launch(all).way(way)
}

fn script(host: &Host, way: Way, backend: &str, script: &str) -> Finished {
    launch(host, way, backend, &["--", "sh", "-c", script])
        .json()
        .finish()
}

#[test]
fn the_program_sees_what_it_sees_in_a_native_sandbox() {
    let host = host!(Need::Bubblewrap, Need::Gvisor);
    let look = "id; hostname; grep -h '^Cap' /proc/self/status; cat /etc/passwd /etc/hosts /etc/resolv.conf; cat /proc/net/dev | grep -c :; \
                cd /home/sandbox && touch here && test -e /tmp/home/here; touch /usr/x || touch /x || touch /etc/x; env | sort | grep -v PWD= | grep -v MARK";
    for way in Way::all() {
        for backend in BACKENDS {
            let run = script(&host, way, backend, look);
            run.assert_success();
            let out = run.out();
            let expected = "uid=1000(sandbox) gid=1000(sandbox) groups=1000(sandbox)\nsandbox\n\
                CapInh:\t0000000000000000\nCapPrm:\t0000000000000000\nCapEff:\t0000000000000000\nCapBnd:\t0000000000000000\n";
            assert!(out.starts_with(expected), "{way:?} {backend}: {run:#?}");
            let environment = "HOME=/home/sandbox\nLANG=C.UTF-8\nLOGNAME=sandbox\n\
                PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\nSHELL=/bin/sh\nTMPDIR=/tmp\nUSER=sandbox\n";
            assert!(out.ends_with(environment), "{way:?} {backend}: {run:#?}");
            assert!(out.contains("nameserver 192.0.2.1") && out.contains("\n1\nHOME"));
            assert_eq!(run.err().matches("touch:").count(), 3, "{run:#?}");
            assert_eq!(run.record()["backend"], backend);
            assert!(run.record()["isolation"]["built_by"].is_string());
        }
    }
}

#[test]
fn endings_are_those_of_a_native_sandbox() {
    let host = host!(Need::Bubblewrap, Need::Gvisor);
    for way in Way::all() {
        for backend in BACKENDS {
            let told = |args: &[&str]| {
                let run = launch(&host, way, backend, args).json().finish();
                let record = run.record();
                (
                    run.ending().to_owned(),
                    record["exit_code"].as_i64(),
                    record["signal"].as_str().map(str::to_owned),
                )
            };
            let shell = |text: &'static str| ["--", "sh", "-c", text];
            let said = |ending: &str, code, signal| (ending.to_owned(), code, signal);
            assert_eq!(told(&shell("exit 0")), said("exited", Some(0), None));
            // What a shell would say of a signal, and is none.
            assert_eq!(told(&shell("exit 137")), said("exited", Some(137), None));
            assert_eq!(told(&shell("exit 1")), said("exited", Some(1), None));
            assert_eq!(
                told(&shell("kill -SEGV $$")),
                said("signaled", None, Some("SIGSEGV".to_owned()))
            );
            assert_eq!(
                told(&shell("kill -TERM 0")),
                said("signaled", None, Some("SIGTERM".to_owned()))
            );
            let missing = launch(&host, way, backend, &["--", "no-such"]).finish();
            missing.assert_refused(127, "program.not_found");
            let refused = launch(&host, way, backend, &["--", "/etc/passwd"]).finish();
            refused.assert_refused(126, "program.not_executable");
            let nowhere =
                launch(&host, way, backend, &["--cwd", "/nowhere", "--", "true"]).finish();
            nowhere.assert_refused(125, "sandbox.setup_failed");
        }
    }
}

#[test]
fn a_limit_that_nothing_can_hold_behind_such_walls_is_refused_unless_waived() {
    let host = host!(Need::Bubblewrap, Need::Gvisor);
    for way in Way::all().into_iter().filter(|way| !way.has_cgroups()) {
        for backend in BACKENDS {
            let args = ["run", "--backend", backend, "--", "true"];
            let refused = host.launch(args).way(way).finish();
            refused.assert_refused(125, "limit.unenforceable");
            let waived = script(&host, way, backend, "true");
            waived.assert_success();
            assert_eq!(waived.enforced_by("memory"), "waived");
            let processes = match backend {
                "bubblewrap" => "rlimit",
                _ => "poll",
            };
            assert_eq!(waived.enforced_by("processes"), processes);
        }
    }
}

#[test]
fn a_writable_workspace_is_written_as_its_owner_and_never_as_root() {
    let host = host!(Need::Root, Need::Bubblewrap, Need::Gvisor);
    for backend in BACKENDS {
        let dir = host.workspace(Way::Root);
        let given = format!("{}:rw", dir.display());
        let args = [
            "--workspace",
            &given,
            "--",
            "sh",
            "-c",
            "echo one >made; cat made",
        ];
        let refused = launch(&host, Way::Root, backend, &args).finish();
        refused.assert_refused(125, "backend.unavailable");
        assert!(refused.err().contains("chown"), "{refused:#?}");
        chown(&dir, Some(4242), Some(4243)).unwrap();
        let run = launch(&host, Way::Root, backend, &args).json().finish();
        run.assert_success();
        assert_eq!(run.out(), "one\n", "{run:#?}");
        assert_eq!(std::fs::metadata(dir.join("made")).unwrap().uid(), 4242);
        let read = format!("{}:ro", dir.display());
        let args = [
            "--workspace",
            &read,
            "--",
            "sh",
            "-c",
            "cat made; echo two >made",
        ];
        let run = launch(&host, Way::Root, backend, &args).json().finish();
        assert_eq!((run.out().as_str(), run.code()), ("one\n", 2), "{run:#?}");
        let cow = format!("{}:cow", dir.display());
        let refused = launch(
            &host,
            Way::Root,
            backend,
            &["--workspace", &cow, "--", "true"],
        );
        refused.finish().assert_refused(125, "input.invalid");
    }
}

#[test]
fn a_root_directory_is_shown_read_only_and_its_links_lead_nowhere_outside() {
    let host = host!(Need::Bubblewrap, Need::Gvisor);
    let root = host.workspace(Way::User);
    for dir in ["bin", "etc", "data"] {
        std::fs::create_dir(root.join(dir)).unwrap();
    }
    std::fs::copy("/bin/busybox", root.join("bin/busybox")).unwrap();
    std::fs::write(root.join("etc/passwd"), "theirs").unwrap();
    std::fs::write(root.join("etc/own"), "own").unwrap();
    std::fs::write(host.dir().join("secret"), "secret").unwrap();
    std::os::unix::fs::symlink(host.dir(), root.join("out")).unwrap();
    let given = root.to_str().unwrap();
    let script =
        "cat /etc/own; grep -c theirs /etc/passwd; cat /out/secret; touch /data/x; echo end";
    let args = ["--root", given, "--", "/bin/busybox", "sh", "-c", script];
    for way in Way::all() {
        for backend in BACKENDS {
            let run = launch(&host, way, backend, &args).json().finish();
            run.assert_success();
            assert_eq!(run.out(), "own0\nend\n", "{way:?} {backend}: {run:#?}");
        }
    }
    assert!(!root.join("data/x").exists());
}

#[test]
fn a_kill_of_cofferdam_at_any_moment_leaves_nothing() {
    let host = host!(Need::Bubblewrap, Need::Gvisor);
    for way in Way::all() {
        for (backend, step, runs) in [("bubblewrap", 300_u64, 30_u64), ("gvisor", 15_000, 12)] {
            for n in 0..runs {
                let run = launch(&host, way, backend, &["--", "sleep", "60"])
                    .stdout_to(std::process::Stdio::null())
                    .stderr_to(std::process::Stdio::null())
                    .start();
                let until = std::time::Instant::now() + std::time::Duration::from_micros(step * n);
                while std::time::Instant::now() < until {
                    std::hint::spin_loop();
                }
                run.signal(Signal::KILL);
                drop(run);
            }
            host.assert_clean();
        }
    }
}

#[test]
fn a_tool_that_is_not_there_is_named_with_the_command_that_installs_it() {
    let host = host!(Need::UnprivilegedUser);
    // A mount namespace in which the tools are covered.
    for (backend, tool) in [("bubblewrap", "bwrap"), ("gvisor", "runsc")] {
        let place = format!("/usr/bin/{tool}");
        if !std::path::Path::new(&place).exists() {
            continue;
        }
        let cover = format!("mount --bind /dev/null {place} && exec \"$@\"");
        let script = format!("exec unshare --mount sh -c '{cover}' sh \"$@\"");
        let run = host
            .launch(["run", "--backend", backend, "--", "true"])
            .from_shell(&script)
            .finish();
        run.assert_refused(125, "backend.unavailable");
        assert!(run.err().contains("apt-get install"), "{run:#?}");
    }
}

#[test]
fn doctor_tries_each_backend_and_says_what_it_cannot_hold() {
    let host = host!(Need::Bubblewrap, Need::Gvisor);
    for way in Way::all() {
        let report = host.launch(["doctor", "--json"]).way(way).finish();
        let found = report.told_list("backends");
        let names: Vec<_> = found.iter().map(|it| it["name"].clone()).collect();
        assert_eq!(names, BACKENDS, "{way:?}");
        for backend in found {
            let mark = if way.has_cgroups() { "ok" } else { "weaker" };
            assert_eq!(backend["mark"], mark, "{way:?} {backend}");
            let why = backend["why"].as_str().unwrap_or_default();
            assert_eq!(why.contains("memory"), !way.has_cgroups(), "{backend}");
        }
    }
}
