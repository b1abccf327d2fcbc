//! Whether an answer is the one that running the payload again gives: the same, another one, or one that cannot be held against it. What honest machines may disagree about is no
//! accusation; what agrees, agrees.

use serde::Serialize;
use serde_json::{Value, json};

use crate::envelope::{ResultEnvelope, Status};
use crate::output_class::{Difference, OutputClass, TooMuch};
use crate::payload::{ExecutionPayload, Purity};

/// What comparing came to.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum Comparison {
    Same,
    Different {
        first_difference: Difference,
    },
    /// They differ, and there is an honest reason for it.
    NotComparable {
        why: Incomparable,
        detail: String,
        first_difference: Option<Difference>,
    },
}

/// Why a difference proves nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Incomparable {
    /// One of them was ended by a limit or a person: another machine is faster, or has more room.
    Limit,
    /// The payload says that its answers vary.
    DeclaredVarying,
    /// Another kind of place to run, with other files or another clock.
    BackendClass,
    /// The program could not be started at one of the two.
    NeverStarted,
    /// Comparing would take too long.
    TooLarge,
}

/// Compares what must be the same: the status, the output by its class, and the rule that was broken. Times and memory need not.
pub fn compare(
    payload: &ExecutionPayload,
    claimed: &ResultEnvelope,
    found: &ResultEnvelope,
) -> Comparison {
    let difference = match difference(&payload.output_class, claimed, found) {
        Ok(difference) => difference,
        Err(too_much) => {
            return Comparison::NotComparable {
                why: Incomparable::TooLarge,
                detail: too_much.to_string(),
                first_difference: None,
            };
        }
    };
    let Some(first_difference) = difference else {
        return Comparison::Same;
    };
    match excuse(payload, claimed, found) {
        Some((why, detail)) => Comparison::NotComparable {
            why,
            detail,
            first_difference: Some(first_difference),
        },
        None => Comparison::Different { first_difference },
    }
}

/// Of the two as one document, so that its place names the field too.
fn difference(
    class: &OutputClass,
    claimed: &ResultEnvelope,
    found: &ResultEnvelope,
) -> Result<Option<Difference>, TooMuch> {
    let head = |envelope: &ResultEnvelope| {
        let violation = envelope
            .verdict
            .as_ref()
            .map(|verdict| verdict.violation.as_str());
        json!({ "status": envelope.status, "verdict": violation })
    };
    let strict = OutputClass::CanonicalJson;
    if let Some(different) = strict.first_difference(&head(claimed), &head(found))? {
        return Ok(Some(different));
    }
    if let Some(different) = class.first_difference(&claimed.output, &found.output)? {
        let pointer = format!("/output{}", different.pointer);
        return Ok(Some(Difference {
            pointer,
            ..different
        }));
    }
    let hash = |envelope: &ResultEnvelope| envelope.stdout_sha256.clone().map(Value::String);
    let are_bytes_equal = match (*class == OutputClass::Exact, hash(claimed), hash(found)) {
        (true, Some(one), Some(other)) if one != other => Some((one, other)),
        _ => None,
    };
    Ok(are_bytes_equal.map(|(claimed, found)| Difference {
        pointer: "/stdout_sha256".to_owned(),
        claimed,
        found,
        missing: None,
    }))
}

fn excuse(
    payload: &ExecutionPayload,
    claimed: &ResultEnvelope,
    found: &ResultEnvelope,
) -> Option<(Incomparable, String)> {
    let class = |envelope: &ResultEnvelope| {
        let by = envelope.produced_by.as_ref()?;
        Some((backend_class(&by.backend), by.backend.clone()))
    };
    if payload.purity == Purity::Varies {
        let detail = "the payload says `pure`: false, that its answers vary";
        return Some((Incomparable::DeclaredVarying, detail.to_owned()));
    }
    if let (Some((one, of_one)), Some((other, of_other))) = (class(claimed), class(found))
        && one != other
    {
        let detail = format!(
            "one was made by `{of_one}` and one by `{of_other}`; run it again with --backend {of_one}"
        );
        return Some((Incomparable::BackendClass, detail));
    }
    let ending = |envelope: &ResultEnvelope, kind: &str| {
        let by = envelope.produced_by.as_ref();
        by.is_some_and(|by| by.ending.starts_with(kind))
    };
    let is_stopped = |envelope: &ResultEnvelope| {
        let stopped = ending(envelope, "stopped:");
        // Older workers do not say how it ended; a verdict about anything but the output is about a limit.
        stopped || envelope.produced_by.is_none() && is_about_a_limit(envelope)
    };
    if is_stopped(claimed) != is_stopped(found)
        || is_stopped(claimed) && verdict(claimed) != verdict(found)
    {
        let detail = "a limit or a person ended one of them; another machine may be faster or have more room";
        return Some((Incomparable::Limit, detail.to_owned()));
    }
    let never = |envelope| ending(envelope, "never_started:");
    if never(claimed) != never(found) {
        let detail =
            "the program could not be started for one of them; its machine has other programs";
        return Some((Incomparable::NeverStarted, detail.to_owned()));
    }
    None
}

fn verdict(envelope: &ResultEnvelope) -> Option<&'static str> {
    let verdict = envelope.verdict.as_ref();
    verdict.map(|verdict| verdict.violation.as_str())
}

fn is_about_a_limit(envelope: &ResultEnvelope) -> bool {
    use crate::verdict::Violation;
    let violation = envelope.verdict.as_ref().map(|verdict| verdict.violation);
    envelope.status == Status::Error
        && violation.is_some_and(|violation| match violation {
            Violation::Timeout
            | Violation::CpuLimitExceeded
            | Violation::MemoryLimitExceeded
            | Violation::ProcessLimitExceeded
            | Violation::DiskLimitExceeded
            | Violation::Canceled => true,
            Violation::OutputTooLarge
            | Violation::MalformedResult
            | Violation::NetworkViolation
            | Violation::FilesystemViolation => false,
        })
}

/// Backends that show a program the same files and the same kind of machine are of one class.
pub fn backend_class(backend: &str) -> &'static str {
    match backend {
        "wasm" => "wasm",
        "docker" => "container",
        _ => "linux",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::canonical::Digest;
    use crate::ending::{Ending, StopCause};
    use crate::envelope::tests::{envelope, run, sealed};
    use crate::seal::{Draft, Sealed};
    use crate::units::Bytes;

    const OK: Ending = Ending::Exited { code: 0 };

    fn payload(changes: &Value) -> Sealed {
        let mut draft = sealed(json!(true)).json().clone();
        for (name, value) in changes.as_object().unwrap() {
            draft[name] = value.clone();
        }
        let draft = Draft::from_value(draft).unwrap();
        draft
            .seal(jiff::Timestamp::UNIX_EPOCH, crate::ids::Entropy([0; 16]))
            .unwrap()
    }

    fn compared(sealed: &Sealed, one: (Ending, &[u8]), other: (Ending, &[u8])) -> Comparison {
        let one = envelope(sealed, &run(one.0, one.1, b""));
        let other = envelope(sealed, &run(other.0, other.1, b""));
        compare(sealed.payload(), &one, &other)
    }

    fn why(comparison: &Comparison) -> Option<Incomparable> {
        match comparison {
            Comparison::NotComparable { why, .. } => Some(*why),
            Comparison::Same | Comparison::Different { .. } => None,
        }
    }

    #[test]
    fn what_agrees_agrees_and_a_difference_has_its_place_and_both_values() {
        let any = payload(&json!({}));
        assert_eq!(compared(&any, (OK, b"a"), (OK, b"a")), Comparison::Same);
        let Comparison::Different { first_difference } = compared(&any, (OK, b"a"), (OK, b"b"))
        else {
            panic!("they differ");
        };
        assert_eq!(
            first_difference,
            Difference {
                pointer: "/output/stdout".into(),
                claimed: json!("a"),
                found: json!("b"),
                missing: None
            }
        );
        let failed = Ending::Exited { code: 3 };
        let different = compared(&any, (OK, b"a"), (failed.clone(), b"a"));
        assert!(matches!(
            different,
            Comparison::Different { first_difference } if first_difference.pointer == "/status"
        ));
        assert_eq!(
            compared(&any, (failed.clone(), b"x"), (failed, b"y")),
            Comparison::Same,
            "an ERROR has no output"
        );
    }

    #[test]
    fn exact_bytes_tell_apart_what_is_the_same_json() {
        let schema = json!({"type": "object"});
        let loose = payload(&json!({"expected_output_format": schema}));
        let exact = payload(&json!({"expected_output_format": schema, "output_class": "exact"}));
        let (one, other): (&[u8], &[u8]) = (b"{\"a\": 1}", b"{\"a\":1.0}\n");
        assert_eq!(compared(&loose, (OK, one), (OK, other)), Comparison::Same);
        assert_eq!(compared(&exact, (OK, one), (OK, one)), Comparison::Same);
        let Comparison::Different { first_difference } = compared(&exact, (OK, one), (OK, other))
        else {
            panic!("they differ");
        };
        assert_eq!(first_difference.pointer, "/stdout_sha256");
        assert_eq!(first_difference.claimed, json!(Digest::of(one).hex()));
    }

    #[test]
    fn honest_reasons_to_differ_are_no_accusation() {
        let any = payload(&json!({}));
        let memory = Ending::Stopped(StopCause::Memory {
            limit: Bytes::new(64 << 20),
        });
        let time = Ending::Stopped(StopCause::WallTime {
            limit: std::time::Duration::from_secs(1),
        });
        for (one, other) in [
            (OK, memory.clone()),
            (memory.clone(), OK),
            (memory.clone(), time),
        ] {
            let found = compared(&any, (one, b""), (other, b""));
            assert_eq!(why(&found), Some(Incomparable::Limit), "{found:?}");
        }
        assert_eq!(
            compared(&any, (memory.clone(), b""), (memory, b"")),
            Comparison::Same
        );
        let varying = payload(&json!({"pure": false}));
        let found = compared(&varying, (OK, b"1"), (OK, b"2"));
        assert_eq!(why(&found), Some(Incomparable::DeclaredVarying));
        assert_eq!(compared(&varying, (OK, b"1"), (OK, b"1")), Comparison::Same);
    }

    #[test]
    fn another_class_of_backend_is_told_and_another_backend_of_the_class_is_not() {
        let any = payload(&json!({}));
        let mut claimed = envelope(&any, &run(OK, b"1", b""));
        let found = envelope(&any, &run(OK, b"2", b""));
        for (backend, expected) in [
            ("docker", Some(Incomparable::BackendClass)),
            ("wasm", Some(Incomparable::BackendClass)),
            ("gvisor", None),
        ] {
            claimed.produced_by.as_mut().unwrap().backend = backend.to_owned();
            let outcome = compare(any.payload(), &claimed, &found);
            assert_eq!(why(&outcome), expected, "{backend}");
        }
    }

    #[test]
    fn a_limit_is_also_seen_in_the_envelopes_of_older_workers() {
        let any = payload(&json!({}));
        let memory = Ending::Stopped(StopCause::Memory {
            limit: Bytes::new(64 << 20),
        });
        let mut claimed = envelope(&any, &run(memory, b"", b""));
        claimed.produced_by = None;
        let found = envelope(&any, &run(OK, b"2", b""));
        let outcome = compare(any.payload(), &claimed, &found);
        assert_eq!(why(&outcome), Some(Incomparable::Limit));
    }
}
