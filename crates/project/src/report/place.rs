//! Where a failing test stands, from the text of its failure: the first line of a stack that names a file of the project.

/// `path:line[:column]`, `File "path", line n`, or `in path:line n`, whichever comes first and is not somebody else's code.
pub(super) fn first(text: &str) -> Option<(String, u32)> {
    text.lines().take(200).find_map(of_line)
}

fn of_line(line: &str) -> Option<(String, u32)> {
    const STRANGERS: [&str; 6] = [
        "node_modules",
        "node:internal",
        "node:async",
        "/rustc/",
        "/usr/lib",
        "site-packages",
    ];
    if STRANGERS.iter().any(|stranger| line.contains(stranger)) {
        return None;
    }
    python(line)
        .or_else(|| dotnet(line))
        .or_else(|| colons(line))
}

fn python(line: &str) -> Option<(String, u32)> {
    let (file, rest) = line
        .trim_start()
        .strip_prefix("File \"")?
        .split_once("\", line ")?;
    Some((file.to_owned(), number(rest)?))
}

fn dotnet(line: &str) -> Option<(String, u32)> {
    let (before, rest) = line.rsplit_once(":line ")?;
    let (_, file) = before.rsplit_once(" in ")?;
    Some((file.to_owned(), number(rest)?))
}

/// A word with a dot and a slash or an ending before the colon, and digits after it.
fn colons(line: &str) -> Option<(String, u32)> {
    for word in line.split(|c: char| c.is_whitespace() || "()[]'\"<>".contains(c)) {
        let word = word.strip_prefix("file://").unwrap_or(word);
        let mut parts = word.split(':');
        let (Some(file), Some(line)) = (parts.next(), parts.next()) else {
            continue;
        };
        let is_file = file.rsplit('/').next().is_some_and(|name| {
            name.rsplit_once('.').is_some_and(|(stem, ending)| {
                !stem.is_empty()
                    && (1..=5).contains(&ending.len())
                    && ending.chars().all(char::is_alphanumeric)
            })
        });
        if is_file && let Some(line) = number(line) {
            return Some((file.to_owned(), line));
        }
    }
    None
}

fn number(text: &str) -> Option<u32> {
    let digits = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    text.get(..digits)?.parse().ok().filter(|line| *line > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_found_in_the_stacks_of_all_runners() {
        let at = |text: &str| first(text);
        let found = |file: &str, line| Some((file.to_owned(), line));
        assert_eq!(
            at("Error: no\n    at Object.toBe (/proj/j/a.test.js:1:81)"),
            found("/proj/j/a.test.js", 1)
        );
        assert_eq!(
            at("  File \"/w/test_a.py\", line 3, in test_bad"),
            found("/w/test_a.py", 3)
        );
        assert_eq!(
            at("   at T.Fails() in /proj/tests/T.cs:line 4"),
            found("/proj/tests/T.cs", 4)
        );
        assert_eq!(
            at("thread 't::bad' panicked at src/lib.rs:1:58:"),
            found("src/lib.rs", 1)
        );
        assert_eq!(at("    a_test.go:7: want 2"), found("a_test.go", 7));
        assert_eq!(at(" ❯ a.test.mjs:1:172"), found("a.test.mjs", 1));
        assert_eq!(
            at("at x (/p/node_modules/y.js:1:2)\nat z (file:///p/q.mjs:9:1)"),
            found("/p/q.mjs", 9)
        );
        assert_eq!(at("expected 10:30 and not 12:00"), None);
    }
}
