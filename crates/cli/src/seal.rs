//! `cofferdam seal`.
use std::process::ExitCode;
use crate::arguments::SealArgs;
use crate::failure::Failure;
pub(crate) fn seal(_args: &SealArgs) -> Result<ExitCode, Failure> { Ok(ExitCode::SUCCESS) }
