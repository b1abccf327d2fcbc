//! Which lines matter when not all can be kept: the first and last five, those that tell of errors with ten lines around each, then warnings, then more of the beginning and the end.

use std::ops::Range;

use memchr::{memchr, memchr_iter, memmem, memrchr, memrchr_iter};

use super::chosen::{Added, Chosen};
use super::{ceil_char, floor_char, longest_marker};

const EDGE_LINES: usize = 5;

/// How many lines are kept before and after an error: as many as there is room for.
const CONTEXT_LINES: [usize; 4] = [0, 2, 5, 10];

/// A line that is longer than this is kept to here, and ten lines on one side of an error to twice as much.
const LONG_LINE: usize = 1024;

const ERRORS: [&str; 12] = [
    "ERROR",
    "FAIL",
    "FATAL",
    "fatal:",
    "Exception",
    "panic",
    "Traceback",
    "Error:",
    "error:",
    "error[",
    "Segmentation fault",
    "Assertion",
];
const WARNINGS: [&str; 4] = ["WARN", "warning:", "Warning", "warn:"];

pub(super) fn choose(bytes: &[u8], limit: usize) -> Vec<Range<usize>> {
    let marker = longest_marker(bytes.len());
    let mut chosen = Chosen::new(bytes.len(), marker, limit);
    // Neither may take what the other and two markers need.
    let edge = limit.saturating_sub(2 * marker) / 3;
    chosen.add(0..first_lines(bytes, edge));
    chosen.add(last_lines(bytes, edge)..bytes.len());
    let most = limit / marker + 1;
    let errors = lines_with(bytes, &ERRORS, most);
    if add_errors(&mut chosen, bytes, &errors) == Added::Yes {
        let warnings = lines_with(bytes, &WARNINGS, most);
        add_all(&mut chosen, &warnings, |line| clipped(bytes, line));
    }
    grow(&mut chosen, bytes);
    chosen.into_ranges()
}

/// All errors with a little around them before any with more.
fn add_errors(chosen: &mut Chosen, bytes: &[u8], errors: &[Range<usize>]) -> Added {
    for lines in CONTEXT_LINES {
        let added = add_all(chosen, errors, |line| with_context(bytes, line, lines));
        if added == Added::TooMuch {
            return added;
        }
    }
    Added::Yes
}

/// In order, until the first that does not fit: what comes first is most often the cause.
fn add_all(
    chosen: &mut Chosen,
    lines: &[Range<usize>],
    range: impl Fn(&Range<usize>) -> Range<usize>,
) -> Added {
    for line in lines {
        if chosen.add(range(line)) == Added::TooMuch {
            return Added::TooMuch;
        }
    }
    Added::Yes
}

/// The remaining room, half at the beginning and the rest at the end.
fn grow(chosen: &mut Chosen, bytes: &[u8]) {
    for part in [2, 1] {
        let (head, tail) = chosen.edges();
        let more = chosen.room() / part;
        match part {
            2 => chosen.add(0..whole_lines_to(bytes, head, head + more)),
            _ => chosen.add(whole_lines_from(bytes, tail.saturating_sub(more), tail)..bytes.len()),
        };
    }
}

/// Back from `to` to the end of a line, if there is one after `from`; else to the end of a character.
fn whole_lines_to(bytes: &[u8], from: usize, to: usize) -> usize {
    let to = floor_char(bytes, to.min(bytes.len()));
    let new = bytes.get(from..to).unwrap_or_default();
    memrchr(b'\n', new).map_or(to, |offset| from + offset + 1)
}

fn whole_lines_from(bytes: &[u8], from: usize, to: usize) -> usize {
    let from = ceil_char(bytes, from);
    let new = bytes.get(from..to).unwrap_or_default();
    match memchr(b'\n', new) {
        Some(offset) if from + offset + 1 < to => from + offset + 1,
        _ => from,
    }
}

fn first_lines(bytes: &[u8], most: usize) -> usize {
    let most = most.min(bytes.len());
    let fifth = memchr_iter(b'\n', bytes.get(..most).unwrap_or_default()).nth(EDGE_LINES - 1);
    fifth.map_or_else(|| floor_char(bytes, most), |end| end + 1)
}

fn last_lines(bytes: &[u8], most: usize) -> usize {
    let from = bytes.len().saturating_sub(most);
    let tail = bytes.get(from..).unwrap_or_default();
    let tail = tail.strip_suffix(b"\n").unwrap_or(tail);
    let before = memrchr_iter(b'\n', tail).nth(EDGE_LINES - 1);
    before.map_or_else(|| ceil_char(bytes, from), |end| from + end + 1)
}

/// The lines that contain one of the words, in order; of each word at most `most` lines. Each line is passed once for each word.
fn lines_with(bytes: &[u8], words: &[&str], most: usize) -> Vec<Range<usize>> {
    let mut lines = Vec::new();
    for word in words {
        let finder = memmem::Finder::new(word);
        let mut from = 0;
        let mut left = most;
        while left > 0
            && let Some(offset) = finder.find(bytes.get(from..).unwrap_or_default())
        {
            let hit = from + offset;
            let start = memrchr(b'\n', bytes.get(from..hit).unwrap_or_default());
            let start = start.map_or(from, |end| from + end + 1);
            let end = memchr(b'\n', bytes.get(hit..).unwrap_or_default());
            let end = end.map_or(bytes.len(), |offset| hit + offset + 1);
            lines.push((start, end, hit));
            from = end;
            left -= 1;
        }
    }
    lines.sort_unstable();
    lines.dedup_by_key(|(start, ..)| *start);
    lines
        .into_iter()
        .map(|(start, end, hit)| around_hit(bytes, start..end, hit))
        .collect()
}

/// Of a long line, the part with the word in it.
fn around_hit(bytes: &[u8], line: Range<usize>, hit: usize) -> Range<usize> {
    if line.len() <= LONG_LINE || hit - line.start < LONG_LINE / 2 {
        return line;
    }
    ceil_char(bytes, hit - LONG_LINE / 4)..line.end
}

fn clipped(bytes: &[u8], line: &Range<usize>) -> Range<usize> {
    match line.len() > LONG_LINE {
        true => line.start..floor_char(bytes, line.start + LONG_LINE),
        false => line.clone(),
    }
}

fn with_context(bytes: &[u8], line: &Range<usize>, lines: usize) -> Range<usize> {
    let line = clipped(bytes, line);
    let Some(last) = lines.checked_sub(1) else {
        return line;
    };
    let least = line.start.saturating_sub(2 * LONG_LINE);
    let before = bytes.get(least..line.start).unwrap_or_default();
    // The line end just before belongs to the line before, so one more is passed.
    let start = memrchr_iter(b'\n', before).nth(lines);
    let start = start.map_or_else(|| ceil_char(bytes, least), |end| least + end + 1);
    let most = (line.end + 2 * LONG_LINE).min(bytes.len());
    let after = bytes.get(line.end..most).unwrap_or_default();
    let end = memchr_iter(b'\n', after).nth(last);
    let end = end.map_or_else(|| floor_char(bytes, most), |end| line.end + end + 1);
    start..end.max(line.end)
}
