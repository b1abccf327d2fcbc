//! `artifacts` and `runs save`: the files that runs left, listed, got back and written beside each other, and never over anything.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use cofferdam_testkit::{Host, Way, host};

use crate::{configuration, each, on_terminal, ran, text, told};

/// A run in a new workspace.
#[track_caller]
fn ran_in_workspace(host: &Host, options: &[&str], script: &str) -> String {
    let dir = host.workspace(Way::Root);
    host.give(&dir, Way::User);
    let workspace = format!("{}:rw", dir.display());
    let mut all = vec!["--workspace", workspace.as_str()];
    all.extend(options);
    ran(host, &all, script)
}

fn place(host: &Host, name: &str) -> PathBuf {
    host.dir().join(name)
}

#[test]
fn a_file_comes_back_as_it_was() {
    let host = host!();
    let script = "printf 'a\\000\\377' > data.bin; mkdir -p d; echo '#!/bin/sh' > d/run; chmod 755 d/run; : > empty";
    ran_in_workspace(&host, &[], script);
    let listed = host
        .run(["artifacts", "list", "latest", "--json"])
        .told_list("artifacts");
    assert_eq!(each(&listed, "path"), ["d/run", "data.bin", "empty"]);
    assert_eq!(listed[1]["bytes"], 3);
    assert_eq!(text(&listed[1]["digest"]).len(), 64);
    assert_eq!(listed[2]["bytes"], 0);
    let table = host.run(["artifacts", "list", "latest"]).out();
    assert_eq!(table.lines().count(), 4, "{table}");

    assert_eq!(
        host.run(["artifacts", "cat", "latest", "data.bin"]).stdout,
        b"a\0\xff"
    );
    assert_eq!(
        host.run(["artifacts", "cat", "latest", "./empty"]).stdout,
        b""
    );
    let to_stdout = host.run(["artifacts", "get", "latest", "data.bin", "-o", "-"]);
    assert_eq!(to_stdout.stdout, b"a\0\xff");
    // Under its own name, in the current directory, whatever directory it was in.
    host.run(["artifacts", "get", "latest", "d/run"])
        .assert_success();
    let written = place(&host, "run");
    assert_eq!(std::fs::read(&written).unwrap(), b"#!/bin/sh\n");
    assert_eq!(
        std::fs::metadata(&written).unwrap().permissions().mode() & 0o777,
        0o755
    );
    let target = place(&host, "copy.bin").display().to_string();
    let got = host.run(["artifacts", "get", "latest", "data.bin", "-o", &target]);
    got.assert_success();
    assert_eq!(got.out(), "");
    assert_eq!(std::fs::read(&target).unwrap(), b"a\0\xff");
    let missing = host.run(["artifacts", "cat", "latest", "nothing"]);
    missing.assert_refused(125, "history.not_found");
    let nowhere = host.run(["artifacts", "get", "latest", "empty", "-o", "no/such/place"]);
    nowhere.assert_refused(125, "output.write_failed");
}

#[test]
fn nothing_is_overwritten_and_no_link_is_followed() {
    let host = host!();
    ran_in_workspace(&host, &[], "echo new > file");
    let kept = place(&host, "precious");
    std::fs::write(&kept, "old").unwrap();
    symlink(&kept, place(&host, "link")).unwrap();
    symlink(place(&host, "missing"), place(&host, "dangling")).unwrap();
    std::fs::create_dir(place(&host, "directory")).unwrap();
    std::fs::write(place(&host, "file"), "mine").unwrap();
    for name in ["precious", "link", "dangling", "directory"] {
        let target = place(&host, name).display().to_string();
        let refused = host.run(["artifacts", "get", "latest", "file", "-o", &target]);
        refused.assert_refused(125, "input.invalid");
    }
    host.run(["artifacts", "get", "latest", "file"])
        .assert_refused(125, "input.invalid");
    assert_eq!(std::fs::read(&kept).unwrap(), b"old");
    assert_eq!(std::fs::read(place(&host, "file")).unwrap(), b"mine");
    assert!(!place(&host, "missing").exists());
}

#[test]
fn names_may_hold_any_bytes() {
    let host = host!();
    let script = "printf a > \"$(printf 'x\\377y')\"; printf b > \"$(printf 'n\\nl\\033[2J')\"; printf c > 'back\\slash'; printf d > ' -sp ace'; printf e > 'ünï'; \
                  printf f > 'x\\xffy'; mkdir \"$(printf 'd\\001')\"; printf g > \"$(printf 'd\\001')/in\"";
    ran_in_workspace(&host, &[], script);
    let listed = host
        .run(["artifacts", "list", "latest", "--json"])
        .told_list("artifacts");
    let mut names = each(&listed, "path");
    names.sort();
    let mut expected = [
        " -sp ace",
        "back\\\\slash",
        "d\\x01/in",
        "n\\x0al\\x1b[2J",
        "x\\\\xffy",
        "x\\xffy",
        "ünï",
    ];
    expected.sort_unstable();
    assert_eq!(names, expected);
    for (name, contents) in [
        ("x\\xffy", "a"),
        ("n\\x0al\\x1b[2J", "b"),
        ("back\\\\slash", "c"),
        (" -sp ace", "d"),
        ("ünï", "e"),
        ("x\\\\xffy", "f"),
        ("d\\x01/in", "g"),
    ] {
        let cat = host.run(["artifacts", "cat", "latest", name]);
        assert_eq!(cat.out(), contents, "{name}");
        host.run(["artifacts", "get", "latest", name])
            .assert_success();
    }
    // Each is written under the name that it had.
    for (name, contents) in [
        (&b"x\xffy"[..], "a"),
        (b"n\nl\x1b[2J", "b"),
        (b"back\\slash", "c"),
        (b" -sp ace", "d"),
        (b"x\\xffy", "f"),
        (b"in", "g"),
    ] {
        let path = host.dir().join(OsStr::from_bytes(name));
        assert_eq!(std::fs::read_to_string(path).unwrap(), contents, "{name:?}");
    }
    let table = host.run(["artifacts", "list", "latest"]);
    assert_eq!(table.out().lines().count(), 8, "{table:#?}");
    assert!(!table.out().contains('\u{1b}'));
    let saved = saved(&host, &[]);
    assert_eq!(
        std::fs::read(saved.join("artifacts").join(OsStr::from_bytes(b"x\xffy"))).unwrap(),
        b"a"
    );
}

#[test]
fn limits_come_from_the_configuration() {
    let host = host!();
    let left_out = |list: &serde_json::Value| -> Vec<(String, String)> {
        let all = list["left_out"].as_array().unwrap();
        all.iter()
            .map(|one| (text(&one["path"]), text(&one["why"])))
            .collect()
    };
    for (yaml, script, kept, not_kept, why) in [
        (
            "artifact_size: 1k",
            "head -c 1025 /dev/zero > big; head -c 1024 /dev/zero > fits",
            &["fits"][..],
            &["big"][..],
            "at most 1 KiB",
        ),
        (
            "artifacts_per_run: 1k",
            "head -c 700 /dev/zero > a; head -c 700 /dev/zero > b",
            &["a"],
            &["b"],
            "more than 1 KiB",
        ),
        (
            "artifact_count: 2",
            "touch a b c",
            &["a", "b"],
            &["c"],
            "2 files are kept",
        ),
        ("artifacts: false", "touch a b", &[], &[], ""),
    ] {
        let config = configuration(&host, &format!("history:\n  {yaml}\n"));
        ran_in_workspace(&host, &["--config", &config], script);
        let list = told(&host, &["artifacts", "list", "latest", "--json"]);
        let names = each(list["artifacts"].as_array().unwrap(), "path");
        assert_eq!(names, kept, "{yaml}: {list}");
        let left_out = left_out(&list);
        let names: Vec<&str> = left_out.iter().map(|(path, _)| path.as_str()).collect();
        assert_eq!(names, not_kept, "{yaml}: {list}");
        assert!(
            left_out.iter().all(|(_, said)| said.contains(why)),
            "{list}"
        );
        if !not_kept.is_empty() {
            let said = host.run(["artifacts", "list", "latest"]).err();
            assert!(said.contains("1 file not kept"), "{said}");
            let shown = host.run(["runs", "show", "latest"]).out();
            assert!(shown.contains(why), "{shown}");
        }
    }
}

#[test]
fn a_run_without_artifacts_says_so() {
    let host = host!();
    ran_in_workspace(&host, &["--no-artifacts"], "echo x > file");
    let list = host.run(["artifacts", "list", "latest", "--json"]);
    assert!(list.told_list("artifacts").is_empty());
    let list = host.run(["artifacts", "list", "latest"]);
    list.assert_success();
    assert_eq!(list.out(), "");
    assert!(list.err().contains("left no files"), "{list:#?}");
    let objects = host.history(Way::Root).join("objects");
    let shelves = std::fs::read_dir(objects).unwrap().flatten();
    let files = shelves.filter(|shelf| shelf.path().is_dir());
    let files: usize = files
        .map(|shelf| std::fs::read_dir(shelf.path()).unwrap().count())
        .sum();
    assert_eq!(files, 0);
}

/// Where `runs save` wrote the newest run.
#[track_caller]
fn saved(host: &Host, flags: &[&str]) -> PathBuf {
    let mut args = vec!["runs", "save", "latest", "--json"];
    args.extend(flags);
    let done = host.run(args);
    done.assert_success();
    host.dir().join(text(&done.told()["path"]))
}

#[test]
fn a_run_is_saved_as_files_with_a_link_to_the_newest() {
    let host = host!();
    let first = ran_in_workspace(
        &host,
        &[],
        "echo out; echo err >&2; mkdir -p a/b; echo x > a/b/c",
    );
    let into = saved(&host, &[]);
    assert_eq!(into, host.dir().join(".cofferdam/runs").join(&first));
    let read = |path: &Path| std::fs::read_to_string(path).unwrap();
    assert_eq!(read(&into.join("stdout.txt")), "out\n");
    assert_eq!(read(&into.join("stderr.txt")), "err\n");
    assert_eq!(read(&into.join("artifacts/a/b/c")), "x\n");
    let record: serde_json::Value = serde_json::from_str(&read(&into.join("run.json"))).unwrap();
    let mut shown = told(&host, &["runs", "show", "latest", "--json"]);
    shown.as_object_mut().unwrap().remove("schema");
    assert_eq!(record, shown);
    let latest = host.dir().join(".cofferdam/runs/latest");
    assert_eq!(std::fs::read_link(&latest).unwrap(), Path::new(&first));
    let second = ran(&host, &[], "echo two");
    saved(&host, &[]);
    assert_eq!(std::fs::read_link(&latest).unwrap(), Path::new(&second));
    // Again: the same run takes the place of its older view.
    std::fs::write(into.join("stdout.txt"), "changed").unwrap();
    host.run(["runs", "save", &first]).assert_success();
    assert_eq!(read(&into.join("stdout.txt")), "out\n");
    assert_eq!(std::fs::read_link(&latest).unwrap(), Path::new(&first));
}

#[test]
fn saving_leaves_alone_what_is_somebody_elses() {
    let host = host!();
    let id = ran_in_workspace(&host, &[], "echo x > file");
    let into = place(&host, "evidence");
    std::fs::create_dir_all(into.join(&id)).unwrap();
    std::fs::write(into.join(&id).join("mine"), "mine").unwrap();
    let target = into.display().to_string();
    let refused = host.run(["runs", "save", "latest", "-o", &target]);
    refused.assert_refused(125, "input.invalid");
    let names = std::fs::read_dir(&into).unwrap().flatten();
    let names: Vec<_> = names.map(|entry| entry.file_name()).collect();
    assert_eq!(names, [id.as_str()]);
    let other = place(&host, "other");
    std::fs::create_dir_all(other.join("latest")).unwrap();
    let target = other.display().to_string();
    host.run(["runs", "save", "latest", "-o", &target])
        .assert_refused(125, "input.invalid");
    assert_eq!(std::fs::read_dir(&other).unwrap().count(), 1);
}

#[test]
fn contents_that_were_changed_are_not_handed_out() {
    let host = host!();
    ran_in_workspace(&host, &[], "echo precious > file");
    let list = host
        .run(["artifacts", "list", "latest", "--json"])
        .told_list("artifacts");
    let digest = text(&list[0]["digest"]);
    let (shelf, name) = digest.split_at(2);
    let object = host
        .history(Way::Root)
        .join("objects")
        .join(shelf)
        .join(name);
    let mut bytes = std::fs::read(&object).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    std::fs::set_permissions(&object, std::fs::Permissions::from_mode(0o600)).unwrap();
    std::fs::write(&object, bytes).unwrap();
    host.run(["artifacts", "cat", "latest", "file"])
        .assert_refused(125, "history.damaged");
    host.run(["artifacts", "get", "latest", "file"])
        .assert_refused(125, "history.damaged");
    assert!(!place(&host, "file").exists());
    std::fs::remove_file(&object).unwrap();
    let gone = host.run(["artifacts", "cat", "latest", "file"]);
    assert_eq!((gone.code(), gone.out().as_str()), (125, ""));
    let shown = on_terminal(&host, &["runs", "show", "latest"]).finish();
    shown.assert_success();
}
