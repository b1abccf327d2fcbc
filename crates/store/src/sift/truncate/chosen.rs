//! The ranges chosen so far, and what they cost with the markers between them.

use std::collections::BTreeMap;
use std::ops::Range;

/// Ranges that do not touch, by their start. A gap that is no longer than its marker is kept instead.
pub(super) struct Chosen {
    ranges: BTreeMap<usize, usize>,
    kept: usize,
    length: usize,
    marker: usize,
    limit: usize,
}

impl Chosen {
    pub(super) fn new(length: usize, marker: usize, limit: usize) -> Self {
        Self {
            ranges: BTreeMap::new(),
            kept: 0,
            length,
            marker,
            limit,
        }
    }

    /// What could be added without a new gap.
    pub(super) fn room(&self) -> usize {
        self.limit
            .saturating_sub(self.kept + self.gaps() * self.marker)
    }

    /// Adds the range if everything still fits.
    pub(super) fn add(&mut self, range: Range<usize>) -> Added {
        let mut start = if range.start <= self.marker {
            0
        } else {
            range.start
        };
        let mut end = match self.length - range.end <= self.marker {
            true => self.length,
            false => range.end,
        };
        let reach = start.saturating_sub(self.marker);
        if let Some((&before, &before_end)) = self.ranges.range(..=start).next_back()
            && before_end >= reach
        {
            start = before;
            end = end.max(before_end);
        }
        let swallowed: Vec<(usize, usize)> = self
            .ranges
            .range(start..=end.saturating_add(self.marker))
            .map(|(&start, &end)| (start, end))
            .collect();
        let old: usize = swallowed.iter().map(|(start, end)| end - start).sum();
        end = swallowed.last().map_or(end, |(_, last)| end.max(*last));
        let kept = self.kept - old + (end - start);
        let inner = self.ranges.len() - swallowed.len();
        let first = self
            .ranges
            .first_key_value()
            .map_or(start, |(first, _)| start.min(*first));
        let last = self
            .ranges
            .last_key_value()
            .map_or(end, |(_, last)| end.max(*last));
        let gaps = inner + usize::from(first > 0) + usize::from(last < self.length);
        if kept + gaps * self.marker > self.limit {
            return Added::TooMuch;
        }
        for (start, _) in swallowed {
            self.ranges.remove(&start);
        }
        self.ranges.insert(start, end);
        self.kept = kept;
        Added::Yes
    }

    /// The end of the range that the input begins with, and the start of the one that it ends with.
    pub(super) fn edges(&self) -> (usize, usize) {
        let head = self.ranges.get(&0).copied().unwrap_or(0);
        let last = self.ranges.last_key_value();
        let tail = last.filter(|(_, end)| **end == self.length);
        (head, tail.map_or(self.length, |(start, _)| *start))
    }

    pub(super) fn into_ranges(self) -> Vec<Range<usize>> {
        self.ranges
            .into_iter()
            .map(|(start, end)| start..end)
            .collect()
    }

    fn gaps(&self) -> usize {
        let first = self.ranges.first_key_value().map_or(0, |(first, _)| *first);
        let last = self.ranges.last_key_value().map_or(0, |(_, last)| *last);
        let between = self.ranges.len().saturating_sub(1);
        between + usize::from(first > 0) + usize::from(last < self.length)
    }
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Added {
    Yes,
    TooMuch,
}
