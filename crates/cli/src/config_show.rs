//! `cofferdam config show`: every setting, its value and its origin.

use std::process::ExitCode;

use cofferdam_contract::codes::ErrorCode;
use cofferdam_contract::limits::Limits;
use cofferdam_contract::problem::Problems;

use crate::arguments::{ConfigArgs, ConfigVerb, Places};
use crate::config::{self, Flags, Sources};
use crate::failure::{self, Failure};
use crate::run;

pub(crate) fn show(args: ConfigArgs, places: Places) -> Result<ExitCode, Failure> {
    let ConfigVerb::Show { json, limits } = args.verb;
    let flags = Flags {
        mode: places.mode,
        ..run::flags(&limits, None)
    };
    let mut merged = config::load(Sources::of_process(places.config, flags, Limits::STREAMING))
        .map_err(|problems| Failure::problems(ErrorCode::ConfigInvalid, &problems))?;
    let mut problems = Vec::new();
    merged
        .serve
        .environment(&|name| std::env::var_os(name), &mut problems);
    Problems::check(problems)
        .map_err(|problems| Failure::problems(ErrorCode::ConfigInvalid, &problems))?;
    let text = if json {
        format!("{:#}\n", config::json(&merged))
    } else {
        config::table(&merged)
    };
    failure::print(&text)?;
    Ok(ExitCode::SUCCESS)
}
