//! The store under crashes, damage, full disks and company.

use std::io::{Cursor, Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use proptest::prelude::*;

use super::*;

struct Place {
    dir: tempfile::TempDir,
    objects: Objects,
}

fn place() -> io::Result<Place> {
    let dir = tempfile::tempdir()?;
    let objects = Objects::open(&DataDir::at(dir.path().join("data")));
    Ok(Place { dir, objects })
}

fn noise(bytes: usize) -> Vec<u8> {
    let mut state = 7_u64;
    std::iter::repeat_with(|| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        state.to_be_bytes()[0]
    })
    .take(bytes)
    .collect()
}

fn unfinished(objects: &Objects) -> usize {
    fs::read_dir(objects.dir.join(NEW)).map_or(0, Iterator::count)
}

fn stored(outcome: PutOutcome) -> Option<Stored> {
    match outcome {
        PutOutcome::Stored(stored) => Some(stored),
        PutOutcome::TooLarge => None,
    }
}

/// Gives a file the time of a long time ago.
fn age(path: &Path) -> io::Result<()> {
    File::options()
        .write(true)
        .open(path)?
        .set_modified(SystemTime::UNIX_EPOCH)
}

fn an_hour_ago() -> SystemTime {
    SystemTime::now() - Duration::from_secs(3600)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn what_is_put_is_what_is_read(
        seed in any::<Vec<u8>>(), times in 1_usize..4000, at_once in 1_usize..5000,
    ) {
        let place = place().unwrap();
        let contents = seed.repeat(times);
        let put = place.objects.put(&contents).unwrap();
        prop_assert_eq!(put.digest, Digest::of(&contents));
        prop_assert_eq!(put.bytes, u64::try_from(contents.len()).unwrap());
        let again = place.objects.put_reader(Slow(Cursor::new(&contents), at_once), u64::MAX).unwrap();
        prop_assert_eq!(stored(again), Some(put));
        prop_assert_eq!(place.objects.get(&put.digest).unwrap(), contents.clone());
        let mut read = Vec::new();
        place.objects.reader(&put.digest).unwrap().read_to_end(&mut read).unwrap();
        prop_assert_eq!(read, contents);
        prop_assert_eq!(unfinished(&place.objects), 0);
    }
}

/// Gives a few bytes at a time.
struct Slow<R>(R, usize);

impl<R: Read> Read for Slow<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let at_most = into.len().min(self.1);
        self.0.read(&mut into[..at_most])
    }
}

#[test]
fn nothing_is_made_before_something_is_put() {
    let place = place().unwrap();
    let digest = Digest::of(b"x");
    assert!(!place.objects.contains(&digest));
    assert_eq!(place.objects.stored_bytes().unwrap(), 0);
    assert_eq!(place.objects.about_stored_bytes().unwrap(), 0);
    assert_eq!(place.objects.remove(&digest).unwrap(), None);
    assert_eq!(
        place.objects.sweep_unfinished(SystemTime::now()).unwrap(),
        0
    );
    assert!(matches!(
        place.objects.get(&digest),
        Err(StoreError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound
    ));
    assert_eq!(fs::read_dir(place.dir.path()).unwrap().count(), 0);
}

#[test]
fn large_contents_are_streamed_both_ways_packed_or_plain() {
    let place = place().unwrap();
    let text = b"one line of a log, much like the others\n".repeat(300_000);
    for (contents, shrinks) in [(text, true), (noise(9 << 20), false)] {
        let put = place.objects.put_reader(&contents[..], u64::MAX).unwrap();
        let put = stored(put).unwrap();
        assert_eq!(put.digest, Digest::of(&contents));
        assert_eq!(put.stored_bytes < put.bytes / 2, shrinks);
        let mut reader = place.objects.reader(&put.digest).unwrap();
        assert_eq!(reader.length(), put.bytes);
        let mut read = Vec::new();
        reader.read_to_end(&mut read).unwrap();
        assert!(read == contents);
        assert!(place.objects.get(&put.digest).unwrap() == contents);
        assert_eq!(
            place.objects.put(&contents).unwrap(),
            put,
            "another way in, the same object"
        );
    }
}

#[test]
fn empty_contents_are_contents() {
    let place = place().unwrap();
    let put = place.objects.put(b"").unwrap();
    assert_eq!(
        (put.bytes, place.objects.get(&put.digest).unwrap()),
        (0, vec![])
    );
    let mut reader = place.objects.reader(&put.digest).unwrap();
    assert_eq!(reader.read(&mut [0; 8]).unwrap(), 0);
}

#[test]
fn more_than_allowed_leaves_nothing() {
    let place = place().unwrap();
    for (contents, at_most) in [(vec![1; 11], 10), (noise(300_000), 299_999)] {
        let outcome = place.objects.put_reader(&contents[..], at_most).unwrap();
        assert_eq!(outcome, PutOutcome::TooLarge);
        let fits = place.objects.stage(&contents[..], at_most + 1).unwrap();
        assert!(matches!(fits, Staging::Ready(_)));
        drop(fits);
    }
    let endless = place.objects.put_reader(io::repeat(0), 1 << 20).unwrap();
    assert_eq!(endless, PutOutcome::TooLarge);
    assert_eq!(place.objects.iter().count(), 0);
    assert_eq!(unfinished(&place.objects), 0);
}

#[test]
fn only_the_owner_may_look() {
    let place = place().unwrap();
    let digest = place.objects.put(b"private").unwrap().digest;
    let path = place.objects.path(&digest);
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&path), 0o600);
    for dir in path.ancestors().skip(1).take(3) {
        assert_eq!(mode(dir), 0o700, "{}", dir.display());
    }
}

#[test]
fn contents_that_are_there_are_refreshed_and_not_rewritten() {
    use std::os::unix::fs::MetadataExt as _;
    let place = place().unwrap();
    let digest = place.objects.put(b"twice").unwrap().digest;
    let path = place.objects.path(&digest);
    age(&path).unwrap();
    let before = fs::metadata(&path).unwrap();
    place.objects.put(b"twice").unwrap();
    let after = fs::metadata(&path).unwrap();
    assert_eq!(before.ino(), after.ino());
    assert!(after.modified().unwrap() > an_hour_ago());
}

#[test]
fn every_damaged_byte_is_found_and_storing_again_heals_a_torn_file() {
    let place = place().unwrap();
    for contents in [b"some text that is kept\n".repeat(20), noise(100)] {
        let digest = place.objects.put(&contents).unwrap().digest;
        let path = place.objects.path(&digest);
        let whole = fs::read(&path).unwrap();
        for at in 0..whole.len() {
            let mut broken = whole.clone();
            broken[at] ^= 0x10;
            fs::write(&path, &broken).unwrap();
            // Deflate has bits that mean nothing; what counts is that no other contents come out.
            match place.objects.get(&digest) {
                Ok(read) => assert_eq!(read, contents),
                Err(StoreError::Damaged { path: named, .. }) => assert_eq!(named, path),
                Err(other) => panic!("{other}"),
            }
        }
        for length in 0..whole.len() {
            fs::write(&path, &whole[..length]).unwrap();
            let error = place.objects.get(&digest).unwrap_err();
            assert!(matches!(error, StoreError::Damaged { .. }), "{error}");
        }
        place.objects.put(&contents).unwrap();
        assert_eq!(place.objects.get(&digest).unwrap(), contents);
    }
}

#[test]
fn a_large_damaged_object_never_ends_well() {
    let place = place().unwrap();
    let contents = noise(9 << 20);
    let digest = place.objects.put(&contents).unwrap().digest;
    let path = place.objects.path(&digest);
    let mut file = fs::read(&path).unwrap();
    file[5000] ^= 1;
    fs::write(&path, file).unwrap();
    let mut read = Vec::new();
    let mut reader = place.objects.reader(&digest).unwrap();
    let error = reader.read_to_end(&mut read).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    assert!(
        error.to_string().contains(path.to_str().unwrap()),
        "{error}"
    );
    assert!(read.len() < contents.len(), "the last bytes are held back");
    reader.read(&mut [0; 8]).unwrap_err();
}

#[test]
fn a_bomb_is_not_unpacked() {
    let place = place().unwrap();
    let digest = place.objects.put(&vec![0; 1 << 20]).unwrap().digest;
    let path = place.objects.path(&digest);
    let mut file = fs::read(&path).unwrap();
    assert_eq!(file[0], 1);
    file[1..9].copy_from_slice(&1000_u64.to_le_bytes());
    fs::write(&path, &file).unwrap();
    let error = place.objects.get(&digest).unwrap_err();
    assert!(
        error.to_string().contains("goes on after its end"),
        "{error}"
    );
    file[1..9].copy_from_slice(&(1_u64 << 60).to_le_bytes());
    fs::write(&path, &file).unwrap();
    let error = place.objects.get(&digest).unwrap_err();
    assert!(error.to_string().contains("not possible"), "{error}");
}

#[test]
fn the_same_contents_from_many_at_once_are_one_object() {
    let place = place().unwrap();
    let contents: Vec<Vec<u8>> = (0..8_u8).map(|n| vec![n; 300_000]).collect();
    let hammer = || {
        for contents in contents.iter().cycle().take(40) {
            let put = place.objects.put(contents).unwrap();
            place.objects.get(&put.digest).unwrap();
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(hammer);
        }
    });
    assert_eq!(place.objects.iter().count(), 8);
    assert_eq!(unfinished(&place.objects), 0);
}

#[test]
fn a_sweep_beside_a_writer_never_takes_what_was_just_stored() {
    let place = place().unwrap();
    let contents = b"wanted and not wanted";
    let digest = place.objects.put(contents).unwrap().digest;
    for _ in 0..500 {
        age(&place.objects.path(&digest)).unwrap();
        let both = std::sync::Barrier::new(2);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                both.wait();
                place.objects.remove_unused(&digest, an_hour_ago()).unwrap();
            });
            both.wait();
            place.objects.put(contents).unwrap();
        });
        assert_eq!(place.objects.get(&digest).unwrap(), contents);
    }
}

#[test]
fn what_is_old_and_unused_goes_and_what_a_crash_left_goes() {
    let place = place().unwrap();
    let kept = place.objects.put(b"fresh").unwrap();
    let old = place.objects.put(b"old").unwrap();
    age(&place.objects.path(&old.digest)).unwrap();
    let remove = |stored: Stored| place.objects.remove_unused(&stored.digest, an_hour_ago());
    assert_eq!(remove(kept).unwrap(), None);
    assert_eq!(remove(old).unwrap(), Some(old.stored_bytes));
    assert_eq!(remove(old).unwrap(), None);

    let (_, crashed) = place.objects.new_file().unwrap().keep().unwrap();
    let (_, alive) = place.objects.new_file().unwrap().keep().unwrap();
    age(&crashed).unwrap();
    assert_eq!(place.objects.sweep_unfinished(an_hour_ago()).unwrap(), 1);
    assert!(!crashed.exists() && alive.exists());

    fs::write(
        place.objects.path(&kept.digest).with_file_name("stray"),
        "x",
    )
    .unwrap();
    let listed: Vec<_> = place.objects.iter().map(Result::unwrap).collect();
    assert_eq!(listed.len(), 1);
    assert_eq!(
        (listed[0].digest, listed[0].stored_bytes),
        (kept.digest, kept.stored_bytes)
    );
    assert_eq!(place.objects.stored_bytes().unwrap(), kept.stored_bytes);
}

/// A file system of one megabyte: a real full disk. Needs root.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn mount(at: &Path) -> Option<Self> {
        let options = Some(c"size=1m");
        rustix::mount::mount(
            "none",
            at,
            "tmpfs",
            rustix::mount::MountFlags::empty(),
            options,
        )
        .ok()?;
        Some(Self(at.to_owned()))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(&self.0, rustix::mount::UnmountFlags::DETACH);
    }
}

#[test]
fn a_full_disk_is_named_and_leaves_no_part_of_an_object() {
    let dir = tempfile::tempdir().unwrap();
    let Some(_disk) = SmallDisk::mount(dir.path()) else {
        assert!(std::env::var_os("CI").is_none(), "no small disk");
        eprintln!("SKIPPED: mounting a small disk needs root");
        return;
    };
    let objects = Objects::open(&DataDir::at(dir.path()));
    let kept = objects.put(b"there before").unwrap();
    let large = noise(2 << 20);
    for refused in [
        objects.put(&large).unwrap_err(),
        objects.put_reader(&large[..], u64::MAX).unwrap_err(),
    ] {
        let StoreError::Io { source, .. } = &refused else {
            panic!("{refused}");
        };
        assert_eq!(source.kind(), io::ErrorKind::StorageFull, "{refused}");
    }
    assert_eq!(unfinished(&objects), 0);
    let mut fill = File::create(dir.path().join("fill")).unwrap();
    while fill.write(&[0; 4096]).is_ok() {}
    objects.put(&noise(20_000)).unwrap_err();
    assert_eq!(unfinished(&objects), 0);
    assert_eq!(objects.put(b"there before").unwrap(), kept);
    assert_eq!(objects.get(&kept.digest).unwrap(), b"there before");
    assert_eq!(objects.iter().count(), 1);
}
