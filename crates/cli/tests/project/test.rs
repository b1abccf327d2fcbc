//! The tests of projects in each language, told in one form.

use cofferdam_testkit::{Need, Way, host};
use serde_json::json;

use crate::fixture::{GO, NODE, PYTEST, RUST, UNITTEST, act, counts, failing, project};

#[test]
fn tests_of_node_are_told_in_every_way() {
    let host = host!(
        Need::Installed("/usr/bin/node"),
        Need::Installed("/usr/bin/npm")
    );
    for way in Way::all() {
        let dir = project(&host, way, NODE);
        let ran = act(&host, way, "test", &dir, &["--json"]);
        assert_eq!((ran.code(), counts(&ran)), (1, [3, 1, 1, 1]), "{ran:#?}");
        let bad = failing(&ran);
        assert_eq!(
            (&bad["name"], &bad["file"], &bad["line"]),
            (&"bad".into(), &"test/a.test.js".into(), &4.into())
        );
    }
}

#[test]
fn tests_of_pytest_are_told() {
    let host = host!(Need::Installed("/usr/lib/python3/dist-packages/pytest"));
    let dir = project(&host, Way::Root, PYTEST);
    let ran = act(&host, Way::Root, "test", &dir, &["--json"]);
    assert_eq!((ran.code(), counts(&ran)), (1, [3, 1, 1, 1]), "{ran:#?}");
    assert_eq!(failing(&ran)["line"], 3);
    let only = act(
        &host,
        Way::Root,
        "test",
        &dir,
        &["--json", "--filter", "ok"],
    );
    assert_eq!((only.code(), counts(&only)), (0, [1, 1, 0, 0]), "{only:#?}");
}

#[test]
fn tests_of_unittest_are_told_and_not_twice() {
    let host = host!(Need::Python);
    let dir = project(&host, Way::Root, UNITTEST);
    let ran = act(&host, Way::Root, "test", &dir, &["--json"]);
    assert_eq!((ran.code(), counts(&ran)), (1, [3, 1, 1, 1]), "{ran:#?}");
    assert_eq!(failing(&ran)["message"], "AssertionError: 1 != 2");
    assert_eq!(
        ran.told()["projects"][0]["steps"][0]["diagnostics"],
        serde_json::json!([])
    );
}

#[test]
fn tests_of_cargo_are_told_with_a_toolchain_of_the_callers() {
    let host = host!(Need::Gcc);
    let dir = project(&host, Way::Root, RUST);
    let ran = act(&host, Way::Root, "test", &dir, &["--json"]);
    assert_eq!((ran.code(), counts(&ran)), (1, [3, 1, 1, 1]), "{ran:#?}");
    let bad = failing(&ran);
    assert_eq!(
        (&bad["suite"], &bad["file"], &bad["line"]),
        (&"t".into(), &"src/lib.rs".into(), &6.into())
    );
}

#[test]
fn tests_of_go_are_told_by_their_leaves() {
    let host = host!(Need::Installed("/usr/bin/go"));
    let dir = project(&host, Way::Root, GO);
    let ran = act(&host, Way::Root, "test", &dir, &["--json"]);
    assert_eq!((ran.code(), counts(&ran)), (1, [3, 1, 1, 1]), "{ran:#?}");
    assert_eq!(failing(&ran)["name"], "TestBad/sub");
}

#[test]
fn a_person_sees_the_failure_with_its_place_and_the_counts() {
    let host = host!(Need::Python);
    let dir = project(&host, Way::Root, UNITTEST);
    let ran = act(&host, Way::Root, "test", &dir, &[]);
    let out = ran.out();
    assert!(
        out.contains("✗ test_b.A › test_bad\n    AssertionError: 1 != 2\n    at test_b.py:4\n"),
        "{ran:#?}"
    );
    assert!(
        out.contains("3 tests: 1 passed, 1 failed, 1 skipped"),
        "{ran:#?}"
    );
    assert!(
        ran.err().contains("Ran 3 tests"),
        "what the tool says goes to standard error: {ran:#?}"
    );
}

#[test]
fn a_hanging_test_is_stopped_and_what_passed_before_it_is_told() {
    let host = host!(
        Need::Installed("/usr/lib/python3/dist-packages/pytest"),
        Need::Installed("/usr/bin/npm")
    );
    let hangs = [
        ("pytest.ini", "[pytest]\n"),
        (
            "test_a.py",
            "import time\ndef test_ok(): pass\ndef test_hangs(): time.sleep(600)\n",
        ),
    ];
    let dir = project(&host, Way::Root, &hangs);
    let ran = act(
        &host,
        Way::Root,
        "test",
        &dir,
        &["--json", "--timeout", "25s"],
    );
    assert_eq!((ran.code(), counts(&ran)), (124, [1, 1, 0, 0]), "{ran:#?}");
    assert_eq!(ran.told()["verdict"], "stopped");
}

#[test]
fn a_person_who_ends_it_ends_all_of_it() {
    let host = host!(Need::Python);
    let hangs = [
        ("setup.py", ""),
        (
            "test_a.py",
            "import time, unittest\nclass A(unittest.TestCase):\n    def test_a(self): pass\n    def test_hangs(self):\n        print('begun', flush=True)\n        time.sleep(600)\n",
        ),
    ];
    let dir = project(&host, Way::Root, &hangs);
    let (place, cache) = (dir.to_str().unwrap(), host.workspace(Way::Root));
    let started = host
        .launch([
            "test",
            place,
            "--retries",
            "3",
            "--cache-dir",
            cache.to_str().unwrap(),
        ])
        .stderr_to(std::process::Stdio::null())
        .start();
    started.await_process(|process| {
        process.command.contains("unittest") && process.name.starts_with("python")
    });
    started.signal(rustix::process::Signal::TERM);
    let ended = started.finish();
    assert_eq!(ended.code(), 130, "{ended:#?}");
    assert!(ended.out().contains("stopped  setup.py"), "{ended:#?}");
    assert_eq!(
        std::fs::read_dir(host.history(Way::Root).join("work"))
            .unwrap()
            .count(),
        0,
        "no report is left"
    );
}

#[test]
fn what_passes_only_at_another_attempt_is_flaky_and_told_apart() {
    let host = host!(Need::Python);
    let flaky = [
        ("setup.py", ""),
        (
            "test_a.py",
            "import os, unittest\nclass A(unittest.TestCase):\n    def test_ok(self): pass\n    def test_flaky(self):\n        first = not os.path.exists('seen')\n        open('seen', 'w').close()\n        self.assertFalse(first)\n",
        ),
    ];
    let dir = project(&host, Way::Root, &flaky);
    let ran = act(
        &host,
        Way::Root,
        "test",
        &dir,
        &["--json", "--retries", "2"],
    );
    assert_eq!(ran.code(), 0, "{ran:#?}");
    let told = ran.told();
    assert_eq!(told["flaky"], serde_json::json!(["test_a.A › test_flaky"]));
    assert_eq!(
        told["projects"][0]["steps"].as_array().map(Vec::len),
        Some(2)
    );
    std::fs::remove_file(dir.join("seen")).unwrap();
    let repeated = act(&host, Way::Root, "test", &dir, &["--json", "--repeat", "3"]);
    assert_eq!(
        (repeated.code(), &repeated.told()["verdict"]),
        (1, &"failed".into()),
        "once failed is failed"
    );
    assert_eq!(
        repeated.told()["projects"][0]["steps"]
            .as_array()
            .map(Vec::len),
        Some(3)
    );
}

#[test]
fn with_cow_the_project_stays_as_it_was() {
    let host = host!(Need::Python);
    let writes = [
        ("setup.py", ""),
        (
            "test_a.py",
            "import unittest\nclass A(unittest.TestCase):\n    def test_writes(self): open('new', 'w').close()\n",
        ),
    ];
    let dir = project(&host, Way::Root, &writes);
    let ran = act(&host, Way::Root, "test", &dir, &["--json", "--cow"]);
    assert_eq!((ran.code(), counts(&ran)), (0, [1, 1, 0, 0]), "{ran:#?}");
    assert!(!dir.join("new").exists());
    let ran = act(&host, Way::Root, "test", &dir, &["--json"]);
    assert_eq!(ran.code(), 0);
    assert!(dir.join("new").exists());
}

#[test]
fn a_directory_without_projects_or_tests_is_an_error_that_says_what_to_do() {
    let host = host!();
    let dir = project(&host, Way::Root, &[("notes.txt", "")]);
    let ran = act(&host, Way::Root, "test", &dir, &[]);
    assert_eq!(ran.code(), 125);
    assert!(
        ran.err().contains("there is no project here") && ran.err().contains("[input.invalid]"),
        "{ran:#?}"
    );
    let dir = project(&host, Way::Root, &[("package.json", "{}")]);
    let ran = act(&host, Way::Root, "test", &dir, &[]);
    assert!(
        ran.code() == 125 && ran.err().contains("has no tests"),
        "{ran:#?}"
    );
    let ran = act(&host, Way::Root, "test", &dir, &["--project", "nope"]);
    assert!(
        ran.err()
            .contains("there is no such project here; there are: package.json"),
        "{ran:#?}"
    );
}

#[test]
fn runs_of_tests_are_in_the_history_with_their_results_and_can_be_compared() {
    let host = host!(Need::Python);
    let dir = project(&host, Way::Root, UNITTEST);
    let id = |ran: &cofferdam_testkit::Finished| {
        let told = ran.told();
        told["projects"][0]["steps"][0]["run_id"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    let first = id(&act(&host, Way::Root, "test", &dir, &["--json"]));
    let text = std::fs::read_to_string(dir.join("test_b.py")).unwrap();
    let text = text
        .replace("self.assertEqual(1, 2)", "self.assertEqual(2, 2)")
        .replace(
            "def test_ok(self): pass",
            "def test_ok(self): self.fail('no')",
        );
    std::fs::write(dir.join("test_b.py"), text).unwrap();
    let second = id(&act(&host, Way::Root, "test", &dir, &["--json"]));
    let listed = host.run(["runs", "list", "--kind", "test", "--json"]);
    assert!(
        listed.out().contains(&first) && listed.out().contains(&second),
        "{listed:#?}"
    );
    let shown = host.run(["runs", "show", &first, "--json"]);
    assert_eq!(shown.told()["results"]["counts"]["failed"], 1, "{shown:#?}");
    let compared = host.run(["runs", "diff", &first, &second, "--json"]);
    let tests = compared.told()["tests"].clone();
    assert_eq!(
        (compared.code(), &tests["newly_failing"], &tests["fixed"]),
        (
            1,
            &serde_json::json!(["test_b.A › test_ok"]),
            &serde_json::json!(["test_b.A › test_bad"])
        ),
        "{compared:#?}"
    );
    let read = host.run(["runs", "diff", &first, &second]);
    assert!(
        read.out().contains("newly failing  test_b.A › test_ok"),
        "{read:#?}"
    );
}

#[test]
fn a_secret_in_a_failing_test_is_not_in_the_history() {
    let host = host!(Need::Python);
    let leaks = [
        ("setup.py", ""),
        (
            "test_a.py",
            "import unittest\nclass A(unittest.TestCase):\n    def test_x(self): self.fail('password=hunter2hunter2')\n",
        ),
    ];
    let dir = project(&host, Way::Root, &leaks);
    let ran = act(&host, Way::Root, "test", &dir, &["--json"]);
    let id = ran.told()["projects"][0]["steps"][0]["run_id"]
        .as_str()
        .unwrap()
        .to_owned();
    let shown = host.run(["runs", "show", &id, "--json"]);
    assert!(
        shown.out().contains("test_x") && !shown.out().contains("hunter2"),
        "{shown:#?}"
    );
}

#[test]
fn coverage_is_read_back_line_by_line() {
    let host = host!(
        Need::Installed("/usr/bin/go"),
        Need::Installed("/usr/lib/python3/dist-packages/pytest_cov")
    );
    let way = Way::all()[0];
    let go = project(&host, way, GO);
    let covered = act(&host, way, "test", &go, &["--coverage", "--json"]).told();
    let lines = &covered["coverage"]["lines"];
    assert_eq!(
        (&lines["covered"], &lines["total"]),
        (&json!(1), &json!(1)),
        "{covered:#}"
    );
    assert_eq!(
        covered["coverage"]["files"][0]["file"],
        "example.com/m/a.go"
    );
    let pytest: &[(&str, &str)] = &[
        ("pytest.ini", "[pytest]\n"),
        (
            "src/a.py",
            "def f(x):\n    if x:\n        return 1\n    return 2\n",
        ),
        (
            "test_a.py",
            "from src.a import f\ndef test_ok():\n    assert f(1) == 1\n",
        ),
    ];
    let dir = project(&host, way, pytest);
    let covered = act(&host, way, "test", &dir, &["--coverage", "--json"]).told();
    let files = covered["coverage"]["files"].as_array().unwrap();
    let of_source = files.iter().find(|file| file["file"] == "src/a.py");
    let lines = of_source.map(|file| file["lines"].clone());
    assert_eq!(
        lines,
        Some(json!({"covered": 3, "total": 4})),
        "{covered:#}"
    );
    let told = act(&host, way, "test", &dir, &["--coverage"]);
    assert!(
        told.out()
            .contains("coverage: 85.7 % (6 of 7 lines in 2 files)"),
        "{told:#?}"
    );
    assert!(!dir.join(".coverage").exists());
}
