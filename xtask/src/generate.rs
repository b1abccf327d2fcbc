//! `cargo xtask generate`: the files that are written by a program and kept in the tree. The man page and the completions are not
//! among them: the binary makes those itself.

use std::fs;
use std::path::{Path, PathBuf};

use crate::seccomp_table;

const POLICY: &str = "policies/native.toml";
const SECCOMP_TABLE: &str = "crates/sys/src/seccomp/table.rs";
const SCHEMAS: &str = "docs/schemas";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Write,
    /// Compare only.
    Check,
}

/// A file and what it must hold.
#[derive(Debug, PartialEq, Eq)]
struct Output {
    /// Relative to the repository.
    path: PathBuf,
    text: String,
}

pub(crate) fn run(root: &Path, mode: Mode) -> Result<(), String> {
    match mode {
        Mode::Write => write(root, &outputs(root)?),
        Mode::Check => match stale(root)?.as_slice() {
            [] => Ok(()),
            files => Err(format!(
                "{}: not current; run `cargo xtask generate`",
                files.join(", ")
            )),
        },
    }
}

/// The generated files that are not what they should be.
pub(crate) fn stale(root: &Path) -> Result<Vec<String>, String> {
    let outputs = outputs(root)?;
    Ok(differing(root, &outputs)
        .into_iter()
        .map(|output| output.path.display().to_string())
        .collect())
}

fn outputs(root: &Path) -> Result<Vec<Output>, String> {
    let policy = fs::read_to_string(root.join(POLICY)).map_err(|error| {
        format!("{POLICY}: {error}; it holds the system calls of the native backend and {SECCOMP_TABLE} is made from it")
    })?;
    let table =
        seccomp_table::render_table(&policy).map_err(|error| format!("{POLICY}: {error}"))?;
    let table = Output {
        path: SECCOMP_TABLE.into(),
        text: table,
    };
    let schemas = cofferdam_contract::schema::documents()
        .into_iter()
        .map(|(name, text)| Output {
            path: Path::new(SCHEMAS).join(file_name(name)),
            text,
        });
    Ok(std::iter::once(table).chain(schemas).collect())
}

fn file_name(name: &str) -> String {
    if name.ends_with(".json") {
        name.to_owned()
    } else {
        format!("{name}.schema.json")
    }
}

fn write(root: &Path, outputs: &[Output]) -> Result<(), String> {
    for output in differing(root, outputs) {
        let path = root.join(&output.path);
        let failed = |error: std::io::Error| format!("{}: {error}", path.display());
        if let Some(dir) = path.parent() {
            fs::create_dir_all(dir).map_err(failed)?;
        }
        fs::write(&path, &output.text).map_err(failed)?;
        println!("{}: written", output.path.display());
    }
    Ok(())
}

fn differing<'a>(root: &Path, outputs: &'a [Output]) -> Vec<&'a Output> {
    let current = |output: &Output| {
        fs::read_to_string(root.join(&output.path)).is_ok_and(|found| found == output.text)
    };
    outputs.iter().filter(|output| !current(output)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_or_absent_file_is_stale_until_it_is_written() {
        let dir = tempfile::tempdir().unwrap();
        let outputs = ["a/b.txt", "c.txt"].map(|path| Output {
            path: path.into(),
            text: format!("text of {path}\n"),
        });
        assert_eq!(differing(dir.path(), &outputs).len(), 2);
        write(dir.path(), &outputs).unwrap();
        assert_eq!(differing(dir.path(), &outputs), Vec::<&Output>::new());
        fs::write(dir.path().join("c.txt"), "edited by hand").unwrap();
        assert_eq!(differing(dir.path(), &outputs), [&outputs[1]]);
    }

    #[test]
    fn without_its_policy_it_says_what_is_missing() {
        let dir = tempfile::tempdir().unwrap();
        let error = run(dir.path(), Mode::Check).unwrap_err();
        assert!(error.starts_with("policies/native.toml: "), "{error}");
    }
}
