//! `cofferdam serve` and its settings: file, environment, flags, and what the log tells.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::Value;

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

struct Daemon {
    child: Child,
    address: String,
    log: Arc<Mutex<Vec<String>>>,
}

fn cofferdam(dir: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cofferdam"));
    command
        .arg("--data-dir")
        .arg(dir.join("data"))
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("HOME", dir)
        .stdin(Stdio::null());
    command
}

impl Daemon {
    fn start(command: &mut Command) -> Outcome<Self> {
        let mut child = command
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()?;
        let stderr = BufReader::new(child.stderr.take().ok_or("no log")?);
        let log = Arc::new(Mutex::new(Vec::new()));
        let of_thread = Arc::clone(&log);
        std::thread::spawn(move || {
            for line in stderr.lines().map_while(Result::ok) {
                if let Ok(mut log) = of_thread.lock() {
                    log.push(line);
                }
            }
        });
        let mut daemon = Self {
            child,
            address: String::new(),
            log,
        };
        let listening = daemon.line(|line| line["message"] == "listening")?;
        daemon.address = listening["address"]
            .as_str()
            .ok_or("no address")?
            .to_owned();
        Ok(daemon)
    }

    /// Waits for such a line; all of them are objects.
    fn line(&mut self, wanted: impl Fn(&Value) -> bool) -> Outcome<Value> {
        let began = Instant::now();
        loop {
            let lines = self.log.lock().map_err(|_| "poisoned")?.clone();
            for line in &lines {
                let line: Value =
                    serde_json::from_str(line).map_err(|bad| format!("{bad}: {line}"))?;
                if wanted(&line) {
                    return Ok(line);
                }
            }
            let has_ended = self.child.try_wait()?.is_some();
            if has_ended || began.elapsed() > Duration::from_secs(20) {
                return Err(format!("no such line: {lines:#?}").into());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn send(&self, method: &str, path: &str, headers: &str, body: &str) -> Outcome<Value> {
        let mut stream = TcpStream::connect(&self.address)?;
        stream.set_read_timeout(Some(Duration::from_secs(20)))?;
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n{headers}Content-Length: {}\r\n\r\n{body}",
            body.len()
        )?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        let (_, body) = answer.split_once("\r\n\r\n").ok_or("no body")?;
        Ok(serde_json::from_str(body)?)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn the_daemon_is_told_by_a_file_then_the_environment_then_flags() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("cofferdam.yaml");
    let text = "sandbox:\n  limits: { memory: 64m }\nserve:\n  listen: 127.0.0.1:1\n  queue: 7\n  max_body: 2k\n  \
                max_timeout: 9s\n  concurrency: 3\n  log: warn\n";
    std::fs::write(&file, text).unwrap();
    let mut command = cofferdam(dir.path());
    command
        .args(["serve", "--max-body", "1k", "--debug", "--config"])
        .arg(&file)
        .env("COFFERDAM_LISTEN", "127.0.0.1:0");
    let daemon = Daemon::start(&mut command).unwrap();

    let large = format!(
        r#"{{"command": ["true"], "stdin": "{}"}}"#,
        "x".repeat(1500)
    );
    let refused = daemon.send("POST", "/v1/runs", "", &large).unwrap();
    assert_eq!(refused["error_code"], "http.body_too_large");
    let long = r#"{"command": ["true"], "limits": {"wall_time_ms": 10000}}"#;
    let refused = daemon.send("POST", "/v1/runs", "", long).unwrap();
    let detail = refused["error_detail"].to_string();
    assert!(detail.contains("ask for at most 9000"), "{refused}");
    // Nobody asked for the default of five minutes, so that it is lowered.
    let run = daemon.send("POST", "/v1/runs", "", r#"{"command": ["true"]}"#);
    assert_eq!(run.unwrap()["status"], "success");
    let hog =
        r#"{"command": ["sh", "-c", "x=$(head -c 200000000 /dev/zero | tr '\\0' x); echo ${#x}"]}"#;
    let run = daemon.send("POST", "/v1/runs", "", hog).unwrap();
    assert_eq!(run["ending"]["cause"], "memory", "{run}");
}

#[test]
fn what_is_in_force_is_shown_with_its_origin() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("c.yaml");
    let text = "serve:\n  queue: 7\n  callbacks:\n    allow: [\"*.example.com\", api.example]\n  otlp:\n    sampling: 0.5\n";
    std::fs::write(&file, text).unwrap();
    let shown = cofferdam(dir.path())
        .args(["config", "show", "--config"])
        .arg(&file)
        .env("COFFERDAM_LOG", "debug")
        .output()
        .unwrap();
    let shown = String::from_utf8(shown.stdout).unwrap();
    let file = file.display();
    for (setting, value, origin) in [
        ("serve.queue", "7", format!("{file}:2")),
        (
            "serve.callbacks.allow",
            "*.example.com",
            format!("{file}:4"),
        ),
        ("serve.callbacks.allow", "api.example", format!("{file}:4")),
        ("serve.otlp.sampling", "0.5", format!("{file}:6")),
        ("serve.log", "debug", "environment COFFERDAM_LOG".to_owned()),
        ("serve.max_body", "16 MiB", "default".to_owned()),
    ] {
        let is_row = |line: &str| {
            let mut words = line
                .split("  ")
                .map(str::trim)
                .filter(|word| !word.is_empty());
            (words.next(), words.next(), words.next())
                == (Some(setting), Some(value), Some(&origin))
        };
        assert!(
            shown.lines().any(is_row),
            "{setting} {value} {origin}\n{shown}"
        );
    }
}

#[test]
fn a_wrong_setting_is_refused_with_its_line_and_the_nearest_name() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("c.yaml");
    let text = "serve:\n  lisen: 127.0.0.1:0\n  max_body: huge\n  callbacks: { alow: [] }\n  otlp: 3\n  \
                queue: [1]\n  max_timeout: unlimited\n  languages: here\nserv: 1\n";
    std::fs::write(&file, text).unwrap();
    let refused = cofferdam(dir.path())
        .args(["serve", "--config"])
        .arg(&file)
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", "nowhere")
        .output()
        .unwrap();
    assert_eq!(refused.status.code(), Some(125));
    let told = String::from_utf8(refused.stderr).unwrap();
    for part in [
        "c.yaml:2: unknown key: is not known in `serve`; did you mean `listen`?",
        "c.yaml:3: serve.max_body: ",
        "c.yaml:4: unknown key: is not known in `serve.callbacks`; did you mean `allow`?",
        "c.yaml:5: serve.otlp: holds `key: value` lines",
        "c.yaml:6: serve.queue: takes one value, not a list",
        "c.yaml:7: serve.max_timeout: cannot be `unlimited`",
        "c.yaml:8: serve.languages: is not an absolute path",
        "c.yaml:9: unknown key: is not known at the top; did you mean `serve`?",
    ] {
        assert!(told.contains(part), "{part}\n{told}");
    }
    for (args, variable, part) in [
        (&["--listen", "here"][..], ("A", "b"), "--listen"),
        (
            &[],
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "nowhere"),
            "OTEL_EXPORTER_OTLP_ENDPOINT: ",
        ),
        (
            &[],
            ("COFFERDAM_LOG", "loud"),
            "COFFERDAM_LOG: is not a level",
        ),
        (&[], ("COFFERDAM_HISTORY", "off"), "history.enabled: "),
    ] {
        let refused = cofferdam(dir.path())
            .arg("serve")
            .args(args)
            .env(variable.0, variable.1)
            .output()
            .unwrap();
        let told = String::from_utf8(refused.stderr).unwrap();
        assert!(told.contains(part), "{part}\n{told}");
        assert!(!refused.status.success());
    }
}

#[test]
fn the_daemon_keeps_what_the_history_section_says() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("c.yaml");
    let text = "serve:\n  listen: 127.0.0.1:0\n  remember_runs: 1\n  remember_for: 1ms\nhistory:\n  \
                stdout: 1k\n  truncation: head\n  artifacts: false\n  redact: [\"corp-[0-9]{6}\"]\n";
    std::fs::write(&file, text).unwrap();
    let mut command = cofferdam(dir.path());
    command.args(["serve", "--config"]).arg(&file);
    let daemon = Daemon::start(&mut command).unwrap();
    let script = "echo corp-123456; touch left; yes | head -c 100000";
    let body = format!(
        r#"{{"command": ["sh", "-c", "{script}"], "workspace": true, "limits": {{"output_bytes": 200000}}}}"#
    );
    let run = daemon.send("POST", "/v1/runs", "", &body).unwrap();
    assert_eq!(run["status"], "success", "{run}");
    assert_eq!(run["artifacts"].as_array().map(Vec::len), Some(0), "{run}");
    let path = format!("/v1/runs/{}", run["run_id"].as_str().unwrap());
    let began = Instant::now();
    let stored = loop {
        let found = daemon.send("GET", &path, "", "").unwrap();
        if found["source"] == "history" {
            break found;
        }
        assert!(began.elapsed() < Duration::from_secs(30), "{found}");
        let other = daemon.send("POST", "/v1/runs", "", r#"{"command": ["true"]}"#);
        assert!(other.is_ok());
    };
    let kept = stored["stdout"]["data"].as_str().unwrap();
    assert!(!kept.contains("corp-123456"), "{kept}");
    assert!(kept.len() < 2000, "{} bytes kept", kept.len());
}

#[test]
fn a_directory_of_languages_adds_to_what_there_is() {
    let dir = tempfile::tempdir().unwrap();
    let languages = dir.path().join("languages");
    std::fs::create_dir(&languages).unwrap();
    let manifest = "name = \"mumble\"\ntitle = \"Mumble\"\nfile = \"main.txt\"\n\n[[toolchain]]\nprobe = [\"sh\", \"-c\", \"exit 0\"]\nrun = [\"cat\", \"{file}\"]\n";
    std::fs::write(languages.join("mumble.toml"), manifest).unwrap();
    let mut command = cofferdam(dir.path());
    command
        .args(["serve", "--listen", "127.0.0.1:0", "--languages"])
        .arg(&languages);
    let daemon = Daemon::start(&mut command).unwrap();
    let body = r#"{"language": "mumble", "code": "as it is"}"#;
    let run = daemon.send("POST", "/v1/runs", "", body).unwrap();
    assert_eq!(run["stdout"]["data"], "as it is", "{run}");
}

#[test]
fn the_log_tells_who_asked_for_what_and_no_secret() {
    let dir = tempfile::tempdir().unwrap();
    let made = cofferdam(dir.path())
        .args(["token", "create", "ci", "--scope", "admin"])
        .output()
        .unwrap();
    let secret = String::from_utf8(made.stdout).unwrap().trim().to_owned();
    let mut command = cofferdam(dir.path());
    command
        .args(["serve", "--listen", "127.0.0.1:0", "--debug"])
        .env("COFFERDAM_LOG", "off");
    let mut daemon = Daemon::start(&mut command).unwrap();
    let trace = "0af7651916cd43dd8448eb211c80319c";
    let headers = format!(
        "Authorization: Bearer {secret}\r\nX-Request-Id: mine-1\r\ntraceparent: 00-{trace}-b7ad6b7169203331-01\r\n"
    );
    let body = r#"{"command": ["sh", "-c", "echo hush-output"], "stdin": "hush-stdin", "env": {"K": "hush-env"}, "tags": {"t": "hush-tag"}}"#;
    let run = daemon
        .send("POST", "/v1/runs?q=hush-query", &headers, body)
        .unwrap();
    let id = run["run_id"].as_str().unwrap().to_owned();
    let answered = daemon
        .line(|line| line["message"] == "answered" && line["request_id"] == "mine-1")
        .unwrap();
    assert_eq!(answered["trace_id"], trace);
    assert_eq!(answered["method"], "POST");
    assert_eq!(answered["route"], "/v1/runs");
    assert_eq!(answered["status"], 200);
    assert_eq!(answered["is_whole"], true);
    assert!(answered["took_ms"].as_f64().unwrap() > 0.0);
    assert!(answered["bytes"].as_u64().unwrap() > 100, "{answered}");
    let token = answered["token"].as_str().unwrap();
    assert!(!token.is_empty() && !secret.contains(token), "{token}");
    let ended = daemon.line(|line| line["run_id"] == id.as_str()).unwrap();
    assert_eq!(ended["message"], "a run has ended");
    assert_eq!(
        (&ended["trace_id"], &ended["request_id"]),
        (&trace.into(), &"mine-1".into())
    );
    assert_ne!(ended["span_id"], answered["span_id"]);

    let lines = daemon.log.lock().unwrap().clone();
    for line in &lines {
        let entry: Value = serde_json::from_str(line).unwrap();
        for field in ["time", "level", "message", "trace_id", "span_id"] {
            assert!(entry[field].is_string(), "{field} of {line}");
        }
        assert!(!line.contains("hush-") && !line.contains(&secret), "{line}");
    }
}
