//! Python and Node through the daemon beside each alone: one line of it, also with pauses, and the 164 programs of HumanEval where they are at hand.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::super::contestant::Binary;
use super::super::report::Report;
use super::super::stats::Stats;
use super::super::{Effort, Options};
use super::http::Client;
use super::served::Served;

const PROMISED_OF_HUMAN_EVAL: f64 = 0.35;
const PYTHON: &str = "/usr/bin/python3";

/// An interpreter, and one line for it.
struct Interpreter {
    title: &'static str,
    language: &'static str,
    program: &'static str,
    /// Before the line itself.
    option: &'static str,
    line: &'static str,
    /// Through the daemon, of it alone.
    promised: f64,
}

const INTERPRETERS: [Interpreter; 2] = [
    Interpreter {
        title: "Python",
        language: "python",
        program: PYTHON,
        option: "-c",
        line: "print(1)",
        promised: 0.25,
    },
    Interpreter {
        title: "Node",
        language: "javascript",
        program: "node",
        option: "-e",
        line: "console.log(1)",
        promised: 0.4,
    },
];
/// Beside the repository, where it is kept with other data.
const HUMAN_EVAL: &str = "../shared/data/HumanEval.jsonl.gz";
const CLIENTS: usize = 3;
const WARM_UP: usize = 10;

pub(super) fn measure(
    root: &Path,
    binary: &Binary,
    options: Options,
    report: &mut Report,
) -> Result<(), String> {
    let served = Served::start(binary, options.privilege, "python", &["--pool", "auto"])?;
    let rounds = match options.effort {
        Effort::Quick => 100,
        Effort::Full => 400,
    };
    for interpreter in &INTERPRETERS {
        let title = interpreter.title;
        if bare(interpreter.program, &["--version"]).is_err() {
            eprintln!(
                "there is no {}; {title} is not measured",
                interpreter.program
            );
            continue;
        }
        for pause in [1, 20, 100] {
            // With long pauses fewer say as much.
            let rounds = rounds / (1 + pause / 20);
            eprintln!("{title} through the daemon and alone, {pause} ms apart, {rounds} rounds");
            one_line(&served, interpreter, pause, rounds, report)?;
        }
    }
    let place = root.join(HUMAN_EVAL);
    if place.exists() {
        human_eval(&served, &place, report)?;
    }
    served.end()
}

fn one_line(
    served: &Served,
    interpreter: &Interpreter,
    pause: usize,
    rounds: usize,
    report: &mut Report,
) -> Result<(), String> {
    let mut client = served.client()?;
    let work = json!({ "language": interpreter.language, "code": interpreter.line });
    let pause_time = Duration::from_millis(u64::try_from(pause).unwrap_or(1));
    let (mut through, mut alone) = (Vec::new(), Vec::new());
    for round in 0..WARM_UP + rounds {
        let began = Instant::now();
        execute(&mut client, &work)?;
        let first = began.elapsed();
        std::thread::sleep(pause_time);
        let began = Instant::now();
        bare(interpreter.program, &[interpreter.option, interpreter.line])?;
        let second = began.elapsed();
        std::thread::sleep(pause_time);
        if round >= WARM_UP {
            through.push(first);
            alone.push(second);
        }
    }
    let stats = |times| Stats::of(times).ok_or("no round was measured");
    let (through, alone) = (stats(through)?, stats(alone)?);
    let title = interpreter.title;
    let what = |name: &str| format!("{title} {name}, {pause} ms apart");
    report.figure(what("by POST /execute, p50"), through.p50_ms, " ms");
    report.figure(what("by POST /execute, p95"), through.p95_ms, " ms");
    report.figure(what("alone, p50"), alone.p50_ms, " ms");
    report.promise(
        what("by POST /execute, of it alone"),
        through.p50_ms / alone.p50_ms,
        interpreter.promised,
        "",
    );
    Ok(())
}

/// Every program with its tests: in turn as a process of its own, and through the daemon by a few clients.
fn human_eval(served: &Served, place: &Path, report: &mut Report) -> Result<(), String> {
    let programs = programs(place)?;
    eprintln!("{} programs of HumanEval, twice each", programs.len());
    let dir =
        std::env::temp_dir().join(format!("cofferdam-bench-{}-humaneval", std::process::id()));
    let told = |error: std::io::Error| format!("{}: {error}", dir.display());
    std::fs::create_dir_all(&dir).map_err(told)?;
    let mut ratios = Vec::new();
    for _ in 0..3 {
        let began = Instant::now();
        for (i, program) in programs.iter().enumerate() {
            let file = dir.join(format!("{i}.py"));
            std::fs::write(&file, program).map_err(told)?;
            bare(PYTHON, &[&file.display().to_string()])?;
        }
        let alone = began.elapsed();
        let began = Instant::now();
        by_clients(served, &programs)?;
        ratios.push(began.elapsed().as_secs_f64() / alone.as_secs_f64());
    }
    std::fs::remove_dir_all(&dir).map_err(told)?;
    ratios.sort_by(f64::total_cmp);
    let middle = ratios.get(1).copied().unwrap_or(f64::NAN);
    report.promise(
        "HumanEval through the daemon, of one process each",
        middle,
        PROMISED_OF_HUMAN_EVAL,
        "",
    );
    Ok(())
}

fn by_clients(served: &Served, programs: &[String]) -> Result<(), String> {
    let left = Mutex::new(programs.iter());
    let work = || -> Result<(), String> {
        let mut client = served.client()?;
        loop {
            let next = left.lock().map_err(|_| "a client gave up")?.next();
            let Some(program) = next else {
                return Ok(());
            };
            execute(
                &mut client,
                &json!({ "language": "python", "code": program }),
            )?;
        }
    };
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(work)).collect();
        clients
            .into_iter()
            .try_for_each(|client| client.join().map_err(|_| "a client panicked".to_owned())?)
    })
}

fn execute(client: &mut Client, work: &Value) -> Result<(), String> {
    let (status, answer) = client.ask("POST", "/execute", Some(work))?;
    let is_well = status == 200 && answer.get("exit_code").is_some_and(|code| code == 0);
    if is_well {
        return Ok(());
    }
    Err(format!("{work} was answered with {status} {answer}"))
}

fn bare(program: &str, arguments: &[&str]) -> Result<(), String> {
    let status = Command::new(program)
        .args(arguments)
        .env_clear()
        .env("PATH", "/usr/local/bin:/usr/bin:/bin")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status()
        .map_err(|error| format!("{program}: {error}"))?;
    match status.success() {
        true => Ok(()),
        false => Err(format!("{program} {arguments:?}: {status}")),
    }
}

fn programs(place: &Path) -> Result<Vec<String>, String> {
    let unpacked = Command::new("gzip")
        .arg("-dc")
        .arg(place)
        .output()
        .map_err(|error| format!("gzip: {error}"))?;
    let text = String::from_utf8_lossy(&unpacked.stdout);
    let program = |line: &str| {
        let task: Value = serde_json::from_str(line).ok()?;
        let part = |name: &str| task.get(name)?.as_str().map(str::to_owned);
        Some(format!(
            "{}{}\n{}\ncheck({})\n",
            part("prompt")?,
            part("canonical_solution")?,
            part("test")?,
            part("entry_point")?
        ))
    };
    let programs: Option<Vec<String>> = text.lines().map(program).collect();
    programs.ok_or_else(|| format!("{} is not as it was", place.display()))
}
