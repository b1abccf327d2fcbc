//! How the verbs that run something keep it: what the flags and the configuration say becomes a recording, and every so often a run takes in the journals of the runs before it.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::PathBuf;

use cofferdam_contract::codes::ErrorCode;
use cofferdam_contract::limits::Limits;
use cofferdam_contract::record::RunRecord;
use cofferdam_engine::pipeline::Recording;
use cofferdam_store::adopt::{self, Adopted, Purpose};
use cofferdam_store::database::Access;
use cofferdam_store::sift::redact::Rules;
use cofferdam_store::{DataDir, History, RunId, StoreError, data_dir, upkeep};

use crate::arguments::HistoryArgs;
use crate::config::{self, Flags, HistorySettings, Sources, Switch};
use crate::failure::{self, Failure};

/// What is kept of the run that is about to begin; `None` for nothing.
pub(crate) fn recording(
    args: &HistoryArgs,
    dir: Option<PathBuf>,
    settings: &HistorySettings,
) -> Result<Option<Recording>, Failure> {
    let wanted = !args.no_history && settings.enabled.value == Switch::On;
    let Some(dir) = place(dir).filter(|_| wanted) else {
        if wanted {
            warn(&format!(
                "this run is not kept: none of {}, XDG_DATA_HOME and HOME says where; name a directory, or say --no-history",
                data_dir::VARIABLE
            ));
        }
        return Ok(None);
    };
    let patterns = settings.redact.iter().map(|pattern| &*pattern.value);
    let rules = Rules::default().with_patterns(patterns)?;
    let mut recording = Recording::new(dir);
    recording.tags = tags(&args.tag)?;
    recording.parent = match &args.parent {
        Some(asked) => Some(parent(&recording.dir, asked, settings)?),
        None => None,
    };
    recording.rules = rules;
    let wants_artifacts = !args.no_artifacts && settings.artifacts.value == Switch::On;
    recording.artifacts = wants_artifacts.then(|| settings.artifact_limits());
    Ok(Some(recording))
}

/// The directory that was named, or the user's own.
pub(crate) fn place(named: Option<PathBuf>) -> Option<DataDir> {
    named.map(DataDir::at).or_else(DataDir::of_process)
}

/// `KEY=VALUE`, or `KEY` alone for one without a value.
fn tags(given: &[String]) -> Result<BTreeMap<String, String>, Failure> {
    const LONGEST: usize = 256;
    let mut tags = BTreeMap::new();
    for text in given {
        let (key, value) = text.split_once('=').unwrap_or((text, ""));
        let problem = if key.is_empty() {
            Some("has no name; write KEY=VALUE")
        } else if text.len() > LONGEST {
            Some("is too long; use at most 256 bytes")
        } else if text.chars().any(char::is_control) {
            Some("holds control characters; remove them")
        } else {
            None
        };
        if let Some(fix) = problem {
            return Err(Failure::problem("--tag", text, fix));
        }
        if tags.insert(key.to_owned(), value.to_owned()).is_some() {
            return Err(Failure::problem("--tag", text, "is given twice; keep one"));
        }
    }
    Ok(tags)
}

/// A whole id is believed; a part of one must be looked up.
fn parent(dir: &DataDir, asked: &str, settings: &HistorySettings) -> Result<RunId, Failure> {
    if let Ok(id) = asked.parse() {
        return Ok(id);
    }
    let mut history = History::open(dir)?;
    take_in_for_reading(&mut history, settings);
    Ok(history.resolve(asked)?)
}

/// After the result has been told: what could not be kept is said, and now and then the journals are taken in.
pub(crate) fn afterwards(record: &RunRecord, dir: Option<&DataDir>, settings: &HistorySettings) {
    let Some(dir) = dir else {
        return;
    };
    let is_due = |id: RunId| adopt::is_due(dir, id);
    if record.unrecorded.is_none() && record.run_id.parse().is_ok_and(is_due) {
        // Whoever reads the history does it again and tells what is wrong.
        let _ = History::open(dir).and_then(|mut history| {
            take_in(&mut history, settings, Purpose::Passing)?;
            upkeep::prune_when_due(&mut history, &settings.retention())
        });
    }
}

/// Takes in what has ended since the last time.
fn take_in(
    history: &mut History,
    settings: &HistorySettings,
    purpose: Purpose,
) -> Result<Adopted, StoreError> {
    if history.access() == Access::ReadOnly {
        return Ok(Adopted {
            is_busy: adopt::is_waiting(history.dir()),
            ..Adopted::default()
        });
    }
    adopt::adopt(history, &settings.keeping(), purpose)
}

/// For whoever reads: takes in what has ended, and says what is not to be seen. What is in the database can be read in any case, also on a full disk.
pub(crate) fn take_in_for_reading(history: &mut History, settings: &HistorySettings) {
    match take_in(history, settings, Purpose::Reading) {
        Ok(adopted) => {
            for (path, why) in &adopted.passed_over {
                warn(&format!("`{}` is passed over: {why}", path.display()));
            }
            if adopted.is_busy {
                warn("runs that ended lately are not shown: they could not be taken in now");
            }
        }
        Err(error) => warn(&format!("runs that ended lately are not shown: {error}")),
    }
}

/// Of the configuration only what concerns history.
pub(crate) fn settings(config: Option<PathBuf>) -> Result<HistorySettings, Failure> {
    let sources = Sources::of_process(config, Flags::default(), Limits::DEFAULT);
    config::load(sources)
        .map(|merged| merged.history)
        .map_err(|problems| Failure::problems(ErrorCode::ConfigInvalid, &problems))
}

/// For whoever does not read the record.
pub(crate) fn tell_unrecorded(record: &RunRecord) {
    if let Some(why) = &record.unrecorded {
        warn(&format!("this run is not in the history: {why}"));
    }
}

fn warn(why: &str) {
    let code = ErrorCode::HistoryUnavailable.as_str();
    let line = failure::visible(why);
    let _ = writeln!(std::io::stderr(), "cofferdam: {line} [{code}]");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_names_with_or_without_values() {
        let given = ["a=b=c", "night", "x="].map(str::to_owned);
        let read = tags(&given).unwrap();
        assert_eq!(read["a"], "b=c");
        assert_eq!((read["night"].as_str(), read["x"].as_str()), ("", ""));
        for bad in ["=x", "a\nb", &"x".repeat(300)] {
            assert!(tags(&[bad.to_owned()]).is_err(), "{bad:?}");
        }
        assert!(tags(&["a=1".to_owned(), "a=2".to_owned()]).is_err());
    }
}
