//! Keeping a part of some output when it is longer than allowed.
//!
//! The result with its markers never exceeds the limit, so truncating it again changes nothing. Where something was removed, a line says how much:
//! `[TRUNCATED: 123 bytes removed]`. No character of valid UTF-8 is cut in two. A limit under [`SMALLEST_MARKED`] bytes leaves no room for a marker: then only the beginning is kept
//! (of `tail`, the end), without one.

mod chosen;
mod smart;

use std::fmt;
use std::iter::once;
use std::ops::Range;
use std::str::FromStr;

use memchr::{memchr, memrchr};

use crate::StoreError;

/// Under this limit there are no markers.
pub const SMALLEST_MARKED: usize = 128;

/// Which part is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Strategy {
    /// All of it, whatever the limit.
    None,
    /// The beginning.
    Head,
    /// The end.
    Tail,
    /// The first and last lines, and what looks like errors between them.
    #[default]
    Smart,
}

/// A part of the result, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    /// These bytes of the input. Never empty.
    Kept(Range<usize>),
    /// A line that says how much was removed here, with the line ends that make it one.
    Marker(String),
}

/// Some output, cut.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Truncated {
    pub bytes: Vec<u8>,
    /// How many bytes of the input are not in it.
    pub removed: u64,
}

/// What to keep of `bytes`, so that it takes at most `limit` bytes with its markers.
pub fn plan(bytes: &[u8], limit: usize, strategy: Strategy) -> Vec<Piece> {
    if bytes.len() <= limit || strategy == Strategy::None {
        return with_markers(bytes, once(0..bytes.len()));
    }
    if limit < SMALLEST_MARKED {
        let kept = match strategy {
            Strategy::Tail => ceil_char(bytes, bytes.len() - limit)..bytes.len(),
            Strategy::None | Strategy::Head | Strategy::Smart => 0..floor_char(bytes, limit),
        };
        return kept_only(kept);
    }
    let room = limit - longest_marker(bytes.len());
    let kept = match strategy {
        Strategy::None => 0..bytes.len(),
        Strategy::Head => 0..head_end(bytes, room),
        Strategy::Tail => tail_start(bytes, room)..bytes.len(),
        Strategy::Smart => return with_markers(bytes, smart::choose(bytes, limit)),
    };
    with_markers(bytes, once(kept))
}

pub fn truncate(bytes: &[u8], limit: usize, strategy: Strategy) -> Truncated {
    let mut kept = Vec::with_capacity(limit.min(bytes.len()));
    let mut of_input = 0;
    for piece in plan(bytes, limit, strategy) {
        match piece {
            Piece::Kept(range) => {
                of_input += range.len();
                kept.extend_from_slice(bytes.get(range).unwrap_or_default());
            }
            Piece::Marker(marker) => kept.extend_from_slice(marker.as_bytes()),
        }
    }
    let removed = u64::try_from(bytes.len() - of_input).unwrap_or(u64::MAX);
    Truncated {
        bytes: kept,
        removed,
    }
}

fn kept_only(kept: Range<usize>) -> Vec<Piece> {
    match kept.is_empty() {
        true => Vec::new(),
        false => vec![Piece::Kept(kept)],
    }
}

/// The ranges in order, with a marker for each gap.
fn with_markers(bytes: &[u8], kept: impl IntoIterator<Item = Range<usize>>) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let mut done = 0;
    for range in kept.into_iter().filter(|range| !range.is_empty()) {
        if range.start > done {
            pieces.push(marker(bytes, done, range.start - done));
        }
        done = range.end;
        pieces.push(Piece::Kept(range));
    }
    if done < bytes.len() {
        pieces.push(marker(bytes, done, bytes.len() - done));
    }
    pieces
}

fn marker(bytes: &[u8], at: usize, removed: usize) -> Piece {
    let before = at.checked_sub(1).and_then(|before| bytes.get(before));
    let line_end = match before {
        None | Some(b'\n') => "",
        Some(_) => "\n",
    };
    Piece::Marker(format!("{line_end}[TRUNCATED: {removed} bytes removed]\n"))
}

/// What a marker takes at most in an input of this length.
fn longest_marker(length: usize) -> usize {
    let digits = usize::try_from(length.max(1).ilog10()).unwrap_or(20) + 1;
    "\n[TRUNCATED:  bytes removed]\n".len() + digits
}

/// The end of the last line that fits, or of the last character if that line would cost more than half of the room.
fn head_end(bytes: &[u8], room: usize) -> usize {
    let end = floor_char(bytes, room);
    match memrchr(b'\n', bytes.get(..end).unwrap_or_default()) {
        Some(line_end) if line_end >= end / 2 => line_end + 1,
        _ => end,
    }
}

fn tail_start(bytes: &[u8], room: usize) -> usize {
    let start = ceil_char(bytes, bytes.len() - room.min(bytes.len()));
    // The byte before it may end a line, and then this is where the next one starts.
    let from = start.saturating_sub(1);
    match memchr(b'\n', bytes.get(from..).unwrap_or_default()) {
        Some(offset) if offset <= room / 2 => (from + offset + 1).max(start),
        _ => start,
    }
}

/// The greatest place up to `at` that is not within a character.
fn floor_char(bytes: &[u8], at: usize) -> usize {
    character_around(bytes, at).map_or(at.min(bytes.len()), |character| character.start)
}

/// The least place from `at` on that is not within a character.
fn ceil_char(bytes: &[u8], at: usize) -> usize {
    character_around(bytes, at).map_or(at.min(bytes.len()), |character| character.end)
}

/// The valid character that a cut at `at` would break.
fn character_around(bytes: &[u8], at: usize) -> Option<Range<usize>> {
    for start in (at.saturating_sub(3)..at).rev() {
        let length = match bytes.get(start)? {
            0x80..=0xbf => continue,
            0xc2..=0xdf => 2,
            0xe0..=0xef => 3,
            0xf0..=0xf4 => 4,
            _ => return None,
        };
        let end = start + length;
        let valid = std::str::from_utf8(bytes.get(start..end)?).is_ok();
        return (valid && end > at).then_some(start..end);
    }
    None
}

impl Strategy {
    pub const ALL: [Self; 4] = [Self::None, Self::Head, Self::Tail, Self::Smart];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Head => "head",
            Self::Tail => "tail",
            Self::Smart => "smart",
        }
    }
}

impl fmt::Display for Strategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for Strategy {
    type Err = StoreError;

    fn from_str(text: &str) -> Result<Self, StoreError> {
        let known = Self::ALL
            .into_iter()
            .find(|strategy| strategy.as_str() == text);
        known.ok_or_else(|| StoreError::Invalid {
            field: "truncation",
            value: text.to_owned(),
            why: "must be one of none, head, tail, smart".to_owned(),
        })
    }
}

#[cfg(test)]
mod tests;
