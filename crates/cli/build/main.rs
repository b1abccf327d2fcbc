//! Tells the binary which commit it was made from. Runs again only when HEAD has moved, and embeds no time: the same tree gives the same bytes.
#![allow(clippy::print_stdout, reason = "this is how a build script speaks")]

mod commit;

use std::path::Path;

/// Said by whoever builds from an archive, which has no repository.
const GIVEN: &str = "COFFERDAM_COMMIT";

fn main() {
    println!("cargo::rerun-if-env-changed={GIVEN}");
    // Nothing else of the package is looked at.
    println!("cargo::rerun-if-changed=build");
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let given = std::env::var(GIVEN).ok().filter(|text| !text.is_empty());
    // Whoever works on the tree commits often, and every test of this package would be linked again each time.
    let is_shipped = std::env::var("PROFILE").is_ok_and(|profile| profile == "release");
    let head = is_shipped.then(|| commit::head(&root)).flatten();
    if let Some(head) = &head {
        for file in &head.decided_by {
            println!("cargo::rerun-if-changed={}", file.display());
        }
    }
    let version = env!("CARGO_PKG_VERSION");
    let said = match (given, head) {
        (Some(commit), _) => format!("{version} ({})", commit::short(&commit)),
        (None, Some(head)) => format!("{version} ({})", commit::short(&head.commit)),
        (None, None) => version.to_owned(),
    };
    println!("cargo::rustc-env=COFFERDAM_VERSION={said}");
}
