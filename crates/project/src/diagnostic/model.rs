//! One form for what is said about the source, and who says it.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};

use super::{lines, python, rustc};

#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Diagnostic {
    pub severity: Severity,
    /// Relative to the project where it lies in it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub column: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    pub message: String,
    /// Whose words these are.
    pub source: Speaker,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    Error,
    Warning,
    Note,
}

/// Who speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Speaker {
    Msbuild,
    Tsc,
    Eslint,
    Npm,
    Python,
    Rustc,
    Go,
    Maven,
    /// Anything of the form `file:line:column: CODE message`.
    Places,
}

/// What is kept of one message.
const MAX_MESSAGE: usize = 4 << 10;
const MAX_FILE: usize = 2 << 10;
const MAX_CODE: usize = 200;
const MAX_DIAGNOSTICS: usize = 10_000;
/// What one speaker says of the same output before repetitions are left out.
pub(super) const MOST_SAID: usize = 4 * MAX_DIAGNOSTICS;
/// Longer lines are no diagnostics.
pub(super) const MAX_LINE: usize = 16 << 10;

/// Everything these speakers say in the outputs. `root` is the project as they saw it.
pub fn read(speakers: &[Speaker], outputs: &[&str], root: &str) -> Vec<Diagnostic> {
    let mut found = Vec::new();
    // Tools sum up at the end what they have said before.
    let mut seen = HashSet::new();
    let both = speakers
        .iter()
        .flat_map(|speaker| outputs.iter().map(move |output| (speaker, *output)));
    for (speaker, output) in both {
        let said = match speaker {
            Speaker::Msbuild => lines::msbuild(output),
            Speaker::Tsc => lines::tsc(output),
            Speaker::Eslint => lines::eslint(output),
            Speaker::Npm => lines::npm(output),
            Speaker::Python => python::read(output),
            Speaker::Rustc => rustc::read(output),
            Speaker::Go => lines::go(output),
            Speaker::Maven => lines::maven(output),
            Speaker::Places => lines::places(output),
        };
        for mut diagnostic in said {
            diagnostic.tidy(root);
            if found.len() < MAX_DIAGNOSTICS && seen.insert(diagnostic.clone()) {
                found.push(diagnostic);
            }
        }
    }
    found
}

impl Speaker {
    /// All but the one whose form is everybody's.
    pub(crate) const ALL: [Self; 8] = [
        Self::Msbuild,
        Self::Tsc,
        Self::Eslint,
        Self::Npm,
        Self::Python,
        Self::Rustc,
        Self::Go,
        Self::Maven,
    ];
}

impl Severity {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
            Self::Note => "note",
        }
    }

    pub(super) fn of(word: &str) -> Option<Self> {
        match word {
            "error" | "fatal error" | "ERROR" => Some(Self::Error),
            "warning" | "warn" | "WARNING" => Some(Self::Warning),
            "note" | "info" | "help" | "message" => Some(Self::Note),
            _ => None,
        }
    }
}

impl Diagnostic {
    pub(super) fn new(source: Speaker, severity: Severity, message: impl Into<String>) -> Self {
        Self {
            severity,
            file: None,
            line: None,
            column: None,
            code: None,
            message: message.into(),
            source,
        }
    }

    pub(super) fn at(mut self, file: &str, line: Option<u32>, column: Option<u32>) -> Self {
        self.file = Some(file.to_owned());
        self.line = line;
        self.column = column;
        self
    }

    fn tidy(&mut self, root: &str) {
        if let Some(file) = &mut self.file {
            *file = relative(file, root);
            cut(file, MAX_FILE);
        }
        if let Some(code) = &mut self.code {
            cut(code, MAX_CODE);
        }
        cut(&mut self.message, MAX_MESSAGE);
    }
}

fn cut(text: &mut String, longest: usize) {
    if text.len() > longest {
        text.truncate(text.floor_char_boundary(longest));
        text.push('…');
    }
}

/// A path as a person in the project would write it.
pub fn relative(file: &str, root: &str) -> String {
    let file = file.strip_prefix("file://").unwrap_or(file);
    let below = file
        .strip_prefix(root)
        .and_then(|rest| rest.strip_prefix('/'));
    let file = below.unwrap_or(file);
    file.strip_prefix("./").unwrap_or(file).to_owned()
}
