//! The binary on a real terminal, which Python makes: how wide it is, what is shown on it, and Ctrl-C when something has been shown.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::process::{Command, Stdio};

use crate::host::Host;
use crate::launch::words;
use crate::way::Way;

/// Gives a program a terminal of so many columns, types Ctrl-C when a text has been shown, and hands on what is shown.
const SCRIPT: &str = "import fcntl, os, pty, signal, struct, sys, termios
columns, after = int(sys.argv[1]), sys.argv[2].encode()
pid, fd = pty.fork()
if pid == 0:
    fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack('HHHH', 24, columns, 0, 0))
    os.execv(sys.argv[3], sys.argv[3:])
signal.alarm(120)
shown = b''
while True:
    try: data = os.read(fd, 65536)
    except OSError: break
    if not data: break
    os.write(1, data)
    shown += data
    if after and after in shown:
        os.write(fd, b'\\x03')
        after = b''
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) % 256)";

/// A run on a terminal, in the making.
#[derive(Debug)]
pub struct Terminal<'h> {
    host: &'h Host,
    args: Vec<OsString>,
    columns: u16,
    env: Vec<(OsString, OsString)>,
    after: String,
    shell: Option<&'static str>,
}

/// What came of it.
#[derive(Debug)]
pub struct Shown {
    /// Everything that the terminal got, standard output and standard error together.
    pub text: String,
    pub code: i32,
}

impl<'h> Terminal<'h> {
    pub(crate) fn new<A: AsRef<OsStr>>(host: &'h Host, args: impl IntoIterator<Item = A>) -> Self {
        Self {
            host,
            args: words(args),
            columns: 100,
            env: Vec::new(),
            after: String::new(),
            shell: None,
        }
    }

    #[must_use]
    pub fn columns(mut self, columns: u16) -> Self {
        self.columns = columns;
        self
    }

    #[must_use]
    pub fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        let pair = (name.as_ref().to_owned(), value.as_ref().to_owned());
        self.env.push(pair);
        self
    }

    /// Somebody types Ctrl-C when this has been shown.
    #[must_use]
    pub fn interrupt_after(mut self, shown: &str) -> Self {
        shown.clone_into(&mut self.after);
        self
    }

    /// Starts it from a shell, at `"$@"` in this script.
    #[must_use]
    pub fn from_shell(mut self, script: &'static str) -> Self {
        self.shell = Some(script);
        self
    }

    /// To its end.
    #[track_caller]
    pub fn show(self) -> Shown {
        let to = self.host.dir().join("terminal");
        let mut command = Command::new("/usr/bin/python3");
        command.args(["-c", SCRIPT, &self.columns.to_string(), &self.after]);
        if let Some(script) = self.shell {
            command.args(["/bin/sh", "-c", script, "sh"]);
        }
        command
            .arg(self.host.binary())
            .args(&self.args)
            .current_dir(self.host.dir())
            .env_remove("COLUMNS")
            .env_remove("LINES")
            .env_remove("NO_COLOR")
            .env_remove("COFFERDAM_NO_CGROUPS")
            .env_remove("COFFERDAM_HISTORY")
            .env("TERM", "xterm")
            .env("COFFERDAM_DATA_DIR", self.host.history(Way::Root))
            .env("XDG_CONFIG_HOME", "/nonexistent")
            .env("XDG_RUNTIME_DIR", self.host.history(Way::Root))
            .env(Host::MARK, self.host.mark())
            .envs(self.env)
            .stdin(Stdio::null())
            .stderr(Stdio::inherit())
            // By way of a file: a reader that waits for the end of a pipe would wait for whatever holds it.
            .stdout(File::create(&to).expect("a file"));
        let status = command.status().expect("python3");
        let bytes = std::fs::read(&to).expect("what was shown");
        std::fs::remove_file(&to).expect("remove");
        Shown {
            text: String::from_utf8_lossy(&bytes).into_owned(),
            code: status.code().unwrap_or(-1),
        }
    }
}

impl Shown {
    /// What was drawn, one after the other, on the line that is drawn again and again.
    pub fn drawn(&self) -> Vec<&str> {
        let parts = self.text.split('\r').skip(1);
        let drawn = parts.filter_map(|part| part.split_once("\u{1b}[K"));
        drawn
            .map(|(text, _)| text)
            .filter(|text| !text.is_empty())
            .collect()
    }

    /// The lines that stay, without what was drawn and taken away.
    pub fn lines(&self) -> Vec<String> {
        let whole = self.text.split('\n');
        let line = |line: &str| {
            let line = line.trim_end_matches('\r');
            let last = line.rsplit("\u{1b}[K").next().unwrap_or_default();
            last.to_owned()
        };
        whole.map(line).filter(|line| !line.is_empty()).collect()
    }

    pub fn is_coloured(&self) -> bool {
        self.text.contains("\u{1b}[3") || self.text.contains("\u{1b}[1m")
    }
}
