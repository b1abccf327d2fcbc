//! Modules that attack: the compiler, the stack, the table of open files, the calls that they may make. Each ends as it should, and the next run is none the worse.

use std::fmt::Write as _;

use cofferdam_testkit::{Way, host};

use crate::{run_args, wat};

#[test]
fn endless_recursion_is_a_stack_overflow_of_the_program_alone() {
    let host = host!();
    let module = wat(
        &host,
        "recursion",
        r#"(module (func $f (export "_start") (call $f)))"#,
    );
    let run = host.json(run_args(&[], &module, &[]));
    assert_eq!(run.record()["signal"], "SIGSEGV", "{run:#?}");
    assert_eq!(run.record()["trap"], "call stack exhausted");
    assert_eq!(run.code(), 139);
}

#[test]
fn memory_outside_of_its_own_is_out_of_reach() {
    let host = host!();
    for address in ["65536", "-1", "-8", "2147483647"] {
        let text = format!(
            r#"(module (memory 1) (func (export "_start") (drop (i64.load offset=4294967295 (i32.const {address})))))"#
        );
        let run = host.json(run_args(&[], &wat(&host, "outside", &text), &[]));
        assert_eq!(
            run.record()["trap"],
            "out of bounds memory access",
            "{run:#?}"
        );
        assert_eq!(run.record()["signal"], "SIGSEGV");
    }
}

#[test]
fn calls_with_addresses_outside_of_memory_are_errors_and_nothing_else() {
    let host = host!();
    let text = r#"(module
      (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
      (import "wasi_snapshot_preview1" "random_get" (func $random (param i32 i32) (result i32)))
      (import "wasi_snapshot_preview1" "args_get" (func $args (param i32 i32) (result i32)))
      (memory (export "memory") 1)
      (func (export "_start")
        (drop (call $write (i32.const 1) (i32.const -16) (i32.const 4) (i32.const 0)))
        (drop (call $write (i32.const 1) (i32.const 0) (i32.const -1) (i32.const 0)))
        (drop (call $random (i32.const 0) (i32.const -1)))
        (drop (call $args (i32.const -4) (i32.const -4)))))"#;
    let run = host.json(run_args(&[], &wat(&host, "addresses", text), &[]));
    // It may be told so by an error or by a trap; the host is not touched either way.
    assert!(["exited", "signaled"].contains(&run.ending()), "{run:#?}");
    assert_eq!(run.out(), "");
}

#[test]
fn no_program_waits_where_the_clock_cannot_reach_it() {
    let host = host!();
    // Shared memory is refused, and memory of one's own is nothing to wait for.
    let shared = r#"(module (memory 1 1 shared) (func (export "_start")
        (drop (memory.atomic.wait32 (i32.const 0) (i32.const 0) (i64.const -1)))))"#;
    let own = shared.replace("1 1 shared", "1");
    for (name, text) in [("shared", shared), ("own", &own)] {
        let flags = ["--timeout", "20s"];
        let run = host.json(run_args(&flags, &wat(&host, name, text), &[]));
        assert!(
            ["never_started", "signaled"].contains(&run.ending()),
            "{run:#?}"
        );
    }
}

#[test]
fn no_network_is_there_to_be_used() {
    let host = host!();
    let text = r#"(module
      (import "wasi_snapshot_preview1" "sock_accept" (func $accept (param i32 i32 i32) (result i32)))
      (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
      (memory (export "memory") 1)
      (func (export "_start") (call $exit (call $accept (i32.const 3) (i32.const 0) (i32.const 0)))))"#;
    let run = host.json(run_args(&[], &wat(&host, "socket", text), &[]));
    assert_eq!(run.record()["exit_code"], 8, "EBADF: {run:#?}");
}

#[test]
fn a_module_that_is_too_large_is_refused_before_it_is_compiled() {
    let host = host!();
    let path = host.dir().join("huge.wasm");
    let file = std::fs::File::create(&path).unwrap();
    file.set_len((64 << 20) + 1).unwrap();
    let run = host.run(run_args(&[], &path, &[]));
    let said = String::from_utf8_lossy(&run.stderr).into_owned();
    assert_eq!(run.code(), 126, "{said}");
    assert!(said.contains("larger than 64 MiB"), "{said}");
}

#[test]
fn random_bytes_that_are_no_module_never_get_through() {
    let host = host!();
    let mut state = 1_u64;
    for round in 0..12 {
        let mut bytes = b"\0asm\x01\0\0\0".to_vec();
        for _ in 0..200 {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(round | 1);
            bytes.push(state.to_be_bytes()[0]);
        }
        let path = host.dir().join("random.wasm");
        std::fs::write(&path, &bytes).unwrap();
        let run = host.run(run_args(&[], &path, &[]));
        assert_eq!(run.code(), 126, "{run:#?}");
    }
}

/// The compiler is in a sandbox: nothing of it is left when cofferdam is killed while it compiles, and the fixture looks.
#[test]
fn killed_while_it_compiles_it_leaves_nothing() {
    let host = host!();
    let mut text = String::from("(module (func (export \"_start\") (local $a i64)");
    for i in 0..200_000_u32 {
        let _ = write!(
            text,
            "(local.set $a (i64.mul (local.get $a) (i64.const {i})))"
        );
    }
    text.push_str("))");
    let module = wat(&host, "slow", &text);
    for way in Way::all() {
        let run = host.launch(run_args(&[], &module, &[])).way(way).start();
        run.await_process(|process| process.command.contains("wasm-compile"));
        run.signal(rustix::process::Signal::KILL);
        drop(run);
        host.assert_clean();
    }
}
