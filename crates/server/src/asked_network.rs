//! What a request says of the network: read, and held against what the operator gives.

use cofferdam_contract::codes::ErrorCode;
use cofferdam_contract::mode::{Deed, NetworkReach};
use cofferdam_contract::network::Network;
use cofferdam_contract::problem::Problem;

use crate::config::RunBounds;
use crate::fault::Fault;
use crate::submission::RunRequest;

/// What the run gets; every problem is told.
pub(crate) fn within(
    request: &RunRequest,
    ceiling: &Network,
    problems: &mut Vec<Problem>,
) -> Network {
    let Some(text) = &request.network else {
        return Network::Denied;
    };
    if request.project.is_some() && text != "none" {
        let fix = "the steps of a project have no network; leave it out";
        problems.push(Problem::new("network", text, fix));
        return Network::Denied;
    }
    let read = Network::read(text);
    let within = read.and_then(|asked| asked.within(ceiling).map_err(|one| vec![one]));
    within.unwrap_or_else(|found| {
        problems.extend(found);
        Network::Denied
    })
}

/// What the mode in force says of it. Where it runs was asked when the daemon began.
pub(crate) fn check_mode(network: &Network, bounds: &RunBounds) -> Result<(), Fault> {
    let Some(mode) = bounds.mode else {
        return Ok(());
    };
    let found = mode.violations([Deed::Network(NetworkReach::from(network))]);
    if found.is_empty() {
        return Ok(());
    }
    let lines: Vec<String> = found.iter().map(ToString::to_string).collect();
    Err(Fault::coded(ErrorCode::PolicyRefused, lines.join("\n")))
}
