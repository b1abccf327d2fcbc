//! Two charts below each other: what a run costs while a queue is worked off, and beside sandboxes that stand. Plain SVG, readable on light and on dark.

use std::fmt::Write as _;

use super::Report;

const WIDTH: f64 = 900.0;
const HEIGHT: f64 = 240.0;
const LEFT: f64 = 60.0;
const RIGHT: f64 = 30.0;
const HEAD: f64 = 40.0;
const FOOT: f64 = 40.0;

struct Line {
    class: &'static str,
    points: Vec<(f64, f64)>,
}

pub(super) fn draw(report: &Report) -> String {
    #[expect(clippy::cast_precision_loss, reason = "some thousands")]
    let queue = Line {
        class: "p50",
        points: report
            .queue
            .windows
            .iter()
            .map(|window| (window.done as f64, window.ms_per_run))
            .collect(),
    };
    #[expect(clippy::cast_precision_loss, reason = "some hundreds")]
    let beside = |class, of: fn(&super::Stats) -> f64| Line {
        class,
        points: report
            .beside
            .iter()
            .map(|found| (found.standing as f64, of(&found.stats)))
            .collect(),
    };
    let mut body = String::new();
    let queued = report.queue.queued;
    let title = format!("ms for each run while {queued} that waited are worked off");
    panel(&mut body, 0.0, &title, "runs done", &[queue]);
    let lines = [
        beside("p50", |stats| stats.p50_ms),
        beside("p95", |stats| stats.p95_ms),
    ];
    let title = "ms for one run, p50 and p95 (dashed)";
    panel(&mut body, HEIGHT, title, "sandboxes that stand", &lines);
    let style = "text{font:13px system-ui,sans-serif;fill:#777}.t{font-weight:600;font-size:15px}polyline{fill:none;stroke:#2a78c2;stroke-width:2}.p95{stroke-dasharray:5 4}.grid{stroke:#8884}";
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {}\" role=\"img\" aria-label=\"Cost of a run as their number grows\">\n<style>{style}</style>\n{body}</svg>\n",
        HEIGHT * 2.0
    )
}

/// Both axes begin at zero: a line that looks flat is flat.
fn panel(body: &mut String, top: f64, title: &str, below: &str, lines: &[Line]) {
    let all = || lines.iter().flat_map(|line| &line.points);
    let right = all().map(|(x, _)| *x).fold(1.0, f64::max);
    let most = all().map(|(_, y)| *y).fold(1.0, f64::max).ceil();
    let x_of = |x: f64| LEFT + x / right * (WIDTH - LEFT - RIGHT);
    let y_of = |y: f64| top + HEIGHT - FOOT - y / most * (HEIGHT - HEAD - FOOT);
    let _ = writeln!(
        body,
        "<text class=\"t\" x=\"10\" y=\"{}\">{title}</text>",
        top + 22.0
    );
    for part in [0.0, 0.5, 1.0] {
        let (y, x) = (y_of(most * part), x_of(right * part));
        let _ = writeln!(
            body,
            "<line class=\"grid\" x1=\"{LEFT}\" y1=\"{y:.1}\" x2=\"{}\" y2=\"{y:.1}\"/><text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text><text x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\">{:.0}</text>",
            WIDTH - RIGHT,
            LEFT - 8.0,
            y + 4.0,
            most * part,
            top + HEIGHT - FOOT + 18.0,
            right * part
        );
    }
    let _ = writeln!(
        body,
        "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{below}</text>",
        WIDTH - RIGHT,
        top + HEIGHT - 6.0
    );
    for line in lines {
        let points: Vec<String> = line
            .points
            .iter()
            .map(|(x, y)| format!("{:.1},{:.1}", x_of(*x), y_of(*y)))
            .collect();
        let _ = writeln!(
            body,
            "<polyline class=\"{}\" points=\"{}\"/>",
            line.class,
            points.join(" ")
        );
    }
}
