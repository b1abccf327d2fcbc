//! What a mode's refusal looks like.

use std::process::Output;

use cofferdam_testkit::desk::{code, told};

/// Refused by this rule, by our own exit code and with the stable code.
#[track_caller]
pub(crate) fn assert_refused(done: &Output, mode: &str, rule: &str) {
    let said = told(done);
    assert_eq!(code(done), 125, "{said}");
    let line = format!("mode {mode}, rule `{rule}`: ");
    assert!(said.contains(&line), "{said}\n{line}");
    assert!(said.contains("[policy.refused]"), "{said}");
}
