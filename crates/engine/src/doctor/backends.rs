//! The backends that need something installed, each with how one run in it went.

use std::time::Duration;

use cofferdam_contract::enforcement::{Enforcer, LimitName};
use cofferdam_contract::limits::Limits;
use cofferdam_contract::request::{BackendName, Request};
use cofferdam_contract::units::Cap;

use super::report::{Finding, Mark, Reason};
use super::trial::{self, Bench};
use crate::error::EngineError;
use crate::{bubblewrap, gvisor};

/// gVisor takes a tenth of a second, and some seconds on a machine that has much else to do; whatever takes this long does not work.
const PATIENCE: Duration = Duration::from_secs(15);

pub(super) fn find(bench: &Bench<'_>) -> Vec<Finding> {
    [BackendName::Bubblewrap, BackendName::Gvisor]
        .into_iter()
        .map(|backend| try_one(bench, backend))
        .collect()
}

fn try_one(bench: &Bench<'_>, backend: BackendName) -> Finding {
    let name = backend.as_str();
    let tool = match backend {
        BackendName::Bubblewrap => bubblewrap::find(),
        BackendName::Gvisor => gvisor::find(),
        BackendName::Native | BackendName::Host | BackendName::Wasm | BackendName::Docker => {
            return Finding::ok(name, "needs nothing");
        }
    };
    let tool = match tool {
        Ok(tool) => tool.display().to_string(),
        Err(error) => return missing(name, &error),
    };
    let limits = Limits {
        wall_time: Cap::AtMost(PATIENCE),
        ..Limits::STREAMING
    };
    let request = Request {
        backend,
        // To find out about the rest, too.
        waived: LimitName::ALL.to_vec(),
        ..trial::request("exit 0", limits)
    };
    let tried = match bench.run(request) {
        Ok(tried) => tried,
        Err(error) => return missing(name, &error),
    };
    if tried.record.exit_code != Some(0) {
        let said = tried.record.stderr.data.lines().next().unwrap_or_default();
        let why = format!("{} {said}", tried.ending_in_words());
        return Finding::lacking(name, Mark::Missing, tool, Reason::without_fix(why));
    }
    let unheld: Vec<&str> = tried
        .record
        .enforced_by
        .iter()
        .filter(|(_, by)| by.0.contains(&Enforcer::Waived))
        .map(|(limit, _)| limit.as_str())
        .collect();
    let found = format!("{tool} works ({:.0} ms)", tried.took.as_secs_f64() * 1000.0);
    if unheld.is_empty() {
        return Finding::ok(name, found);
    }
    let why = format!(
        "{} cannot be held without a control group: a run is refused unless --waive names it",
        unheld.join(" and ")
    );
    let fix = "run as root, or under a systemd user service with Delegate=yes";
    Finding::lacking(name, Mark::Weaker, found, Reason::new(why, fix))
}

fn missing(name: &'static str, error: &EngineError) -> Finding {
    let (why, fix) = match error {
        EngineError::Unavailable { why, fix, .. } => (why.clone(), Some(fix.clone())),
        other => (other.to_string(), None),
    };
    Finding::lacking(name, Mark::Missing, "-", Reason { why, fix })
}
