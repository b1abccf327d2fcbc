//! `cofferdam results`: the answers that are kept of pure runs.

use std::process::ExitCode;

use cofferdam_store::results::{DEFAULT_BYTES, Listed, Results, Stats};
use serde_json::json;

use crate::arguments::Places;
use crate::arguments::keys::{ResultsArgs, ResultsVerb};
use crate::failure::{self, Failure};
use crate::history;
use crate::keys::nowhere;
use crate::terminal::amount;
use crate::terminal::output::document;
use crate::terminal::text::safe;

const SCHEMA: &str = "cofferdam.results/1";

pub(crate) fn results(args: &ResultsArgs, places: Places) -> Result<ExitCode, Failure> {
    let dir = history::place(places.data_dir).ok_or_else(nowhere)?;
    let results = Results::open(&dir, DEFAULT_BYTES)?;
    let text = match &args.verb {
        ResultsVerb::List { json: true } => {
            document(SCHEMA, &json!({ "answers": results.list() }))?
        }
        ResultsVerb::List { json: false } => table(&results.list()),
        ResultsVerb::Stats { json: true } => document(SCHEMA, &results.stats())?,
        ResultsVerb::Stats { json: false } => in_words(&results.stats()),
        ResultsVerb::Clear { json } => {
            let removed = results.clear()?;
            match json {
                true => document(SCHEMA, &json!({ "removed": removed }))?,
                false => format!("removed {}\n", amount::count(removed, "answer")),
            }
        }
    };
    failure::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

fn table(listed: &[Listed]) -> String {
    let row = |one: &Listed| {
        let size = amount::bytes(one.bytes);
        let about = safe(&one.about);
        format!("{}  {size:>9}  {}  {about}\n", one.run_id, one.last_used)
    };
    listed.iter().map(row).collect()
}

fn in_words(stats: &Stats) -> String {
    let mut text = format!(
        "{}, {} of at most {}\n",
        amount::count(stats.entries, "answer"),
        amount::bytes(stats.bytes),
        amount::bytes(stats.most_bytes),
    );
    if stats.damaged > 0 {
        text.push_str(&format!(
            "{} that nobody here wrote; they are not given and go when they are asked for\n",
            stats.damaged
        ));
    }
    text
}
