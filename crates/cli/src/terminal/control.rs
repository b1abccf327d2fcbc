//! A program's output on our terminal: its colours may pass, everything else that would steer the terminal is shown escaped.

use super::colour::Paint;
use super::text::{push_invalid, push_output};

/// The lines of one stream, one after the other: a colour that a line leaves on is on in the next, and nowhere else.
#[derive(Debug)]
pub(crate) struct Filter {
    paint: Paint,
    /// The sequences since the last reset.
    active: String,
}

const RESET: &str = "\u{1b}[0m";
/// No colour needs a longer sequence.
const LONGEST_SEQUENCE: usize = 64;
/// Programs that never reset do not make every line longer.
const LONGEST_ACTIVE: usize = 256;

impl Filter {
    pub(crate) const fn new(paint: Paint) -> Self {
        Self {
            paint,
            active: String::new(),
        }
    }

    /// A line without its newline. Without colours, those of the program are left out.
    pub(crate) fn line(&mut self, bytes: &[u8]) -> String {
        let bytes = bytes.strip_suffix(b"\r").unwrap_or(bytes);
        let mut shown = match self.paint {
            Paint::Colour => self.active.clone(),
            Paint::Plain => String::new(),
        };
        let mut dirty = !self.active.is_empty();
        for chunk in bytes.utf8_chunks() {
            dirty |= self.text(&mut shown, chunk.valid());
            push_invalid(&mut shown, chunk.invalid());
        }
        if dirty && self.paint == Paint::Colour {
            shown.push_str(RESET);
        }
        shown
    }

    /// Whether there was a colour in it.
    fn text(&mut self, shown: &mut String, mut text: &str) -> bool {
        let mut coloured = false;
        while let Some(c) = text.chars().next() {
            if let Some((sequence, rest)) = colour_sequence(text) {
                coloured = true;
                self.remember(sequence);
                if self.paint == Paint::Colour {
                    shown.push_str(sequence);
                }
                text = rest;
            } else {
                push_output(shown, c);
                text = text.get(c.len_utf8()..).unwrap_or_default();
            }
        }
        coloured
    }

    fn remember(&mut self, sequence: &str) {
        let resets = matches!(sequence, "\u{1b}[m" | RESET | "\u{1b}[00m");
        if resets || self.active.len() + sequence.len() > LONGEST_ACTIVE {
            self.active.clear();
        }
        if !resets {
            self.active.push_str(sequence);
        }
    }
}

/// `ESC [ … m` with nothing but numbers in it, at the beginning of the text.
fn colour_sequence(text: &str) -> Option<(&str, &str)> {
    let parameters = text.strip_prefix("\u{1b}[")?;
    let end = parameters
        .bytes()
        .take(LONGEST_SEQUENCE)
        .position(|b| !matches!(b, b'0'..=b'9' | b';' | b':'))?;
    if parameters.as_bytes().get(end) != Some(&b'm') {
        return None;
    }
    text.split_at_checked(2 + end + 1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn coloured(lines: &[&[u8]]) -> Vec<String> {
        let mut filter = Filter::new(Paint::Colour);
        lines.iter().map(|line| filter.line(line)).collect()
    }

    #[test]
    fn colours_pass_and_end_with_the_line() {
        assert_eq!(
            coloured(&[b"\x1b[1;31mred\x1b[0m plain"]),
            ["\u{1b}[1;31mred\u{1b}[0m plain\u{1b}[0m"]
        );
        assert_eq!(
            coloured(&[b"\x1b[38;2;1;2;3mx\x1b[m"]),
            ["\u{1b}[38;2;1;2;3mx\u{1b}[m\u{1b}[0m"]
        );
        assert_eq!(coloured(&[b"plain"]), ["plain"]);
    }

    #[test]
    fn a_colour_goes_on_in_the_next_line_until_it_is_reset() {
        assert_eq!(
            coloured(&[b"\x1b[32mone", b"two\x1b[0m", b"three"]),
            [
                "\u{1b}[32mone\u{1b}[0m",
                "\u{1b}[32mtwo\u{1b}[0m\u{1b}[0m",
                "three"
            ]
        );
    }

    #[test]
    fn everything_else_is_escaped() {
        for (line, shown) in [
            (&b"\x1b[2Jgone"[..], "\\u{1b}[2Jgone"),
            (b"\x1b]0;title\x07", "\\u{1b}]0;title\\u{7}"),
            (b"\x1b]52;c;aGk=\x1b\\", "\\u{1b}]52;c;aGk=\\u{1b}\\"),
            (b"\x1b[?25l", "\\u{1b}[?25l"),
            (b"\x1b[>4m", "\\u{1b}[>4m"),
            (b"\x1b[31", "\\u{1b}[31"),
            (b"\x1b", "\\u{1b}"),
            (b"a\rb", "a\\rb"),
            (b"windows\r", "windows"),
            (b"tab\tstays", "tab\tstays"),
            ("\u{9b}2J".as_bytes(), "\\u{9b}2J"),
            (b"\x9b2J\xff", "\\x9b2J\\xff"),
            (b"a\x08b", "a\\u{8}b"),
        ] {
            assert_eq!(coloured(&[line]), [shown]);
        }
        let long = [b"\x1b[".as_slice(), &[b'1'; 100], b"m"].concat();
        assert!(!coloured(&[&long])[0].contains('\u{1b}'));
    }

    #[test]
    fn without_colours_they_are_left_out() {
        let mut filter = Filter::new(Paint::Plain);
        assert_eq!(filter.line(b"\x1b[31mred\x1b[0m \x1b[2J"), "red \\u{1b}[2J");
        assert_eq!(filter.line(b"next"), "next");
    }

    #[test]
    fn what_is_never_reset_stays_bounded() {
        let mut filter = Filter::new(Paint::Colour);
        let longest = (0..1000).map(|_| filter.line(b"\x1b[31mx").len()).max();
        assert!(longest < Some(LONGEST_ACTIVE + 32), "{longest:?}");
    }

    proptest! {
        #[test]
        fn only_colours_get_through(bytes: Vec<u8>) {
            let shown = Filter::new(Paint::Colour).line(&bytes);
            let mut rest = shown.as_str();
            while let Some(at) = rest.find(|c: char| c.is_control() && c != '\t') {
                let from = rest.get(at..).unwrap_or_default();
                let (_, after) = colour_sequence(from).unwrap();
                rest = after;
            }
        }
    }
}
