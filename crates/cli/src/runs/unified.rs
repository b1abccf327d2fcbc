//! Two outputs compared line by line. Bounded: what is too large or takes too long is only said to differ.

use std::time::{Duration, Instant};

use serde::Serialize;
use similar::{ChangeTag, TextDiff};

use super::binary;

/// One stream of two runs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct StreamDiff {
    pub(crate) same: bool,
    pub(crate) a_bytes: u64,
    pub(crate) b_bytes: u64,
    /// What the programs wrote beyond that, and what is not kept. It is not compared.
    pub(crate) a_not_kept: u64,
    pub(crate) b_not_kept: u64,
    pub(crate) hunks: Vec<Hunk>,
    /// Why there are no lines, though they differ.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) not_shown: Option<NotShown>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum NotShown {
    Binary,
    TooLarge,
    TooSlow,
    /// The lines look alike: they differ in bytes that are not text.
    NotText,
}

/// Changes that stand near each other, with the lines around them.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Hunk {
    /// `@@ -1,3 +1,4 @@`.
    pub(crate) header: String,
    pub(crate) lines: Vec<DiffLine>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct DiffLine {
    pub(crate) kind: LineKind,
    pub(crate) text: String,
    /// Only the last line of an output may lack one.
    pub(crate) newline: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) enum LineKind {
    #[serde(rename = " ")]
    Same,
    #[serde(rename = "-")]
    Removed,
    #[serde(rename = "+")]
    Added,
}

/// What may be spent on one stream.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    pub(crate) bytes: usize,
    /// Each line costs memory of its own.
    pub(crate) lines: usize,
    pub(crate) time: Duration,
}

impl Bounds {
    pub(crate) const USUAL: Self = Self {
        bytes: 16 << 20,
        lines: 500_000,
        time: Duration::from_secs(2),
    };

    fn are_exceeded_by(self, output: &[u8]) -> bool {
        let lines = || output.iter().filter(|byte| **byte == b'\n').count();
        output.len() > self.bytes || lines() > self.lines
    }
}

pub(crate) fn compare(a: &[u8], b: &[u8], context: usize, bounds: Bounds) -> StreamDiff {
    let mut diff = StreamDiff {
        same: a == b,
        a_bytes: u64::try_from(a.len()).unwrap_or(u64::MAX),
        b_bytes: u64::try_from(b.len()).unwrap_or(u64::MAX),
        a_not_kept: 0,
        b_not_kept: 0,
        hunks: Vec::new(),
        not_shown: None,
    };
    if diff.same {
        return diff;
    }
    if binary::is_binary(a) || binary::is_binary(b) {
        diff.not_shown = Some(NotShown::Binary);
    } else if bounds.are_exceeded_by(a) || bounds.are_exceeded_by(b) {
        diff.not_shown = Some(NotShown::TooLarge);
    } else {
        match hunks(a, b, context, bounds.time) {
            Some(hunks) if hunks.is_empty() => diff.not_shown = Some(NotShown::NotText),
            Some(hunks) => diff.hunks = hunks,
            None => diff.not_shown = Some(NotShown::TooSlow),
        }
    }
    diff
}

/// `None` when it took too long: what comes then is a diff, and a useless one.
fn hunks(a: &[u8], b: &[u8], context: usize, time: Duration) -> Option<Vec<Hunk>> {
    let (a, b) = (String::from_utf8_lossy(a), String::from_utf8_lossy(b));
    // A carriage return alone ends no line here.
    let (a, b): (Vec<&str>, Vec<&str>) = (
        a.split_inclusive('\n').collect(),
        b.split_inclusive('\n').collect(),
    );
    let began = Instant::now();
    let diff = TextDiff::configure()
        .timeout(time)
        .newline_terminated(true)
        .diff_slices(&a, &b);
    if began.elapsed() >= time {
        return None;
    }
    let mut unified = diff.unified_diff();
    unified.context_radius(context);
    let hunks = unified.iter_hunks().map(|hunk| Hunk {
        header: hunk.header().to_string(),
        lines: hunk
            .iter_changes()
            .map(|change| line(change.tag(), change.value()))
            .collect(),
    });
    Some(hunks.collect())
}

fn line(tag: ChangeTag, text: &str) -> DiffLine {
    let kind = match tag {
        ChangeTag::Equal => LineKind::Same,
        ChangeTag::Delete => LineKind::Removed,
        ChangeTag::Insert => LineKind::Added,
    };
    let content = text.strip_suffix('\n');
    DiffLine {
        kind,
        text: content.unwrap_or(text).to_owned(),
        newline: content.is_some(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// No pause of a busy machine is too slow for it.
    const PATIENT: Bounds = Bounds {
        time: Duration::from_secs(3600),
        ..Bounds::USUAL
    };

    fn diff(a: &[u8], b: &[u8]) -> StreamDiff {
        compare(a, b, 1, PATIENT)
    }

    fn shown(diff: &StreamDiff) -> Vec<String> {
        let of_hunk = |hunk: &Hunk| {
            let lines = hunk.lines.iter().map(|line| {
                let sign = match line.kind {
                    LineKind::Same => ' ',
                    LineKind::Removed => '-',
                    LineKind::Added => '+',
                };
                format!("{sign}{}", line.text)
            });
            let header = std::iter::once(hunk.header.clone());
            header.chain(lines).collect::<Vec<_>>()
        };
        diff.hunks.iter().flat_map(of_hunk).collect()
    }

    #[test]
    fn changes_have_their_context() {
        let found = diff(b"1\n2\n3\n4\n5\n6\n7\n8\n", b"1\n2\nx\n4\n5\n6\n7\n");
        assert_eq!(
            shown(&found),
            [
                "@@ -2,3 +2,3 @@",
                " 2",
                "-3",
                "+x",
                " 4",
                "@@ -7,2 +7 @@",
                " 7",
                "-8"
            ]
        );
        assert!(!found.same && found.not_shown.is_none());
    }

    #[test]
    fn a_missing_newline_is_a_difference() {
        let found = diff(b"a\n", b"a");
        let newlines: Vec<bool> = found.hunks[0].lines.iter().map(|l| l.newline).collect();
        assert_eq!(newlines, [true, false]);
    }

    #[test]
    fn the_same_is_the_same() {
        let found = diff(b"a\0", b"a\0");
        assert!(found.same && found.hunks.is_empty() && found.not_shown.is_none());
    }

    #[test]
    fn what_cannot_be_shown_still_differs() {
        let why = |a: &[u8], b: &[u8]| diff(a, b).not_shown;
        assert_eq!(why(b"a\0b", b"text"), Some(NotShown::Binary));
        assert_eq!(why(b"\xff", b"\xfe"), Some(NotShown::NotText));
        let small = Bounds {
            bytes: 3,
            ..Bounds::USUAL
        };
        assert_eq!(
            compare(b"long", b"l", 3, small).not_shown,
            Some(NotShown::TooLarge)
        );
        let few = Bounds {
            lines: 1,
            ..Bounds::USUAL
        };
        assert_eq!(
            compare(b"a\n", b"\n\n", 3, few).not_shown,
            Some(NotShown::TooLarge)
        );
        let hurried = Bounds {
            time: Duration::ZERO,
            ..Bounds::USUAL
        };
        assert_eq!(
            compare(b"a\n", b"b\n", 3, hurried).not_shown,
            Some(NotShown::TooSlow)
        );
    }
}
