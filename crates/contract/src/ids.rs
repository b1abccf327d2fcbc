//! Names of payloads and results: `PAYLOAD-<milliseconds>-<9 base36>`. Time and randomness come from the caller; nothing is read here.

use jiff::Timestamp;

/// Random bytes from the caller's source.
#[derive(Debug, Clone, Copy)]
pub struct Entropy(pub [u8; 16]);

pub const MAX_ID_CHARACTERS: usize = 128;

pub fn payload_id(now: Timestamp, entropy: Entropy) -> String {
    id("PAYLOAD", now, entropy)
}

pub fn result_id(now: Timestamp, entropy: Entropy) -> String {
    id("RESULT", now, entropy)
}

fn id(kind: &str, now: Timestamp, entropy: Entropy) -> String {
    format!("{kind}-{}-{}", now.as_millisecond(), base36(entropy))
}

fn base36(entropy: Entropy) -> String {
    const DIGITS: &[u8; 36] = b"0123456789abcdefghijklmnopqrstuvwxyz";
    let mut rest = u128::from_le_bytes(entropy.0);
    let mut digit = || {
        let index = usize::try_from(rest % 36).unwrap_or(0);
        rest /= 36;
        DIGITS.get(index).copied().map_or('0', char::from)
    };
    std::iter::repeat_with(&mut digit).take(9).collect()
}

/// Ids become file names, queue subjects and log fields, so that they are made of what is safe in all of them.
pub(crate) fn id_problem(id: &str) -> Option<&'static str> {
    let is_allowed = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.' | b':');
    if id.is_empty() {
        Some("is empty; give it a name")
    } else if id.len() > MAX_ID_CHARACTERS {
        Some("is too long; use at most 128 characters")
    } else if !id.bytes().all(is_allowed) {
        Some("has other characters than letters, digits, `-`, `_`, `.` and `:`; remove them")
    } else if id.starts_with(['.', '-']) {
        Some("begins with `.` or `-`; begin with a letter or a digit")
    } else {
        None
    }
}

/// The pattern that says the same as [`id_problem`], for the schemas.
pub(crate) const ID_PATTERN: &str = "^[A-Za-z0-9_:][A-Za-z0-9._:-]{0,127}$";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_made_of_time_and_randomness_only() {
        let now = Timestamp::from_millisecond(1_700_000_000_123).unwrap();
        let id = payload_id(now, Entropy([0; 16]));
        assert_eq!(id, "PAYLOAD-1700000000123-000000000");
        assert_eq!(
            result_id(now, Entropy([255; 16])),
            result_id(now, Entropy([255; 16]))
        );
        assert_ne!(
            payload_id(now, Entropy([1; 16])),
            payload_id(now, Entropy([2; 16]))
        );
        assert_eq!(id_problem(&payload_id(now, Entropy([255; 16]))), None);
    }

    #[test]
    fn ids_are_safe_as_names() {
        for id in ["a", "CONTRACT-1", "a.b_c:d", "_x", &"x".repeat(128)] {
            assert_eq!(id_problem(id), None, "{id}");
        }
        for id in [
            "",
            ".",
            "..",
            "-rf",
            ".hidden",
            "a/b",
            "a b",
            "a\n",
            "é",
            "a\0",
            "*",
            &"x".repeat(129),
        ] {
            assert!(id_problem(id).is_some(), "{id:?}");
        }
    }

    #[test]
    fn the_pattern_says_the_same() {
        let schema =
            jsonschema::validator_for(&serde_json::json!({ "pattern": ID_PATTERN })).unwrap();
        for id in [
            "a",
            "",
            ".",
            "-a",
            "a.b",
            "a/b",
            "é",
            ":",
            &"x".repeat(128),
            &"x".repeat(129),
        ] {
            let valid = schema.is_valid(&serde_json::json!(id));
            assert_eq!(valid, id_problem(id).is_none(), "{id:?}");
        }
    }
}
