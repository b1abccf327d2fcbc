//! Yarn, pnpm, uv and nextest themselves: what they fetch goes into a cache, is installed inside without network, and is used there. What a project would have them execute outside is planted,
//! and must not run.

use std::path::{Path, PathBuf};

use cofferdam_testkit::{Finished, Host, Need, Way, host};

use crate::fixture::{act_with, counts, project};
use crate::packages::kept;

/// Where `cargo xtask test` puts a manager.
macro_rules! installed {
    ($path:literal) => {
        concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/managers", $path)
    };
}

const MANAGERS: &str = installed!("");
const YARN: &str = installed!("/yarn1/node_modules/.bin/yarn");
const BERRY: &str = installed!("/yarn4/node_modules/.bin/yarn");
const PNPM: &str = installed!("/pnpm/node_modules/.bin/pnpm");
const UV: &str = installed!("/uv/bin/uv");

/// The manifest of a project whose tests Mocha runs, by a script that takes arguments.
fn manifest(manager: &str) -> String {
    let script = |name: &str| format!("node -e \\\"require('fs').writeFileSync('{name}', '')\\\"");
    format!(
        r#"{{"name": "m", "version": "1.0.0", "license": "MIT", "packageManager": "{manager}", "devDependencies": {{"mocha": "11.7.5"}},
            "scripts": {{"test": "mocha a.js", "build": "{}", "postinstall": "{}"}}}}"#,
        script("built"),
        script("post-installed")
    )
}

const TESTS: (&str, &str) = (
    "a.js",
    "const assert = require('assert');\nit('ok', () => {});\nit('bad', () => assert.equal(1, 2));\nit.skip('sk', () => {});\n",
);

/// With a manager that lies in `dir`, outside of /usr.
fn with(host: &Host, verb: &str, at: &Path, cache: &Path, dir: &Path, more: &[&str]) -> Finished {
    let dir = dir.canonicalize().unwrap();
    let dir = dir.to_str().unwrap();
    let is_host = more.contains(&"host");
    let path = match is_host {
        true => format!("PATH={dir}/node_modules/.bin:{dir}/bin:/usr/bin:/bin"),
        false => "PATH=/opt/tools/node_modules/.bin:/opt/tools/bin:/usr/bin:/bin".to_owned(),
    };
    let shown = format!("{dir}:/opt/tools");
    let mut args = vec!["--json", "--env", &path];
    if !is_host {
        args.extend(["--mount", &shown]);
    }
    args.extend(more);
    act_with(host, Way::Root, verb, at, cache, &args)
}

/// Fetched outside, installed and used inside.
fn restored_and_tested(
    host: &Host,
    files: &[(&str, &str)],
    name: &str,
    lock: &str,
    more: &[&str],
) -> PathBuf {
    let (tools, cache) = (Path::new(MANAGERS).join(name), kept(name));
    let dir = project(host, Way::Root, files);
    let outside = [&["--backend", "host"], more].concat();
    // Once to make the lock file, once to keep to it.
    for _ in 0..2 {
        let fetched = with(host, "restore", &dir, &cache, &tools, &outside);
        assert_eq!(fetched.code(), 0, "{fetched:#?}");
        assert!(dir.join(lock).is_file(), "{fetched:#?}");
    }
    assert!(!dir.join("post-installed").exists(), "a script ran outside");
    let _ = std::fs::remove_dir_all(dir.join("node_modules"));
    let installed = with(host, "restore", &dir, &cache, &tools, &[]);
    assert_eq!(installed.code(), 0, "{installed:#?}");
    assert!(dir.join("post-installed").exists(), "scripts run inside");
    let built = with(host, "build", &dir, &cache, &tools, &[]);
    assert_eq!(built.code(), 0, "{built:#?}");
    assert!(dir.join("built").exists(), "{built:#?}");
    let tested = with(host, "test", &dir, &cache, &tools, &[]);
    assert_eq!(
        (tested.code(), counts(&tested)),
        (1, [3, 1, 1, 1]),
        "{tested:#?}"
    );
    assert_eq!(
        tested.told()["projects"][0]["steps"][0]["tests"]["problems"],
        serde_json::json!([])
    );
    // A cache that holds nothing says so at once.
    let empty = host.workspace(Way::Root);
    let _ = std::fs::remove_dir_all(dir.join("node_modules"));
    let refused = with(host, "restore", &dir, &empty, &tools, &[]);
    assert_eq!(refused.code(), 1, "{refused:#?}");
    dir
}

#[test]
fn yarn_fetches_into_a_cache_and_everything_works_from_it_without_network() {
    let host = host!(Need::Root, Need::Installed(YARN));
    let manifest = manifest("yarn@1.22.22");
    let files = [
        ("package.json", manifest.as_str()),
        TESTS,
        // What Yarn would run in its own place, were it obeyed.
        (".yarnrc", "yarn-path \"./trap.js\"\n"),
        (
            "trap.js",
            "require('fs').writeFileSync('trapped', '');\nprocess.exit(3);\n",
        ),
    ];
    let dir = restored_and_tested(&host, &files, "yarn1", "yarn.lock", &[]);
    assert!(!dir.join("trapped").exists());
}

#[test]
fn yarn_of_today_is_another_program_that_loads_plugins_and_is_told_apart() {
    let host = host!(Need::Root, Need::Installed(BERRY));
    let manifest = manifest("yarn@4.18.1");
    let plain = [("package.json", manifest.as_str()), TESTS];
    let plugin = [
        (".yarnrc.yml", "plugins:\n  - ./plugin.cjs\n"),
        (
            "plugin.cjs",
            "module.exports = { name: 'p', factory: () => { require('fs').writeFileSync('trapped', ''); return {}; } };\n",
        ),
    ];
    let dir = project(&host, Way::Root, &[&plain[..], &plugin].concat());
    let (tools, cache) = (Path::new(MANAGERS).join("yarn4"), kept("yarn4"));
    let refused = with(
        &host,
        "restore",
        &dir,
        &cache,
        &tools,
        &["--backend", "host"],
    );
    assert_eq!(refused.code(), 125, "{refused:#?}");
    assert!(refused.err().contains("--trust-project"), "{refused:#?}");
    assert!(!dir.join("trapped").exists(), "{refused:#?}");
    restored_and_tested(&host, &plain, "yarn4", "yarn.lock", &["--trust-project"]);
}

#[test]
fn pnpm_fetches_into_a_cache_and_everything_works_from_it_without_network() {
    let host = host!(Need::Root, Need::Installed(PNPM));
    // Another version than the one that is there: it is not fetched and run instead.
    let manifest = manifest("pnpm@9.0.0");
    let files = [
        ("package.json", manifest.as_str()),
        TESTS,
        (
            ".pnpmfile.cjs",
            "require('fs').appendFileSync('trapped', process.cwd() + '\\n');\nmodule.exports = {};\n",
        ),
    ];
    let dir = restored_and_tested(&host, &files, "pnpm", "pnpm-lock.yaml", &[]);
    let obeyed = std::fs::read_to_string(dir.join("trapped")).unwrap_or_default();
    assert!(
        obeyed.lines().all(|line| line == "/work"),
        "obeyed outside: {obeyed}"
    );
}

#[test]
fn uv_fetches_what_is_locked_and_the_project_is_built_inside_without_network() {
    let host = host!(Need::Root, Need::Python, Need::Installed(UV));
    let files = [
        (
            "pyproject.toml",
            "[project]\nname = \"u\"\nversion = \"0.1.0\"\nrequires-python = \">=3.10\"\ndependencies = [\"pytest==9.0.2\"]\n[build-system]\nrequires = [\"setuptools>=61\"]\nbuild-backend = \"setuptools.build_meta\"\n[tool.setuptools]\npy-modules = [\"u\"]\n",
        ),
        ("u.py", "def one(): return 1\n"),
        (
            "test_a.py",
            "import pytest, u\ndef test_ok(): assert u.one() == 1\ndef test_bad(): assert pytest.__file__.startswith('/nowhere')\n",
        ),
    ];
    let dir = project(&host, Way::Root, &files);
    let (tools, cache) = (Path::new(MANAGERS).join("uv"), kept("uv"));
    let locked = std::process::Command::new(UV)
        .args(["lock", "--quiet", "--python", "/usr/bin/python3"])
        .env("UV_CACHE_DIR", kept("uv-lock"))
        .current_dir(&dir)
        .status();
    assert!(locked.unwrap().success());
    // What Python or uv would run outside, were it obeyed there.
    let owned = host.dir().join("owned");
    let line = format!("open({owned:?}, 'w')\n");
    std::fs::create_dir_all(dir.join(".venv/bin")).unwrap();
    for trap in [
        "setup.py",
        "logging.py",
        "sitecustomize.py",
        ".venv/bin/python",
    ] {
        std::fs::write(dir.join(trap), format!("#!/usr/bin/python3\n{line}")).unwrap();
        std::fs::set_permissions(
            dir.join(trap),
            std::os::unix::fs::PermissionsExt::from_mode(0o755),
        )
        .unwrap();
    }
    let fetched = with(
        &host,
        "restore",
        &dir,
        &cache,
        &tools,
        &["--backend", "host"],
    );
    assert_eq!(fetched.code(), 0, "{fetched:#?}");
    assert!(!owned.exists(), "{fetched:#?}");
    for trap in ["setup.py", "logging.py", "sitecustomize.py"] {
        std::fs::remove_file(dir.join(trap)).unwrap();
    }
    std::fs::remove_dir_all(dir.join(".venv")).unwrap();
    let installed = with(&host, "restore", &dir, &cache, &tools, &[]);
    assert_eq!(installed.code(), 0, "{installed:#?}");
    // It is not needed any more.
    let tested = act_with(&host, Way::Root, "test", &dir, &cache, &["--json"]);
    assert_eq!(
        (tested.code(), counts(&tested)),
        (1, [2, 1, 1, 0]),
        "{tested:#?}"
    );
}

#[test]
fn tests_of_nextest_are_told_one_by_one() {
    let host = host!(Need::Gcc);
    let files = [
        (
            "Cargo.toml",
            "[package]\nname = \"demo\"\nversion = \"0.1.0\"\nedition = \"2021\"\n",
        ),
        (".config/nextest.toml", "[profile.default]\nretries = 0\n"),
        (
            "src/lib.rs",
            "#[cfg(test)]\nmod t {\n    #[test]\n    fn ok() {}\n    #[test]\n    fn bad() { assert_eq!(1, 2) }\n    #[test]\n    #[ignore = \"later\"]\n    fn sk() {}\n}\n",
        ),
    ];
    let dir = project(&host, Way::Root, &files);
    let cache = host.workspace(Way::Root);
    let ran = act_with(&host, Way::Root, "test", &dir, &cache, &["--json"]);
    let argv = ran.told()["projects"][0]["steps"][1]["argv"].clone();
    assert_eq!(argv[1], "nextest", "{ran:#?}");
    let [total, passed, failed, _] = counts(&ran);
    assert_eq!((ran.code(), passed, failed), (1, 1, 1), "{ran:#?}");
    assert!(total >= 2);
    let bad = crate::fixture::failing(&ran);
    assert_eq!(
        (&bad["file"], &bad["line"]),
        (&"src/lib.rs".into(), &6.into()),
        "{ran:#?}"
    );
    let only = act_with(
        &host,
        Way::Root,
        "test",
        &dir,
        &cache,
        &["--json", "--filter", "ok"],
    );
    assert_eq!((only.code(), counts(&only)[1]), (0, 1), "{only:#?}");
}
