//! Adoption: journals of runs that are over become rows of the database, many in one transaction. Whoever reads history does it first, and every so often a run does it for the
//! runs before it, so that no run pays for the database alone.

use std::collections::HashSet;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use cofferdam_contract::ending::Stream;
use cofferdam_contract::units::Bytes;
use jiff::Timestamp;
use rustix::fs::FlockOperation;
use rustix::io::Errno;

use crate::data_dir::DataDir;
use crate::database::{History, KeptOutput, NewRun, Query, StatusFilter};
use crate::error::StoreError;
use crate::id::RunId;
use crate::journal::{self, Found};
use crate::log::{self, Chunk};
use crate::model::{Digest, LogFacts, Opening, Outcome, Status, StreamKept};
use crate::objects::Objects;
use crate::sift::binary::is_binary;
use crate::sift::truncate::{self, Piece, Strategy};

/// How much of a run's output is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Keeping {
    pub stdout: Bytes,
    pub stderr: Bytes,
    pub strategy: Strategy,
}

impl Default for Keeping {
    fn default() -> Self {
        Self {
            stdout: Bytes::new(1 << 20),
            stderr: Bytes::new(256 << 10),
            strategy: Strategy::Smart,
        }
    }
}

/// For whom journals are adopted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// Somebody wants to see everything: whoever else adopts right now is waited for.
    Reading,
    /// A run that has ended does it for those before it, in little memory. What others do, and what is large, is left to others.
    Passing,
}

/// What became of the journals.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Adopted {
    pub ended: u64,
    pub interrupted: u64,
    pub running: u64,
    /// Journals that could not be read, and why. They stay where they are.
    pub passed_over: Vec<(PathBuf, String)>,
    /// Whether somebody else was at it for so long that we went on without.
    pub is_busy: bool,
}

/// One transaction takes at most this many runs, and about this much output: neither a lock nor memory is held for long.
const BATCH_RUNS: usize = 256;
const BATCH_BYTES: usize = 32 << 20;
/// In passing, less; and journals beyond this size wait for somebody who reads, as long as together they stay below that.
const PASSING_BYTES: usize = 1 << 20;
const LARGE: u64 = 1 << 20;
const MOST_LEFT: u64 = 1 << 30;
/// Output up to this size lies in its row.
const INLINE: usize = 16 << 10;
/// A journal without its first frame is one that is just being made, or whose maker was killed before it started anything.
const UNBORN_FOR: Duration = Duration::from_secs(60);
/// How long somebody else's adoption is waited for: one that was stopped must not stop us.
const PATIENCE: Duration = Duration::from_secs(5);
const NAP: Duration = Duration::from_millis(2);

/// Takes in every journal whose writer is gone, and notes the runs that go on.
pub fn adopt(
    history: &mut History,
    keeping: &Keeping,
    purpose: Purpose,
) -> Result<Adopted, StoreError> {
    let spool = history.dir().spool();
    let _lock = match lock(&spool, purpose)? {
        Lock::Ours(lock) => lock,
        Lock::Nothing => return Ok(Adopted::default()),
        Lock::Theirs => {
            return Ok(Adopted {
                is_busy: true,
                ..Adopted::default()
            });
        }
    };
    let mut adoption = Adoption {
        objects: Objects::open(history.dir()),
        keeping,
        history,
        batch: Vec::new(),
        batch_bytes: 0,
        put: Vec::new(),
        most_bytes: match purpose {
            Purpose::Reading => BATCH_BYTES,
            Purpose::Passing => PASSING_BYTES,
        },
        done: Adopted::default(),
    };
    let mut going_on = Vec::new();
    let mut left = 0;
    for (id, path) in journals(&spool)? {
        if purpose == Purpose::Passing && is_left(&path, &mut left) {
            continue;
        }
        adoption.consider(id, path, &mut going_on)?;
    }
    adoption.commit()?;
    adoption.note_running(&going_on)?;
    adoption.abandon_lost(&going_on)?;
    Ok(adoption.done)
}

/// Of the runs that find no free file for their journal, one in this many adopts: the others wait for company, so that no run pays for a transaction alone.
const SCARCE_SHARE: u8 = 32;

/// Whether a run that has ended should take in the journals of those before it: a few milliseconds, which are a few microseconds for each. Chance decides who, by the run's id.
pub fn is_due(dir: &DataDir, run: RunId) -> bool {
    let [.., seldom, often, _, _] = *run.as_bytes();
    let is_candidate = often % SCARCE_SHARE == 0;
    // Also where free files come from elsewhere: journals must not wait for ever.
    let is_turn = is_candidate && seldom % SCARCE_SHARE == 0;
    is_turn || (is_candidate && journal::is_scarce(dir, run))
}

/// Whether there are journals at all.
pub fn is_waiting(dir: &DataDir) -> bool {
    journals(&dir.spool()).is_ok_and(|found| !found.is_empty())
}

enum Lock {
    Ours(File),
    Theirs,
    /// There is nothing to adopt.
    Nothing,
}

/// One at a time: two would do the same work twice.
fn lock(spool: &Path, purpose: Purpose) -> Result<Lock, StoreError> {
    let file = match File::open(spool) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Lock::Nothing),
        Err(error) => return Err(StoreError::io("read", spool)(error)),
    };
    let until = Instant::now() + PATIENCE;
    loop {
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(Lock::Ours(file)),
            Err(Errno::INTR) => {}
            Err(Errno::WOULDBLOCK) if purpose == Purpose::Reading && Instant::now() < until => {
                std::thread::sleep(NAP);
            }
            Err(Errno::WOULDBLOCK) => return Ok(Lock::Theirs),
            Err(errno) => return Err(StoreError::io("lock", spool)(errno.into())),
        }
    }
}

/// Whether a journal is left for later because reading it takes much memory.
fn is_left(path: &Path, left: &mut u64) -> bool {
    let size = std::fs::symlink_metadata(path).map_or(0, |found| found.len());
    let is_left = size > LARGE && *left + size <= MOST_LEFT;
    if is_left {
        *left += size;
    }
    is_left
}

/// Oldest first.
fn journals(spool: &Path) -> Result<Vec<(RunId, PathBuf)>, StoreError> {
    let failed = || StoreError::io("read", spool);
    let mut found = Vec::new();
    for entry in std::fs::read_dir(spool).map_err(failed())? {
        let path = entry.map_err(failed())?.path();
        let is_journal = path
            .extension()
            .is_some_and(|found| found == journal::EXTENSION);
        let id = path
            .file_stem()
            .and_then(|stem| stem.to_str()?.parse().ok());
        if let Some(id) = id.filter(|_| is_journal) {
            found.push((id, path));
        }
    }
    found.sort_unstable();
    Ok(found)
}

struct Adoption<'a> {
    history: &'a mut History,
    objects: Objects,
    keeping: &'a Keeping,
    /// Runs that wait for the next transaction, with the journals that go once it is through.
    batch: Vec<(NewRun, PathBuf)>,
    batch_bytes: usize,
    most_bytes: usize,
    /// Outputs of the batch that lie beside the database.
    put: Vec<Digest>,
    done: Adopted,
}

impl Adoption<'_> {
    fn consider(
        &mut self,
        id: RunId,
        path: PathBuf,
        going_on: &mut Vec<Opening>,
    ) -> Result<(), StoreError> {
        let read = match journal::look(&path) {
            Ok(Found::Left(read)) => read,
            Ok(Found::Alive(read)) => {
                self.done.running += 1;
                going_on.extend(read.opening);
                return Ok(());
            }
            Ok(Found::BeingMade) => return Ok(()),
            Ok(Found::Unborn) => {
                remove_unborn(&path);
                return Ok(());
            }
            Ok(Found::NotUnderstood) => {
                self.passed_over(path, "it is damaged, or of another version".to_owned());
                return Ok(());
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            // One that cannot be read must not hide all the others.
            Err(error) => {
                self.passed_over(path, error.to_string());
                return Ok(());
            }
        };
        let Some(opening) = read.opening.filter(|opening| opening.run_id == id) else {
            self.passed_over(path, "it is the journal of another run".to_owned());
            return Ok(());
        };
        let outcome = match read.closing {
            Some(closing) => {
                self.done.ended += 1;
                Outcome::Ended(Box::new(closing))
            }
            None => {
                self.done.interrupted += 1;
                Outcome::Interrupted {
                    noticed_at: Timestamp::now(),
                }
            }
        };
        let run = self.keep(opening, outcome, &read.chunks)?;
        self.batch.push((run, path));
        if self.batch.len() >= BATCH_RUNS || self.batch_bytes >= self.most_bytes {
            self.commit()?;
        }
        Ok(())
    }

    fn passed_over(&mut self, path: PathBuf, why: String) {
        self.done.passed_over.push((path, why));
    }

    fn keep(
        &mut self,
        opening: Opening,
        outcome: Outcome,
        chunks: &[Chunk],
    ) -> Result<NewRun, StoreError> {
        let (kept, log) = cut(chunks, self.keeping);
        let encoded = log::encode(&kept);
        self.batch_bytes += encoded.len();
        let output = if encoded.len() <= INLINE {
            KeptOutput::Inline(encoded)
        } else {
            let digest = self.objects.put(&encoded)?.digest;
            self.put.push(digest);
            KeptOutput::Object(digest)
        };
        Ok(NewRun {
            opening,
            outcome,
            log,
            output,
        })
    }

    /// The journals go only after the transaction is through: a crash in between adopts them again, which changes nothing. What the rows refer to is on the disk before them, or a power
    /// cut would leave rows without the output that the journals had.
    fn commit(&mut self) -> Result<(), StoreError> {
        let (runs, paths): (Vec<NewRun>, Vec<PathBuf>) = self.batch.drain(..).unzip();
        self.batch_bytes = 0;
        if runs.is_empty() {
            return Ok(());
        }
        self.objects.sync(&self.put)?;
        self.put.clear();
        self.history.record(&runs)?;
        for (run, path) in runs.iter().zip(paths) {
            // One that stays is adopted again, which changes nothing.
            journal::retire(self.history.dir(), run.opening.run_id, &path);
        }
        Ok(())
    }

    fn note_running(&mut self, going_on: &[Opening]) -> Result<(), StoreError> {
        if going_on.is_empty() {
            return Ok(());
        }
        self.history.begin(going_on)
    }

    /// Runs that the database knows as running and that have no journal any more: somebody removed it.
    fn abandon_lost(&mut self, going_on: &[Opening]) -> Result<(), StoreError> {
        let known: HashSet<RunId> = going_on.iter().map(|opening| opening.run_id).collect();
        let mut query = Query {
            statuses: vec![StatusFilter::Status(Status::Running)],
            limit: BATCH_RUNS,
            ..Query::default()
        };
        loop {
            let page = self.history.list(&query)?;
            let mut lost = Vec::new();
            for run in page.runs {
                let path = journal::path(self.history.dir(), run.run_id);
                if known.contains(&run.run_id) || path.exists() {
                    continue;
                }
                lost.push(NewRun {
                    opening: self.history.get(run.run_id)?.opening,
                    outcome: Outcome::Interrupted {
                        noticed_at: Timestamp::now(),
                    },
                    log: LogFacts::default(),
                    output: KeptOutput::Inline(Vec::new()),
                });
            }
            self.done.interrupted += u64::try_from(lost.len()).unwrap_or(0);
            if !lost.is_empty() {
                self.history.record(&lost)?;
            }
            // Behind a page of runs that go on there may be older ones that were lost.
            match page.next {
                Some(next) => query.before = Some(next),
                None => return Ok(()),
            }
        }
    }
}

fn remove_unborn(path: &Path) {
    let made = std::fs::symlink_metadata(path).and_then(|found| found.modified());
    let age = made.map(|made| SystemTime::now().duration_since(made));
    if age.is_ok_and(|age| age.is_ok_and(|age| age > UNBORN_FOR)) {
        let _ = std::fs::remove_file(path);
    }
}

/// Cuts each stream to what is kept of it; the pieces that stay keep their times and their order.
fn cut(chunks: &[Chunk], keeping: &Keeping) -> (Vec<Chunk>, LogFacts) {
    let mut facts = LogFacts::default();
    let mut kept = Vec::new();
    for (stream, limit, fact) in [
        (Stream::Stdout, keeping.stdout, &mut facts.stdout),
        (Stream::Stderr, keeping.stderr, &mut facts.stderr),
    ] {
        let bytes = log::stream(chunks, stream);
        let limit = usize::try_from(limit.get()).unwrap_or(usize::MAX);
        let pieces = truncate::plan(&bytes, limit, keeping.strategy);
        *fact = kept_of(&bytes, &pieces);
        kept.extend(place(stream, &bytes, &pieces, chunks));
    }
    kept.sort_by_key(|chunk| chunk.at_micros);
    (kept, facts)
}

fn kept_of(bytes: &[u8], pieces: &[Piece]) -> StreamKept {
    let count = |amount: usize| u64::try_from(amount).unwrap_or(u64::MAX);
    let (mut kept, mut shown) = (0, 0);
    for piece in pieces {
        match piece {
            Piece::Kept(range) => {
                kept += range.len();
                shown += range.len();
            }
            Piece::Marker(text) => shown += text.len(),
        }
    }
    StreamKept {
        bytes: count(shown),
        removed: count(bytes.len().saturating_sub(kept)),
        binary: is_binary(bytes),
    }
}

/// Lays the pieces over the chunks that they were cut from. A marker has the time of what it follows.
fn place(stream: Stream, bytes: &[u8], pieces: &[Piece], chunks: &[Chunk]) -> Vec<Chunk> {
    let mut kept = Vec::new();
    let mut at_micros = 0;
    let mut push = |at_micros: u64, bytes: &[u8]| {
        kept.push(Chunk {
            stream,
            at_micros,
            bytes: bytes.to_vec(),
        });
    };
    let mut of_stream = chunks.iter().filter(|chunk| chunk.stream == stream);
    // The chunk in hand, and where it ends in the stream as a whole.
    let mut ends = 0;
    for piece in pieces {
        let range = match piece {
            Piece::Kept(range) => range,
            Piece::Marker(text) => {
                push(at_micros, text.as_bytes());
                continue;
            }
        };
        let mut at = range.start;
        while at < range.end {
            while ends <= at {
                let Some(chunk) = of_stream.next() else {
                    return kept;
                };
                ends += chunk.bytes.len();
                at_micros = chunk.at_micros;
            }
            let stop = ends.min(range.end);
            push(at_micros, bytes.get(at..stop).unwrap_or_default());
            at = stop;
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::Journal;
    use crate::journal::tests::{self as journals, Place, closing, opening};
    use crate::sift::redact::Rules;

    fn chunk(stream: Stream, at_micros: u64, text: &str) -> Chunk {
        Chunk {
            stream,
            at_micros,
            bytes: text.as_bytes().to_vec(),
        }
    }

    #[test]
    fn what_is_kept_keeps_its_time() {
        let chunks = [
            chunk(Stream::Stdout, 1, "one\n"),
            chunk(Stream::Stdout, 2, "two\n"),
            chunk(Stream::Stdout, 3, ""),
            chunk(Stream::Stdout, 4, "three\n"),
        ];
        let bytes = log::stream(&chunks, Stream::Stdout);
        let pieces = [
            Piece::Kept(0..6),
            Piece::Marker("[cut]\n".to_owned()),
            Piece::Kept(10..14),
        ];
        assert_eq!(
            place(Stream::Stdout, &bytes, &pieces, &chunks),
            [
                chunk(Stream::Stdout, 1, "one\n"),
                chunk(Stream::Stdout, 2, "tw"),
                chunk(Stream::Stdout, 2, "[cut]\n"),
                chunk(Stream::Stdout, 4, "ree\n"),
            ]
        );
    }

    #[test]
    fn output_that_is_short_enough_stays_as_it_came() {
        let chunks = vec![
            chunk(Stream::Stdout, 1, "a\n"),
            chunk(Stream::Stderr, 2, "b\n"),
            chunk(Stream::Stdout, 3, "c\n"),
        ];
        let (kept, facts) = cut(&chunks, &Keeping::default());
        assert_eq!(kept, chunks);
        assert_eq!((facts.stdout.bytes, facts.stdout.removed), (4, 0));
        assert_eq!((facts.stderr.bytes, facts.stderr.removed), (2, 0));
    }

    fn ended(place: &Place, run: RunId, output: usize) {
        let most = Bytes::new(64 << 20);
        let mut journal =
            Journal::begin(&place.dir, &opening(run), Rules::default(), most).unwrap();
        journal.output(Stream::Stdout, "a line\n".repeat(output / 7).as_bytes());
        journal.finish(closing()).unwrap();
    }

    #[test]
    fn in_passing_what_is_large_is_left_for_a_reader() {
        let place = journals::place().unwrap();
        let (small, large) = (RunId::new(), RunId::new());
        ended(&place, small, 100 << 10);
        ended(&place, large, 3 << 20);
        let mut history = History::open(&place.dir).unwrap();
        let done = adopt(&mut history, &Keeping::default(), Purpose::Passing).unwrap();
        assert_eq!(done.ended, 1);
        assert!(history.get(small).is_ok() && history.get(large).is_err());
        let done = adopt(&mut history, &Keeping::default(), Purpose::Reading).unwrap();
        assert_eq!(done.ended, 1);
        assert!(history.get(large).is_ok());
    }

    #[test]
    fn a_run_whose_journal_was_removed_is_found_behind_many_that_go_on() {
        let place = journals::place().unwrap();
        let mut history = History::open(&place.dir).unwrap();
        let lost = RunId::new();
        history.begin(&[opening(lost)]).unwrap();
        let alive: Vec<Journal> = (0..=BATCH_RUNS)
            .map(|_| {
                let most = Bytes::new(1 << 20);
                Journal::begin(&place.dir, &opening(RunId::new()), Rules::default(), most).unwrap()
            })
            .collect();
        let done = adopt(&mut history, &Keeping::default(), Purpose::Reading).unwrap();
        assert_eq!((done.running, done.interrupted), (257, 1));
        let found = history.get(lost).unwrap();
        assert!(matches!(found.outcome, Outcome::Interrupted { .. }));
        drop(alive);
    }

    /// Or nobody would ever take them on a host where nobody reads.
    #[test]
    fn what_is_left_has_a_bound() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("large");
        File::create(&path).unwrap().set_len(600 << 20).unwrap();
        let mut left = 0;
        assert!(is_left(&path, &mut left));
        assert!(!is_left(&path, &mut left));
    }

    #[test]
    fn some_runs_adopt_where_free_files_are_scarce_and_few_elsewhere() {
        let place = journals::place().unwrap();
        place.dir.create().unwrap();
        let due = |runs: &[RunId]| runs.iter().filter(|run| is_due(&place.dir, **run)).count();
        let runs: Vec<RunId> = (0..3200).map(|_| RunId::new()).collect();
        let scarce = due(&runs);
        assert!((40..200).contains(&scarce), "{scarce} of 3200");
        for number in 0..512 {
            let free = place.dir.spool().join(format!("{number:03x}.free"));
            File::create(free).unwrap();
        }
        let plenty = due(&runs);
        assert!(plenty < 20, "{plenty} of 3200");
    }
}
