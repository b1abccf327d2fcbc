//! Streams of a program in this process: bounded, passed on as they come, and never in the way of the clock.

use std::time::Duration;

use cofferdam_testkit::{Way, host};

use crate::{run_args, wat};

/// Writes 4 KiB again and again.
fn flood(stream: u32) -> String {
    format!(
        r#"(module
  (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (data (i32.const 0) "\40\00\00\00\00\10\00\00")
  (func (export "_start")
    (memory.fill (i32.const 64) (i32.const 121) (i32.const 4096))
    (loop (drop (call $write (i32.const {stream}) (i32.const 0) (i32.const 1) (i32.const 32))) (br 0))))"#
    )
}

/// Copies what it reads.
const COPY: &str = r#"(module
  (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_read" (func $read (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (func (export "_start")
    (loop
      (i32.store (i32.const 0) (i32.const 64))
      (i32.store (i32.const 4) (i32.const 4096))
      (drop (call $read (i32.const 0) (i32.const 0) (i32.const 1) (i32.const 32)))
      (i32.store (i32.const 4) (i32.load (i32.const 32)))
      (if (i32.load (i32.const 32)) (then
        (drop (call $write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 36)))
        (br 1))))))"#;

#[test]
fn a_flood_of_a_module_is_stopped_at_the_limit_or_dropped() {
    let host = host!();
    for (number, stream) in [(1, "stdout"), (2, "stderr")] {
        let module = wat(&host, stream, &flood(number));
        for way in Way::all() {
            let flags = ["--output-limit", "100k"];
            let run = host
                .launch(run_args(&flags, &module, &[]))
                .way(way)
                .json()
                .finish();
            let detail = format!(
                "stopped: output limit of 100 KiB reached while writing to {stream}; raise it with --output-limit"
            );
            run.assert_stopped("output", 153, &detail);
            let kept = run.record()[stream]["data"].as_str().unwrap().len();
            assert_eq!(kept, 100 << 10, "{way:?}");
            assert_eq!(run.record()[stream]["truncated"], true);
        }
        let flags = [
            "--output-limit",
            "100k",
            "--on-output-limit",
            "discard",
            "--timeout",
            "300ms",
        ];
        let run = host.launch(run_args(&flags, &module, &[])).finish();
        assert_eq!(run.code(), 124, "{run:#?}");
    }
}

#[test]
fn exactly_the_limit_reaches_a_reader() {
    let host = host!();
    let module = wat(&host, "flood", &flood(1));
    let run = host.run(run_args(&["--output-limit", "1m"], &module, &[]));
    assert_eq!((run.stdout.len(), run.code()), (1 << 20, 153));
}

#[test]
fn a_reader_that_does_not_read_does_not_hold_up_the_clock() {
    let host = host!();
    let module = wat(&host, "flood", &flood(1));
    let (reader, writer) = std::io::pipe().unwrap();
    let flags = ["--timeout", "500ms", "--output-limit", "unlimited"];
    let run = host
        .launch(run_args(&flags, &module, &[]))
        .stdout_to(writer)
        .start();
    // The attack: nobody reads for three times the limit. What was said by then waits for its reader, and nothing more was said after.
    std::thread::sleep(Duration::from_millis(1500));
    let mut read = Vec::new();
    std::io::Read::read_to_end(&mut { reader }, &mut read).unwrap();
    let run = run.finish();
    assert_eq!(run.code(), 124, "{run:#?}");
    assert!(read.iter().all(|byte| *byte == b'y'));
}

#[test]
fn a_reader_that_goes_away_ends_the_run() {
    let host = host!();
    let module = wat(&host, "flood", &flood(1));
    let (reader, writer) = std::io::pipe().unwrap();
    let flags = ["--output-limit", "unlimited"];
    let run = host
        .launch(run_args(&flags, &module, &[]))
        .stdout_to(writer)
        .start();
    let mut some = [0; 4096];
    std::io::Read::read_exact(&mut &reader, &mut some).unwrap();
    drop(reader);
    let run = run.finish();
    assert_eq!(run.code(), 130, "{run:#?}");
}

#[test]
fn input_comes_as_it_comes_and_output_goes_as_it_goes() {
    let host = host!();
    let module = wat(&host, "copy", COPY);
    let (reader, mut writer) = std::io::pipe().unwrap();
    let mut run = host
        .launch(run_args(&[], &module, &[]))
        .stdin_from(reader)
        .start();
    for word in ["one\n", "two\n"] {
        std::io::Write::write_all(&mut writer, word.as_bytes()).unwrap();
        run.await_output(word);
    }
    drop(writer);
    let run = run.finish();
    assert_eq!((run.out().as_str(), run.code()), ("one\ntwo\n", 0));
}

#[test]
fn waiting_for_input_that_never_comes_ends_on_time() {
    let host = host!();
    let module = wat(&host, "copy", COPY);
    let (reader, writer) = std::io::pipe().unwrap();
    let run = host
        .launch(run_args(&["--timeout", "300ms"], &module, &[]))
        .stdin_from(reader)
        .finish();
    drop(writer);
    assert_eq!(run.code(), 124, "{run:#?}");
    assert!(run.wall < Duration::from_secs(30), "{run:#?}");
}

#[test]
fn a_file_and_nothing_can_be_read() {
    let host = host!();
    let module = wat(&host, "copy", COPY);
    let file = host.dir().join("input.txt");
    std::fs::write(&file, "from a file\n").unwrap();
    let flags = ["--stdin", file.to_str().unwrap()];
    assert_eq!(
        host.run(run_args(&flags, &module, &[])).out(),
        "from a file\n"
    );
    let none = host.run(run_args(&["--stdin", "none"], &module, &[]));
    assert_eq!((none.out().as_str(), none.code()), ("", 0));
}

#[test]
fn a_full_disk_under_the_output_is_told() {
    let host = host!();
    let module = wat(&host, "flood", &flood(1));
    let full = std::fs::OpenOptions::new()
        .write(true)
        .open("/dev/full")
        .unwrap();
    let run = host
        .launch(run_args(&["--output-limit", "1m"], &module, &[]))
        .stdout_to(full)
        .finish();
    run.assert_refused(125, "output.write_failed");
}
