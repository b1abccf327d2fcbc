//! Rust files: heads, sizes, names, unfinished places, and where `unsafe` may stand.

use std::path::Path;

use super::Finding;
use super::lexer::{code_only, has_word};
use super::tree::{SourceFile, Tree};

const MAX_LINES: usize = 500;
/// A `mod.rs` or `lib.rs` may hold a small `From` or `Display`, not the work.
const MAX_DECLARING_BODY: usize = 5;
const SAYS_NOTHING: [&str; 5] = ["utils", "common", "helpers", "misc", "manager"];
/// One file besides: where compiled WebAssembly becomes executable, which only its engine can do.
const MAY_BE_UNSAFE: [&str; 3] = ["crates/sys/", "testkit/", "crates/wasm/src/load.rs"];
/// Marks of unfinished work. In pieces, or this file would find itself.
const UNFINISHED: [&str; 3] = [
    concat!("TO", "DO"),
    concat!("FIX", "ME"),
    concat!("X", "XX"),
];

const IGNORED: &str = concat!("#[", "ignore");

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    tree.with_extension("rs").flat_map(check_file).collect()
}

fn check_file(file: &SourceFile) -> Vec<Finding> {
    let code = code_only(&file.text);
    let mut found = Vec::new();
    found.extend(name(&file.path));
    found.extend(unfinished(file, &code));
    found.extend(unsafe_outside_sys(file, &code));
    if is_shipped(&file.path) {
        found.extend(head(file));
        found.extend(size(file));
        found.extend(declares_only(file, &code));
    }
    found
}

/// What ends up in the binary or the library, as opposed to what only helps to make it.
fn is_shipped(path: &Path) -> bool {
    let helps = ["tests", "benches", "testkit", "xtask", "fuzz"];
    !path
        .iter()
        .any(|part| helps.iter().any(|name| part == *name))
}

fn head(file: &SourceFile) -> Option<Finding> {
    let says = file
        .text
        .lines()
        .take(3)
        .any(|line| line.starts_with("//!"));
    let what = "does not open with `//!`; say what the file owns and what it refuses to do";
    (!says).then(|| Finding::new(&file.path, 1, what))
}

fn size(file: &SourceFile) -> Option<Finding> {
    if is_test_module(&file.path) {
        return None;
    }
    let lines = file
        .text
        .lines()
        .take_while(|line| !line.starts_with("#[cfg(test)]"))
        .count();
    let what = format!(
        "{lines} lines before its tests, at most {MAX_LINES}; it is likely two subjects, split it"
    );
    (lines > MAX_LINES).then(|| Finding::new(&file.path, MAX_LINES + 1, what))
}

/// Tests of a module that were moved to a file of their own.
fn is_test_module(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name == "tests.rs" || name.ends_with("_tests.rs")
}

fn name(path: &Path) -> Option<Finding> {
    let part = path
        .iter()
        .map(|part| part.to_string_lossy())
        .find_map(|part| {
            let stem = part.strip_suffix(".rs").unwrap_or(&part);
            SAYS_NOTHING.into_iter().find(|name| *name == stem)
        })?;
    Some(Finding::new(
        path,
        1,
        format!("`{part}` says nothing about what is inside; name the subject"),
    ))
}

fn unfinished(file: &SourceFile, code: &str) -> Vec<Finding> {
    let in_code = [
        (
            IGNORED,
            "an ignored test proves nothing; mend it or delete it",
        ),
        (
            "todo!(",
            "unfinished; write it or return an error that says so",
        ),
        (
            "unimplemented!(",
            "unfinished; write it or return an error that says so",
        ),
    ];
    let mut found = Vec::new();
    for (number, (line, code)) in numbered(file.text.lines().zip(code.lines())) {
        found.extend(
            in_code
                .iter()
                .filter(|(mark, _)| code.contains(mark))
                .map(|(mark, what)| Finding::new(&file.path, number, format!("`{mark}`: {what}"))),
        );
        found.extend(
            UNFINISHED
                .iter()
                .filter(|mark| has_word(line, mark))
                .map(|mark| {
                    Finding::new(
                        &file.path,
                        number,
                        format!("`{mark}`: do it now, or open an issue and say why here"),
                    )
                }),
        );
    }
    found
}

fn unsafe_outside_sys(file: &SourceFile, code: &str) -> Vec<Finding> {
    if MAY_BE_UNSAFE.iter().any(|dir| file.path.starts_with(dir)) {
        return Vec::new();
    }
    let what =
        "`unsafe` outside crates/sys; put the call there behind a safe function, or use rustix";
    numbered(code.lines())
        .filter(|(_, line)| has_word(line, "unsafe"))
        .map(|(number, _)| Finding::new(&file.path, number, what))
        .collect()
}

fn declares_only(file: &SourceFile, code: &str) -> Vec<Finding> {
    if !["mod.rs", "lib.rs"]
        .iter()
        .any(|name| file.path.ends_with(name))
    {
        return Vec::new();
    }
    let tests = code.find("#[cfg(test)]").unwrap_or(code.len());
    let code = code.get(..tests).unwrap_or(code);
    let mut found = Vec::new();
    let mut start = 0;
    for (number, line) in numbered(code.split_inclusive('\n')) {
        let body = code
            .get(start..)
            .filter(|_| has_word(line, "fn"))
            .map_or(0, body_lines);
        if body > MAX_DECLARING_BODY {
            let what = format!(
                "a function of {body} lines in a file that only declares and re-exports; move it to its own file"
            );
            found.push(Finding::new(&file.path, number, what));
        }
        start += line.len();
    }
    found
}

/// The lines between the first brace and the one that closes it; 0 for a declaration without a body.
fn body_lines(code: &str) -> usize {
    let mut depth = 0usize;
    let mut lines = 0usize;
    for c in code.chars() {
        match c {
            ';' if depth == 0 => return 0,
            '{' => depth += 1,
            '}' if depth <= 1 => return lines.saturating_sub(1),
            '}' => depth -= 1,
            '\n' if depth > 0 => lines += 1,
            _ => {}
        }
    }
    lines
}

fn numbered<T>(lines: impl Iterator<Item = T>) -> impl Iterator<Item = (usize, T)> {
    (1..).zip(lines)
}

#[cfg(test)]
mod tests {
    use super::super::tree;
    use super::*;

    fn found(path: &str, text: &str) -> Vec<String> {
        check(&tree::of(&[(path, text)]))
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    fn finds(path: &str, text: &str, start: &str) {
        let found = found(path, text);
        assert_eq!(found.len(), 1, "{found:#?}");
        assert!(found[0].starts_with(start), "{found:?}\n{start}");
    }

    #[test]
    fn a_good_file_has_no_finding() {
        assert_eq!(
            found(
                "crates/engine/src/pipeline.rs",
                "//! Owns it.\n\nfn f() {}\n"
            ),
            Vec::<String>::new()
        );
    }

    #[test]
    fn a_file_says_what_it_owns_unless_it_only_helps() {
        finds(
            "crates/engine/src/a.rs",
            "fn f() {}\n",
            "crates/engine/src/a.rs:1: does not open with",
        );
        for helper in [
            "crates/engine/tests/a.rs",
            "testkit/src/a.rs",
            "xtask/src/a.rs",
            "fuzz/a.rs",
        ] {
            assert_eq!(found(helper, "fn f() {}\n"), Vec::<String>::new());
        }
    }

    #[test]
    fn size_is_counted_before_the_tests() {
        let long = format!("//! x\n{}", "const A: u8 = 1;\n".repeat(500));
        finds(
            "crates/cli/src/a.rs",
            &long,
            "crates/cli/src/a.rs:501: 501 lines before its tests",
        );
        let tested = format!(
            "//! x\n#[cfg(test)]\nmod tests {{\n{}}}\n",
            "// line\n".repeat(600)
        );
        assert_eq!(found("crates/cli/src/a.rs", &tested), Vec::<String>::new());
        assert_eq!(
            found("crates/cli/src/tests.rs", &long),
            Vec::<String>::new()
        );
        assert_eq!(
            found("crates/cli/src/a_tests.rs", &long),
            Vec::<String>::new()
        );
    }

    #[test]
    fn names_that_say_nothing_are_refused() {
        finds(
            "crates/cli/src/utils.rs",
            "//! x\n",
            "crates/cli/src/utils.rs:1: `utils` says nothing",
        );
        finds(
            "crates/cli/tests/common/mod.rs",
            "",
            "crates/cli/tests/common/mod.rs:1: `common`",
        );
    }

    #[test]
    fn unfinished_places_are_found_in_code_and_comments() {
        finds(
            "crates/cli/src/a.rs",
            "//! x\nfn f() { todo!() }\n",
            "crates/cli/src/a.rs:2: `todo!(`",
        );
        finds(
            "crates/cli/tests/a.rs",
            &format!("#[test]\n{IGNORED} = \"slow\"]\nfn f() {{}}\n"),
            &format!("crates/cli/tests/a.rs:2: `{IGNORED}`"),
        );
        let comment = format!("//! x\n// {} later\n", UNFINISHED[0]);
        finds("crates/cli/src/a.rs", &comment, "crates/cli/src/a.rs:2: ");
        assert_eq!(
            found(
                "crates/cli/src/a.rs",
                "//! x\nconst A: &str = \"todo!()\";\n"
            ),
            Vec::<String>::new()
        );
    }

    #[test]
    fn unsafe_stands_in_sys_and_nowhere_else() {
        let text = "//! x\n// unsafe in words is fine\nfn f() { unsafe { g() } }\n";
        finds(
            "crates/engine/src/a.rs",
            text,
            "crates/engine/src/a.rs:3: `unsafe` outside crates/sys",
        );
        assert_eq!(found("crates/sys/src/a.rs", text), Vec::<String>::new());
        assert_eq!(found("crates/wasm/src/load.rs", text), Vec::<String>::new());
        finds(
            "crates/wasm/src/run.rs",
            text,
            "crates/wasm/src/run.rs:3: `unsafe` outside crates/sys",
        );
        assert_eq!(
            found("crates/engine/src/b.rs", "//! x\n#![forbid(unsafe_code)]\n"),
            Vec::<String>::new()
        );
    }

    #[test]
    fn a_declaring_file_holds_no_work() {
        let small = "//! x\npub mod a;\nfn f() {\n    1\n}\n";
        assert_eq!(
            found("crates/cli/src/b/mod.rs", small),
            Vec::<String>::new()
        );
        let work = format!(
            "//! x\npub mod a;\nfn f() {{\n{}}}\n",
            "    g();\n".repeat(6)
        );
        finds(
            "crates/cli/src/lib.rs",
            &work,
            "crates/cli/src/lib.rs:3: a function of 6 lines",
        );
        assert_eq!(
            found("crates/cli/src/other.rs", &work),
            Vec::<String>::new()
        );
    }
}
