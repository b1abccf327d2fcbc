//! The chart: a bar for each contestant, as long as its p50 on a logarithmic scale, with a mark at its p95. Plain SVG, readable on light and on dark.

use std::fmt::Write as _;

use super::report::{Pace, Program, Report, Row};
use crate::svg::escape;

const WIDTH: f64 = 900.0;
const NAMES: f64 = 270.0;
const FIGURES: f64 = 130.0;
const ROW: f64 = 22.0;
const HEAD: f64 = 44.0;

/// All programs below each other, each without pauses.
pub(super) fn draw(report: &Report) -> String {
    let mut body = String::new();
    let mut y = 10.0;
    for program in &report.programs {
        if let Some(pace) = program.paces.first() {
            y = draw_program(&mut body, program, pace, y);
        }
    }
    let style = "text{font:13px system-ui,sans-serif;fill:#777}.t{font-weight:600;font-size:15px}.own{fill:#2a78c2}.other{fill:#9aa4ad}.bare{fill:#5a9c4c}.p95{stroke:#777;stroke-width:2}.grid{stroke:#8884}";
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {y}\" role=\"img\" aria-label=\"Milliseconds for one run, p50 and p95\">\n<style>{style}</style>\n{body}</svg>\n"
    )
}

fn draw_program(body: &mut String, program: &Program, pace: &Pace, top: f64) -> f64 {
    let scale = Scale::over(&pace.rows);
    let title = escape(program.name);
    let _ = writeln!(
        body,
        "<text class=\"t\" x=\"10\" y=\"{}\">{title}: ms for one run, p50 (bar) and p95 (mark), logarithmic</text>",
        top + 18.0
    );
    #[expect(clippy::cast_precision_loss, reason = "a dozen rows")]
    let bottom = top + HEAD + ROW * pace.rows.len() as f64;
    for (x, label) in scale.grid() {
        let _ = writeln!(
            body,
            "<line class=\"grid\" x1=\"{x:.1}\" y1=\"{}\" x2=\"{x:.1}\" y2=\"{bottom}\"/><text x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\">{label}</text>",
            top + HEAD - 4.0,
            top + HEAD - 8.0
        );
    }
    let mut y = top + HEAD;
    for row in &pace.rows {
        let class = match row.name {
            name if name.starts_with("cofferdam") => "own",
            name if name.starts_with("bare") => "bare",
            _ => "other",
        };
        let (p50, p95) = (scale.x(row.stats.p50_ms), scale.x(row.stats.p95_ms));
        let middle = y + ROW * 0.7;
        let _ = writeln!(
            body,
            "<text x=\"{}\" y=\"{middle}\" text-anchor=\"end\">{}</text>",
            NAMES - 8.0,
            escape(row.name)
        );
        let _ = writeln!(
            body,
            "<rect class=\"{class}\" x=\"{NAMES}\" y=\"{}\" width=\"{:.1}\" height=\"{}\" rx=\"2\"/>",
            y + 3.0,
            p50 - NAMES,
            ROW - 6.0
        );
        let _ = writeln!(
            body,
            "<line class=\"p95\" x1=\"{p95:.1}\" y1=\"{}\" x2=\"{p95:.1}\" y2=\"{}\"/>",
            y + 3.0,
            y + ROW - 3.0
        );
        let _ = writeln!(
            body,
            "<text x=\"{}\" y=\"{middle}\">{:.2} ({:.1} × bare)</text>",
            WIDTH - FIGURES + 8.0,
            row.stats.p50_ms,
            row.to_bare
        );
        y += ROW;
    }
    bottom + 20.0
}

/// From milliseconds to places.
struct Scale {
    low: f64,
    high: f64,
}

impl Scale {
    /// Whole powers of ten around everything.
    fn over(rows: &[Row]) -> Self {
        let times = rows
            .iter()
            .flat_map(|row| [row.stats.p50_ms, row.stats.p95_ms]);
        let times: Vec<f64> = times.filter(|time| *time > 0.0).collect();
        let low = times.iter().copied().fold(f64::INFINITY, f64::min);
        let high = times.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        if times.is_empty() {
            return Self {
                low: -1.0,
                high: 1.0,
            };
        }
        let (low, high) = (low.log10().floor(), high.log10().ceil());
        Self {
            low,
            high: high.max(low + 1.0),
        }
    }

    fn x(&self, ms: f64) -> f64 {
        let part = (ms.max(1e-6).log10() - self.low) / (self.high - self.low);
        NAMES + part.clamp(0.0, 1.0) * (WIDTH - NAMES - FIGURES)
    }

    fn grid(&self) -> Vec<(f64, String)> {
        let mut at = self.low;
        let mut lines = Vec::new();
        while at <= self.high + 0.5 {
            let ms = 10f64.powf(at);
            lines.push((self.x(ms), format!("{ms}")));
            at += 1.0;
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::bench::stats::Stats;

    #[test]
    fn longer_times_are_longer_bars_and_nothing_leaves_the_chart() {
        let row = |name, ms| Row {
            name,
            stats: Stats::of(vec![Duration::from_millis(ms)]).unwrap(),
            to_bare: 1.0,
        };
        let rows = [
            row("bare", 1),
            row("cofferdam <run>", 20),
            row("docker", 300),
        ];
        let scale = Scale::over(&rows);
        let places: Vec<f64> = rows.iter().map(|row| scale.x(row.stats.p50_ms)).collect();
        assert!(places.is_sorted() && places[0] >= NAMES);
        assert!(places[2] <= WIDTH - FIGURES);
        let mut report = Report::new(1);
        let mut program = Program::new("a & b");
        program.paces.push(Pace {
            pause_ms: 0,
            rows: rows.into(),
        });
        report.programs.push(program);
        let svg = draw(&report);
        assert!(svg.contains("a &amp; b") && svg.contains("cofferdam &lt;run&gt;"));
        assert_eq!(svg.matches("<rect").count(), 3);
    }
}
