//! What a request says of the network: read, and held against what the operator gives.

use cofferdam_contract::network::Network;
use cofferdam_contract::problem::Problem;

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
