//! `cargo xtask conformance`: runs the suite of hostile programs against every backend, and writes the matrix of what each one keeps into docs/conformance.md.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use serde::Deserialize;

use crate::install;
use crate::process::{cargo, watch};

/// What the suite leaves for each backend and each way of running it.
#[derive(Debug, Deserialize)]
struct Column {
    backend: String,
    way: String,
    findings: Vec<Finding>,
}

#[derive(Debug, Deserialize)]
struct Finding {
    promise: String,
    found: String,
}

/// The same name as in crates/cli/tests/conformance/trial.rs.
const FINDINGS: &str = "COFFERDAM_CONFORMANCE_FINDINGS";
const PAGE: &str = "docs/conformance.md";
/// Backends in the order in which people meet them; others follow by name.
const ORDER: [&str; 6] = ["native", "bubblewrap", "gvisor", "docker", "wasm", "host"];

pub(crate) fn run(root: &Path) -> Result<(), String> {
    install::packages()?;
    install::nextest(root)?;
    let dir = std::env::temp_dir().join(format!("conformance-{}", std::process::id()));
    let failed = |error: std::io::Error| format!("{}: {error}", dir.display());
    fs::create_dir(&dir).map_err(failed)?;
    let ran = watch(
        cargo(root)
            // As all tests are built, so that nothing is built twice; and no more than is needed.
            .args(["nextest", "run", "--workspace", "--no-fail-fast"])
            .args(["--test", "conformance"])
            .env(FINDINGS, &dir),
    );
    let columns = read(&dir);
    fs::remove_dir_all(&dir).map_err(failed)?;
    ran?;
    let page = render(&columns?);
    print!("{page}");
    let path = root.join(PAGE);
    fs::write(&path, page).map_err(|error| format!("{}: {error}", path.display()))
}

fn read(dir: &Path) -> Result<Vec<Column>, String> {
    let failed = |error: std::io::Error| format!("{}: {error}", dir.display());
    let mut columns = Vec::new();
    for found in fs::read_dir(dir).map_err(failed)? {
        let text = fs::read(found.map_err(failed)?.path()).map_err(failed)?;
        let column: Column = serde_json::from_slice(&text).map_err(|error| error.to_string())?;
        columns.push(column);
    }
    if columns.is_empty() {
        return Err("the suite found out nothing; were all its tests skipped?".to_owned());
    }
    columns.sort_by_key(|column| {
        let place = ORDER.iter().position(|name| *name == column.backend);
        let is_user = column.way == "ordinary user";
        (
            place.unwrap_or(ORDER.len()),
            column.backend.clone(),
            is_user,
        )
    });
    Ok(columns)
}

fn render(columns: &[Column]) -> String {
    let mut page = String::from(
        "# Conformance\n\n\
         One set of hostile programs, run against every backend. Written by `cargo xtask conformance`; do not edit. The suite is `crates/cli/tests/conformance`, and every line of it is \
         part of the tests.\n\n\
         A cell names what held the limit, as the record of the run says it, or `yes`. *Refused* means that a run that asks for this limit is refused there with \
         `limit.unenforceable`, unless it is waived by name. A number leads to the reason why a promise is not given.\n\n",
    );
    let Some(first) = columns.first() else {
        return page;
    };
    page.push_str("| promise |");
    for column in columns {
        let _ = write!(page, " {}, {} |", column.backend, column.way);
    }
    page.push_str("\n| --- |");
    page.push_str(&" --- |".repeat(columns.len()));
    page.push('\n');
    let mut reasons: Vec<&str> = Vec::new();
    for promise in first.findings.iter().map(|finding| &finding.promise) {
        let _ = write!(page, "| {promise} |");
        for column in columns {
            let found = column.findings.iter().find(|it| it.promise == *promise);
            let found = found.map_or("–", |finding| finding.found.as_str());
            let _ = write!(page, " {} |", cell(found, &mut reasons));
        }
        page.push('\n');
    }
    page.push('\n');
    for (number, reason) in (1..).zip(&reasons) {
        let _ = writeln!(page, "{number}. {reason}");
    }
    page
}

fn cell<'a>(found: &'a str, reasons: &mut Vec<&'a str>) -> String {
    if found == "refused unless waived" {
        return "*refused*".to_owned();
    }
    let Some(reason) = found.strip_prefix("no: ") else {
        return found.to_owned();
    };
    let place = reasons.iter().position(|known| *known == reason);
    let place = place.unwrap_or_else(|| {
        reasons.push(reason);
        reasons.len() - 1
    });
    format!("no ({})", place + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_matrix_has_a_row_for_each_promise_and_a_reason_once() {
        let column = |backend: &str, found: &[&str]| Column {
            backend: backend.to_owned(),
            way: "ordinary user".to_owned(),
            findings: ["memory", "walls", "doors"]
                .into_iter()
                .zip(found)
                .map(|(promise, found)| Finding {
                    promise: promise.to_owned(),
                    found: (*found).to_owned(),
                })
                .collect(),
        };
        let columns = [
            column("native", &["cgroup1", "yes", "yes"]),
            column("host", &["refused unless waived", "no: none", "no: none"]),
        ];
        let page = render(&columns);
        let table = page.split("is not given.\n\n").nth(1).unwrap();
        let expected = "| promise | native, ordinary user | host, ordinary user |\n| --- | --- | --- |\n\
            | memory | cgroup1 | *refused* |\n| walls | yes | no (1) |\n| doors | yes | no (1) |\n\n1. none\n";
        assert_eq!(table, expected);
    }
}
