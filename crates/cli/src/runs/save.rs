//! `cofferdam runs save`: a run as a directory that other tools read.

use std::path::Path;
use std::process::ExitCode;

use cofferdam_contract::codes::ErrorCode;
use cofferdam_store::model::StoredRun;
use serde_json::json;

use super::contents::write_view;
use super::{Kept, find, open_history};
use crate::arguments::history::SaveArgs;
use crate::failure::{self, Failure};
use crate::seal::pretty;
use crate::terminal::text::safe;

pub(crate) const SCHEMA: &str = "cofferdam.saved/1";

pub(crate) fn save(args: &SaveArgs, kept: &Kept) -> Result<ExitCode, Failure> {
    let history = open_history(kept)?;
    let run = find(&history, &args.run)?;
    let chunks = history.output(run.opening.run_id)?;
    let about = Failure::about_file(&args.output, ErrorCode::OutputWriteFailed);
    let path = write_view(&history, &run, &chunks, &args.output).map_err(about)?;
    failure::print(&saved(args, &run, &path)?)?;
    Ok(ExitCode::SUCCESS)
}

fn saved(args: &SaveArgs, run: &StoredRun, path: &Path) -> Result<String, Failure> {
    let path = path.to_string_lossy();
    if args.json {
        let run_id = run.opening.run_id;
        pretty(&json!({"schema": SCHEMA, "run_id": run_id, "path": path}))
    } else {
        Ok(format!("{}\n", safe(&path)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runs::sample;

    #[test]
    fn where_it_is_is_said() {
        let args = |json| SaveArgs {
            run: "latest".to_owned(),
            output: ".".into(),
            json,
        };
        let path = Path::new("out/a\u{1b}");
        let run = sample::exited(0);
        assert_eq!(
            saved(&args(false), &run, path).ok().as_deref(),
            Some("out/a\\u{1b}\n")
        );
        let text = saved(&args(true), &run, path).unwrap();
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value["schema"], "cofferdam.saved/1");
        assert_eq!(value["run_id"], sample::id(1).to_string());
    }
}
