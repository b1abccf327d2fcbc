//! `cofferdam images` in a binary without the docker backend.

use std::process::ExitCode;

use cofferdam_contract::codes::ErrorCode;

use crate::arguments::Places;
use crate::arguments::images::ImagesArgs;
use crate::failure::Failure;

pub(crate) fn images(_: &ImagesArgs, _: Places) -> Result<ExitCode, Failure> {
    let message = "this binary was built without the docker backend";
    Err(Failure::new(ErrorCode::BackendUnavailable, message))
}
