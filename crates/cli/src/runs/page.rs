//! A page of labelled values, in sections. What is put in is made safe to show here.

use std::fmt::Write as _;

use crate::terminal::colour::{Colour, Paint};
use crate::terminal::text::{cut, safe, width};

#[derive(Debug)]
pub(crate) struct Page {
    paint: Paint,
    text: String,
    section: Option<&'static str>,
}

const LABEL: usize = 12;
/// A value for reading; `--json` has the whole of it.
const LONGEST: usize = 2000;

impl Page {
    pub(crate) const fn new(paint: Paint) -> Self {
        Self {
            paint,
            text: String::new(),
            section: None,
        }
    }

    /// A heading that is written with the first value below it.
    pub(crate) fn section(&mut self, title: &'static str) {
        self.section = Some(title);
    }

    pub(crate) fn field(&mut self, label: &str, value: &str) {
        self.heading();
        let label = safe(label);
        let padding = " ".repeat(LABEL.saturating_sub(width(&label)));
        let value = cut(&safe(value), LONGEST);
        let _ = writeln!(self.text, "  {label}{padding}  {value}");
    }

    /// A value in a colour.
    pub(crate) fn painted(&mut self, label: &str, value: &str, colour: Colour) {
        self.heading();
        let value = self.paint.paint(colour, &cut(&safe(value), LONGEST));
        let _ = writeln!(self.text, "  {label:LABEL$}  {value}");
    }

    /// A line of its own, indented.
    pub(crate) fn line(&mut self, text: &str) {
        self.heading();
        let _ = writeln!(self.text, "  {}", cut(&safe(text), LONGEST));
    }

    /// Text that is safe already.
    pub(crate) fn raw(&mut self, text: &str) {
        self.heading();
        let _ = writeln!(self.text, "  {text}");
    }

    /// The first few of many, and how many more there are.
    pub(crate) fn few(&mut self, lines: &[String], most: usize, hint: &str) {
        for line in lines.iter().take(most) {
            self.line(line);
        }
        let left = lines.len().saturating_sub(most);
        if left > 0 {
            self.line(&format!("… and {left} more; {hint}"));
        }
    }

    fn heading(&mut self) {
        if let Some(title) = self.section.take() {
            if !self.text.is_empty() {
                self.text.push('\n');
            }
            let _ = writeln!(self.text, "{}", self.paint.paint(Colour::Bold, title));
        }
    }

    pub(crate) fn finish(self) -> String {
        self.text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_sections_are_not_there() {
        let mut page = Page::new(Paint::Plain);
        page.section("ONE");
        page.field("a", "b\n\u{1b}");
        page.section("EMPTY");
        page.section("TWO");
        let lines: Vec<String> = (0..4).map(|n| n.to_string()).collect();
        page.few(&lines, 2, "see");
        let expected = "ONE\n  a             b\\n\\u{1b}\n\nTWO\n  0\n  1\n  … and 2 more; see\n";
        assert_eq!(page.finish(), expected);
    }
}
