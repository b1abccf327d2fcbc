//! What a program can see and write of the file system: nothing of the host but what was given.

use std::os::unix::fs::symlink;

use cofferdam_testkit::{Host, Need, Way, host};

#[track_caller]
fn shell(host: &Host, way: Way, script: &str) -> String {
    let run = host
        .launch(["run", "--", "sh", "-c", script])
        .way(way)
        .json()
        .finish();
    assert_eq!(run.ending(), "exited", "{way:?}: {run:#?}");
    run.out()
}

#[test]
fn no_path_leads_to_a_file_of_the_host() {
    let host = host!();
    let secret = host.dir().join("secret");
    std::fs::write(&secret, "the-secret").unwrap();
    let below_root = secret.strip_prefix("/").unwrap().display();
    for way in Way::all() {
        let script = format!(
            "for root in '' ../../../../../../.. /proc/1/root /proc/self/root /proc/1/cwd /proc/self/cwd/../../../.. /proc/2/root /proc/$PPID/root /proc/self/task/1/root; do \
                 cat $root/{below_root}; cat $root/etc/shadow; cat $root/root/.bashrc; ls -d $root/work $root/var $root/boot; done 2>/dev/null; \
             for fd in /proc/*/fd/*; do cat $fd/../../{below_root}; done 2>/dev/null; true"
        );
        assert_eq!(shell(&host, way, &script), "", "{way:?}");
    }
}

#[test]
fn init_is_hidden() {
    let host = host!();
    for way in Way::all() {
        let script = "ls -d /proc/1; for f in environ mem maps fd cmdline exe root cwd status stat auxv; do cat /proc/1/$f; ls /proc/1/$f/; done";
        assert_eq!(
            shell(&host, way, &format!("{{ {script}; }} 2>/dev/null; true")),
            "",
            "{way:?}"
        );
    }
}

#[test]
fn only_the_programs_own_processes_are_listed() {
    let host = host!();
    for way in Way::all() {
        let pids: Vec<u32> = shell(&host, way, "ls /proc")
            .lines()
            .filter_map(|name| name.parse().ok())
            .collect();
        assert!(
            (1..=3).contains(&pids.len()) && pids.iter().all(|&pid| pid < 20),
            "{way:?}: {pids:?}"
        );
    }
}

#[test]
fn the_root_is_made_of_these_places_and_no_others() {
    let host = host!();
    let expected = "bin dev etc home lib lib64 proc sbin tmp usr";
    for way in Way::all() {
        let seen = shell(
            &host,
            way,
            "ls -A / | grep -v -e lib32 -e libx32 -e nix | xargs",
        );
        assert_eq!(seen.trim(), expected, "{way:?}");
        let with_workspace = format!("{}:ro", host.workspace(way).display());
        let run = host
            .launch([
                "run",
                "--workspace",
                &with_workspace,
                "--",
                "sh",
                "-c",
                "ls -A /work; pwd",
            ])
            .way(way)
            .finish();
        assert_eq!(run.out(), "/work\n", "{way:?}");
    }
}

#[test]
fn dev_holds_only_harmless_devices() {
    let host = host!();
    for way in Way::all() {
        let seen = shell(&host, way, "ls -A /dev | xargs");
        assert_eq!(
            seen.trim(),
            "fd full null random shm stderr stdin stdout urandom zero",
            "{way:?}"
        );
        assert_eq!(
            shell(
                &host,
                way,
                "cat /dev/tty /dev/mem /dev/kmsg /dev/sda /dev/vda 2>/dev/null; true"
            ),
            "",
            "{way:?}"
        );
    }
}

#[test]
fn the_root_is_read_only() {
    let host = host!(Need::Python);
    // Everything that can be walked from the root, but the scratch places.
    let script = "
import os
scratch = ('/tmp', '/dev/shm', '/home/sandbox', '/proc')
for top, dirs, files in os.walk('/'):
    dirs[:] = [d for d in dirs if os.path.join(top, d) not in scratch and top.count('/') < 4]
    probe = os.path.join(top, 'probe')
    for attempt in (lambda: open(probe, 'w'), lambda: os.mkdir(probe), lambda: os.symlink('x', probe), lambda: os.chmod(top, 0o777), lambda: os.utime(top)):
        try: attempt(); print('wrote', top)
        except OSError: pass
    for name in files[:20]:
        path = os.path.join(top, name)
        if path.startswith('/dev/') or os.path.islink(path): continue
        for attempt in (lambda: os.open(path, os.O_WRONLY), lambda: os.unlink(path), lambda: os.rename(path, path + 'x')):
            try: attempt(); print('changed', path)
            except OSError: pass
";
    for way in Way::all() {
        let run = host
            .launch(["run", "--", "python3", "-c", script])
            .way(way)
            .json()
            .finish();
        assert_eq!(
            (run.out().as_str(), run.code()),
            ("", 0),
            "{way:?}: {run:#?}"
        );
    }
}

#[test]
fn nothing_of_the_kernel_can_be_written_through_proc() {
    let host = host!(Need::Python);
    let script = "
import os
count = 0
for top, dirs, files in os.walk('/proc'):
    if top == '/proc': dirs[:] = [d for d in dirs if not d.isdigit() and d not in ('self', 'thread-self')]
    for name in files:
        path = os.path.join(top, name)
        if os.path.islink(path): continue
        count += 1
        try: os.write(os.open(path, os.O_WRONLY | os.O_NONBLOCK), b'1'); print('wrote', path)
        except OSError: pass
print(count > 300)
";
    for way in Way::all() {
        let run = host
            .launch(["run", "--", "python3", "-c", script])
            .way(way)
            .json()
            .finish();
        // /proc/keys is covered by /dev/null where it would name the caller's keys.
        let out: Vec<String> = run
            .out()
            .lines()
            .filter(|line| *line != "wrote /proc/keys")
            .map(str::to_owned)
            .collect();
        assert_eq!(out, ["True"], "{way:?}: {run:#?}");
    }
}

#[test]
fn the_callers_keys_and_kernel_log_are_not_shown() {
    let host = host!();
    for way in Way::all() {
        // Its own session's keyring is empty and new.
        let script = "grep -v ' 1000 *1000 keyring *_ses: empty$' /proc/keys; cat /proc/kmsg /proc/kcore 2>/dev/null; grep -v '^0000000000000000' /proc/kallsyms | head -1";
        assert_eq!(shell(&host, way, script), "", "{way:?}");
    }
}

/// The file is fed through a pipe, so its inode is out of reach.
#[test]
fn a_stdin_file_cannot_be_opened_for_writing() {
    let host = host!();
    for way in Way::all() {
        let input = host.dir().join(format!("input-{way:?}"));
        std::fs::write(&input, "original").unwrap();
        host.give(&input, way);
        let script = "for f in /proc/self/fd/0 /dev/stdin /dev/fd/0; do timeout 1 sh -c \"echo overwritten >>$f; : >$f\"; done 2>/dev/null; cat";
        let run = host
            .launch([
                "run",
                "--stdin",
                input.to_str().unwrap(),
                "--",
                "sh",
                "-c",
                script,
            ])
            .way(way)
            .finish();
        assert_eq!(
            std::fs::read_to_string(&input).unwrap(),
            "original",
            "{way:?}: {run:#?}"
        );
        let file = std::fs::OpenOptions::new()
            .read(true)
            .write(true)
            .open(&input)
            .unwrap();
        host.launch(["run", "--", "sh", "-c", script])
            .way(way)
            .stdin_from(file)
            .finish();
        assert_eq!(
            std::fs::read_to_string(&input).unwrap(),
            "original",
            "{way:?}"
        );
    }
}

/// The file that cofferdam's own stdout leads to, likewise.
#[test]
fn an_output_file_cannot_be_reached_or_truncated() {
    let host = host!();
    for way in Way::all() {
        let output = host.dir().join(format!("output-{way:?}"));
        std::fs::write(&output, "before\n").unwrap();
        let file = std::fs::OpenOptions::new()
            .append(true)
            .open(&output)
            .unwrap();
        let script = "echo during; : >/proc/self/fd/1; truncate -s 0 /dev/stdout; true";
        host.launch(["run", "--", "sh", "-c", script])
            .way(way)
            .stdout_to(file)
            .stderr_to(std::process::Stdio::null())
            .finish();
        assert_eq!(
            std::fs::read_to_string(&output).unwrap(),
            "before\nduring\n",
            "{way:?}"
        );
    }
}

#[test]
fn open_descriptors_of_the_caller_are_not_inherited() {
    let host = host!();
    std::fs::write(host.dir().join("secret"), "the-secret").unwrap();
    for way in Way::all() {
        for backend in ["native", "host"] {
            let mut args = vec!["run", "--backend", backend];
            if backend == "host" && !way.has_cgroups() {
                args.extend(["--waive", "processes"]);
            }
            args.extend([
                "--",
                "sh",
                "-c",
                "ls /proc/self/fd | xargs; cat <&7; cat /proc/self/fd/7",
            ]);
            let run = host
                .launch(args)
                .way(way)
                .from_shell("exec 7<secret 8</etc/passwd 9</; exec \"$@\"")
                .finish();
            assert_eq!(run.out(), "0 1 2 3\n", "{way:?} {backend}: {run:#?}");
        }
    }
}

#[test]
fn a_root_directory_of_the_callers_is_never_written_to_whatever_its_links_say() {
    let host = host!(Need::Gcc);
    let program = cofferdam_testkit::hostile::Hostile::Calls.compile();
    for way in Way::all() {
        let root = host.workspace(way);
        let outside = host.workspace(way);
        std::fs::create_dir(root.join("bin")).unwrap();
        std::fs::copy(program.on_host(), root.join("bin/calls")).unwrap();
        for (name, target) in [
            ("etc", outside.to_str().unwrap()),
            ("home", "../../../../../.."),
            ("proc", "/"),
            ("tmp", outside.to_str().unwrap()),
        ] {
            symlink(target, root.join(name)).unwrap();
        }
        let before = listing(&root);
        let run = host
            .launch(["run", "--root", root.to_str().unwrap(), "--", "/bin/calls"])
            .way(way)
            .json()
            .finish();
        assert!(
            matches!(run.ending(), "exited" | "never_started"),
            "{way:?}: {run:#?}"
        );
        assert_eq!(listing(&root), before, "{way:?}");
        assert_eq!(listing(&outside), Vec::<String>::new(), "{way:?}");
    }
}

#[test]
fn a_root_directory_of_the_callers_is_what_the_program_sees() {
    let host = host!(Need::Gcc);
    let program = cofferdam_testkit::hostile::Hostile::Disk.compile();
    for way in Way::all() {
        let root = host.workspace(way);
        std::fs::create_dir(root.join("bin")).unwrap();
        std::fs::copy(program.on_host(), root.join("bin/disk")).unwrap();
        let before = listing(&root);
        let run = host
            .launch([
                "run",
                "--root",
                root.to_str().unwrap(),
                "--",
                "/bin/disk",
                "one",
                "/tmp",
                "1",
            ])
            .way(way)
            .json()
            .finish();
        assert_eq!(
            (run.out().as_str(), run.code()),
            ("survived\n", 0),
            "{way:?}: {run:#?}"
        );
        for path in ["/usr", "/bin", "/"] {
            let run = host
                .launch([
                    "run",
                    "--root",
                    root.to_str().unwrap(),
                    "--",
                    "/bin/disk",
                    "one",
                    path,
                    "1",
                ])
                .way(way)
                .json()
                .finish();
            assert_eq!(run.code(), 3, "{way:?}: {path} was written: {run:#?}");
        }
        assert_eq!(listing(&root), before, "{way:?}");
    }
}

/// Every path below a directory, with its size and what it leads to.
fn listing(dir: &std::path::Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut open = vec![dir.to_owned()];
    while let Some(dir) = open.pop() {
        for entry in std::fs::read_dir(&dir).unwrap().flatten() {
            let stat = entry.metadata().unwrap();
            found.push(format!(
                "{} {} {:?}",
                entry.path().display(),
                stat.len(),
                stat.permissions()
            ));
            if stat.is_dir() {
                open.push(entry.path());
            }
        }
    }
    found.sort();
    found
}

/// The kernel copies the root of a process that is being made before it knows the process. A root that changes in between must not leave it with the host's.
#[test]
fn a_process_that_is_half_made_when_the_root_changes_does_not_keep_the_hosts() {
    use std::io::BufRead as _;
    let host = host!(Need::Root, Need::Cgroup);
    let program = cofferdam_testkit::hostile::Hostile::Migrate.compile();
    let group = std::path::Path::new("/sys/fs/cgroup/freezer")
        .join(format!("half-made-{}", std::process::id()));
    std::fs::create_dir(&group).unwrap();
    let mut mover = std::process::Command::new(program.on_host())
        .args([
            group.join("cgroup.procs"),
            "/sys/fs/cgroup/freezer/cgroup.procs".into(),
        ])
        .arg("3000")
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut word = String::new();
    std::io::BufReader::new(mover.stdout.as_mut().unwrap())
        .read_line(&mut word)
        .unwrap();
    assert_eq!(word, "moving\n");
    // Without the precaution one run in a hundred sees the host's files.
    let seen: Vec<String> = (0..400)
        .map(|_| {
            host.run([
                "run", "--cwd", "/tmp", "--stdin", "none", "--", "ls", "-d", "/boot", "/var",
                "/root",
            ])
            .out()
        })
        .filter(|out| !out.is_empty())
        .collect();
    mover.kill().unwrap();
    mover.wait().unwrap();
    while std::fs::remove_dir(&group)
        .is_err_and(|error| error.kind() == std::io::ErrorKind::ResourceBusy)
    {
        std::thread::yield_now();
    }
    assert_eq!(seen, Vec::<String>::new());
}
