//! Crate arrows: which crate of the workspace may depend on which. The table is the architecture; a manifest that disagrees is wrong.

use toml::{Table, Value};

use super::Finding;
use super::tree::{SourceFile, Tree};

/// A package and the packages of this workspace that it may use.
const ARROWS: [(&str, &[&str]); 18] = [
    (CONTRACT, &[]),
    (SYS, &[]),
    (OBSERVE, &[]),
    (STORE, &[CONTRACT]),
    (EGRESS, &[CONTRACT]),
    (ENGINE, &[CONTRACT, SYS, STORE, EGRESS]),
    (DOCKER, &[CONTRACT, ENGINE, STORE]),
    (IMAGES, &[CONTRACT, STORE]),
    (TOOLCHAIN, &[CONTRACT]),
    (PROJECT, &[CONTRACT]),
    (WORKSHOP, &[CONTRACT, STORE, ENGINE, PROJECT]),
    (CALLBACK, &[CONTRACT, STORE]),
    (WASM, &[CONTRACT, STORE, ENGINE]),
    (CHAIN, &[CONTRACT, STORE]),
    (FLEET, &[CONTRACT, STORE]),
    (
        SERVER,
        &[
            CONTRACT, ENGINE, TOOLCHAIN, STORE, CALLBACK, FLEET, OBSERVE, DOCKER, IMAGES, WASM,
            PROJECT, WORKSHOP,
        ],
    ),
    (
        "cofferdam",
        &[
            CONTRACT, SYS, STORE, ENGINE, TOOLCHAIN, PROJECT, CALLBACK, CHAIN, FLEET, SERVER,
            OBSERVE, DOCKER, IMAGES, WASM, WORKSHOP,
        ],
    ),
    (TESTKIT, &[]),
];
const CONTRACT: &str = "cofferdam-contract";
const SYS: &str = "cofferdam-sys";
const STORE: &str = "cofferdam-store";
const EGRESS: &str = "cofferdam-egress";
const ENGINE: &str = "cofferdam-engine";
const TOOLCHAIN: &str = "cofferdam-toolchain";
const PROJECT: &str = "cofferdam-project";
const CALLBACK: &str = "cofferdam-callback";
const OBSERVE: &str = "cofferdam-observe";
const DOCKER: &str = "cofferdam-docker";
const IMAGES: &str = "cofferdam-images";
const CHAIN: &str = "cofferdam-chain";
const FLEET: &str = "cofferdam-fleet";
const WASM: &str = "cofferdam-wasm";
const WORKSHOP: &str = "cofferdam-workshop";
const SERVER: &str = "cofferdam-server";
const TESTKIT: &str = "cofferdam-testkit";
/// Chores look at whatever they need and are never shipped.
const FREE: [&str; 1] = ["xtask"];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    tree.files
        .iter()
        .filter(|file| is_manifest(file))
        .flat_map(check_manifest)
        .collect()
}

fn is_manifest(file: &SourceFile) -> bool {
    file.path.ends_with("Cargo.toml") && !file.path.starts_with("fuzz")
}

fn check_manifest(file: &SourceFile) -> Vec<Finding> {
    let manifest = match file.text.parse::<Table>() {
        Ok(manifest) => manifest,
        Err(error) => return vec![Finding::new(&file.path, 1, format!("is not TOML: {error}"))],
    };
    let name = manifest
        .get("package")
        .and_then(|package| package.get("name"))
        .and_then(Value::as_str);
    let Some(name) = name.filter(|name| !FREE.contains(name)) else {
        return Vec::new();
    };
    let Some((_, allowed)) = ARROWS.iter().find(|(package, _)| *package == name) else {
        let what = format!(
            "the crate `{name}` has no place in the table of crate arrows; add it to {}",
            file!()
        );
        return vec![Finding::new(&file.path, 1, what)];
    };
    let mut found = Vec::new();
    for (section, dependency) in ours(&manifest) {
        let for_tests = section == "dev-dependencies" && dependency == TESTKIT;
        if !for_tests && !allowed.contains(&dependency.as_str()) {
            let line = line_of(&file.text, &dependency);
            let what = format!(
                "`{name}` must not use `{dependency}` ({section}); move what it needs to a crate that both may use"
            );
            found.push(Finding::new(&file.path, line, what));
        }
    }
    found
}

/// The dependencies on packages of this workspace, with the section they stand in.
fn ours(manifest: &Table) -> Vec<(&'static str, String)> {
    let per_target = manifest
        .get("target")
        .and_then(Value::as_table)
        .into_iter()
        .flat_map(Table::values);
    let places = std::iter::once(manifest).chain(per_target.filter_map(Value::as_table));
    let sections = ["dependencies", "dev-dependencies", "build-dependencies"];
    let mut found = Vec::new();
    for place in places {
        for section in sections {
            let dependencies = place
                .get(section)
                .and_then(Value::as_table)
                .into_iter()
                .flatten();
            found.extend(
                dependencies
                    .map(|(key, value)| (section, package_of(key, value)))
                    .filter(|(_, name)| is_ours(name)),
            );
        }
    }
    found
}

fn package_of(key: &str, value: &Value) -> String {
    value
        .get("package")
        .and_then(Value::as_str)
        .unwrap_or(key)
        .to_owned()
}

fn is_ours(package: &str) -> bool {
    ARROWS.iter().any(|(name, _)| *name == package) || FREE.contains(&package)
}

fn line_of(text: &str, name: &str) -> usize {
    (1..)
        .zip(text.lines())
        .find(|(_, line)| line.contains(name))
        .map_or(1, |(number, _)| number)
}

#[cfg(test)]
mod tests {
    use super::super::tree;
    use super::*;

    fn found(path: &str, manifest: &str) -> Vec<String> {
        check(&tree::of(&[(path, manifest)]))
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    #[test]
    fn an_arrow_of_the_table_is_fine() {
        let manifest = "[package]\nname = \"cofferdam-engine\"\n[dependencies]\ncofferdam-sys.workspace = true\nserde = \"1\"\n\
                        [dev-dependencies]\ncofferdam-testkit.workspace = true\n";
        assert_eq!(
            found("crates/engine/Cargo.toml", manifest),
            Vec::<String>::new()
        );
    }

    #[test]
    fn an_arrow_against_the_table_is_found_in_every_section_and_under_every_name() {
        let manifest = "[package]\nname = \"cofferdam-contract\"\n[dependencies]\ncofferdam-sys.workspace = true\n\
                        [build-dependencies]\nother = { package = \"cofferdam-engine\", path = \"x\" }\n\
                        [target.'cfg(unix)'.dependencies]\ncofferdam-testkit = { path = \"y\" }\n";
        let found = found("crates/contract/Cargo.toml", manifest);
        assert_eq!(found.len(), 3, "{found:#?}");
        assert!(found[0].starts_with(
            "crates/contract/Cargo.toml:4: `cofferdam-contract` must not use `cofferdam-sys`"
        ));
    }

    #[test]
    fn a_crate_without_a_place_is_told_to_get_one() {
        let found = found(
            "crates/new/Cargo.toml",
            "[package]\nname = \"cofferdam-new\"\n",
        );
        assert!(
            found.len() == 1 && found[0].contains("no place in the table"),
            "{found:?}"
        );
    }

    #[test]
    fn the_workspace_itself_and_the_chores_are_free() {
        assert_eq!(
            found("Cargo.toml", "[workspace]\nmembers = []\n"),
            Vec::<String>::new()
        );
        let chores =
            "[package]\nname = \"xtask\"\n[dependencies]\ncofferdam-contract.workspace = true\n";
        assert_eq!(found("xtask/Cargo.toml", chores), Vec::<String>::new());
    }
}
