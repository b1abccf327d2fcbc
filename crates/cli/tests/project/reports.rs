//! What is written for other tools, and detection.

use cofferdam_testkit::{Need, Way, host};

use crate::fixture::{PYTEST, RUST, UNITTEST, act, counts, project};

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

/// What the whole of `cofferdam` takes at most, in KiB: the largest of the processes that were waited for.
const WATCH: &str = "import resource, subprocess, sys\nran = subprocess.run(sys.argv[1:])\nprint(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, file=sys.stderr)\nsys.exit(ran.returncode)\n";

#[test]
fn a_report_of_40_megabytes_takes_less_than_200_and_every_test_in_it_counts() {
    let host = host!(Need::Installed("/usr/lib/python3/dist-packages/pytest"));
    let conftest = "def pytest_unconfigure(config):\n    with open('/reports/pytest.xml', 'w') as out:\n        out.write('<testsuite>')\n        for _ in range(2000):\n            out.write('<testcase name=\"a\"/>' * 1000)\n        out.write('<testcase name=\"late\"><failure>no</failure></testcase></testsuite>')\n";
    let files = [
        ("pytest.ini", "[pytest]\n"),
        ("test_a.py", "def test_ok(): pass\n"),
        ("conftest.py", conftest),
    ];
    let dir = project(&host, Way::Root, &files);
    let (place, cache) = (dir.to_str().unwrap(), host.workspace(Way::Root));
    let out = host.dir().join("out.xml");
    let args = [
        "test",
        place,
        "--no-history",
        "--quiet",
        "--junit",
        out.to_str().unwrap(),
        "--cache-dir",
        cache.to_str().unwrap(),
    ];
    let ran = std::process::Command::new("/usr/bin/python3")
        .args(["-c", WATCH])
        .arg(host.binary())
        .args(args)
        .env("HOME", host.dir())
        .output()
        .unwrap();
    let (said, told) = (
        String::from_utf8_lossy(&ran.stdout),
        String::from_utf8_lossy(&ran.stderr),
    );
    assert_eq!(ran.status.code(), Some(1), "{said}\n{told}");
    assert!(
        said.contains("2000001 tests: 2000000 passed, 1 failed"),
        "{said}\n{told}"
    );
    assert!(said.contains("✗ late"), "{said}");
    assert!(
        said.contains("of 2000001 tests are kept one by one"),
        "{said}"
    );
    let peak: u64 = told.trim().lines().last().unwrap().trim().parse().unwrap();
    assert!(peak < 200 << 10, "{peak} KiB");
}

#[test]
fn tests_that_are_repeated_are_told_one_by_one_with_all_their_attempts() {
    let host = host!(Need::Python);
    let tests = "import os, unittest\nclass A(unittest.TestCase):\n    def test_ok(self): pass\n    def test_odd(self):\n        n = len([x for x in os.listdir('.') if x.startswith('seen')])\n        open(f'seen{n}', 'w').close()\n        self.assertEqual(n % 2, 1, f'attempt {n}')\n";
    let dir = project(&host, Way::Root, &[("setup.py", ""), ("test_a.py", tests)]);
    let out = host.dir().join("out.xml");
    let more = ["--quiet", "--repeat", "4", "--junit", out.to_str().unwrap()];
    let ran = act(&host, Way::Root, "test", &dir, &more);
    assert_eq!(ran.code(), 1, "{ran:#?}");
    assert!(
        ran.out()
            .contains("test_odd: 2 of 4 failed\n    AssertionError: 0 != 1 : attempt 0\n"),
        "{ran:#?}"
    );
    assert!(
        ran.out().contains("2 tests: 1 passed, 1 failed, 0 skipped"),
        "{ran:#?}"
    );
    let junit = std::fs::read_to_string(&out).unwrap();
    assert!(junit.contains("2 of 4 failed: AssertionError"), "{junit}");
    let again = act(&host, Way::Root, "test", &dir, &["--json", "--repeat", "2"]);
    assert_eq!(
        (again.code(), counts(&again)),
        (1, [2, 1, 1, 0]),
        "{again:#?}"
    );
    let steps = again.told()["projects"][0]["steps"]
        .as_array()
        .map_or(0, Vec::len);
    assert_eq!(steps, 2, "all attempts are there: {again:#?}");
}

#[test]
fn a_tool_that_one_project_lacks_does_not_hide_what_others_did() {
    let host = host!(Need::Python);
    let files = [
        ("a/setup.py", ""),
        ("a/test_b.py", UNITTEST[1].1),
        (
            "b/A.csproj",
            "<Project Sdk=\"Microsoft.NET.Sdk\"><PropertyGroup><IsTestProject>true</IsTestProject></PropertyGroup></Project>",
        ),
        ("c/setup.py", ""),
        ("c/test_b.py", UNITTEST[1].1),
    ];
    if std::path::Path::new("/usr/bin/dotnet").exists() {
        return;
    }
    let dir = project(&host, Way::Root, &files);
    let ran = act(&host, Way::Root, "test", &dir, &["--json"]);
    assert_eq!((ran.code(), counts(&ran)), (125, [6, 2, 2, 2]), "{ran:#?}");
    let told = ran.told();
    let verdicts: Vec<_> = told["projects"]
        .as_array()
        .unwrap()
        .iter()
        .map(|project| project["verdict"].clone())
        .collect();
    assert_eq!(verdicts, ["failed", "stopped", "failed"], "{ran:#?}");
    assert!(
        told["projects"][1]["detail"]
            .as_str()
            .unwrap()
            .contains("dotnet is not there"),
        "{ran:#?}"
    );
}
