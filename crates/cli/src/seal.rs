//! `cofferdam seal`: a draft becomes a payload. Everything that decides is in the contract; here are the file, the clock and the randomness.

pub(crate) mod document;

use std::process::ExitCode;

use cofferdam_contract::codes::ErrorCode;
use cofferdam_contract::ids::Entropy;
use cofferdam_contract::seal::{Draft, OpenError, Sealed};
use jiff::Timestamp;
use rustix::io::Errno;
use rustix::rand::GetRandomFlags;
use serde::Serialize;

use crate::arguments::SealArgs;
use crate::failure::{self, Failure};
use document::Document;

pub(crate) fn seal(args: &SealArgs) -> Result<ExitCode, Failure> {
    let document = Document::read(&args.draft)?;
    let draft = Draft::parse(&document.bytes).map_err(|error| refused(&document, &error))?;
    let sealed = draft
        .seal(Timestamp::now(), entropy()?)
        .map_err(|found| Failure::problems(ErrorCode::PayloadInvalid, &found))?;
    failure::print(&pretty(sealed.json())?)?;
    Ok(ExitCode::SUCCESS)
}

/// Opens a sealed payload; one that was changed after sealing goes no further.
pub(crate) fn open(document: &Document) -> Result<Sealed, Failure> {
    Sealed::open(&document.bytes).map_err(|error| refused(document, &error))
}

/// From the kernel, for the names of payloads and results.
pub(crate) fn entropy() -> Result<Entropy, Failure> {
    let mut bytes = [0; 16];
    loop {
        match rustix::rand::getrandom(&mut bytes[..], GetRandomFlags::empty()) {
            Ok(got) if got == bytes.len() => return Ok(Entropy(bytes)),
            // So few bytes come all at once or, before the kernel has any, not at all.
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => {
                let message = format!("the kernel gives no random bytes: {errno}");
                return Err(Failure::new(ErrorCode::Internal, message));
            }
        }
    }
}

/// Indented, with a newline at the end: files that people open.
pub(crate) fn pretty(value: &impl Serialize) -> Result<String, Failure> {
    let mut text = serde_json::to_string_pretty(value)
        .map_err(|error| Failure::new(ErrorCode::Internal, error.to_string()))?;
    text.push('\n');
    Ok(text)
}

fn refused(document: &Document, error: &OpenError) -> Failure {
    match error {
        // A place in the text means something only together with the file it is in.
        OpenError::Malformed(bad) => {
            let line = format!("{}: {bad}", document.name);
            Failure::new(error.code(), line)
        }
        OpenError::DigestMismatch { .. } => Failure::new(error.code(), error.to_string()),
        OpenError::Invalid(found) => Failure::problems(error.code(), found),
    }
}
