//! What a crash left goes, and nothing else.

use std::time::SystemTime;

use cofferdam_testkit::docker::{Dockerd, IMAGE};

use crate::support::{exited, script, settings, try_run};

/// The label of an owner that is this process but for its birth.
fn owner(pid: u32, born: &str) -> String {
    let read = |path: &str| {
        std::fs::read_to_string(path)
            .unwrap_or_default()
            .trim()
            .to_owned()
    };
    let namespace = std::fs::read_link("/proc/self/ns/pid").unwrap();
    let namespace: String = namespace
        .to_string_lossy()
        .chars()
        .filter(char::is_ascii_digit)
        .collect();
    let (machine, boot) = (
        read("/etc/machine-id"),
        read("/proc/sys/kernel/random/boot_id"),
    );
    format!("cofferdam.owner={machine}/{boot}/{namespace}/{pid}/{born}")
}

fn born() -> String {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let (_, rest) = stat.rsplit_once(')').unwrap();
    rest.split_whitespace().nth(19).unwrap().to_owned()
}

#[test]
fn a_sweep_removes_containers_whose_owner_is_gone_and_no_other() {
    let Some(daemon) = Dockerd::start() else {
        return;
    };
    let own = std::process::id();
    let make = |name: &str, labels: &[&str]| {
        let (full, run) = (format!("cofferdam-{name}"), format!("cofferdam.run={name}"));
        let mut args = vec!["run", "--detach", "--network", "none", "--name", &full];
        args.extend(["--label", &run]);
        for label in labels {
            args.extend(["--label", label]);
        }
        args.extend([IMAGE, "sleep", "1000"]);
        daemon.docker(&args);
    };
    let ours = "cofferdam.managed=true";
    make("orphan", &[ours, &owner(own, "1")]);
    make(
        "late",
        &[ours, &owner(own, &born()), "cofferdam.until=1000000000"],
    );
    make("alive", &[ours, &owner(own, &born())]);
    make("elsewhere", &[ours, "cofferdam.owner=m/b/1/1/1"]);
    // By our clock its time was over an hour ago.
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let until = format!("cofferdam.until={}", now.unwrap().as_secs() - 3600);
    make("slow-clock", &[ours, "cofferdam.owner=m/b/1/1/1", &until]);
    make("strange", &[ours, "cofferdam.owner=x"]);
    make("stranger", &[&owner(own, "1")]);
    // Somebody's container, of an image that says it were ours and long over.
    let archive = daemon.dir().join("image.tar");
    let archive = archive.to_str().unwrap();
    let mut import = vec!["import".to_owned()];
    let forged = [
        ours,
        &owner(own, "1"),
        "cofferdam.run=x",
        "cofferdam.until=1",
    ];
    for label in forged {
        import.extend(["--change".to_owned(), format!("LABEL {label}")]);
    }
    import.extend([archive.to_owned(), "forged".to_owned()]);
    let import: Vec<&str> = import.iter().map(String::as_str).collect();
    daemon.docker(&import);
    let innocent = ["run", "--detach", "--network", "none", "--name", "innocent"];
    daemon.docker(&[&innocent[..], &["forged", "sleep", "1000"]].concat());
    let record = try_run(script("echo hi"), &settings(&daemon)).unwrap();
    exited(&record, 0);
    let names = daemon.docker(&["ps", "--all", "--format", "{{.Names}}"]);
    let mut names: Vec<&str> = names.lines().collect();
    names.sort_unstable();
    assert_eq!(
        names,
        [
            "cofferdam-alive",
            "cofferdam-elsewhere",
            "cofferdam-slow-clock",
            "cofferdam-strange",
            "cofferdam-stranger",
            "innocent"
        ]
    );
}

#[test]
fn a_sweep_removes_volumes_whose_container_somebody_else_removed() {
    let Some(daemon) = Dockerd::start() else {
        return;
    };
    let own = std::process::id();
    let ours = "cofferdam.managed=true";
    let gone = owner(own, "1");
    let alive = owner(own, &born());
    for (name, labels) in [
        ("orphan", [ours, &*gone]),
        ("alive", [ours, &*alive]),
        ("elsewhere", [ours, "cofferdam.owner=m/b/1/1/1"]),
        ("stranger", [&*gone, "x=y"]),
    ] {
        let [first, second] = labels;
        daemon.docker(&[
            "volume", "create", "--label", first, "--label", second, name,
        ]);
    }
    // No container is there to be swept.
    exited(&try_run(script("echo hi"), &settings(&daemon)).unwrap(), 0);
    let mut left = daemon.left();
    left.sort_unstable();
    assert_eq!(left, ["alive", "elsewhere", "stranger"]);
}
