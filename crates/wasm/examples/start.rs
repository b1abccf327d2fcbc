//! How long a run of a module takes that has been compiled before, from the call to the record, its output included; in turns with a command that prints the same, up to its first
//! output; and what counting instructions costs: `cargo run --release -p cofferdam-wasm --example start -- [ROUNDS] [COMMAND…]`. Prints one JSON object.

#![allow(clippy::print_stdout, reason = "a program that prints figures")]

use std::error::Error;
use std::io::Read as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use cofferdam_contract::limits::Limits;
use cofferdam_contract::request::{BackendName, Gpus, Grant, Network, Request, Root};
use cofferdam_contract::units::Cap;
use cofferdam_engine::host::Host;
use cofferdam_engine::pipeline::Streams;
use cofferdam_wasm::compile::compile_stream;
use cofferdam_wasm::{Code, Compiler, Determinism, Flavour, Instances, Settings, Wasm};

/// Writes a line.
const HELLO: &str = r#"(module
  (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (data (i32.const 0) "\08\00\00\00\06\00\00\00hello\n")
  (func (export "_start") (drop (call $write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 16)))))"#;

/// Counts primes below 400,000 with a sieve, four times.
const WORK: &str = r#"(module
  (memory 8)
  (func (export "_start") (local $i i32) (local $j i32) (local $round i32)
    (loop $again
      (memory.fill (i32.const 0) (i32.const 0) (i32.const 400000))
      (local.set $i (i32.const 2))
      (loop $outer
        (if (i32.eqz (i32.load8_u (local.get $i))) (then
          (local.set $j (i32.add (local.get $i) (local.get $i)))
          (block $done (loop $inner
            (br_if $done (i32.ge_u (local.get $j) (i32.const 400000)))
            (i32.store8 (local.get $j) (i32.const 1))
            (local.set $j (i32.add (local.get $j) (local.get $i)))
            (br $inner)))))
        (local.set $i (i32.add (local.get $i) (i32.const 1)))
        (br_if $outer (i32.lt_u (local.get $i) (i32.const 400000))))
      (local.set $round (i32.add (local.get $round) (i32.const 1)))
      (br_if $again (i32.lt_u (local.get $round) (i32.const 4))))))"#;

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let first = args.next();
    // The compiler inside the sandbox is this very program.
    if let Some(flavour) = first.as_deref().and_then(Flavour::named) {
        compile_stream(flavour, std::io::stdin().lock(), std::io::stdout().lock())?;
        return Ok(());
    }
    let rounds: usize = first.map_or(Ok(1000), |rounds| rounds.parse())?;
    let command: Vec<String> = args.collect();
    let hello = Code::Bytes(HELLO.as_bytes().into());
    let compiler = Compiler {
        program: std::env::current_exe()?,
        args: Vec::new(),
    };
    let wasm = Wasm::new(Settings {
        instances: Instances::Pooled(4),
        ..Settings::new(compiler, None)
    });
    let host = Host::detect();
    let run = |code: &Code, determinism| timed(&wasm, code, determinism, &host);
    run(&hello, Determinism::Off)?;
    let mut starts = Vec::with_capacity(rounds);
    for _ in 0..rounds {
        starts.push(run(&hello, Determinism::Off)?);
    }
    // Noise of the machine hits both alike, and neither has the caches for itself.
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..rounds.min(300) {
        ours.push(run(&hello, Determinism::Off)?);
        theirs.extend(first_output(&command)?);
    }
    let mut paused = Vec::new();
    for _ in 0..rounds.min(100) {
        std::thread::sleep(Duration::from_millis(20));
        paused.push(run(&hello, Determinism::Off)?);
    }
    let work = Code::Bytes(WORK.as_bytes().into());
    let counted = Determinism::Exact { seed: 0 };
    run(&hello, counted)?;
    run(&work, Determinism::Off)?;
    run(&work, counted)?;
    let (mut exact, mut free, mut fuel) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..rounds.min(50) {
        exact.push(run(&hello, counted)?);
        free.push(run(&work, Determinism::Off)?);
        fuel.push(run(&work, counted)?);
    }
    let figures = [
        ("start_p50_ms", at(&mut starts, 50)),
        ("start_p95_ms", at(&mut starts, 95)),
        ("start_in_turns_p50_ms", at(&mut ours, 50)),
        ("command_p50_ms", at(&mut theirs, 50)),
        ("start_after_20ms_p50_ms", at(&mut paused, 50)),
        ("start_counted_p50_ms", at(&mut exact, 50)),
        ("work_ms", at(&mut free, 50)),
        ("work_counted_ms", at(&mut fuel, 50)),
    ];
    let fields: Vec<String> = figures
        .iter()
        .map(|(name, value)| format!("\"{name}\": {value:.4}"))
        .collect();
    println!("{{{}}}", fields.join(", "));
    Ok(())
}

/// From the start of a command to its first byte; `None` of no command. It must end well: one that fails fast would win.
fn first_output(words: &[String]) -> Result<Option<Duration>, Box<dyn Error>> {
    let Some((program, args)) = words.split_first() else {
        return Ok(None);
    };
    let mut command = Command::new(program);
    command
        .args(args)
        .env_clear()
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let began = Instant::now();
    let mut child = command.spawn()?;
    let mut stdout = child.stdout.take().ok_or("no pipe")?;
    let mut first = [0];
    let read = stdout.read(&mut first)?;
    let took = began.elapsed();
    let status = child.wait()?;
    match (read, status.success()) {
        (1, true) => Ok(Some(took)),
        _ => Err(format!("{program} printed {read} bytes and ended with {status}").into()),
    }
}

fn timed(
    wasm: &Wasm,
    code: &Code,
    determinism: Determinism,
    host: &Host,
) -> Result<Duration, Box<dyn Error>> {
    let began = Instant::now();
    let request = Request {
        argv: vec!["program".into()],
        env: Vec::new(),
        cwd: None,
        limits: Limits {
            cpu_time: Cap::AtMost(Duration::from_secs(60)),
            ..Limits::DEFAULT
        },
        waived: Vec::new(),
        network: Network::Denied,
        root: Root::HostUsr,
        workspace: None,
        mounts: Vec::new(),
        backend: BackendName::Wasm,
        gpus: Gpus::None,
    };
    let streams = Streams::kept(1 << 20);
    let record = wasm.run(code, determinism, Grant::new(request)?, streams, host)?;
    match record.exit_code {
        Some(0) => Ok(began.elapsed()),
        _ => Err(format!("{:?}", record.ending).into()),
    }
}

fn at(times: &mut [Duration], percent: usize) -> f64 {
    times.sort_unstable();
    let rank = (times.len() * percent / 100).min(times.len().saturating_sub(1));
    times.get(rank).copied().unwrap_or_default().as_secs_f64() * 1000.0
}
