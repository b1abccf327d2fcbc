//! A chain of a test's own: anvil, on loopback, that goes with the test. It can be asked in its own words, stopped, and started again with what it had.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::docker::{skip, which};
use crate::ready::await_line;

/// Where `cargo xtask test` puts it.
const PLACE: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../target/chain/node_modules/@foundry-rs/anvil-linux-amd64/bin/anvil"
);
/// Accounts that every such chain has, with money.
pub const KEYS: [&str; 5] = [
    "0xac0974bec39a17e36ba4a6b4d238ff944bacb478cbed5efcae784d7bf4f2ff80",
    "0x59c6995e998f97a5a0044966f0945389dc9e86dae88c7a8412f4603b6b78690d",
    "0x5de4111afa1a4b94908f83103eb1f1706367c2e68ca870fc3fb9a804cdab365a",
    "0x7c852118294e51e653712a81e05800f419141751be58f605c371e15141b007a6",
    "0x47e179ec197488593b187f80a00eb0da91f1b9d0b13f8733639f19c30a34926a",
];
const LISTENS: &str = "Listening on 127.0.0.1:";
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub struct Anvil {
    process: Option<Child>,
    port: u16,
    dir: tempfile::TempDir,
}

/// The program, if it is there.
#[must_use]
pub fn program() -> Option<PathBuf> {
    let placed = Some(PathBuf::from(PLACE)).filter(|path| path.is_file());
    placed.or_else(|| which("anvil"))
}

impl Anvil {
    /// `None` after saying what is missing; in CI that is a failure.
    pub fn start() -> Option<Self> {
        let Some(program) = program() else {
            return skip("anvil, which `cargo xtask test` installs");
        };
        let dir = tempfile::tempdir().unwrap();
        // It chooses a free port by itself and says which.
        let (process, port) = started(&program, 0, &dir);
        Some(Self {
            process: Some(process),
            port,
            dir,
        })
    }

    #[must_use]
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Stopped in a way that lets it write down what it has.
    pub fn stop(&mut self) {
        let Some(mut process) = self.process.take() else {
            return;
        };
        let pid = rustix::process::Pid::from_child(&process);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        let until = Instant::now() + PATIENCE;
        while process.try_wait().unwrap().is_none() {
            assert!(Instant::now() < until, "anvil does not end");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Again, where it was and with what it had.
    pub fn again(&mut self) {
        let program = program().unwrap();
        let (process, port) = started(&program, self.port, &self.dir);
        assert_eq!(port, self.port);
        self.process = Some(process);
    }

    /// Asks it; what it refuses fails the test.
    pub fn ask(&self, method: &str, params: &Value) -> Value {
        let answer = self.try_ask(method, params);
        assert!(answer["error"].is_null(), "{method}: {answer}");
        answer["result"].clone()
    }

    #[must_use]
    pub fn try_ask(&self, method: &str, params: &Value) -> Value {
        let question = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        let body = question.to_string();
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let head = format!(
            "POST / HTTP/1.0\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all(head.as_bytes()).unwrap();
        stream.write_all(body.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (_, body) = answer.split_once("\r\n\r\n").unwrap();
        serde_json::from_str(body).unwrap()
    }

    pub fn mine(&self, blocks: u64) {
        self.ask("anvil_mine", &json!([format!("{blocks:#x}")]));
    }
}

fn started(program: &PathBuf, port: u16, dir: &tempfile::TempDir) -> (Child, u16) {
    let mut command = Command::new(program);
    command.args(["--host", "127.0.0.1", "--port", &port.to_string()]);
    command.arg("--state").arg(dir.path().join("state.json"));
    command.stdin(Stdio::null()).stderr(Stdio::null());
    let mut process = command.stdout(Stdio::piped()).spawn().unwrap();
    // It writes a line for each question, and stops when nobody reads them.
    let told = process.stdout.take().unwrap();
    let listens = await_line(told, |line| line.starts_with(LISTENS));
    let line = listens.unwrap_or_else(|said| {
        let _ = process.kill();
        panic!("anvil does not start: {:?}: {said}", process.wait());
    });
    let port = line.trim().strip_prefix(LISTENS).unwrap();
    (process, port.parse().unwrap())
}

impl Drop for Anvil {
    fn drop(&mut self) {
        if let Some(process) = &mut self.process {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}
