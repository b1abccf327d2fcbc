//! What a journal must survive: crashes at every byte, a full disk, strangers in the spool.

use std::collections::BTreeMap;

use cofferdam_contract::ending::{EndingRecord, Stream};
use cofferdam_contract::record::UsageRecord;
use cofferdam_contract::units::Bytes;
use jiff::Timestamp;
use serde_json::json;

use super::*;
use crate::log;
use crate::model::{Closing, HostFacts, Opening, RunKind, StreamSeen};
use crate::sift::redact::Rules;

pub(crate) fn opening(run_id: RunId) -> Opening {
    Opening {
        run_id,
        started_at: Timestamp::now(),
        command: vec!["sh".to_owned(), "-c".to_owned(), "true".to_owned()],
        cwd: None,
        environment: vec!["API_KEY".to_owned()],
        kind: RunKind::Command,
        backend: "native".to_owned(),
        tags: BTreeMap::new(),
        parent: None,
        sender: None,
        execution_id: None,
        policy: json!({}),
        payload: None,
        host: HostFacts {
            name: "here".to_owned(),
            kernel: "6".to_owned(),
            uid: 0,
        },
        version: "0".to_owned(),
    }
}

pub(crate) fn closing() -> Closing {
    Closing {
        ended_at: Timestamp::now(),
        ending: EndingRecord::Exited,
        exit_code: Some(0),
        signal: None,
        usage: UsageRecord {
            wall_ms: 1.0,
            cpu_ms: 1.0,
            memory_peak_bytes: None,
            processes_peak: None,
            output_bytes: 0,
            disk_bytes: None,
        },
        enforced_by: BTreeMap::new(),
        isolation: BTreeMap::new(),
        denials: Vec::new(),
        changes: None,
        redactions: 0,
        stdout: StreamSeen::default(),
        stderr: StreamSeen::default(),
        artifacts: Vec::new(),
        left_out: Vec::new(),
        results: None,
        network: None,
        determinism: None,
    }
}

const ROOMY: Bytes = Bytes::new(1 << 20);

pub(crate) struct Place {
    /// Removed with everything in it when the test is over.
    _temporary: tempfile::TempDir,
    pub(crate) dir: DataDir,
    id: RunId,
}

pub(crate) fn place() -> std::io::Result<Place> {
    let temporary = tempfile::tempdir()?;
    let dir = DataDir::at(temporary.path().join("data"));
    Ok(Place {
        _temporary: temporary,
        dir,
        id: RunId::new(),
    })
}

#[test]
fn what_is_written_is_read() {
    let Place { dir, id, .. } = &place().unwrap();
    let opening = opening(*id);
    let mut journal = Journal::begin(dir, &opening, Rules::default(), ROOMY).unwrap();
    journal.output(Stream::Stdout, b"out\n");
    journal.output(Stream::Stderr, b"err\n");
    assert_eq!(writer(&path(dir, *id)).unwrap(), Writer::Alive);
    journal.finish(closing()).unwrap();
    assert_eq!(writer(&path(dir, *id)).unwrap(), Writer::Gone);
    let read = of_run(dir, *id).unwrap().unwrap();
    assert_eq!(read.opening, Some(opening));
    assert_eq!(log::stream(&read.chunks, Stream::Stdout), b"out\n");
    assert_eq!(log::stream(&read.chunks, Stream::Stderr), b"err\n");
    let closing = read.closing.unwrap();
    assert_eq!(closing.stdout, StreamSeen { bytes: 4, lost: 0 });
}

#[test]
fn a_journal_that_is_cut_off_anywhere_says_what_it_can_and_no_more() {
    let Place { dir, id, .. } = &place().unwrap();
    let mut journal = Journal::begin(dir, &opening(*id), Rules::default(), ROOMY).unwrap();
    journal.output(Stream::Stdout, b"hello\n");
    journal.finish(closing()).unwrap();
    let path = path(dir, *id);
    let whole = std::fs::read(&path).unwrap();
    let mut seen = (false, false);
    for length in 0..whole.len() {
        std::fs::write(&path, &whole[..length]).unwrap();
        let read = of_run(dir, *id).unwrap().unwrap();
        assert!(read.closing.is_none(), "cut at {length}");
        assert!(read.end <= u64::try_from(length).unwrap());
        let output = log::stream(&read.chunks, Stream::Stdout);
        assert!(output.is_empty() || output == b"hello\n");
        assert!(output.is_empty() || read.opening.is_some());
        seen.0 |= read.opening.is_some() && output.is_empty();
        seen.1 |= !output.is_empty();
    }
    assert_eq!(seen, (true, true));
}

#[test]
fn a_flipped_bit_is_never_believed() {
    let Place { dir, id, .. } = &place().unwrap();
    let mut journal = Journal::begin(dir, &opening(*id), Rules::default(), ROOMY).unwrap();
    journal.output(Stream::Stdout, b"hello\n");
    journal.finish(closing()).unwrap();
    let path = path(dir, *id);
    let whole = std::fs::read(&path).unwrap();
    for at in 0..whole.len() {
        let mut damaged = whole.clone();
        damaged[at] ^= 0x10;
        std::fs::write(&path, &damaged).unwrap();
        let read = of_run(dir, *id).unwrap().unwrap();
        assert!(read.closing.is_none(), "flipped at {at}");
    }
}

#[test]
fn secrets_do_not_reach_the_disk() {
    let Place { dir, id, .. } = &place().unwrap();
    let secret = "ghp_0123456789abcdefghijABCDEFGHIJ012345";
    let mut journal = Journal::begin(dir, &opening(*id), Rules::default(), ROOMY).unwrap();
    for piece in secret.as_bytes().chunks(7) {
        journal.output(Stream::Stdout, piece);
    }
    journal.finish(closing()).unwrap();
    let file = std::fs::read(path(dir, *id)).unwrap();
    let text = String::from_utf8_lossy(&file);
    assert!(!text.contains(&secret[..12]), "{text}");
    let read = of_run(dir, *id).unwrap().unwrap();
    assert_eq!(log::stream(&read.chunks, Stream::Stdout), b"[REDACTED]");
    assert_eq!(read.closing.unwrap().redactions, 1);
}

#[test]
fn a_journal_takes_no_more_than_it_may() {
    let Place { dir, id, .. } = &place().unwrap();
    // Two pieces, each with what stands around it.
    let room = Bytes::new(2 * (8 + 22));
    let mut journal = Journal::begin(dir, &opening(*id), Rules::default(), room).unwrap();
    journal.output(Stream::Stdout, b"0123456\n");
    assert_eq!(journal.room(), Room::Left);
    journal.output(Stream::Stderr, b"0123456\n");
    assert_eq!(journal.room(), Room::Full);
    journal.passed(Stream::Stderr, 1000);
    journal.finish(closing()).unwrap();
    let closing = of_run(dir, *id).unwrap().unwrap().closing.unwrap();
    assert_eq!(closing.stdout, StreamSeen { bytes: 8, lost: 0 });
    assert_eq!(
        closing.stderr,
        StreamSeen {
            bytes: 1008,
            lost: 1000
        }
    );
}

/// What is cut off may be half a secret, and then its first half is no better.
#[test]
fn half_a_secret_at_the_end_of_what_is_kept_is_not_kept() {
    let Place { dir, id, .. } = &place().unwrap();
    let rules = Rules::default().with_values([b"SuperS3cretValue99".as_slice()]);
    let mut journal = Journal::begin(dir, &opening(*id), rules, ROOMY).unwrap();
    journal.output(Stream::Stdout, b"before\nSuperS3cretVal");
    journal.cut(Stream::Stdout);
    journal.finish(closing()).unwrap();
    let read = of_run(dir, *id).unwrap().unwrap();
    assert_eq!(log::stream(&read.chunks, Stream::Stdout), b"before\n");
    assert_eq!(read.closing.unwrap().stdout.lost, 14);
}

#[test]
fn a_journal_that_is_removed_meanwhile_is_said_to_be() {
    let Place { dir, id, .. } = &place().unwrap();
    let journal = Journal::begin(dir, &opening(*id), Rules::default(), ROOMY).unwrap();
    std::fs::remove_dir_all(dir.path()).unwrap();
    assert!(journal.finish(closing()).is_err());
}

/// A journal that is just being made is not taken for one that was left, and one that is not understood is not thrown away.
#[test]
fn beginnings_and_strangers_are_told_apart() {
    let Place { dir, id, .. } = &place().unwrap();
    let mut journal = Journal::begin(dir, &opening(*id), Rules::default(), ROOMY).unwrap();
    let path = path(dir, *id);
    journal.output(Stream::Stdout, b"a line\n");
    // Of one that is being written only the opening is read, however long it is.
    let Found::Alive(read) = look(&path).unwrap() else {
        panic!("it is being written");
    };
    let run = read.opening.map(|opening| opening.run_id);
    assert_eq!((run, read.chunks), (Some(*id), vec![]));
    journal.finish(closing()).unwrap();
    assert!(matches!(look(&path).unwrap(), Found::Left(_)));
    let whole = std::fs::read(&path).unwrap();
    let first = MAGIC.len() + FRAME_HEAD + usize::from(whole[8]) + 256 * usize::from(whole[9]);
    for length in 0..first {
        std::fs::write(&path, &whole[..length]).unwrap();
        assert_eq!(look(&path).unwrap(), Found::Unborn, "{length}");
    }
    for at in [0, 7, 20] {
        let mut damaged = whole.clone();
        damaged[at] ^= 1;
        std::fs::write(&path, &damaged).unwrap();
        assert_eq!(look(&path).unwrap(), Found::NotUnderstood, "{at}");
    }
}

#[test]
fn following_tells_what_is_new_and_when_it_is_over() {
    let Place { dir, id, .. } = &place().unwrap();
    let mut journal = Journal::begin(dir, &opening(*id), Rules::default(), ROOMY).unwrap();
    journal.output(Stream::Stdout, b"one\n");
    let (first, state) = follow(dir, *id, 0).unwrap().unwrap();
    assert_eq!(state, Writer::Alive);
    assert_eq!(log::stream(&first.chunks, Stream::Stdout), b"one\n");
    let (nothing, _) = follow(dir, *id, first.end).unwrap().unwrap();
    assert!(nothing.chunks.is_empty() && nothing.end == first.end);
    journal.output(Stream::Stdout, b"two\n");
    journal.finish(closing()).unwrap();
    let (second, state) = follow(dir, *id, first.end).unwrap().unwrap();
    assert_eq!(log::stream(&second.chunks, Stream::Stdout), b"two\n");
    assert_eq!(state, Writer::Gone);
    assert!(second.closing.is_some());
    assert!(follow(dir, RunId::new(), 0).unwrap().is_none());
}

#[test]
fn strangers_in_the_spool_are_neither_followed_nor_waited_for() {
    let Place { dir, id, .. } = &place().unwrap();
    dir.create().unwrap();
    let path = path(dir, *id);
    std::os::unix::fs::symlink("/etc/passwd", &path).unwrap();
    assert!(of_run(dir, *id).is_err());
    std::fs::remove_file(&path).unwrap();
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    assert_eq!(of_run(dir, *id).unwrap().unwrap(), Read::default());
}

/// The file of a journal that was adopted is used again, empty, and by one run only.
#[test]
fn a_free_file_is_used_again() {
    let Place { dir, id, .. } = &place().unwrap();
    let mut journal = Journal::begin(dir, &opening(*id), Rules::default(), ROOMY).unwrap();
    journal.output(Stream::Stdout, b"of the first\n");
    journal.finish(closing()).unwrap();
    let number = |path: &std::path::Path| {
        use std::os::unix::fs::MetadataExt as _;
        std::fs::metadata(path).unwrap().ino()
    };
    let first = number(&path(dir, *id));
    retire(dir, *id, &path(dir, *id));
    let same_place = |n: u8| {
        let mut bytes = *id.as_bytes();
        bytes[8] ^= n;
        RunId::from_bytes(bytes)
    };
    let (second, third) = (same_place(1), same_place(2));
    let journal = Journal::begin(dir, &opening(second), Rules::default(), ROOMY).unwrap();
    assert_eq!(number(&path(dir, second)), first);
    assert_eq!(writer(&path(dir, second)).unwrap(), Writer::Alive);
    let other = Journal::begin(dir, &opening(third), Rules::default(), ROOMY).unwrap();
    assert_ne!(number(&path(dir, third)), first);
    journal.finish(closing()).unwrap();
    other.finish(closing()).unwrap();
    let read = of_run(dir, second).unwrap().unwrap();
    assert!(read.chunks.is_empty() && read.closing.is_some());
}

#[test]
fn what_had_not_begun_makes_place_and_what_had_stays() {
    let place = tempfile::tempdir().unwrap();
    let dir = DataDir::at(place.path());
    dir.create().unwrap();
    let run = RunId::new();
    remove_unborn(&dir, run).unwrap();
    for beginning in [&b""[..], b"cof", MAGIC] {
        std::fs::write(path(&dir, run), beginning).unwrap();
        remove_unborn(&dir, run).unwrap();
        assert!(!path(&dir, run).exists());
    }
    let journal =
        Journal::begin(&dir, &opening(run), Rules::default(), Bytes::new(1 << 20)).unwrap();
    drop(journal);
    remove_unborn(&dir, run).unwrap();
    assert!(path(&dir, run).exists());
}

#[test]
fn what_was_half_taken_in_makes_place_and_what_is_whole_or_being_written_stays() {
    let Place { dir, id, .. } = &place().unwrap();
    remove_unfinished(dir, *id).unwrap();
    let mut journal = Journal::begin(dir, &opening(*id), Rules::default(), ROOMY).unwrap();
    journal.output(Stream::Stdout, b"half\n");
    remove_unfinished(dir, *id).unwrap();
    assert!(path(dir, *id).exists(), "somebody writes it");
    drop(journal);
    remove_unfinished(dir, *id).unwrap();
    assert!(!path(dir, *id).exists());
    let journal = Journal::begin(dir, &opening(*id), Rules::default(), ROOMY).unwrap();
    journal.finish(closing()).unwrap();
    remove_unfinished(dir, *id).unwrap();
    assert!(of_run(dir, *id).unwrap().unwrap().closing.is_some());
}

#[test]
fn a_journal_that_is_there_is_never_replaced() {
    let Place { dir, id, .. } = &place().unwrap();
    let mut journal = Journal::begin(dir, &opening(*id), Rules::default(), ROOMY).unwrap();
    journal.output(Stream::Stdout, b"of the first\n");
    drop(journal);
    for number in 0..512 {
        std::fs::File::create(dir.spool().join(format!("{number:03x}.free"))).unwrap();
    }
    assert!(Journal::begin(dir, &opening(*id), Rules::default(), ROOMY).is_err());
    let read = of_run(dir, *id).unwrap().unwrap();
    assert_eq!(read.chunks.len(), 1);
}

#[test]
fn a_file_that_has_become_another_runs_is_not_read_as_this_ones() {
    let Place { dir, id, .. } = &place().unwrap();
    let other = RunId::new();
    let journal = Journal::begin(dir, &opening(other), Rules::default(), ROOMY).unwrap();
    journal.finish(closing()).unwrap();
    std::fs::rename(path(dir, other), path(dir, *id)).unwrap();
    assert_eq!(of_run(dir, *id).unwrap(), None);
}
