//! Every limit that a module can meet, against modules that try to pass it.

use std::time::Duration;

use cofferdam_testkit::host;

use crate::{run_args, wat};

const LOOP: &str = r#"(module (func (export "_start") (loop br 0)))"#;
/// Sleeps for an hour.
const SLEEP: &str = r#"(module
  (import "wasi_snapshot_preview1" "poll_oneoff" (func $poll (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (func (export "_start")
    (i64.store (i32.const 24) (i64.const 3600000000000))
    (i32.store (i32.const 16) (i32.const 1))
    (drop (call $poll (i32.const 0) (i32.const 128) (i32.const 1) (i32.const 256)))))"#;

#[test]
fn an_endless_loop_is_stopped_by_the_wall_clock() {
    let host = host!();
    let module = wat(&host, "loop", LOOP);
    let run = host.json(run_args(&["--timeout", "300ms"], &module, &[]));
    run.assert_stopped(
        "wall_time",
        124,
        "stopped: wall time limit of 300 ms reached; raise it with --timeout",
    );
    let wall = run.usage("wall_ms");
    assert!((300.0..10_000.0).contains(&wall), "{wall}");
}

#[test]
fn an_endless_loop_is_stopped_by_its_cpu_time() {
    let host = host!();
    let module = wat(&host, "loop", LOOP);
    let run = host.json(run_args(&["--cpu-time", "200ms"], &module, &[]));
    run.assert_stopped(
        "cpu_time",
        152,
        "stopped: CPU time limit of 200 ms used up; raise it with --cpu-time",
    );
    let cpu = run.usage("cpu_ms");
    assert!((200.0..1000.0).contains(&cpu), "{cpu}");
}

#[test]
fn a_program_that_sleeps_is_stopped_on_time_and_uses_no_cpu() {
    let host = host!();
    let module = wat(&host, "sleep", SLEEP);
    let run = host.json(run_args(&["--timeout", "300ms"], &module, &[]));
    assert_eq!((run.ending(), run.code()), ("wall_time", 124), "{run:#?}");
    assert!(run.usage("wall_ms") < 10_000.0, "{run:#?}");
    assert!(run.usage("cpu_ms") < 250.0, "{run:#?}");
}

#[test]
fn gigabytes_of_randomness_are_interrupted() {
    let host = host!();
    let module = wat(
        &host,
        "random",
        r#"(module
  (import "wasi_snapshot_preview1" "random_get" (func $random (param i32 i32) (result i32)))
  (memory (export "memory") 32768)
  (func (export "_start") (loop
    (drop (call $random (i32.const 0) (i32.const 2147483647))) (br 0))))"#,
    );
    let flags = ["--timeout", "300ms", "--memory", "3g"];
    let run = host.json(run_args(&flags, &module, &[]));
    assert_eq!((run.ending(), run.code()), ("wall_time", 124), "{run:#?}");
    assert!(run.usage("wall_ms") < 15_000.0, "{run:#?}");
}

#[test]
fn a_start_function_is_within_the_limits_too() {
    let host = host!();
    let module = wat(
        &host,
        "start",
        r#"(module (func $s (loop br 0)) (start $s) (func (export "_start")))"#,
    );
    let run = host.json(run_args(&["--timeout", "300ms"], &module, &[]));
    assert_eq!((run.ending(), run.code()), ("wall_time", 124), "{run:#?}");
}

#[test]
fn memory_is_bounded_whatever_it_is_asked_for_by() {
    let host = host!();
    let grow = r#"(module (memory 1) (func (export "_start")
        (loop (br_if 0 (i32.ne (memory.grow (i32.const 16)) (i32.const -1)))) unreachable))"#;
    let declared = r#"(module (memory 65536) (func (export "_start")))"#;
    let table = r#"(module (table 1 funcref) (func (export "_start")
        (loop (br_if 0 (i32.ne (table.grow (ref.null func) (i32.const 65536)) (i32.const -1)))) unreachable))"#;
    let huge_table = r#"(module (table 10000000 funcref) (func (export "_start")))"#;
    let many = r#"(module (memory 1) (memory 1) (memory 1) (func (export "_start")
        (loop (br_if 0 (i32.ne (memory.grow 0 (i32.const 16)) (i32.const -1))))
        (loop (br_if 0 (i32.ne (memory.grow 1 (i32.const 16)) (i32.const -1))))
        (loop (br_if 0 (i32.ne (memory.grow 2 (i32.const 16)) (i32.const -1)))) unreachable))"#;
    let wide = r#"(module (memory i64 1) (func (export "_start")
        (if (i64.eq (memory.grow (i64.const 1099511627776)) (i64.const -1)) (then unreachable))))"#;
    for (name, text) in [
        ("grow", grow),
        ("declared", declared),
        ("table", table),
        ("huge_table", huge_table),
        ("many", many),
        ("wide", wide),
    ] {
        let run = host.json(run_args(&["--memory", "64m"], &wat(&host, name, text), &[]));
        run.assert_stopped(
            "memory",
            137,
            "stopped: memory limit of 64 MiB reached; raise it with --memory",
        );
        let peak = run.record()["usage"]["memory_peak_bytes"].as_u64().unwrap();
        assert!(peak <= 64 << 20, "{name}: {peak}");
    }
}

#[test]
fn a_program_that_is_refused_memory_and_copes_is_believed() {
    let host = host!();
    let module = wat(
        &host,
        "copes",
        r#"(module (memory 1) (func (export "_start") (drop (memory.grow (i32.const 65000)))))"#,
    );
    host.json(run_args(&["--memory", "64m"], &module, &[]))
        .assert_success();
}

#[test]
fn a_limit_is_met_exactly() {
    let host = host!();
    // 16 MiB are 256 pages.
    for (pages, ending) in [(256, "exited"), (257, "memory")] {
        let text = format!(r#"(module (memory {pages}) (func (export "_start")))"#);
        let run = host.json(run_args(
            &["--memory", "16m"],
            &wat(&host, "pages", &text),
            &[],
        ));
        assert_eq!(run.ending(), ending, "{pages} pages");
    }
}

#[test]
fn a_person_can_end_it() {
    let host = host!();
    let module = wat(
        &host,
        "busy",
        r#"(module
  (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (data (i32.const 0) "\08\00\00\00\03\00\00\00go\n")
  (func (export "_start")
    (drop (call $write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 16)))
    (loop br 0)))"#,
    );
    let mut run = host.launch(run_args(&[], &module, &[])).start();
    run.await_output("go");
    run.signal(rustix::process::Signal::INT);
    let run = run.finish_within(Duration::from_secs(60));
    assert_eq!((run.out().as_str(), run.code()), ("go\n", 130), "{run:#?}");
}
