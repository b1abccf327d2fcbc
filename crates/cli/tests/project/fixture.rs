//! Small projects of each kind, and running a verb on them.

use std::path::{Path, PathBuf};
use std::time::Duration;

use cofferdam_testkit::{Finished, Host, Way};

/// Compilers on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(200);

pub(crate) const NODE: &[(&str, &str)] = &[
    (
        "package.json",
        r#"{"name": "demo", "scripts": {"test": "node --test"}}"#,
    ),
    (
        "test/a.test.js",
        "const test = require('node:test');\nconst assert = require('node:assert');\ntest('ok', () => {});\ntest('bad', () => { assert.equal(1, 2) });\ntest('sk', { skip: true }, () => {});\n",
    ),
];
pub(crate) const PYTEST: &[(&str, &str)] = &[
    ("pytest.ini", "[pytest]\n"),
    (
        "test_a.py",
        "import pytest\ndef test_ok(): pass\ndef test_bad(): assert 1 == 2\n@pytest.mark.skip(reason='later')\ndef test_sk(): pass\n",
    ),
];
pub(crate) const UNITTEST: &[(&str, &str)] = &[
    ("setup.py", ""),
    (
        "test_b.py",
        "import unittest\nclass A(unittest.TestCase):\n    def test_ok(self): pass\n    def test_bad(self): self.assertEqual(1, 2)\n    @unittest.skip('later')\n    def test_sk(self): pass\n",
    ),
];
pub(crate) const RUST: &[(&str, &str)] = &[
    (
        "Cargo.toml",
        "[package]\nname = \"demo\"\nversion = \"0.1.0\"\nedition = \"2021\"\n",
    ),
    (
        "src/lib.rs",
        "#[cfg(test)]\nmod t {\n    #[test]\n    fn ok() {}\n    #[test]\n    fn bad() { assert_eq!(1, 2) }\n    #[test]\n    #[ignore = \"later\"]\n    fn sk() {}\n}\n",
    ),
];
pub(crate) const GO: &[(&str, &str)] = &[
    ("go.mod", "module example.com/m\n\ngo 1.19\n"),
    (
        "a.go",
        "package m\n\nfunc Add(a, b int) int { return a + b }\n",
    ),
    (
        "a_test.go",
        "package m\nimport \"testing\"\nfunc TestOk(t *testing.T) { if Add(1, 2) != 3 { t.Fatal(\"no\") } }\nfunc TestBad(t *testing.T) { t.Run(\"sub\", func(t *testing.T) { t.Errorf(\"want 2\") }) }\nfunc TestSk(t *testing.T) { t.Skip(\"later\") }\n",
    ),
];

/// A project that belongs to whoever runs `cofferdam` in this way.
pub(crate) fn project(host: &Host, way: Way, files: &[(&str, &str)]) -> PathBuf {
    let dir = host.workspace(way);
    for (path, text) in files {
        let file = dir.join(path);
        for parent in file
            .ancestors()
            .skip(1)
            .take_while(|parent| *parent != dir)
            .collect::<Vec<_>>()
            .into_iter()
            .rev()
        {
            if !parent.exists() {
                std::fs::create_dir(parent).unwrap();
                host.give(parent, way);
            }
        }
        std::fs::write(&file, text).unwrap();
        host.give(&file, way);
    }
    dir
}

/// `cofferdam VERB DIR …`, with a cache below the test's own directory.
pub(crate) fn act(host: &Host, way: Way, verb: &str, dir: &Path, more: &[&str]) -> Finished {
    let cache = host.workspace(way);
    act_with(host, way, verb, dir, &cache, more)
}

pub(crate) fn act_with(
    host: &Host,
    way: Way,
    verb: &str,
    dir: &Path,
    cache: &Path,
    more: &[&str],
) -> Finished {
    let mut args: Vec<&str> = verb.split(' ').collect();
    let (dir, cache) = (dir.to_str().unwrap(), cache.to_str().unwrap());
    args.extend([dir, "--cache-dir", cache]);
    args.extend(more);
    host.launch(args).way(way).start().finish_within(PATIENCE)
}

/// Total, passed, failed, skipped.
#[track_caller]
pub(crate) fn counts(finished: &Finished) -> [u64; 4] {
    let told = finished.told();
    ["total", "passed", "failed", "skipped"].map(|name| {
        told["counts"][name]
            .as_u64()
            .unwrap_or_else(|| panic!("no counts: {finished:#?}"))
    })
}

/// The first failing case.
#[track_caller]
pub(crate) fn failing(finished: &Finished) -> serde_json::Value {
    let told = finished.told();
    let steps = told["projects"][0]["steps"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    let cases = steps
        .iter()
        .filter_map(|step| step["tests"]["cases"].as_array())
        .flatten();
    match cases.into_iter().find(|case| case["status"] == "failed") {
        Some(case) => case.clone(),
        None => panic!("nothing failed: {finished:#?}"),
    }
}
