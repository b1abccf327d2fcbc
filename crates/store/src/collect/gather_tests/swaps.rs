//! What is not a plain file, or stops being one while it is looked at, is never opened or followed.

use super::*;

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
    assert!(began.elapsed() < Duration::from_secs(60));
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
        name_bytes: 0,
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
fn another_mount_is_not_entered() {
    let place = Place::new().unwrap();
    fs::create_dir(place.at("mounted")).unwrap();
    let bound = rustix::mount::mount_bind(place.elsewhere.path(), place.at("mounted"));
    if bound.is_err() {
        assert!(std::env::var_os("CI").is_none(), "{bound:?}");
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
