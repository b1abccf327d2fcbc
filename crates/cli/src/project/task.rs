//! `cofferdam task`: a command that the project names itself, or the list of them.

use std::os::fd::AsFd as _;
use std::process::ExitCode;

use cofferdam_engine::host::Host;
use cofferdam_project::Action;
use cofferdam_project::commands::{Contract, Entry};
use serde_json::json;

use super::act;
use super::tell::Tell;
use crate::arguments::Places;
use crate::arguments::project::TaskArgs;
use crate::failure::{self, Failure};
use crate::terminal::text::safe;

pub(crate) fn task(mut args: TaskArgs, places: Places) -> Result<ExitCode, Failure> {
    let cancel = cofferdam_engine::cancel_on_signals().map_err(Failure::from)?;
    // With a list there is no command to name: what stands there is the directory.
    if let Some(path) = args.name.take_if(|_| args.list) {
        if args.act.path != std::path::Path::new(".") {
            return Err(Failure::problem(
                "--list",
                &path,
                "shows all commands; leave the name out",
            ));
        }
        args.act.path = path.into();
    }
    let json = args.act.json;
    let tell = Tell::new(&args.act, None)?;
    let host = Host::detect();
    let bench = act::bench(args.act, places, Action::Build, &host, cancel.as_fd())?;
    let Some(name) = args.name else {
        list(&cofferdam_workshop::commands(&bench)?, json)?;
        return Ok(ExitCode::SUCCESS);
    };
    let outcome = cofferdam_workshop::task(&bench, &name);
    let root = bench.root.clone();
    drop(bench);
    let outcome = outcome?;
    tell.outcome(&outcome, &root)?;
    Ok(ExitCode::from(outcome.exit_code))
}

fn list(contract: &Contract, json: bool) -> Result<(), Failure> {
    let lines = |entry: &Entry| match entry {
        Entry::Disabled => None,
        Entry::Run(commands) => Some(
            commands
                .iter()
                .map(|command| command.line.clone())
                .collect::<Vec<_>>(),
        ),
    };
    if json {
        let commands: serde_json::Map<String, serde_json::Value> = contract
            .commands
            .iter()
            .map(|(name, entry)| (name.clone(), json!(lines(entry))))
            .collect();
        return failure::print(&format!(
            "{}\n",
            json!({ "schema": "cofferdam.tasks/1", "commands": commands })
        ));
    }
    let mut text = String::new();
    for (name, entry) in &contract.commands {
        let said = lines(entry).map_or_else(|| "(disabled)".to_owned(), |lines| lines.join(" && "));
        text.push_str(&format!("{name:16}  {}\n", safe(&said)));
    }
    failure::print(&text)
}
