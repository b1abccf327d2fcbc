//! A binary without the docker backend: there is no daemon to be asked.

use std::fs::File;

use cofferdam_contract::codes::ErrorCode;

use super::Listed;
use crate::arguments::images::BuildArgs;
use crate::containers::Settings;
use crate::failure::Failure;

const WHY: &str = "this binary was built without the docker backend";

pub(super) fn answers(_: &Settings) -> bool {
    false
}

pub(super) fn list(_: &Settings) -> Result<Vec<Listed>, String> {
    Err(WHY.to_owned())
}

pub(super) fn has(_: &str, _: &Settings) -> bool {
    false
}

pub(super) fn pull(_: &str, _: &Settings) -> Result<Listed, Failure> {
    Err(absent())
}

pub(super) fn remove(_: &str, _: &Settings) -> Result<Vec<String>, Failure> {
    Err(absent())
}

pub(super) fn prune(_: bool, _: &Settings) -> Result<(Vec<String>, u64), Failure> {
    Err(absent())
}

pub(super) fn export(_: &str, _: &File, _: u64, _: &Settings) -> Result<(), Failure> {
    Err(absent())
}

pub(super) fn build(_: &BuildArgs, _: &Settings) -> Result<String, Failure> {
    Err(absent())
}

fn absent() -> Failure {
    Failure::new(ErrorCode::BackendUnavailable, WHY)
}
