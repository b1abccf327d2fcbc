//! Speakers that say one thing on one line: MSBuild and C#, tsc, ESLint, npm, go, javac and Maven, and the old form of compilers.

use super::model::{Diagnostic, MAX_LINE, MOST_SAID, Severity, Speaker};

fn lines(output: &str) -> impl Iterator<Item = &str> {
    output.lines().filter(|line| line.len() <= MAX_LINE)
}

/// `file(line,col): error CS1002: ; expected [project]`, or without a place: `MSBUILD : error MSB1009: …`.
pub(super) fn msbuild(output: &str) -> Vec<Diagnostic> {
    lines(output)
        .filter_map(|line| parenthesised(line.trim(), Speaker::Msbuild))
        .take(MOST_SAID)
        .collect()
}

/// `src/a.ts(3,7): error TS2322: …`, or the pretty form `src/a.ts:3:7 - error TS2322: …`.
pub(super) fn tsc(output: &str) -> Vec<Diagnostic> {
    lines(output)
        .filter_map(|line| {
            let line = line.trim_end();
            if let Some((place, rest)) = line.split_once(" - ")
                && let Some((file, at, column)) = colons(place)
            {
                let (severity, code, message) = said(rest)?;
                return Some(build(Speaker::Tsc, severity, code, message).at(
                    file,
                    Some(at),
                    column,
                ));
            }
            let found = parenthesised(line, Speaker::Tsc)?;
            found
                .code
                .as_deref()
                .is_some_and(|code| code.starts_with("TS"))
                .then_some(found)
        })
        .take(MOST_SAID)
        .collect()
}

fn parenthesised(line: &str, speaker: Speaker) -> Option<Diagnostic> {
    let (place, rest) = split_severity(line)?;
    let (severity, code, message) = said(rest)?;
    // The project that was built stands at the end in brackets; files are named as seen from it.
    let (message, project) = match message.rsplit_once(" [") {
        Some((message, project)) if project.ends_with("proj]") || project.ends_with(".sln]") => {
            (message, project.strip_suffix(']'))
        }
        _ => (message, None),
    };
    let found = build(speaker, severity, code?, message);
    let place = place.trim_end_matches([':', ' ']);
    let Some((file, numbers)) = place
        .strip_suffix(')')
        .and_then(|place| place.rsplit_once('('))
    else {
        let is_file = place
            .rsplit('/')
            .next()
            .is_some_and(|name| name.contains('.'));
        return Some(if is_file {
            found.at(place, None, None)
        } else {
            found
        });
    };
    let mut numbers = numbers
        .split([',', '-'])
        .map(|number| number.parse::<u32>().ok());
    let (line, column) = (numbers.next().flatten()?, numbers.next().flatten());
    let dir = project.and_then(|project| project.rsplit_once('/'));
    let file = match dir {
        Some((dir, _)) if !file.starts_with('/') => format!("{dir}/{file}"),
        _ => file.to_owned(),
    };
    Some(found.at(&file, Some(line), column))
}

/// Before and from the first ` error ` or ` warning ` that follows a colon.
fn split_severity(line: &str) -> Option<(&str, &str)> {
    let at = [
        ": error ",
        ": error:",
        ": warning ",
        ": warning:",
        ": info ",
    ]
    .iter()
    .filter_map(|mark| line.find(mark))
    .min()?;
    Some((line.get(..at)?, line.get(at + 2..)?))
}

/// `error CS1002: text` or `error: text`.
fn said(rest: &str) -> Option<(Severity, Option<&str>, &str)> {
    let (head, message) = rest.split_once(": ")?;
    let mut words = head.split_whitespace();
    let severity = Severity::of(words.next()?)?;
    let code = words.next();
    words
        .next()
        .is_none()
        .then_some((severity, code, message.trim()))
}

fn build<'a>(
    speaker: Speaker,
    severity: Severity,
    code: impl Into<Option<&'a str>>,
    message: &str,
) -> Diagnostic {
    let mut found = Diagnostic::new(speaker, severity, message);
    found.code = code.into().map(str::to_owned);
    found
}

/// A file on a line of its own, then `  3:7  error  message  rule` for each finding.
pub(super) fn eslint(output: &str) -> Vec<Diagnostic> {
    let mut found = Vec::new();
    let mut file: Option<&str> = None;
    for line in lines(output) {
        if found.len() >= MOST_SAID {
            break;
        }
        let trimmed = line.trim();
        if !line.starts_with(' ') {
            let ending = trimmed.rsplit_once('.').map(|(_, ending)| ending);
            let is_source = ending.is_some_and(|ending| {
                [
                    "js", "mjs", "cjs", "jsx", "ts", "mts", "cts", "tsx", "vue", "json",
                ]
                .contains(&ending)
            });
            file = is_source.then_some(trimmed);
            continue;
        }
        let Some(file) = file else {
            continue;
        };
        let mut words = trimmed.split_whitespace();
        let place = words.next().and_then(|place| place.split_once(':'));
        let Some((Ok(at), Ok(column))) = place.map(|(line, column)| (line.parse(), column.parse()))
        else {
            continue;
        };
        let Some(severity) = words.next().and_then(Severity::of) else {
            continue;
        };
        let rest: Vec<&str> = words.collect();
        // The rule is apart from the message by more than one space.
        let (message, rule) = match trimmed.rsplit_once("  ") {
            Some((_, rule)) if rest.len() > 1 && !rule.contains(' ') => (
                rest.get(..rest.len() - 1).unwrap_or_default().join(" "),
                Some(rule),
            ),
            _ => (rest.join(" "), None),
        };
        found.push(build(Speaker::Eslint, severity, rule, &message).at(
            file,
            Some(at),
            Some(column),
        ));
    }
    found
}

/// `npm error code ERESOLVE`, then lines that explain it.
pub(super) fn npm(output: &str) -> Vec<Diagnostic> {
    let mut code = None;
    let mut said = Vec::new();
    for line in lines(output) {
        let rest = line
            .strip_prefix("npm error ")
            .or_else(|| line.strip_prefix("npm ERR! "));
        match rest.map(str::trim) {
            Some(rest) if rest.starts_with("code ") => code = rest.strip_prefix("code "),
            Some(rest)
                if !rest.is_empty()
                    && !rest.starts_with("A complete log")
                    && said.len() < MOST_SAID =>
            {
                said.push(rest)
            }
            _ => {}
        }
    }
    // A script that failed has said itself why.
    let Some(code) =
        code.filter(|code| !code.chars().all(|c| c.is_ascii_digit()) && *code != "ELIFECYCLE")
    else {
        return Vec::new();
    };
    said.truncate(8);
    vec![build(Speaker::Npm, Severity::Error, code, &said.join("\n"))]
}

/// `./a.go:3:7: undefined: x`, with `vet: ` before it or not.
pub(super) fn go(output: &str) -> Vec<Diagnostic> {
    let plain = lines(output).filter_map(|line| {
        let line = line.trim().trim_start_matches("vet: ");
        let (place, message) = split_place(line)?;
        let (file, at, column) = colons(place)?;
        file.ends_with(".go")
            .then(|| build(Speaker::Go, Severity::Error, None, message).at(file, Some(at), column))
    });
    plain.take(MOST_SAID).collect()
}

/// `[ERROR] /work/src/A.java:[3,7] text`, or javac's own `A.java:3: error: text`.
pub(super) fn maven(output: &str) -> Vec<Diagnostic> {
    lines(output)
        .filter_map(|line| {
            let line = line.trim();
            let (word, rest) = match line
                .strip_prefix('[')
                .and_then(|rest| rest.split_once("] "))
            {
                Some((word, rest)) => (Severity::of(word)?, rest),
                None => (Severity::Error, line),
            };
            if let Some((file, rest)) = rest.split_once(":[") {
                let (numbers, message) = rest.split_once(']')?;
                let (at, column) = numbers.split_once(',')?;
                let found = build(Speaker::Maven, word, None, message.trim());
                return Some(found.at(file, at.parse().ok(), column.parse().ok()));
            }
            let (place, said_so) = split_severity(rest)?;
            let (severity, _, message) = said(said_so)?;
            let (file, at, column) = colons(place)?;
            file.ends_with(".java")
                .then(|| build(Speaker::Maven, severity, None, message).at(file, Some(at), column))
        })
        .take(MOST_SAID)
        .collect()
}

/// `file:line[:column]: [error:] [CODE] message`.
pub(super) fn places(output: &str) -> Vec<Diagnostic> {
    lines(output)
        .filter_map(|line| {
            let (place, rest) = split_place(line.trim())?;
            let (file, at, column) = colons(place)?;
            if let Some((severity, code, message)) = said(rest) {
                return Some(build(Speaker::Places, severity, code, message).at(
                    file,
                    Some(at),
                    column,
                ));
            }
            let is_code = |word: &&str| {
                word.len() <= 8
                    && word.ends_with(|c: char| c.is_ascii_digit())
                    && word.starts_with(|c: char| c.is_ascii_uppercase())
            };
            let (code, message) = match rest.split_once(' ') {
                Some((word, message)) if is_code(&word) => (Some(word), message),
                _ => (None, rest),
            };
            Some(build(Speaker::Places, Severity::Error, code, message).at(file, Some(at), column))
        })
        .take(MOST_SAID)
        .collect()
}

/// Before and after the first `: `.
fn split_place(line: &str) -> Option<(&str, &str)> {
    line.split_once(": ")
        .filter(|(_, message)| !message.is_empty())
}

/// `file:line` or `file:line:column`.
fn colons(place: &str) -> Option<(&str, u32, Option<u32>)> {
    let (before, last) = place.rsplit_once(':')?;
    let last: u32 = last.parse().ok()?;
    let found = match before
        .rsplit_once(':')
        .map(|(file, line)| (file, line.parse::<u32>()))
    {
        Some((file, Ok(line))) => (file, line, Some(last)),
        _ => (before, last, None),
    };
    let is_file = !found.0.is_empty() && !found.0.contains(char::is_whitespace);
    is_file.then_some(found)
}
