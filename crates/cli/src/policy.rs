//! The mode in force, and `cofferdam policy`. Every verb that does something asks here before it begins; what breaks a rule is refused by the rule's name.

mod audit;
mod show;
mod validate;

use std::process::ExitCode;

use cofferdam_contract::codes::ErrorCode;
use cofferdam_contract::limits::Limits;
use cofferdam_contract::mode::{Deed, Mode, NetworkReach, Violation};
use cofferdam_contract::request::BackendName;

use crate::arguments::Places;
use crate::arguments::policy::{PolicyArgs, PolicyVerb};
use crate::config::{self, DockerKey, Flags, Merged, Sources};
use crate::failure::Failure;

pub(crate) fn policy(args: PolicyArgs, places: Places) -> Result<ExitCode, Failure> {
    match args.verb {
        PolicyVerb::Show { json } => show::show(json, &places),
        PolicyVerb::Validate { file, json } => validate::validate(&file, json, places),
        PolicyVerb::Audit(args) => audit::audit(&args, places),
    }
}

/// Refuses a run that the mode in force does not allow.
pub(crate) fn obey(merged: &Merged, network: NetworkReach) -> Result<(), Failure> {
    let mode = merged.mode.value;
    refuse(mode, run_deeds(merged, network))
}

/// Refuses whatever of these the mode does not allow, all of it at once.
pub(crate) fn refuse<'a>(
    mode: Option<Mode>,
    deeds: impl IntoIterator<Item = Deed<'a>>,
) -> Result<(), Failure> {
    let found = mode.map_or_else(Vec::new, |mode| mode.violations(deeds));
    if found.is_empty() {
        return Ok(());
    }
    let lines = found.iter().map(Violation::to_string).collect();
    Err(Failure::lines(ErrorCode::PolicyRefused, lines))
}

/// The mode alone, for a verb that asks the configuration about nothing else.
pub(crate) fn in_force(places: &Places) -> Result<Option<Mode>, Failure> {
    Ok(load(places)?.mode.value)
}

/// What a run with these settings would do.
fn run_deeds(merged: &Merged, network: NetworkReach) -> Vec<Deed<'_>> {
    let mut deeds = vec![Deed::Run(merged.backend.value), Deed::Network(network)];
    if merged.backend.value == BackendName::Docker {
        deeds.extend(container_deeds(merged));
    }
    deeds
}

/// What a container takes besides.
pub(crate) fn container_deeds(merged: &Merged) -> Vec<Deed<'_>> {
    let mut deeds = vec![Deed::Daemon(merged.docker.get(DockerKey::Host))];
    if merged.docker.get(DockerKey::Pull) != "never" {
        deeds.push(Deed::Pull);
    }
    deeds
}

fn load(places: &Places) -> Result<Merged, Failure> {
    let flags = Flags {
        mode: places.mode,
        ..Flags::default()
    };
    let sources = Sources::of_process(places.config.clone(), flags, Limits::DEFAULT);
    config::load(sources).map_err(|problems| Failure::problems(ErrorCode::ConfigInvalid, &problems))
}
