//! `cofferdam runs prune`: what is too old, too many or too large goes, or would.

use std::fmt::Write as _;
use std::process::ExitCode;

use cofferdam_store::database::{PruneMode, PruneReason, Pruned, Retention};
use jiff::Timestamp;
use serde::Serialize;

use super::{Kept, open_history, words};
use crate::arguments::history::PruneArgs;
use crate::failure::{self, Failure};
use crate::seal::pretty;
use crate::terminal::amount;
use crate::terminal::colour::{Paint, When};
use crate::terminal::size::Target;
use crate::terminal::table::{Align, Cell, Column, Room, Table};
use crate::terminal::text::safe;
use crate::terminal::time;
use crate::terminal::waiting::Waiting;

pub(crate) const SCHEMA: &str = "cofferdam.pruned/1";

pub(crate) fn prune(args: &PruneArgs, kept: &Kept) -> Result<ExitCode, Failure> {
    let mode = if args.dry_run {
        PruneMode::DryRun
    } else {
        PruneMode::Remove
    };
    let mut history = open_history(kept)?;
    let waiting = Waiting::on("removing runs");
    let pruned = if args.run.is_empty() {
        history.prune(&retention(args, kept.settings.retention()), mode)?
    } else {
        let named = args.run.iter().map(|asked| history.resolve(asked));
        let mut ids = named.collect::<Result<Vec<_>, _>>()?;
        ids.sort_unstable();
        ids.dedup();
        history.remove(&ids, mode)?
    };
    drop(waiting);
    let target = Target::of_stdout();
    failure::print(&if args.json {
        json(&pruned, mode)?
    } else {
        page(&pruned, mode, Timestamp::now(), target)
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Each flag wins over what is in force.
fn retention(args: &PruneArgs, in_force: Retention) -> Retention {
    Retention {
        max_age: args.max_age.unwrap_or(in_force.max_age),
        max_age_of_failures: args
            .max_age_of_failures
            .unwrap_or(in_force.max_age_of_failures),
        max_runs: args.max_runs.unwrap_or(in_force.max_runs),
        max_bytes: args.max_size.unwrap_or(in_force.max_bytes),
    }
}

#[derive(Debug, Serialize)]
struct Report<'a> {
    schema: &'static str,
    dry_run: bool,
    #[serde(flatten)]
    pruned: &'a Pruned,
}

fn json(pruned: &Pruned, mode: PruneMode) -> Result<String, Failure> {
    pretty(&Report {
        schema: SCHEMA,
        dry_run: mode == PruneMode::DryRun,
        pruned,
    })
}

fn page(pruned: &Pruned, mode: PruneMode, now: Timestamp, target: Target) -> String {
    let mut text = String::new();
    if !pruned.runs.is_empty() {
        let paint = Paint::of(When::Auto, target);
        text.push_str(&table(pruned, now).render(target.columns(), paint));
        text.push('\n');
    }
    let runs = amount::count(u64::try_from(pruned.runs.len()).unwrap_or(u64::MAX), "run");
    let objects = amount::count(pruned.objects, "stored content");
    let freed = amount::bytes(pruned.freed_bytes);
    let (removed, frees) = match mode {
        PruneMode::Remove => ("removed", "freed"),
        PruneMode::DryRun => ("would remove", "would free"),
    };
    let _ = writeln!(text, "{removed} {runs} and {objects}, {frees} {freed}");
    let kept = amount::count(pruned.kept_runs, "run");
    let bytes = amount::bytes(pruned.kept_bytes);
    let keeps = match mode {
        PruneMode::Remove => "kept",
        PruneMode::DryRun => "would keep",
    };
    let _ = writeln!(text, "{keeps} {kept}, {bytes}");
    text
}

fn table(pruned: &Pruned, now: Timestamp) -> Table {
    const fn column(title: &'static str, room: Room) -> Column {
        Column {
            title,
            align: Align::Left,
            room,
        }
    }
    let mut table = Table::new(&[
        column("ID", Room::Fixed),
        column("WHY", Room::Fixed),
        column("STATUS", Room::Drops(0)),
        column("STARTED", Room::Drops(1)),
        column("COMMAND", Room::Rest),
    ]);
    for run in &pruned.runs {
        let why = match run.why {
            PruneReason::Age => "too old",
            PruneReason::Count => "too many",
            PruneReason::Size => "too large",
            PruneReason::Named => "named",
        };
        table.row(vec![
            Cell::new(run.run_id.to_string()),
            Cell::new(why),
            Cell::coloured(run.status.as_str(), words::colour(run.status)),
            Cell::new(time::ago(run.started_at, now)),
            Cell::new(safe(&run.command)),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use cofferdam_store::database::PrunedRun;
    use cofferdam_store::model::Status;

    use super::*;
    use crate::runs::sample::{self, NOW};

    fn pruned() -> Pruned {
        Pruned {
            runs: vec![PrunedRun {
                run_id: sample::id(1),
                started_at: sample::STARTED,
                status: Status::Failure,
                command: "make\u{1b}".to_owned(),
                why: PruneReason::Age,
            }],
            objects: 2,
            freed_bytes: 1536,
            kept_runs: 7,
            kept_bytes: 1 << 20,
        }
    }

    #[test]
    fn what_went_and_what_stays_is_told() {
        let expected = "\
ID                                    WHY      STATUS   STARTED    COMMAND
019a86e8-e000-7000-8000-000000000001  too old  failure  3 min ago  make\\u{1b}

removed 1 run and 2 stored contents, freed 1.5 KiB
kept 7 runs, 1 MiB
";
        assert_eq!(
            page(&pruned(), PruneMode::Remove, NOW, Target::Pipe),
            expected
        );
        let dry = page(&Pruned::default(), PruneMode::DryRun, NOW, Target::Pipe);
        assert_eq!(
            dry,
            "would remove 0 runs and 0 stored contents, would free 0 B\nwould keep 0 runs, 0 B\n"
        );
    }

    #[test]
    fn json_says_whether_anything_was_removed() {
        let text = json(&pruned(), PruneMode::DryRun).unwrap();
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value["schema"], "cofferdam.pruned/1");
        assert_eq!(value["dry_run"], true);
        assert_eq!(value["runs"][0]["why"], "age");
        assert_eq!(value["freed_bytes"], 1536);
    }

    #[test]
    fn a_flag_changes_its_own_bound_alone() {
        let args = PruneArgs {
            max_runs: Some(cofferdam_contract::units::Cap::Unlimited),
            ..PruneArgs::default()
        };
        let in_force = Retention::default();
        let expected = Retention {
            max_runs: cofferdam_contract::units::Cap::Unlimited,
            ..in_force.clone()
        };
        assert_eq!(retention(&args, in_force), expected);
    }
}
