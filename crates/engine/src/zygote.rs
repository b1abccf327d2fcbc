//! An interpreter that has started and waits outside of every sandbox, and a copy of which is sent into each: what a cold start would do again for every run is done once. It runs nothing
//! of any run's itself. The copy joins the namespaces of a sandbox that stands, gives up what every program's process gives up, and then waits like any other.
//!
//! What differs from a cold start: copies of one interpreter share the layout of its addresses and its hash seed, and the modules that it imported.

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{ChildStderr, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use cofferdam_sys::blueprint::Blueprint;
use cofferdam_sys::guest::{self, Entrances, Line};
use cofferdam_sys::made_network::MadeNetwork;
use cofferdam_sys::protocol::Event;
use rustix::io::Errno;
use rustix::process::Pid;

use crate::error::EngineError;
use crate::interpreter::Interpreter;
use crate::program;

/// One that waits. It ends with this value, or when its line does.
#[derive(Debug)]
pub(crate) struct Zygote {
    line: Line,
    since: Instant,
    /// Held open, so that it could write.
    _streams: (Option<ChildStdout>, Option<ChildStderr>),
    /// It, and copies that have not come in yet.
    group: Pid,
    file: File,
}

/// Which file it was started from. When another lies there, it is of the past.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct File {
    path: PathBuf,
    identity: (u64, u64, i64),
}

const SOURCE: &str = include_str!("zygote/python.py");
/// Short, since it is what a list of processes shows.
const LOADER: &str = "import os;exec(os.read(0,1<<20))";
/// As in [`SOURCE`].
const NOWHERE: &str = "/nonexistent";
/// Afterwards another takes its place, with addresses of its own, and with what was installed meanwhile.
const FRESH_FOR: Duration = Duration::from_secs(600);
const START_PATIENCE: Duration = Duration::from_secs(10);
const COPY_PATIENCE: Duration = Duration::from_secs(5);

impl Zygote {
    pub(crate) fn start(interpreter: &Interpreter) -> Result<Self, EngineError> {
        let failed = EngineError::system("start an interpreter ahead of time");
        let file = File::of(&interpreter.name).ok_or_else(|| failed(Errno::NOENT))?;
        let (line, theirs) = Line::new().map_err(&failed)?;
        let environment = program::clean_environment().into_iter();
        let environment = environment.chain(interpreter.env.iter().cloned());
        let mut command = Command::new(&file.path);
        command
            .arg0(&interpreter.name)
            .args(["-c", LOADER])
            .env_clear()
            .envs(environment)
            // No user's modules: that home may be somebody's on this host.
            .env("HOME", NOWHERE)
            .current_dir("/")
            .stdin(theirs)
            // As in a run: pipes. Nothing is written to them.
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0);
        guest::confine(&mut command);
        let process = command
            .spawn()
            .map_err(|error| failed(Errno::from_io_error(&error).unwrap_or(Errno::IO)))?;
        let group = i32::try_from(process.id()).ok().and_then(Pid::from_raw);
        let zygote = Self {
            line,
            group: group.ok_or_else(|| failed(Errno::SRCH))?,
            _streams: (process.stdout, process.stderr),
            file,
            since: Instant::now(),
        };
        let modules = interpreter.preload.join(" ");
        let settings = format!("{} {modules}", guest::numbers());
        let begin = || -> Result<Event, Errno> {
            zygote.line.say(SOURCE.as_bytes(), &[])?;
            zygote.line.say(settings.as_bytes(), &[])?;
            for (path, text) in &interpreter.scripts {
                let script = [path.as_bytes(), b"\0", text.as_bytes()].concat();
                zygote.line.say(&script, &[])?;
            }
            zygote.line.say(b"\0", &[])?;
            zygote.line.hear(Instant::now() + START_PATIENCE)
        };
        match begin() {
            Ok(Event::Waiting) => Ok(zygote),
            Ok(_) => Err(failed(Errno::BADMSG)),
            Err(errno) => Err(failed(errno)),
        }
    }

    /// Whether it is there, and still what would be started today.
    pub(crate) fn is_current(&self) -> bool {
        let is_running = self.line.is_open() && self.since.elapsed() < FRESH_FOR;
        is_running && File::at(self.file.path.clone()).as_ref() == Some(&self.file)
    }

    /// The process group of it and of what it makes.
    pub(crate) fn group(&self) -> Pid {
        self.group
    }

    /// Has a copy of it go through the door of a sandbox. It introduces itself there.
    pub(crate) fn send_in(
        &self,
        door: &OwnedFd,
        entrances: &Entrances,
        network: Option<&MadeNetwork>,
        blueprint: &Blueprint,
    ) -> Result<(), Errno> {
        let fds: Vec<_> = std::iter::once(door)
            .chain(&entrances.fds)
            .map(AsFd::as_fd)
            .chain(network.map(AsFd::as_fd))
            .collect();
        self.line
            .say(&guest::describe(blueprint, entrances.root), &fds)?;
        match self.line.hear(Instant::now() + COPY_PATIENCE)? {
            Event::Waiting => Ok(()),
            _ => Err(Errno::BADMSG),
        }
    }
}

impl Drop for Zygote {
    fn drop(&mut self) {
        guest::end_group(self.group);
    }
}

impl File {
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The file that a sandbox would find by this name.
    pub(crate) fn of(name: &str) -> Option<Self> {
        let places = program::PATH
            .split(':')
            .filter(|dir| dir.starts_with("/usr/"));
        places
            .map(|dir| PathBuf::from(dir).join(name))
            .find_map(Self::at)
    }

    /// One that its own copies could write to is not kept: they would still see it as it lies on the host.
    fn at(path: PathBuf) -> Option<Self> {
        let found = std::fs::metadata(&path)
            .ok()
            .filter(std::fs::Metadata::is_file)?;
        let is_roots = found.uid() == 0 && found.mode() & 0o022 == 0;
        is_roots.then(|| Self {
            path,
            identity: (found.dev(), found.ino(), found.mtime()),
        })
    }
}
