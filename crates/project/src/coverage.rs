//! Which lines the tests reached: Cobertura, LCOV and Go's profile into one form, line by line. The files are a stranger's: sizes and numbers are bounded, and sums are made here.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::diagnostic;
use crate::xml::{self, Keep};

/// How coverage is written down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CoverageFormat {
    /// coverage.py and .NET.
    Cobertura,
    /// Jest and Vitest.
    Lcov,
    /// `go test -coverprofile`.
    GoProfile,
}

/// Where a step writes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CoverageAt {
    /// A file in the directory for reports, or the end of its name in a directory below it.
    pub name: &'static str,
    pub format: CoverageFormat,
}

/// What was reached.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Covered {
    pub lines: Lines,
    /// By path.
    pub files: Vec<FileCovered>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lines {
    pub covered: usize,
    pub total: usize,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileCovered {
    /// Relative to the project where it lies in it.
    pub file: String,
    pub lines: Lines,
}

/// The largest that is read.
pub const MAX_COVERAGE: u64 = 64 << 20;
const MAX_FILES: usize = 20_000;
/// No file of source has more.
const MAX_LINE: u32 = 1_000_000;
/// Lines of all files together.
const MAX_LINES: usize = 5_000_000;
const MAX_NAME: usize = 2 << 10;
/// What a file that is over a bound tells would be a part of the truth.
const TOO_MUCH: &str = "tells of more than is read";
/// Where what it depends on is installed.
const NOT_OWN: [&str; 3] = [".venv", "node_modules", "site-packages"];

/// What may still be read and kept of coverage, for all steps of a call together.
#[derive(Debug, Clone)]
pub struct Room {
    /// Of files that are read.
    bytes: u64,
    /// Lines that are told of, however often it is the same one: a few bytes can tell of a million.
    told: u64,
    /// Files of source that are kept, and the bytes of their names.
    files: usize,
    names: usize,
}

/// By file, each line and whether it was reached.
#[derive(Debug)]
struct Reached<'a> {
    files: BTreeMap<String, BTreeMap<u32, bool>>,
    lines: usize,
    told: &'a mut u64,
    is_full: bool,
}

impl Covered {
    /// Reads one file. `root` is the project as the tools saw it.
    pub fn parse(
        format: CoverageFormat,
        bytes: &[u8],
        root: &str,
        room: &mut Room,
    ) -> Result<Self, String> {
        let length = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        if length > MAX_COVERAGE {
            return Err(format!("is larger than {} MiB", MAX_COVERAGE >> 20));
        }
        room.bytes = room.bytes.checked_sub(length).ok_or(TOO_MUCH)?;
        let mut reached = Reached {
            files: BTreeMap::new(),
            lines: 0,
            told: &mut room.told,
            is_full: false,
        };
        match format {
            CoverageFormat::Cobertura => cobertura(bytes, root, &mut reached)?,
            CoverageFormat::Lcov => lcov(&String::from_utf8_lossy(bytes), root, &mut reached),
            CoverageFormat::GoProfile => go(&String::from_utf8_lossy(bytes), &mut reached)?,
        }
        if reached.is_full {
            return Err(TOO_MUCH.to_owned());
        }
        // Only what is the project's own counts.
        let is_own = |file: &str| {
            let mut parts = file.split('/');
            !file.starts_with('/') && !parts.any(|part| NOT_OWN.contains(&part))
        };
        reached.files.retain(|file, _| is_own(file));
        if reached.files.is_empty() {
            return Err("tells of no file".to_owned());
        }
        let read = reached.summed();
        room.keep(&read)?;
        Ok(read)
    }

    /// What several steps reached: of a file that more than one tells of, the one that reached more counts.
    pub fn add(&mut self, other: &Self) {
        let mut files: BTreeMap<String, Lines> = BTreeMap::new();
        for file in self.files.iter().chain(&other.files) {
            let known = files.entry(file.file.clone()).or_default();
            if (file.lines.covered, file.lines.total) > (known.covered, known.total) {
                *known = file.lines;
            }
        }
        *self = Self::of(files.into_iter());
    }

    fn name_bytes(&self) -> usize {
        self.files.iter().map(|file| file.file.len()).sum()
    }

    fn of(files: impl Iterator<Item = (String, Lines)>) -> Self {
        let files: Vec<FileCovered> = files
            .map(|(file, lines)| FileCovered { file, lines })
            .collect();
        let mut lines = Lines::default();
        for file in &files {
            lines.covered += file.lines.covered;
            lines.total += file.lines.total;
        }
        Self { lines, files }
    }
}

impl Room {
    /// So many files of source.
    pub const fn new(files: usize) -> Self {
        Self {
            bytes: 256 << 20,
            told: 30_000_000,
            files,
            names: files * 200,
        }
    }

    /// The largest that is still read.
    pub fn largest(&self) -> u64 {
        self.bytes.min(MAX_COVERAGE)
    }

    fn keep(&mut self, read: &Covered) -> Result<(), String> {
        let files = self.files.checked_sub(read.files.len());
        let names = self.names.checked_sub(read.name_bytes());
        (self.files, self.names) = files.zip(names).ok_or(TOO_MUCH)?;
        Ok(())
    }

    /// What was read is not kept after all.
    pub fn forget(&mut self, read: &Covered) {
        self.files += read.files.len();
        self.names += read.name_bytes();
    }
}

impl Reached<'_> {
    fn line(&mut self, file: &str, line: u32, is_reached: bool) {
        self.block(file, (line, line), is_reached);
    }

    fn block(&mut self, file: &str, (from, to): (u32, u32), is_reached: bool) {
        let to = to.min(MAX_LINE);
        if from == 0 || from > to || file.len() > MAX_NAME || self.is_full {
            return;
        }
        if !self.files.contains_key(file) {
            if self.files.len() >= MAX_FILES {
                self.is_full = true;
                return;
            }
            self.files.insert(file.to_owned(), BTreeMap::new());
        }
        let (Some(lines), Some(left)) = (
            self.files.get_mut(file),
            self.told.checked_sub(u64::from(to - from) + 1),
        ) else {
            self.is_full = true;
            return;
        };
        *self.told = left;
        for line in from..=to {
            let known = lines.entry(line).or_insert_with(|| {
                self.lines += 1;
                false
            });
            *known |= is_reached;
        }
        self.is_full = self.lines > MAX_LINES;
    }

    fn summed(self) -> Covered {
        let files = self.files.into_iter().map(|(file, lines)| {
            let covered = lines.values().filter(|reached| **reached).count();
            let total = lines.len();
            (file, Lines { covered, total })
        });
        Covered::of(files)
    }
}

fn cobertura(bytes: &[u8], root: &str, reached: &mut Reached<'_>) -> Result<(), String> {
    // Names are relative to a source, which is itself a path that the tool saw. Sources stand before what is in them.
    let mut sources: Vec<String> = Vec::new();
    let mut of = (String::new(), String::new());
    let document = xml::read(bytes, &mut |element, around| {
        match (element.name.as_str(), around) {
            ("source", _) if sources.len() < 2 => {
                sources.push(element.text.trim().trim_end_matches('/').to_owned());
            }
            ("line", [top, .., class, lines])
                if top.name == "coverage" && class.name == "class" && lines.name == "lines" =>
            {
                let Some(name) = class.attribute("filename") else {
                    return Keep::No;
                };
                if of.0 != name {
                    let path = match sources.as_slice() {
                        [base] if !name.starts_with('/') && !base.is_empty() => {
                            format!("{base}/{name}")
                        }
                        _ => name.to_owned(),
                    };
                    of = (name.to_owned(), diagnostic::relative(&path, root));
                }
                let number = element
                    .attribute("number")
                    .and_then(|text| text.parse().ok());
                let is_reached = element.attribute("hits").is_some_and(|hits| hits != "0");
                if let Some(number) = number {
                    reached.line(&of.1, number, is_reached);
                }
            }
            _ => {}
        }
        Keep::No
    })?;
    match document.root.name.as_str() {
        "coverage" => Ok(()),
        _ => Err("is not Cobertura".to_owned()),
    }
}

fn lcov(text: &str, root: &str, reached: &mut Reached<'_>) {
    let mut file = None;
    for line in text.lines() {
        if let Some(name) = line.strip_prefix("SF:") {
            file = Some(diagnostic::relative(name.trim(), root));
        } else if let (Some(file), Some(data)) = (&file, line.strip_prefix("DA:")) {
            let mut parts = data.split(',');
            let number = parts.next().and_then(|text| text.parse().ok());
            let is_reached = parts.next().is_some_and(|hits| hits.trim() != "0");
            if let Some(number) = number {
                reached.line(file, number, is_reached);
            }
        } else if line == "end_of_record" {
            file = None;
        }
    }
}

/// `name.go:LINE.COLUMN,LINE.COLUMN STATEMENTS COUNT`
fn go(text: &str, reached: &mut Reached<'_>) -> Result<(), String> {
    let mut lines = text.lines();
    if !lines
        .next()
        .is_some_and(|first| first.starts_with("mode: "))
    {
        return Err("is not a profile of go".to_owned());
    }
    for line in lines {
        let block = || {
            let (file, rest) = line.rsplit_once(':')?;
            let mut words = rest.split(' ');
            let (from, to) = words.next()?.split_once(',')?;
            let number = |place: &str| place.split('.').next()?.parse::<u32>().ok();
            let count = words.nth(1)?;
            Some((file, number(from)?, number(to)?, count != "0"))
        };
        let Some((file, from, to, is_reached)) = block() else {
            continue;
        };
        reached.block(file, (from, to), is_reached);
        if reached.is_full {
            break;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(format: CoverageFormat, bytes: &[u8], root: &str) -> Result<Covered, String> {
        Covered::parse(format, bytes, root, &mut Room::new(100))
    }

    fn of(covered: &Covered) -> Vec<(&str, usize, usize)> {
        let files = covered.files.iter();
        files
            .map(|file| (file.file.as_str(), file.lines.covered, file.lines.total))
            .collect()
    }

    #[test]
    fn three_formats_become_the_same_lines() {
        let cobertura = r#"<?xml version="1.0" ?><coverage line-rate="1"><sources><source>/work</source></sources><packages><package><classes>
            <class filename="src/a.py"><methods><method><lines><line number="9" hits="1"/></lines></method></methods><lines><line number="1" hits="3"/><line number="2" hits="0"/></lines></class>
            <class filename="src/a.py"><lines><line number="2" hits="1"/><line number="4" hits="0"/></lines></class>
            </classes></package></packages></coverage>"#;
        let read = parse(CoverageFormat::Cobertura, cobertura.as_bytes(), "/work");
        assert_eq!(of(&read.unwrap()), [("src/a.py", 2, 3)]);
        let lcov = "TN:\nSF:/work/src/a.js\nFN:1,f\nDA:1,3\nDA:2,0\nend_of_record\nDA:7,1\nSF:src/b.js\nDA:1,1\nend_of_record\nSF:/usr/lib/x.js\nDA:1,1\nend_of_record\nSF:node_modules/y.js\nDA:1,1\nend_of_record\n";
        let read = parse(CoverageFormat::Lcov, lcov.as_bytes(), "/work").unwrap();
        assert_eq!(of(&read), [("src/a.js", 1, 2), ("src/b.js", 1, 1)]);
        assert_eq!(
            read.lines,
            Lines {
                covered: 2,
                total: 3
            }
        );
        let go = "mode: set\nm/a.go:3.24,5.2 1 1\nm/a.go:7.1,7.20 1 0\nnonsense\n";
        let read = parse(CoverageFormat::GoProfile, go.as_bytes(), "/work").unwrap();
        assert_eq!(of(&read), [("m/a.go", 3, 4)]);
    }

    #[test]
    fn what_is_no_coverage_or_wants_too_much_is_no_result() {
        for (format, text) in [
            (CoverageFormat::Cobertura, "<testsuite/>"),
            (CoverageFormat::Cobertura, "<coverage>"),
            (CoverageFormat::Lcov, "hello"),
            (CoverageFormat::GoProfile, "m/a.go:3.24,5.2 1 1"),
        ] {
            assert!(parse(format, text.as_bytes(), "/work").is_err(), "{text}");
        }
        let huge = "mode: set\nm/a.go:1.1,4294967295.1 1 1\n";
        let read = parse(CoverageFormat::GoProfile, huge.as_bytes(), "/work").unwrap();
        assert_eq!(read.lines.total, usize::try_from(MAX_LINE).unwrap());
    }

    #[test]
    fn what_is_told_again_and_again_costs_no_more_than_the_room_for_it() {
        let again = "mode: set\n".to_owned() + &"m/a.go:1.1,1000000.1 1 1\n".repeat(100_000);
        let mut room = Room {
            told: 2_500_000,
            ..Room::new(100)
        };
        let read = Covered::parse(
            CoverageFormat::GoProfile,
            again.as_bytes(),
            "/work",
            &mut room,
        );
        assert_eq!(read.unwrap_err(), TOO_MUCH);
        // What is used up stays so for the next file.
        let one = "mode: set\nm/a.go:1.1,1000000.1 1 1\n";
        let read = Covered::parse(
            CoverageFormat::GoProfile,
            one.as_bytes(),
            "/work",
            &mut room,
        );
        assert_eq!(read.unwrap_err(), TOO_MUCH);
    }

    #[test]
    fn files_have_room_over_all_steps_and_what_is_not_kept_gives_it_back() {
        let of = |name: &str| format!("SF:{name}\nDA:1,1\nend_of_record\n");
        let mut room = Room::new(2);
        let mut read = |text: String| {
            Covered::parse(CoverageFormat::Lcov, text.as_bytes(), "/work", &mut room)
        };
        let first = read(of("a.js") + &of("b.js")).unwrap();
        assert_eq!(read(of("c.js")).unwrap_err(), TOO_MUCH);
        room.forget(&first);
        let again = Covered::parse(
            CoverageFormat::Lcov,
            of("c.js").as_bytes(),
            "/work",
            &mut room,
        );
        assert_eq!(again.unwrap().files.len(), 1);
        let long = of(&"d".repeat(MAX_NAME));
        let read = Covered::parse(CoverageFormat::Lcov, long.as_bytes(), "/work", &mut room);
        assert_eq!(read.unwrap_err(), TOO_MUCH);
    }

    #[test]
    fn what_several_steps_reach_is_counted_once() {
        let one = |name: &str, covered, total| {
            Covered::of(std::iter::once((name.to_owned(), Lines { covered, total })))
        };
        let mut all = one("a", 1, 4);
        all.add(&one("a", 3, 4));
        all.add(&one("b", 2, 2));
        assert_eq!(
            all.lines,
            Lines {
                covered: 5,
                total: 6
            }
        );
    }
}
