//! `cofferdam serve` as a process: readiness, SIGTERM, SIGKILL, and what is left afterwards.

#[path = "serve/killed.rs"]
mod killed;
#[allow(dead_code, reason = "the tests of the couriers use the rest")]
#[path = "../../callback/tests/delivery/peer.rs"]
mod peer;

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

struct Daemon {
    child: Child,
    address: String,
}

impl Daemon {
    fn start(data: &Path, more: &[&str]) -> Outcome<Self> {
        let socket = data.join("notify");
        let _ = std::fs::remove_file(&socket);
        let ready = UnixDatagram::bind(&socket)?;
        ready.set_read_timeout(Some(Duration::from_secs(20)))?;
        let mut child = Command::new(env!("CARGO_BIN_EXE_cofferdam"))
            .args(["--data-dir"])
            .arg(data.join("data"))
            .args(["serve", "--listen", "127.0.0.1:0"])
            .args(more)
            .env("NOTIFY_SOCKET", &socket)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()?;
        let mut log = BufReader::new(child.stderr.take().ok_or("no log")?);
        let mut line = String::new();
        let address = loop {
            line.clear();
            if log.read_line(&mut line)? == 0 {
                return Err("it ended without listening".into());
            }
            let entry: Value = serde_json::from_str(&line)?;
            if let Some(address) = entry["address"].as_str() {
                break address.to_owned();
            }
        };
        let mut message = [0; 64];
        let got = ready.recv(&mut message)?;
        if message.get(..got) != Some(b"READY=1") {
            return Err("something else than READY=1".into());
        }
        // Read on: a full pipe would hold the daemon up.
        std::thread::spawn(move || std::io::copy(&mut log, &mut std::io::sink()));
        Ok(Self { child, address })
    }

    fn send(&self, text: &str) -> Outcome<TcpStream> {
        let mut stream = TcpStream::connect(&self.address)?;
        stream.set_read_timeout(Some(Duration::from_secs(60)))?;
        stream.write_all(text.as_bytes())?;
        Ok(stream)
    }

    fn get(&self, path: &str) -> Outcome<String> {
        let request =
            format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        let mut answer = String::new();
        self.send(&request)?.read_to_string(&mut answer)?;
        Ok(answer)
    }

    fn run(&self, body: &str) -> Outcome<TcpStream> {
        self.post("/v1/runs", body)
    }

    fn post(&self, path: &str, body: &str) -> Outcome<TcpStream> {
        self.send(&format!(
            "POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        ))
    }

    /// Asks until the answer holds this text.
    fn until(&self, path: &str, wanted: &str) -> Outcome<()> {
        let began = Instant::now();
        while !self.get(path)?.contains(wanted) {
            if began.elapsed() > Duration::from_secs(60) {
                return Err(format!("{path} never said {wanted}").into());
            }
            std::thread::sleep(PAUSE);
        }
        Ok(())
    }

    fn signal(&self, signal: rustix::process::Signal) -> Outcome<()> {
        let pid = rustix::process::Pid::from_child(&self.child);
        Ok(rustix::process::kill_process(pid, signal)?)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Between two looks: whoever looks without one takes a core from what it waits for.
const PAUSE: Duration = Duration::from_millis(10);

/// A number of seconds that no other test on this machine sleeps.
fn long_time(test: u32) -> String {
    format!("61.{test}{:08}", std::process::id())
}

/// Whether a process with this mark in its command line is there.
fn is_alive(mark: &str) -> bool {
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    processes
        .filter_map(|process| std::fs::read(process.path().join("cmdline")).ok())
        .any(|line| {
            String::from_utf8_lossy(&line).contains(mark) && !line.starts_with(b"cofferdam")
        })
}

#[test]
fn sigterm_cancels_what_runs_answers_and_exits_143() {
    let dir = tempfile::tempdir().unwrap();
    let mut daemon = Daemon::start(dir.path(), &["--grace", "0s"]).unwrap();
    let time = long_time(143);
    let body = format!(r#"{{"command": ["sleep", "{time}"]}}"#);
    let mut waiting = daemon.run(&body).unwrap();
    daemon.until("/health", r#""active_executions":1"#).unwrap();
    let began = Instant::now();
    daemon.signal(rustix::process::Signal::TERM).unwrap();
    let status = daemon.child.wait().unwrap();
    assert_eq!(status.code(), Some(143));
    assert!(
        began.elapsed() < Duration::from_secs(20),
        "{:?}",
        began.elapsed()
    );
    let mut answer = String::new();
    waiting.read_to_string(&mut answer).unwrap();
    assert!(answer.contains(r#""status":"canceled""#), "{answer}");
    assert!(!is_alive(&time));
}

#[test]
fn after_sigkill_nothing_runs_on_and_the_next_daemon_clears_up() {
    let dir = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(dir.path(), &[]).unwrap();
    let time = long_time(137);
    let body = format!(r#"{{"command": ["sleep", "{time}"], "workspace": true}}"#);
    let waiting = daemon.run(&body).unwrap();
    daemon.until("/health", r#""active_executions":1"#).unwrap();
    let began = Instant::now();
    while !is_alive(&time) {
        assert!(began.elapsed() < Duration::from_secs(60), "it does not run");
        std::thread::sleep(PAUSE);
    }
    daemon.signal(rustix::process::Signal::KILL).unwrap();
    drop(daemon);
    drop(waiting);
    let began = Instant::now();
    while is_alive(&time) {
        assert!(began.elapsed() < Duration::from_secs(30), "it runs on");
        std::thread::sleep(PAUSE);
    }
    let work = dir.path().join("data/work");
    let left: Vec<_> = std::fs::read_dir(&work).unwrap().flatten().collect();
    assert!(!left.is_empty());
    // One that is young may just be being made, and is left alone for a moment.
    let old = std::time::SystemTime::now() - Duration::from_secs(60);
    for entry in left {
        let dir = std::fs::File::open(entry.path()).unwrap();
        dir.set_modified(old).unwrap();
    }
    let daemon = Daemon::start(dir.path(), &[]).unwrap();
    assert_eq!(std::fs::read_dir(&work).unwrap().count(), 0);
    let listed = daemon.get("/v1/runs").unwrap();
    assert!(listed.contains(r#""status":"interrupted""#), "{listed}");
}

#[test]
fn others_are_served_only_with_a_token() {
    let dir = tempfile::tempdir().unwrap();
    let cofferdam = |args: &[&str]| {
        Command::new(env!("CARGO_BIN_EXE_cofferdam"))
            .arg("--data-dir")
            .arg(dir.path())
            .args(args)
            .stdin(Stdio::null())
            .output()
            .unwrap()
    };
    let refused = cofferdam(&["serve", "--listen", "0.0.0.0:0"]);
    assert_eq!(refused.status.code(), Some(125));
    let told = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(
        told.contains("cofferdam token create") && told.contains("[input.invalid]"),
        "{told}"
    );
    let made = cofferdam(&["token", "create", "ci", "--scope", "run", "--scope", "read"]);
    assert!(made.status.success());
    let secret = String::from_utf8(made.stdout).unwrap();
    assert!(
        secret.starts_with("cfd_") && secret.trim().len() == 68,
        "{secret}"
    );
    let listed = String::from_utf8(cofferdam(&["token", "list"]).stdout).unwrap();
    assert!(
        listed.contains("run,read  ci") && !listed.contains(secret.trim()),
        "{listed}"
    );
    assert!(cofferdam(&["token", "revoke", "ci"]).status.success());
    assert_eq!(
        cofferdam(&["token", "revoke", "ci"]).status.code(),
        Some(125)
    );
}

/// `submit` and `watch` against a real daemon.
#[test]
fn work_is_sent_to_a_daemon_and_watched() -> Outcome<()> {
    let place = tempfile::tempdir()?;
    let daemon = Daemon::start(place.path(), &[])?;
    let server = format!("http://{}", daemon.address);
    let cofferdam = |args: &[&str]| -> Outcome<std::process::Output> {
        Ok(Command::new(env!("CARGO_BIN_EXE_cofferdam"))
            .args(args)
            .args(["--server", &server])
            .stdin(Stdio::null())
            .output()?)
    };
    let work = place.path().join("work.json");
    std::fs::write(
        &work,
        r#"{"command": ["sh", "-c", "echo one; sleep 0.3; echo two >&2; exit 4"]}"#,
    )?;
    let work = work.display().to_string();
    let sent = cofferdam(&["submit", &work])?;
    assert!(sent.status.success(), "{sent:?}");
    let run: Value = serde_json::from_slice(&sent.stdout)?;
    let id = run["run_id"].as_str().ok_or("no run id")?;
    let watched = cofferdam(&["watch", id])?;
    assert_eq!(watched.status.code(), Some(1), "{watched:?}");
    assert_eq!(watched.stdout, b"one\n");
    assert_eq!(watched.stderr, b"two\n");
    let waited = cofferdam(&["submit", "--wait", &work])?;
    let record: Value = serde_json::from_slice(&waited.stdout)?;
    assert_eq!(record["exit_code"], 4, "{record}");
    for (args, said) in [
        (
            &["watch", "019a8c3e-7f2b-7abc-8def-0123456789ab"][..],
            "server.refused",
        ),
        (&["watch", "../health"], "input.invalid"),
        (&["submit", "/no/such/file"], "input.unreadable"),
    ] {
        let refused = cofferdam(args)?;
        assert_eq!(refused.status.code(), Some(125), "{refused:?}");
        assert!(
            String::from_utf8_lossy(&refused.stderr).contains(said),
            "{refused:?}"
        );
    }
    Ok(())
}
