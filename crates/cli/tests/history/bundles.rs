//! `export`, `import` and `key`: runs leave one history and come into another as they were, or not at all.

use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::PathBuf;

use cofferdam_testkit::{Finished, Host, Need, Way, host};
use serde_json::Value;

use crate::auditing::tamper;
use crate::{each, ran, runs, text, told};

/// Another history, on another machine as it were.
struct Elsewhere<'h> {
    host: &'h Host,
    dir: PathBuf,
}

impl<'h> Elsewhere<'h> {
    fn new(host: &'h Host, name: &str) -> Self {
        let dir = host.dir().join(name);
        Self { host, dir }
    }

    #[track_caller]
    fn run(&self, args: &[&str]) -> Finished {
        let dir = self.dir.display().to_string();
        let mut all = vec!["--data-dir", &dir];
        all.extend(args);
        self.host.run(all)
    }

    #[track_caller]
    fn told(&self, args: &[&str]) -> Value {
        let done = self.run(args);
        done.assert_success();
        done.told()
    }

    /// Neither a run nor an entry nor contents.
    #[track_caller]
    fn assert_empty(&self) {
        assert_eq!(self.run(&["runs", "list", "--count"]).out(), "0\n");
        let entries = self.run(&["audit", "list", "--json"]);
        assert!(entries.told_list("entries").is_empty());
        let stats = self.told(&["runs", "stats", "--json"]);
        assert_eq!(stats["objects"], 0, "{stats}");
    }
}

/// Three runs: one with files, one with much output, one that failed.
#[track_caller]
fn some_runs(host: &Host) -> Vec<String> {
    let dir = host.workspace(Way::Root);
    host.give(&dir, Way::User);
    let workspace = format!("{}:rw", dir.display());
    let files = ["--workspace", &workspace, "--tag", "ci=1"];
    let script = "printf 'a\\0\\377' > data; mkdir d; seq 20000 > d/long; echo done";
    vec![
        ran(host, &files, script),
        ran(host, &[], "seq 30000; echo warn >&2"),
        ran(host, &[], "printf '\\377\\0'; exit 3"),
    ]
}

#[track_caller]
fn exported(host: &Host, name: &str, flags: &[&str]) -> String {
    let path = host.dir().join(name).display().to_string();
    let mut args = vec!["export", "-o", &path];
    args.extend(flags);
    host.run(args).assert_success();
    path
}

#[test]
fn runs_arrive_as_they_left() {
    let host = host!();
    let ids = some_runs(&host);
    let bundle = exported(&host, "all.zip", &["--all"]);
    let there = Elsewhere::new(&host, "there");
    let dry = there.told(&["import", &bundle, "--dry-run", "--json"]);
    assert_eq!(dry["dry_run"], true);
    there.assert_empty();
    let imported = there.told(&["import", &bundle, "--json"]);
    for member in ["added", "objects", "object_bytes"] {
        assert_eq!(dry[member], imported[member], "{member}");
    }
    assert_eq!(imported["added"], serde_json::json!(ids));
    for id in &ids {
        for args in [
            &["runs", "show", id, "--json"][..],
            &["runs", "logs", id, "--json"],
            &["runs", "logs", id, "--stdout"],
            &["runs", "logs", id, "--stderr"],
            &["artifacts", "list", id, "--json"],
        ] {
            let (here, there) = (host.run(args), there.run(args));
            here.assert_success();
            assert!(
                here.stdout == there.stdout,
                "{args:?}: {here:#?} {there:#?}"
            );
        }
    }
    for path in ["data", "d/long"] {
        let args = ["artifacts", "cat", &ids[0], path];
        assert_eq!(host.run(args).stdout, there.run(&args).stdout, "{path}");
    }
    let lists = [
        host.run(["runs", "list", "--json"]),
        there.run(&["runs", "list", "--json"]),
    ];
    assert_eq!(lists[0].told(), lists[1].told());
    assert_eq!(
        there
            .run(&["runs", "list", "--tag", "ci=1", "--count"])
            .out(),
        "1\n"
    );
    there.run(&["audit", "verify"]).assert_success();
    // Once more changes nothing.
    let again = there.told(&["import", &bundle, "--json"]);
    assert_eq!(again["same"].as_array().unwrap().len(), 3);
    assert_eq!(again["added"].as_array().unwrap().len(), 0);
    assert_eq!(again["objects"], 0);
    assert_eq!(there.run(&["runs", "list", "--count"]).out(), "3\n");
    there.run(&["audit", "verify"]).assert_success();
    // What comes from there is the same again.
    let back = there.dir.join("back.zip").display().to_string();
    there
        .run(&["export", "--all", "-o", &back])
        .assert_success();
    let home = told(&host, &["import", &back, "--json"]);
    assert_eq!(home["same"].as_array().unwrap().len(), 3);
}

#[test]
fn exactly_the_runs_that_were_asked_for_are_exported() {
    let host = host!();
    let ids: Vec<String> = (0..4).map(|_| ran(&host, &[], "true")).collect();
    let third = text(&runs(&host, Way::Root)[1]["started_at"]);
    for (number, (flags, expected)) in [
        (&["--all"][..], &ids[..]),
        (&["--last", "2"], &ids[2..]),
        (&["--last", "99"], &ids[..]),
        (
            &["latest", "latest", "latest~3"],
            &[ids[0].clone(), ids[3].clone()],
        ),
        (&["--since", "1h"], &ids[..]),
        (&["--since", &third], &ids[2..]),
        (&["--until", &third], &ids[..2]),
    ]
    .into_iter()
    .enumerate()
    {
        let path = host
            .dir()
            .join(format!("{number}.zip"))
            .display()
            .to_string();
        let mut args = vec!["export", "-o", &path, "--json"];
        args.extend(flags);
        let told = told(&host, &args);
        assert_eq!(told["runs"], serde_json::json!(expected), "{flags:?}");
        assert_eq!(told["bytes"], std::fs::metadata(&path).unwrap().len());
    }
    let path = host.dir().join("no.zip").display().to_string();
    for (flags, code) in [
        (&[][..], "input.invalid"),
        (&["--last", "0"], "input.invalid"),
        (&["--until", "2001-01-01"], "input.invalid"),
        (&["latest", "--all"], "input.invalid"),
        (&["latest~9"], "history.not_found"),
    ] {
        let mut args = vec!["export", "-o", &path];
        args.extend(flags);
        host.run(args).assert_refused(125, code);
    }
    assert!(!PathBuf::from(&path).exists());
}

#[test]
fn a_run_that_goes_on_stays_behind() {
    let host = host!();
    let ended = ran(&host, &[], "true");
    let mut run = host
        .launch(["run", "--", "sh", "-c", "echo ready; sleep 60"])
        .start();
    run.await_output("ready");
    let path = host.dir().join("some.zip").display().to_string();
    let told = told(&host, &["export", "--all", "-o", &path, "--json"]);
    assert_eq!(told["runs"], serde_json::json!([ended]));
    assert_eq!(told["skipped"].as_array().unwrap().len(), 1);
    let only = host.run(["export", "latest", "-o", "only.zip"]);
    only.assert_refused(125, "input.invalid");
    drop(run);
}

#[test]
fn an_export_replaces_nothing_unless_it_is_told_to() {
    let host = host!();
    ran(&host, &[], "true");
    let precious = host.dir().join("precious");
    std::fs::write(&precious, "precious").unwrap();
    let link = host.dir().join("link.zip");
    symlink(&precious, &link).unwrap();
    for path in [&precious, &link, &host.dir().to_owned()] {
        let path = path.display().to_string();
        let refused = host.run(["export", "latest", "-o", &path]);
        refused.assert_refused(125, "input.invalid");
        assert!(refused.err().contains("--force"), "{refused:#?}");
    }
    assert_eq!(std::fs::read(&precious).unwrap(), b"precious");
    // The link is replaced, not what it leads to.
    let path = link.display().to_string();
    host.run(["export", "latest", "--force", "-o", &path])
        .assert_success();
    assert!(!link.is_symlink());
    assert_eq!(std::fs::read(&precious).unwrap(), b"precious");
    Elsewhere::new(&host, "there")
        .run(&["import", &path])
        .assert_success();
    let nowhere = host.run(["export", "latest", "-o", "no/such/place.zip"]);
    nowhere.assert_refused(125, "output.write_failed");
    host.run(["export", "latest", "-o", "-"])
        .assert_refused(125, "input.invalid");
    host.run(["import", "no/such/place.zip"])
        .assert_refused(125, "input.unreadable");
    let left = std::fs::read_dir(host.dir()).unwrap().flatten();
    let left = left.filter(|entry| {
        entry
            .file_name()
            .to_string_lossy()
            .starts_with(".cofferdam")
    });
    assert_eq!(left.count(), 0);
}

#[test]
fn a_signature_is_required_from_whom_it_was_asked() {
    let host = host!();
    ran(&host, &[], "echo hi");
    let key = |name: &str| {
        let path = host.dir().join(name);
        let made = host.run(["key", "new", &path.display().to_string()]);
        made.assert_success();
        assert_eq!(
            std::fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            0o600
        );
        (path, made.out().trim().to_owned())
    };
    let (ours, public) = key("ours.key");
    let (_, other) = key("other.key");
    let ours = ours.display().to_string();
    assert_eq!(host.run(["key", "show", &ours]).out().trim(), public);
    let secret = std::fs::read_to_string(&ours).unwrap();
    let again = host.run(["key", "new", &ours]);
    again.assert_refused(125, "output.write_failed");
    host.run(["key", "show", "nowhere.key"])
        .assert_refused(125, "input.unreadable");
    host.run(["export", "--all", "--sign", "nowhere.key", "-o", "x.zip"])
        .assert_refused(125, "input.unreadable");
    assert_eq!(std::fs::read_to_string(&ours).unwrap(), secret);

    let signed = exported(&host, "signed.zip", &["--all", "--sign", &ours]);
    let unsigned = exported(&host, "unsigned.zip", &["--all"]);
    let there = Elsewhere::new(&host, "there");
    for (bundle, flags) in [
        (&signed, &["--trust", other.as_str()][..]),
        (&unsigned, &["--trust", &public]),
        (&unsigned, &["--require-signature"]),
    ] {
        let mut args = vec!["import", bundle.as_str()];
        args.extend(flags);
        there.run(&args).assert_refused(125, "bundle.refused");
        there.assert_empty();
    }
    there
        .run(&["import", &signed, "--trust", "garbage"])
        .assert_refused(125, "input.invalid");
    let flags = ["--trust", &other, "--trust", &public, "--json"];
    let told = there.told(&[&["import", &signed][..], &flags].concat());
    assert_eq!(told["signed_by"], *public);
    let told = Elsewhere::new(&host, "third").told(&["import", &unsigned, "--json"]);
    assert!(told["signed_by"].is_null());
    std::fs::set_permissions(&ours, std::fs::Permissions::from_mode(0o644)).unwrap();
    let careless = host.run(["export", "--all", "--sign", &ours, "-o", "x.zip"]);
    careless.assert_refused(125, "input.invalid");
    assert!(!host.dir().join("x.zip").exists());
}

#[test]
fn a_bundle_that_is_not_as_it_was_written_brings_nothing() {
    let host = host!();
    let dir = host.workspace(Way::Root);
    host.give(&dir, Way::User);
    let workspace = format!("{}:rw", dir.display());
    ran(
        &host,
        &["--workspace", &workspace],
        "echo x > file; echo out",
    );
    let bundle = exported(&host, "good.zip", &["--all"]);
    let good = std::fs::read(&bundle).unwrap();
    let there = Elsewhere::new(&host, "there");
    let bad = host.dir().join("bad.zip");
    let refused = |what: &str, bytes: &[u8]| {
        std::fs::write(&bad, bytes).unwrap();
        let done = there.run(&["import", &bad.display().to_string()]);
        assert_eq!(done.code(), 125, "{what}: {done:#?}");
        done.assert_refused(125, "bundle.refused");
    };
    for part in 0..24 {
        let at = part * good.len() / 24;
        let mut bytes = good.clone();
        bytes[at] ^= 0xff;
        refused(&format!("byte {at} of {}", good.len()), &bytes);
        refused(&format!("the first {at} bytes"), &good[..at]);
    }
    refused("one byte less", &good[..good.len() - 1]);
    refused("more at the end", &[good.as_slice(), b"x"].concat());
    refused("more at the beginning", &[b"x", good.as_slice()].concat());
    refused("twice", &[good.as_slice(), good.as_slice()].concat());
    refused("something else", b"#!/bin/sh\n");
    there
        .run(&["import", &host.dir().display().to_string()])
        .assert_refused(125, "bundle.refused");
    there.assert_empty();
    there.run(&["import", &bundle]).assert_success();
}

/// A run whose supervisor was killed, and a payload with its seal.
#[test]
fn runs_of_every_kind_arrive_as_they_left() {
    let host = host!();
    let mut killed = host
        .launch(["run", "--", "sh", "-c", "echo ready; sleep 60"])
        .start();
    killed.await_output("ready");
    killed.signal(rustix::process::Signal::KILL);
    let _ = killed.finish();
    let draft = serde_json::json!({
        "contract_id": "CONTRACT-1",
        "scope": "a test",
        "task": {"kind": "command", "argv": ["sh", "-c", "echo '{}'"]},
    });
    let sealed = host.launch(["seal", "-"]).stdin(draft.to_string()).finish();
    sealed.assert_success();
    let payload = host.dir().join("payload.json");
    std::fs::write(&payload, &sealed.stdout).unwrap();
    host.run(["execute", &payload.display().to_string()])
        .assert_success();
    assert_ne!(host.run(["run", "--", "/nowhere"]).code(), 0);
    let bundle = exported(&host, "all.zip", &["--all"]);
    let there = Elsewhere::new(&host, "there");
    there.run(&["import", &bundle]).assert_success();
    for (asked, status) in [
        ("latest", "never_started"),
        ("latest~1", "success"),
        ("latest~2", "interrupted"),
    ] {
        let args = ["runs", "show", asked, "--json"];
        let (here, there) = (host.run(args), there.run(&args));
        assert_eq!(here.told()["status"], status);
        assert_eq!(here.told(), there.told());
    }
    there.run(&["audit", "verify"]).assert_success();
}

/// Several at once into one history, while it is read and checked.
#[test]
fn imports_at_the_same_time_do_not_get_in_each_others_way() {
    let host = host!();
    let ids = some_runs(&host);
    let bundle = exported(&host, "all.zip", &["--all"]);
    let there = Elsewhere::new(&host, "there");
    let dir = there.dir.display().to_string();
    let import = ["--data-dir", &dir, "import", &bundle];
    let verify = ["--data-dir", &dir, "audit", "verify"];
    let started: Vec<_> = (0..8)
        .map(|number| {
            let args = if number % 2 == 0 {
                &import[..]
            } else {
                &verify
            };
            host.launch(args).start()
        })
        .collect();
    for started in started {
        started.finish().assert_success();
    }
    let list = there.run(&["runs", "list", "--json"]);
    let mut found = each(&list.told_list("runs"), "run_id");
    found.reverse();
    assert_eq!(found, ids);
    there.run(&["audit", "verify"]).assert_success();
}

/// One run of three is known there with other contents.
#[test]
fn an_import_is_all_or_nothing() {
    let host = host!();
    let ids = some_runs(&host);
    let first = exported(&host, "first.zip", &[&ids[0]]);
    let all = exported(&host, "all.zip", &["--all"]);
    let there = Elsewhere::new(&host, "there");
    there.run(&["import", &first]).assert_success();
    tamper(
        &there.dir,
        "DROP TRIGGER ended_details_stay; UPDATE details SET opening = replace(opening, '\"ci\":\"1\"', '\"ci\":\"2\"')",
    );
    let before = there.told(&["runs", "stats", "--json"]);
    for flags in [&[][..], &["--dry-run"]] {
        let mut args = vec!["import", all.as_str()];
        args.extend(flags);
        let refused = there.run(&args);
        refused.assert_refused(125, "bundle.refused");
        assert!(refused.err().contains(&ids[0]), "{refused:#?}");
        assert_eq!(there.run(&["runs", "list", "--count"]).out(), "1\n");
        let now = there.told(&["runs", "stats", "--json"]);
        assert_eq!(now["objects"], before["objects"]);
    }
    let told = there.told(&["import", &all, "--skip-existing", "--json"]);
    assert_eq!(told["kept_ours"], serde_json::json!([ids[0]]));
    assert_eq!(told["added"], serde_json::json!(ids[1..]));
    let ours = there.told(&["runs", "show", &ids[0], "--json"]);
    assert_eq!(ours["tags"]["ci"], "2");
}

#[test]
fn what_was_left_out_can_come_later() {
    let host = host!();
    let ids = some_runs(&host);
    let flags = ["--all", "--no-artifacts", "--json"];
    let slim = host.dir().join("slim.zip").display().to_string();
    let told = told(&host, &[&["export", "-o", &slim][..], &flags].concat());
    assert_eq!(told["missing"].as_array().unwrap().len(), 2);
    assert_eq!(told["artifact_bytes"], 0);
    let whole = exported(&host, "whole.zip", &["--all"]);
    let there = Elsewhere::new(&host, "there");
    there.run(&["import", &slim]).assert_success();
    let list = there.run(&["artifacts", "list", &ids[0], "--json"]);
    assert_eq!(
        each(&list.told_list("artifacts"), "path"),
        ["d/long", "data"]
    );
    let cat = ["artifacts", "cat", &ids[0], "data"];
    let absent = there.run(&cat);
    assert_eq!(
        (absent.code(), absent.stdout.len()),
        (125, 0),
        "{absent:#?}"
    );
    let told = there.told(&["import", &whole, "--json"]);
    assert_eq!(
        (&told["same"].as_array().unwrap().len(), &told["objects"]),
        (&3, &Value::from(2))
    );
    assert_eq!(there.run(&cat).stdout, b"a\0\xff");
}

/// Somebody else's bundle is read by whoever may read it, and what comes in belongs to them alone.
#[test]
fn what_came_in_is_nobody_elses_to_read() {
    let host = host!(Need::Root);
    some_runs(&host);
    let bundle = exported(&host, "all.zip", &["--all"]);
    std::fs::set_permissions(&bundle, std::fs::Permissions::from_mode(0o644)).unwrap();
    let import = host.launch(["import", &bundle]).way(Way::User).finish();
    import.assert_success();
    let there = Elsewhere::new(&host, "new/place");
    there.run(&["import", &bundle]).assert_success();
    let mode = std::fs::metadata(&there.dir).unwrap().permissions().mode();
    assert_eq!(mode & 0o077, 0);
    let mode = std::fs::metadata(&bundle).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o644);
    let private = exported(&host, "private.zip", &["--all"]);
    let mode = std::fs::metadata(&private).unwrap().permissions().mode();
    assert_eq!(mode & 0o077, 0, "{mode:o}");
}
