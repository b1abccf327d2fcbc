//! What contracts are compiled and tried with: the compiler of Solidity and a chain of one's own (anvil), both from npm, under `target/chain` and nowhere else. About 52 MB, fetched once.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{is_there, without_them};
use crate::process::{read, succeeds};

const COMPILER: &str = "solc@0.8.37";
/// The package of this platform: the binary lies in it, and no script has to be run.
const ANVIL: &str = "@foundry-rs/anvil-linux-amd64@1.7.1";
/// Read by the tests of the chain too.
const PLACE: &str = "target/chain";
/// Says which versions are there.
const STAMP: &str = "version";

/// Says what is missing where it cannot be had.
pub(crate) fn chain_best_effort(root: &Path) -> Result<(), String> {
    match install(&root.join(PLACE)) {
        Ok(()) => Ok(()),
        Err(error) if std::env::var_os("CI").is_some() => Err(error),
        Err(error) => {
            println!(
                "no compiler of contracts and no chain: {error}\nthe tests that need one {}",
                without_them()
            );
            Ok(())
        }
    }
}

/// The compiler as a script for node, installed if it is missing.
pub(crate) fn solidity_compiler(root: &Path) -> Result<PathBuf, String> {
    let place = root.join(PLACE);
    if !is_current(&place) {
        install(&place)?;
    }
    Ok(place.join("node_modules/solc/solc.js"))
}

#[cfg(test)]
/// Whether what is wanted was installed to its end.
pub(crate) fn has_chain(root: &Path) -> bool {
    is_current(&root.join(PLACE))
}

fn wanted() -> String {
    format!("{COMPILER} {ANVIL}")
}

fn is_current(place: &Path) -> bool {
    fs::read_to_string(place.join(STAMP)).is_ok_and(|text| text == wanted())
}

fn install(place: &Path) -> Result<(), String> {
    let stamp = place.join(STAMP);
    let anvil = place.join("node_modules/@foundry-rs/anvil-linux-amd64/bin/anvil");
    if is_current(place) && succeeds(Command::new(&anvil).arg("--version")) {
        return Ok(());
    }
    println!("missing: {COMPILER}, {ANVIL} (contracts, and a chain to try them on)");
    if !is_there("npm") {
        return Err("there is no npm".to_owned());
    }
    let _ = fs::remove_dir_all(place);
    fs::create_dir_all(place).map_err(|error| format!("{}: {error}", place.display()))?;
    read(
        Command::new("npm")
            .args(["install", "--silent", "--ignore-scripts", "--no-audit"])
            .args(["--no-fund", "--no-save", "--prefix", "."])
            .args([COMPILER, ANVIL])
            .current_dir(place),
    )?;
    read(Command::new(&anvil).arg("--version"))?;
    // Written last: what an interrupted installation left is not taken for a whole one.
    fs::write(&stamp, wanted()).map_err(|error| format!("{}: {error}", stamp.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_versions_of_the_chain_are_exact() {
        for package in [COMPILER, ANVIL] {
            let (_, version) = package.rsplit_once('@').unwrap();
            assert_eq!(version.split('.').count(), 3, "{package}");
        }
    }
}
