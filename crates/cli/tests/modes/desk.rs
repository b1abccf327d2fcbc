//! A home of its own for each test: nothing of the machine's configuration, history or caches is seen.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

pub(crate) struct Desk {
    dir: TempDir,
}

impl Desk {
    pub(crate) fn new() -> Self {
        Self {
            dir: tempfile::tempdir().unwrap(),
        }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        path
    }

    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cofferdam"));
        command
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", self.dir.path())
            .env("COFFERDAM_DATA_DIR", self.path("data"))
            .current_dir(self.dir.path())
            .stdin(Stdio::null());
        command
    }

    pub(crate) fn run(&self, args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Output {
        self.command().args(args).output().unwrap()
    }

    /// With blanks between the words.
    pub(crate) fn line(&self, line: &str) -> Output {
        self.run(line.split_whitespace())
    }

    pub(crate) fn json(&self, line: &str) -> (i32, Value) {
        let done = self.line(line);
        let value = serde_json::from_slice(&done.stdout);
        (
            code(&done),
            value.unwrap_or_else(|error| panic!("{error}: {}", told(&done))),
        )
    }

    pub(crate) fn sealed(&self, draft: &Value) -> PathBuf {
        let path = self.write("draft.json", draft.to_string());
        let done = self.run([OsStr::new("seal"), path.as_os_str()]);
        assert_eq!(code(&done), 0, "{}", told(&done));
        self.write("payload.json", done.stdout)
    }

    pub(crate) fn root(&self) -> &Path {
        self.dir.path()
    }
}

pub(crate) fn code(done: &Output) -> i32 {
    done.status.code().unwrap_or(-1)
}

/// What was said, for reading.
pub(crate) fn told(done: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    format!("{}{}", text(&done.stdout), text(&done.stderr))
}

/// Refused by this rule, by our own exit code and with the stable code.
#[track_caller]
pub(crate) fn assert_refused(done: &Output, mode: &str, rule: &str) {
    let said = told(done);
    assert_eq!(code(done), 125, "{said}");
    let line = format!("mode {mode}, rule `{rule}`: ");
    assert!(said.contains(&line), "{said}\n{line}");
    assert!(said.contains("[policy.refused]"), "{said}");
}
