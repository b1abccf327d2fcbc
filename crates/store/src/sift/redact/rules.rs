//! What counts as a secret in one run: the built-in families, the values of its sensitive variables, the user's patterns.

use std::fmt;
use std::sync::Arc;

use memchr::memmem::Finder;
use regex::bytes::{Regex, RegexBuilder};

use super::is_sensitive_name;
use crate::StoreError;

/// Shorter values are not looked for: `1`, `dev` or `admin` stand everywhere in ordinary output, and whoever replaces them destroys it without hiding anything.
pub const SHORTEST_VALUE: usize = 6;

/// Longer values, and those of several lines, are looked for in pieces: each line of its own, cut at this length.
pub const LONGEST_VALUE: usize = 4 * 1024;

/// How many patterns there may be, and how long one may be.
pub const MOST_PATTERNS: usize = 64;
pub const LONGEST_PATTERN: usize = 1024;

/// What a compiled pattern may take.
const COMPILED_BYTES: usize = 1 << 20;

/// What is redacted. The built-in families always are.
#[derive(Clone, Default)]
pub struct Rules {
    pub(super) values: Arc<[Finder<'static>]>,
    pub(super) patterns: Arc<[Regex]>,
}

impl Rules {
    /// The built-in families alone.
    pub fn builtin() -> Self {
        Self::default()
    }

    /// The built-in families, and the values of those variables whose names are sensitive.
    pub fn for_environment<'a>(variables: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let sensitive = variables
            .into_iter()
            .filter(|(name, _)| is_sensitive_name(name))
            .map(|(_, value)| value.as_bytes());
        Self::builtin().with_values(sensitive)
    }

    /// These values besides. Those shorter than 6 bytes are left out; those of several lines, or longer than 4 KiB, are looked for line by line.
    #[must_use]
    pub fn with_values<'a>(self, values: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let mut all: Vec<&[u8]> = self.values.iter().map(Finder::needle).collect();
        for value in values {
            all.extend(pieces(value).filter(|piece| piece.len() >= SHORTEST_VALUE));
        }
        all.sort_unstable();
        all.dedup();
        let values = all.into_iter().map(|value| Finder::new(value).into_owned());
        Self {
            values: values.collect(),
            patterns: self.patterns,
        }
    }

    /// These patterns besides: the syntax of the `regex` crate, on bytes, with `\w`, `\d`, `\b` and `(?i)` in their ASCII sense. What one matches is replaced whole; a match of no
    /// bytes is none. See [`super`] for what a pattern sees of the output.
    pub fn with_patterns<'a>(
        self,
        patterns: impl IntoIterator<Item = &'a str>,
    ) -> Result<Self, StoreError> {
        let mut all: Vec<Regex> = self.patterns.to_vec();
        for pattern in patterns {
            if all.len() == MOST_PATTERNS {
                return Err(invalid(
                    pattern,
                    format!("there are more than {MOST_PATTERNS}; join some with `|`"),
                ));
            }
            all.push(compile(pattern)?);
        }
        Ok(Self {
            values: self.values,
            patterns: all.into(),
        })
    }
}

/// A secret value must not come back out of an error report or a debug line.
impl fmt::Debug for Rules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rules")
            .field("values", &self.values.len())
            .field("patterns", &self.patterns.len())
            .finish()
    }
}

fn pieces(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value
        .split(|byte| *byte == b'\n')
        .map(<[u8]>::trim_ascii)
        .flat_map(|line| line.chunks(LONGEST_VALUE))
}

fn compile(pattern: &str) -> Result<Regex, StoreError> {
    if pattern.is_empty() {
        return Err(invalid(
            pattern,
            "an empty pattern matches nothing; leave it out".to_owned(),
        ));
    }
    if pattern.len() > LONGEST_PATTERN {
        let start = pattern.chars().take(40).collect::<String>() + "…";
        let why = format!(
            "it has {} bytes and may have {LONGEST_PATTERN}; make two of it",
            pattern.len()
        );
        return Err(invalid(&start, why));
    }
    RegexBuilder::new(pattern)
        .unicode(false)
        .size_limit(COMPILED_BYTES)
        .dfa_size_limit(COMPILED_BYTES)
        .nest_limit(64)
        .build()
        .map_err(|source| invalid(pattern, explain(&source)))
}

fn explain(source: &regex::Error) -> String {
    match source {
        regex::Error::CompiledTooBig(_) => {
            format!("compiled it takes more than {COMPILED_BYTES} bytes; use smaller repetitions")
        }
        // The first lines draw the pattern once more; the last one says what is wrong.
        other => {
            let text = other.to_string();
            let last = text.lines().last().unwrap_or_default();
            format!(
                "no regular expression: {}",
                last.trim_start_matches("error: ")
            )
        }
    }
}

fn invalid(value: &str, why: String) -> StoreError {
    StoreError::Invalid {
        field: "redact pattern",
        value: value.to_owned(),
        why,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_shows_no_secret() {
        let rules =
            Rules::for_environment([("API_KEY", "hunter2hunter2"), ("HOME", "/home/somebody")]);
        assert_eq!(format!("{rules:?}"), "Rules { values: 1, patterns: 0 }");
    }

    #[test]
    fn values_are_cut_into_lines_and_short_ones_left_out() {
        let long = vec![b'x'; LONGEST_VALUE + 10];
        let values: [&[u8]; 4] = [
            b"short",
            b"longer",
            b"first line\n  second line\r\nab",
            &long,
        ];
        let rules = Rules::builtin().with_values(values);
        let mut needles: Vec<&[u8]> = rules.values.iter().map(Finder::needle).collect();
        needles.sort_unstable_by_key(|needle| needle.len());
        let lengths: Vec<usize> = needles.iter().map(|needle| needle.len()).collect();
        assert_eq!(lengths, [6, 10, 10, 11, LONGEST_VALUE]);
    }

    #[test]
    fn a_bad_pattern_is_refused_with_its_reason() {
        let message = |pattern: &str| {
            Rules::builtin()
                .with_patterns([pattern])
                .unwrap_err()
                .to_string()
        };
        assert_eq!(
            message("a("),
            "redact pattern: no regular expression: unclosed group (got `a(`)"
        );
        assert!(message(r"(\w{1000}){1000}").contains("use smaller repetitions"));
        assert!(message(&"a".repeat(2000)).contains("make two of it"));
        assert!(message("").contains("leave it out"));
        assert!(
            Rules::builtin()
                .with_patterns(vec!["a"; 65])
                .unwrap_err()
                .to_string()
                .contains("join some")
        );
        assert!(
            Rules::builtin()
                .with_patterns(["(?i)internal-[0-9]+", "é"])
                .is_ok()
        );
    }
}
