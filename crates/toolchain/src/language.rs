//! A language and the toolchains that can run it, as their manifest says. Only made by reading a manifest, so that what is here is valid.

use std::path::PathBuf;

use crate::needs::Needs;
use crate::template::Template;
use crate::version::{Unusable, Version};

/// A language that source code can be in.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Language {
    pub name: String,
    pub aliases: Vec<String>,
    /// As people write it: `C++`.
    pub title: String,
    /// What the main file is called unless the source says otherwise.
    pub file: String,
    pub env: Vec<(String, String)>,
    /// Of running; compiling has its own.
    pub needs: Needs,
    /// Present when an interpreter of it may be kept waiting.
    pub waiting: Option<Waiting>,
    /// Present when the language can have a handler.
    pub handler: Option<HandlerShim>,
    /// In the order in which to try them; never empty.
    pub toolchains: Vec<Toolchain>,
    pub origin: Origin,
}

/// Where a manifest came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    BuiltIn,
    File(PathBuf),
}

/// An interpreter that can be started before there is anything to run.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Waiting {
    /// As the toolchains name it: `python3`.
    pub program: String,
    pub way: WaitingWay,
    /// What every copy has imported already.
    pub preload: Vec<String>,
}

/// How many runs have one that has started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitingWay {
    /// One is started for all, and copied.
    Copy,
    /// One is started for each, with the shim, which waits.
    Ahead,
}

/// The file that calls a handler and sends its answer.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct HandlerShim {
    /// Its name below the reserved directory: `shim.py`.
    pub file_name: String,
    pub text: String,
    /// Put behind the main file, for languages in which a function cannot be reached from another file.
    pub append: String,
}

/// One way of running a language: an interpreter, or a compiler and what it makes.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Toolchain {
    /// Prints the version and ends with 0 where this toolchain works. To be run in the sandbox that the work will run in.
    pub probe: Vec<String>,
    pub min_version: Option<Version>,
    pub(crate) version: Option<String>,
    pub(crate) compile: Option<Compile>,
    pub(crate) run: Template,
    pub(crate) handler: Option<Template>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Compile {
    pub(crate) argv: Template,
    pub(crate) needs: Needs,
}

impl Language {
    /// Whether `handler(event)` can be called with at least one of its toolchains.
    pub fn has_handlers(&self) -> bool {
        self.toolchains.iter().any(Toolchain::has_handler)
    }

    pub(crate) fn is_called(&self, name: &str) -> bool {
        self.name == name || self.aliases.iter().any(|alias| alias == name)
    }
}

impl Toolchain {
    /// Judges what the probe printed, stdout and stderr together, after it ended with 0. `Ok(None)` is a toolchain that works and does
    /// not tell its version.
    pub fn version_from(&self, output: &[u8]) -> Result<Option<Version>, Unusable> {
        let Some(pattern) = &self.version else {
            return Ok(None);
        };
        let program = || self.program().to_owned();
        let output = output.get(..MAX_OUTPUT).unwrap_or(output);
        let found =
            Version::in_output(&String::from_utf8_lossy(output), pattern).ok_or_else(|| {
                Unusable::NoVersion {
                    program: program(),
                    pattern: pattern.clone(),
                }
            })?;
        match &self.min_version {
            Some(min) if found < *min => Err(Unusable::TooOld {
                program: program(),
                found,
                min: min.clone(),
            }),
            Some(_) | None => Ok(Some(found)),
        }
    }

    /// The program that the probe asks.
    pub fn program(&self) -> &str {
        self.probe.first().map_or("", String::as_str)
    }

    /// Every program that must be there, for a look before any probe.
    pub fn programs(&self) -> Vec<&str> {
        let templates = [
            Some(&self.run),
            self.handler.as_ref(),
            self.compile.as_ref().map(|compile| &compile.argv),
        ];
        let mut names = vec![self.program()];
        for template in templates.into_iter().flatten() {
            let program = template.program();
            if !program.contains('{') && !names.contains(&program) {
                names.push(program);
            }
        }
        names
    }

    pub fn compiles(&self) -> bool {
        self.compile.is_some()
    }

    pub fn has_handler(&self) -> bool {
        self.handler.is_some()
    }
}

/// A version stands at the beginning.
const MAX_OUTPUT: usize = 4096;
