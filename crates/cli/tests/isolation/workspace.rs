//! The workspace: read-only, writable, or copied on write; and links in it that lead elsewhere.

use std::collections::BTreeMap;
use std::os::unix::fs::symlink;
use std::path::Path;

use cofferdam_testkit::{Host, Way, host};
use serde_json::{Value, json};

#[track_caller]
fn run(
    host: &Host,
    way: Way,
    workspace: &Path,
    access: &str,
    script: &str,
) -> cofferdam_testkit::Finished {
    let given = format!("{}:{access}", workspace.display());
    let run = host
        .launch(["run", "--workspace", &given, "--", "sh", "-c", script])
        .way(way)
        .json()
        .finish();
    assert_eq!(run.ending(), "exited", "{way:?} {access}: {run:#?}");
    run
}

/// Path → content, link or `directory`.
fn snapshot(dir: &Path) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut open = vec![dir.to_owned()];
    while let Some(at) = open.pop() {
        for entry in std::fs::read_dir(&at).unwrap().flatten() {
            let path = entry.path();
            let name = path.strip_prefix(dir).unwrap().display().to_string();
            let kind = entry.file_type().unwrap();
            let content = if kind.is_symlink() {
                format!("-> {}", std::fs::read_link(&path).unwrap().display())
            } else if kind.is_dir() {
                open.push(path);
                "directory".to_owned()
            } else {
                String::from_utf8_lossy(&std::fs::read(&path).unwrap()).into_owned()
            };
            found.insert(name, content);
        }
    }
    found
}

/// A small project that belongs to whoever runs in this way.
fn project(host: &Host, way: Way) -> std::path::PathBuf {
    let dir = host.workspace(way);
    for (name, content) in [
        ("kept", "kept"),
        ("edited", "before"),
        ("removed", "x"),
        ("sub/inner", "inner"),
        ("sub/gone", "x"),
        ("old/a", "a"),
        ("old/b", "b"),
    ] {
        let path = dir.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, content).unwrap();
        host.give(&path, way);
        host.give(path.parent().unwrap(), way);
    }
    dir
}

#[test]
fn a_read_only_workspace_cannot_be_written() {
    let host = host!();
    for way in Way::all() {
        let dir = project(&host, way);
        let before = snapshot(&dir);
        let script = "cat kept; echo x >kept; echo x >new; rm -f removed; rm -rf sub; chmod 777 . kept; mkdir d; ln -s x l; mv kept k; touch kept; truncate -s 0 kept; cat kept";
        assert_eq!(
            run(&host, way, &dir, "ro", script).out(),
            "keptkept",
            "{way:?}"
        );
        assert_eq!(snapshot(&dir), before, "{way:?}");
    }
}

#[test]
fn a_writable_workspace_is_written_and_belongs_to_its_owner() {
    use std::os::unix::fs::MetadataExt as _;
    let host = host!();
    for way in Way::all() {
        let dir = project(&host, way);
        let owner = std::fs::metadata(&dir).unwrap().uid();
        run(
            &host,
            way,
            &dir,
            "rw",
            "echo after >edited; rm removed; mkdir made; echo new >made/new",
        )
        .assert_success();
        let after = snapshot(&dir);
        assert_eq!(
            (
                after["edited"].as_str(),
                after["made/new"].as_str(),
                after.get("removed")
            ),
            ("after\n", "new\n", None),
            "{way:?}"
        );
        assert_eq!(
            std::fs::metadata(dir.join("made/new")).unwrap().uid(),
            owner,
            "{way:?}"
        );
    }
}

#[test]
fn copy_on_write_changes_are_seen_inside_and_listed_and_change_nothing() {
    let host = host!();
    for way in Way::all() {
        let dir = project(&host, way);
        let before = snapshot(&dir);
        let script = "echo after >edited; rm removed sub/gone; mkdir made; echo new >made/new; ln -s kept link; rm -r old; chmod 600 sub/inner; cat edited made/new; ls; ls sub";
        let run = run(&host, way, &dir, "cow", script);
        assert_eq!(
            run.out(),
            "after\nnew\nedited\nkept\nlink\nmade\nsub\ninner\n",
            "{way:?}: {run:#?}"
        );
        assert_eq!(snapshot(&dir), before, "{way:?}: the original was changed");
        let expected = json!([
            {"path": "edited", "kind": "modified"},
            {"path": "link", "kind": "added"},
            {"path": "made", "kind": "added"},
            {"path": "made/new", "kind": "added"},
            {"path": "old", "kind": "deleted"},
            {"path": "removed", "kind": "deleted"},
            {"path": "sub/gone", "kind": "deleted"},
            {"path": "sub/inner", "kind": "modified"},
        ]);
        assert_eq!(run.record()["changes"], expected, "{way:?}");
    }
}

#[test]
fn a_copy_on_write_run_that_changes_nothing_lists_nothing() {
    let host = host!();
    for way in Way::all() {
        let dir = project(&host, way);
        let quiet = run(
            &host,
            way,
            &dir,
            "cow",
            "cat kept >/dev/null; ls -R >/dev/null; echo x >t; rm t",
        );
        assert_eq!(quiet.record()["changes"], json!([]), "{way:?}");
        assert_eq!(
            run(&host, way, &dir, "rw", "true").record()["changes"],
            Value::Null,
            "{way:?}"
        );
    }
}

/// A directory that was emptied by being replaced lists what it no longer has.
#[test]
fn a_replaced_directory_lists_what_is_gone() {
    let host = host!();
    for way in Way::all() {
        let dir = project(&host, way);
        let run = run(
            &host,
            way,
            &dir,
            "cow",
            "rm -r old; mkdir old; echo new >old/c; ls old",
        );
        assert_eq!(run.out(), "c\n", "{way:?}");
        let expected = json!([
            {"path": "old/a", "kind": "deleted"},
            {"path": "old/b", "kind": "deleted"},
            {"path": "old/c", "kind": "added"},
        ]);
        assert_eq!(run.record()["changes"], expected, "{way:?}");
    }
}

/// A program that puts a directory where the original has a link must not make us look at where that link leads.
#[test]
fn changes_never_follow_a_link_of_the_original() {
    let host = host!();
    for way in Way::all() {
        let dir = project(&host, way);
        symlink("/etc", dir.join("config")).unwrap();
        let run = run(
            &host,
            way,
            &dir,
            "cow",
            "rm config; mkdir config; echo x >config/passwd; echo x >config/new",
        );
        let expected = json!([
            {"path": "config", "kind": "modified"},
            {"path": "config/new", "kind": "added"},
            {"path": "config/passwd", "kind": "added"},
        ]);
        assert_eq!(run.record()["changes"], expected, "{way:?}");
    }
}

/// Links in the workspace resolve inside, where what they name is not.
#[test]
fn links_in_the_workspace_lead_nowhere_outside() {
    let host = host!();
    let secret = host.dir().join("secret");
    for way in Way::all() {
        for access in ["ro", "rw", "cow"] {
            std::fs::write(&secret, "the-secret").unwrap();
            host.give(&secret, way);
            let dir = host.workspace(way);
            for (name, target) in [
                ("absolute", secret.to_str().unwrap()),
                ("relative", "../secret"),
                ("far", "../../../../../../etc/shadow"),
                ("shadow", "/etc/shadow"),
                ("root", "/"),
                ("init", "/proc/1/root"),
                ("upper", "/proc/self/root/../../.."),
            ] {
                symlink(target, dir.join(name)).unwrap();
            }
            let below_root = secret.strip_prefix("/").unwrap().display();
            let script = format!(
                "for f in absolute relative far shadow root/{below_root} init/{below_root} upper/{below_root}; do cat $f; echo pwned >$f; echo pwned >>$f; chmod 777 $f; rm -f $f; done 2>/dev/null; true"
            );
            let out = run(&host, way, &dir, access, &script).out();
            assert!(
                !out.contains("the-secret") && !out.contains("root:"),
                "{way:?} {access}: {out}"
            );
            assert_eq!(
                std::fs::read_to_string(&secret).unwrap(),
                "the-secret",
                "{way:?} {access}"
            );
        }
    }
}

/// Planting a link while running must not lead the supervisor astray when it looks at the workspace's size or changes.
#[test]
fn links_planted_by_the_program_are_not_followed_by_us() {
    let host = host!();
    for way in Way::all() {
        let big = host.workspace(way);
        std::fs::write(big.join("big"), vec![0; 8 << 20]).unwrap();
        let dir = host.workspace(way);
        let given = format!("{}:rw", dir.display());
        let script = format!(
            "ln -s {} l; ln -s / r; ln -s . loop; sleep 0.7",
            big.display()
        );
        let run = host
            .launch([
                "run",
                "--disk",
                "4m",
                "--workspace",
                &given,
                "--",
                "sh",
                "-c",
                &script,
            ])
            .way(way)
            .json()
            .finish();
        run.assert_success();
    }
}

#[test]
fn a_mount_is_read_only_unless_said_otherwise() {
    let host = host!();
    for way in Way::all() {
        let dir = project(&host, way);
        for (suffix, wanted) in [("", "kept"), (":ro", "kept"), (":rw", "changed")] {
            let given = format!("{}:/data{suffix}", dir.display());
            let run = host
                .launch([
                    "run",
                    "--mount",
                    &given,
                    "--",
                    "sh",
                    "-c",
                    "printf changed >/data/kept; true",
                ])
                .way(way)
                .json()
                .finish();
            assert_eq!(run.ending(), "exited", "{run:#?}");
            assert_eq!(snapshot(&dir)["kept"], wanted, "{way:?} {suffix}");
        }
    }
}
