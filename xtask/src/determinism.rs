//! `cargo xtask determinism`: runs programs twice in worlds that differ, and writes what was the same into docs/determinism.md, between two marks. The rest of that page is written by hand.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use serde::Deserialize;

use crate::install;
use crate::marks;
use crate::process::{cargo, watch};

/// As the suite leaves them.
#[derive(Debug, Clone, Deserialize)]
struct Finding {
    program: String,
    language: String,
    prints: String,
    excuse: String,
    is_same: bool,
    differs_without: bool,
}

/// The same name as in crates/cli/tests/determinism/worlds.rs.
const FINDINGS: &str = "COFFERDAM_DETERMINISM_FINDINGS";
const PAGE: &str = "docs/determinism.md";
const BEGIN: &str = "<!-- written by `cargo xtask determinism` -->\n";
const END: &str = "<!-- end -->\n";

pub(crate) fn run(root: &Path) -> Result<(), String> {
    install::packages()?;
    install::nextest(root)?;
    let dir = std::env::temp_dir().join(format!("determinism-{}", std::process::id()));
    let failed = |error: std::io::Error| format!("{}: {error}", dir.display());
    fs::create_dir(&dir).map_err(failed)?;
    let ran = watch(
        cargo(root)
            .args(["nextest", "run", "--package", "cofferdam", "--no-fail-fast"])
            .args(["--test", "determinism"])
            .env(FINDINGS, &dir),
    );
    let read = |name: &str| -> Result<Vec<Finding>, String> {
        let text = fs::read(dir.join(name)).map_err(|error| {
            format!("the suite left nothing about `{name}` ({error}); were its tests skipped?")
        })?;
        serde_json::from_slice(&text).map_err(|error| error.to_string())
    };
    let quarters = (0..4).map(|quarter| read(&format!("solutions-{quarter}")));
    let solutions = quarters.collect::<Result<Vec<_>, _>>();
    let found = read("noisy").and_then(|noisy| Ok((noisy, solutions?.concat())));
    fs::remove_dir_all(&dir).map_err(failed)?;
    ran?;
    let (noisy, solutions) = found?;
    let path = root.join(PAGE);
    let page = fs::read_to_string(&path).map_err(|error| format!("{PAGE}: {error}"))?;
    let page = marks::replaced(PAGE, &page, (BEGIN, END), &render(&noisy, &solutions))?;
    fs::write(&path, page).map_err(|error| format!("{PAGE}: {error}"))
}

fn render(noisy: &[Finding], solutions: &[Finding]) -> String {
    let mut table = String::from(
        "| program | language | prints | with `--deterministic` | without |\n| --- | --- | --- | --- | --- |\n",
    );
    for finding in noisy {
        let fixed = match (finding.is_same, finding.excuse.as_str()) {
            (true, "") => "same".to_owned(),
            (true, why) => format!("same this time; not promised: {why}"),
            (false, why) => format!("**differs**: {why}"),
        };
        let free = if finding.differs_without {
            "differs"
        } else {
            "same"
        };
        let _ = writeln!(
            table,
            "| {} | {} | {} | {fixed} | {free} |",
            finding.program, finding.language, finding.prints
        );
    }
    let same = solutions.iter().filter(|finding| finding.is_same).count();
    let origin = solutions.first().map_or("", |finding| &finding.prints);
    let _ = writeln!(
        table,
        "\nOf {} exercises ({origin}), each printing the result of every call of its tests with the time and a random number beside it, {same} printed the same.",
        solutions.len()
    );
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(excuse: &str, is_same: bool) -> Finding {
        Finding {
            program: "p".to_owned(),
            language: "C".to_owned(),
            prints: "time".to_owned(),
            excuse: excuse.to_owned(),
            is_same,
            differs_without: true,
        }
    }

    #[test]
    fn what_is_not_promised_is_never_called_the_same_without_saying_so() {
        let noisy = [
            finding("", true),
            finding("luck", true),
            finding("why", false),
        ];
        let table = render(&noisy, &[finding("", true)]);
        let rows: Vec<&str> = table.lines().skip(2).take(3).collect();
        let row = |fixed: &str| format!("| p | C | time | {fixed} | differs |");
        assert_eq!(
            rows,
            [
                row("same"),
                row("same this time; not promised: luck"),
                row("**differs**: why")
            ]
        );
        assert!(table.contains("Of 1 exercises (time)"), "{table}");
    }
}
