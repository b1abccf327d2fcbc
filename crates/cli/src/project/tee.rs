//! What a tool says, to a person while it says it and into memory for reading afterwards.

use std::io::{self, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::thread::JoinHandle;

use rustix::pipe::PipeFlags;

/// Whether anybody looks on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Show {
    /// On standard error: standard output is for what came of it.
    Person,
    Nobody,
}

/// A stream that is being listened to. Ends when the other end is closed.
#[derive(Debug)]
pub(super) struct Tee {
    listener: JoinHandle<Vec<u8>>,
}

impl Tee {
    /// The end that is written to, and who listens.
    pub(super) fn new(show: Show, at_most: usize) -> io::Result<(OwnedFd, Self)> {
        let (read, write) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
        let listener = std::thread::Builder::new()
            .name("tee".to_owned())
            .spawn(move || listen(read.into(), show, at_most))?;
        Ok((write, Self { listener }))
    }

    /// All that was said, as far as it is kept.
    pub(super) fn said(self) -> Vec<u8> {
        self.listener.join().unwrap_or_default()
    }
}

fn listen(mut from: std::fs::File, show: Show, at_most: usize) -> Vec<u8> {
    let mut kept = Vec::new();
    let mut piece = vec![0; 64 << 10];
    loop {
        let read = match from.read(&mut piece) {
            Ok(0) => return kept,
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(_) => return kept,
        };
        let said = piece.get(..read).unwrap_or_default();
        if show == Show::Person {
            // A person who has gone away is no reason to stop the tool.
            let _ = io::stderr().write_all(said);
        }
        let room = at_most.saturating_sub(kept.len());
        kept.extend_from_slice(said.get(..room.min(read)).unwrap_or_default());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_kept_up_to_the_bound_and_the_speaker_never_waits() {
        let (to, tee) = Tee::new(Show::Nobody, 10).unwrap();
        let mut to = std::fs::File::from(to);
        to.write_all(&vec![b'x'; 1 << 20]).unwrap();
        drop(to);
        assert_eq!(tee.said(), b"xxxxxxxxxx");
    }
}
