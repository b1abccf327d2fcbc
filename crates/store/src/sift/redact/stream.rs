//! The three ways of finding a secret, one behind the other: known values first, then the user's patterns, then the built-in families.

use super::bytes::Flow;
use super::literals::Literals;
use super::patterns::Patterns;
use super::rules::Rules;
use super::scan::Scan;

/// At most so many bytes are held back between two calls of `push`, whatever the input is: the longest known value, a window of the user's patterns, and what the built-in families look
/// ahead. With the built-in families alone it is less than 2 KiB, and mostly 16 bytes.
pub const MOST_HELD: usize = 2 * super::rules::LONGEST_VALUE + super::patterns::WINDOW;

/// Takes secrets out of a stream that comes in pieces. The output does not depend on where the pieces are cut.
#[derive(Debug)]
pub struct Redactor {
    rules: Rules,
    literals: Option<Literals>,
    patterns: Option<Patterns>,
    scan: Scan,
}

impl Redactor {
    pub fn new(rules: &Rules) -> Self {
        let values = &rules.values;
        Self {
            literals: (!values.is_empty()).then(|| Literals::new(values)),
            patterns: (!rules.patterns.is_empty()).then(Patterns::new),
            scan: Scan::new(),
            rules: rules.clone(),
        }
    }

    /// Appends to `out` what of the input so far may be kept.
    pub fn push(&mut self, input: &[u8], out: &mut Vec<u8>) {
        self.work(input, Flow::Open, out);
    }

    /// Appends what was held back. A private key without its end stays replaced. After this the redactor stands before a new stream; the count goes on.
    pub fn finish(&mut self, out: &mut Vec<u8>) {
        self.work(&[], Flow::Ended, out);
        self.scan.finish(out);
    }

    /// How many secrets were replaced.
    pub fn count(&self) -> u64 {
        let literals = self.literals.as_ref().map_or(0, Literals::count);
        let patterns = self.patterns.as_ref().map_or(0, Patterns::count);
        literals + patterns + self.scan.count()
    }

    fn work(&mut self, input: &[u8], flow: Flow, out: &mut Vec<u8>) {
        let mut known = Vec::new();
        let mut matched = Vec::new();
        let mut stream = input;
        if let Some(literals) = &mut self.literals {
            literals.work(&self.rules.values, stream, flow, &mut known);
            stream = &known;
        }
        if let Some(patterns) = &mut self.patterns {
            patterns.work(&self.rules.patterns, stream, flow, &mut matched);
            stream = &matched;
        }
        self.scan.push(stream, out);
    }

    #[cfg(test)]
    pub(super) fn held(&self) -> usize {
        let literals = self.literals.as_ref().map_or(0, Literals::held);
        let patterns = self.patterns.as_ref().map_or(0, Patterns::held);
        literals + patterns + self.scan.held()
    }
}
