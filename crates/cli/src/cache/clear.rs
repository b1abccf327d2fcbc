//! `cofferdam cache clear`. A cache that a run uses stays; what goes is moved aside first, so that half of one is never taken for a cache, also after a kill.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use cofferdam_contract::codes::ErrorCode;
use cofferdam_store::beneath;
use cofferdam_workshop::cache;
use rustix::fs::{Mode, OFlags};
use serde_json::{Value, json};

use super::list::{SCHEMA, document};
use super::look::{self, Volume};
use crate::arguments::cache::WhichCaches;
use crate::failure::{self, Failure};
use crate::seal::pretty;
use crate::terminal::amount;
use crate::terminal::waiting::Waiting;

/// Whether tools must be named.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Extent {
    Named,
    Everything,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    Remove,
    Say,
}

/// What became of one cache.
enum Fate {
    Removed,
    /// A run uses it.
    InUse,
    Failed(String),
}

/// What is on its way out. No tool has a cache of such a name.
const LEAVING: &str = ".removing-";

pub(super) fn clear(
    which: &WhichCaches,
    extent: Extent,
    older_than: Option<Duration>,
    purpose: Purpose,
) -> Result<ExitCode, Failure> {
    let is_chosen = !which.tools.is_empty() || which.project.is_some() || which.cache_dir.is_some();
    if extent == Extent::Named && !is_chosen {
        let fix = "names none; name tools, a project or a directory, or say --all";
        return Err(Failure::problem("cache clear", "", fix));
    }
    let now = SystemTime::now();
    let is_old = |volume: &Volume| {
        let age = volume
            .last_used
            .and_then(|last| now.duration_since(last).ok());
        // One that no run has used since uses are noted is as old as anything.
        older_than.is_none_or(|least| age.is_none_or(|age| age >= least))
    };
    let chosen = look::find(which)?.into_iter().filter(is_old);
    let waiting = Waiting::on("removing caches");
    let done: Vec<(Volume, Fate)> = chosen
        .map(|volume| {
            let fate = match purpose {
                Purpose::Say if volume.is_used => Fate::InUse,
                Purpose::Say => Fate::Removed,
                Purpose::Remove => remove(&volume),
            };
            (volume, fate)
        })
        .collect();
    drop(waiting);
    let freed: u64 = done
        .iter()
        .filter(|(_, fate)| matches!(fate, Fate::Removed))
        .map(|(volume, _)| volume.size.bytes)
        .sum();
    let text = match which.json {
        true => pretty(&json!({
            "schema": SCHEMA,
            "dry_run": purpose == Purpose::Say,
            "freed_bytes": freed,
            "caches": done.iter().map(told).collect::<Vec<Value>>(),
        }))?,
        false => lines(&done, freed, purpose),
    };
    failure::print(&text)?;
    let is_whole = done.iter().all(|(_, fate)| matches!(fate, Fate::Removed));
    Ok(ExitCode::from(u8::from(!is_whole)))
}

fn remove(volume: &Volume) -> Fate {
    let lock = match cache::alone(&volume.place, volume.cache) {
        Ok(Some(lock)) => lock,
        Ok(None) => return Fate::InUse,
        Err(_) => return Fate::Failed("its lock cannot be used".to_owned()),
    };
    let aside = format!("{LEAVING}{}", volume.cache.as_str());
    let moved = open(&volume.place).and_then(|dir| {
        // What a killed one left goes first.
        let _ = beneath::remove(&dir, Path::new(&aside));
        rustix::fs::renameat(&dir, volume.cache.as_str(), &dir, aside.as_str())?;
        Ok(dir)
    });
    let removed = moved.and_then(|dir| beneath::remove(&dir, Path::new(&aside)));
    drop(lock);
    match removed {
        Ok(()) => Fate::Removed,
        Err(error) => Fate::Failed(error.to_string()),
    }
}

fn open(place: &Path) -> std::io::Result<OwnedFd> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(rustix::fs::open(place, flags, Mode::empty())?)
}

fn told((volume, fate): &(Volume, Fate)) -> Value {
    let mut value = document(volume);
    value["result"] = match fate {
        Fate::Removed => json!("removed"),
        Fate::InUse => json!("in_use"),
        Fate::Failed(why) => json!({ "failed": why }),
    };
    value
}

fn lines(done: &[(Volume, Fate)], freed: u64, purpose: Purpose) -> String {
    let mut text = String::new();
    let mut removed = 0;
    for (volume, fate) in done {
        let path = volume.place.join(volume.cache.as_str());
        let line = match fate {
            Fate::Removed => {
                removed += 1;
                continue;
            }
            Fate::InUse => format!("kept `{}`: a run uses it", path.display()),
            Fate::Failed(why) => {
                let code = ErrorCode::OutputWriteFailed;
                format!("cannot remove `{}`: {why} [{code}]", path.display())
            }
        };
        text.push_str(&failure::visible(&line));
        text.push('\n');
    }
    let verb = match purpose {
        Purpose::Remove => "removed",
        Purpose::Say => "would remove",
    };
    let caches = amount::count(removed, "cache");
    text.push_str(&format!("{verb} {caches}, {}\n", amount::bytes(freed)));
    text
}
