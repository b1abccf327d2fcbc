//! What a program sees of its container, and what it cannot do there.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use cofferdam_contract::ending::{Ending, StopCause};
use cofferdam_contract::units::{Bytes, Cap};
use cofferdam_docker::Settings;
use cofferdam_testkit::docker::{Dockerd, IMAGE, skip, which};
use serde_json::json;

use crate::support::{exited, mib, request, run, script, settings, try_run};

const LOOK: &str = r#"
id -u; id -g
grep -E '^(CapInh|CapPrm|CapEff|CapBnd|CapAmb|NoNewPrivs|Seccomp):' /proc/self/status | tr -d '\t'
ls /sys/class/net
hostname
cat /proc/sys/kernel/core_pattern >/dev/null && echo readable
cat /proc/self/cgroup | cut -d: -f3 | sort -u
"#;

#[test]
fn a_container_has_every_wall() {
    let Some(daemon) = Dockerd::start() else {
        return;
    };
    let record = run(&daemon, script(LOOK));
    exited(&record, 0);
    let expected = "1000\n1000\nCapInh:0000000000000000\nCapPrm:0000000000000000\nCapEff:0000000000000000\n\
                    CapBnd:0000000000000000\nCapAmb:0000000000000000\nNoNewPrivs:1\nSeccomp:2\nlo\nsandbox\nreadable\n/\n";
    assert_eq!(record.stdout.data, expected);
    let isolation = &record.isolation;
    assert_eq!(isolation["network"], "none");
    assert_eq!(isolation["image"], IMAGE);
    assert!(isolation["image_digest"].starts_with("sha256:"));
    let enforced = serde_json::to_value(&record.enforced_by).unwrap();
    let expected = json!({
        "wall_time": "supervisor",
        "cpu_time": "poll",
        "memory": "docker",
        "output": "supervisor",
        "processes": "docker",
        "disk": "docker",
        "open_files": "docker",
        "cpus": "unlimited",
        "disk_io": "unlimited",
    });
    assert_eq!(enforced, expected);

    // Each is an attempt that must fail.
    for attempt in [
        "echo x >/file",
        "echo x >/bin/sh",
        "echo x >/data/file",
        "mount -t tmpfs none /tmp",
        "mknod /tmp/disk b 8 0",
        "chown 0 /tmp",
        "echo 1 >/proc/sys/kernel/sysrq",
        "unshare -U true",
        "test -e /var/run/docker.sock -o -e /run/docker.sock && echo x",
        "ping -c 1 -W 1 127.1.1.1",
        "su -c true",
    ] {
        let record = run(&daemon, script(&format!("{attempt} 2>/dev/null")));
        assert_ne!(record.exit_code, Some(0), "{attempt}: {record:#?}");
    }
    let loopback = "nc -l -p 1234 -e echo hi & until nc 127.0.0.1 1234 </dev/null; do :; done";
    let record = run(&daemon, script(loopback));
    assert!(record.stdout.data.contains("hi"), "{record:#?}");
}

#[test]
fn the_environment_is_the_images_and_the_callers_and_nothing_of_the_hosts() {
    let Some(daemon) = Dockerd::start() else {
        return;
    };
    let mut asked = request(&["env"]);
    asked.env = vec![("ADDED".into(), "a b".into()), ("USER".into(), "me".into())];
    let record = run(&daemon, asked);
    let mut lines: Vec<&str> = record.stdout.data.lines().collect();
    lines.sort_unstable();
    let expected = [
        "ADDED=a b",
        "FROM_IMAGE=yes",
        "HOME=/tmp",
        "HOSTNAME=sandbox",
        "LANG=C.UTF-8",
        "LOGNAME=sandbox",
        "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "SHELL=/bin/sh",
        "TMPDIR=/tmp",
        "USER=me",
    ];
    assert_eq!(lines, expected);
}

/// A runtime of the test's own: the daemon's, which says that it was used.
fn marked_runtime(dir: &Path) -> (String, PathBuf) {
    let used = dir.join("used");
    let text = format!(": >{}\nexec runc \"$@\"\n", used.display());
    (runtime(dir, "marked", &text), used)
}

/// A script that is a runtime, as a flag of the daemon's.
fn runtime(dir: &Path, name: &str, text: &str) -> String {
    let path = dir.join(name);
    fs::write(&path, format!("#!/bin/sh\n{text}")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    format!("{name}={}", path.display())
}

/// On this platform it needs neither hardware nor privileges; it is slow.
const RUNSC: &str = "exec runsc --network=none --platform=ptrace \"$@\"\n";

#[test]
fn gvisor_is_a_runtime_like_any_other() {
    if which("runsc").is_none() {
        return skip("runsc").unwrap_or(());
    }
    let dir = tempfile::tempdir().unwrap();
    let flag = runtime(dir.path(), "runsc", RUNSC);
    let Some(daemon) = Dockerd::start_with(&["--add-runtime", &flag]) else {
        return;
    };
    let settings = Settings {
        runtime: Some("runsc".to_owned()),
        ..settings(&daemon)
    };
    let look =
        "id -u; dmesg | grep -o 'Starting gVisor'; (echo x >/file) 2>/dev/null || echo no; exit 3";
    let record = try_run(script(look), &settings).unwrap();
    exited(&record, 3);
    assert_eq!(record.stdout.data, "1000\nStarting gVisor\nno\n");
    let mut hog = script("head -c 300m /dev/zero | tail");
    hog.limits.memory = mib(64);
    let record = try_run(hog, &settings).unwrap();
    let limit = Bytes::new(64 << 20);
    assert_eq!(record.ending, Ending::Stopped(StopCause::Memory { limit }));
    let mut late = script("echo hello; sleep 1000");
    let limit = Duration::from_secs(2);
    late.limits.wall_time = Cap::AtMost(limit);
    let record = try_run(late, &settings).unwrap();
    assert_eq!(
        record.ending,
        Ending::Stopped(StopCause::WallTime { limit })
    );
    assert_eq!(record.stdout.data, "hello\n");
    daemon.assert_clean();
}

#[test]
fn the_runtime_is_chosen_among_those_that_the_daemon_knows() {
    let dir = tempfile::tempdir().unwrap();
    let (flag, used) = marked_runtime(dir.path());
    let Some(daemon) = Dockerd::start_with(&["--add-runtime", &flag]) else {
        return;
    };
    let with = |runtime: Option<&str>| Settings {
        runtime: runtime.map(str::to_owned),
        ..settings(&daemon)
    };
    exited(&try_run(request(&["true"]), &with(None)).unwrap(), 0);
    assert!(!used.exists());
    let record = try_run(script("echo hi; exit 4"), &with(Some("marked"))).unwrap();
    exited(&record, 4);
    assert_eq!(record.stdout.data, "hi\n");
    assert_eq!(record.isolation["runtime"], "marked");
    assert!(used.exists());
    let error = try_run(request(&["true"]), &with(Some("kata"))).unwrap_err();
    assert!(error.to_string().contains("kata"), "{error}");
    daemon.assert_clean();
}
