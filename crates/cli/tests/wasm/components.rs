//! Components (WASI preview 2): C programs through the adapter that toolchains use. They do what modules do, within the same limits and walls.

use std::fs;
use std::os::unix::fs::symlink;

use cofferdam_testkit::wasi::Both;
use cofferdam_testkit::{Need, Way, host};

use crate::deterministic::{LISTING, NOISY};
use crate::files::TOOL;
use crate::{run_args, wat};

#[test]
fn a_component_prints_what_the_module_prints() {
    let host = host!(Need::WasiCompiler);
    let program = Both::compile(
        r#"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
int main(int argc, char **argv) {
    for (int i = 1; i < argc; i++) printf("%d:%s\n", i, argv[i]);
    char line[256]; long sum = 0; int n = 0;
    while (fgets(line, sizeof line, stdin)) { sum += strtol(line, 0, 10); n++; }
    printf("%d lines, sum %ld, %s\n", n, sum, getenv("NAME"));
    fprintf(stderr, "to stderr\n");
    return argc > 1 ? atoi(argv[1]) : 0;
}"#,
    );
    for way in Way::all() {
        // A component says whether it went well, and no more than that.
        for code in ["0", "1"] {
            let seen = [program.wasm(), program.component()].map(|file| {
                let args = run_args(&["--env", "NAME=value"], &file, &[code, "two words", "ü"]);
                let run = host
                    .launch(args)
                    .way(way)
                    .json()
                    .stdin(b"1\n22\n333\n")
                    .finish();
                let record = run.record();
                ["exit_code", "stdout", "stderr"].map(|part| record[part].clone())
            });
            assert_eq!(seen[0], seen[1]);
            assert_eq!(seen[1][0], code.parse::<i32>().unwrap());
        }
    }
}

#[test]
fn a_component_ends_by_the_limits_that_end_a_module() {
    let host = host!(Need::WasiCompiler);
    let source = r#"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
char *volatile kept; volatile long count;
static long down(volatile char *p) { volatile char here[4096]; here[0] = *p; return down(here) + here[0]; }
int main(int argc, char **argv) {
    const char *what = argv[1];
    if (!strcmp(what, "loop")) for (;;) count++;
    if (!strcmp(what, "sleep")) sleep(3600);
    if (!strcmp(what, "print")) for (;;) puts("all work and no play makes Jack a dull boy");
    if (!strcmp(what, "recurse")) return down(argv[1]) != 0;
    for (;;) { char *p = malloc(1 << 20); if (!p) abort(); memset(p, 1, 1 << 20); kept = p; }
}"#;
    let component = Both::compile(source).component();
    for (what, flags, ending) in [
        ("loop", ["--cpu-time", "200ms"], "cpu_time"),
        ("loop", ["--timeout", "300ms"], "wall_time"),
        ("sleep", ["--timeout", "300ms"], "wall_time"),
        ("print", ["--output-limit", "64k"], "output"),
        ("malloc", ["--memory", "64m"], "memory"),
        ("recurse", ["--memory", "64m"], "signaled"),
    ] {
        let run = host.json(run_args(&flags, &component, &[what]));
        assert_eq!(run.ending(), ending, "{what}: {run:#?}");
    }
    let counted = ["--deterministic", "--cpu-time", "100ms"];
    let counts = [0, 1].map(|_| {
        let run = host.json(run_args(&counted, &component, &["loop"]));
        assert_eq!(run.ending(), "cpu_time", "{run:#?}");
        run.record()["determinism"]["instructions"].clone()
    });
    assert_eq!(counts[0], counts[1]);
}

#[test]
fn a_component_has_the_rights_that_were_given_and_no_way_out() {
    let host = host!(Need::WasiCompiler);
    let tool = Both::compile(TOOL).component();
    let outer = host.dir().join("outer");
    let dir = outer.join("inner");
    fs::create_dir_all(&dir).unwrap();
    fs::write(outer.join("secret"), "secret\n").unwrap();
    fs::write(dir.join("a.txt"), "one\n").unwrap();
    symlink("../secret", dir.join("relative")).unwrap();
    symlink("/etc/passwd", dir.join("passwd")).unwrap();
    symlink("/proc/self/root", dir.join("root")).unwrap();
    let run = |access: &str, args: &[&str]| {
        let workspace = format!("{}:{access}", dir.display());
        host.run(run_args(&["--workspace", &workspace], &tool, args))
    };
    assert_eq!(run("ro", &["read", "/work/a.txt"]).out(), "one\n");
    for args in [
        &["write", "/work/a.txt"][..],
        &["mkdir", "/work/d"],
        &["unlink", "/work/a.txt"],
        &["rename", "/work/a.txt", "/work/c.txt"],
    ] {
        assert_eq!(run("ro", args).code(), 1, "{args:?}");
    }
    for path in [
        "/work/../secret",
        "/work/relative",
        "/work/passwd",
        "/work/root/etc/passwd",
        "/etc/passwd",
    ] {
        for verb in ["read", "write"] {
            let run = run("rw", &[verb, path]);
            assert_eq!(run.code(), 1, "{verb} {path}: {run:#?}");
            assert!(!run.out().contains("secret\n"), "{verb} {path}");
        }
    }
    assert_eq!(run("rw", &["write", "/work/b.txt"]).code(), 0);
    assert_eq!(fs::read_to_string(dir.join("b.txt")).unwrap(), "written\n");
    assert_eq!(
        fs::read_to_string(outer.join("secret")).unwrap(),
        "secret\n"
    );
}

#[test]
fn a_deterministic_component_sees_the_same_time_randomness_and_files_each_time() {
    let host = host!(Need::WasiCompiler);
    let noisy = Both::compile(NOISY).component();
    let print = |seed: &str| {
        let flags = ["--deterministic", "--seed", seed];
        let run = host.json(run_args(&flags, &noisy, &[]));
        run.assert_success();
        run.out()
    };
    let seven = print("7");
    assert_eq!(seven, print("7"));
    assert_ne!(seven, print("8"));
    assert!(seven.starts_with("946684800."), "{seven}");

    let listing = Both::compile(LISTING).component();
    let names: Vec<String> = (0..100)
        .map(|i| format!("file-{:03}", i * 7919 % 100))
        .collect();
    let list = |dir: &str, names: &mut dyn Iterator<Item = &String>| {
        let dir = host.dir().join(dir);
        fs::create_dir(&dir).unwrap();
        for name in names {
            fs::write(dir.join(name), name).unwrap();
        }
        let flags = ["--deterministic", "--workspace", dir.to_str().unwrap()];
        let run = host.json(run_args(&flags, &listing, &[]));
        run.assert_success();
        let told = &run.record()["determinism"]["directories"];
        assert!(told.as_str().unwrap().starts_with("in the order of names"));
        run.out()
    };
    let one = list("one", &mut names.iter());
    assert_eq!(one, list("other", &mut names.iter().rev()));
    let files: Vec<&str> = one
        .lines()
        .filter_map(|line| line.split(' ').next())
        .filter(|name| name.starts_with("file-"))
        .collect();
    assert_eq!(files.len(), 100, "{one}");
    assert!(files.is_sorted(), "{one}");
    assert!(
        one.lines().all(|line| line.contains(" 946684800 ")),
        "{one}"
    );
}

/// Asks for a socket and for a name, and goes well only if both are denied.
const SOCKETS: &str = r#"
(component
  (import "wasi:sockets/network@0.2.0" (instance $network
    (export "network" (type (sub resource)))
    (type $codes (enum "unknown" "access-denied" "not-supported" "invalid-argument" "out-of-memory" "timeout" "concurrency-conflict" "not-in-progress" "would-block"
      "invalid-state" "new-socket-limit" "address-not-bindable" "address-in-use" "remote-unreachable" "connection-refused" "connection-reset" "connection-aborted"
      "datagram-too-large" "name-unresolvable" "temporary-resolver-failure" "permanent-resolver-failure"))
    (export "error-code" (type (eq $codes)))
    (type $family (enum "ipv4" "ipv6"))
    (export "ip-address-family" (type (eq $family)))))
  (alias export $network "network" (type $net))
  (alias export $network "error-code" (type $code))
  (alias export $network "ip-address-family" (type $family))
  (import "wasi:sockets/tcp@0.2.0" (instance $tcp (export "tcp-socket" (type (sub resource)))))
  (alias export $tcp "tcp-socket" (type $socket))
  (import "wasi:sockets/tcp-create-socket@0.2.0" (instance $create
    (alias outer 1 $code (type $c0)) (export "error-code" (type $c (eq $c0)))
    (alias outer 1 $family (type $f0)) (export "ip-address-family" (type $f (eq $f0)))
    (alias outer 1 $socket (type $s0)) (export "tcp-socket" (type $s (eq $s0)))
    (export "create-tcp-socket" (func (param "address-family" $f) (result (result (own $s) (error $c)))))))
  (import "wasi:sockets/instance-network@0.2.0" (instance $own
    (alias outer 1 $net (type $n0)) (export "network" (type $n (eq $n0)))
    (export "instance-network" (func (result (own $n))))))
  (import "wasi:sockets/ip-name-lookup@0.2.0" (instance $lookup
    (export "resolve-address-stream" (type $stream (sub resource)))
    (alias outer 1 $code (type $c0)) (export "error-code" (type $c (eq $c0)))
    (alias outer 1 $net (type $n0)) (export "network" (type $n (eq $n0)))
    (export "resolve-addresses" (func (param "network" (borrow $n)) (param "name" string) (result (result (own $stream) (error $c)))))))
  (core module $memory
    (memory (export "memory") 1)
    (data (i32.const 64) "localhost")
    (func (export "realloc") (param i32 i32 i32 i32) (result i32) (i32.const 1024)))
  (core instance $memory (instantiate $memory))
  (core func $socket (canon lower (func $create "create-tcp-socket") (memory (core memory $memory "memory"))))
  (core func $network (canon lower (func $own "instance-network")))
  (core func $resolve (canon lower (func $lookup "resolve-addresses")
    (memory (core memory $memory "memory")) (realloc (core func $memory "realloc"))))
  (core module $main
    (import "env" "memory" (memory 1))
    (import "env" "socket" (func $socket (param i32 i32)))
    (import "env" "network" (func $network (result i32)))
    (import "env" "resolve" (func $resolve (param i32 i32 i32 i32)))
    (func $denied (param i32) (result i32) (i32.eq (i32.load8_u (local.get 0)) (i32.const 1)))
    (func (export "run") (result i32)
      (call $socket (i32.const 0) (i32.const 128))
      (call $resolve (call $network) (i32.const 64) (i32.const 9) (i32.const 256))
      (i32.eqz (i32.and (call $denied (i32.const 128)) (call $denied (i32.const 256))))))
  (core instance $main (instantiate $main (with "env" (instance
    (export "memory" (memory $memory "memory"))
    (export "socket" (func $socket)) (export "network" (func $network)) (export "resolve" (func $resolve))))))
  (func $run (result (result)) (canon lift (core func $main "run")))
  (instance $command (export "run" (func $run)))
  (export "wasi:cli/run@0.2.0" (instance $command)))
"#;

#[test]
fn a_component_gets_neither_a_socket_nor_a_name_unless_it_is_allowed() {
    let host = host!();
    let component = wat(&host, "sockets", SOCKETS);
    let run = host.json(run_args(&[], &component, &[]));
    run.assert_success();
    // It goes well only if both are denied.
    let allowed = run_args(&["--net", "allow=localhost"], &component, &[]);
    assert_eq!(host.run(allowed).code(), 1);
}
