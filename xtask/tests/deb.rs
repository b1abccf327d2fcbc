//! The Debian package, built from the binary of these tests, installed into a root of its own and used there.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "the functions beside a test are as much test as it is"
)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What a command prints; it must succeed.
#[track_caller]
fn succeed(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {stderr}");
    String::from_utf8(output.stdout).unwrap()
}

/// The binary under test without what debuggers want, which is most of it.
fn binary(dir: &Path) -> PathBuf {
    let built = Path::new(env!("CARGO_BIN_EXE_xtask")).with_file_name("cofferdam");
    let shown = built.display();
    assert!(
        built.exists(),
        "{shown} is not built; `cargo build` does it"
    );
    let stripped = dir.join("cofferdam");
    succeed(Command::new("strip").arg("-o").arg(&stripped).arg(built));
    stripped
}

fn package(dir: &Path, binary: &Path, name: &str) -> PathBuf {
    let out = dir.join(name);
    let mut build = Command::new(env!("CARGO_BIN_EXE_xtask"));
    build.args(["deb", "--compression", "none", "--binary"]);
    build.arg(binary).arg("--out").arg(&out);
    let said = succeed(build.env("SOURCE_DATE_EPOCH", "1700000000"));
    let package = PathBuf::from(said.lines().last().unwrap());
    assert_eq!(package.parent(), Some(out.as_path()));
    // Nothing lies beside it.
    assert_eq!(fs::read_dir(&out).unwrap().count(), 1);
    package
}

#[test]
fn the_package_holds_all_that_belongs_to_it_and_is_the_same_each_time() {
    let dir = tempfile::tempdir().unwrap();
    let binary = binary(dir.path());
    let first = package(dir.path(), &binary, "first");
    let second = package(dir.path(), &binary, "second");
    assert!(fs::read(&first).unwrap() == fs::read(second).unwrap());

    let listed = succeed(Command::new("dpkg-deb").arg("--contents").arg(&first));
    for path in [
        "./usr/bin/cofferdam",
        "./usr/share/bash-completion/completions/cofferdam",
        "./usr/share/zsh/vendor-completions/_cofferdam",
        "./usr/share/fish/vendor_completions.d/cofferdam.fish",
        "./usr/share/man/man1/cofferdam.1.gz",
        "./usr/share/man/man1/cofferdam-runs-list.1.gz",
        "./usr/lib/systemd/system/cofferdam.service",
        "./usr/lib/sysusers.d/cofferdam.conf",
        "./usr/share/doc/cofferdam/changelog.gz",
        "./usr/share/doc/cofferdam/copyright",
        "./usr/share/doc/cofferdam/LICENSE-MIT",
    ] {
        let line = listed.lines().find(|line| line.ends_with(path));
        let line = line.unwrap_or_else(|| panic!("{path} is not in it:\n{listed}"));
        let mode = if path.starts_with("./usr/bin/") {
            "-rwxr-xr-x"
        } else {
            "-rw-r--r--"
        };
        assert!(line.starts_with(&format!("{mode} root/root ")), "{line}");
        assert!(line.contains(" 2023-11-14 "), "{line}");
    }
    let field = |name: &str| succeed(Command::new("dpkg-deb").arg("-f").arg(&first).arg(name));
    assert_eq!(field("Version").trim(), env!("CARGO_PKG_VERSION"));
    assert_eq!(field("Depends").trim(), "", "the binary is static");
}

#[test]
fn the_package_is_installed_used_and_purged() {
    let dir = tempfile::tempdir().unwrap();
    let package = package(dir.path(), &binary(dir.path()), "out");
    let root = dir.path().join("root");
    for below in ["var/lib/dpkg/info", "var/lib/dpkg/updates", "etc"] {
        fs::create_dir_all(root.join(below)).unwrap();
    }
    fs::write(root.join("var/lib/dpkg/status"), "").unwrap();
    let dpkg = || {
        let mut dpkg = Command::new("dpkg");
        dpkg.arg(format!("--root={}", root.display()));
        dpkg.args(["--force-not-root", "--force-script-chrootless"]);
        dpkg.args([
            "--force-bad-path",
            &format!("--log={}", root.join("log").display()),
        ]);
        dpkg
    };
    succeed(dpkg().arg("--install").arg(&package));
    let binary = root.join("usr/bin/cofferdam");
    let version = succeed(Command::new(&binary).arg("--version"));
    let expected = format!("cofferdam {}", env!("CARGO_PKG_VERSION"));
    assert!(version.starts_with(&expected), "{version}");
    let data = dir.path().join("data");
    let mut run = Command::new(&binary);
    run.arg("--data-dir")
        .arg(&data)
        .args(["run", "--", "echo", "works"]);
    assert_eq!(succeed(&mut run), "works\n");

    let unit = fs::read_to_string(root.join("usr/lib/systemd/system/cofferdam.service")).unwrap();
    assert!(unit.contains("ExecStart=/usr/bin/cofferdam "), "{unit}");
    let page = root.join("usr/share/man/man1/cofferdam-run.1.gz");
    let page = succeed(Command::new("gzip").arg("-dc").arg(page));
    assert!(page.contains(".TH cofferdam-run 1"), "{page}");
    // Its user is there, and is nobody's.
    let users = fs::read_to_string(root.join("etc/passwd")).unwrap();
    let user = users.lines().find(|line| line.starts_with("cofferdam:"));
    assert!(
        user.is_some_and(|user| user.ends_with("nologin")),
        "{users}"
    );

    fs::create_dir_all(root.join("var/lib/cofferdam/objects")).unwrap();
    succeed(dpkg().args(["--remove", "cofferdam"]));
    assert!(!binary.exists() && root.join("var/lib/cofferdam").exists());
    succeed(dpkg().args(["--purge", "cofferdam"]));
    assert!(!root.join("var/lib/cofferdam").exists());
}

#[test]
fn a_package_of_what_is_no_binary_is_refused_and_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let mut build = Command::new(env!("CARGO_BIN_EXE_xtask"));
    build
        .args(["deb", "--binary", "/no/such/file", "--out"])
        .arg(&out);
    let done = build.output().unwrap();
    assert_eq!(done.status.code(), Some(1));
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(said.contains("/no/such/file: "), "{said}");
    assert_eq!(fs::read_dir(&out).unwrap().count(), 0);
}
