//! `cargo xtask deb`: a Debian package of one binary and all that it brings along. The tree is laid out here and packed by dpkg-deb, which every Debian has. The same
//! binary gives the same package: files are dated by SOURCE_DATE_EPOCH, or else by the last commit.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

use crate::process::{cargo, read, watch};

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Options {
    /// What is packed; without it, a build of the profile `dist`.
    binary: Option<PathBuf>,
    out: Option<PathBuf>,
    /// As `dpkg-deb -Z` has it.
    compression: String,
}

const HELP: &str = "deb has --binary FILE, --out DIR and --compression xz|zstd|gzip|none";
const VERSION: &str = env!("CARGO_PKG_VERSION");
/// In the order in which a package brings them: from the repository, to the system, mode.
const FILES: [(&str, &str, u32); 8] = [
    (
        "deploy/systemd/cofferdam.service",
        "usr/lib/systemd/system/cofferdam.service",
        0o644,
    ),
    (
        "deploy/sysusers.d/cofferdam.conf",
        "usr/lib/sysusers.d/cofferdam.conf",
        0o644,
    ),
    (
        "deploy/debian/copyright",
        "usr/share/doc/cofferdam/copyright",
        0o644,
    ),
    ("LICENSE-MIT", "usr/share/doc/cofferdam/LICENSE-MIT", 0o644),
    (
        "LICENSE-APACHE",
        "usr/share/doc/cofferdam/LICENSE-APACHE",
        0o644,
    ),
    ("deploy/debian/postinst", "DEBIAN/postinst", 0o755),
    ("deploy/debian/prerm", "DEBIAN/prerm", 0o755),
    ("deploy/debian/postrm", "DEBIAN/postrm", 0o755),
];
const COMPLETIONS: [(&str, &str); 3] = [
    ("bash", "usr/share/bash-completion/completions/cofferdam"),
    ("zsh", "usr/share/zsh/vendor-completions/_cofferdam"),
    ("fish", "usr/share/fish/vendor_completions.d/cofferdam.fish"),
];
const MANUAL: &str = "usr/share/man/man1";

impl Options {
    pub(crate) fn parse(flags: &[&str]) -> Result<Self, String> {
        let mut options = Self {
            binary: None,
            out: None,
            compression: "xz".to_owned(),
        };
        let mut flags = flags.iter();
        while let Some(flag) = flags.next() {
            let mut value = || {
                flags
                    .next()
                    .ok_or_else(|| format!("{flag} needs a value; {HELP}"))
            };
            match *flag {
                "--binary" => options.binary = Some(value()?.into()),
                "--out" => options.out = Some(value()?.into()),
                "--compression" => options.compression = (*value()?).to_owned(),
                other => return Err(format!("there is no flag `{other}`; {HELP}")),
            }
        }
        Ok(options)
    }
}

pub(crate) fn run(root: &Path, options: &Options) -> Result<(), String> {
    let binary = match &options.binary {
        Some(binary) => binary.clone(),
        None => build(root)?,
    };
    let out = options.out.clone();
    let out = out.unwrap_or_else(|| target(root).join("debian"));
    fs::create_dir_all(&out).map_err(|error| format!("{}: {error}", out.display()))?;
    let epoch = epoch(root)?;
    let scratch =
        tempfile::tempdir_in(&out).map_err(|error| format!("{}: {error}", out.display()))?;
    let tree = scratch.path().join("tree");
    lay_out(root, &binary, &tree)?;
    let date = SystemTime::UNIX_EPOCH + Duration::from_secs(epoch);
    finish(&tree, date)?;
    let package = out.join(format!("cofferdam_{VERSION}_amd64.deb"));
    let mut pack = Command::new("dpkg-deb");
    pack.args([
        "--root-owner-group",
        &format!("-Z{}", options.compression),
        "--build",
    ]);
    pack.arg(&tree).arg(&package);
    watch(pack.env("SOURCE_DATE_EPOCH", epoch.to_string()))?;
    println!("{}", package.display());
    Ok(())
}

fn build(root: &Path) -> Result<PathBuf, String> {
    watch(cargo(root).args([
        "build",
        "--locked",
        "--profile",
        "dist",
        "--package",
        "cofferdam",
    ]))?;
    Ok(target(root).join("x86_64-unknown-linux-gnu/dist/cofferdam"))
}

fn target(root: &Path) -> PathBuf {
    let named = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    named.unwrap_or_else(|| root.join("target"))
}

/// Everything but what needs to know everything else.
fn lay_out(root: &Path, binary: &Path, tree: &Path) -> Result<(), String> {
    // Outside of /usr/local, which belongs to whoever builds by hand.
    let moved = |text: Vec<u8>| match String::from_utf8(text) {
        Ok(text) => text.replace("/usr/local/bin/", "/usr/bin/").into_bytes(),
        Err(bytes) => bytes.into_bytes(),
    };
    for (from, to, mode) in FILES {
        put(tree, to, &moved(content(&root.join(from))?), mode)?;
    }
    put(tree, "usr/bin/cofferdam", &content(binary)?, 0o755)?;
    for (shell, to) in COMPLETIONS {
        let script = read(Command::new(binary).args(["completions", shell]))?;
        put(tree, to, script.as_bytes(), 0o644)?;
    }
    let manual = tree.join(MANUAL);
    fs::create_dir_all(&manual).map_err(|error| format!("{}: {error}", manual.display()))?;
    watch(Command::new(binary).args(["man", "--into"]).arg(&manual))?;
    let changes = "usr/share/doc/cofferdam/changelog";
    put(tree, changes, &content(&root.join("CHANGELOG.md"))?, 0o644)?;
    let pages = files(&manual)?;
    watch(
        Command::new("gzip")
            .args(["--best", "--no-name"])
            .args(pages)
            .arg(tree.join(changes)),
    )
}

/// Sums, control and dates.
fn finish(tree: &Path, date: SystemTime) -> Result<(), String> {
    let mut sums = String::new();
    let mut size = 0;
    for path in files(tree)? {
        let below = path.strip_prefix(tree).map_err(|error| error.to_string())?;
        if below.starts_with("DEBIAN") {
            continue;
        }
        size += fs::metadata(&path).map_or(0, |found| found.len());
        let mut sum = Command::new("md5sum");
        sums.push_str(&read(sum.arg(below).current_dir(tree))?);
    }
    put(tree, "DEBIAN/md5sums", sums.as_bytes(), 0o644)?;
    let control = include_str!("../../deploy/debian/control")
        .replace("@VERSION@", VERSION)
        .replace("@SIZE@", &size.div_ceil(1024).to_string());
    put(tree, "DEBIAN/control", control.as_bytes(), 0o644)?;
    for path in files(tree)? {
        let file = fs::File::options().write(true).open(&path);
        file.and_then(|file| file.set_modified(date))
            .map_err(|error| format!("{}: {error}", path.display()))?;
    }
    Ok(())
}

/// Seconds since 1970 that every file gets.
fn epoch(root: &Path) -> Result<u64, String> {
    const VARIABLE: &str = "SOURCE_DATE_EPOCH";
    if let Ok(text) = std::env::var(VARIABLE) {
        return text
            .parse()
            .map_err(|_| format!("{VARIABLE}: `{text}` is no number of seconds since 1970"));
    }
    let mut log = Command::new("git");
    log.arg("-C").arg(root).args(["log", "-1", "--format=%ct"]);
    let said = read(&mut log).ok();
    said.and_then(|text| text.trim().parse().ok())
        .ok_or_else(|| format!("no repository says here when this was made; say it in {VARIABLE}"))
}

fn content(path: &Path) -> Result<Vec<u8>, String> {
    fs::read(path).map_err(|error| format!("{}: {error}", path.display()))
}

fn put(tree: &Path, to: &str, content: &[u8], mode: u32) -> Result<(), String> {
    let path = tree.join(to);
    let failed = |error: std::io::Error| format!("{}: {error}", path.display());
    if let Some(dir) = path.parent() {
        fs::create_dir_all(dir).map_err(failed)?;
    }
    fs::write(&path, content).map_err(failed)?;
    fs::set_permissions(&path, fs::Permissions::from_mode(mode)).map_err(failed)
}

/// All files below, in the order of their names.
fn files(dir: &Path) -> Result<Vec<PathBuf>, String> {
    let failed = |error: std::io::Error| format!("{}: {error}", dir.display());
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.is_dir() {
            found.extend(files(&path)?);
        } else {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_read_and_unknown_ones_refused() {
        let read = Options::parse(&["--binary", "a", "--out", "b", "--compression", "none"]);
        let expected = Options {
            binary: Some("a".into()),
            out: Some("b".into()),
            compression: "none".to_owned(),
        };
        assert_eq!(read, Ok(expected));
        assert!(
            Options::parse(&["--out"])
                .unwrap_err()
                .contains("--out needs a value")
        );
        assert!(Options::parse(&["--fast"]).is_err());
    }
}
