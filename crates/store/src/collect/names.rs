//! File names are bytes; records are text. This writes one as the other, so that every name has exactly one spelling and none can act on a terminal.
//!
//! UTF-8 stays as it is. Bytes that are not UTF-8, and those of control characters, become `\xff`; a backslash becomes `\\`.

use std::fmt::Write as _;

pub fn escape(name: &[u8]) -> String {
    let mut text = String::with_capacity(name.len());
    for chunk in name.utf8_chunks() {
        for character in chunk.valid().chars() {
            match character {
                '\\' => text.push_str("\\\\"),
                control if control.is_control() => {
                    escape_bytes(&mut text, control.encode_utf8(&mut [0; 4]).as_bytes());
                }
                other => text.push(other),
            }
        }
        escape_bytes(&mut text, chunk.invalid());
    }
    text
}

fn escape_bytes(text: &mut String, bytes: &[u8]) {
    for byte in bytes {
        // Writing to a string does not fail.
        let _ = write!(text, "\\x{byte:02x}");
    }
}

/// The bytes that [`escape`] wrote so. `None` for a text that it never writes: two spellings of one name would be two artifacts at one place.
pub fn unescape(text: &str) -> Option<Vec<u8>> {
    let mut name = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        rest = match (first, after) {
            (b'\\', [b'\\', after @ ..]) => {
                name.push(b'\\');
                after
            }
            (b'\\', [b'x', high, low, after @ ..]) => {
                name.push(digit(*high)? << 4 | digit(*low)?);
                after
            }
            (b'\\', _) => return None,
            (other, after) => {
                name.push(*other);
                after
            }
        };
    }
    (escape(&name) == text).then_some(name)
}

fn digit(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_name_comes_back(name in any::<Vec<u8>>()) {
            let text = escape(&name);
            prop_assert!(!text.chars().any(char::is_control), "{text:?}");
            prop_assert_eq!(unescape(&text), Some(name));
        }

        #[test]
        fn a_text_is_one_spelling_or_none(text in "[ab\\\\x0-9a-f\u{7f}\u{9b}é]{0,12}") {
            if let Some(name) = unescape(&text) {
                prop_assert_eq!(escape(&name), text);
            }
        }
    }

    #[test]
    fn spellings() {
        for (name, text) in [
            (&b"caf\xc3\xa9.txt"[..], "café.txt"),
            (b"a\xffb", "a\\xffb"),
            (b"\x1b[31m\n\x7f", "\\x1b[31m\\x0a\\x7f"),
            (b"\xc2\x9bx", "\\xc2\\x9bx"),
            (b"back\\slash", "back\\\\slash"),
            (b"\\xff", "\\\\xff"),
            (b"", ""),
        ] {
            assert_eq!(escape(name), text);
            assert_eq!(unescape(text).as_deref(), Some(name));
        }
        for not_ours in [
            "\\x41",
            "\\xFF",
            "\\",
            "\\x",
            "\\x4",
            "\\q",
            "a\nb",
            "\\xc3\\xa9",
        ] {
            assert_eq!(unescape(not_ours), None, "{not_ours:?}");
        }
    }
}
