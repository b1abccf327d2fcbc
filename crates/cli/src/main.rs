//! The one binary, `cofferdam`. A file per verb; this one only chooses.

mod arguments;
mod artifacts;
mod audit;
mod burst;
mod cache;
mod chain;
mod completions;
mod config;
mod config_show;
mod containers;
mod demo;
mod detect;
mod doctor;
mod execute;
mod execute_project;
mod explain;
mod export;
mod failure;
mod fleet;
mod golden;
mod history;
mod images;
mod import;
mod inputs;
mod key;
mod keys;
mod known;
mod language;
mod man;
mod policy;
mod project;
mod pure;
mod receipt;
mod remote;
mod results;
mod rootfs;
mod run;
mod runs;
mod seal;
mod serve;
mod terminal;
mod verify;
mod wasm;

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
        mode: cli.mode,
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
        Verb::Keys(args) => keys::keys(&args, places),
        Verb::Receipt(args) => receipt::receipt(&args, places),
        Verb::Results(args) => results::results(&args, places),
        Verb::Images(args) => images::images(&args, places),
        Verb::Cache(args) => cache::cache(&args),
        Verb::Policy(args) => policy::policy(args, places),
        Verb::Submit(args) => remote::submit(&args, places),
        Verb::Worker(args) => fleet::worker(&args, places),
        Verb::Fleet(args) => fleet::fleet(&args, &places),
        Verb::Ledger(args) => fleet::ledger(&args, &places),
        Verb::Chain(args) => chain::chain(&args, &places),
        Verb::Demo(args) => demo::demo(&args, &places),
        Verb::Watch(args) => remote::watch(&args, places),
        Verb::Detect(args) => detect::detect(&args),
        Verb::Restore(args) => project::restore(*args, places),
        Verb::Build(args) => project::build(args.act, places),
        Verb::Test(args) => project::test(*args, places),
        Verb::Lint(args) => project::lint(args.act, places),
        Verb::Format(args) => project::format(args.act, places),
        Verb::Start(args) => project::start(*args, places),
        Verb::Task(args) => project::task(*args, places),
        Verb::Golden(args) => golden::golden(args, places),
        Verb::Doctor(args) => doctor::doctor(&args, places),
        Verb::Explain(args) => explain::explain(&args),
        Verb::Config(args) => config_show::show(args, places),
        Verb::Completions(args) => completions::completions(&args),
        Verb::Man(args) => man::man(&args),
        Verb::WasmCompile(args) => wasm::compile(&args),
    };
    done.unwrap_or_else(|failure| failure.report())
}
