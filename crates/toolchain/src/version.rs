//! Versions of toolchains, as their probes print them. Compares numbers; what stands after them is not looked at.

use std::fmt;

/// At most this many numbers are kept.
const MAX_PARTS: usize = 4;
/// Where the version stands in a pattern.
pub(crate) const PLACEHOLDER: &str = "{version}";

/// `3.11.2`. Missing numbers count as zero, so that `3.11` equals `3.11.0`.
#[derive(Debug, Clone)]
pub struct Version {
    parts: Vec<u32>,
}

/// Why a toolchain whose probe ran cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unusable {
    #[error("`{program}` printed no version that looks like `{pattern}`")]
    NoVersion { program: String, pattern: String },
    #[error("`{program}` is version {found}; at least {min} is needed")]
    TooOld {
        program: String,
        found: Version,
        min: Version,
    },
}

impl Version {
    /// Reads the numbers that a text begins with.
    pub(crate) fn at_start(text: &str) -> Option<Self> {
        let end = text
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(text.len());
        let numbers = text.get(..end)?.trim_end_matches('.');
        let parts = numbers
            .split('.')
            .take(MAX_PARTS)
            .map(|part| part.parse().ok())
            .collect::<Option<Vec<u32>>>()?;
        Some(Self { parts })
    }

    /// Reads a text that is a version and nothing else.
    pub(crate) fn whole(text: &str) -> Option<Self> {
        let is_version = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit() || b == b'.');
        Self::at_start(text).filter(|_| is_version)
    }

    /// Finds the first place in a program's output that the pattern fits.
    pub(crate) fn in_output(output: &str, pattern: &str) -> Option<Self> {
        let (before, after) = pattern.split_once(PLACEHOLDER)?;
        let starts = (0..=output.len()).filter(|at| output.is_char_boundary(*at));
        let mut last_was_digit = false;
        for at in starts {
            let rest = output.get(at..)?;
            // `{version}` alone must not find the 7 of 17.
            let inside_a_number = before.is_empty() && last_was_digit;
            last_was_digit = rest.starts_with(|c: char| c.is_ascii_digit() || c == '.');
            let Some(rest) = rest.strip_prefix(before).filter(|_| !inside_a_number) else {
                continue;
            };
            let found = Self::at_start(rest);
            let fits = |rest: &str| {
                let numbers = rest.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
                numbers.starts_with(after)
            };
            if found.is_some() && fits(rest) {
                return found;
            }
        }
        None
    }

    fn significant(&self) -> &[u32] {
        let end = self.parts.iter().rposition(|part| *part != 0);
        self.parts.get(..end.map_or(0, |at| at + 1)).unwrap_or(&[])
    }
}

impl PartialEq for Version {
    fn eq(&self, other: &Self) -> bool {
        self.significant() == other.significant()
    }
}

impl Eq for Version {}

impl PartialOrd for Version {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Version {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.significant().cmp(other.significant())
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, part) in self.parts.iter().enumerate() {
            let dot = if i > 0 { "." } else { "" };
            write!(f, "{dot}{part}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn real_outputs_are_understood() {
        for (output, pattern, expected) in [
            ("Python 3.11.2\n", "Python {version}", "3.11.2"),
            ("v20.20.2\n", "v{version}", "20.20.2"),
            ("12.2.0\n", "{version}", "12.2.0"),
            ("go version go1.19.8 linux/amd64", "go{version}", "1.19.8"),
            (
                "GNU bash, version 5.2.15(1)-release",
                "version {version}",
                "5.2.15",
            ),
            (
                "rustc 1.91.0-nightly (abc 2025)",
                "rustc {version}",
                "1.91.0",
            ),
            ("ruby 3.1.2p20 (2022)", "ruby {version}", "3.1.2"),
            ("javac 17.0.15\n", "javac {version}", "17.0.15"),
            ("jdk.compiler@25\n", "jdk.compiler@{version}", "25"),
            ("x (17) y", "({version})", "17"),
        ] {
            let found = Version::in_output(output, pattern).map(|v| v.to_string());
            assert_eq!(found.as_deref(), Some(expected), "{output}");
        }
        for (output, pattern) in [
            ("", "{version}"),
            ("no digits", "{version}"),
            ("Python three", "Python {version}"),
            ("99999999999999999999", "{version}"),
            ("a17b", "{version}c"),
        ] {
            assert_eq!(Version::in_output(output, pattern), None, "{output}");
        }
    }

    #[test]
    fn versions_compare_by_number() {
        let v = |text| Version::whole(text).unwrap();
        assert!(v("3.9") < v("3.10") && v("22.6.1") > v("22.6") && v("3.11") == v("3.11.0"));
        assert_eq!(Version::whole("3.x"), None);
        assert_eq!(Version::whole(""), None);
        assert_eq!(Version::whole("1..2"), None);
    }

    proptest! {
        #[test]
        fn no_output_makes_reading_panic(output in ".{0,200}", pattern in ".{0,6}\\{version\\}.{0,3}") {
            let _ = Version::in_output(&output, &pattern);
        }
    }
}
