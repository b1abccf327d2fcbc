//! The one binary, `cofferdam`. A file per verb; this one only chooses.

mod arguments;
mod artifacts;
mod audit;
mod completions;
mod config;
mod config_show;
mod containers;
mod doctor;
mod execute;
mod export;
mod failure;
mod history;
mod images;
mod import;
mod inputs;
mod key;
mod language;
mod man;
mod remote;
mod run;
mod runs;
mod seal;
mod serve;
mod terminal;
mod verify;

use std::process::ExitCode;

use arguments::{Places, Verb};

fn main() -> ExitCode {
    let cli = match arguments::parse() {
        Ok(cli) => cli,
        Err(error) => return failure::usage(&error),
    };
    let places = Places {
        config: cli.config,
        data_dir: cli.data_dir,
    };
    let done = match cli.verb {
        Verb::Run(args) => run::run(*args, places),
        Verb::Seal(args) => seal::seal(&args),
        Verb::Execute(args) => execute::execute(&args, places),
        Verb::Verify(args) => verify::verify(&args, places),
        Verb::Serve(args) => serve::serve(&args, places),
        Verb::Token(args) => serve::token(args, places),
        Verb::Runs(args) => runs::runs(args, places),
        Verb::Artifacts(args) => artifacts::artifacts(&args, places),
        Verb::Export(args) => export::export(&args, places),
        Verb::Import(args) => import::import(&args, places),
        Verb::Audit(args) => audit::audit(&args, places),
        Verb::Key(args) => key::key(&args),
        Verb::Images(args) => images::images(&args, places),
        Verb::Submit(args) => remote::submit(&args),
        Verb::Watch(args) => remote::watch(&args),
        Verb::Doctor(args) => doctor::doctor(&args, places),
        Verb::Config(args) => config_show::show(args, places.config),
        Verb::Completions(args) => completions::completions(&args),
        Verb::Man(args) => man::man(&args),
    };
    done.unwrap_or_else(|failure| failure.report())
}
