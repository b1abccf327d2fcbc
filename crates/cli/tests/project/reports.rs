//! What is written for other tools, and detection.

use cofferdam_testkit::{Need, Way, host};

use crate::fixture::{PYTEST, RUST, UNITTEST, act, project};

#[test]
fn results_are_written_as_junit_and_read_back_by_python() {
    let host = host!(Need::Python);
    let dir = project(&host, Way::Root, UNITTEST);
    let out = host.dir().join("out.xml");
    let ran = act(
        &host,
        Way::Root,
        "test",
        &dir,
        &["--quiet", "--junit", out.to_str().unwrap()],
    );
    assert_eq!(ran.code(), 1, "{ran:#?}");
    let script = format!(
        "import xml.etree.ElementTree as E; r = E.parse('{}').getroot(); print(r.attrib['tests'], r.attrib['failures'], len(r.findall('.//testcase')), len(r.findall('.//failure')), len(r.findall('.//skipped')))",
        out.display()
    );
    let read = std::process::Command::new("/usr/bin/python3")
        .args(["-c", &script])
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&read.stdout), "3 1 3 1 1\n");
}

#[test]
fn what_lies_in_a_tree_is_shown_and_nothing_is_run() {
    let host = host!();
    let dir = project(&host, Way::Root, &[]);
    for (name, files) in [("a", RUST), ("b", PYTEST)] {
        for (path, text) in files {
            let file = dir.join(name).join(path);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, text).unwrap();
        }
    }
    std::fs::create_dir_all(dir.join("b/node_modules/x")).unwrap();
    std::fs::write(dir.join("b/node_modules/x/package.json"), "{}").unwrap();
    let told = host.run(["detect", dir.to_str().unwrap(), "--json"]);
    let projects = told.told_list("projects");
    let seen: Vec<(&str, &str, &str)> = projects
        .iter()
        .map(|project| {
            (
                project["manifest"].as_str().unwrap(),
                project["ecosystem"].as_str().unwrap(),
                project["frameworks"][0].as_str().unwrap(),
            )
        })
        .collect();
    assert_eq!(
        seen,
        [
            ("a/Cargo.toml", "rust", "cargo_test"),
            ("b/pytest.ini", "python", "pytest")
        ]
    );
    assert_eq!(told.told()["schema"], "cofferdam.detect/1");
    let table = host.run(["detect", dir.to_str().unwrap()]);
    assert!(
        table
            .out()
            .contains("a/Cargo.toml  rust project    demo  cargo    cargo test"),
        "{table:#?}"
    );
    let missing = host.run(["detect", "/no/such/dir"]);
    assert!(
        missing.code() == 125 && missing.err().contains("[input.unreadable]"),
        "{missing:#?}"
    );
}
