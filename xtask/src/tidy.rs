//! `cargo xtask tidy`: what the compiler cannot check. Every check takes files or a directory and returns findings, so that each can
//! be tried on a small tree in a test.

mod arrows;
mod lexer;
mod links;
mod proofs;
mod sources;
mod tree;

use std::fmt;
use std::path::{Path, PathBuf};

use crate::generate;
use tree::Tree;

/// One thing that is not as it should be.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Finding {
    /// Relative to the repository.
    pub(crate) file: PathBuf,
    pub(crate) line: usize,
    /// What, and what to do.
    pub(crate) what: String,
}

/// Prints every finding; fails when there is one.
pub(crate) fn run(root: &Path) -> Result<(), String> {
    let findings = check(root)?;
    for finding in &findings {
        println!("{finding}");
    }
    match findings.len() {
        0 => Ok(()),
        n => Err(format!("{n} finding(s)")),
    }
}

/// Every finding in the tree, in the order of its files.
pub(crate) fn check(root: &Path) -> Result<Vec<Finding>, String> {
    let tree = Tree::read(root)?;
    let mut findings = Vec::new();
    findings.extend(sources::check(&tree));
    findings.extend(arrows::check(&tree));
    findings.extend(links::check(&tree));
    findings.extend(proofs::check(&tree));
    findings.extend(generated(root));
    findings.sort();
    Ok(findings)
}

fn generated(root: &Path) -> Vec<Finding> {
    let (files, what) = match generate::stale(root) {
        Ok(files) => (
            files,
            "is not what its source says; run `cargo xtask generate`".to_owned(),
        ),
        Err(error) => (
            vec!["xtask".to_owned()],
            format!("the generated files cannot be checked: {error}"),
        ),
    };
    files
        .into_iter()
        .map(|file| Finding::new(file, 1, what.clone()))
        .collect()
}

impl Finding {
    fn new(file: impl Into<PathBuf>, line: usize, what: impl Into<String>) -> Self {
        Self {
            file: file.into(),
            line,
            what: what.into(),
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.file.display(), self.line, self.what)
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_tree_itself_is_tidy() {
        let findings = super::check(&crate::root()).unwrap();
        let shown: Vec<String> = findings.iter().map(ToString::to_string).collect();
        assert!(shown.is_empty(), "{}", shown.join("\n"));
    }
}
