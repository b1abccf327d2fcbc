//! `cofferdam runs stats`: figures over the whole history.

use std::process::ExitCode;

use cofferdam_store::database::Stats;
use jiff::Timestamp;

use super::page::Page;
use super::{Kept, open_history, words};
use crate::arguments::history::StatsArgs;
use crate::failure::{self, Failure};
use crate::seal::pretty;
use crate::terminal::colour::Paint;
use crate::terminal::output::{self, Document};
use crate::terminal::size::Target;
use crate::terminal::{amount, time};

pub(crate) const SCHEMA: &str = "cofferdam.stats/1";

pub(crate) fn stats(args: &StatsArgs, kept: &Kept) -> Result<ExitCode, Failure> {
    let stats = open_history(kept)?.stats()?;
    if stats.runs == 0 && !args.json {
        output::note("no runs yet; `cofferdam run -- …` makes one");
        return Ok(ExitCode::SUCCESS);
    }
    failure::print(&if args.json {
        pretty(&Document {
            schema: SCHEMA,
            content: &stats,
        })?
    } else {
        let paint = Paint::of(args.color, Target::of_stdout());
        page(&stats, Timestamp::now(), paint)
    })?;
    Ok(ExitCode::SUCCESS)
}

fn page(stats: &Stats, now: Timestamp, paint: Paint) -> String {
    let mut page = Page::new(paint);
    page.section("RUNS");
    page.field("all", &stats.runs.to_string());
    for (status, count) in &stats.by_status {
        let share = *count as f64 / (stats.runs.max(1) as f64) * 100.0;
        let text = format!("{count} ({share:.0} %)");
        page.painted(status.as_str(), &text, words::colour(*status));
    }
    for (label, at) in [("oldest", stats.oldest), ("newest", stats.newest)] {
        if let Some(at) = at {
            let text = format!("{} ({})", time::short(at), time::ago(at, now));
            page.field(label, &text);
        }
    }
    page.section("DURATION");
    if let Some(found) = stats.duration_ms {
        for (label, ms) in [
            ("half within", found.p50),
            ("95 % within", found.p95),
            ("99 % within", found.p99),
            ("longest", found.max),
        ] {
            page.field(label, &amount::milliseconds(ms));
        }
    }
    room(&mut page, stats);
    page.section("MOST OFTEN");
    for (command, count) in &stats.top_commands {
        page.field(&format!("{count} ×"), command);
    }
    page.finish()
}

fn room(page: &mut Page, stats: &Stats) {
    page.section("ROOM");
    page.field("database", &amount::bytes(stats.database_bytes));
    let contents = amount::count(stats.objects, "content");
    let mut stored = format!("{contents}, {}", amount::bytes(stats.object_bytes));
    if stats.logical_bytes > stats.object_bytes {
        let logical = amount::bytes(stats.logical_bytes);
        stored.push_str(&format!(", which stand for {logical}"));
    }
    page.field("contents", &stored);
}

#[cfg(test)]
mod tests {
    use cofferdam_store::database::Percentiles;
    use cofferdam_store::model::Status;

    use super::*;
    use crate::runs::sample::{NOW, STARTED};

    fn sample() -> Stats {
        Stats {
            runs: 8,
            by_status: [(Status::Success, 6), (Status::Timeout, 2)].into(),
            oldest: Some(STARTED),
            newest: Some(NOW),
            duration_ms: Some(Percentiles {
                p50: 12.0,
                p95: 340.0,
                p99: 1200.0,
                max: 61_000.0,
            }),
            database_bytes: 4096,
            objects: 3,
            object_bytes: 1024,
            logical_bytes: 3072,
            top_commands: vec![("make\u{1b} all".to_owned(), 5)],
        }
    }

    #[test]
    fn figures_are_on_a_page() {
        let expected = "\
RUNS
  all           8
  success       6 (75 %)
  timeout       2 (25 %)
  oldest        2025-11-15T09:46:40Z (3 min ago)
  newest        2025-11-15T09:49:40Z (just now)

DURATION
  half within   12 ms
  95 % within   340 ms
  99 % within   1.2 s
  longest       1 min 1 s

ROOM
  database      4 KiB
  contents      3 contents, 1 KiB, which stand for 3 KiB

MOST OFTEN
  5 ×           make\\u{1b} all
";
        assert_eq!(page(&sample(), NOW, Paint::Plain), expected);
    }

    #[test]
    fn an_empty_history_has_json_too() {
        let empty = Stats {
            runs: 0,
            by_status: [].into(),
            oldest: None,
            newest: None,
            duration_ms: None,
            top_commands: Vec::new(),
            ..sample()
        };
        let document = Document {
            schema: SCHEMA,
            content: &empty,
        };
        let value = serde_json::to_value(document).unwrap();
        assert_eq!(value["schema"], "cofferdam.stats/1");
        assert_eq!(value["oldest"], serde_json::Value::Null);
        assert!(page(&empty, NOW, Paint::Plain).contains("all           0"));
    }
}
