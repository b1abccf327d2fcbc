//! TAP, versions 13 and 14, and what was called TAP before. Subtests are the tests; the line that sums them up is not one more.

use super::budget::Budget;
use super::model::{Status, TestCase, TestReport, say};
use super::place;

/// Deeper subtests than these count as being this deep.
const MAX_LEVEL: usize = 64;
const MAX_TITLE: usize = 2 << 10;

pub(super) fn parse(bytes: &[u8], budget: &mut Budget) -> TestReport {
    let text = crate::xml::decode(bytes);
    let mut reader = Reader {
        budget,
        report: TestReport::default(),
        waiting: Vec::new(),
        titles: Vec::new(),
        block: None,
        planned: None,
        points: 0,
        last: None,
    };
    for line in text.lines() {
        reader.line(line);
    }
    reader.end()
}

struct Reader<'b> {
    budget: &'b mut Budget,
    report: TestReport,
    /// How many points at each level still wait for the one that sums them up, and how many of them failed.
    waiting: Vec<(usize, usize)>,
    /// The titles that were announced, by level.
    titles: Vec<(usize, String)>,
    /// Lines of the block that explains the last point, and how far it is indented.
    block: Option<(usize, String)>,
    planned: Option<usize>,
    points: usize,
    /// Whether the last thing at the top was a point, whose explanation may follow as plain text.
    last: Option<usize>,
}

impl Reader<'_> {
    fn line(&mut self, line: &str) {
        let indent = line.len() - line.trim_start_matches(' ').len();
        let rest = line.trim();
        if let Some((at, text)) = &mut self.block {
            if rest == "..." && indent <= *at {
                let (_, text) = self.block.take().unwrap_or_default();
                self.explain(&text);
            } else {
                say(text, line);
            }
            return;
        }
        let level = (indent / 4).min(MAX_LEVEL);
        if rest == "---" {
            self.block = Some((indent, String::new()));
        } else if let Some(title) = rest.strip_prefix("# Subtest: ") {
            self.titles.retain(|(at, _)| *at < level);
            let title = title.get(..title.floor_char_boundary(MAX_TITLE));
            self.titles
                .push((level, title.unwrap_or_default().to_owned()));
        } else if let Some(rest) = rest.strip_prefix("not ok") {
            self.point(level, Status::Failed, rest);
        } else if let Some(rest) = rest
            .strip_prefix("ok")
            .filter(|rest| rest.is_empty() || rest.starts_with(' '))
        {
            self.point(level, Status::Passed, rest);
        } else if let Some(why) = rest.strip_prefix("Bail out!") {
            self.report.problem(format!("bailed out: {}", why.trim()));
        } else if level == 0
            && let Some(plan) = rest.strip_prefix("1..")
        {
            self.planned = plan
                .split_whitespace()
                .next()
                .and_then(|number| number.parse().ok());
        } else if indent > 0
            && let Some(at) = self.last
        {
            // Mocha explains without a block.
            self.report.amend(at, self.budget, |test| {
                if test.status == Status::Failed {
                    say(test.stack.get_or_insert_default(), rest);
                }
            });
        }
    }

    fn point(&mut self, level: usize, status: Status, rest: &str) {
        if level == 0 {
            self.points += 1;
        }
        self.last = None;
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
        let (name, directive) = split(rest);
        // It sums up the points inside it. One that failed for a reason of its own still counts.
        if inside > 0 && (status == Status::Passed || failed > 0) {
            return;
        }
        let status = match directive.map(str::to_lowercase) {
            Some(directive) if directive.starts_with("skip") || directive.starts_with("todo") => {
                Status::Skipped
            }
            _ => status,
        };
        let mut test = TestCase::new(name, status);
        let outer: Vec<&str> = self
            .titles
            .iter()
            .filter(|(at, _)| *at < level)
            .map(|(_, title)| title.as_str())
            .collect();
        test.suite = Some(outer.join(" › ")).filter(|suite| !suite.is_empty());
        self.last = self.report.push(test, self.budget);
    }

    /// The block of the last point: YAML in form; only single lines and indented texts are read.
    fn explain(&mut self, text: &str) {
        let Some(at) = self.last else {
            return;
        };
        let value = |key: &str| {
            let mut lines = text.lines();
            let line = lines.find(|line| {
                line.trim_start()
                    .strip_prefix(key)
                    .is_some_and(|rest| rest.starts_with(':'))
            })?;
            let (_, value) = line.split_once(':')?;
            let value = value.trim();
            if !matches!(value, "|-" | "|" | ">-" | ">") {
                return Some(value.trim_matches(['\'', '"']).to_owned());
            }
            let depth = line.len() - line.trim_start().len();
            let block = lines.take_while(|line| {
                line.trim().is_empty() || line.len() - line.trim_start().len() > depth
            });
            Some(block.map(str::trim).collect::<Vec<_>>().join("\n"))
        };
        self.report.amend(at, self.budget, |test| {
            test.duration_ms = value("duration_ms").and_then(|text| text.parse().ok());
            if test.status != Status::Failed {
                return;
            }
            test.message = value("error").or_else(|| value("message"));
            test.stack = value("stack");
            test.expected = value("expected");
            test.actual = value("actual");
            let at = test
                .stack
                .as_deref()
                .and_then(place::first)
                .or_else(|| place::first(&value("location")?));
            if let Some((file, line)) = at {
                test.file = Some(file);
                test.line = Some(line);
            }
        });
    }

    fn end(mut self) -> TestReport {
        if let Some((_, text)) = self.block.take() {
            self.explain(&text);
        }
        for at in 0..self.report.tests.len() {
            self.report.amend(at, self.budget, |test| {
                if test.message.is_none()
                    && let Some(stack) = &test.stack
                {
                    test.message = stack.lines().next().map(str::to_owned);
                    if let Some((file, line)) = place::first(stack) {
                        test.file = test.file.take().or(Some(file));
                        test.line = test.line.or(Some(line));
                    }
                }
            });
        }
        match self.planned {
            Some(planned) if planned != self.points => {
                let found = self.points;
                self.report.cut_by(Some(format!(
                    "{planned} tests were planned and {found} were told"
                )));
            }
            None if !self.report.tests.is_empty() => {
                self.report.cut_by(Some("it has no plan".to_owned()));
            }
            _ => {}
        }
        self.report
    }
}

/// The name without its number, and what follows an unescaped `#`.
fn split(rest: &str) -> (String, Option<&str>) {
    let rest = rest
        .trim_start()
        .trim_start_matches(|c: char| c.is_ascii_digit())
        .trim_start();
    let rest = rest.strip_prefix("- ").unwrap_or(rest);
    let mark = rest
        .match_indices(" # ")
        .find(|(at, _)| !rest.get(..*at).is_some_and(|before| before.ends_with('\\')));
    match mark {
        Some((at, _)) => {
            let (name, directive) = rest.split_at(at);
            (
                name.trim().to_owned(),
                Some(directive.trim_start_matches([' ', '#'])),
            )
        }
        None => (rest.trim().to_owned(), None),
    }
}
