//! Archives as a hostile container could make them, unpacked into a real directory.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;

use tar::{Builder, Header};

use super::*;

struct Hostile(Builder<Vec<u8>>);

impl Hostile {
    fn new() -> Self {
        let new = Self(Builder::new(Vec::new()));
        new.entry(EntryType::Directory, "work/", "", b"")
    }

    /// The name goes in as it is: the library would refuse it.
    fn entry(mut self, kind: EntryType, name: &str, link: &str, data: &[u8]) -> Self {
        let mut header = Header::new_gnu();
        header.set_entry_type(kind);
        header.set_mode(0o4755);
        header.set_size(data.len() as u64);
        let old = header.as_old_mut();
        old.name[..name.len()].copy_from_slice(name.as_bytes());
        old.linkname[..link.len()].copy_from_slice(link.as_bytes());
        header.set_cksum();
        self.0.append(&header, data).unwrap();
        self
    }

    fn file(self, name: &str, data: &[u8]) -> Self {
        self.entry(EntryType::Regular, name, "", data)
    }

    fn unpack(self, dir: &std::path::Path, sent: &Manifest, most: Option<u64>) -> Brought {
        self.try_unpack(dir, sent, most).unwrap()
    }

    fn try_unpack(
        self,
        dir: &std::path::Path,
        sent: &Manifest,
        most: Option<u64>,
    ) -> Result<Brought, Trouble> {
        let bytes = self.0.into_inner().unwrap();
        let (to, pieces) = mpsc::channel(bytes.len() / 100 + 2);
        for piece in bytes.chunks(100) {
            to.try_send(Piece::Bytes(Bytes::copy_from_slice(piece)))
                .unwrap();
        }
        to.try_send(Piece::End).unwrap();
        drop(to);
        unpack(pieces, Target::Dir(dir.to_owned()), sent, most)
    }
}

fn listed(brought: &Brought) -> Vec<(String, ChangeKind)> {
    let pair = |change: &Change| (change.path.clone(), change.kind);
    brought.changes.iter().map(pair).collect()
}

#[test]
fn names_that_lead_out_of_the_workspace_lead_nowhere() {
    let outer = tempfile::tempdir().unwrap();
    let dir = outer.path().join("work");
    fs::create_dir(&dir).unwrap();
    let brought = Hostile::new()
        .file("work/../escaped", b"x")
        .file("work/a/../../escaped", b"x")
        .file("/etc/escaped", b"x")
        .file("escaped", b"x")
        .file("work/good", b"x")
        .unpack(&dir, &Manifest::default(), None);
    assert_eq!(listed(&brought), [("good".to_owned(), ChangeKind::Added)]);
    assert!(!outer.path().join("escaped").exists());
    assert_eq!(fs::read_dir(&dir).unwrap().count(), 1);
}

#[test]
fn nothing_is_written_through_a_link_that_the_program_made_or_found() {
    let outer = tempfile::tempdir().unwrap();
    let dir = outer.path().join("work");
    let secret = outer.path().join("secret");
    fs::create_dir(&dir).unwrap();
    fs::create_dir(&secret).unwrap();
    fs::write(secret.join("key"), "safe").unwrap();
    symlink(&secret, dir.join("found")).unwrap();
    symlink(secret.join("key"), dir.join("key")).unwrap();
    // Beneath a link that was there.
    let through = Hostile::new().file("work/found/key", b"taken");
    assert!(
        through
            .try_unpack(&dir, &Manifest::default(), None)
            .is_err()
    );
    // Beneath one that it makes first.
    let through = Hostile::new()
        .entry(
            EntryType::Symlink,
            "work/made",
            secret.to_str().unwrap(),
            b"",
        )
        .file("work/made/key", b"taken");
    assert!(
        through
            .try_unpack(&dir, &Manifest::default(), None)
            .is_err()
    );
    // In the place of one: that is replaced and not followed.
    Hostile::new()
        .file("work/key", b"mine")
        .unpack(&dir, &Manifest::default(), None);
    assert_eq!(fs::read(secret.join("key")).unwrap(), b"safe");
    assert!(fs::symlink_metadata(dir.join("key")).unwrap().is_file());
    // A second name for what a link leads to has nothing to be copied from.
    let brought = Hostile::new()
        .entry(EntryType::Link, "work/stolen", "work/found/key", b"")
        .entry(EntryType::Link, "work/stolen", "/etc/passwd", b"")
        .unpack(&dir, &Manifest::default(), None);
    assert_eq!(listed(&brought), []);
}

#[test]
fn files_come_back_without_special_bits_and_devices_not_at_all() {
    let dir = tempfile::tempdir().unwrap();
    Hostile::new()
        .file("work/tool", b"#!")
        .entry(EntryType::Block, "work/disk", "", b"")
        .entry(EntryType::Fifo, "work/pipe", "", b"")
        .entry(EntryType::Link, "work/again", "work/tool", b"")
        .unpack(dir.path(), &Manifest::default(), None);
    let mode = |name: &str| {
        let found = fs::symlink_metadata(dir.path().join(name)).unwrap();
        found.permissions().mode() & 0o7777
    };
    assert_eq!(mode("tool"), 0o755);
    assert_eq!(fs::read(dir.path().join("again")).unwrap(), b"#!");
    let names = fs::read_dir(dir.path()).unwrap().count();
    assert_eq!(names, 2);
}

#[test]
fn what_is_more_than_the_limit_is_left_behind_and_nothing_removed() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("kept"), "x").unwrap();
    let mut sent = Manifest::default();
    sent.entries.insert(b"kept".to_vec(), Sent::Dir);
    let brought = Hostile::new()
        .file("work/small", b"12345")
        .file("work/large", &[0; 10_000])
        .unpack(dir.path(), &sent, Some(100));
    assert!(brought.is_over);
    assert_eq!(listed(&brought), [("small".to_owned(), ChangeKind::Added)]);
    assert!(dir.path().join("kept").exists());
}

#[test]
fn each_further_name_of_a_file_counts_as_another_file() {
    let dir = tempfile::tempdir().unwrap();
    let mut archive = Hostile::new().file("work/a", &[7; 1000]);
    for name in ["work/b", "work/c", "work/d"] {
        archive = archive.entry(EntryType::Link, name, "work/a", b"");
    }
    let brought = archive.unpack(dir.path(), &Manifest::default(), Some(2500));
    assert!(brought.is_over);
    let added = |name: &str| (name.to_owned(), ChangeKind::Added);
    assert_eq!(listed(&brought), [added("a"), added("b")]);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
}

#[test]
fn an_archive_that_breaks_off_removes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("kept"), "x").unwrap();
    let mut sent = Manifest::default();
    sent.entries.insert(b"kept".to_vec(), Sent::Dir);
    let archive = Hostile::new().file("work/large", &[7; 10_000]);
    let bytes = archive.0.into_inner().unwrap();
    assert_eq!(bytes.len(), 12_288);
    // In the middle of a file, behind one, and in the middle of the end; whatever the daemon says.
    for length in [5512, 11_264, 11_776] {
        for end in [None, Some(Piece::End)] {
            let (to, pieces) = mpsc::channel(4);
            let part = Bytes::copy_from_slice(&bytes[..length]);
            to.try_send(Piece::Bytes(part)).unwrap();
            if let Some(end) = end {
                to.try_send(end).unwrap();
            }
            drop(to);
            let unpacked = unpack(pieces, Target::Dir(dir.path().to_owned()), &sent, None);
            assert!(unpacked.is_err(), "{length}");
            assert!(dir.path().join("kept").exists());
            let names = fs::read_dir(dir.path()).unwrap().flatten();
            let left = names.filter(|name| name.file_name().to_string_lossy().starts_with('.'));
            assert_eq!(left.count(), 0);
        }
    }
    // Neither is one that goes on behind half an end.
    let mut odd = bytes[..11_776].to_vec();
    odd.extend_from_slice(&bytes);
    let (to, pieces) = mpsc::channel(4);
    to.try_send(Piece::Bytes(odd.into())).unwrap();
    to.try_send(Piece::End).unwrap();
    drop(to);
    assert!(unpack(pieces, Target::Dir(dir.path().to_owned()), &sent, None).is_err());
    assert!(dir.path().join("kept").exists());
}

#[test]
fn files_and_directories_may_change_places() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir_all(dir.path().join("a/b")).unwrap();
    fs::write(dir.path().join("a/b/c"), "x").unwrap();
    fs::write(dir.path().join("d"), "x").unwrap();
    let mut sent = Manifest::default();
    for (path, kind) in [("a", Sent::Dir), ("a/b", Sent::Dir)] {
        sent.entries.insert(path.into(), kind);
    }
    for path in ["a/b/c", "d"] {
        let contents = copy(&mut b"x".as_slice(), None).unwrap();
        let file = Sent::File {
            mode: 0o644,
            contents,
        };
        sent.entries.insert(path.into(), file);
    }
    let brought = Hostile::new()
        .file("work/a", b"now a file")
        .entry(EntryType::Directory, "work/d", "", b"")
        .file("work/d/e", b"below")
        .unpack(dir.path(), &sent, None);
    assert_eq!(fs::read(dir.path().join("a")).unwrap(), b"now a file");
    assert_eq!(fs::read(dir.path().join("d/e")).unwrap(), b"below");
    let expected = [
        ("a", ChangeKind::Modified),
        ("a/b", ChangeKind::Deleted),
        ("a/b/c", ChangeKind::Deleted),
        ("d", ChangeKind::Modified),
        ("d/e", ChangeKind::Added),
    ];
    assert_eq!(
        listed(&brought),
        expected.map(|(path, kind)| (path.to_owned(), kind))
    );
}

#[test]
fn an_archive_of_something_else_removes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("kept"), "x").unwrap();
    let mut sent = Manifest::default();
    sent.entries.insert(b"kept".to_vec(), Sent::Dir);
    let nothing = Hostile(Builder::new(Vec::new()));
    let file = Hostile(Builder::new(Vec::new())).file("work", b"x");
    let outside = Hostile(Builder::new(Vec::new())).entry(EntryType::Directory, "../", "", b"");
    for archive in [nothing, file, outside] {
        assert!(archive.try_unpack(dir.path(), &sent, None).is_err());
        assert!(dir.path().join("kept").exists());
    }
}

#[test]
fn a_workspace_may_be_called_as_each_daemon_likes() {
    for top in ["work/", "/", "./", "/work"] {
        let dir = tempfile::tempdir().unwrap();
        let archive = Hostile(Builder::new(Vec::new())).entry(EntryType::Directory, top, "", b"");
        let name = format!("{}/a", top.trim_end_matches('/'));
        archive
            .file(&name, b"x")
            .file("elsewhere/../../b", b"x")
            .unpack(dir.path(), &Manifest::default(), None);
        assert_eq!(fs::read(dir.path().join("a")).unwrap(), b"x", "{top}");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "{top}");
    }
}

#[test]
fn a_directory_in_which_nothing_changed_is_not_written_to() {
    let dir = tempfile::tempdir().unwrap();
    let closed = dir.path().join("closed");
    fs::create_dir(&closed).unwrap();
    fs::write(closed.join("same"), "x").unwrap();
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o555)).unwrap();
    // Long ago, so that any change shows.
    let long_ago = std::time::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    let times = fs::FileTimes::new().set_modified(long_ago);
    fs::File::open(&closed).unwrap().set_times(times).unwrap();
    let mut sent = Manifest::default();
    sent.entries.insert(b"closed".to_vec(), Sent::Dir);
    let contents = copy(&mut b"x".as_slice(), None).unwrap();
    let file = Sent::File {
        mode: 0o755,
        contents,
    };
    sent.entries.insert(b"closed/same".to_vec(), file);
    let brought = Hostile::new()
        .entry(EntryType::Directory, "work/closed", "", b"")
        .file("work/closed/same", b"x")
        .file("work/new", b"y")
        .unpack(dir.path(), &sent, None);
    assert_eq!(listed(&brought), [("new".to_owned(), ChangeKind::Added)]);
    let modified = fs::metadata(&closed).unwrap().modified().unwrap();
    assert_eq!(modified, long_ago);
    // So that anybody can remove it.
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o755)).unwrap();
}

/// As a process that is killed leaves it.
#[test]
fn nothing_is_to_be_seen_of_a_file_that_has_not_come_whole() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("large"), "before").unwrap();
    let archive = Hostile::new().file("work/large", &[7; 100_000]);
    let bytes = archive.0.into_inner().unwrap();
    let (to, pieces) = mpsc::channel(1);
    let target = Target::Dir(dir.path().to_owned());
    let unpacking =
        std::thread::spawn(move || unpack(pieces, target, &Manifest::default(), None).is_err());
    // There is room for one piece: when the fifth is in, the third was read.
    for piece in bytes[..50_000].chunks(10_000) {
        let piece = Bytes::copy_from_slice(piece);
        to.blocking_send(Piece::Bytes(piece)).unwrap();
    }
    let names = fs::read_dir(dir.path()).unwrap().flatten();
    let names: Vec<_> = names.map(|entry| entry.file_name()).collect();
    assert_eq!(names, ["large"]);
    drop(to);
    assert!(unpacking.join().unwrap());
    assert_eq!(fs::read(dir.path().join("large")).unwrap(), b"before");
}

/// In another file system, as where files without names cannot be made.
#[test]
fn a_file_is_copied_where_it_cannot_be_given_a_name_and_no_name_stands_in_its_way() {
    let elsewhere = Path::new("/dev/shm");
    let dir = tempfile::tempdir_in(elsewhere).unwrap();
    let here = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("a"), "before").unwrap();
    let first = format!(".cofferdam-{}-0", std::process::id());
    fs::write(dir.path().join(&first), "theirs").unwrap();
    let into = Beneath::open(dir.path()).unwrap();
    let from = Beneath::open(here.path()).unwrap();
    let nameless = Unplaced {
        file: into.without_name().unwrap().into(),
    };
    for new in [from.begin(), into.begin(), Ok(nameless)] {
        let new = new.unwrap();
        (&new.file).write_all(b"after").unwrap();
        into.place(new, b"a", 0o640).unwrap();
        assert_eq!(fs::read(dir.path().join("a")).unwrap(), b"after");
        let mode = fs::metadata(dir.path().join("a")).unwrap().permissions();
        assert_eq!(mode.mode() & 0o7777, 0o640);
        fs::write(dir.path().join("a"), "before").unwrap();
    }
    assert_eq!(fs::read(dir.path().join(&first)).unwrap(), b"theirs");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
}
