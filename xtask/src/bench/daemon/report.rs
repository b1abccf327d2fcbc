//! How soon a result is at the control plane once it is in the outbox: measured by the callback crate's own example, which has a peer on loopback.

use std::path::Path;

use super::super::report::Report;
use super::super::{Effort, Options};
use crate::process::{cargo, read};

const PROMISED_MS: f64 = 20.0;
const LINE: &str = "enqueued to arrived, one at a time: ";

pub(super) fn measure(root: &Path, options: Options, report: &mut Report) -> Result<(), String> {
    let messages = match options.effort {
        Effort::Quick => "200",
        Effort::Full => "1000",
    };
    eprintln!("{messages} results to a peer on loopback");
    let said = read(cargo(root).args([
        "run",
        "--release",
        "--quiet",
        "--package",
        "cofferdam-callback",
        "--example",
        "latency",
        "--",
        messages,
    ]))?;
    let p95 = p95_ms(&said).ok_or_else(|| format!("no p95 in what the example says: {said}"))?;
    report.promise(
        "a result from the outbox to its peer, p95",
        p95,
        PROMISED_MS,
        " ms",
    );
    Ok(())
}

fn p95_ms(said: &str) -> Option<f64> {
    let line = said.lines().find_map(|line| line.strip_prefix(LINE))?;
    let word = line
        .split(", ")
        .find_map(|part| part.strip_prefix("p95 "))?;
    // As Rust writes a Duration.
    let units = [("ms", 1.0), ("µs", 1e-3), ("ns", 1e-6), ("s", 1e3)];
    units.into_iter().find_map(|(unit, ms)| {
        let number: f64 = word.strip_suffix(unit)?.parse().ok()?;
        Some(number * ms)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_in_every_unit() {
        let said = |word: &str| format!("x\n{LINE}p50 1ms, p95 {word}, p99 2s\n");
        assert_eq!(p95_ms(&said("1.5ms")), Some(1.5));
        assert_eq!(p95_ms(&said("500µs")), Some(0.5));
        assert_eq!(p95_ms(&said("2s")), Some(2000.0));
        assert_eq!(p95_ms(&said("soon")), None);
        assert_eq!(p95_ms(""), None);
    }
}
