//! How runs ended that never came to the engine here.

use cofferdam_contract::ending::{EndingRecord, StopCause};

use crate::fault::Fault;
use crate::live::Live;

pub(super) fn canceled(detail: &str) -> EndingRecord {
    let cause = StopCause::Canceled;
    EndingRecord::Stopped {
        cause: cause.name().to_owned(),
        limit: None,
        detail: detail.to_owned(),
    }
}

pub(super) fn expired(live: &Live) -> EndingRecord {
    let limit = live.deadline.saturating_duration_since(live.arrived);
    let cause = StopCause::WallTime { limit };
    EndingRecord::Stopped {
        cause: cause.name().to_owned(),
        limit: cause.limit(),
        detail: "its deadline passed before its turn came".to_owned(),
    }
}

pub(super) fn never_started(fault: &Fault) -> EndingRecord {
    let known = cofferdam_contract::codes::ErrorCode::ALL;
    let code = known.into_iter().find(|code| code.as_str() == fault.code);
    EndingRecord::NeverStarted {
        code: code.unwrap_or(cofferdam_contract::codes::ErrorCode::Internal),
        step: "prepare the run".to_owned(),
        message: fault.detail.clone(),
        errno: None,
    }
}
