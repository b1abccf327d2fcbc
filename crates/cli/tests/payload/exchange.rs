//! Drafts, and what a person does with them at a desk.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::Output;

use cofferdam_testkit::desk::{code, json, stderr};
use cofferdam_testkit::{Desk, desk};
use serde_json::{Value, json};

pub(crate) trait Exchange {
    /// Seals a draft, which must be good.
    fn sealed(&self, draft: &Value) -> PathBuf;

    /// Seals and executes; the exit code must fit the status.
    fn execute(&self, draft: &Value) -> Value;

    /// What `verify --json` says about the payload and this envelope.
    fn verify(&self, envelope: &Value) -> (i32, Value);

    fn assert_holds(&self, envelope: &Value) {
        let good = json!({ "schema": "cofferdam.verification/1", "holds": true, "problems": [], "rerun": null });
        assert_eq!(self.verify(envelope), (0, good));
    }

    /// The one verdict, and that the envelope which carries it holds.
    fn assert_violates(&self, envelope: &Value, violation: &str) {
        assert_eq!(envelope["status"], "ERROR", "{envelope:#}");
        assert_eq!(envelope["verdict"]["violation"], violation, "{envelope:#}");
        assert_eq!(envelope["output"], Value::Null);
        self.assert_holds(envelope);
    }
}

impl Exchange for Desk {
    fn sealed(&self, draft: &Value) -> PathBuf {
        self.seal("payload.json", draft)
    }

    fn execute(&self, draft: &Value) -> Value {
        let payload = self.sealed(draft);
        let done = self.run(["execute".as_ref(), payload.as_os_str()]);
        let (code, envelope) = json(&done);
        let expected = i32::from(envelope["status"] != "SUCCESS");
        assert_eq!(code, expected, "{envelope:#}");
        self.write("envelope.json", done.stdout);
        envelope
    }

    fn verify(&self, envelope: &Value) -> (i32, Value) {
        let envelope = self.write("claimed.json", envelope.to_string());
        let payload = self.path("payload.json");
        let verb = ["verify".as_ref(), payload.as_os_str()];
        let args = verb
            .into_iter()
            .chain([envelope.as_os_str(), "--json".as_ref()]);
        json(&self.run(args))
    }
}

/// A person who has nothing but these words.
pub(crate) fn cofferdam(args: &[&OsStr]) -> Output {
    desk!().run(args)
}

pub(crate) fn cofferdam_fed(args: &[&str], input: &[u8]) -> Output {
    desk!().fed(args, input)
}

/// Refused with this code on every line, exit code 125, nothing on stdout, and no panic.
pub(crate) fn assert_refused(done: &Output, error_code: &str) {
    let said = stderr(done);
    assert_eq!(code(done), 125, "{said}");
    assert_eq!(String::from_utf8_lossy(&done.stdout), "");
    assert!(!said.is_empty() && !said.contains("panicked"), "{said}");
    for line in said.lines() {
        assert!(line.starts_with("cofferdam: "), "{said}");
        assert!(line.ends_with(&format!("[{error_code}]")), "{said}");
    }
}

pub(crate) fn shell(script: &str) -> Value {
    json!({
        "contract_id": "CONTRACT-1",
        "scope": "a test",
        "task": { "kind": "command", "argv": ["/bin/sh", "-c", script] },
    })
}

pub(crate) fn with(mut draft: Value, field: &str, value: impl Into<Value>) -> Value {
    draft[field] = value.into();
    draft
}

/// Adds the numbers that it reads, and says so in six lines.
pub(crate) fn sum() -> Value {
    let script = "read -r a b c; for i in 1 2 3 4 5 6; do echo step $i >&2; done; echo \"{\\\"sum\\\": $((a+b+c))}\"";
    let mut draft = with(
        shell(script),
        "expected_output_format",
        json!({ "type": "object", "properties": { "sum": { "type": "integer" } }, "required": ["sum"] }),
    );
    draft["task"]["stdin"] = json!("1 2 3\n");
    draft
}
