//! A person at a desk: a folder for files, a data directory, and the command line. Nothing of the machine's configuration, history or caches is seen.

use std::ffi::OsStr;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

#[derive(Debug)]
pub struct Desk {
    dir: TempDir,
    binary: PathBuf,
}

impl Desk {
    /// Use [`desk!`](crate::desk), which knows the binary.
    #[must_use]
    pub fn new(binary: &str) -> Self {
        Self {
            dir: tempfile::tempdir().unwrap(),
            binary: binary.into(),
        }
    }

    #[must_use]
    pub fn root(&self) -> &Path {
        self.dir.path()
    }

    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Puts a file there, with the directories above it.
    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, content).unwrap();
        path
    }

    #[must_use]
    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.binary);
        command
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", self.dir.path())
            .env("COFFERDAM_DATA_DIR", self.path("data"))
            .current_dir(self.dir.path())
            .stdin(Stdio::null());
        command
    }

    pub fn run(&self, args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Output {
        self.command().args(args).output().unwrap()
    }

    /// With blanks between the words.
    #[must_use]
    pub fn line(&self, line: &str) -> Output {
        self.run(line.split_whitespace())
    }

    /// With something on standard input. Whoever refuses early closes early: a broken pipe is no failure of the test.
    pub fn fed(&self, args: impl IntoIterator<Item = impl AsRef<OsStr>>, input: &[u8]) -> Output {
        let mut command = self.command();
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.args(args).stderr(Stdio::piped()).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let input = input.to_vec();
        let feeder = std::thread::spawn(move || drop(stdin.write_all(&input)));
        let done = child.wait_with_output().unwrap();
        feeder.join().unwrap();
        done
    }

    /// What it prints; it must do its work.
    #[track_caller]
    pub fn ok(&self, args: &[&str]) -> String {
        let done = self.run(args);
        assert_eq!(code(&done), 0, "{args:?}: {}", told(&done));
        stdout(&done)
    }

    /// The exit code, and what it prints as JSON; with blanks between the words.
    #[track_caller]
    pub fn json(&self, line: &str) -> (i32, Value) {
        json(&self.line(line))
    }

    /// Seals a draft, which must be good, into a file.
    #[track_caller]
    pub fn seal(&self, name: &str, draft: &Value) -> PathBuf {
        let draft = self.write("draft.json", draft.to_string());
        let done = self.run([OsStr::new("seal"), draft.as_os_str()]);
        assert_eq!(code(&done), 0, "{}", told(&done));
        assert!(done.stdout.ends_with(b"}\n"), "{}", told(&done));
        self.write(name, done.stdout)
    }
}

/// The exit code. Nothing here may end by a signal.
#[track_caller]
#[must_use]
pub fn code(done: &Output) -> i32 {
    let code = done.status.code();
    code.unwrap_or_else(|| panic!("ended by a signal: {}", told(done)))
}

/// The exit code, and what was printed as JSON.
#[track_caller]
#[must_use]
pub fn json(done: &Output) -> (i32, Value) {
    let value = serde_json::from_slice(&done.stdout);
    let value = value.unwrap_or_else(|error| panic!("{error}: {}", told(done)));
    (code(done), value)
}

#[must_use]
pub fn stdout(done: &Output) -> String {
    String::from_utf8_lossy(&done.stdout).into_owned()
}

#[must_use]
pub fn stderr(done: &Output) -> String {
    String::from_utf8_lossy(&done.stderr).into_owned()
}

/// What was said, for reading.
#[must_use]
pub fn told(done: &Output) -> String {
    stdout(done) + &stderr(done)
}
