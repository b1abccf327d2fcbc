//! Runs in interpreters that had started before anybody asked for them: like any other, but sooner.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::Daemon;

const PATIENCE: Duration = Duration::from_secs(60);

/// A copy of an interpreter that waits has imported much already, and has the first file that it runs.
#[test]
fn a_handler_in_a_copy_has_its_event_its_own_modules_and_nothing_of_ours_among_its_files() {
    let daemon = Daemon::start(|config| config.runs.pool = None).unwrap();
    let code = "import os, random\ndef handler(event):\n    return [event, random.NAME, sorted(os.listdir())]";
    let body = |event: Value| {
        json!({
            "language": "python",
            "code": code,
            "files": [{"path": "random.py", "content": "NAME = 'mine'"}],
            "event": event,
        })
    };
    let began = std::time::Instant::now();
    let mut copies = 0;
    while copies < 4 {
        for event in [json!({}), json!({"n": 1})] {
            let run = daemon
                .post("/v1/runs", &body(event.clone()))
                .unwrap()
                .json();
            let files = json!([".cofferdam", "main.py", "random.py"]);
            assert_eq!(
                run["return_value"],
                json!([event, "mine", files]),
                "{run:#}"
            );
            assert_eq!(run["artifacts"], json!([]), "{run:#}");
            let is_copy = run.to_string().contains("copy of a waiting");
            copies += usize::from(is_copy);
        }
        assert!(began.elapsed() < PATIENCE, "no copy was used");
    }
}

/// What a client can tell two runs apart by.
fn told(run: &Value) -> Value {
    let of = |name: &str| run[name].clone();
    json!({
        "status": of("status"), "ending": run["ending"]["kind"], "cause": run["ending"]["cause"], "exit_code": of("exit_code"),
        "stdout": run["stdout"]["data"], "stderr": run["stderr"]["data"], "return_value": of("return_value"), "raised": of("raised"),
        "artifacts": run["artifacts"].as_array().map(|files| files.iter().map(|file| file["path"].clone()).collect::<Vec<_>>()),
    })
}

fn was_waiting(run: &Value) -> bool {
    run.to_string().contains("node that was waiting")
}

/// Until one was there: the first of a kind never is.
fn in_waiting(daemon: &Daemon, body: &Value) -> Value {
    let began = Instant::now();
    loop {
        let run = daemon.post("/v1/runs", body).map(|answer| answer.json());
        match run {
            Ok(run) if was_waiting(&run) => return run,
            run => assert!(began.elapsed() < PATIENCE, "none was waiting: {run:#?}"),
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn whatever_a_node_that_was_waiting_is_told_it_does_like_a_cold_one() {
    let warm = Daemon::start(|config| config.runs.pool = None).unwrap();
    let cold = Daemon::start(|config| config.runs.pool = Some(0)).unwrap();
    let codes = [
        "exports.handler = (e) => ({ e, argv: process.argv.slice(1), cwd: process.cwd(), env: { ...process.env }, main: require.main === module })",
        "const fs = require('fs'); exports.handler = () => [fs.readFileSync(0, 'utf8'), fs.readdirSync('.').sort()]",
        "exports.handler = () => { throw new TypeError('oops') }",
        "exports.handler = async () => { await new Promise((go) => setTimeout(go, 5)); return 'later' }",
        "export const handler = (e) => ({ esm: e, meta: import.meta.url })",
        "console.log('out'); console.error('err'); exports.handler = () => { process.exit(3) }",
        "exports.handler = () => new Promise(() => {})",
        "syntax error here",
        "exports.handler = () => { require('fs').writeFileSync('left', 'x'); return typeof fs + typeof module }",
        "exports.handler = () => require('child_process').execFileSync('sh', ['-c', 'echo $NAME; ls -l /proc/self/fd | wc -l; umask; ulimit -n']).toString()",
        "exports.handler = () => [new Date(0).toString(), Intl.DateTimeFormat().resolvedOptions().timeZone, process.stdin.fd, process.execArgv]",
    ];
    for code in codes {
        let body = json!({
            "language": "javascript",
            "code": code,
            "event": {"n": 1},
            "args": ["one", "two words"],
            "env": {"NAME": "a=b=c", "TZ": "Asia/Tokyo"},
            "stdin": "from stdin",
        });
        let waited = in_waiting(&warm, &body);
        let begun = cold.post("/v1/runs", &body).unwrap().json();
        assert!(!was_waiting(&begun));
        assert_eq!(told(&waited), told(&begun), "{code}");
    }
}

#[test]
fn limits_hold_for_a_node_that_was_waiting_and_count_from_its_beginning() {
    let daemon = Daemon::start(|config| config.runs.pool = None).unwrap();
    let run = |code: &str, limits: Value| {
        in_waiting(
            &daemon,
            &json!({"language": "javascript", "code": code, "event": {}, "limits": limits}),
        )
    };
    let cases = [
        ("for (;;);", json!({"wall_time_ms": 1500}), "wall_time"),
        ("for (;;);", json!({"cpu_time_ms": 500}), "cpu_time"),
        (
            "const all = []; for (;;) all.push(Buffer.alloc(1 << 20, 1));",
            json!({"memory_bytes": 128 << 20}),
            "memory",
        ),
        (
            "for (;;) require('fs').writeSync(1, 'x'.repeat(1000));",
            json!({"output_bytes": 10 << 10}),
            "output",
        ),
    ];
    for (code, limits, cause) in cases {
        let run = run(code, limits.clone());
        assert_eq!(run["ending"]["cause"], cause, "{limits}: {run:#}");
    }
    // What it took to start is nobody's.
    let run = run("exports.handler = () => 1", json!({}));
    let cpu = run["usage"]["cpu_ms"].as_f64().unwrap();
    let wall = run["usage"]["wall_ms"].as_f64().unwrap();
    assert!(cpu > 0.0 && wall > 0.0, "{run:#}");
    assert_eq!(run["return_value"], 1, "{run:#}");
}

#[test]
fn a_node_that_was_killed_while_it_waited_costs_nobody_a_result() {
    let daemon = Daemon::start(|config| config.runs.pool = None).unwrap();
    let body = json!({"language": "javascript", "code": "exports.handler = () => 7", "event": {}});
    in_waiting(&daemon, &body);
    let (began, mut killed) = (Instant::now(), 0);
    while killed < 5 {
        assert!(began.elapsed() < PATIENCE, "{killed} were there to kill");
        for pid in waiting_here() {
            killed += 1;
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
        let run = daemon.post("/v1/runs", &body).unwrap().json();
        assert_eq!(run["return_value"], 7, "{run:#}");
    }
}

/// Those of this test's own daemon: children of inits that are children of this process.
fn waiting_here() -> Vec<rustix::process::Pid> {
    let parent = |pid: &str| {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("PPid:"));
        line.map(|line| line.trim().to_owned()).unwrap_or_default()
    };
    let own = std::process::id().to_string();
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let ours = pids.filter(|pid| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.ends_with(b"shim.cjs\0wait\0") && parent(&parent(pid)) == own
    });
    ours.filter_map(|pid| rustix::process::Pid::from_raw(pid.parse().ok()?))
        .collect()
}
