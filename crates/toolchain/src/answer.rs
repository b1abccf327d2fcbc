//! Reading what a shim wrote to the result descriptor. Strict: one document, bounded, with exactly the fields it should have. User code
//! runs in the shim's process and may write there itself; nothing it writes is more than its own answer or an error.

use cofferdam_contract::strict_json::{self, BadJson};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::plan::ResultChannel;

/// The longest document that is read; the shims hold it too. The caller keeps this many bytes of the channel, and one more shows an
/// excess.
pub const MAX_RESULT_BYTES: usize = 8 << 20;

/// The kind of error for a value that JSON, or this bound, cannot hold.
pub const UNSERIALIZABLE: &str = "UnserializableResult";

/// How the call of a handler ended.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    Returned(Value),
    Raised(Raised),
    /// There was no handler to call, and none was asked for.
    Nothing,
}

/// What a handler threw, or why it could not be called or its value not be sent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Raised {
    /// The exception's type, or one of ours: `UnserializableResult`, `MissingHandler`, `HandlerFailed`, `ScriptFailed`, `ProcessExit`.
    #[serde(rename = "type")]
    pub kind: String,
    pub message: String,
    /// Empty where the language has none.
    pub traceback: String,
}

/// Why there is no answer where there had to be one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadAnswer {
    #[error(
        "the program ended without an answer: it was stopped, ended itself, or closed the result descriptor; let the handler return"
    )]
    Missing,
    #[error("the answer is longer than {MAX_RESULT_BYTES} bytes; return less, or write a file")]
    TooLarge,
    #[error(
        "what came over the result descriptor is not an answer: {0}; do not write to that descriptor"
    )]
    NotJson(BadJson),
    #[error(
        "what came over the result descriptor is not an answer: {problem}; do not write to that descriptor"
    )]
    NotAnAnswer { problem: &'static str },
}

/// Reads the whole of what came over the channel.
pub fn answer(channel: ResultChannel, bytes: &[u8]) -> Result<Answer, BadAnswer> {
    if bytes.is_empty() {
        return match channel {
            ResultChannel::None | ResultChannel::MayAnswer => Ok(Answer::Nothing),
            ResultChannel::MustAnswer => Err(BadAnswer::Missing),
        };
    }
    if bytes.len() > MAX_RESULT_BYTES {
        return Err(BadAnswer::TooLarge);
    }
    match strict_json::parse(bytes) {
        Ok(Value::Object(fields)) => from_fields(fields),
        Ok(_) => Err(BadAnswer::NotAnAnswer {
            problem: "it is not an object",
        }),
        Err(error) => match told_of_a_value(bytes, &error) {
            Some(raised) => Ok(Answer::Raised(raised)),
            None => Err(BadAnswer::NotJson(error)),
        },
    }
}

fn from_fields(mut fields: Map<String, Value>) -> Result<Answer, BadAnswer> {
    let wrong = |problem| Err(BadAnswer::NotAnAnswer { problem });
    let ok = fields.remove("ok");
    let value = fields.remove("value");
    let error = fields.remove("error");
    if !fields.is_empty() {
        return wrong("it has fields that mean nothing");
    }
    match (ok, value, error) {
        (Some(Value::Bool(true)), Some(value), None) => Ok(Answer::Returned(value)),
        (Some(Value::Bool(false)), None, Some(Value::Object(error))) => {
            raised(error).map(Answer::Raised)
        }
        _ => wrong("it has neither a value nor an error, or both"),
    }
}

fn raised(mut error: Map<String, Value>) -> Result<Raised, BadAnswer> {
    let mut text = |key: &str| match error.remove(key) {
        Some(Value::String(text)) => Ok(text),
        Some(_) | None => Err(BadAnswer::NotAnAnswer {
            problem: "its error is not a type, a message and a traceback",
        }),
    };
    let raised = Raised {
        kind: text("type")?,
        message: text("message")?,
        traceback: text("traceback")?,
    };
    if error.is_empty() {
        Ok(raised)
    } else {
        Err(BadAnswer::NotAnAnswer {
            problem: "its error has fields that mean nothing",
        })
    }
}

/// What every shim puts before a value.
const BEFORE_A_VALUE: &[u8] = b"{\"ok\":true,\"value\":";

/// A shim sends what its language takes for JSON: integers beyond a double, keys that are the same as text, a shell's own words. That is
/// an error of the value's author, who is told so. What stands before or after a value is not the value's fault.
fn told_of_a_value(bytes: &[u8], error: &BadJson) -> Option<Raised> {
    if !bytes.starts_with(BEFORE_A_VALUE) || matches!(error, BadJson::TrailingData { .. }) {
        return None;
    }
    Some(Raised {
        kind: UNSERIALIZABLE.to_owned(),
        message: format!("the value is not JSON that every reader understands alike: {error}"),
        traceback: String::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn read(text: &str) -> Result<Answer, BadAnswer> {
        answer(ResultChannel::MustAnswer, text.as_bytes())
    }

    #[test]
    fn values_and_errors_are_read_whole() {
        assert_eq!(
            read(r#"{"ok":true,"value":{"a":[1,null]}}"#),
            Ok(Answer::Returned(json!({"a": [1, null]})))
        );
        assert_eq!(
            read(r#"{"ok":true,"value":null}"#),
            Ok(Answer::Returned(Value::Null))
        );
        let error = r#"{"ok":false,"error":{"type":"E","message":"m","traceback":"t"}}"#;
        let expected = Raised {
            kind: "E".to_owned(),
            message: "m".to_owned(),
            traceback: "t".to_owned(),
        };
        assert_eq!(read(error), Ok(Answer::Raised(expected)));
    }

    #[test]
    fn silence_means_what_was_asked_for() {
        assert_eq!(answer(ResultChannel::MayAnswer, b""), Ok(Answer::Nothing));
        assert_eq!(answer(ResultChannel::None, b""), Ok(Answer::Nothing));
        assert_eq!(
            answer(ResultChannel::MustAnswer, b""),
            Err(BadAnswer::Missing)
        );
    }

    #[test]
    fn garbage_is_never_an_answer() {
        for text in [
            " ",
            "1",
            "{}",
            "null",
            "[]",
            "garbage",
            r#"{"ok":true}"#,
            r#"{"ok":1,"value":1}"#,
            r#"{"value":1}"#,
            r#"{"ok":false,"value":1}"#,
            r#"{"ok":true,"error":{"type":"E","message":"m","traceback":"t"}}"#,
            r#"{"ok":true,"value":1,"error":null}"#,
            r#"{"ok":true,"value":1,"more":1}"#,
            r#"{"ok":true,"value":1}{"ok":true,"value":2}"#,
            r#"{"ok":true,"value":1} x"#,
            r#"x{"ok":true,"value":1}"#,
            r#"{"ok":false,"error":"text"}"#,
            r#"{"ok":false,"error":{"type":"E","message":"m"}}"#,
            r#"{"ok":false,"error":{"type":"E","message":1,"traceback":""}}"#,
            r#"{"ok":false,"error":{"type":"E","message":"m","traceback":"","x":1}}"#,
            r#"{"ok":false,"ok":true,"value":1}"#,
        ] {
            assert!(read(text).is_err(), "{text}: {:?}", read(text));
        }
        let long = vec![b' '; MAX_RESULT_BYTES + 1];
        assert_eq!(
            answer(ResultChannel::MayAnswer, &long),
            Err(BadAnswer::TooLarge)
        );
        assert!(answer(ResultChannel::MayAnswer, &[0xff]).is_err());
    }

    #[test]
    fn a_value_that_readers_would_disagree_about_is_the_authors_error() {
        let deep = format!("{}{}", "[".repeat(64), "]".repeat(64));
        for value in [
            "9007199254740993",
            r#"{"1":1,"1":2}"#,
            &deep,
            "words",
            "NaN",
            r#""\ud800""#,
            "1,2",
        ] {
            let text = format!("{{\"ok\":true,\"value\":{value}}}");
            let found = match read(&text) {
                Ok(Answer::Raised(raised)) => raised.kind,
                other => format!("{other:?}"),
            };
            assert_eq!(found, UNSERIALIZABLE, "{value}");
        }
        let fits = format!("{}{}", "[".repeat(63), "]".repeat(63));
        assert!(matches!(
            read(&format!("{{\"ok\":true,\"value\":{fits}}}")),
            Ok(Answer::Returned(_))
        ));
    }

    proptest! {
        #[test]
        fn no_bytes_make_reading_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = answer(ResultChannel::MustAnswer, &bytes);
        }

        #[test]
        fn what_a_shim_writes_is_read_back(text in ".{0,40}", number in -1_000_000_i64..1_000_000) {
            let value = json!({ "text": text, "list": [number, true, null] });
            let document = format!("{{\"ok\":true,\"value\":{value}}}");
            prop_assert_eq!(read(&document), Ok(Answer::Returned(value)));
        }
    }
}
