//! The backend as a library: compiling a stranger's code is bounded, code is compiled once, and programs that run side by side do not disturb each other.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test file: what fails here fails the test"
)]

use std::fmt::Write as _;
use std::io::{PipeWriter, Write as _};
use std::os::fd::AsFd as _;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cofferdam_contract::ending::{Ending, SetupFailureKind, StopCause};
use cofferdam_contract::limits::Limits;
use cofferdam_contract::record::RunRecord;
use cofferdam_contract::request::{BackendName, Grant, Request, Workspace, WorkspaceAccess};
use cofferdam_contract::units::{Bytes, Cap};
use cofferdam_engine::host::Host;
use cofferdam_engine::pipeline::{Input, LiveUsage, Streams};
use cofferdam_wasm::{Code, CompileBounds, Compiler, Determinism, Instances, Settings, Wasm};

fn settings(cache: Option<&Path>) -> Settings {
    let compiler = Compiler {
        program: env!("CARGO_BIN_EXE_cofferdam-wasm-compiler").into(),
        args: Vec::new(),
    };
    Settings::new(compiler, cache.map(Path::to_owned))
}

fn run(wasm: &Wasm, code: &str, limits: Limits) -> RunRecord {
    let streams = Streams::kept(1 << 20);
    launch(wasm, code, Determinism::Off, request(limits), streams)
}

fn request(limits: Limits) -> Request {
    Request {
        limits,
        backend: BackendName::Wasm,
        ..Request::command(["program"])
    }
}

fn launch(
    wasm: &Wasm,
    code: &str,
    determinism: Determinism,
    request: Request,
    streams: Streams<'_>,
) -> RunRecord {
    let code = Code::Bytes(code.as_bytes().into());
    let grant = Grant::new(request).unwrap();
    wasm.run(&code, determinism, grant, streams, &Host::detect())
        .unwrap()
}

/// One function with a large body: what compilers take longest for.
fn slow_to_compile() -> String {
    let mut text = String::from("(module (func (export \"_start\") (local $a i64)");
    for i in 0..300_000_u32 {
        let _ = write!(
            text,
            "(local.set $a (i64.mul (local.get $a) (i64.const {i})))"
        );
    }
    text.push_str("))");
    text
}

#[track_caller]
fn assert_too_much(bounds: CompileBounds, says: &str) {
    let wasm = Wasm::new(Settings {
        compile: bounds,
        ..settings(None)
    });
    let began = Instant::now();
    let record = run(&wasm, &slow_to_compile(), Limits::DEFAULT);
    let Ending::NeverStarted(failure) = &record.ending else {
        panic!("{:?}", record.ending);
    };
    assert_eq!(failure.kind, SetupFailureKind::ProgramNotExecutable);
    assert!(failure.message.contains(says), "{}", failure.message);
    assert!(began.elapsed() < Duration::from_secs(20));
}

#[test]
fn compiling_is_bounded_in_cpu_time_wall_time_memory_and_size() {
    let usual = CompileBounds::default();
    assert_too_much(
        CompileBounds {
            cpu_time: Duration::from_millis(300),
            ..usual
        },
        "takes too much to compile: CPU time limit of 300 ms used up",
    );
    assert_too_much(
        CompileBounds {
            wall_time: Duration::from_millis(300),
            ..usual
        },
        "takes too much to compile: wall time limit of 300 ms reached",
    );
    assert_too_much(
        CompileBounds {
            memory: Bytes::new(32 << 20),
            ..usual
        },
        "takes too much to compile: memory limit of 32 MiB reached",
    );
    assert_too_much(
        CompileBounds {
            code: Bytes::new(1 << 20),
            ..usual
        },
        "larger than 1 MiB",
    );
}

const HELLO: &str = r#"(module
  (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (data (i32.const 0) "\08\00\00\00\06\00\00\00hello\n")
  (func (export "_start") (drop (call $write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 16)))))"#;

#[test]
fn code_is_compiled_once_kept_on_disk_and_held_in_memory() {
    let dir = tempfile::tempdir().unwrap();
    let first = Wasm::new(settings(Some(dir.path())));
    let origin = |record: &RunRecord| record.isolation["code"].clone();
    let [compiled, held] = [0, 1].map(|_| run(&first, HELLO, Limits::DEFAULT));
    let second = Wasm::new(settings(Some(dir.path())));
    let kept = run(&second, HELLO, Limits::DEFAULT);
    for record in [&compiled, &held, &kept] {
        assert_eq!(record.stdout.data, "hello\n");
    }
    assert_eq!(
        [&compiled, &held, &kept].map(origin),
        [
            "compiled in the native sandbox",
            "in memory",
            "from the cache"
        ]
    );
}

#[test]
fn a_cache_that_cannot_be_written_costs_time_and_nothing_else() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let wasm = Wasm::new(settings(Some(&file.path().join("below-a-file"))));
    let record = run(&wasm, HELLO, Limits::DEFAULT);
    assert_eq!(record.ending, Ending::Exited { code: 0 });
    let origin = &record.isolation["code"];
    assert!(origin.contains("not kept: "), "{origin}");
}

#[test]
fn programs_side_by_side_in_one_pool_have_their_own_memory_limits_and_endings() {
    let wasm = Wasm::new(Settings {
        instances: Instances::Pooled(16),
        ..settings(None)
    });
    let endless = r#"(module (func (export "_start") (loop br 0)))"#;
    let hungry = r#"(module (memory 1) (func (export "_start")
        (loop (br_if 0 (i32.ne (memory.grow (i32.const 1)) (i32.const -1)))) unreachable))"#;
    let limit = Duration::from_millis(200);
    // Only what never ends has to be ended soon: the others may wait for their turn.
    let limits = |code: &str| Limits {
        wall_time: Cap::AtMost(match code == endless {
            true => limit,
            false => Duration::from_secs(120),
        }),
        memory: Cap::AtMost(Bytes::new(1 << 20)),
        ..Limits::DEFAULT
    };
    for code in [endless, hungry, HELLO] {
        run(&wasm, code, limits(code));
    }
    std::thread::scope(|scope| {
        let (wasm, limits) = (&wasm, &limits);
        let start = |code| scope.spawn(move || run(wasm, code, limits(code)));
        let runs: Vec<_> = (0..4)
            .flat_map(|_| [start(endless), start(hungry), start(HELLO)])
            .collect();
        let endings: Vec<Ending> = runs
            .into_iter()
            .map(|run| run.join().unwrap().ending)
            .collect();
        for three in endings.chunks(3) {
            assert_eq!(
                three,
                [
                    Ending::Stopped(StopCause::WallTime { limit }),
                    Ending::Stopped(StopCause::Memory {
                        limit: Bytes::new(1 << 20)
                    }),
                    Ending::Exited { code: 0 },
                ]
            );
        }
    });
}

/// What one program leaves in its memory is not there for the next in the same slot.
#[test]
fn memory_is_clean_for_every_program() {
    let wasm = Wasm::new(Settings {
        instances: Instances::Pooled(1),
        ..settings(None)
    });
    let dirty = r#"(module (memory 4) (func (export "_start") (memory.fill (i32.const 0) (i32.const 255) (i32.const 262144))))"#;
    let look = r#"(module (memory 4) (func (export "_start") (local $i i32)
        (loop (if (i32.load (local.get $i)) (then unreachable))
          (local.set $i (i32.add (local.get $i) (i32.const 4)))
          (br_if 0 (i32.lt_u (local.get $i) (i32.const 262144))))))"#;
    for _ in 0..3 {
        for code in [dirty, look] {
            let record = run(&wasm, code, Limits::DEFAULT);
            assert_eq!(record.ending, Ending::Exited { code: 0 });
        }
    }
}

#[test]
fn a_program_too_large_for_the_pool_runs_all_the_same() {
    let wasm = Wasm::new(Settings {
        instances: Instances::Pooled(2),
        ..settings(None)
    });
    let code = r#"(module (table 200000 funcref) (func (export "_start")))"#;
    let record = run(&wasm, code, Limits::DEFAULT);
    assert_eq!(record.ending, Ending::Exited { code: 0 });
}

/// Opens `pipe` for reading, as any program would a file.
const OPENS_A_PIPE: &str = r#"(module
  (import "wasi_snapshot_preview1" "path_open"
    (func $open (param i32 i32 i32 i32 i32 i64 i64 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (data (i32.const 0) "pipe")
  (func (export "_start") (drop (call $open (i32.const 3) (i32.const 0) (i32.const 0) (i32.const 4)
    (i32.const 0) (i64.const 2) (i64.const 2) (i32.const 0) (i32.const 64)))))"#;

const SHORT: Duration = Duration::from_millis(300);
/// On a machine that has much else to do. What hangs, hangs longer.
const LONG: Duration = Duration::from_secs(60);

/// The end of the backend is awaited as well: it waits for nobody either.
#[track_caller]
fn assert_ends_on_time(determinism: Determinism, code: &'static str, what: fn() -> Waited) {
    let (tell, told) = std::sync::mpsc::channel();
    let Waited {
        request,
        stdin,
        held: _held,
    } = what();
    std::thread::spawn(move || {
        let wasm = Wasm::new(settings(None));
        let streams = Streams {
            stdin,
            ..Streams::kept(1 << 20)
        };
        let record = launch(&wasm, code, determinism, request, streams);
        drop(wasm);
        let _ = tell.send(record);
    });
    let record = told.recv_timeout(LONG).expect("it never ends");
    let limit = SHORT;
    assert_eq!(
        record.ending,
        Ending::Stopped(StopCause::WallTime { limit })
    );
    assert_eq!(record.stdout.data, "");
}

/// Something that is waited for in vain.
struct Waited {
    request: Request,
    stdin: Input,
    /// Goes when the run has ended.
    held: (Option<tempfile::TempDir>, Option<PipeWriter>),
}

fn short() -> Request {
    request(Limits {
        wall_time: Cap::AtMost(SHORT),
        ..Limits::DEFAULT
    })
}

#[test]
fn a_file_call_that_blocks_holds_up_neither_the_clock_nor_the_end() {
    for determinism in [Determinism::Off, Determinism::Exact { seed: 1 }] {
        assert_ends_on_time(determinism, OPENS_A_PIPE, || {
            let dir = tempfile::tempdir().unwrap();
            let pipe = dir.path().join("pipe");
            let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
            rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, mode).unwrap();
            let workspace = Workspace {
                path: dir.path().to_owned(),
                access: WorkspaceAccess::ReadOnly,
            };
            Waited {
                request: Request {
                    workspace: Some(workspace),
                    ..short()
                },
                stdin: Input::Empty,
                held: (Some(dir), None),
            }
        });
    }
}

#[test]
fn input_of_a_deterministic_run_that_never_ends_is_within_its_wall_time() {
    assert_ends_on_time(Determinism::Exact { seed: 1 }, HELLO, || {
        let (from, to) = std::io::pipe().unwrap();
        Waited {
            request: short(),
            stdin: Input::From(from.into()),
            held: (None, Some(to)),
        }
    });
}

#[test]
fn a_deterministic_run_whose_input_is_not_read_whole_never_begins() {
    let wasm = Wasm::new(settings(None));
    let exact = Determinism::Exact { seed: 1 };
    let (cancel, mut canceling) = std::io::pipe().unwrap();
    let run = |stdin| {
        let streams = Streams {
            stdin,
            cancel: Some(cancel.as_fd()),
            ..Streams::kept(1 << 20)
        };
        launch(&wasm, HELLO, exact, request(Limits::DEFAULT), streams)
    };
    // From here on nothing is compiled, which could be canceled as well.
    let whole = run(Input::Bytes(b"whole".to_vec()));
    assert_eq!(whole.stdout.data, "hello\n");

    let unreadable = std::fs::File::open("/").unwrap();
    let record = run(Input::From(unreadable.into()));
    let Ending::NeverStarted(failure) = &record.ending else {
        panic!("{:?}", record.ending);
    };
    let says = "the input cannot be read";
    assert!(failure.message.contains(says), "{}", failure.message);

    let (from, mut to) = std::io::pipe().unwrap();
    to.write_all(b"half").unwrap();
    canceling.write_all(b"!").unwrap();
    let record = run(Input::From(from.into()));
    assert_eq!(record.ending, Ending::Stopped(StopCause::Canceled));
    assert_eq!(record.stdout.data, "");
}

/// A component of `count` parts, each with `holds`, that goes on for ever.
fn greedy(holds: &str, count: usize) -> String {
    let parts = "(core instance (instantiate $part))".repeat(count);
    format!(
        r#"(component
  (core module $part {holds})
  {parts}
  (core module $main (func (export "run") (result i32) (loop br 0) (i32.const 0)))
  (core instance $main (instantiate $main))
  (func $run (result (result)) (canon lift (core func $main "run")))
  (instance $exported (export "run" (func $run)))
  (export "wasi:cli/run@0.2.0" (instance $exported)))"#
    )
}

/// The pool has two memories and four instances and tables for each of its places: these would leave nothing for the other place.
#[test]
fn no_component_takes_from_the_pool_what_belongs_to_others() {
    for (holds, count) in [("(memory 1)", 4), ("(table 1 funcref)", 7), ("", 7)] {
        let wasm = Wasm::new(Settings {
            instances: Instances::Pooled(2),
            ..settings(None)
        });
        let code = greedy(holds, count);
        let (cancel, mut canceling) = std::io::pipe().unwrap();
        let usage = Arc::new(LiveUsage::default());
        let streams = Streams {
            cancel: Some(cancel.as_fd()),
            usage: Some(Arc::clone(&usage)),
            ..Streams::kept(1 << 20)
        };
        std::thread::scope(|scope| {
            let request = request(Limits {
                wall_time: Cap::AtMost(LONG),
                cpu_time: Cap::AtMost(LONG),
                ..Limits::DEFAULT
            });
            let taking =
                scope.spawn(|| launch(&wasm, &code, Determinism::Off, request, streams).ending);
            while usage.last().is_none() && !taking.is_finished() {
                std::thread::yield_now();
            }
            let other = run(&wasm, HELLO, Limits::DEFAULT);
            canceling.write_all(b"!").unwrap();
            let taking = taking.join().unwrap();
            assert_eq!(taking, Ending::Stopped(StopCause::Canceled), "{holds}");
            assert_eq!(other.ending, Ending::Exited { code: 0 }, "{holds}");
            assert_eq!(other.stdout.data, "hello\n");
        });
    }
}
