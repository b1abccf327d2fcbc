//! The library in a process of its own, asked over a pipe: `crates/engine/examples/paced.rs`.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use crate::process::{cargo, read};

#[derive(Debug)]
pub(super) struct Helper {
    child: Child,
    ask: ChildStdin,
    answers: BufReader<ChildStdout>,
}

/// Builds the example as it is measured.
pub(super) fn build(root: &Path) -> Result<PathBuf, String> {
    eprintln!("building the library's example");
    let words = [
        "build",
        "--release",
        "--package",
        "cofferdam-engine",
        "--example",
        "paced",
    ];
    let messages = read(
        cargo(root)
            .args(words)
            .arg("--message-format=json-render-diagnostics"),
    )?;
    let mut built = messages.lines().filter_map(|line| {
        let message: serde_json::Value = serde_json::from_str(line).ok()?;
        message.get("executable")?.as_str().map(PathBuf::from)
    });
    built
        .next_back()
        .ok_or_else(|| "cargo built no example".to_owned())
}

impl Helper {
    pub(super) fn start(path: &Path, way: &str, program: &[&str]) -> Result<Self, String> {
        let failed = |error: std::io::Error| format!("{}: {error}", path.display());
        let mut child = Command::new(path)
            .arg(way)
            .args(program)
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(failed)?;
        let (ask, answers) = (child.stdin.take(), child.stdout.take());
        let (Some(ask), Some(answers)) = (ask, answers) else {
            return Err("the helper has no streams".to_owned());
        };
        Ok(Self {
            child,
            ask,
            answers: BufReader::new(answers),
        })
    }

    /// Measured where the library is called: a pipe is no part of it.
    pub(super) fn run(&mut self) -> Result<Duration, String> {
        self.ask("run").map(Duration::from_nanos)
    }

    pub(super) fn flood(&mut self, clients: usize, slice: Duration) -> Result<u64, String> {
        self.ask(&format!("flood {clients} {}", slice.as_millis()))
    }

    fn ask(&mut self, line: &str) -> Result<u64, String> {
        let failed = |error: std::io::Error| format!("the library's example: {error}");
        writeln!(self.ask, "{line}").map_err(failed)?;
        let mut answer = String::new();
        self.answers.read_line(&mut answer).map_err(failed)?;
        let number = answer.trim().parse();
        number.map_err(|_| "the library's example ended".to_owned())
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
