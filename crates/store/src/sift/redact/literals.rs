//! Known secret values over a stream. Finds each of them wherever it stands; where two overlap, both go.

use memchr::memmem::{self, Finder};

use super::bytes::{Flow, MARK};

/// A hit that touches a placeholder is none, so what is this close to it has to be seen.
const AROUND: usize = MARK.len() - 1;

/// The state between two pieces of input.
#[derive(Debug)]
pub(super) struct Literals {
    buffer: Vec<u8>,
    emitted: usize,
    /// Up to here everything belongs to a secret that was already replaced.
    covered: usize,
    /// For each value: where it has still to be looked for.
    next: Vec<usize>,
    /// Found, and not yet replaced.
    hits: Vec<(usize, usize)>,
    longest: usize,
    count: u64,
}

impl Literals {
    pub(super) fn new(values: &[Finder<'static>]) -> Self {
        let longest = values.iter().map(|value| value.needle().len()).max();
        Self {
            buffer: Vec::new(),
            emitted: 0,
            covered: 0,
            next: vec![0; values.len()],
            hits: Vec::new(),
            longest: longest.unwrap_or(0),
            count: 0,
        }
    }

    pub(super) fn count(&self) -> u64 {
        self.count
    }

    #[cfg(test)]
    pub(super) fn held(&self) -> usize {
        self.buffer.len() - self.emitted
    }

    pub(super) fn work(
        &mut self,
        values: &[Finder<'static>],
        input: &[u8],
        flow: Flow,
        out: &mut Vec<u8>,
    ) {
        self.buffer.extend_from_slice(input);
        self.look(values);
        let length = self.buffer.len();
        let ready = match flow {
            Flow::Open => {
                // No value has a line end in it.
                let lines = self.buffer.get(self.emitted..).unwrap_or_default();
                let ended = memchr::memrchr(b'\n', lines).map_or(0, |at| self.emitted + at + 1);
                ended.max(length.saturating_sub(self.longest + AROUND))
            }
            Flow::Ended => length,
        };
        self.replace(ready, out);
        self.emit(ready, out);
        self.forget();
    }

    fn look(&mut self, values: &[Finder<'static>]) {
        for (value, next) in values.iter().zip(&mut self.next) {
            while let Some(offset) = value.find(self.buffer.get(*next..).unwrap_or_default()) {
                let start = *next + offset;
                *next = start + value.needle().len();
                self.hits.push((start, *next));
            }
            let seen = (self.buffer.len() + 1).saturating_sub(value.needle().len());
            *next = seen.max(*next);
        }
        self.hits.sort_unstable();
    }

    /// Puts placeholders for the hits that begin before `ready`: no other can begin there any more.
    fn replace(&mut self, ready: usize, out: &mut Vec<u8>) {
        let due = self.hits.partition_point(|(start, _)| *start < ready);
        let hits: Vec<_> = self.hits.drain(..due).collect();
        for (start, end) in hits {
            if self.touches_placeholder(start, end) {
                continue;
            }
            if start >= self.covered {
                self.emit(start, out);
                out.extend_from_slice(MARK);
                self.count += 1;
            }
            self.covered = self.covered.max(end);
        }
    }

    fn touches_placeholder(&self, start: usize, end: usize) -> bool {
        let end = (end + AROUND).min(self.buffer.len());
        let around = self.buffer.get(start.saturating_sub(AROUND)..end);
        around.is_some_and(|around| memmem::find(around, MARK).is_some())
    }

    fn emit(&mut self, to: usize, out: &mut Vec<u8>) {
        let from = self.emitted.max(self.covered.min(to));
        out.extend_from_slice(self.buffer.get(from..to).unwrap_or_default());
        self.emitted = self.emitted.max(to);
    }

    fn forget(&mut self) {
        let useless = self.emitted.saturating_sub(AROUND);
        self.buffer.drain(..useless);
        self.emitted -= useless;
        self.covered = self.covered.saturating_sub(useless);
        for next in &mut self.next {
            *next = next.saturating_sub(useless);
        }
        for (start, end) in &mut self.hits {
            *start -= useless;
            *end -= useless;
        }
    }
}
