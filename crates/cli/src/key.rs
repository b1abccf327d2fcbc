//! `cofferdam key`: the keys that bundles are signed with.

use std::process::ExitCode;

use cofferdam_contract::codes::ErrorCode;
use cofferdam_store::bundle::{self, SigningKey};
use serde_json::json;

use crate::arguments::bundle::{KeyArgs, KeyVerb};
use crate::failure::{self, Failure};
use crate::terminal::output::document;

pub(crate) fn key(args: &KeyArgs) -> Result<ExitCode, Failure> {
    let (public, json) = match &args.verb {
        KeyVerb::New { file, json } => {
            let about = Failure::about_file(file, ErrorCode::OutputWriteFailed);
            (bundle::generate_key(file).map_err(about)?, json)
        }
        KeyVerb::Show { file, json } => {
            let about = Failure::about_file(file, ErrorCode::InputUnreadable);
            (SigningKey::read(file).map_err(about)?.public_key(), json)
        }
    };
    failure::print(&match json {
        true => {
            let told = json!({ "public_key": public.to_string(), "id": public.id() });
            document("cofferdam.key/1", &told)?
        }
        false => format!("{public}\n"),
    })?;
    Ok(ExitCode::SUCCESS)
}
