//! What hostile programs leave in a workspace, and what is kept of it.

#[path = "gather_tests/bounds.rs"]
mod bounds;
#[path = "gather_tests/swaps.rs"]
mod swaps;

use std::cell::Cell;
use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use cofferdam_contract::units::Bytes;
use rustix::fs::{CWD, Mode, OFlags};

use super::*;
use crate::collect::limits::{Scan, Scanner};
use crate::data_dir::DataDir;

struct Place {
    dir: tempfile::TempDir,
    top: OwnedFd,
    objects: Objects,
    /// Not the store's.
    elsewhere: tempfile::TempDir,
}

impl Place {
    fn new() -> io::Result<Self> {
        let dir = tempfile::tempdir()?;
        let elsewhere = tempfile::tempdir()?;
        let top = rustix::fs::open(dir.path(), OFlags::DIRECTORY, Mode::empty())?;
        let objects = Objects::open(&DataDir::at(elsewhere.path().join("data")));
        fs::write(elsewhere.path().join("outside"), "not the run's")?;
        Ok(Self {
            dir,
            top,
            objects,
            elsewhere,
        })
    }

    fn at(&self, path: impl AsRef<Path>) -> PathBuf {
        self.dir.path().join(path)
    }

    fn outside(&self) -> PathBuf {
        self.elsewhere.path().join("outside")
    }

    fn put(&self, path: impl AsRef<Path>, contents: impl AsRef<[u8]>) -> io::Result<()> {
        let path = self.at(path);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        fs::write(path, contents)
    }

    fn snapshot(&self) -> Result<Snapshot, StoreError> {
        let snapshot = Snapshot::of(self.top.as_fd())?;
        next_tick();
        Ok(snapshot)
    }

    fn collect(&self, before: Option<&Snapshot>) -> Result<Collected, StoreError> {
        self.collect_by(before, ArtifactLimits::default())
    }

    fn collect_by(
        &self,
        before: Option<&Snapshot>,
        limits: ArtifactLimits,
    ) -> Result<Collected, StoreError> {
        let rules = Rules {
            limits,
            scanner: None,
            give_up: None,
        };
        collect(self.top.as_fd(), before, &self.objects, &rules)
    }
}

fn kept(collected: &Collected) -> Vec<(&str, ArtifactKind)> {
    let artifacts = collected.artifacts.iter();
    artifacts
        .map(|artifact| (artifact.path.as_str(), artifact.kind))
        .collect()
}

fn left_out(collected: &Collected) -> Vec<(&str, &str)> {
    let left_out = collected.left_out.iter();
    left_out
        .map(|left| (left.path.as_str(), left.why.as_str()))
        .collect()
}

const LINK: &str = "it is a symbolic link; only regular files are kept";
use ArtifactKind::{Added, Changed};

/// Change times are as coarse as the kernel's clock on some kernels.
fn next_tick() {
    std::thread::sleep(std::time::Duration::from_millis(12));
}

#[test]
fn what_is_new_or_changed_is_kept_and_nothing_else() {
    let place = Place::new().unwrap();
    for path in [
        "same",
        "grown",
        "rewritten",
        "touched",
        "chmod",
        "gone",
        "replaced",
        "sub/same",
    ] {
        place.put(path, "before").unwrap();
    }
    place.put("back", "before").unwrap();
    let long_ago = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    let set_time = |path: &str, time| {
        let file = fs::File::options().write(true).open(place.at(path));
        file.unwrap().set_modified(time).unwrap();
    };
    set_time("back", long_ago);
    let before = place.snapshot().unwrap();
    assert!(before.is_complete());
    assert_eq!(place.collect(Some(&before)).unwrap(), Collected::default());

    place.put("grown", "before and after").unwrap();
    place.put("rewritten", "after!").unwrap();
    place.put("back", "after!").unwrap();
    set_time("back", long_ago);
    set_time("touched", long_ago);
    fs::set_permissions(place.at("chmod"), Permissions::from_mode(0o700)).unwrap();
    fs::remove_file(place.at("gone")).unwrap();
    place.put("other", "before").unwrap();
    fs::rename(place.at("other"), place.at("replaced")).unwrap();
    place.put("sub/deep/new.json", "{}").unwrap();
    place.put("empty", "").unwrap();
    let after = place.collect(Some(&before)).unwrap();
    assert_eq!(
        kept(&after),
        [
            ("back", Changed),
            ("chmod", Changed),
            ("empty", Added),
            ("grown", Changed),
            ("replaced", Changed),
            ("rewritten", Changed),
            ("sub/deep/new.json", Added),
            ("touched", Changed),
        ]
    );
    assert_eq!(left_out(&after), []);
    let json = &after.artifacts[6];
    assert_eq!(
        (json.bytes, json.media_type.as_str()),
        (2, "application/json")
    );
    assert_eq!(place.objects.get(&json.digest).unwrap(), b"{}");
    assert_eq!(after.artifacts[1].mode, 0o700);
    assert_eq!(
        kept(&place.collect(None).unwrap()).len(),
        10,
        "without a before, everything is new"
    );
}

#[test]
fn sensitive_names_are_told_and_never_kept_and_hidden_ones_are_passed_over() {
    let place = Place::new().unwrap();
    place.put(".env", "OLD=1").unwrap();
    fs::create_dir(place.at(".aws")).unwrap();
    let before = place.snapshot().unwrap();
    for path in [
        ".env.local",
        "sub/server.PEM",
        "id_rsa",
        "credentials.json",
        ".ssh/id_ed25519",
        ".aws/credentials",
        ".hidden",
        ".git/config",
        "node_modules/x/index.js",
        "__pycache__/m.pyc",
        "report.txt",
    ] {
        place.put(path, "x").unwrap();
    }
    let after = place.collect(Some(&before)).unwrap();
    assert_eq!(kept(&after), [("report.txt", Added)]);
    let why = "its name says that it holds secrets";
    assert_eq!(
        left_out(&after),
        [
            ".env.local",
            ".ssh",
            "credentials.json",
            "id_rsa",
            "sub/server.PEM"
        ]
        .map(|path| (path, why))
    );
    place.put(".env", "OLD=22").unwrap();
    let after = place.collect(Some(&before)).unwrap();
    assert_eq!(left_out(&after)[0], (".env", why));
}

/// Finds a word, also across pieces.
#[derive(Default)]
struct Word<'a> {
    seen: Vec<u8>,
    pushed: Option<&'a Cell<usize>>,
}

impl Scan for Word<'_> {
    fn push(&mut self, bytes: &[u8]) {
        self.seen.extend_from_slice(bytes);
        if let Some(pushed) = self.pushed {
            pushed.set(pushed.get() + bytes.len());
        }
    }

    fn found(&self) -> bool {
        self.seen.windows(6).any(|word| word == b"SECRET")
    }
}

struct Words(Cell<usize>);

impl Scanner for Words {
    fn begin(&self) -> Box<dyn Scan + '_> {
        Box::new(Word {
            pushed: Some(&self.0),
            ..Word::default()
        })
    }
}

#[test]
fn a_file_that_holds_a_secret_is_left_out_and_nothing_of_it_is_stored() {
    let place = Place::new().unwrap();
    let mut large = vec![b'a'; 1 << 20];
    large[10..16].copy_from_slice(b"SECRET");
    place.put("large", &large).unwrap();
    place.put("small", "a SECRET").unwrap();
    place.put("fine", "nothing").unwrap();
    let scanner = Words(Cell::new(0));
    let rules = Rules {
        limits: ArtifactLimits::default(),
        scanner: Some(&scanner),
        give_up: None,
    };
    let after = collect(place.top.as_fd(), None, &place.objects, &rules).unwrap();
    assert_eq!(kept(&after), [("fine", Added)]);
    let why = "it seems to hold secrets";
    assert_eq!(left_out(&after), [("large", why), ("small", why)]);
    assert_eq!(place.objects.iter().count(), 1);
    let unfinished = fs::read_dir(place.elsewhere.path().join("data/objects/new")).unwrap();
    assert_eq!(unfinished.count(), 0);
    assert!(scanner.0.get() < 1 << 20, "reading stops at the secret");
}

#[test]
fn names_of_any_bytes_are_kept_apart_and_in_order() {
    let place = Place::new().unwrap();
    let long = "n".repeat(255);
    let names: [&[u8]; 6] = [
        b"a\nb",
        b"a\xfe",
        b"a\xff",
        b"a\\xff",
        b"\x1b[2J",
        long.as_bytes(),
    ];
    for name in names {
        place.put(OsStr::from_bytes(name), "x").unwrap();
    }
    place.put("a-b", "x").unwrap();
    place.put("a/b", "x").unwrap();
    let after = place.collect(None).unwrap();
    let expected = [
        "\\x1b[2J", "a\\x0ab", "a-b", "a/b", "a\\\\xff", "a\\xfe", "a\\xff", &long,
    ];
    assert_eq!(kept(&after), expected.map(|name| (name, Added)));
}

#[test]
fn both_names_of_a_file_are_kept_and_its_contents_once() {
    let place = Place::new().unwrap();
    place.put("one", "contents").unwrap();
    let before = place.snapshot().unwrap();
    fs::hard_link(place.at("one"), place.at("two")).unwrap();
    let after = place.collect(Some(&before)).unwrap();
    assert_eq!(
        kept(&after),
        [("one", Changed), ("two", Added)],
        "a new name changes the change time"
    );
    assert_eq!(place.objects.iter().count(), 1);
}

#[test]
fn what_may_not_be_read_is_left_out() {
    let place = Place::new().unwrap();
    place.put("closed", "x").unwrap();
    place.put("dir/file", "x").unwrap();
    fs::set_permissions(place.at("closed"), Permissions::from_mode(0o000)).unwrap();
    fs::set_permissions(place.at("dir"), Permissions::from_mode(0o000)).unwrap();
    let after = place.collect(None).unwrap();
    fs::set_permissions(place.at("dir"), Permissions::from_mode(0o700)).unwrap();
    if rustix::process::geteuid().is_root() {
        assert_eq!(kept(&after), [("closed", Added), ("dir/file", Added)]);
    } else {
        assert_eq!(
            left_out(&after),
            [
                (
                    "closed",
                    "it cannot be read: Permission denied (os error 13)"
                ),
                (
                    "dir",
                    "this directory cannot be read: Permission denied (os error 13)"
                ),
            ]
        );
    }
}
