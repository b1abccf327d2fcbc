//! `cofferdam key`: the keys that bundles are signed with.

use std::process::ExitCode;

use cofferdam_contract::codes::ErrorCode;
use cofferdam_store::bundle::{self, SigningKey};

use crate::arguments::bundle::{KeyArgs, KeyVerb};
use crate::failure::{self, Failure};

pub(crate) fn key(args: &KeyArgs) -> Result<ExitCode, Failure> {
    let public = match &args.verb {
        KeyVerb::New { file } => bundle::generate_key(file)
            .map_err(Failure::about_file(file, ErrorCode::OutputWriteFailed))?,
        KeyVerb::Show { file } => SigningKey::read(file)
            .map_err(Failure::about_file(file, ErrorCode::InputUnreadable))?
            .public_key(),
    };
    failure::print(&format!("{public}\n"))?;
    Ok(ExitCode::SUCCESS)
}
