//! A problem with what was asked: the field, the value that was given, and the fix. Validation collects all of them.

use std::fmt;

use serde::{Deserialize, Serialize};

/// One thing that is wrong with a payload, a flag or a configuration value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// Where: `max_memory_mb`, `task.argv[2]`, `--timeout`.
    pub field: String,
    /// What was given, shortened when long.
    pub value: String,
    /// What is wrong with it and what to write instead.
    pub fix: String,
}

/// All the problems of one input; never empty.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Problems(Vec<Problem>);

/// Collects problems for a reader: after the first [`Found::MOST`] only their number, so that eight million wrong elements do not become eight million texts.
#[derive(Debug, Default)]
pub(crate) struct Found {
    listed: Vec<Problem>,
    more: usize,
}

impl Found {
    pub(crate) const MOST: usize = 100;

    pub(crate) fn push(&mut self, problem: impl FnOnce() -> Problem) {
        if self.listed.len() < Self::MOST {
            self.listed.push(problem());
        } else {
            self.more += 1;
        }
    }

    pub(crate) fn extend(&mut self, problems: impl IntoIterator<Item = Problem>) {
        for problem in problems {
            self.push(|| problem);
        }
    }

    pub(crate) fn into_vec(mut self) -> Vec<Problem> {
        if self.more > 0 {
            let value = format!("{} more problems", self.more);
            let fix = "are not listed; correct these first";
            self.listed.push(Problem::new("and", value, fix));
        }
        self.listed
    }
}

impl Problem {
    pub fn new(field: impl Into<String>, value: impl fmt::Display, fix: impl Into<String>) -> Self {
        Self {
            field: field.into(),
            value: shorten(&value.to_string()),
            fix: fix.into(),
        }
    }
}

impl Problems {
    /// `Ok` when nothing was found.
    pub fn check(found: Vec<Problem>) -> Result<(), Self> {
        if found.is_empty() {
            Ok(())
        } else {
            Err(Self(found))
        }
    }

    pub fn one(problem: Problem) -> Self {
        Self(vec![problem])
    }

    pub fn iter(&self) -> impl Iterator<Item = &Problem> {
        self.0.iter()
    }

    pub fn into_vec(self) -> Vec<Problem> {
        self.0
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.fix)?;
        // Nothing was given: the fix says so.
        match self.value.as_str() {
            "" => Ok(()),
            value => write!(f, " (got `{value}`)"),
        }
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, problem) in self.0.iter().enumerate() {
            if i > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{problem}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Problems {}

/// A hostile value can be megabytes long; an error message is for reading.
pub(crate) fn shorten(value: &str) -> String {
    const KEEP: usize = 80;
    match value.char_indices().nth(KEEP) {
        Some((cut, _)) => format!("{}… ({} bytes)", &value[..cut], value.len()),
        None => value.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_reads_as_field_fix_and_value() {
        let problem = Problem::new("max_memory_mb", 0, "is below 1; ask for at least 1");
        assert_eq!(
            problem.to_string(),
            "max_memory_mb: is below 1; ask for at least 1 (got `0`)"
        );
    }

    #[test]
    fn a_long_value_is_cut_between_characters() {
        let problem = Problem::new("scope", "é".repeat(1000), "is too long");
        assert_eq!(problem.value, format!("{}… (2000 bytes)", "é".repeat(80)));
    }

    #[test]
    fn only_the_first_problems_are_listed_and_the_others_are_counted() {
        let mut found = Found::default();
        for n in 0..Found::MOST {
            found.push(|| Problem::new(n.to_string(), n, "is wrong"));
        }
        found.extend([Problem::new("a", "b", "c")]);
        found.push(|| panic!("nobody reads it"));
        let found = found.into_vec();
        assert_eq!(found.len(), Found::MOST + 1);
        let last = found.last().map(ToString::to_string);
        assert_eq!(
            last.as_deref(),
            Some("and: are not listed; correct these first (got `2 more problems`)")
        );
    }

    #[test]
    fn problems_are_never_empty() {
        assert_eq!(Problems::check(Vec::new()), Ok(()));
        let one = Problem::new("a", "b", "c");
        assert_eq!(Problems::check(vec![one.clone()]), Err(Problems::one(one)));
    }
}
