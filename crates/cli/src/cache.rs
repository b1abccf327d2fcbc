//! What package managers keep between runs, as volumes: where each lies, how it is shown inside, who uses it now; and `cofferdam cache`.

mod clear;
mod list;
mod look;
mod place;
mod volume;

pub(crate) use place::{place, remember_best_effort};
pub(crate) use volume::for_run;

use std::process::ExitCode;

use crate::arguments::cache::{CacheArgs, CacheVerb};
use crate::failure::Failure;

pub(crate) fn cache(args: &CacheArgs) -> Result<ExitCode, Failure> {
    match &args.verb {
        CacheVerb::List(which) => list::list(which),
        CacheVerb::Stats(which) => list::stats(which),
        CacheVerb::Clear {
            which,
            all,
            older_than,
            dry_run,
        } => {
            let extent = match all {
                true => clear::Extent::Everything,
                false => clear::Extent::Named,
            };
            let purpose = match dry_run {
                true => clear::Purpose::Say,
                false => clear::Purpose::Remove,
            };
            clear::clear(which, extent, *older_than, purpose)
        }
    }
}
