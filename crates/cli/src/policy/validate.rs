//! `cofferdam policy validate`: a configuration or a payload held against the mode in force, without running anything.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use cofferdam_contract::codes::ErrorCode;
use cofferdam_contract::mode::{Deed, Mode, NetworkReach, Violation};
use cofferdam_contract::seal::{Draft, OpenError, Sealed};
use cofferdam_contract::strict_json;
use jiff::Timestamp;
use serde_json::json;

use super::show;
use crate::arguments::Places;
use crate::config::ServeKey;
use crate::execute;
use crate::failure::{self, Failure};
use crate::seal::document::Document;
use crate::seal::{entropy, pretty};

const SCHEMA: &str = "cofferdam.policy.validation/1";

/// What was found in a file.
struct Found {
    kind: &'static str,
    mode: Option<Mode>,
    violations: Vec<Violation>,
}

pub(super) fn validate(file: &Path, json: bool, places: Places) -> Result<ExitCode, Failure> {
    let document = Document::read(file)?;
    let found = match is_payload(&document.bytes) {
        true => payload(&document, &places)?,
        false => configuration(file.to_owned(), places)?,
    };
    let text = match json {
        true => pretty(&json!({
            "schema": SCHEMA,
            "file": file.to_string_lossy(),
            "kind": found.kind,
            "mode": found.mode,
            "valid": found.violations.is_empty(),
            "violations": found.violations,
        }))?,
        false => told(&found),
    };
    failure::print(&text)?;
    Ok(ExitCode::from(u8::from(!found.violations.is_empty())))
}

/// A configuration can be written as JSON too; only a payload has a task.
fn is_payload(bytes: &[u8]) -> bool {
    let first = bytes.iter().find(|byte| !byte.is_ascii_whitespace());
    first == Some(&b'{')
        && strict_json::parse(bytes).map_or(true, |value| {
            value.get("task").is_some() || value.get("digest").is_some()
        })
}

fn payload(document: &Document, places: &Places) -> Result<Found, Failure> {
    let mode = super::in_force(places)?;
    let sealed = opened(&document.bytes)?;
    let backend = execute::backend(None, &sealed, mode);
    let network = NetworkReach::from(&sealed.payload().network);
    let deeds = [Deed::Run(backend), Deed::Network(network)];
    Ok(Found {
        kind: "payload",
        mode,
        violations: mode.map_or_else(Vec::new, |mode| mode.violations(deeds)),
    })
}

/// What is not sealed yet is looked at as it would be.
fn opened(bytes: &[u8]) -> Result<Sealed, Failure> {
    let failed = |error: OpenError| Failure::new(error.code(), error.to_string());
    let draft = Draft::parse(bytes).map_err(failed)?;
    let is_sealed = strict_json::parse(bytes).is_ok_and(|value| value.get("digest").is_some());
    if is_sealed {
        return Sealed::open(bytes).map_err(failed);
    }
    draft
        .seal(Timestamp::now(), entropy()?)
        .map_err(|problems| Failure::problems(ErrorCode::PayloadInvalid, &problems))
}

/// Together with the machine's and the user's files, as it would be used.
fn configuration(file: PathBuf, places: Places) -> Result<Found, Failure> {
    let merged = super::load(&Places {
        config: Some(file),
        ..places
    })?;
    let mode = merged.mode.value;
    let rows = show::rows(&merged).into_iter();
    let mut violations: Vec<Violation> = rows.filter_map(|row| row.violation).collect();
    let patterns = merged.serve.texts(ServeKey::CallbacksAllow);
    if let Some(mode) = mode {
        // Each stands for addresses; as one it is checked as an address is.
        let addresses: Vec<String> = patterns.map(|text| format!("http://{text}")).collect();
        let deeds = addresses.iter().map(|text| Deed::Callback(text));
        violations.extend(mode.violations(deeds));
    }
    Ok(Found {
        kind: "configuration",
        mode,
        violations,
    })
}

fn told(found: &Found) -> String {
    let mut text = String::new();
    for violation in &found.violations {
        text.push_str(&failure::visible(&violation.to_string()));
        text.push('\n');
    }
    if found.violations.is_empty() {
        let line = match found.mode {
            Some(mode) => format!("the {} breaks no rule of mode {mode}\n", found.kind),
            None => {
                "no mode is in force, so that there is no rule to break; name one with --mode\n"
                    .to_owned()
            }
        };
        text.push_str(&line);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_is_told_from_a_configuration_by_its_task() {
        assert!(is_payload(b" {\"task\": {}}"));
        assert!(is_payload(b"{\"digest\": \"x\"}"));
        assert!(is_payload(b"{broken"));
        assert!(!is_payload(b"{\"sandbox\": {}}"));
        assert!(!is_payload(b"mode: docker\n"));
        assert!(!is_payload(b""));
    }
}
