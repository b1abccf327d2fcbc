//! What is kept of a run, and what is not.

use cofferdam_testkit::{Way, host};

use crate::{runs, told, told_by};

#[test]
fn a_run_is_kept_with_everything_that_was_decided_about_it() {
    let host = host!();
    for way in Way::all() {
        let ran = host
            .launch([
                "run",
                "--tag",
                "project=x",
                "--tag",
                "night",
                "--timeout",
                "7s",
                "--env",
                "GREETING=hi",
                "--",
                "sh",
                "-c",
                "echo out; echo err >&2; exit 3",
            ])
            .way(way)
            .json()
            .finish();
        let id = ran.record()["run_id"].as_str().unwrap().to_owned();
        assert_eq!(ran.record()["unrecorded"], serde_json::Value::Null);
        let show = host.launch(["runs", "show", &id, "--json"]).way(way);
        let shown = told_by(show);
        assert_eq!(shown["status"], "failure");
        assert_eq!(shown["exit_code"], 3);
        assert_eq!(shown["ending"]["kind"], "exited");
        assert_eq!(shown["tags"]["project"], "x");
        assert_eq!(shown["tags"]["night"], "");
        assert_eq!(shown["policy"]["limits"]["wall_time_ms"], 7000);
        assert_eq!(shown["policy"]["network"], "denied");
        assert!(
            shown["environment"].to_string().contains("GREETING"),
            "{shown}"
        );
        assert!(!shown.to_string().contains("\"hi\""), "{shown}");
        assert_eq!(shown["usage"], ran.record()["usage"]);
        assert_eq!(shown["enforced_by"], ran.record()["enforced_by"]);
        assert_eq!(shown["started_at"], ran.record()["started_at"]);
        assert!(shown["host"]["kernel"].is_string() && shown["version"].is_string());
        for (flag, text) in [("--stdout", "out\n"), ("--stderr", "err\n")] {
            let log = host.launch(["runs", "logs", &id, flag]).way(way).finish();
            assert_eq!(String::from_utf8_lossy(&log.stdout), text);
        }
    }
}

#[test]
fn secrets_reach_the_program_and_nothing_else() {
    let host = host!();
    let token = "ghp_0123456789abcdefghijABCDEFGHIJ012345";
    let own = "correct-horse-battery";
    let script = format!("echo $DB_PASSWORD; echo {token}; printf 'pass'; sleep 0.05; cat");
    let variable = format!("DB_PASSWORD={own}");
    let ran = host
        .launch(["run", "--env", &variable, "--", "sh", "-c", &script])
        .stdin("word=hunter2hunter2\n")
        .finish();
    // The program had the real values, and so has whoever asked for its output.
    assert!(ran.out().contains(own) && ran.out().contains(token));
    let log = host.run(["runs", "logs", "latest"]).out();
    let shown = told(&host, &["runs", "show", "latest", "--json"]).to_string();
    for text in [&log, &shown] {
        for secret in [own, token, "hunter2"] {
            assert!(!text.contains(secret), "{secret} in {text}");
        }
    }
    assert!(log.contains("[REDACTED]"), "{log}");
    for entry in walk(&host.history(Way::Root)) {
        let bytes = std::fs::read(&entry).unwrap();
        for secret in [own, token, "hunter2"] {
            let found = bytes
                .windows(secret.len())
                .any(|part| part == secret.as_bytes());
            assert!(!found, "{secret} in {}", entry.display());
        }
    }
}

fn walk(dir: &std::path::Path) -> Vec<std::path::PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(walk(&path));
        } else {
            found.push(path);
        }
    }
    found
}

#[test]
fn a_run_that_is_not_to_be_kept_leaves_nothing() {
    let host = host!();
    host.run(["run", "--no-history", "--", "true"])
        .assert_success();
    host.launch(["run", "--", "true"])
        .env("COFFERDAM_HISTORY", "off")
        .finish()
        .assert_success();
    assert_eq!(
        walk(&host.history(Way::Root)),
        Vec::<std::path::PathBuf>::new()
    );
    assert_eq!(runs(&host, Way::Root).len(), 0);
}

#[test]
fn files_that_are_new_or_changed_are_kept() {
    let host = host!();
    for way in Way::all() {
        for access in ["rw", "cow"] {
            let dir = host.workspace(way);
            for (name, text) in [("same", "same"), ("old", "old"), ("gone", "gone")] {
                std::fs::write(dir.join(name), text).unwrap();
                host.give(&dir.join(name), way);
            }
            let given = format!("{}:{access}", dir.display());
            let script = "echo new > new.txt; echo changed > old; rm gone; mkdir -p a/b; echo deep > a/b/deep; \
                          ln -s /etc/passwd link; mkfifo fifo; echo 'X_TOKEN=abcdefgh12345678' > notes.txt; echo k > .env";
            let ran = host
                .launch(["run", "--workspace", &given, "--", "sh", "-c", script])
                .way(way)
                .finish();
            ran.assert_success();
            let list = host
                .launch(["artifacts", "list", "latest", "--json"])
                .way(way);
            let list = told_by(list);
            let mut names: Vec<(String, String)> = list["artifacts"]
                .as_array()
                .unwrap()
                .iter()
                .map(|artifact| {
                    let text = |key: &str| artifact[key].as_str().unwrap().to_owned();
                    (text("path"), text("kind"))
                })
                .collect();
            names.sort();
            let expected = [
                ("a/b/deep", "added"),
                ("new.txt", "added"),
                ("old", "changed"),
            ];
            let expected = expected.map(|(path, kind)| (path.to_owned(), kind.to_owned()));
            assert_eq!(names, expected, "{access}: {list}");
            let cat = host
                .launch(["artifacts", "cat", "latest", "a/b/deep"])
                .way(way)
                .finish();
            assert_eq!(cat.stdout, b"deep\n");
        }
    }
}

#[test]
fn a_program_cannot_reach_its_own_history() {
    let host = host!();
    let history = host.history(Way::Root);
    let given = format!("{}:rw", host.dir().display());
    let refused = host.run(["run", "--workspace", &given, "--", "true"]);
    refused.assert_refused(125, "input.invalid");
    let given = format!("{}:rw", history.display());
    host.run(["run", "--workspace", &given, "--", "true"])
        .assert_refused(125, "input.invalid");
    // Read-only and copy-on-write leave it as it is.
    let given = format!("{}:cow", host.dir().display());
    host.run(["run", "--workspace", &given, "--", "true"])
        .assert_success();
    // Whoever keeps no history may do as they like.
    let given = format!("{}:rw", host.dir().display());
    host.run(["run", "--no-history", "--workspace", &given, "--", "true"])
        .assert_success();
}

#[test]
fn a_payload_is_kept_with_its_seal() {
    let host = host!();
    let draft = serde_json::json!({
        "contract_id": "CONTRACT-1",
        "scope": "a test",
        "task": {"kind": "command", "argv": ["sh", "-c", "echo '{}'"], "env": {"API_TOKEN": "s3cr3t-v4lue"}},
    });
    let path = host.dir().join("draft.json");
    std::fs::write(&path, draft.to_string()).unwrap();
    let sealed = host.run(["seal", &path.display().to_string()]);
    sealed.assert_success();
    let path = host.dir().join("payload.json");
    std::fs::write(&path, &sealed.stdout).unwrap();
    host.run(["execute", "--tag", "who=me", &path.display().to_string()])
        .assert_success();
    let shown = told(&host, &["runs", "show", "latest", "--json"]);
    assert_eq!(shown["kind"], "payload");
    assert_eq!(shown["tags"]["who"], "me");
    let digest = &sealed.told()["digest"];
    assert!(
        digest.is_string() && shown["payload"]["digest"] == *digest,
        "{shown}"
    );
    assert!(!shown.to_string().contains("s3cr3t"), "{shown}");
}

/// Arguments are bytes, records are text.
#[test]
fn arguments_that_are_not_text_are_kept_as_text() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt as _;
    let host = host!();
    let odd = OsStr::from_bytes(b"a\xff\x1b[2J\n");
    let args = [OsStr::new("run"), OsStr::new("--"), OsStr::new("true"), odd];
    host.run(args).assert_success();
    let shown = told(&host, &["runs", "show", "latest", "--json"]);
    let kept = shown["command"][1].as_str().unwrap();
    assert!(kept.starts_with("a\\xff"), "{kept:?}");
    let list = host.run(["runs", "list"]).out();
    assert_eq!(list.lines().count(), 2, "{list}");
    assert!(!list.contains('\u{1b}'), "{list}");
}
