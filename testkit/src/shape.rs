//! What verbs print with `--json`, held against the page that describes it. The page has a row for each verb: its words, the schema, the members.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use serde_json::Value;

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/json.md");

/// One row of the page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// `runs list`, or with the flag or the argument that makes a difference: `runs list --count`, `fleet jobs JOB`.
    pub verb: String,
    pub schema: String,
    /// With `?` behind those that are not always there. Empty for what another document describes.
    pub members: Vec<String>,
}

/// All rows of the page.
pub fn rows() -> Vec<Row> {
    let page = std::fs::read_to_string(PAGE).expect("docs/json.md");
    let row = |line: &str| {
        let mut cells = line.strip_prefix("| `")?.split(" | ");
        let code = |text: &str| text.trim_matches(['`', '|', ' ']).to_owned();
        let (verb, schema) = (code(cells.next()?), code(cells.next()?));
        let members = cells.next().unwrap_or_default();
        let members = members.split('`').skip(1).step_by(2).map(str::to_owned);
        let is_row = schema.starts_with("cofferdam.");
        is_row.then(|| Row {
            verb,
            schema,
            members: members.collect(),
        })
    };
    page.lines().filter_map(row).collect()
}

/// Reads what a verb printed as JSON and holds it against the row of the page that fits its arguments best. `None` where it printed none.
#[track_caller]
pub fn read(args: &[&str], stdout: &[u8]) -> Option<Value> {
    let told: Value = serde_json::from_slice(stdout).ok()?;
    let rows = rows();
    let fits = |row: &&Row| {
        let mut left = args.iter();
        row.verb
            .split(' ')
            .all(|word| match word.chars().all(char::is_uppercase) {
                // An argument of any name, but no flag.
                true => left.next().is_some_and(|arg| !arg.starts_with('-')),
                false => left.by_ref().any(|arg| arg == &word),
            })
    };
    let best = rows.iter().filter(fits).max_by_key(|row| row.verb.len());
    // What no row names is a document of its own, such as an envelope.
    if let Some(row) = best {
        assert_fits(row, &told);
    }
    Some(told)
}

/// What the row says is there, and nothing else.
#[track_caller]
pub fn assert_fits(row: &Row, told: &Value) {
    let members = told.as_object().map(|members| members.keys().cloned());
    let found: BTreeSet<String> = members.into_iter().flatten().collect();
    let mut wrong = String::new();
    if told["schema"] != row.schema.as_str() {
        let _ = writeln!(
            wrong,
            "the schema is {}, not {}",
            told["schema"], row.schema
        );
    }
    for name in &row.members {
        if !name.ends_with('?') && !found.contains(name) {
            let _ = writeln!(wrong, "`{name}` is not there");
        }
    }
    let known = |name: &String| {
        row.members
            .iter()
            .any(|known| known.trim_end_matches('?') == name)
    };
    for name in found.iter().filter(|name| *name != "schema") {
        if !row.members.is_empty() && !known(name) {
            let _ = writeln!(wrong, "`{name}` is not in the row");
        }
    }
    assert!(
        wrong.is_empty(),
        "{} in docs/json.md:\n{wrong}{told:#}",
        row.verb
    );
}
