//! The figures and promises of one benchmark, as tables for people and as JSON for programs.

use std::fmt;

use serde::Serialize;
use serde_json::{Value, json};

use super::contestant::Privilege;
use super::stats::Stats;

#[derive(Debug)]
pub(super) struct Report {
    privilege: Privilege,
    pub(super) latency: Vec<Latency>,
    pub(super) figures: Vec<Figure>,
    pub(super) throughput: Vec<Throughput>,
    promises: Vec<Promise>,
}

/// One program at one pace, under every contestant in the order of their names.
#[derive(Debug, Serialize)]
pub(super) struct Latency {
    pub(super) program: &'static str,
    pub(super) pause_ms: u64,
    pub(super) bare: Stats,
    pub(super) bubblewrap: Stats,
    pub(super) cofferdam: Stats,
}

#[derive(Debug, Serialize)]
pub(super) struct Figure {
    pub(super) what: String,
    pub(super) value: f64,
    pub(super) unit: &'static str,
}

#[derive(Debug, Serialize)]
pub(super) struct Throughput {
    pub(super) clients: usize,
    pub(super) bare: f64,
    pub(super) bubblewrap: f64,
    pub(super) cofferdam: f64,
}

/// Something that was promised: `measured` is at most `limit`.
#[derive(Debug, Serialize)]
struct Promise {
    what: String,
    measured: f64,
    limit: f64,
    unit: &'static str,
}

impl Report {
    pub(super) fn new(privilege: Privilege) -> Self {
        Self {
            privilege,
            latency: Vec::new(),
            figures: Vec::new(),
            throughput: Vec::new(),
            promises: Vec::new(),
        }
    }

    pub(super) fn promise(
        &mut self,
        what: impl Into<String>,
        measured: f64,
        limit: f64,
        unit: &'static str,
    ) {
        self.promises.push(Promise {
            what: what.into(),
            measured,
            limit,
            unit,
        });
    }

    pub(super) fn figure(&mut self, what: impl Into<String>, value: f64, unit: &'static str) {
        self.figures.push(Figure {
            what: what.into(),
            value,
            unit,
        });
    }

    /// The promises that were not kept.
    pub(super) fn broken(&self) -> Vec<String> {
        self.promises
            .iter()
            .filter(|promise| !promise.is_kept())
            .map(ToString::to_string)
            .collect()
    }

    pub(super) fn to_json(&self) -> Value {
        let promises: Vec<Value> = self
            .promises
            .iter()
            .map(|promise| json!({ "kept": promise.is_kept(), "promise": promise }))
            .collect();
        json!({
            "privilege": match self.privilege { Privilege::Own => "own", Privilege::Dropped => "uid 1000" },
            "latency": self.latency,
            "figures": self.figures,
            "runs_per_second": self.throughput,
            "promises": promises,
        })
    }
}

impl Latency {
    pub(super) fn to_bubblewrap(&self) -> f64 {
        self.cofferdam.p50_ms / self.bubblewrap.p50_ms
    }

    fn to_bare(&self) -> f64 {
        self.cofferdam.p50_ms / self.bare.p50_ms
    }
}

impl Promise {
    fn is_kept(&self) -> bool {
        self.measured <= self.limit
    }
}

impl fmt::Display for Promise {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: {:.2}{}, promised at most {}{}",
            self.what, self.measured, self.unit, self.limit, self.unit
        )
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.privilege == Privilege::Dropped {
            writeln!(
                f,
                "as uid 1000; every contestant pays one more exec (setpriv)\n"
            )?;
        }
        writeln!(
            f,
            "milliseconds p50 / p95, start to reaped, whole client process"
        )?;
        writeln!(
            f,
            "{:<24} {:>8}  {:>15} {:>15} {:>15}  {:>7} {:>7}",
            "program", "pause", "bare", "bubblewrap", "cofferdam", "/bwrap", "/bare"
        )?;
        for row in &self.latency {
            let [bare, bubblewrap, cofferdam] = [row.bare, row.bubblewrap, row.cofferdam].map(pair);
            let pause = format!("{} ms", row.pause_ms);
            let (to_bubblewrap, to_bare) = (row.to_bubblewrap(), row.to_bare());
            writeln!(
                f,
                "{:<24} {pause:>8}  {bare:>15} {bubblewrap:>15} {cofferdam:>15}  {to_bubblewrap:>7.2} {to_bare:>7.2}",
                row.program
            )?;
        }
        writeln!(
            f,
            "\nruns per second\n{:<24} {:>15} {:>15} {:>15}",
            "clients", "bare", "bubblewrap", "cofferdam"
        )?;
        for row in &self.throughput {
            writeln!(
                f,
                "{:<24} {:>15.0} {:>15.0} {:>15.0}",
                row.clients, row.bare, row.bubblewrap, row.cofferdam
            )?;
        }
        writeln!(f)?;
        for Figure { what, value, unit } in &self.figures {
            writeln!(f, "{what}: {value:.2}{unit}")?;
        }
        writeln!(f)?;
        for promise in &self.promises {
            writeln!(
                f,
                "{}  {promise}",
                if promise.is_kept() { "PASS" } else { "FAIL" }
            )?;
        }
        Ok(())
    }
}

fn pair(stats: Stats) -> String {
    format!("{:.2} / {:.2}", stats.p50_ms, stats.p95_ms)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broken_promise_is_named_and_a_kept_one_is_not() {
        let mut report = Report::new(Privilege::Own);
        report.promise("ratio", 0.4, 0.6, "");
        report.promise("memory", 13.0, 12.0, " MB");
        assert_eq!(
            report.broken(),
            ["memory: 13.00 MB, promised at most 12 MB"]
        );
        let shown = report.to_string();
        assert!(
            shown.contains("PASS  ratio") && shown.contains("FAIL  memory"),
            "{shown}"
        );
        assert_eq!(report.to_json()["promises"][1]["kept"], false);
        // A figure that could not be computed keeps nothing.
        report.promise("nothing", f64::NAN, 1.0, "");
        assert_eq!(report.broken().len(), 2);
    }
}
