//! `cofferdam doctor`.
use std::process::ExitCode;
use crate::arguments::DoctorArgs;
use crate::failure::Failure;
pub(crate) fn doctor(_args: &DoctorArgs) -> Result<ExitCode, Failure> { Ok(ExitCode::SUCCESS) }
