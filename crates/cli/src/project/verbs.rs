//! One small function for each verb: what it asks for.

use std::process::ExitCode;

use cofferdam_project::Action;
use cofferdam_project::action::{Coverage, FailFast, Trust};
use cofferdam_workshop::{Attempts, Wish};

use super::act;
use crate::arguments::Places;
use crate::arguments::project::{ActArgs, RestoreArgs, StartArgs, TestArgs};
use crate::failure::Failure;

pub(crate) fn restore(args: RestoreArgs, places: Places) -> Result<ExitCode, Failure> {
    let mut wish = Wish::plain(Action::Restore);
    if args.trust_project {
        wish.options.trust = Trust::Yes;
    }
    act::act(args.act, places, wish, None)
}

pub(crate) fn build(args: ActArgs, places: Places) -> Result<ExitCode, Failure> {
    act::act(args, places, Wish::plain(Action::Build), None)
}

pub(crate) fn lint(args: ActArgs, places: Places) -> Result<ExitCode, Failure> {
    act::act(args, places, Wish::plain(Action::Lint), None)
}

pub(crate) fn format(args: ActArgs, places: Places) -> Result<ExitCode, Failure> {
    act::act(args, places, Wish::plain(Action::Format), None)
}

pub(crate) fn start(args: StartArgs, places: Places) -> Result<ExitCode, Failure> {
    let mut wish = Wish::plain(Action::Run);
    wish.options.args = args.args;
    act::act(args.act, places, wish, None)
}

pub(crate) fn test(args: TestArgs, places: Places) -> Result<ExitCode, Failure> {
    let mut wish = Wish::plain(Action::Test);
    wish.options.filter = args.filter;
    if args.fail_fast {
        wish.options.fail_fast = FailFast::Yes;
    }
    if args.coverage {
        wish.options.coverage = Coverage::Yes;
    }
    wish.attempts = match (args.retries, args.repeat) {
        (0, 1) => Attempts::One,
        (0, times) => Attempts::Repeat(times),
        (more, _) => Attempts::Retry(more),
    };
    act::act(args.act, places, wish, args.junit)
}
