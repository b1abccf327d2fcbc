//! Building, and what compilers say about the source.

use cofferdam_testkit::{Need, Way, host};

use crate::fixture::{act, project};

fn first_diagnostic(ran: &cofferdam_testkit::Finished) -> (String, u64, String) {
    let told = ran.told();
    let found = &told["projects"][0]["steps"][0]["diagnostics"][0];
    (
        found["file"].as_str().unwrap_or_default().to_owned(),
        found["line"].as_u64().unwrap_or_default(),
        found["code"].as_str().unwrap_or_default().to_owned(),
    )
}

#[test]
fn what_rustc_python_and_go_say_has_a_place_and_a_code() {
    let host = host!(Need::Gcc, Need::Python, Need::Installed("/usr/bin/go"));
    let rust = project(
        &host,
        Way::Root,
        &[
            (
                "Cargo.toml",
                "[package]\nname = \"demo\"\nversion = \"0.1.0\"\nedition = \"2021\"\n",
            ),
            ("src/lib.rs", "pub fn f() -> i32 {\n    \"x\"\n}\n"),
        ],
    );
    let ran = act(&host, Way::Root, "build", &rust, &["--json"]);
    assert_eq!(ran.code(), 1, "{ran:#?}");
    assert_eq!(
        first_diagnostic(&ran),
        ("src/lib.rs".to_owned(), 2, "E0308".to_owned())
    );
    let python = project(
        &host,
        Way::Root,
        &[("setup.py", ""), ("sub/bad.py", "x = 1\ny = = 2\n")],
    );
    let ran = act(&host, Way::Root, "build", &python, &["--json"]);
    assert_eq!(ran.code(), 1, "{ran:#?}");
    assert_eq!(
        first_diagnostic(&ran),
        ("sub/bad.py".to_owned(), 2, "SyntaxError".to_owned())
    );
    let go = project(
        &host,
        Way::Root,
        &[
            ("go.mod", "module m\n\ngo 1.19\n"),
            ("a.go", "package m\n\nvar X = y\n"),
        ],
    );
    let ran = act(&host, Way::Root, "build", &go, &["--json"]);
    assert_eq!((ran.code(), first_diagnostic(&ran).1), (1, 3), "{ran:#?}");
}

#[test]
fn a_person_sees_the_line_of_source_and_editors_get_sarif() {
    let host = host!(Need::Python);
    let dir = project(
        &host,
        Way::Root,
        &[("setup.py", ""), ("bad.py", "x = 1\ny = = 2\n")],
    );
    let out = host.dir().join("out.sarif");
    let ran = act(
        &host,
        Way::Root,
        "build",
        &dir,
        &["--quiet", "--sarif", out.to_str().unwrap()],
    );
    assert!(
        ran.out().contains(
            "bad.py:2:5: error[SyntaxError]: invalid syntax\n      2 | y = = 2\n        |     ^\n"
        ),
        "{ran:#?}"
    );
    let sarif: serde_json::Value = serde_json::from_slice(&std::fs::read(out).unwrap()).unwrap();
    assert_eq!(sarif["runs"][0]["results"][0]["ruleId"], "SyntaxError");
}

#[test]
fn a_build_that_succeeds_leaves_its_output_to_the_owner_of_the_project() {
    use std::os::unix::fs::MetadataExt as _;
    let host = host!(Need::Gcc);
    let dir = project(
        &host,
        Way::Root,
        &[
            (
                "Cargo.toml",
                "[package]\nname = \"demo\"\nversion = \"0.1.0\"\nedition = \"2021\"\n",
            ),
            ("src/main.rs", "fn main() { println!(\"hi\") }\n"),
        ],
    );
    let ran = act(&host, Way::Root, "build", &dir, &["--json"]);
    assert_eq!(ran.code(), 0, "{ran:#?}");
    let built = dir.join("target/debug/demo");
    assert_eq!(
        std::fs::metadata(&built).unwrap().uid(),
        std::fs::metadata(&dir).unwrap().uid()
    );
}
