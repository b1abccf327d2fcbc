//! Packages of real registries: fetched into a cache once, then installed and used without network. And Maven with Debian's own repository.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use cofferdam_testkit::{Finished, Host, Need, Way, host};

use crate::fixture::{PATIENCE, act, act_with, counts, project};

const MEMBERS: &[(&str, &str)] = &[
    (
        "package.json",
        r#"{"name": "top", "private": true, "workspaces": ["jest", "vitest", "mocha", "ts"],
            "devDependencies": {"jest": "30.5.2", "vitest": "3.2.4", "mocha": "11.7.5", "typescript": "5.9.3"}}"#,
    ),
    (
        "jest/package.json",
        r#"{"name": "j", "version": "1.0.0", "scripts": {"test": "jest"}}"#,
    ),
    (
        "jest/a.test.js",
        "describe('grp', () => { test('ok', () => expect(1).toBe(1)); test('bad', () => expect(1).toBe(2)); test.skip('sk', () => {}); });\n",
    ),
    (
        "vitest/package.json",
        r#"{"name": "v", "version": "1.0.0", "scripts": {"test": "vitest"}}"#,
    ),
    (
        "vitest/a.test.mjs",
        "import { describe, test, expect } from 'vitest';\ndescribe('grp', () => { test('ok', () => expect(1).toBe(1)); test('bad', () => expect(1).toBe(2)); test.skip('sk', () => {}); });\n",
    ),
    (
        "mocha/package.json",
        r#"{"name": "m", "version": "1.0.0", "scripts": {"test": "mocha a.js"}}"#,
    ),
    (
        "mocha/a.js",
        "const assert = require('assert');\ndescribe('grp', () => { it('ok', () => {}); it('bad', () => assert.equal(1, 2)); it.skip('sk', () => {}); });\n",
    ),
    (
        "ts/package.json",
        r#"{"name": "t", "version": "1.0.0", "scripts": {"build": "tsc -p ."}}"#,
    ),
    (
        "ts/tsconfig.json",
        r#"{"compilerOptions": {"strict": true, "outDir": "out", "types": []}, "files": ["a.ts"]}"#,
    ),
    ("ts/a.ts", "const n: number = \"x\";\nexport { n };\n"),
];

/// What the host fetches into a cache; the sandbox has no network.
fn fetched_outside(host: &Host, way: Way, dir: &Path, cache: &Path) -> Finished {
    let more = ["--json", "--backend", "host"];
    act_with(host, way, "restore", dir, cache, &more)
}

/// Kept between runs of the tests, so that the registry is asked once.
pub(crate) fn kept(name: &str) -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR"))
        .join("project-caches")
        .join(name);
    std::fs::create_dir_all(&dir).unwrap();
    dir
}

#[test]
fn npm_packages_are_fetched_into_a_cache_and_then_everything_works_without_network() {
    let host = host!(Need::Root, Need::Installed("/usr/bin/npm"));
    let way = Way::Root;
    let dir = project(&host, way, MEMBERS);
    let cache = kept("npm");
    // A cache that holds nothing says so at once instead of waiting for a network.
    let empty = act(&host, way, "restore", &dir, &["--json"]);
    assert_eq!(empty.code(), 1, "{empty:#?}");
    assert_eq!(
        empty.told()["projects"][0]["steps"][0]["diagnostics"][0]["code"],
        "ENOTCACHED",
        "{empty:#?}"
    );
    let fetched = fetched_outside(&host, way, &dir, &cache);
    assert_eq!(fetched.code(), 0, "{fetched:#?}");
    assert!(
        !dir.join("node_modules").exists(),
        "outside it is only fetched"
    );
    // Registries that lack packages of other platforms make a lock file that `npm ci` refuses; without one the cache alone decides.
    std::fs::remove_file(dir.join("package-lock.json")).unwrap();
    let installed = act_with(&host, way, "restore", &dir, &cache, &["--json"]);
    assert_eq!(installed.code(), 0, "{installed:#?}");
    let tested = act_with(&host, way, "test", &dir, &cache, &["--json"]);
    assert_eq!(
        (tested.code(), counts(&tested)),
        (1, [9, 3, 3, 3]),
        "{tested:#?}"
    );
    let steps = tested.told()["projects"][0]["steps"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    assert_eq!(steps.len(), 3, "a step for each member with tests");
    let built = act_with(&host, way, "build", &dir, &cache, &["--json"]);
    let found = &built.told()["projects"][0]["steps"][0]["diagnostics"][0];
    assert_eq!(
        (built.code(), &found["file"], &found["code"]),
        (1, &"ts/a.ts".into(), &"TS2322".into()),
        "{built:#?}"
    );
}

#[test]
fn what_jest_vitest_and_mocha_told_before_they_were_stopped_is_there() {
    let host = host!(Need::Root, Need::Installed("/usr/bin/npm"));
    let files: Vec<(&str, &str)> = MEMBERS
        .iter()
        .copied()
        .filter(|(name, _)| !name.starts_with("ts/"))
        .collect();
    let dir = project(&host, Way::Root, &files);
    let cache = kept("npm");
    for more in [&["--json", "--backend", "host"][..], &["--json"]] {
        let _ = std::fs::remove_file(dir.join("package-lock.json"));
        let done = act_with(&host, Way::Root, "restore", &dir, &cache, more);
        assert_eq!(done.code(), 0, "{done:#?}");
    }
    for member in ["jest", "vitest", "mocha"] {
        told_before_it_was_stopped(&host, &dir, &cache, member);
    }
}

/// Tests that hang after one that passed and one that failed: whoever ends them is told of those.
fn told_before_it_was_stopped(host: &Host, dir: &Path, cache: &Path, member: &str) {
    let hangs = "async () => { await new Promise((then) => setTimeout(then, 3000)); require('fs').writeFileSync('begun', ''); await new Promise((then) => setTimeout(then, 600000)); }";
    let (file, text) = match member {
        "jest" => (
            "a.test.js",
            format!(
                "test('ok', () => {{}}); test('bad', () => expect(1).toBe(2)); test('hangs', {hangs}, 700000);\n"
            ),
        ),
        "vitest" => (
            "a.test.mjs",
            format!(
                "import {{ test, expect }} from 'vitest'; import {{ createRequire }} from 'module'; const require = createRequire(import.meta.url);\ntest('ok', () => {{}}); test('bad', () => expect(1).toBe(2)); test('hangs', {hangs}, 700000);\n"
            ),
        ),
        _ => (
            "a.js",
            format!(
                "it('ok', () => {{}}); it('bad', () => {{ throw new Error('no'); }}); it('hangs', {hangs}).timeout(700000);\n"
            ),
        ),
    };
    let at = dir.join(member);
    std::fs::write(at.join(file), text).unwrap();
    let place = dir.to_str().unwrap();
    let cache = cache.to_str().unwrap();
    let args = [
        "test",
        place,
        "--json",
        "--project",
        member,
        "--cache-dir",
        cache,
    ];
    let started = host.launch(args).start();
    let deadline = Instant::now() + PATIENCE;
    while !at.join("begun").exists() && !started.is_over() {
        assert!(Instant::now() < deadline, "{member} does not begin");
        std::thread::sleep(Duration::from_millis(50));
    }
    started.signal(rustix::process::Signal::INT);
    let ended = started.finish_within(PATIENCE);
    let [total, passed, failed, _] = counts(&ended);
    assert_eq!((ended.code(), failed), (130, 1), "{member}: {ended:#?}");
    // Vitest tells of tests in heaps, and of the last heap only with the next one.
    let most = if member == "vitest" { 5 } else { 2 };
    assert!((2..=most).contains(&total), "{member}: {ended:#?}");
    assert_eq!(passed, total - 1, "{member}: {ended:#?}");
}

#[test]
fn a_lock_file_is_kept_to_with_and_without_network() {
    let host = host!(Need::Root, Need::Installed("/usr/bin/npm"));
    let way = Way::Root;
    let files = [
        (
            "package.json",
            r#"{"name": "m", "version": "1.0.0", "scripts": {"test": "mocha a.js"}, "devDependencies": {"mocha": "11.7.5"}}"#,
        ),
        ("a.js", "it('ok', () => {});\n"),
    ];
    let dir = project(&host, way, &files);
    let cache = kept("npm-locked");
    for more in [
        &["--json", "--backend", "host"][..],
        &["--json", "--backend", "host"],
        &["--json"],
    ] {
        let done = act_with(&host, way, "restore", &dir, &cache, more);
        assert_eq!(done.code(), 0, "{done:#?}");
    }
    let again = act_with(&host, way, "restore", &dir, &cache, &["--json"]);
    assert_eq!(again.code(), 0, "{again:#?}");
    assert_eq!(again.told()["projects"][0]["steps"][0]["argv"][1], "ci");
    let tested = act_with(&host, way, "test", &dir, &cache, &["--json"]);
    assert_eq!(
        (tested.code(), counts(&tested)),
        (0, [1, 1, 0, 0]),
        "{tested:#?}"
    );
}

#[test]
fn fetching_with_npm_neither_writes_through_links_nor_obeys_the_settings_of_a_project() {
    let host = host!(Need::Root, Need::Installed("/usr/bin/npm"));
    let outside = host.workspace(Way::Root);
    std::fs::write(outside.join("precious"), "x").unwrap();
    let logs = outside.join("logs");
    let settings = format!("logs-dir={}\ngit=/no/such/git\n", logs.display());
    let files = [
        (
            "package.json",
            r#"{"name": "m", "version": "1.0.0", "scripts": {"test": "mocha a.js"}, "devDependencies": {"mocha": "11.7.5"}}"#,
        ),
        ("a.js", "it('ok', () => {});\n"),
        (".npmrc", settings.as_str()),
    ];
    let dir = project(&host, Way::Root, &files);
    std::os::unix::fs::symlink(&outside, dir.join("node_modules")).unwrap();
    let cache = kept("npm-locked");
    let fetch = ["--json", "--backend", "host"];
    for _ in 0..2 {
        let fetched = act_with(&host, Way::Root, "restore", &dir, &cache, &fetch);
        assert_eq!(fetched.code(), 0, "{fetched:#?}");
        let left: Vec<_> = std::fs::read_dir(&outside)
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        assert_eq!(left, ["precious"], "{fetched:#?}");
    }
    assert!(dir.join("package-lock.json").is_file());
    // A lock file that leads elsewhere is not written through either.
    std::fs::remove_file(dir.join("package-lock.json")).unwrap();
    std::os::unix::fs::symlink(outside.join("made"), dir.join("package-lock.json")).unwrap();
    let refused = act_with(&host, Way::Root, "restore", &dir, &cache, &fetch);
    assert_ne!(refused.code(), 0, "{refused:#?}");
    assert!(!outside.join("made").exists());
}

#[test]
fn crates_are_fetched_into_a_cache_and_used_without_network() {
    let host = host!(Need::Root, Need::Gcc);
    let way = Way::Root;
    let files = [
        (
            "Cargo.toml",
            "[package]\nname = \"dep\"\nversion = \"0.1.0\"\nedition = \"2021\"\n[dependencies]\ncfg-if = \"1\"\n",
        ),
        (
            "src/lib.rs",
            "cfg_if::cfg_if! { if #[cfg(unix)] { pub fn f() {} } }\n",
        ),
        // What a project would have cargo execute on the host, were it obeyed there.
        (
            ".cargo/config.toml",
            "[registry]\nglobal-credential-providers = [\"/no/such/program\"]\n[build]\nrustc = \"/no/such/rustc\"\n",
        ),
    ];
    let dir = project(&host, way, &files);
    let cache = kept("cargo");
    let fetched = fetched_outside(&host, way, &dir, &cache);
    assert_eq!(fetched.code(), 0, "{fetched:#?}");
    std::fs::remove_dir_all(dir.join(".cargo")).unwrap();
    let lock = std::fs::read(dir.join("Cargo.lock")).unwrap();
    std::fs::remove_file(dir.join("Cargo.lock")).unwrap();
    std::os::unix::fs::symlink("/no/such/lock", dir.join("Cargo.lock")).unwrap();
    let refused = fetched_outside(&host, way, &dir, &cache);
    assert_eq!(refused.code(), 125, "{refused:#?}");
    assert!(refused.err().contains("no regular file"), "{refused:#?}");
    std::fs::remove_file(dir.join("Cargo.lock")).unwrap();
    std::fs::write(dir.join("Cargo.lock"), lock).unwrap();
    let built = act_with(&host, way, "build", &dir, &cache, &["--json"]);
    assert_eq!(built.code(), 0, "{built:#?}");
    let empty = act(&host, way, "build", &dir, &["--json"]);
    assert_eq!(empty.code(), 1, "{empty:#?}");
}

#[test]
fn wheels_are_fetched_into_a_cache_and_installed_without_network() {
    let host = host!(
        Need::Root,
        Need::Python,
        Need::Installed("/usr/share/python-wheels"),
        Need::Installed("/usr/lib/python3/dist-packages/pip")
    );
    let way = Way::Root;
    let files = [
        ("requirements.txt", "pytest==9.0.2\niniconfig\n"),
        (
            "test_a.py",
            "import iniconfig\ndef test_ok(): assert iniconfig.__file__.startswith('/work/.venv/')\n",
        ),
    ];
    let dir = project(&host, way, &files);
    let cache = kept("pip");
    // What Python would import, or be, were it started in the project.
    let traps = ["logging.py", "pip.py", "venv.py", ".venv/bin/python"];
    let owned = host.dir().join("owned");
    std::fs::create_dir_all(dir.join(".venv/bin")).unwrap();
    for trap in traps {
        let line = format!("#!/usr/bin/python3\nopen({owned:?}, 'w')\n");
        std::fs::write(dir.join(trap), line).unwrap();
        std::fs::set_permissions(dir.join(trap), PermissionsExt::from_mode(0o755)).unwrap();
    }
    let fetched = fetched_outside(&host, way, &dir, &cache);
    assert_eq!(fetched.code(), 0, "{fetched:#?}");
    assert!(!owned.exists(), "{fetched:#?}");
    for trap in traps {
        std::fs::remove_file(dir.join(trap)).unwrap();
    }
    std::fs::remove_dir_all(dir.join(".venv")).unwrap();
    let installed = act_with(&host, way, "restore", &dir, &cache, &["--json"]);
    assert_eq!(installed.code(), 0, "{installed:#?}");
    let tested = act_with(&host, way, "test", &dir, &cache, &["--json"]);
    assert_eq!(
        (tested.code(), counts(&tested)),
        (0, [1, 1, 0, 0]),
        "{tested:#?}"
    );
}

#[test]
fn tests_of_maven_are_told_from_reports_that_are_new() {
    let host = host!(
        Need::Installed("/usr/bin/mvn"),
        Need::Installed("/usr/share/maven-repo/org/apache/maven/plugins/maven-surefire-plugin"),
        Need::Installed("/usr/share/maven-repo/org/apache/maven/plugins/maven-compiler-plugin"),
        Need::Installed("/usr/share/maven-repo/org/apache/maven/plugins/maven-resources-plugin"),
        Need::Installed("/usr/share/maven-repo/junit/junit/4.x")
    );
    let files = [
        ("pom.xml", POM),
        (".mvn/maven.config", "--settings\n.mvn/settings.xml\n"),
        (
            ".mvn/settings.xml",
            "<settings><mirrors><mirror><id>debian</id><mirrorOf>*</mirrorOf><url>file:///usr/share/maven-repo</url></mirror></mirrors></settings>",
        ),
        (
            "src/main/java/A.java",
            "public class A { static int add(int a, int b) { return a + b; } }\n",
        ),
        (
            "src/test/java/ATest.java",
            "import org.junit.*;\npublic class ATest {\n  @Test public void ok() { Assert.assertEquals(3, A.add(1, 2)); }\n  @Test public void bad() { Assert.assertEquals(4, A.add(1, 2)); }\n  @Ignore(\"later\") @Test public void sk() { }\n}\n",
        ),
        (
            "target/surefire-reports/TEST-old.xml",
            "<testsuite><testcase name='old'/></testsuite>",
        ),
    ];
    let dir = project(&host, Way::Root, &files);
    let ran = act(&host, Way::Root, "test", &dir, &["--json"]);
    assert_eq!((ran.code(), counts(&ran)), (1, [3, 1, 1, 1]), "{ran:#?}");
    std::fs::write(
        dir.join("src/main/java/A.java"),
        "public class A { int x = ; }\n",
    )
    .unwrap();
    let built = act(&host, Way::Root, "build", &dir, &["--json"]);
    let found = &built.told()["projects"][0]["steps"][0]["diagnostics"][0];
    assert_eq!(
        (built.code(), &found["file"], &found["line"]),
        (1, &"src/main/java/A.java".into(), &1.into()),
        "{built:#?}"
    );
}

const POM: &str = r#"<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>demo</groupId><artifactId>demo</artifactId><version>1</version>
  <properties>
    <maven.compiler.source>11</maven.compiler.source><maven.compiler.target>11</maven.compiler.target>
    <project.build.sourceEncoding>UTF-8</project.build.sourceEncoding>
  </properties>
  <dependencies>
    <dependency><groupId>junit</groupId><artifactId>junit</artifactId><version>4.x</version><scope>test</scope></dependency>
  </dependencies>
  <build><plugins>
    <plugin><groupId>org.apache.maven.plugins</groupId><artifactId>maven-resources-plugin</artifactId><version>3.3.0</version></plugin>
    <plugin><groupId>org.apache.maven.plugins</groupId><artifactId>maven-compiler-plugin</artifactId><version>3.10.1</version></plugin>
    <plugin><groupId>org.apache.maven.plugins</groupId><artifactId>maven-surefire-plugin</artifactId><version>2.22.3</version></plugin>
  </plugins></build>
</project>
"#;
