//! What a tool says: to whoever looks on while it says it, into memory for reading afterwards, and counted where it tells of tests line by line.

use std::io::{self, Read as _};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread::JoinHandle;

use cofferdam_contract::ending::Stream;
use cofferdam_project::report::Tally;
use rustix::pipe::PipeFlags;

use crate::watcher::Watcher;

/// What is done with a stream besides keeping it.
#[derive(Debug)]
pub(crate) struct Listening {
    pub(crate) stream: Stream,
    /// Whether people are meant.
    pub(crate) shown: Shown,
    /// Counts what ends, where this stream tells it.
    pub(crate) tally: Option<Tally>,
    pub(crate) to: Arc<dyn Watcher>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shown {
    Yes,
    No,
}

/// A stream that is being listened to. Ends when the other end is closed.
#[derive(Debug)]
pub(crate) struct Tee {
    listener: JoinHandle<Vec<u8>>,
}

impl Tee {
    /// The end that is written to, and who listens.
    pub(crate) fn new(listening: Listening, at_most: usize) -> io::Result<(OwnedFd, Self)> {
        let (read, write) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
        let listener = std::thread::Builder::new()
            .name("tee".to_owned())
            .spawn(move || listen(read.into(), listening, at_most))?;
        Ok((write, Self { listener }))
    }

    /// All that was said, as far as it is kept.
    pub(crate) fn said(self) -> Vec<u8> {
        self.listener.join().unwrap_or_default()
    }
}

fn listen(mut from: std::fs::File, mut listening: Listening, at_most: usize) -> Vec<u8> {
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
        if listening.shown == Shown::Yes {
            listening.to.said(listening.stream, said);
        }
        if let Some(tally) = &mut listening.tally {
            let before = tally.counts();
            tally.push(said);
            if tally.counts() != before {
                listening.to.counted(tally.counts());
            }
        }
        let room = at_most.saturating_sub(kept.len());
        kept.extend_from_slice(said.get(..room.min(read)).unwrap_or_default());
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::sync::Mutex;

    use cofferdam_contract::record::RunRecord;
    use cofferdam_engine::pipeline::Recording;
    use cofferdam_project::report::{Counts, Format};

    use super::*;
    use crate::error::WorkError;
    use crate::watcher::Begun;

    #[derive(Debug, Default)]
    struct Notes {
        said: Mutex<Vec<u8>>,
        counted: Mutex<Vec<Counts>>,
    }

    impl Watcher for Notes {
        fn recording(&self) -> Result<Option<Recording>, WorkError> {
            Ok(None)
        }

        fn began(&self, _: &Begun<'_>) {}

        fn said(&self, _: Stream, bytes: &[u8]) {
            self.said.lock().unwrap().extend_from_slice(bytes);
        }

        fn counted(&self, counts: Counts) {
            self.counted.lock().unwrap().push(counts);
        }

        fn ended(&self, _: &RunRecord) {}
    }

    fn listening(to: &Arc<Notes>, shown: Shown, tally: Option<Tally>) -> Listening {
        Listening {
            stream: Stream::Stdout,
            shown,
            tally,
            to: Arc::clone(to) as Arc<dyn Watcher>,
        }
    }

    #[test]
    fn what_is_said_is_kept_up_to_the_bound_and_the_speaker_never_waits() {
        let notes = Arc::new(Notes::default());
        let (to, tee) = Tee::new(listening(&notes, Shown::No, None), 10).unwrap();
        let mut to = std::fs::File::from(to);
        to.write_all(&vec![b'x'; 1 << 20]).unwrap();
        drop(to);
        assert_eq!(tee.said(), b"xxxxxxxxxx");
        assert!(notes.said.lock().unwrap().is_empty());
    }

    #[test]
    fn tests_are_counted_as_they_end_whatever_the_pieces_are() {
        let notes = Arc::new(Notes::default());
        let tally = Tally::of(Format::Tap);
        let (to, tee) = Tee::new(listening(&notes, Shown::Yes, tally), 1000).unwrap();
        let mut to = std::fs::File::from(to);
        let pieces = ["ok 1 - a\nnot o", "k 2 - b\n", "ok 3 - c # SKIP\n"];
        for piece in pieces {
            to.write_all(piece.as_bytes()).unwrap();
        }
        drop(to);
        assert_eq!(tee.said(), pieces.concat().as_bytes());
        assert_eq!(*notes.said.lock().unwrap(), pieces.concat().as_bytes());
        let last = notes.counted.lock().unwrap().last().copied().unwrap();
        assert_eq!((last.passed, last.failed, last.skipped), (1, 1, 1));
    }
}
