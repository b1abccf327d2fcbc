//! docs/languages.md says what the manifests say, and its example is a manifest.

use std::fs;

use cofferdam_toolchain::Catalogue;

const PAGE: &str = include_str!("../../../docs/languages.md");

#[test]
fn the_table_has_every_language_with_its_names_and_its_file() {
    let rows: Vec<Vec<&str>> = PAGE
        .lines()
        .filter(|line| line.starts_with("| `"))
        .map(|line| line.trim_matches('|').split('|').map(str::trim).collect())
        .filter(|cells: &Vec<&str>| cells.len() == 6)
        .collect();
    let catalogue = Catalogue::builtin().unwrap();
    let expected: Vec<[String; 4]> = catalogue
        .all()
        .map(|language| {
            let aliases: Vec<String> = language.aliases.iter().map(|a| format!("`{a}`")).collect();
            let handler = if language.has_handlers() {
                "yes"
            } else {
                "–"
            };
            [
                format!("`{}`", language.name),
                aliases.join(", "),
                format!("`{}`", language.file),
                handler.to_owned(),
            ]
        })
        .collect();
    let found: Vec<[String; 4]> = rows
        .iter()
        .map(|cells| {
            let handler = cells[5].split(';').next().unwrap();
            [cells[0], cells[1], cells[2], handler].map(str::to_owned)
        })
        .collect();
    assert_eq!(found, expected);
}

#[test]
fn the_example_is_a_valid_manifest() {
    let (_, rest) = PAGE.split_once("```toml\n").unwrap();
    let (example, _) = rest.split_once("```").unwrap();
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("zig.toml"), example).unwrap();
    let catalogue = Catalogue::builtin().unwrap().with_dir(dir.path()).unwrap();
    let zig = catalogue.find("ziglang").unwrap();
    assert_eq!(zig.toolchains[0].programs(), ["zig"]);
    assert_eq!(zig.needs.processes, Some(200));
}
