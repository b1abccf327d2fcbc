//! What is run: modules and components, binary and text; and what is refused, with its reason.

use cofferdam_testkit::{Way, host};

use crate::{run_args, wat};

const COMMAND: &str = r#"(module (func (export "_start")))"#;

/// Writes "hello" to standard output through preview 2.
pub(crate) const COMPONENT: &str = r#"
(component
  (import "wasi:io/error@0.2.0" (instance $error (export "error" (type (sub resource)))))
  (alias export $error "error" (type $err))
  (import "wasi:io/streams@0.2.0" (instance $streams
    (export "output-stream" (type $os (sub resource)))
    (alias outer 1 $err (type $e0))
    (export "error" (type $e (eq $e0)))
    (type $se (variant (case "last-operation-failed" (own $e)) (case "closed")))
    (export "stream-error" (type $stream-error (eq $se)))
    (export "[method]output-stream.blocking-write-and-flush"
      (func (param "self" (borrow $os)) (param "contents" (list u8)) (result (result (error $stream-error)))))))
  (alias export $streams "output-stream" (type $ostream))
  (import "wasi:cli/stdout@0.2.0" (instance $stdout
    (alias outer 1 $ostream (type $o0))
    (export "output-stream" (type $o (eq $o0)))
    (export "get-stdout" (func (result (own $o))))))
  (core module $memory
    (memory (export "memory") 1)
    (data (i32.const 64) "hello\n")
    (func (export "realloc") (param i32 i32 i32 i32) (result i32) (i32.const 1024)))
  (core instance $memory (instantiate $memory))
  (core func $get (canon lower (func $stdout "get-stdout")))
  (core func $write (canon lower (func $streams "[method]output-stream.blocking-write-and-flush")
    (memory (core memory $memory "memory")) (realloc (core func $memory "realloc"))))
  (core module $main
    (import "wasi" "get" (func $get (result i32)))
    (import "wasi" "write" (func $write (param i32 i32 i32 i32)))
    (func (export "run") (result i32)
      (call $write (call $get) (i32.const 64) (i32.const 6) (i32.const 128))
      (i32.const RESULT)))
  (core instance $main (instantiate $main (with "wasi" (instance
    (export "get" (func $get)) (export "write" (func $write))))))
  (func $run (result (result)) (canon lift (core func $main "run")))
  (instance $command (export "run" (func $run)))
  (export "wasi:cli/run@0.2.0" (instance $command)))
"#;

#[test]
fn a_module_runs_in_every_way_by_its_file_or_as_a_command() {
    let host = host!();
    let module = wat(&host, "command", COMMAND);
    for way in Way::all() {
        let by_file = host
            .launch(run_args(&[], &module, &["x"]))
            .way(way)
            .json()
            .finish();
        by_file.assert_success();
        assert_eq!(by_file.record()["backend"], "wasm");
        let path = module.to_str().unwrap();
        let as_command = ["run", "--backend", "wasm", "--", path, "x"];
        host.launch(as_command).way(way).finish().assert_success();
    }
}

#[test]
fn a_component_runs_and_its_result_is_its_exit_code() {
    let host = host!();
    for (result, code) in [("0", 0), ("1", 1)] {
        let text = COMPONENT.replace("RESULT", result);
        let run = host.run(run_args(&[], &wat(&host, "component", &text), &[]));
        assert_eq!(
            (run.out().as_str(), run.code()),
            ("hello\n", code),
            "{run:#?}"
        );
    }
}

#[test]
fn what_holds_each_limit_is_in_the_record() {
    let host = host!();
    let module = wat(&host, "command", COMMAND);
    let run = host.json(run_args(&["--cpus", "2"], &module, &[]));
    let held = |limit| run.enforced_by(limit).to_owned();
    assert_eq!(
        [
            held("wall_time"),
            held("cpu_time"),
            held("memory"),
            held("output"),
            held("processes"),
            held("disk"),
            held("open_files"),
            held("cpus")
        ],
        [
            "wasm-epoch",
            "wasm-epoch",
            "wasm-memory",
            "supervisor",
            "wasm-absent",
            "wasm-absent",
            "wasm-table",
            "wasm-absent"
        ]
    );
    let refused = host.run(run_args(&["--cpus", "0.5"], &module, &[]));
    refused.assert_refused(125, "limit.unenforceable");
    let waived = host.json(run_args(
        &["--cpus", "0.5", "--waive", "cpus"],
        &module,
        &[],
    ));
    assert_eq!(waived.enforced_by("cpus"), "waived");
}

#[test]
fn what_cannot_be_run_says_why_with_the_code_of_a_shell() {
    let host = host!();
    let path = |name: &str, content: &[u8]| {
        let path = host.dir().join(name);
        std::fs::write(&path, content).unwrap();
        path
    };
    let library = wat(&host, "library", r#"(module (func (export "add")))"#);
    let import = wat(
        &host,
        "import",
        r#"(module (import "env" "system" (func)) (func (export "_start")))"#,
    );
    let fifo = host.dir().join("fifo");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &fifo,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
        0,
    )
    .unwrap();
    for (module, code, says) in [
        (host.dir().join("absent.wasm"), 127, "was not found"),
        (host.dir().to_owned(), 126, "is no file"),
        (fifo, 126, "is no file"),
        (path("empty.wasm", b""), 126, "is not WebAssembly"),
        (path("text.wasm", b"hello"), 126, "expected `(`"),
        (
            path("elf.wasm", b"\x7fELF\xff\xff"),
            126,
            "does not begin with \\0asm",
        ),
        (
            path("cut.wasm", b"\0asm\x01\0\0\0\x01"),
            126,
            "unexpected end",
        ),
        (library, 126, "no function `_start`"),
        (import, 126, "unknown import: `env::system`"),
    ] {
        let run = host.run(run_args(&[], &module, &[]));
        assert_eq!(run.code(), code, "{run:#?}");
        let said = String::from_utf8_lossy(&run.stderr).into_owned();
        assert!(said.contains(says), "{said}");
        assert!(said.starts_with("cofferdam: "), "{said}");
        assert!(!said.contains("panicked"), "{said}");
    }
}

#[test]
fn flags_that_mean_nothing_here_are_refused_and_named() {
    let host = host!();
    let module = wat(&host, "command", COMMAND);
    let dir = host.dir().to_str().unwrap();
    let cow = format!("{dir}:cow");
    for flags in [
        &["--root", dir][..],
        &["--workspace", &cow],
        &["--cwd", "/tmp"],
    ] {
        host.run(run_args(flags, &module, &[]))
            .assert_refused(125, "input.invalid");
    }
    let mut native = run_args(&[], &module, &[]);
    native[2] = "native".to_owned();
    host.run(native).assert_refused(125, "input.invalid");
    host.run(["run", "--backend", "host", "--deterministic", "--", "true"])
        .assert_refused(125, "input.invalid");
}

#[test]
fn the_section_of_the_configuration_is_used() {
    let host = host!();
    let module = wat(&host, "command", COMMAND);
    let config = host.dir().join("config.yml");
    let text = "sandbox:\n  default_runtime: wasm\n  wasm:\n    memory_limit: \"1m\"\n    stack_size: \"1m\"\n    timeout: \"5m\"\n";
    std::fs::write(&config, text).unwrap();
    let big = wat(
        &host,
        "big",
        r#"(module (memory 32) (func (export "_start")))"#,
    );
    let config = config.to_str().unwrap();
    let run =
        |module: &std::path::Path| host.json(["run", "--config", config, module.to_str().unwrap()]);
    run(&module).assert_success();
    assert_eq!(run(&big).ending(), "memory");
}
