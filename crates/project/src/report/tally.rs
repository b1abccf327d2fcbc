//! How many tests have ended so far, from the formats that tell them one by one. Only numbers: what the tests were is read when all is there.

use std::collections::HashSet;

use serde::Deserialize;

use super::model::{Counts, Format, Status, parse};
use super::text;

/// Counts while a report is being written.
#[derive(Debug)]
pub struct Tally {
    format: Format,
    counts: Counts,
    /// The beginning of a line whose end has not come.
    line: Vec<u8>,
    /// Whether the rest of this line is passed by.
    is_long: bool,
    points: Points,
    /// Whether a test of unittest's has begun whose end stands on another line.
    is_begun: bool,
    /// Tests of `go` that have tests in them, which are not told twice.
    outer: HashSet<String>,
}

/// Longer lines tell of no test.
const LONGEST: usize = 64 << 10;
/// More names than these are not remembered.
const MOST_OUTER: usize = 100_000;
const MAX_LEVEL: usize = 64;

impl Tally {
    /// `None` for a format that is written only at the end.
    pub fn of(format: Format) -> Option<Self> {
        match format {
            Format::Tap
            | Format::GoJson
            | Format::LibtestText
            | Format::LibtestJson
            | Format::PytestText
            | Format::UnittestText
            | Format::Events
            | Format::VstestText => Some(Self {
                format,
                counts: Counts::default(),
                line: Vec::new(),
                is_long: false,
                points: Points::default(),
                is_begun: false,
                outer: HashSet::new(),
            }),
            Format::Trx | Format::Junit | Format::Jest | Format::Mocha => None,
        }
    }

    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Takes what has been written since, in whatever pieces it comes.
    pub fn push(&mut self, bytes: &[u8]) {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            let is_whole = piece.ends_with(b"\n");
            if !self.is_long {
                self.line.extend_from_slice(piece);
            }
            if self.line.len() > LONGEST {
                self.line.clear();
                self.is_long = true;
            }
            if is_whole {
                let line = std::mem::take(&mut self.line);
                if !std::mem::take(&mut self.is_long) {
                    self.whole(&line);
                }
            }
        }
    }

    fn whole(&mut self, line: &[u8]) {
        let ended = match self.format {
            Format::Tap => self.points.line(&String::from_utf8_lossy(line)),
            Format::GoJson => self.go(line),
            Format::UnittestText => self.unittest(&String::from_utf8_lossy(line)),
            format => parse(format, line)
                .ok()
                .and_then(|read| read.tests.first().map(|test| test.status)),
        };
        let Some(status) = ended else {
            return;
        };
        self.counts.one(status);
    }

    /// Explanations come in blocks at the end, and are no tests.
    fn unittest(&mut self, line: &str) -> Option<Status> {
        if self.is_begun && text::is_status_alone(line) {
            self.is_begun = false;
            return text::status(line);
        }
        let (_, word) = line.rsplit_once(" ... ")?;
        let status = text::status(word);
        self.is_begun = match status {
            Some(_) => false,
            None => self.is_begun || text::begins(line),
        };
        status
    }

    fn go(&mut self, line: &[u8]) -> Option<Status> {
        #[derive(Deserialize)]
        #[serde(rename_all = "PascalCase")]
        struct Event {
            action: String,
            #[serde(default)]
            package: String,
            test: Option<String>,
        }
        let event: Event = serde_json::from_slice(line).ok()?;
        let test = format!("{} {}", event.package, event.test?);
        if let Some((outer, _)) = test.rsplit_once('/').filter(|(outer, _)| {
            outer.contains(' ') && !self.outer.contains(*outer) && self.outer.len() < MOST_OUTER
        }) {
            self.outer.insert(outer.to_owned());
        }
        let status = match event.action.as_str() {
            "pass" => Status::Passed,
            "fail" => Status::Failed,
            "skip" => Status::Skipped,
            _ => return None,
        };
        (!self.outer.contains(&test)).then_some(status)
    }
}

/// The points of TAP: one that sums up those inside it is not one more.
#[derive(Debug, Default)]
struct Points {
    /// How many at each level still wait for the one that sums them up, and how many of them failed.
    waiting: Vec<(usize, usize)>,
    /// How far the block is indented that explains the last point.
    block: Option<usize>,
}

impl Points {
    fn line(&mut self, line: &str) -> Option<Status> {
        let indent = line.len() - line.trim_start_matches(' ').len();
        let rest = line.trim();
        if let Some(at) = self.block {
            if rest == "..." && indent <= at {
                self.block = None;
            }
            return None;
        }
        if rest == "---" {
            self.block = Some(indent);
            return None;
        }
        let (status, rest) = match rest.strip_prefix("not ok") {
            Some(rest) => (Status::Failed, rest),
            None => (Status::Passed, rest.strip_prefix("ok")?),
        };
        if !rest.is_empty() && !rest.starts_with(' ') {
            return None;
        }
        let level = (indent / 4).min(MAX_LEVEL);
        self.waiting
            .resize(self.waiting.len().max(level + 2), (0, 0));
        let (inside, failed) = self
            .waiting
            .get_mut(level + 1)
            .map(std::mem::take)
            .unwrap_or_default();
        if let Some((here, failed_here)) = self.waiting.get_mut(level) {
            *here += 1;
            *failed_here += usize::from(status == Status::Failed);
        }
        if inside > 0 && (status == Status::Passed || failed > 0) {
            return None;
        }
        let directive = rest.rsplit_once(" # ").map(|(_, text)| text.to_lowercase());
        let is_skipped =
            directive.is_some_and(|text| text.starts_with("skip") || text.starts_with("todo"));
        Some(if is_skipped { Status::Skipped } else { status })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In pieces of every size, and against what the whole report says.
    fn agrees(format: Format, text: &str) -> Counts {
        let whole = parse(format, text.as_bytes()).unwrap().counts();
        for size in [1, 7, 1000] {
            let mut tally = Tally::of(format).unwrap();
            for piece in text.as_bytes().chunks(size) {
                tally.push(piece);
            }
            assert_eq!(tally.counts(), whole, "{format:?} in pieces of {size}");
        }
        whole
    }

    #[test]
    fn what_is_counted_on_the_way_is_what_the_report_says_at_the_end() {
        let tap = "TAP version 13\n# Subtest: s\n    ok 1 - a\n      ---\n      duration_ms: 1\n      ok 9 - no point\n      ...\n    not ok 2 - b\n    1..2\nnot ok 1 - s\nok 2 - c # SKIP no\n1..2\n";
        assert_eq!(agrees(Format::Tap, tap).total, 3);
        let go = [
            r#"{"Action":"run","Package":"p","Test":"TestA"}"#,
            r#"{"Action":"run","Package":"p","Test":"TestA/x"}"#,
            r#"{"Action":"pass","Package":"p","Test":"TestA/x"}"#,
            r#"{"Action":"pass","Package":"p","Test":"TestA"}"#,
            r#"{"Action":"skip","Package":"q","Test":"TestA"}"#,
            r#"{"Action":"pass","Package":"p"}"#,
            "not an event",
            "",
        ]
        .join("\n");
        assert_eq!(agrees(Format::GoJson, &go).total, 2);
        let rust = "running 3 tests\ntest a ... ok\ntest b ... FAILED\ntest c ... ignored\n\nfailures:\n\n---- b stdout ----\nthread 'b' panicked at src/lib.rs:1:1:\nno\n\ntest result: FAILED. 1 passed; 1 failed\n";
        assert_eq!(agrees(Format::LibtestText, rust).failed, 1);
        let nextest = "{\"type\":\"test\",\"event\":\"started\",\"name\":\"a$b\"}\n{\"type\":\"test\",\"event\":\"ok\",\"name\":\"a$b\"}\n";
        assert_eq!(agrees(Format::LibtestJson, nextest).passed, 1);
        let pytest = "a.py::test_x PASSED [ 50%]\na.py::T::test_y FAILED [100%]\n";
        assert_eq!(agrees(Format::PytestText, pytest).total, 2);
        let unittest = "test_a (m.T.test_a) ... ok\ntest_b (m.T.test_b) ... FAIL\n\n======\nFAIL: test_b (m.T.test_b)\n------\nAssertionError\n";
        assert_eq!(agrees(Format::UnittestText, unittest).total, 2);
    }

    #[test]
    fn a_line_without_an_end_takes_no_memory() {
        let mut tally = Tally::of(Format::Tap).unwrap();
        for _ in 0..100 {
            tally.push(&[b'x'; 10_000]);
            assert!(tally.line.len() <= LONGEST);
        }
        tally.push(b"\nok 1\n");
        assert_eq!(tally.counts().total, 1);
    }

    #[test]
    fn what_is_written_only_at_the_end_is_not_counted_on_the_way() {
        for format in [Format::Trx, Format::Junit, Format::Jest, Format::Mocha] {
            assert!(Tally::of(format).is_none());
        }
    }
}
