//! The one binary, `cofferdam`. A file per verb; this one only chooses.

mod arguments;
mod artifacts;
mod completions;
mod config;
mod config_show;
mod doctor;
mod execute;
mod failure;
mod man;
mod run;
mod runs;
mod seal;
mod terminal;
mod verify;

use std::process::ExitCode;

use arguments::Verb;

fn main() -> ExitCode {
    let cli = match arguments::parse() {
        Ok(cli) => cli,
        Err(error) => return failure::usage(&error),
    };
    let done = match cli.verb {
        Verb::Run(args) => run::run(*args, cli.config),
        Verb::Seal(args) => seal::seal(&args),
        Verb::Execute(args) => execute::execute(&args),
        Verb::Verify(args) => verify::verify(&args),
        Verb::Runs(args) => runs::runs(args, cli.data_dir),
        Verb::Artifacts(args) => artifacts::artifacts(&args, cli.data_dir),
        Verb::Doctor(args) => doctor::doctor(&args),
        Verb::Config(args) => config_show::show(args, cli.config),
        Verb::Completions(args) => completions::completions(&args),
        Verb::Man(args) => man::man(&args),
    };
    done.unwrap_or_else(|failure| failure.report())
}
