//! The name of a run: a UUID of version 7, so that names sort by the time at which runs began, and any unique beginning of one will do.

use std::fmt;
use std::str::FromStr;
use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::random;

/// The name of one run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RunId(Uuid);

/// A text that is not the name of a run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not the id of a run; `cofferdam runs list` shows them")]
pub struct NotARunId {
    pub text: String,
}

/// How many characters of an id name the millisecond: with fewer, neighbours in time look alike.
pub const SHORT: usize = 13;

impl RunId {
    /// A name for a run that begins now. The bits that a version 7 leaves to its maker begin with the fraction of the millisecond, so that runs of one moment sort as well.
    pub fn new() -> Self {
        let now = Timestamp::now();
        let milliseconds = u64::try_from(now.as_millisecond()).unwrap_or(0);
        let fraction = u32::try_from(now.subsec_nanosecond()).unwrap_or(0) % 1_000_000;
        // Of 4096 in a millisecond.
        let fraction = u16::try_from(u64::from(fraction) * 4096 / 1_000_000).unwrap_or(0);
        // Without any, the time alone still tells runs apart, unless two begin in the same quarter of a microsecond.
        let mut bytes: [u8; 10] = random::bytes().unwrap_or_default();
        bytes[..2].copy_from_slice(&fraction.to_be_bytes());
        Self(uuid::Builder::from_unix_timestamp_millis(milliseconds, &bytes).into_uuid())
    }

    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(Uuid::from_bytes(bytes))
    }

    pub const fn as_bytes(&self) -> &[u8; 16] {
        self.0.as_bytes()
    }

    /// When the name was made, by the clock of whoever made it.
    pub fn made_at(self) -> SystemTime {
        let [a, b, c, d, e, f, ..] = *self.as_bytes();
        let milliseconds = u64::from_be_bytes([0, 0, a, b, c, d, e, f]);
        SystemTime::UNIX_EPOCH + Duration::from_millis(milliseconds)
    }

    /// The smallest name that a run could have which began then: where a search by time begins.
    pub fn floor(at: Timestamp) -> Self {
        let milliseconds = u64::try_from(at.as_millisecond()).unwrap_or(0);
        let mut bytes = [0; 16];
        bytes[..6].copy_from_slice(&milliseconds.to_be_bytes()[2..]);
        Self::from_bytes(bytes)
    }

    /// The names that begin with `prefix` lie between these two, both included. `None` when no id can begin so.
    pub fn range_of_prefix(prefix: &str) -> Option<(Self, Self)> {
        let digits: Vec<char> = prefix.chars().filter(|c| *c != '-').collect();
        let is_hex = digits.iter().all(char::is_ascii_hexdigit);
        if digits.is_empty() || digits.len() > 32 || !is_hex || !dashes_fit(prefix) {
            return None;
        }
        let filled = |with: char| {
            let text: String = digits
                .iter()
                .copied()
                .chain(std::iter::repeat(with))
                .take(32)
                .collect();
            Uuid::try_parse(&text).ok().map(Self)
        };
        Some((filled('0')?, filled('f')?))
    }
}

/// Dashes may be left out altogether; where there are some, they stand where a UUID has them.
fn dashes_fit(prefix: &str) -> bool {
    let dashes: Vec<usize> = prefix.match_indices('-').map(|(at, _)| at).collect();
    let expected = [8, 13, 18, 23];
    dashes.is_empty() || expected.starts_with(&dashes)
}

impl Default for RunId {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.hyphenated().fmt(f)
    }
}

impl FromStr for RunId {
    type Err = NotARunId;

    fn from_str(text: &str) -> Result<Self, NotARunId> {
        Uuid::try_parse(text).map(Self).map_err(|_| NotARunId {
            text: text.to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_sort_by_time() {
        let early = RunId::floor(Timestamp::from_millisecond(1_700_000_000_000).unwrap());
        let late = RunId::floor(Timestamp::from_millisecond(1_700_000_000_001).unwrap());
        assert!(early < late);
        assert!(late < RunId::new());
        assert!(early.to_string() < late.to_string());
        let at = SystemTime::UNIX_EPOCH + Duration::from_millis(1_700_000_000_001);
        assert_eq!(late.made_at(), at);
    }

    #[test]
    fn a_prefix_is_a_range() {
        let id: RunId = "019a8c3e-7f2b-7abc-8def-0123456789ab".parse().unwrap();
        for prefix in [
            "0",
            "019a8c3e",
            "019a8c3e-7f2b",
            "019a8c3e7f2b7",
            &id.to_string(),
        ] {
            let (low, high) = RunId::range_of_prefix(prefix).unwrap();
            assert!(low <= id && id <= high, "{prefix}");
        }
        for nonsense in [
            "",
            "-",
            "xyz",
            "019-a8c3e",
            "019a8c3e-7f2b-7abc-8def-0123456789abc",
            "é",
        ] {
            assert_eq!(RunId::range_of_prefix(nonsense), None, "{nonsense}");
        }
    }
}
