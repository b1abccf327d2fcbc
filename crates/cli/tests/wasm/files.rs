//! Directories: what is given is there with the rights that were given, and there is no way out of it.

use std::fs;
use std::os::unix::fs::symlink;

use cofferdam_testkit::wasi::Both;
use cofferdam_testkit::{Need, Way, host};

use crate::run_args;

/// `PROGRAM read|write|list|link|make PATH…` and what the system says to it.
pub(crate) const TOOL: &str = r#"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
static int done(const char *what) { if (errno) printf("%s: %s\n", what, strerror(errno)); else printf("%s: done\n", what); return errno != 0; }
int main(int argc, char **argv) {
    const char *verb = argv[1], *path = argv[2]; errno = 0;
    if (!strcmp(verb, "read")) {
        FILE *f = fopen(path, "r"); char b[256];
        if (f) { while (fgets(b, sizeof b, f)) fputs(b, stdout); fclose(f); return 0; }
    } else if (!strcmp(verb, "write")) {
        FILE *f = fopen(path, "w"); if (f) { fprintf(f, "written\n"); if (fclose(f)) return done("close"); return 0; }
    } else if (!strcmp(verb, "list")) {
        DIR *d = opendir(path); struct dirent *e;
        if (d) { while ((e = readdir(d))) if (e->d_name[0] != '.') printf("%s\n", e->d_name); closedir(d); return 0; }
    } else if (!strcmp(verb, "symlink")) { symlink(argv[3], path); return done(verb);
    } else if (!strcmp(verb, "hardlink")) { link(argv[3], path); return done(verb);
    } else if (!strcmp(verb, "rename")) { rename(path, argv[3]); return done(verb);
    } else if (!strcmp(verb, "mkdir")) { mkdir(path, 0777); return done(verb);
    } else if (!strcmp(verb, "unlink")) { unlink(path); return done(verb);
    } else if (!strcmp(verb, "fill")) {
        int f = open(path, O_CREAT | O_WRONLY, 0666); static char b[1 << 20]; memset(b, 7, sizeof b);
        if (f >= 0) { for (;;) if (write(f, b, sizeof b) < 0) return done("fill"); }
    } else if (!strcmp(verb, "hidden")) {
        int f = open(path, O_CREAT | O_WRONLY, 0666); static char b[1 << 20]; memset(b, 7, sizeof b); unlink(path);
        if (f >= 0) { for (;;) if (write(f, b, sizeof b) < 0) return done("fill"); }
    } else if (!strcmp(verb, "open")) {
        int n = 0; while (open(path, O_RDONLY) >= 0) n++;
        printf("%d\n", n);
    }
    return done(verb);
}"#;

#[test]
fn a_workspace_is_readable_and_written_only_where_that_was_said() {
    let host = host!(Need::WasiCompiler);
    let tool = Both::compile(TOOL).wasm();
    for way in Way::all() {
        let dir = host.workspace(way);
        fs::write(dir.join("a.txt"), "one\n").unwrap();
        host.give(&dir.join("a.txt"), way);
        let run = |access: &str, args: &[&str]| {
            let workspace = format!("{}:{access}", dir.display());
            host.launch(run_args(&["--workspace", &workspace], &tool, args))
                .way(way)
                .finish()
        };
        for path in ["a.txt", "./a.txt", "/work/a.txt"] {
            assert_eq!(run("ro", &["read", path]).out(), "one\n", "{path}");
        }
        for args in [
            &["write", "b.txt"][..],
            &["write", "a.txt"],
            &["mkdir", "d"],
            &["unlink", "a.txt"],
            &["rename", "a.txt", "c.txt"],
            &["symlink", "l", "a.txt"],
            &["hardlink", "h", "a.txt"],
        ] {
            let refused = run("ro", args);
            assert_eq!(refused.code(), 1, "{args:?} {refused:#?}");
        }
        assert_eq!(fs::read_to_string(dir.join("a.txt")).unwrap(), "one\n");
        assert_eq!(fs::read_dir(&dir).unwrap().count(), 1);
        assert_eq!(run("rw", &["write", "/work/b.txt"]).code(), 0);
        assert_eq!(fs::read_to_string(dir.join("b.txt")).unwrap(), "written\n");
    }
}

#[test]
fn no_path_leads_out_of_what_was_given() {
    let host = host!(Need::WasiCompiler);
    let tool = Both::compile(TOOL).wasm();
    let outer = host.dir().join("outer");
    let dir = outer.join("inner");
    fs::create_dir_all(&dir).unwrap();
    fs::write(outer.join("secret"), "secret\n").unwrap();
    symlink("../secret", dir.join("relative")).unwrap();
    symlink(outer.join("secret"), dir.join("absolute")).unwrap();
    symlink("..", dir.join("up")).unwrap();
    symlink("/etc/passwd", dir.join("passwd")).unwrap();
    symlink("/proc/self/root", dir.join("root")).unwrap();
    let workspace = format!("{}:rw", dir.display());
    for path in [
        "../secret",
        "/work/../secret",
        "relative",
        "absolute",
        "up/secret",
        "passwd",
        "root/etc/passwd",
        "/etc/passwd",
        "/proc/self/environ",
        "a/../../secret",
    ] {
        for verb in ["read", "write"] {
            let run = host.run(run_args(&["--workspace", &workspace], &tool, &[verb, path]));
            assert_eq!(run.code(), 1, "{verb} {path}: {run:#?}");
            assert!(!run.out().contains("secret\n"), "{verb} {path}");
        }
    }
    // Nor does a link that the program makes itself.
    let run = |args: &[&str]| host.run(run_args(&["--workspace", &workspace], &tool, args));
    run(&["symlink", "mine", "../secret"]);
    assert_eq!(run(&["read", "mine"]).code(), 1);
    run(&["hardlink", "hard", "../secret"]);
    assert!(!dir.join("hard").exists());
    assert_eq!(
        fs::read_to_string(outer.join("secret")).unwrap(),
        "secret\n"
    );
}

#[test]
fn mounts_are_directories_with_rights_of_their_own() {
    let host = host!(Need::WasiCompiler);
    let tool = Both::compile(TOOL).wasm();
    let dir = host.dir().join("data");
    fs::create_dir(&dir).unwrap();
    fs::write(dir.join("x"), "x\n").unwrap();
    let (ro, rw) = (
        format!("{}:/data:ro", dir.display()),
        format!("{}:/data:rw", dir.display()),
    );
    let run = |mount: &str, args: &[&str]| host.run(run_args(&["--mount", mount], &tool, args));
    assert_eq!(run(&ro, &["read", "/data/x"]).out(), "x\n");
    assert_eq!(run(&ro, &["write", "/data/y"]).code(), 1);
    assert_eq!(run(&rw, &["write", "/data/y"]).code(), 0);
    let file = format!("{}:/data:ro", dir.join("x").display());
    run(&file, &["read", "/data"]).assert_refused(125, "input.unreadable");
    let absent = format!("{}:/data:ro", dir.join("absent").display());
    run(&absent, &["read", "/data"]).assert_refused(125, "input.unreadable");
}

#[test]
fn a_workspace_does_not_grow_past_the_disk_limit() {
    let host = host!(Need::WasiCompiler);
    let tool = Both::compile(TOOL).wasm();
    for verb in ["fill", "hidden"] {
        let dir = host.dir().join(verb);
        fs::create_dir(&dir).unwrap();
        let workspace = format!("{}:rw", dir.display());
        let flags = ["--disk", "16m", "--no-artifacts", "--workspace", &workspace];
        let run = host.json(run_args(&flags, &tool, &[verb, "big"]));
        run.assert_stopped(
            "disk",
            153,
            "stopped: disk limit of 16 MiB reached in the workspace; raise it with --disk",
        );
        assert_eq!(run.enforced_by("disk"), "poll");
    }
}

#[test]
fn open_files_of_a_module_are_bounded() {
    let host = host!(Need::WasiCompiler);
    let tool = Both::compile(TOOL).wasm();
    let dir = host.dir().join("few");
    fs::create_dir(&dir).unwrap();
    fs::write(dir.join("x"), "").unwrap();
    let flags = ["--open-files", "16", "--workspace", dir.to_str().unwrap()];
    let run = host.json(run_args(&flags, &tool, &["open", "x"]));
    assert_ne!(run.code(), 0, "{run:#?}");
    assert!(
        run.record()["trap"]
            .as_str()
            .is_some_and(|trap| trap.contains("table")),
        "{run:#?}"
    );
}

#[test]
fn a_history_within_reach_is_refused() {
    let host = host!();
    let module = crate::wat(&host, "command", r#"(module (func (export "_start")))"#);
    let workspace = format!("{}:rw", host.dir().display());
    host.run(run_args(&["--workspace", &workspace], &module, &[]))
        .assert_refused(125, "input.invalid");
}

#[test]
fn what_a_run_leaves_is_an_artifact_of_it() {
    let host = host!(Need::WasiCompiler);
    let tool = Both::compile(TOOL).wasm();
    let dir = host.dir().join("job");
    fs::create_dir(&dir).unwrap();
    let workspace = format!("{}:rw", dir.display());
    let run = host.json(run_args(
        &["--workspace", &workspace],
        &tool,
        &["write", "out"],
    ));
    run.assert_success();
    let id = run.record()["run_id"].as_str().unwrap();
    let told = host.run(["runs", "show", id, "--json"]).told();
    assert_eq!(told["backend"], "wasm", "{told:#}");
    let text = told.to_string();
    assert!(text.contains("\"path\":\"out\""), "{told:#}");
}
