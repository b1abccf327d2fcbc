//! Package managers for the tests of projects: Yarn (both kinds), pnpm and uv, under `target/managers` and nowhere else, in versions that are written down. About 70 MB, fetched once.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::{is_there, without_them};
use crate::process::{read, succeeds};

/// A directory of its own for each, since some have programs of the same name.
const FROM_NPM: [(&str, &str, &str); 3] = [
    ("yarn1", "yarn@1.22.22", "yarn"),
    ("yarn4", "@yarnpkg/cli-dist@4.18.1", "yarn"),
    ("pnpm", "pnpm@10.34.9", "pnpm"),
];
const UV: &str = "uv==0.13.7";

/// Says what is missing where it cannot be had.
pub(crate) fn managers_best_effort(root: &Path) -> Result<(), String> {
    let place = root.join("target/managers");
    let all = FROM_NPM
        .iter()
        .map(|(dir, package, program)| from_npm(&place.join(dir), package, program))
        .chain(std::iter::once_with(|| uv(&place.join("uv"))));
    for installed in all {
        match installed {
            Ok(()) => {}
            Err(error) if std::env::var_os("CI").is_some() => return Err(error),
            Err(error) => println!(
                "not all package managers: {error}\nthe tests that need one {}",
                without_them()
            ),
        }
    }
    Ok(())
}

fn from_npm(place: &Path, package: &str, program: &str) -> Result<(), String> {
    let is_current = fs::read_to_string(place.join("version")).is_ok_and(|text| text == package);
    let program = place.join("node_modules/.bin").join(program);
    if is_current && succeeds(Command::new(&program).arg("--version").current_dir("/")) {
        return Ok(());
    }
    println!("missing: {package} (projects in JavaScript)");
    if !is_there("npm") {
        return Err("there is no npm".to_owned());
    }
    let _ = fs::remove_dir_all(place);
    make(place)?;
    read(
        Command::new("npm")
            .args(["install", "--silent", "--ignore-scripts", "--no-audit"])
            .args(["--no-fund", "--no-save", "--prefix", "."])
            .arg(package)
            .current_dir(place),
    )?;
    read(Command::new(&program).arg("--version").current_dir("/"))?;
    finish(place, package)
}

fn uv(place: &Path) -> Result<(), String> {
    let is_current = fs::read_to_string(place.join("version")).is_ok_and(|text| text == UV);
    let program = place.join("bin/uv");
    if is_current && succeeds(Command::new(&program).arg("--version")) {
        return Ok(());
    }
    println!("missing: {UV} (projects in Python)");
    if !is_there("python3") {
        return Err("there is no python3".to_owned());
    }
    let _ = fs::remove_dir_all(place);
    read(Command::new("python3").args(["-m", "venv"]).arg(place))?;
    read(
        Command::new(place.join("bin/python"))
            .args(["-m", "pip", "install", "--quiet"])
            .args(["--disable-pip-version-check", "--only-binary", ":all:", UV]),
    )?;
    read(Command::new(&program).arg("--version"))?;
    finish(place, UV)
}

fn make(place: &Path) -> Result<(), String> {
    fs::create_dir_all(place).map_err(|error| format!("{}: {error}", place.display()))
}

/// Written last: what an interrupted installation left is not taken for a whole one.
fn finish(place: &Path, version: &str) -> Result<(), String> {
    let stamp = place.join("version");
    fs::write(&stamp, version).map_err(|error| format!("{}: {error}", stamp.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_version_is_exact() {
        for (_, package, _) in FROM_NPM {
            let (_, version) = package.rsplit_once('@').unwrap();
            assert_eq!(version.split('.').count(), 3, "{package}");
        }
        assert!(UV.contains("=="));
    }
}
