//! What was measured, as a table for people and as JSON for the rest.

use std::fmt;

use serde::Serialize;

use crate::bench::machine::Machine;
use crate::bench::stats::Stats;

#[derive(Debug, Serialize)]
pub(super) struct Report {
    schema: &'static str,
    #[serde(flatten)]
    machine: Machine,
    clients: usize,
    pub(super) programs: Vec<Program>,
    pub(super) absent: Vec<Absent>,
}

/// A sandbox that did not take part.
#[derive(Debug, Serialize)]
pub(super) struct Absent {
    pub(super) name: String,
    why: String,
}

#[derive(Debug, Serialize)]
pub(super) struct Program {
    pub(super) name: &'static str,
    pub(super) paces: Vec<Pace>,
    pub(super) throughput: Vec<Throughput>,
}

#[derive(Debug, Serialize)]
pub(super) struct Pace {
    pub(super) pause_ms: u64,
    pub(super) rows: Vec<Row>,
}

#[derive(Debug, Serialize)]
pub(super) struct Row {
    pub(super) name: &'static str,
    #[serde(flatten)]
    pub(super) stats: Stats,
    /// p50, as a multiple of a bare process's.
    pub(super) to_bare: f64,
}

#[derive(Debug, Serialize)]
pub(super) struct Throughput {
    pub(super) name: &'static str,
    pub(super) runs_per_second: f64,
    pub(super) cpu_ms_per_run: f64,
}

impl Report {
    pub(super) fn new(clients: usize) -> Self {
        Self {
            schema: "cofferdam.peers/1",
            machine: Machine::this(),
            clients,
            programs: Vec::new(),
            absent: Vec::new(),
        }
    }
}

impl Absent {
    pub(super) fn new(name: impl Into<String>, why: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            why: why.into(),
        }
    }
}

impl Program {
    pub(super) fn new(name: &'static str) -> Self {
        Self {
            name,
            paces: Vec::new(),
            throughput: Vec::new(),
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.machine)?;
        for program in &self.programs {
            for pace in &program.paces {
                writeln!(f, "\n{}, pauses of {} ms", program.name, pace.pause_ms)?;
                writeln!(
                    f,
                    "  {:36} {:>9} {:>9} {:>9} {:>9}",
                    "ms", "p50", "p95", "p99", "to bare"
                )?;
                for Row {
                    name,
                    stats,
                    to_bare,
                } in &pace.rows
                {
                    let Stats {
                        p50_ms,
                        p95_ms,
                        p99_ms,
                        ..
                    } = stats;
                    writeln!(
                        f,
                        "  {name:36} {p50_ms:9.3} {p95_ms:9.3} {p99_ms:9.3} {to_bare:9.2}"
                    )?;
                }
            }
            writeln!(f, "\n{}, {} clients", program.name, self.clients)?;
            writeln!(f, "  {:36} {:>9} {:>11}", "", "runs/s", "CPU ms/run")?;
            for row in &program.throughput {
                writeln!(
                    f,
                    "  {:36} {:9.0} {:11.2}",
                    row.name, row.runs_per_second, row.cpu_ms_per_run
                )?;
            }
        }
        for absent in &self.absent {
            writeln!(f, "without {}: {}", absent.name, absent.why)?;
        }
        Ok(())
    }
}
