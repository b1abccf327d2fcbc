//! `cofferdam cache list` and `cache stats`.

use std::collections::BTreeMap;
use std::process::ExitCode;

use cofferdam_project::Cache;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::look::{self, Volume};
use crate::arguments::cache::WhichCaches;
use crate::failure::{self, Failure};
use crate::seal::pretty;
use crate::terminal::colour::{Paint, When};
use crate::terminal::size::Target;
use crate::terminal::table::{Align, Cell, Column, Room, Table};
use crate::terminal::text::safe;
use crate::terminal::{amount, output, time};

pub(super) const SCHEMA: &str = "cofferdam.caches/1";

pub(super) fn list(which: &WhichCaches) -> Result<ExitCode, Failure> {
    let found = look::find(which)?;
    if which.json {
        let caches: Vec<Value> = found.iter().map(document).collect();
        failure::print(&pretty(&json!({"schema": SCHEMA, "caches": caches}))?)?;
    } else if found.is_empty() {
        output::note("no caches yet; `cofferdam restore` and `cofferdam run --cache` make them");
    } else {
        failure::print(&table(&found))?;
    }
    Ok(ExitCode::SUCCESS)
}

pub(super) fn stats(which: &WhichCaches) -> Result<ExitCode, Failure> {
    let found = look::find(which)?;
    let mut by_tool: BTreeMap<Cache, (u64, u64, u64)> = BTreeMap::new();
    for volume in &found {
        let sum = by_tool.entry(volume.cache).or_default();
        sum.0 += 1;
        sum.1 = sum.1.saturating_add(volume.size.bytes);
        sum.2 += volume.size.files;
    }
    let total: u64 = by_tool.values().map(|sum| sum.1).sum();
    let text = if which.json {
        let tools: BTreeMap<&str, Value> = by_tool
            .iter()
            .map(|(cache, (count, bytes, files))| {
                let sums = json!({"caches": count, "bytes": bytes, "files": files});
                (cache.as_str(), sums)
            })
            .collect();
        let in_use = found.iter().filter(|volume| volume.is_used).count();
        pretty(&json!({
            "schema": SCHEMA,
            "caches": found.len(),
            "in_use": in_use,
            "bytes": total,
            "by_tool": tools,
        }))?
    } else {
        let mut table = Table::new(&[
            column("TOOL", Align::Left, Room::Fixed),
            column("CACHES", Align::Right, Room::Fixed),
            column("SIZE", Align::Right, Room::Fixed),
            column("FILES", Align::Right, Room::Fixed),
        ]);
        for (cache, (count, bytes, files)) in &by_tool {
            table.row(vec![
                Cell::new(cache.as_str()),
                Cell::new(count.to_string()),
                Cell::new(amount::bytes(*bytes)),
                Cell::new(files.to_string()),
            ]);
        }
        let sum = format!(
            "{} in {}\n",
            amount::bytes(total),
            amount::count(u64::try_from(found.len()).unwrap_or(u64::MAX), "cache")
        );
        render(&table) + &sum
    };
    failure::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// One cache for programs.
pub(super) fn document(volume: &Volume) -> Value {
    json!({
        "tool": volume.cache.as_str(),
        "project": volume.project,
        "path": volume.place.join(volume.cache.as_str()).to_string_lossy(),
        "bytes": volume.size.bytes,
        "files": volume.size.files,
        "partial": volume.size.is_partial,
        "in_use": volume.is_used,
        "last_used": last_used(volume),
    })
}

pub(super) fn last_used(volume: &Volume) -> Option<Timestamp> {
    volume.last_used.and_then(|at| Timestamp::try_from(at).ok())
}

fn table(found: &[Volume]) -> String {
    let now = Timestamp::now();
    let mut table = Table::new(&[
        column("TOOL", Align::Left, Room::Fixed),
        column("SIZE", Align::Right, Room::Fixed),
        column("FILES", Align::Right, Room::Drops(0)),
        column("USED", Align::Left, Room::Drops(1)),
        column("PROJECT", Align::Left, Room::Rest),
    ]);
    for volume in found {
        let used = match (volume.is_used, last_used(volume)) {
            (true, _) => "now".to_owned(),
            (false, Some(at)) => time::ago(at, now),
            (false, None) => "-".to_owned(),
        };
        let more = if volume.size.is_partial { "+" } else { "" };
        let place = volume.place.to_string_lossy();
        let project = volume.project.as_deref().unwrap_or(&place);
        table.row(vec![
            Cell::new(volume.cache.as_str()),
            Cell::new(format!("{}{more}", amount::bytes(volume.size.bytes))),
            Cell::new(volume.size.files.to_string()),
            Cell::new(used),
            Cell::new(safe(project)),
        ]);
    }
    render(&table)
}

fn render(table: &Table) -> String {
    let target = Target::of_stdout();
    table.render(target.columns(), Paint::of(When::Never, target))
}

const fn column(title: &'static str, align: Align, room: Room) -> Column {
    Column { title, align, room }
}
