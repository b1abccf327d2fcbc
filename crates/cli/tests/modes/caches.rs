//! Caches as volumes: shown inside, shared or taken in turn, listed and removed.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::json;

use cofferdam_testkit::desk::{code, told};
use cofferdam_testkit::{Desk, desk};

/// A project that npm and pip both have to do with.
fn project(desk: &Desk) {
    desk.write("app/package.json", r#"{"name": "app", "version": "1.0.0"}"#);
    desk.write(
        "app/package-lock.json",
        r#"{"lockfileVersion": 3, "packages": {}}"#,
    );
}

fn sh(desk: &Desk, cache: &str, script: &str) -> Command {
    let mut command = desk.command();
    command
        .args([
            "run",
            "--no-history",
            "--workspace",
            "app",
            "--cache",
            cache,
            "--",
            "sh",
            "-c",
        ])
        .arg(script);
    command
}

/// Waits for a file that a run makes in its cache.
fn await_file(desk: &Desk, name: &str) {
    let began = Instant::now();
    let is_there = || {
        let places = std::fs::read_dir(desk.path(".cache/cofferdam/projects"));
        let mut places = places.into_iter().flatten().flatten();
        places.any(|place| place.path().join(name).exists())
    };
    while !is_there() {
        assert!(began.elapsed() < Duration::from_secs(60), "no {name}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Uses the cache until it is killed.
fn user(desk: &Desk, cache: &str) -> Child {
    let name = cache.trim_end_matches(":rw");
    let script = format!("touch /cache/{name}/here; exec sleep 60");
    let child = sh(desk, cache, &script)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    await_file(desk, &format!("{name}/here"));
    child
}

#[test]
fn a_cache_is_shown_read_only_unless_the_run_is_trusted_with_it() {
    let desk = desk!();
    project(&desk);
    let write = "echo $npm_config_cache; echo packed > /cache/npm/tarball";
    let done = sh(&desk, "auto", write).output().unwrap();
    assert_ne!(code(&done), 0, "{}", told(&done));
    assert!(told(&done).starts_with("/cache/npm\n"), "{}", told(&done));
    assert!(
        told(&done).contains("Read-only file system"),
        "{}",
        told(&done)
    );
    let done = sh(&desk, "npm:rw", write).output().unwrap();
    assert_eq!(code(&done), 0, "{}", told(&done));
    // Another run finds it, and nothing else of the place is seen inside.
    let done = sh(&desk, "npm", "cat /cache/npm/tarball; ls -A /cache")
        .output()
        .unwrap();
    assert_eq!(told(&done), "packed\nnpm\n");
    for (cache, said) in [
        ("cargo:cow", "there is no such cache"),
        ("npx", "write `auto`, or one of npm, yarn"),
    ] {
        let done = sh(&desk, cache, "true").output().unwrap();
        assert_eq!(code(&done), 125);
        assert!(told(&done).contains(said), "{}", told(&done));
    }
    let done = desk.line("run --cache npm -- true");
    assert!(
        told(&done).contains("belongs to a workspace"),
        "{}",
        told(&done)
    );
    let done = desk.line("run --cache npm:rw --cache-dir shared -- touch /cache/npm/x");
    assert_eq!(code(&done), 0, "{}", told(&done));
    assert!(desk.path("shared/npm/x").exists());
}

#[test]
fn runs_that_write_a_cache_whose_tool_keeps_nobody_apart_take_turns() {
    let desk = desk!();
    project(&desk);
    // Fails where anybody else is in there.
    let script = "mkdir /cache/pip/taken || exit 9; sleep 0.2; rmdir /cache/pip/taken";
    let runs: Vec<Child> = (0..3)
        .map(|_| sh(&desk, "pip:rw", script).spawn().unwrap())
        .collect();
    for run in runs {
        let done = run.wait_with_output().unwrap();
        assert_eq!(code(&done), 0, "{}", told(&done));
    }
}

#[test]
fn runs_share_a_cache_whose_tool_keeps_them_apart() {
    let desk = desk!();
    project(&desk);
    // Each ends only when it has seen the other.
    let meet = |own: &str, other: &str| {
        let script = format!(
            "touch /cache/npm/{own}; i=0; while [ ! -e /cache/npm/{other} ]; do i=$((i+1)); [ $i -lt 400 ] || exit 9; sleep 0.05; done"
        );
        sh(&desk, "npm:rw", &script).spawn().unwrap()
    };
    for run in [meet("a", "b"), meet("b", "a")] {
        let done = run.wait_with_output().unwrap();
        assert_eq!(code(&done), 0, "{}", told(&done));
    }
}

#[test]
fn caches_are_listed_with_size_use_and_project() {
    let desk = desk!();
    project(&desk);
    let (status, empty) = desk.json("cache list --json");
    assert_eq!((status, &empty["caches"]), (0, &json!([])));
    let fill = "head -c 300000 /dev/zero > /cache/npm/big";
    assert_eq!(code(&sh(&desk, "npm:rw", fill).output().unwrap()), 0);
    let mut pip = user(&desk, "pip:rw");
    let (_, listed) = desk.json("cache list --json");
    let caches = listed["caches"].as_array().unwrap();
    assert_eq!(caches.len(), 2, "{listed:#}");
    assert_eq!(caches[0]["tool"], "npm");
    let root = desk.path("app").canonicalize().unwrap();
    assert_eq!(caches[0]["project"], root.to_str().unwrap());
    assert!(caches[0]["bytes"].as_u64().unwrap() >= 300_000);
    assert_eq!(
        (&caches[0]["in_use"], &caches[1]["in_use"]),
        (&json!(false), &json!(true))
    );
    assert!(caches[1]["last_used"].is_string());
    let (_, stats) = desk.json("cache stats --json");
    assert_eq!((&stats["caches"], &stats["in_use"]), (&json!(2), &json!(1)));
    assert_eq!(stats["by_tool"]["npm"]["files"], 1);
    let table = told(&desk.line("cache list"));
    assert!(table.contains("npm") && table.contains("now"), "{table}");
    let table = told(&desk.line("cache stats npm"));
    assert!(table.ends_with("in 1 cache\n"), "{table}");
    pip.kill().unwrap();
    pip.wait().unwrap();
}

#[test]
fn a_cache_in_use_is_kept_and_one_whose_user_was_killed_is_removed() {
    let desk = desk!();
    project(&desk);
    let mut run = user(&desk, "cargo:rw");
    let (status, kept) = desk.json("cache clear cargo --json");
    assert_eq!(
        (status, &kept["caches"][0]["result"]),
        (1, &json!("in_use")),
        "{kept:#}"
    );
    await_file(&desk, "cargo/here");
    run.kill().unwrap();
    run.wait().unwrap();
    // Its holder was killed with it; nobody has to clear up.
    let began = Instant::now();
    let freed = loop {
        let (status, done) = desk.json("cache clear cargo --json");
        if status == 0 {
            break done;
        }
        assert!(began.elapsed() < Duration::from_secs(60), "{done:#}");
    };
    assert_eq!(freed["caches"][0]["result"], "removed");
    assert_eq!(desk.json("cache list --json").1["caches"], json!([]));
}

#[test]
fn removing_a_cache_removes_nothing_else() {
    let desk = desk!();
    project(&desk);
    let outside = desk.write("precious", "keep");
    let plant = format!(
        "mkdir -p /cache/npm/a/b; ln -s {0} /cache/npm/a/file; ln -s {1} /cache/npm/dir; chmod 0 /cache/npm/a/b; echo x > /cache/npm/x",
        outside.display(),
        desk.root().display()
    );
    assert_eq!(code(&sh(&desk, "npm:rw", &plant).output().unwrap()), 0);
    let nothing = desk.line("cache clear");
    assert!(
        told(&nothing).contains("or say --all"),
        "{}",
        told(&nothing)
    );
    let (status, dry) = desk.json("cache clear --all --dry-run --json");
    assert_eq!((status, &dry["dry_run"]), (0, &json!(true)));
    assert_eq!(
        desk.json("cache list --json").1["caches"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
    let young = desk.json("cache clear --all --older-than 1h --json");
    assert_eq!((young.0, &young.1["caches"]), (0, &json!([])));
    let done = desk.line("cache clear --project app");
    assert_eq!(code(&done), 0, "{}", told(&done));
    assert!(
        told(&done).starts_with("removed 1 cache, "),
        "{}",
        told(&done)
    );
    assert_eq!(std::fs::read_to_string(&outside).unwrap(), "keep");
    assert!(desk.path("app/package.json").exists());
    assert_eq!(desk.json("cache list --json").1["caches"], json!([]));
    // The next run has one again.
    assert_eq!(
        code(&sh(&desk, "npm", "test -d /cache/npm").output().unwrap()),
        0
    );
}
