//! The streams between a program and whoever supervises it.

use std::os::fd::{AsFd as _, OwnedFd};

use cofferdam_sys::protocol::Given;
use rustix::fs::{Gid, OFlags, Uid};
use rustix::pipe::PipeFlags;

use crate::error::EngineError;
use crate::plan::Channel;

/// The program's ends.
#[derive(Debug)]
pub(crate) struct Theirs {
    stdin: OwnedFd,
    stdout: OwnedFd,
    stderr: OwnedFd,
    result: Option<OwnedFd>,
}

/// The supervisor's ends, none of which blocks.
#[derive(Debug)]
pub(crate) struct Ends {
    pub(crate) stdin: OwnedFd,
    pub(crate) stdout: OwnedFd,
    pub(crate) stderr: OwnedFd,
    pub(crate) result: Option<OwnedFd>,
}

pub(crate) fn make(channel: Channel) -> Result<(Theirs, Ends), EngineError> {
    let ((stdin, feed), (stdout, out), (stderr, err)) =
        (pipe(Ours::Write)?, pipe(Ours::Read)?, pipe(Ours::Read)?);
    let (theirs, answer) = match channel {
        Channel::Open => {
            let (theirs, ours) = pipe(Ours::Read)?;
            (Some(theirs), Some(ours))
        }
        Channel::None => (None, None),
    };
    let theirs = Theirs {
        stdin,
        stdout,
        stderr,
        result: theirs,
    };
    let ours = Ends {
        stdin: feed,
        stdout: out,
        stderr: err,
        result: answer,
    };
    Ok((theirs, ours))
}

impl Theirs {
    pub(crate) fn given(&self) -> Given<'_> {
        Given {
            stdio: [&self.stdin, &self.stdout, &self.stderr].map(|end| end.as_fd()),
            result: self.result.as_ref().map(|end| end.as_fd()),
        }
    }

    /// A pipe belongs to whoever makes it; the program could not open `/dev/stdout` if that were somebody else.
    pub(crate) fn hand_over(&self, uid: u32, gid: u32) -> Result<(), EngineError> {
        let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
        let ends = [&self.stdin, &self.stdout, &self.stderr];
        for end in ends.into_iter().chain(&self.result) {
            rustix::fs::fchown(end, Some(uid), Some(gid))
                .map_err(EngineError::system("hand over a pipe"))?;
        }
        Ok(())
    }
}

/// Which end of a pipe stays with the supervisor; that end never blocks.
enum Ours {
    Read,
    Write,
}

/// The program's end first, ours second.
fn pipe(ours: Ours) -> Result<(OwnedFd, OwnedFd), EngineError> {
    let failed = EngineError::system("make a pipe");
    let (read, write) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC).map_err(&failed)?;
    let (theirs, ours) = match ours {
        Ours::Read => (write, read),
        Ours::Write => (read, write),
    };
    rustix::fs::fcntl_setfl(&ours, OFlags::NONBLOCK).map_err(&failed)?;
    Ok((theirs, ours))
}
