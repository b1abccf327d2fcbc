//! `cargo xtask generate`: the files that are written by a program and kept in the tree. The man page and the completions are not
//! among them: the binary makes those itself.

use std::fs;
use std::path::{Path, PathBuf};

use crate::{marks, picture, readme, seccomp_table};

const POLICY: &str = "policies/native.toml";
const SECCOMP_TABLE: &str = "crates/sys/src/seccomp/table.rs";
const SCHEMAS: &str = "docs/schemas";
const DESCRIPTION: &str = "docs/pictures/run.toml";
const PICTURE: &str = "docs/pictures/run.svg";
const README: &str = "README.md";
const MARKS: (&str, &str) = (
    "<!-- written by `cargo xtask generate` -->\n",
    "<!-- end -->\n",
);
/// What `cargo xtask bench peers` left.
const PEERS: &str = "docs/benchmarks/peers.json";

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
    let table = Output {
        path: SECCOMP_TABLE.into(),
        text: made(root, POLICY, SECCOMP_TABLE, seccomp_table::render_table)?,
    };
    let picture = Output {
        path: PICTURE.into(),
        text: made(root, DESCRIPTION, PICTURE, picture::draw)?,
    };
    let peers = made(root, PEERS, README, readme::comparison)?;
    let readme = Output {
        path: README.into(),
        text: made(root, README, README, |page| {
            marks::replaced(README, page, MARKS, &peers)
        })?,
    };
    let schemas = cofferdam_contract::schema::documents()
        .into_iter()
        .map(|(name, text)| Output {
            path: Path::new(SCHEMAS).join(file_name(name)),
            text,
        });
    Ok([table, picture, readme]
        .into_iter()
        .chain(schemas)
        .collect())
}

/// What a file of the tree is turned into.
fn made<E: std::fmt::Display>(
    root: &Path,
    source: &str,
    product: &str,
    make: impl FnOnce(&str) -> Result<String, E>,
) -> Result<String, String> {
    let text = fs::read_to_string(root.join(source))
        .map_err(|error| format!("{source}: {error}; {product} is made from it"))?;
    make(&text).map_err(|error| format!("{source}: {error}"))
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
