//! Output cut into lines. A line belongs to one stream and may come in many pieces with others between them.

use cofferdam_contract::ending::Stream;
use cofferdam_store::log::Chunk;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Line {
    pub(crate) stream: Stream,
    /// When it began to come, in microseconds since the start.
    pub(crate) at_micros: u64,
    /// With its newline, unless it is the last and has none.
    pub(crate) bytes: Vec<u8>,
}

/// Takes pieces, gives lines as they are finished.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    stdout: Option<Line>,
    stderr: Option<Line>,
}

impl Line {
    /// Without its newline.
    pub(crate) fn content(&self) -> &[u8] {
        self.bytes.strip_suffix(b"\n").unwrap_or(&self.bytes)
    }
}

impl Lines {
    /// The lines that this piece finishes.
    pub(crate) fn push(&mut self, chunk: &Chunk) -> Vec<Line> {
        let open = match chunk.stream {
            Stream::Stdout => &mut self.stdout,
            Stream::Stderr => &mut self.stderr,
        };
        let mut finished = Vec::new();
        for part in chunk.bytes.split_inclusive(|byte| *byte == b'\n') {
            let line = open.get_or_insert_with(|| Line {
                stream: chunk.stream,
                at_micros: chunk.at_micros,
                bytes: Vec::new(),
            });
            line.bytes.extend_from_slice(part);
            if part.ends_with(b"\n") {
                finished.extend(open.take());
            }
        }
        finished
    }

    /// What came without a newline, the older first.
    pub(crate) fn finish(&mut self) -> Vec<Line> {
        let mut rest: Vec<Line> = [self.stdout.take(), self.stderr.take()]
            .into_iter()
            .flatten()
            .collect();
        rest.sort_by_key(|line| line.at_micros);
        rest
    }

    pub(crate) fn all(chunks: &[Chunk]) -> Vec<Line> {
        let mut lines = Self::default();
        let mut all: Vec<Line> = chunks.iter().flat_map(|chunk| lines.push(chunk)).collect();
        all.extend(lines.finish());
        all
    }
}

#[cfg(test)]
mod tests {
    use cofferdam_store::log;
    use proptest::prelude::*;

    use super::*;
    use crate::runs::sample::{err, out};

    fn texts(chunks: &[Chunk]) -> Vec<(Stream, u64, String)> {
        let shown = |line: Line| {
            let text = String::from_utf8_lossy(&line.bytes).into_owned();
            (line.stream, line.at_micros, text)
        };
        Lines::all(chunks).into_iter().map(shown).collect()
    }

    #[test]
    fn a_line_survives_being_torn_and_interleaved() {
        // The é is torn between two pieces, with a line of the other stream in between.
        let chunks = [
            out(1, b"one\ntw\xc3"),
            err(2, b"oops\nmo"),
            out(3, b"\xa9 \nthree"),
            err(4, b"re\n"),
        ];
        assert_eq!(
            texts(&chunks),
            [
                (Stream::Stdout, 1, "one\n".to_owned()),
                (Stream::Stderr, 2, "oops\n".to_owned()),
                (Stream::Stdout, 1, "twé \n".to_owned()),
                (Stream::Stderr, 2, "more\n".to_owned()),
                (Stream::Stdout, 3, "three".to_owned()),
            ]
        );
        assert_eq!(texts(&[out(1, b""), err(2, b"\n\n")]).len(), 2);
    }

    fn chunk() -> impl Strategy<Value = Chunk> {
        let bytes = proptest::collection::vec(prop_oneof![Just(b'\n'), any::<u8>()], 0..12);
        (any::<bool>(), bytes).prop_map(|(stdout, bytes)| match stdout {
            true => out(0, &bytes),
            false => err(0, &bytes),
        })
    }

    proptest! {
        #[test]
        fn no_byte_is_lost(chunks in proptest::collection::vec(chunk(), 0..12)) {
            let lines = Lines::all(&chunks);
            for stream in [Stream::Stdout, Stream::Stderr] {
                let mine = lines.iter().filter(|line| line.stream == stream);
                let joined: Vec<u8> = mine.flat_map(|line| line.bytes.clone()).collect();
                prop_assert_eq!(joined, log::stream(&chunks, stream));
            }
            prop_assert!(lines.iter().all(|line| !line.content().contains(&b'\n')));
        }
    }
}
