//! The table of README.md that compares with other sandboxes, from what `cargo xtask bench peers` measured. Nothing in it is typed by hand, so that it cannot say
//! what was not measured.

use std::fmt::Write as _;

use serde::Deserialize;

#[derive(Debug, Deserialize)]
struct Peers {
    kernel: String,
    cpus: usize,
    measured_at: String,
    clients: usize,
    programs: Vec<Program>,
    absent: Vec<Absent>,
}

#[derive(Debug, Deserialize)]
struct Program {
    name: String,
    paces: Vec<Pace>,
    throughput: Vec<Throughput>,
}

#[derive(Debug, Deserialize)]
struct Pace {
    rows: Vec<Row>,
}

#[derive(Debug, Deserialize)]
struct Row {
    name: String,
    p50_ms: f64,
    p95_ms: f64,
    runs: usize,
}

#[derive(Debug, Deserialize)]
struct Throughput {
    name: String,
    runs_per_second: f64,
}

#[derive(Debug, Deserialize)]
struct Absent {
    name: String,
}

/// How few runs a figure rests on before that is said.
const FEW: usize = 10;

/// Fastest first, by the first program without pauses, or the second where somebody has only that.
pub(crate) fn comparison(json: &str) -> Result<String, String> {
    let peers: Peers = serde_json::from_str(json).map_err(|error| error.to_string())?;
    let [first, second, ..] = peers.programs.as_slice() else {
        return Err(
            "two programs are needed for the table; measure with `cargo xtask bench peers`".into(),
        );
    };
    let is_new = |row: &&Row| unpaused(first).iter().all(|known| known.name != row.name);
    let only_second = unpaused(second).iter().filter(is_new);
    let mut rows: Vec<&Row> = unpaused(first).iter().chain(only_second).collect();
    rows.sort_by(|a, b| a.p50_ms.total_cmp(&b.p50_ms));
    let mut table = format!(
        "| ms for one run, p50 / p95 | `{}` | `{}` | runs/s, {} clients |\n| --- | --: | --: | --: |\n",
        first.name, second.name, peers.clients
    );
    for row in rows {
        let named = |program| {
            unpaused(program)
                .iter()
                .find(|other| other.name == row.name)
        };
        let cell = |program| named(program).map_or_else(|| "–".to_owned(), times);
        let rate = first.throughput.iter().find(|rate| rate.name == row.name);
        let _ = writeln!(
            table,
            "| {} | {} | {} | {} |",
            emphasised(&row.name),
            cell(first),
            cell(second),
            rate.map_or_else(
                || "–".to_owned(),
                |rate| format!("{:.0}", rate.runs_per_second)
            ),
        );
    }
    let day = peers.measured_at.split('T').next().unwrap_or_default();
    let absent: Vec<&str> = peers.absent.iter().map(|one| one.name.as_str()).collect();
    let _ = write!(
        table,
        "\nMeasured in turns on {} cores, Linux {}, as root, on {day}; a star: fewer than {FEW} runs.",
        peers.cpus, peers.kernel
    );
    if !absent.is_empty() {
        let _ = write!(table, " Not to be had there: {}.", absent.join(", "));
    }
    table.push('\n');
    Ok(table)
}

fn unpaused(program: &Program) -> &[Row] {
    program.paces.first().map_or(&[], |pace| &pace.rows)
}

fn times(row: &Row) -> String {
    let star = if row.runs < FEW { " \\*" } else { "" };
    format!("{:.1} / {:.1}{star}", row.p50_ms, row.p95_ms)
}

/// Ours stand out.
fn emphasised(name: &str) -> String {
    if name.starts_with("cofferdam") {
        format!("**{name}**")
    } else {
        name.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fastest_comes_first_and_few_runs_are_marked() {
        let row = |name, p50, runs| {
            format!(r#"{{"name": "{name}", "p50_ms": {p50}, "p95_ms": 9.04, "runs": {runs}}}"#)
        };
        let program = |name: &str, rows: &[String]| {
            let rows = rows.join(",");
            format!(
                r#"{{"name": "{name}", "paces": [{{"pause_ms": 0, "rows": [{rows}]}}], "throughput": [{{"name": "bare", "runs_per_second": 99.6}}]}}"#
            )
        };
        let one = program(
            "true",
            &[row("cofferdam run", "5.02", 20), row("bare", "0.8", 4)],
        );
        let two = program(
            "python3",
            &[row("bare", "16", 20), row("cofferdam code", "4", 20)],
        );
        let json = format!(
            r#"{{"kernel": "6.18", "cpus": 2, "measured_at": "2026-01-02T03:04Z", "clients": 16, "programs": [{one},{two}], "absent": [{{"name": "x", "why": "y"}}]}}"#
        );
        let table = comparison(&json).unwrap();
        let rows: Vec<&str> = table.lines().skip(2).collect();
        assert_eq!(rows[0], "| bare | 0.8 / 9.0 \\* | 16.0 / 9.0 | 100 |");
        assert_eq!(rows[1], "| **cofferdam code** | – | 4.0 / 9.0 | – |");
        assert_eq!(rows[2], "| **cofferdam run** | 5.0 / 9.0 | – | – |");
        assert!(table.contains("on 2026-01-02;") && table.ends_with("had there: x.\n"));
        let alone = json.replace(&format!(",{two}"), "");
        assert!(comparison(&alone).unwrap_err().contains("two programs"));
        assert!(comparison("{}").is_err());
    }
}
