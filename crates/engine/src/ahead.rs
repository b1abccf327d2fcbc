//! An interpreter that has started in its sandbox, behind all of its walls and within its limits, before anybody knows what it will run. It waits on its standard input: for a word, which
//! names the script, its arguments, its environment and its directory, and is acknowledged; then for the sign to go. What follows there is the program's own input.
//!
//! One that ends before it has acknowledged its word has run nothing, and the run starts cold instead.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use cofferdam_sys::blueprint::{Isolation, Privileged};
use cofferdam_sys::cgroup::RunGroup;
use cofferdam_sys::errand::Errand;
use cofferdam_sys::protocol::Event;
use cofferdam_sys::seccomp::{self, Received, Variants};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;

use crate::error::EngineError;
use crate::pipes::{self, Ends};
use crate::plan::Channel;
use crate::stand::Stand;

/// What a script does that is started ahead.
pub(crate) const WAIT: &str = "wait";
/// What it says on its standard output when it waits, and when it has its word; nothing of a run's is there by then.
const READY: &[u8] = b".";
pub(crate) const GO: &[u8] = b"!";
/// What a pipe takes at once.
const MOST_WRITTEN: usize = 60 << 10;
/// How long an interpreter may take to start.
const START_PATIENCE: Duration = Duration::from_secs(10);
/// And how long to say that it has its word: somebody waits for that.
const WORD_PATIENCE: Duration = Duration::from_secs(1);

const DOING: &str = "start an interpreter ahead of time";

/// Starts it in a sandbox that waits, and returns when it waits itself.
pub(crate) fn start(
    stand: &mut Stand,
    errand: Errand,
    variants: Variants,
) -> Result<Ends, EngineError> {
    let failed = EngineError::system(DOING);
    let (theirs, ends) = pipes::make(Channel::Open)?;
    if let Isolation::Namespaces(identity) = stand.sandbox.blueprint().isolation
        && identity.privileged == Privileged::Yes
    {
        theirs.hand_over(identity.outside_uid, identity.outside_gid)?;
    }
    if stand.sandbox.entrust(errand).is_err() {
        return Err(failed(Errno::ALREADY));
    }
    let joins = stand.group.as_ref().map(RunGroup::joins);
    let gone = stand
        .sandbox
        .go(&theirs.given(), &joins.unwrap_or_default());
    gone.map_err(&failed)?;
    drop(theirs);
    await_readiness(stand, ends.stdout.as_fd(), variants, START_PATIENCE)?;
    Ok(ends)
}

/// Gives it its word, and returns when it has that: how long it is, and what [`Errand::written`] says.
pub(crate) fn tell(
    stand: &Stand,
    ends: &Ends,
    errand: &Errand,
    variants: Variants,
) -> Result<(), EngineError> {
    let failed = EngineError::system("tell a waiting interpreter what to run");
    let written = errand.written();
    let length = u32::try_from(written.len()).map_err(|_| failed(Errno::TOOBIG))?;
    if written.len() > MOST_WRITTEN {
        return Err(failed(Errno::TOOBIG));
    }
    let word = [&length.to_le_bytes()[..], &written].concat();
    match rustix::io::write(&ends.stdin, &word) {
        Ok(all) if all == word.len() => {}
        Ok(_) => return Err(failed(Errno::AGAIN)),
        Err(errno) => return Err(failed(errno)),
    }
    await_readiness(stand, ends.stdout.as_fd(), variants, WORD_PATIENCE)
}

fn await_readiness(
    stand: &Stand,
    stdout: BorrowedFd<'_>,
    variants: Variants,
    patience: Duration,
) -> Result<(), EngineError> {
    let failed = EngineError::system(DOING);
    let until = Instant::now() + patience;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(failed(Errno::TIMEDOUT));
        }
        let listener = stand.told.iter().find_map(|event| match event {
            Event::Listener { fd } => Some(fd),
            _ => None,
        });
        let fds = [Some(stand.sandbox.control()), Some(stdout)];
        let fds = fds.into_iter().chain([listener.map(OwnedFd::as_fd)]);
        let mut fds: Vec<PollFd<'_>> = fds
            .flatten()
            .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN))
            .collect();
        match rustix::event::poll(&mut fds, Timespec::try_from(left).ok().as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(failed(errno)),
        }
        match stand.sandbox.receive() {
            // From here on it is a program; its time begins when it has something to do.
            Ok(Some(Event::Started { .. })) | Err(Errno::AGAIN | Errno::INTR) => {}
            Ok(_) => return Err(failed(Errno::CHILD)),
            Err(errno) => return Err(failed(errno)),
        }
        if let Some(listener) = listener {
            answer(listener.as_fd(), variants);
        }
        let mut said = [0; READY.len()];
        match rustix::io::read(stdout, &mut said) {
            Ok(1) if said == *READY => return Ok(()),
            Ok(_) => return Err(failed(Errno::CHILD)),
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(errno) => return Err(failed(errno)),
        }
    }
}

/// As in a run, but counted nowhere: what an interpreter tries while it starts is nobody's.
fn answer(listener: BorrowedFd<'_>, variants: Variants) {
    let mut asked = [PollFd::from_borrowed_fd(listener, PollFlags::IN)];
    let has_asked = rustix::event::poll(&mut asked, Some(&Timespec::default())) == Ok(1);
    if !has_asked || !asked[0].revents().contains(PollFlags::IN) {
        return;
    }
    if let Ok(Received::Call(call)) = seccomp::receive(listener) {
        let _ = match call.shared_mapping() {
            Some(_) => seccomp::let_through(listener, call.id),
            None => {
                let errno = seccomp::errno_for(call.number, variants);
                seccomp::respond(listener, call.id, errno)
            }
        };
    }
}
