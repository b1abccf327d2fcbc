//! The tester of the daemon's API: schemathesis, in a virtual environment of its own under `target`, in versions that are written down. Nothing is
//! installed for anybody else.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::{apt_install, is_there};
use crate::process::{is_root, read, succeeds, watch};

const NAME: &str = "schemathesis";
/// All of it, so that the same commit finds the same faults tomorrow.
const VERSIONS: &str = include_str!("schemathesis.txt");
/// What the environment was made from, beside it: the same text means that nothing is to be done.
const STAMP: &str = "versions.txt";

/// Makes the environment; says what is missing where that cannot be done, and the test that needs it fails.
pub(crate) fn schemathesis_best_effort(root: &Path) -> Result<(), String> {
    let place = root.join("target").join(NAME);
    match environment(&place) {
        Ok(()) => Ok(()),
        Err(error) if std::env::var_os("CI").is_some() => Err(error),
        Err(error) => {
            println!("no {NAME}: {error}\nthe tests of the daemon's API fail without it");
            Ok(())
        }
    }
}

fn environment(place: &Path) -> Result<(), String> {
    let program = place.join("bin").join(NAME);
    let stamp = place.join(STAMP);
    let is_current = fs::read_to_string(&stamp).is_ok_and(|text| text == VERSIONS);
    // An environment points to the Python that it was made with, which may be gone.
    if is_current && succeeds(Command::new(&program).arg("--version")) {
        return Ok(());
    }
    println!("missing: {NAME} (the tests of the daemon's API)");
    if !is_there("python3") {
        return Err("there is no python3 (3.10 or newer)".to_owned());
    }
    make(place)?;
    let versions = place.join("wanted.txt");
    fs::write(&versions, VERSIONS).map_err(|error| format!("{}: {error}", versions.display()))?;
    watch(
        Command::new(place.join("bin/python"))
            .args([
                "-m",
                "pip",
                "install",
                "--quiet",
                "--disable-pip-version-check",
            ])
            .args(["--constraint"])
            .arg(&versions)
            .arg(NAME),
    )
    .map_err(|error| format!("pip cannot install it: {error}"))?;
    read(Command::new(&program).arg("--version"))?;
    fs::rename(&versions, &stamp).map_err(|error| format!("{}: {error}", stamp.display()))
}

/// Debian has the module that makes environments in a package of its own.
fn make(place: &Path) -> Result<(), String> {
    const PACKAGE: &str = "python3-venv";
    let venv = || {
        let mut python = Command::new("python3");
        python.args(["-m", "venv", "--clear"]).arg(place);
        python
    };
    let Err(error) = read(&mut venv()) else {
        return Ok(());
    };
    if !is_root() || !is_there("apt-get") {
        return Err(format!(
            "{error}\ninstall it with: sudo apt-get install {PACKAGE}"
        ));
    }
    watch(&mut apt_install(&[PACKAGE]))?;
    read(&mut venv()).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_version_is_exact() {
        assert!(
            VERSIONS
                .lines()
                .any(|line| line.starts_with("schemathesis=="))
        );
        assert!(VERSIONS.lines().all(|line| line.split("==").count() == 2));
    }
}
