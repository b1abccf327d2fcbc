//! How a run of the binary is described before it is started.

use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use crate::finished::Finished;
use crate::host::Host;
use crate::need;
use crate::started::Started;
use crate::way::{TEST_UID, Way};

/// A run in the making.
#[derive(Debug)]
pub struct Launch<'h> {
    host: &'h Host,
    args: Vec<OsString>,
    env: Vec<(OsString, OsString)>,
    way: Way,
    shell: Option<String>,
    stdin: Input,
    stdout: Option<Stdio>,
    stderr: Option<Stdio>,
    json: bool,
}

#[derive(Debug)]
enum Input {
    Nothing,
    Bytes(Vec<u8>),
    From(Stdio),
}

pub(crate) fn words<A: AsRef<OsStr>>(args: impl IntoIterator<Item = A>) -> Vec<OsString> {
    let args = args.into_iter();
    args.map(|arg| arg.as_ref().to_owned()).collect()
}

impl<'h> Launch<'h> {
    pub(crate) fn new<A: AsRef<OsStr>>(host: &'h Host, args: impl IntoIterator<Item = A>) -> Self {
        Self {
            host,
            args: words(args),
            env: Vec::new(),
            way: if need::is_root() {
                Way::Root
            } else {
                Way::User
            },
            shell: None,
            stdin: Input::Nothing,
            stdout: None,
            stderr: None,
            json: false,
        }
    }

    /// Prints the record instead of streaming.
    #[must_use]
    pub fn json(mut self) -> Self {
        self.json = true;
        self
    }

    #[must_use]
    pub fn way(mut self, way: Way) -> Self {
        self.way = way;
        self
    }

    /// Of `cofferdam` itself, not of the program.
    #[must_use]
    pub fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.env
            .push((name.as_ref().to_owned(), value.as_ref().to_owned()));
        self
    }

    #[must_use]
    pub fn stdin(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.stdin = Input::Bytes(bytes.into());
        self
    }

    #[must_use]
    pub fn stdin_from(mut self, from: impl Into<Stdio>) -> Self {
        self.stdin = Input::From(from.into());
        self
    }

    #[must_use]
    pub fn stdout_to(mut self, to: impl Into<Stdio>) -> Self {
        self.stdout = Some(to.into());
        self
    }

    #[must_use]
    pub fn stderr_to(mut self, to: impl Into<Stdio>) -> Self {
        self.stderr = Some(to.into());
        self
    }

    /// Starts it from a shell, as `exec cofferdam …` at `"$@"` in this script.
    #[must_use]
    pub fn from_shell(mut self, script: &str) -> Self {
        self.shell = Some(script.to_owned());
        self
    }

    /// Runs it to its end. Panics when it does not come to one.
    #[track_caller]
    pub fn finish(self) -> Finished {
        self.start().finish()
    }

    #[track_caller]
    pub fn start(mut self) -> Started<'h> {
        let (stdout, stderr) = (self.stdout.take(), self.stderr.take());
        let stdin = std::mem::replace(&mut self.stdin, Input::Nothing);
        let mut command = self.command();
        command
            .stdout(stdout.unwrap_or_else(Stdio::piped))
            .stderr(stderr.unwrap_or_else(Stdio::piped));
        let bytes = match stdin {
            Input::Nothing => {
                command.stdin(Stdio::null());
                None
            }
            Input::From(from) => {
                command.stdin(from);
                None
            }
            Input::Bytes(bytes) => {
                command.stdin(Stdio::piped());
                Some(bytes)
            }
        };
        let start = Instant::now();
        let child = command
            .spawn()
            .unwrap_or_else(|error| panic!("cannot start {command:?}: {error}"));
        drop(command);
        Started::new(self.host, child, start, bytes, self.json)
    }

    fn command(&self) -> Command {
        let binary = self.host.binary();
        let mut command = match &self.shell {
            None => Command::new(binary),
            Some(script) => {
                let mut command = Command::new("/bin/sh");
                command.args([
                    OsStr::new("-c"),
                    OsStr::new(script),
                    OsStr::new("sh"),
                    binary.as_os_str(),
                ]);
                command
            }
        };
        let is_run = self.args.first().is_some_and(|verb| verb == "run");
        let mut args = self.args.iter();
        command.args(args.by_ref().take(1));
        if is_run {
            command.args(["--env", &format!("{}={}", Host::MARK, self.host.mark())]);
            if self.json {
                command.arg("--json");
            }
        }
        command.args(args);
        command
            .env(Host::MARK, self.host.mark())
            .current_dir(self.host.dir());
        // A person's own settings are none of the tests' business.
        command
            .env_remove("COFFERDAM_NO_CGROUPS")
            .env_remove("COFFERDAM_HISTORY")
            .env("COFFERDAM_DATA_DIR", self.host.history(self.way))
            .env("XDG_CONFIG_HOME", Path::new("/nonexistent"))
            // What one test's runs have in the way of files, no other test finds.
            .env("XDG_RUNTIME_DIR", self.host.history(self.way));
        match self.way {
            Way::Root => {}
            Way::RootWithoutCgroups => {
                command.env("COFFERDAM_NO_CGROUPS", "1");
            }
            // With a new uid and no word about groups, the standard library drops them all.
            Way::User if need::is_root() => {
                command.uid(TEST_UID).gid(TEST_UID);
            }
            Way::User => {}
        }
        command.envs(self.env.iter().map(|(name, value)| (name, value)));
        command
    }
}
