//! The user's own patterns over a stream. A pattern sees one line at a time, without its line end.
//!
//! A line longer than 8 KiB is seen in windows of 8 KiB: what begins in the first half of one is replaced, and the next begins after that. So a match of up to 4 KiB is found wherever
//! it stands; a longer one in such a line may be cut into several or missed, and `^`, `$` and `\b` hold at the borders of a window too.

use memchr::{memchr, memmem};
use regex::bytes::Regex;

use super::bytes::{Flow, MARK};

pub(super) const WINDOW: usize = 8 * 1024;
const HALF: usize = WINDOW / 2;

/// The state between two pieces of input.
#[derive(Debug)]
pub(super) struct Patterns {
    /// The beginning of a line.
    buffer: Vec<u8>,
    count: u64,
}

impl Patterns {
    pub(super) fn new() -> Self {
        Self {
            buffer: Vec::new(),
            count: 0,
        }
    }

    pub(super) fn count(&self) -> u64 {
        self.count
    }

    #[cfg(test)]
    pub(super) fn held(&self) -> usize {
        self.buffer.len()
    }

    pub(super) fn work(&mut self, patterns: &[Regex], input: &[u8], flow: Flow, out: &mut Vec<u8>) {
        // Only what is new can end the line.
        for piece in input.chunks(HALF) {
            self.buffer.extend_from_slice(piece);
            if self.buffer.len() >= WINDOW || memchr(b'\n', piece).is_some() {
                self.take_lines(patterns, Flow::Open, out);
            }
        }
        if flow == Flow::Ended {
            self.take_lines(patterns, flow, out);
        }
    }

    fn take_lines(&mut self, patterns: &[Regex], flow: Flow, out: &mut Vec<u8>) {
        let buffer = std::mem::take(&mut self.buffer);
        let mut rest = buffer.as_slice();
        loop {
            let window = rest.get(..WINDOW).unwrap_or(rest);
            if let Some(end) = memchr(b'\n', window) {
                let (line, after) = rest.split_at_checked(end).unwrap_or((rest, &[]));
                self.replace(patterns, line, line.len(), out);
                out.push(b'\n');
                rest = after.get(1..).unwrap_or_default();
            } else if window.len() == WINDOW {
                let taken = self.replace(patterns, window, HALF, out);
                rest = rest.get(taken..).unwrap_or_default();
            } else {
                break;
            }
        }
        if flow == Flow::Ended {
            self.replace(patterns, rest, rest.len(), out);
            rest = &[];
        }
        self.buffer = rest.to_vec();
    }

    /// Replaces what begins in the first `most` bytes, and says how much of the text was taken.
    fn replace(
        &mut self,
        patterns: &[Regex],
        text: &[u8],
        most: usize,
        out: &mut Vec<u8>,
    ) -> usize {
        let mut done = 0;
        for (start, end) in matches(patterns, text) {
            if start >= most && start >= done {
                break;
            }
            if start >= done {
                out.extend_from_slice(text.get(done..start).unwrap_or_default());
                out.extend_from_slice(MARK);
                self.count += 1;
            }
            done = done.max(end);
        }
        if done < most {
            out.extend_from_slice(text.get(done..most).unwrap_or_default());
        }
        done.max(most)
    }
}

/// Every match of every pattern in order of its start. Patterns do not see placeholders: the text between them is matched piece by piece.
fn matches(patterns: &[Regex], text: &[u8]) -> Vec<(usize, usize)> {
    let mut found = Vec::new();
    let mut start = 0;
    loop {
        let rest = text.get(start..).unwrap_or_default();
        let length = memmem::find(rest, MARK);
        let piece = rest.get(..length.unwrap_or(rest.len())).unwrap_or_default();
        for hit in patterns.iter().flat_map(|pattern| pattern.find_iter(piece)) {
            if !hit.is_empty() {
                found.push((start + hit.start(), start + hit.end()));
            }
        }
        match length {
            Some(length) => start += length + MARK.len(),
            None => break,
        }
    }
    found.sort_unstable();
    found
}
