//! Text of strangers made fit to show: nothing in it steers the terminal, and its width is known.

use std::fmt::Write as _;

use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

/// Escapes what a terminal would obey or what would make a line look different from what it is: control characters, line separators, and characters that change the direction of
/// text.
pub(crate) fn safe(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        push_safe(&mut shown, c);
    }
    shown
}

/// Like [`safe`], for output: tabs stay, and bytes that are not UTF-8 are written as `\xff`.
pub(crate) fn safe_bytes(bytes: &[u8]) -> String {
    let mut shown = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            push_output(&mut shown, c);
        }
        push_invalid(&mut shown, chunk.invalid());
    }
    shown
}

pub(super) fn push_output(shown: &mut String, c: char) {
    if c == '\t' {
        shown.push(c);
    } else {
        push_safe(shown, c);
    }
}

pub(super) fn push_invalid(shown: &mut String, invalid: &[u8]) {
    for byte in invalid {
        let _ = write!(shown, "\\x{byte:02x}");
    }
}

fn push_safe(shown: &mut String, c: char) {
    if c.is_control() || is_deceptive(c) {
        shown.extend(c.escape_default());
    } else {
        shown.push(c);
    }
}

/// Bidirectional marks, embeddings, overrides and isolates; line and paragraph separators.
const fn is_deceptive(c: char) -> bool {
    matches!(
        c,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
    )
}

/// How many columns the text takes.
pub(crate) fn width(text: &str) -> usize {
    text.width()
}

/// At most `columns` wide; what is cut off is marked with `…`.
pub(crate) fn cut(text: &str, columns: usize) -> String {
    if width(text) <= columns {
        return text.to_owned();
    }
    let mut kept = String::new();
    let mut used = 0;
    for c in text.chars() {
        let wide = c.width().unwrap_or(0);
        if used + wide + 1 > columns {
            break;
        }
        used += wide;
        kept.push(c);
    }
    if columns > 0 {
        kept.push('…');
    }
    kept
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn nothing_steers_and_nothing_misleads() {
        assert_eq!(safe("a\u{1b}[2J\tb\r\n"), "a\\u{1b}[2J\\tb\\r\\n");
        assert_eq!(safe("\u{9b}31m"), "\\u{9b}31m");
        assert_eq!(safe("x\u{202e}y\u{2066}z"), "x\\u{202e}y\\u{2066}z");
        assert_eq!(safe("héllo 漢字"), "héllo 漢字");
        assert_eq!(safe_bytes(b"a\tb\xff\xc3\xa9\xc3"), "a\tb\\xffé\\xc3");
    }

    #[test]
    fn a_cut_counts_columns_and_not_characters() {
        assert_eq!(cut("hello", 5), "hello");
        assert_eq!(cut("hello", 4), "hel…");
        // Each of these takes two columns.
        assert_eq!(cut("漢字漢字", 8), "漢字漢字");
        assert_eq!(cut("漢字漢字", 7), "漢字漢…");
        assert_eq!(cut("漢字漢字", 6), "漢字…");
        // The accent has no width of its own.
        assert_eq!(cut("e\u{301}e\u{301}", 2), "e\u{301}e\u{301}");
        assert_eq!(cut("ab", 1), "…");
        assert_eq!(cut("ab", 0), "");
    }

    proptest! {
        #[test]
        fn a_cut_never_takes_more_than_it_may(text in "\\PC*", columns in 0usize..40) {
            prop_assert!(width(&cut(&safe(&text), columns)) <= columns);
        }

        #[test]
        fn no_control_character_is_left(bytes: Vec<u8>) {
            prop_assert!(safe_bytes(&bytes).chars().all(|c| c == '\t' || !c.is_control()));
        }
    }
}
