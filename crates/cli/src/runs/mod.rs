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
mod unified;
pub(crate) mod words;

pub(crate) use binary::{is_binary, preview};
pub(crate) use contents::contents;

use std::path::PathBuf;
use std::process::ExitCode;

use cofferdam_contract::codes::ErrorCode;
use cofferdam_store::model::StoredRun;
use cofferdam_store::{DataDir, History};

use crate::arguments::history::{RunsArgs, RunsVerb};
use crate::failure::Failure;

pub(crate) fn runs(args: RunsArgs, data_dir: Option<PathBuf>) -> Result<ExitCode, Failure> {
    let dir = data_dir_in_force(data_dir)?;
    match args.verb {
        RunsVerb::List(args) => list::list(&args, &dir),
        RunsVerb::Show(args) => show::show(&args, &dir),
        RunsVerb::Logs(args) => logs::logs(&args, &dir),
        RunsVerb::Diff(args) => diff::diff(&args, &dir),
        RunsVerb::Prune(args) => prune::prune(&args, &dir),
        RunsVerb::Stats(args) => stats::stats(&args, &dir),
        RunsVerb::Save(args) => save::save(&args, &dir),
    }
}

/// The flag, else the environment's.
pub(crate) fn data_dir_in_force(asked: Option<PathBuf>) -> Result<DataDir, Failure> {
    asked
        .map(DataDir::at)
        .or_else(DataDir::of_process)
        .ok_or_else(|| {
            let message = "--data-dir: there is no place for history, because neither COFFERDAM_DATA_DIR nor XDG_DATA_HOME nor HOME is set; name a directory";
            Failure::new(ErrorCode::HistoryUnavailable, message)
        })
}

/// The one way to history: every verb that reads comes through here.
pub(crate) fn open_history(dir: &DataDir) -> Result<History, Failure> {
    Ok(History::open(dir)?)
}

/// The run that is meant.
pub(crate) fn find(history: &History, asked: &str) -> Result<StoredRun, Failure> {
    let id = history.resolve(asked)?;
    Ok(history.get(id)?)
}
