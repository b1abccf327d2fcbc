//! `cofferdam runs`: what is kept of runs, for people and for scripts. A file per verb; this one opens the history and chooses.

mod binary;
mod compare;
mod contents;
mod diff;
pub(crate) mod filters;
mod lines;
mod list;
mod logs;
mod page;
mod printer;
mod prune;
#[cfg(test)]
pub(crate) mod sample;
mod save;
mod show;
mod stats;
pub(crate) mod unified;
pub(crate) mod words;

pub(crate) use binary::{is_binary, preview};
pub(crate) use contents::contents;

use std::process::ExitCode;

use cofferdam_contract::codes::ErrorCode;
use cofferdam_store::model::StoredRun;
use cofferdam_store::{DataDir, History};

use crate::arguments::Places;
use crate::arguments::history::{RunsArgs, RunsVerb};
use crate::config::HistorySettings;
use crate::failure::Failure;
use crate::history;

/// Where history is and how it is kept.
#[derive(Debug)]
pub(crate) struct Kept {
    pub(crate) dir: DataDir,
    pub(crate) settings: HistorySettings,
}

pub(crate) fn runs(args: RunsArgs, places: Places) -> Result<ExitCode, Failure> {
    let kept = Kept::find(places)?;
    match args.verb {
        RunsVerb::List(args) => list::list(&args, &kept),
        RunsVerb::Show(args) => show::show(&args, &kept),
        RunsVerb::Logs(args) => logs::logs(&args, &kept),
        RunsVerb::Diff(args) => diff::diff(&args, &kept),
        RunsVerb::Prune(args) => prune::prune(&args, &kept),
        RunsVerb::Stats(args) => stats::stats(&args, &kept),
        RunsVerb::Save(args) => save::save(&args, &kept),
    }
}

impl Kept {
    /// The flag, else the environment's.
    pub(crate) fn find(places: Places) -> Result<Self, Failure> {
        let settings = history::settings(places.config)?;
        let dir = history::place(places.data_dir).ok_or_else(|| {
            let message = "--data-dir: there is no place for history, because neither COFFERDAM_DATA_DIR nor XDG_DATA_HOME nor HOME is set; name a directory";
            Failure::new(ErrorCode::HistoryUnavailable, message)
        })?;
        Ok(Self { dir, settings })
    }
}

/// The one way to history: every verb that reads comes through here, and sees every run that has ended.
pub(crate) fn open_history(kept: &Kept) -> Result<History, Failure> {
    let mut history = History::open(&kept.dir)?;
    history::take_in_for_reading(&mut history, &kept.settings);
    Ok(history)
}

/// The run that is meant.
pub(crate) fn find(history: &History, asked: &str) -> Result<StoredRun, Failure> {
    let id = history.resolve(asked)?;
    Ok(history.get(id)?)
}
