//! What hostile programs leave in a workspace, and what is kept of it.

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
fn no_link_is_followed() {
    let place = Place::new().unwrap();
    place.put("real/file", "mine").unwrap();
    let before = place.snapshot().unwrap();
    symlink(place.outside(), place.at("absolute")).unwrap();
    symlink(place.elsewhere.path(), place.at("directory")).unwrap();
    symlink("../../../../etc/passwd", place.at("up")).unwrap();
    symlink("nowhere", place.at("dangling")).unwrap();
    symlink("loop", place.at("loop")).unwrap();
    symlink("real", place.at("inside")).unwrap();
    symlink("/proc/self/root", place.at("magic")).unwrap();
    let after = place.collect(Some(&before)).unwrap();
    assert_eq!(kept(&after), []);
    let names = [
        "absolute",
        "dangling",
        "directory",
        "inside",
        "loop",
        "magic",
        "up",
    ];
    assert_eq!(left_out(&after), names.map(|name| (name, LINK)));
}

#[test]
fn pipes_sockets_and_devices_are_never_opened() {
    let place = Place::new().unwrap();
    rustix::fs::mkfifoat(CWD, place.at("pipe"), Mode::RWXU).unwrap();
    let _socket = UnixListener::bind(place.at("socket")).unwrap();
    let device = |name: &str, device| {
        let kind = FileType::CharacterDevice;
        rustix::fs::mknodat(CWD, place.at(name), kind, Mode::RWXU, device).is_ok()
    };
    let mut expected = vec![
        ("pipe", "it is a pipe; only regular files are kept"),
        ("socket", "it is a socket; only regular files are kept"),
    ];
    // A whiteout may be made by anybody; a device only by root.
    device("whiteout", 0);
    if device("zero", rustix::fs::makedev(1, 5)) {
        expected.push(("zero", "it is a device; only regular files are kept"));
    }
    place.put("z", "file").unwrap();
    let began = Instant::now();
    let after = place.collect(None).unwrap();
    assert!(began.elapsed() < Duration::from_secs(5));
    assert_eq!(kept(&after), [("z", Added)]);
    assert_eq!(left_out(&after), expected);
}

/// Takes what was listed as a file, after it has become something else.
fn keep_after(place: &Place, path: &str, change: impl FnOnce()) -> Result<Artifact, Reason> {
    let mut listed = Findings::default();
    let walked = walk::walk(place.top.as_fd(), BOUNDS, &mut |path, seen| {
        listed.judge(path, seen, None, BOUNDS);
    });
    walked.map_err(unreadable)?;
    let found = listed.candidates.iter().find(|c| c.path == path.as_bytes());
    let found = found.ok_or(Reason::Gone)?;
    change();
    let rules = Rules {
        limits: ArtifactLimits::default(),
        scanner: None,
        give_up: None,
    };
    let mut keeping = Keeping {
        top: place.top.as_fd(),
        objects: &place.objects,
        rules: &rules,
        parent: None,
        stored: None,
        run_bytes: 0,
        read_bytes: 0,
        opened: 0,
        refused: None,
        artifacts: Vec::new(),
    };
    keeping.keep(found)
}

#[test]
fn what_is_swapped_between_listing_and_opening_is_left_out() {
    type Swap = (&'static str, fn(&Place), Reason);
    let swaps: [Swap; 6] = [
        (
            "a link",
            |place| symlink(place.outside(), place.at("d/file")).unwrap(),
            Reason::Gone,
        ),
        (
            "a pipe",
            |place| rustix::fs::mkfifoat(CWD, place.at("d/file"), Mode::RWXU).unwrap(),
            Reason::NotAFile(FileType::Fifo),
        ),
        (
            "a socket",
            |place| drop(UnixListener::bind(place.at("d/file")).unwrap()),
            Reason::Gone,
        ),
        (
            "a directory",
            |place| fs::create_dir(place.at("d/file")).unwrap(),
            Reason::NotAFile(FileType::Directory),
        ),
        ("nothing", |_| {}, Reason::Gone),
        (
            "a huge file",
            |place| {
                let file = fs::File::create(place.at("d/file")).unwrap();
                file.set_len(1 << 40).unwrap();
            },
            Reason::LargerThanFile {
                bytes: 1 << 40,
                limit: Bytes::new(10 << 20),
            },
        ),
    ];
    for (what, swap, expected) in swaps {
        let place = Place::new().unwrap();
        place.put("d/file", "mine").unwrap();
        let outcome = keep_after(&place, "d/file", || {
            fs::remove_file(place.at("d/file")).unwrap();
            swap(&place);
        });
        assert_eq!(outcome, Err(expected), "{what}");
    }
    let place = Place::new().unwrap();
    place.put("d/outside", "mine").unwrap();
    let outcome = keep_after(&place, "d/outside", || {
        fs::rename(place.at("d"), place.at("was")).unwrap();
        symlink(place.elsewhere.path(), place.at("d")).unwrap();
    });
    assert_eq!(outcome, Err(Reason::Gone), "its directory is a link now");
}

#[test]
fn a_directory_that_became_a_link_since_the_snapshot_is_not_entered() {
    let place = Place::new().unwrap();
    place.put("d/outside", "mine").unwrap();
    let before = place.snapshot().unwrap();
    fs::remove_dir_all(place.at("d")).unwrap();
    symlink(place.elsewhere.path(), place.at("d")).unwrap();
    let after = place.collect(Some(&before)).unwrap();
    assert_eq!(
        (kept(&after), left_out(&after)),
        (vec![], vec![("d", LINK)])
    );
}

#[test]
fn a_terabyte_of_nothing_is_not_read() {
    let place = Place::new().unwrap();
    let file = fs::File::create(place.at("sparse")).unwrap();
    file.set_len(1 << 40).unwrap();
    let began = Instant::now();
    let after = place.collect(None).unwrap();
    assert!(began.elapsed() < Duration::from_secs(1));
    assert_eq!(
        left_out(&after),
        [("sparse", "it has 1 TiB; a file may have at most 10 MiB")]
    );
}

#[test]
fn what_does_not_fit_is_named_and_the_rest_is_kept() {
    let place = Place::new().unwrap();
    for (path, bytes) in [("a", 100), ("b", 500), ("c", 101), ("d", 100), ("e", 10)] {
        place.put(path, vec![b'x'; bytes]).unwrap();
    }
    let limits = ArtifactLimits {
        per_file: Bytes::new(499),
        per_run: Bytes::new(200),
        ..ArtifactLimits::default()
    };
    let after = place.collect_by(None, limits).unwrap();
    assert_eq!(kept(&after), [("a", Added), ("d", Added)]);
    assert_eq!(
        left_out(&after),
        [
            ("b", "it has 500 B; a file may have at most 499 B"),
            (
                "c",
                "it has 101 B; with it, the run's files would have more than 200 B"
            ),
            (
                "e",
                "it has 10 B; with it, the run's files would have more than 200 B"
            ),
        ]
    );
    let limits = ArtifactLimits {
        files: 2,
        ..ArtifactLimits::default()
    };
    let after = place.collect_by(None, limits).unwrap();
    assert_eq!(kept(&after), [("a", Added), ("b", Added)]);
    assert_eq!(
        left_out(&after)[0],
        (
            "c",
            "it has 101 B; 2 files are kept of a run, and it comes after them"
        )
    );
}

#[test]
fn a_full_store_takes_only_what_it_has_already() {
    let place = Place::new().unwrap();
    place.objects.put(b"known contents").unwrap();
    let has = place.objects.stored_bytes().unwrap();
    place.put("known", "known contents").unwrap();
    place.put("new", "new contents").unwrap();
    let limits = ArtifactLimits {
        total: Bytes::new(has + 5),
        ..ArtifactLimits::default()
    };
    let after = place.collect_by(None, limits).unwrap();
    assert_eq!(kept(&after), [("known", Added)]);
    assert_eq!(after.left_out[0].path, "new");
    assert_eq!(place.objects.stored_bytes().unwrap(), has);
}

#[test]
fn a_store_that_cannot_be_written_leaves_everything_out_and_says_so() {
    let place = Place::new().unwrap();
    fs::write(place.elsewhere.path().join("data"), "in the way").unwrap();
    place.put("a", "1").unwrap();
    place.put("b", "2").unwrap();
    let after = place.collect(None).unwrap();
    assert_eq!(kept(&after), []);
    assert_eq!(after.left_out.len(), 2);
    for left in after.left_out {
        assert!(
            left.why.starts_with("it cannot be stored: "),
            "{}",
            left.why
        );
    }
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
fn a_deep_tree_ends_at_the_bound() {
    let place = Place::new().unwrap();
    let deep = "d/".repeat(BOUNDS.depth + 3);
    place.put(format!("{deep}file"), "x").unwrap();
    place
        .put(format!("{}shallow", "d/".repeat(BOUNDS.depth)), "x")
        .unwrap();
    let before = place.snapshot().unwrap();
    assert!(!before.is_complete());
    let after = place.collect(None).unwrap();
    assert_eq!(after.artifacts.len(), 1);
    assert!(after.artifacts[0].path.ends_with("/shallow"));
    assert_eq!(after.left_out.len(), 1);
    assert_eq!(
        after.left_out[0].why,
        "directories are looked into 64 levels deep"
    );
}

#[test]
fn a_workspace_with_too_many_entries_says_so_and_old_files_are_not_taken_for_new() {
    let place = Place::new().unwrap();
    for n in 0..20 {
        place.put(format!("f{n:02}"), "x").unwrap();
    }
    let few = Bounds {
        entries: 10,
        ..BOUNDS
    };
    let whole = Bounds {
        entries: 20,
        ..BOUNDS
    };
    assert!(
        Snapshot::within(place.top.as_fd(), whole)
            .unwrap()
            .is_complete()
    );
    // So that the snapshot begins in a later tick.
    place.snapshot().unwrap();
    let before = Snapshot::within(place.top.as_fd(), few).unwrap();
    next_tick();
    assert_eq!((before.len(), before.is_complete()), (10, false));
    place.put("new", "x").unwrap();
    let rules = Rules {
        limits: ArtifactLimits::default(),
        scanner: None,
        give_up: None,
    };
    let run = |bounds| {
        collect_within(
            place.top.as_fd(),
            Some(&before),
            &place.objects,
            &rules,
            bounds,
        )
    };
    let after = run(BOUNDS).unwrap();
    assert_eq!(kept(&after), [("new", Added)]);
    assert_eq!(after.left_out.len(), 1);
    assert_eq!(after.left_out[0].path, ".");
    assert!(
        run(few).unwrap().left_out[0]
            .why
            .contains("more than 10 entries")
    );
}

#[test]
fn the_list_of_what_is_left_out_ends() {
    let place = Place::new().unwrap();
    for n in 0..MAX_LEFT_OUT + 25 {
        symlink("x", place.at(format!("{n:05}"))).unwrap();
    }
    let after = place.collect(None).unwrap();
    assert_eq!(after.left_out.len(), MAX_LEFT_OUT + 1);
    assert_eq!(
        left_out(&after)[MAX_LEFT_OUT],
        (".", "25 more are left out")
    );
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

#[test]
fn another_mount_is_not_entered() {
    let place = Place::new().unwrap();
    fs::create_dir(place.at("mounted")).unwrap();
    let bound = rustix::mount::mount_bind(place.elsewhere.path(), place.at("mounted"));
    if bound.is_err() {
        eprintln!("SKIPPED: a bind mount needs root");
        return;
    }
    let after = place.collect(None);
    rustix::mount::unmount(place.at("mounted"), rustix::mount::UnmountFlags::DETACH).unwrap();
    let after = after.unwrap();
    assert_eq!(kept(&after), []);
    assert_eq!(
        left_out(&after),
        [("mounted", "something else is mounted here")]
    );
}

#[test]
fn a_file_that_grows_while_it_is_read_is_bounded_and_left_out() {
    struct Growing<'a>(&'a Path);
    struct Grow<'a>(&'a Path);
    impl Scanner for Growing<'_> {
        fn begin(&self) -> Box<dyn Scan + '_> {
            Box::new(Grow(self.0))
        }
    }
    impl Scan for Grow<'_> {
        fn push(&mut self, _: &[u8]) {
            let file = fs::File::options().append(true).open(self.0);
            let _ = file.and_then(|mut file| io::Write::write_all(&mut file, &[b'y'; 1 << 16]));
        }

        fn found(&self) -> bool {
            false
        }
    }
    let place = Place::new().unwrap();
    place.put("log", "x").unwrap();
    let path = place.at("log");
    let scanner = Growing(&path);
    let rules = Rules {
        limits: ArtifactLimits::default(),
        scanner: Some(&scanner),
        give_up: None,
    };
    let after = collect(place.top.as_fd(), None, &place.objects, &rules).unwrap();
    assert_eq!(kept(&after), []);
    assert_eq!(
        left_out(&after),
        [("log", "it was being changed while it was read")]
    );
    assert_eq!(place.objects.iter().count(), 0);
}

#[test]
fn somebody_who_keeps_swapping_files_for_links_gets_nothing_from_outside() {
    use std::sync::atomic::{AtomicBool, Ordering};
    let place = Place::new().unwrap();
    place.put("d/outside", "mine").unwrap();
    symlink(place.elsewhere.path(), place.at("e")).unwrap();
    place.put("file", "mine").unwrap();
    symlink(place.outside(), place.at("link")).unwrap();
    rustix::fs::mkfifoat(CWD, place.at("pipe"), Mode::RWXU).unwrap();
    let swap = |a: &str, b: &str| {
        let flags = rustix::fs::RenameFlags::EXCHANGE;
        rustix::fs::renameat_with(CWD, place.at(a), CWD, place.at(b), flags).unwrap();
    };
    let done = AtomicBool::new(false);
    let mut kept_some = false;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                swap("d", "e");
                swap("file", "link");
                swap("link", "pipe");
            }
        });
        for _ in 0..300 {
            let after = place.collect(None).unwrap();
            for artifact in after.artifacts {
                kept_some = true;
                assert_eq!(artifact.digest, crate::model::Digest::of(b"mine"));
            }
        }
        done.store(true, Ordering::Relaxed);
    });
    assert!(kept_some);
    assert_eq!(place.objects.iter().count(), 1);
}
