//! What a hostile project tries against whoever tests it.

use cofferdam_testkit::{Need, Way, host};

use crate::fixture::{act, project};

/// A package whose script `test` is this, and looks like one of node:test.
fn script(line: &str) -> String {
    let line = serde_json::json!(format!("{line} # --test"));
    format!("{{\"name\": \"x\", \"scripts\": {{\"test\": {line}}}}}")
}

#[test]
fn a_runner_that_fails_without_a_report_is_unreadable_and_never_zero_failures() {
    let host = host!(Need::Installed("/usr/bin/npm"));
    let dir = project(&host, Way::Root, &[("package.json", &script("exit 3"))]);
    let ran = act(&host, Way::Root, "test", &dir, &["--json"]);
    assert_eq!(
        (ran.code(), &ran.told()["verdict"]),
        (1, &"unreadable".into()),
        "{ran:#?}"
    );
    let ran = act(&host, Way::Root, "test", &dir, &["--quiet"]);
    assert!(
        ran.out().contains("no test could be found in its report"),
        "{ran:#?}"
    );
}

#[test]
fn a_test_that_ends_its_runner_with_success_has_not_passed() {
    let host = host!(
        Need::Python,
        Need::Installed("/usr/bin/npm"),
        Need::Installed("/usr/lib/python3/dist-packages/pytest")
    );
    let ends = "import os, unittest\nclass A(unittest.TestCase):\n    def test_a(self): pass\n    def test_b(self): os._exit(0)\n    def test_c(self): self.fail()\n";
    let node = script("exit 0");
    for files in [
        &[
            ("conftest.py", "import os\nos._exit(0)\n"),
            ("test_a.py", "def test_bad(): assert False\n"),
        ][..],
        &[("pytest.ini", ""), ("test_a.py", ends)],
        &[("setup.py", ""), ("test_a.py", ends)],
        &[("package.json", &node)],
    ] {
        let dir = project(&host, Way::Root, files);
        let ran = act(&host, Way::Root, "test", &dir, &["--json"]);
        assert_eq!(
            (ran.code(), &ran.told()["verdict"]),
            (1, &"unreadable".into()),
            "{ran:#?}"
        );
    }
}

#[test]
fn a_report_that_is_a_link_a_pipe_or_a_bomb_is_not_read() {
    let host = host!(Need::Installed("/usr/bin/npm"));
    let bomb = "printf '<!DOCTYPE a [<!ENTITY b \"ha\">]><testsuites>&b;</testsuites>' > /reports/node.xml; exit 1";
    for line in [
        "rm -f /reports/*; ln -s /etc/passwd /reports/node.xml; exit 1",
        "rm -f /reports/*; mkfifo /reports/node.xml; exit 1",
        "rm -f /reports/*; truncate -s 200M /reports/node.xml; exit 1",
        bomb,
    ] {
        let dir = project(&host, Way::Root, &[("package.json", &script(line))]);
        let ran = act(&host, Way::Root, "test", &dir, &["--json"]);
        assert_eq!(
            (ran.code(), &ran.told()["verdict"]),
            (1, &"unreadable".into()),
            "{line}: {ran:#?}"
        );
        assert!(
            !String::from_utf8_lossy(&ran.stdout).contains("root:"),
            "{ran:#?}"
        );
    }
}

#[test]
fn a_forged_report_does_not_turn_a_failure_into_a_success() {
    let host = host!(Need::Installed("/usr/bin/npm"));
    let forged =
        "printf '<testsuites><testcase name=\"a\"/></testsuites>' > /reports/node.xml; exit 1";
    let dir = project(&host, Way::Root, &[("package.json", &script(forged))]);
    let ran = act(&host, Way::Root, "test", &dir, &["--json"]);
    assert_eq!(
        (ran.code(), &ran.told()["verdict"]),
        (1, &"failed".into()),
        "{ran:#?}"
    );
    // And an exit code alone does not hide a failure that is told.
    let hidden = forged
        .replace("/></testsuites>", "><failure/></testcase></testsuites>")
        .replace("exit 1", "exit 0");
    let dir = project(&host, Way::Root, &[("package.json", &script(&hidden))]);
    let ran = act(&host, Way::Root, "test", &dir, &["--json"]);
    assert_eq!(
        (ran.code(), &ran.told()["verdict"]),
        (1, &"failed".into()),
        "{ran:#?}"
    );
}

#[test]
fn a_link_that_is_planted_where_results_are_written_is_not_followed() {
    let host = host!(Need::Installed("/usr/bin/npm"));
    let safe = host.dir().join("safe");
    std::fs::write(&safe, "safe").unwrap();
    let line = format!("ln -sf {} out.xml; exit 1", safe.display());
    let dir = project(&host, Way::Root, &[("package.json", &script(&line))]);
    let out = dir.join("out.xml");
    let ran = act(
        &host,
        Way::Root,
        "test",
        &dir,
        &["--quiet", "--junit", out.to_str().unwrap()],
    );
    assert_eq!(ran.code(), 1, "{ran:#?}");
    assert_eq!(std::fs::read_to_string(&safe).unwrap(), "safe");
    assert!(std::fs::read_to_string(&out).unwrap().starts_with("<?xml"));
}

#[test]
fn what_is_tested_cannot_write_to_the_cache_or_reach_a_network() {
    let host = host!(Need::Installed("/usr/bin/go"));
    let go = [
        ("go.mod", "module m\n\ngo 1.19\n"),
        (
            "a_test.go",
            "package m\nimport (\"net\"; \"os\"; \"testing\")\nfunc TestCache(t *testing.T) { if os.WriteFile(\"/cache/go/x\", nil, 0o644) == nil { t.Fatal(\"written\") } }\nfunc TestNet(t *testing.T) { i, _ := net.Interfaces(); if len(i) != 1 { t.Fatal(i) } }\n",
        ),
    ];
    let dir = project(&host, Way::Root, &go);
    let ran = act(&host, Way::Root, "test", &dir, &["--json"]);
    assert_eq!(ran.code(), 0, "{ran:#?}");
}

#[test]
fn nothing_that_a_project_names_steers_the_terminal() {
    let host = host!(Need::Python);
    let hostile = [
        ("setup.py", ""),
        (
            "test_a.py",
            "import unittest\nclass A(unittest.TestCase):\n    def test_x(self): self.fail('\\x1b[2J\\x1b]0;owned\\x07')\n",
        ),
    ];
    let dir = project(&host, Way::Root, &hostile);
    let ran = act(&host, Way::Root, "test", &dir, &["--quiet"]);
    assert!(ran.code() == 1 && !ran.out().contains('\u{1b}'), "{ran:#?}");
}

#[test]
fn a_project_that_changes_what_git_executes_is_told_of() {
    let host = host!(Need::Installed("/usr/bin/npm"));
    let quiet = script("exit 1");
    let plants = script("mkdir -p .git/hooks; echo evil > .git/hooks/pre-commit; exit 1");
    for (package, told, more) in [
        (&quiet, 0, &[][..]),
        (&plants, 1, &[][..]),
        (&plants, 0, &["--cow"][..]),
    ] {
        let files = [("package.json", package.as_str()), (".git/config", "")];
        let dir = project(&host, Way::Root, &files);
        let mut args = vec!["--json"];
        args.extend(more);
        let ran = act(&host, Way::Root, "test", &dir, &args);
        let warnings = ran.told()["warnings"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        assert_eq!(warnings.len(), told, "{ran:#?}");
    }
}
