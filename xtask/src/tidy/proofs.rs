//! SPECIFICATION.md names, for each promise, the test that proves it. A test that was renamed or never written is found here.

use std::collections::BTreeSet;
use std::path::Path;

use super::Finding;
use super::lexer::code_only;
use super::tree::{SourceFile, Tree};

const SPECIFICATION: &str = "SPECIFICATION.md";
/// The heading of the column that names tests; the last column where no heading says so.
const HEADINGS: [&str; 3] = ["proof", "proved by", "proven by"];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let Some(specification) = tree
        .files
        .iter()
        .find(|file| file.path == Path::new(SPECIFICATION))
    else {
        return Vec::new();
    };
    let functions: BTreeSet<String> = tree.with_extension("rs").flat_map(functions).collect();
    let missing = named_tests(&specification.text)
        .into_iter()
        .filter(|(_, test)| !functions.contains(test));
    missing
        .map(|(line, test)| {
            Finding::new(SPECIFICATION, line, format!("there is no `fn {test}`; write the test that proves this, or name the one that does"))
        })
        .collect()
}

/// The names of all functions in a file.
fn functions(file: &SourceFile) -> Vec<String> {
    let code = code_only(&file.text);
    let mut words = code
        .split(|c: char| !(c.is_alphanumeric() || c == '_'))
        .filter(|word| !word.is_empty());
    let mut found = Vec::new();
    while let Some(word) = words.next() {
        if word == "fn" {
            found.extend(words.next().map(str::to_owned));
        }
    }
    found
}

/// The tests in the proof column of every table, with their line.
fn named_tests(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut column = None;
    for (number, line) in (1..).zip(text.lines()) {
        let Some(cells) = cells(line) else {
            column = None;
            continue;
        };
        let Some(column) = column else {
            column = Some(proof_column(&cells));
            continue;
        };
        let names = cells
            .get(column)
            .into_iter()
            .flat_map(|cell| in_backticks(cell))
            .filter_map(test_name);
        found.extend(names.map(|name| (number, name.to_owned())));
    }
    found
}

fn cells(line: &str) -> Option<Vec<&str>> {
    let inner = line.trim().strip_prefix('|')?;
    Some(
        inner
            .strip_suffix('|')
            .unwrap_or(inner)
            .split('|')
            .map(str::trim)
            .collect(),
    )
}

fn proof_column(headings: &[&str]) -> usize {
    let is_proof = |heading: &&str| {
        HEADINGS
            .iter()
            .any(|known| heading.to_lowercase().contains(known))
    };
    headings
        .iter()
        .position(is_proof)
        .unwrap_or(headings.len().saturating_sub(1))
}

fn in_backticks(cell: &str) -> impl Iterator<Item = &str> {
    // In a`b`c every second piece is code.
    cell.split('`')
        .enumerate()
        .filter(|(i, _)| i % 2 == 1)
        .map(|(_, code)| code)
}

/// `path::test_name` or `test_name`; anything else, such as a command line, is not a test.
fn test_name(code: &str) -> Option<&str> {
    let name = code.rsplit("::").next()?;
    let is_name = !name.is_empty()
        && name
            .chars()
            .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
    // A single word without a path is prose in code font: `wasm`, `native`.
    (is_name && (name.contains('_') || code.contains("::"))).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::super::tree;
    use super::*;

    #[test]
    fn a_promise_without_its_test_is_found_with_its_line() {
        let text = "# Promises\n\n| id | promise | proof |\n| --- | --- | --- |\n\
                    | A1 | `not_a_proof` here | `crates/cli/tests/run.rs::a_run_ends` |\n\
                    | A2 | x | `renamed_test`, `a_run_ends`, `cargo xtask bench` |\n\nprose with `some_name`\n";
        let tests = "#[test]\nfn a_run_ends() {}\n// fn renamed_test() {}\n";
        let tree = tree::of(&[
            ("SPECIFICATION.md", text),
            ("crates/cli/tests/run.rs", tests),
        ]);
        let found: Vec<String> = check(&tree).iter().map(ToString::to_string).collect();
        assert_eq!(found.len(), 1, "{found:#?}");
        assert!(
            found[0].starts_with("SPECIFICATION.md:6: there is no `fn renamed_test`"),
            "{found:?}"
        );
    }

    #[test]
    fn without_a_specification_there_is_nothing_to_prove() {
        assert_eq!(check(&tree::of(&[("README.md", "")])), Vec::new());
    }
}
