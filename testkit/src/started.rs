//! A run that is under way: its output as it comes, its processes, its end.

use std::io::{Read, Write as _};
use std::os::fd::{AsFd, OwnedFd};
use std::process::Child;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::{Pid, PidfdFlags, Signal};

use crate::finished::Finished;
use crate::host::Host;
use crate::process::{self, Process};

/// A `cofferdam` that runs.
#[derive(Debug)]
pub struct Started<'h> {
    host: &'h Host,
    child: Child,
    pidfd: OwnedFd,
    start: Instant,
    stdout: Stream,
    stderr: Stream,
    json: bool,
}

/// Read by a thread of its own, so that a full pipe never holds up the run.
#[derive(Debug)]
struct Stream {
    chunks: Receiver<Vec<u8>>,
    seen: Vec<u8>,
}

/// Whatever a test waits for comes sooner than this, or not at all, also on a machine that is busy.
pub(crate) const SOON: Duration = Duration::from_secs(60);
/// A look reads all of /proc, and is itself a load.
const BETWEEN_LOOKS: Duration = Duration::from_millis(10);

impl<'h> Started<'h> {
    pub(crate) fn new(
        host: &'h Host,
        mut child: Child,
        start: Instant,
        stdin: Option<Vec<u8>>,
        json: bool,
    ) -> Self {
        let pid = Pid::from_child(&child);
        host.note_child(child.id());
        let pidfd = rustix::process::pidfd_open(pid, PidfdFlags::empty()).expect("pidfd_open");
        if let (Some(bytes), Some(mut pipe)) = (stdin, child.stdin.take()) {
            // A program that does not read all of it is the program's business.
            std::thread::spawn(move || drop(pipe.write_all(&bytes)));
        }
        let stdout = Stream::read(child.stdout.take());
        let stderr = Stream::read(child.stderr.take());
        Self {
            host,
            child,
            pidfd,
            start,
            stdout,
            stderr,
            json,
        }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    #[track_caller]
    pub fn signal(&self, signal: Signal) {
        rustix::process::pidfd_send_signal(&self.pidfd, signal).expect("the run is over already");
    }

    /// Waits until the program has written this to stdout.
    #[track_caller]
    pub fn await_output(&mut self, text: &str) -> String {
        let until = Instant::now() + SOON;
        loop {
            let seen = String::from_utf8_lossy(&self.stdout.seen).into_owned();
            if seen.contains(text) {
                return seen;
            }
            let left = until.saturating_duration_since(Instant::now());
            match self.stdout.chunks.recv_timeout(left) {
                Ok(chunk) => self.stdout.seen.extend(chunk),
                Err(_) => panic!("no {text:?} in the output: {seen:?}"),
            }
        }
    }

    /// Waits until one of the run's processes is as described.
    #[track_caller]
    pub fn await_process(&self, is_it: impl Fn(&Process) -> bool) -> Process {
        let until = Instant::now() + SOON;
        loop {
            if let Some(found) = self.processes().into_iter().find(|process| is_it(process)) {
                return found;
            }
            assert!(
                Instant::now() < until,
                "no such process among {:#?}",
                self.processes()
            );
            std::thread::sleep(BETWEEN_LOOKS);
        }
    }

    /// Everything below `cofferdam`, and `cofferdam` itself.
    pub fn processes(&self) -> Vec<Process> {
        let all = process::all();
        let mut ours = process::descendants(self.pid(), &all);
        ours.insert(self.pid());
        let found: Vec<Process> = all
            .into_iter()
            .filter(|process| ours.contains(&process.pid) && !process.is_zombie)
            .collect();
        for process in &found {
            self.host.note_namespaces(process);
        }
        found
    }

    pub fn is_over(&self) -> bool {
        self.wait_for_end(Duration::ZERO)
    }

    /// Closes our end of its stdout, as a reader that has seen enough does.
    pub fn close_stdout(&mut self) {
        self.stdout.chunks = channel().1;
    }

    #[track_caller]
    pub fn finish(self) -> Finished {
        self.finish_within(SOON)
    }

    #[track_caller]
    pub fn finish_within(mut self, patience: Duration) -> Finished {
        if !self.wait_for_end(patience) {
            let processes = self.processes();
            let _ = self.child.kill();
            let _ = self.child.wait();
            panic!("did not end within {patience:?}; killed. Its processes: {processes:#?}");
        }
        let wall = self.start.elapsed();
        let status = self.child.wait().expect("wait");
        let (stdout, stderr) = (self.stdout.rest(), self.stderr.rest());
        let record = self
            .json
            .then(|| serde_json::from_slice(&stdout).ok())
            .flatten();
        let finished = Finished {
            status,
            stdout,
            stderr,
            record,
            wall,
        };
        self.host.note_run(&finished);
        finished
    }

    fn wait_for_end(&self, patience: Duration) -> bool {
        let until = Instant::now() + patience;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let timeout = Timespec {
                tv_sec: left.as_secs().cast_signed(),
                tv_nsec: left.subsec_nanos().into(),
            };
            let pidfd = self.pidfd.as_fd();
            match rustix::event::poll(
                &mut [PollFd::from_borrowed_fd(pidfd, PollFlags::IN)],
                Some(&timeout),
            ) {
                Ok(0) => return false,
                Ok(_) => return true,
                Err(rustix::io::Errno::INTR) => {}
                Err(errno) => panic!("poll: {errno}"),
            }
        }
    }
}

impl Stream {
    fn read(pipe: Option<impl Read + Send + 'static>) -> Self {
        let (sender, chunks) = channel();
        if let Some(mut pipe) = pipe {
            std::thread::spawn(move || {
                let mut buffer = vec![0; 64 * 1024];
                while let Ok(length @ 1..) = pipe.read(&mut buffer) {
                    if sender.send(buffer[..length].to_vec()).is_err() {
                        break;
                    }
                }
            });
        }
        Self {
            chunks,
            seen: Vec::new(),
        }
    }

    /// Everything until the last writer has closed it. A writer that outlives `cofferdam` is something left behind.
    #[track_caller]
    fn rest(&mut self) -> Vec<u8> {
        loop {
            match self.chunks.recv_timeout(SOON) {
                Ok(chunk) => self.seen.extend(chunk),
                Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => {
                    return std::mem::take(&mut self.seen);
                }
                Err(std::sync::mpsc::RecvTimeoutError::Timeout) => {
                    panic!("cofferdam has ended and something still holds its output open")
                }
            }
        }
    }
}

/// A test that fails leaves no run behind.
impl Drop for Started<'_> {
    fn drop(&mut self) {
        if !self.is_over() {
            let _ = self.child.kill();
        }
        let _ = self.child.wait();
    }
}
