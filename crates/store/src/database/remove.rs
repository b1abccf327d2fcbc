//! Runs go, and with them the contents that nothing else refers to. What is about to go is worked out first; a dry run ends there.
//!
//! Contents must not go while a run that is about to be recorded refers to them. Whoever puts contents into the store sets their time anew, also when they were there already, so:
//! contents that have not been put for an hour may go; younger ones only together with the run that put them last, and only while no journal is waiting. Nor do contents go, however
//! old, that were put while a run went on whose journal still waits: a large journal waits until somebody reads the history, and only it says what the run left. The rest goes with a
//! later pruning.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::fs;
use std::time::{Duration, SystemTime};

use rusqlite::{Connection, OptionalExtension as _};
use serde_json::json;

use super::commands;
use super::fault::Fault;
use super::open::{Durability, History};
use super::prune::{Candidate, PruneMode, PruneReason, Pruned, PrunedRun, candidate};
use super::run_row::{digests_of, unsigned};
use crate::audit::chain::{Chain, NewEntry};
use crate::audit::head;
use crate::data_dir::DataDir;
use crate::error::StoreError;
use crate::id::RunId;
use crate::model::{Digest, Status};
use crate::objects::{Objects, StoredObject};

/// For how long contents are safe that no run refers to.
const SETTLED: Duration = Duration::from_secs(3600);
/// How long after its end a run's artifacts are put into the store, at most.
const COLLECTED: Duration = Duration::from_secs(60);
/// Nobody waits longer for a journal to be adopted: one that nobody can read stays for ever, and must not keep everything else.
const LONGEST_WAIT: Duration = Duration::from_secs(30 * 86_400);
/// A run's id is made by another clock than the times of files.
const SLACK: Duration = Duration::from_secs(60);
/// How many runs, or contents, go in one transaction: others want to write too.
const PORTION: usize = 2000;

impl History {
    /// Removes runs by name, tagged ones too. Runs that go on cannot be removed.
    pub fn remove(&mut self, runs: &[RunId], mode: PruneMode) -> Result<Pruned, StoreError> {
        let objects = Objects::open(self.dir());
        let doomed = self.read(|connection| {
            let mut doomed = Doomed::new(connection, &objects, self.dir())?;
            for id in runs {
                let named = named(connection, *id)?;
                if !doomed.contains(*id) {
                    doomed.add(connection, &named, PruneReason::Named)?;
                }
            }
            Ok(doomed)
        })?;
        self.carry_out(doomed, mode)
    }

    pub(crate) fn carry_out(
        &mut self,
        doomed: Doomed,
        mode: PruneMode,
    ) -> Result<Pruned, StoreError> {
        if mode == PruneMode::DryRun || (doomed.runs.is_empty() && doomed.objects.is_empty()) {
            return Ok(doomed.into_report());
        }
        for portion in doomed.runs.chunks(PORTION) {
            self.remove_rows(portion)?;
        }
        let (objects, freed) = self.remove_objects(&doomed)?;
        self.shrink_best_effort();
        // Somebody may have begun to use some of the contents meanwhile; those are still there.
        let left = doomed.object_bytes.saturating_sub(freed);
        let mut report = doomed.into_report();
        report.objects = objects;
        report.freed_bytes = report.freed_bytes.saturating_sub(left);
        report.kept_bytes = report.kept_bytes.saturating_add(left);
        Ok(report)
    }

    fn remove_rows(&mut self, runs: &[PrunedRun]) -> Result<(), StoreError> {
        let last = self.write(Durability::Durable, |transaction| {
            let mut chain = Chain::load(transaction)?;
            for run in runs {
                if delete(transaction, run.run_id)? {
                    chain.append(&NewEntry {
                        event: "run.removed",
                        subject: &run.run_id.to_string(),
                        detail: &json!({"why": run.why.as_str()}).to_string(),
                    })?;
                }
            }
            transaction.execute("DELETE FROM facets WHERE runs = 0", [])?;
            Ok(chain.head())
        })?;
        head::advance_best_effort(self, last);
        Ok(())
    }

    /// Holds the write lock meanwhile, so that no run can be recorded that refers to what goes.
    fn remove_objects(&mut self, doomed: &Doomed) -> Result<(u64, u64), StoreError> {
        let objects = Objects::open(self.dir());
        let all: Vec<&Digest> = doomed.objects.iter().collect();
        let (mut removed, mut freed) = (0, 0);
        for portion in all.chunks(PORTION) {
            self.write(Durability::Consistent, |transaction| {
                for digest in portion {
                    if references(transaction, digest)? > 0 {
                        continue;
                    }
                    // Not if somebody has put them again since this pruning began.
                    if let Some(bytes) = objects.remove_unused(digest, doomed.now)? {
                        freed += bytes;
                        removed += 1;
                    }
                }
                Ok(())
            })?;
        }
        if let Some(long_ago) = doomed.now.checked_sub(SETTLED) {
            objects.sweep_unfinished(long_ago)?;
        }
        objects.recount()?;
        Ok((removed, freed))
    }
}

/// What is about to go.
#[derive(Debug)]
pub(crate) struct Doomed {
    runs: Vec<PrunedRun>,
    ids: HashSet<RunId>,
    objects: BTreeSet<Digest>,
    /// What those objects take.
    object_bytes: u64,
    /// Objects that nobody will refer to and that cannot go yet: somebody may be about to.
    later: BTreeSet<Digest>,
    later_bytes: u64,
    run_bytes: u64,
    /// How many runs would still refer to these contents.
    references: HashMap<Digest, u64>,
    stored: HashMap<Digest, StoredObject>,
    waiting: Waiting,
    now: SystemTime,
    all_runs: u64,
    all_bytes: u64,
}

/// Whether there are journals that nobody has adopted yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Waiting {
    Nothing,
    /// The oldest of them began then.
    Journals {
        since: SystemTime,
    },
}

impl Doomed {
    pub(crate) fn new(
        connection: &Connection,
        objects: &Objects,
        dir: &DataDir,
    ) -> Result<Self, Fault> {
        // Before the store is listed: what is put from now on is seen to be fresh, also where it was listed with an older time.
        let now = file_clock();
        let waiting = waiting(dir, now);
        let sql = "SELECT count(*), ifnull(sum(stored_bytes), 0) FROM runs";
        let (all_runs, rows): (i64, i64) =
            connection.query_row(sql, [], |row| Ok((row.get(0)?, row.get(1)?)))?;
        let found = objects.iter().collect::<Result<Vec<_>, _>>()?;
        let in_objects: u64 = found.iter().map(|object| object.stored_bytes).sum();
        Ok(Self {
            runs: Vec::new(),
            ids: HashSet::new(),
            objects: BTreeSet::new(),
            object_bytes: 0,
            later: BTreeSet::new(),
            later_bytes: 0,
            run_bytes: 0,
            references: HashMap::new(),
            stored: found
                .into_iter()
                .map(|object| (object.digest, object))
                .collect(),
            waiting,
            now,
            all_runs: unsigned(all_runs),
            all_bytes: unsigned(rows).saturating_add(in_objects),
        })
    }

    pub(crate) fn sweep_orphans(&mut self, connection: &Connection) -> Result<(), Fault> {
        let stored: Vec<StoredObject> = self.stored.values().copied().collect();
        for object in stored {
            if references(connection, &object.digest)? > 0 {
                continue;
            }
            if self.is_settled(&object) {
                self.doom(object);
            } else {
                self.doom_later(object);
            }
        }
        Ok(())
    }

    pub(crate) fn add(
        &mut self,
        connection: &Connection,
        candidate: &Candidate,
        why: PruneReason,
    ) -> Result<(), Fault> {
        for digest in digests_of(connection, candidate.id)? {
            let left = match self.references.get(&digest) {
                Some(left) => *left,
                None => references(connection, &digest)?,
            };
            let left = left.saturating_sub(1);
            self.references.insert(digest, left);
            let object = self.stored.get(&digest).copied();
            if let Some(object) = object.filter(|_| left == 0) {
                if self.is_settled(&object) || self.is_last_put_by(&object, candidate) {
                    self.doom(object);
                } else {
                    self.doom_later(object);
                }
            }
        }
        self.run_bytes = self.run_bytes.saturating_add(candidate.stored_bytes);
        self.ids.insert(candidate.id);
        self.runs.push(PrunedRun {
            run_id: candidate.id,
            started_at: candidate.started,
            status: candidate.status,
            command: candidate.line.clone(),
            why,
        });
        Ok(())
    }

    pub(crate) fn contains(&self, id: RunId) -> bool {
        self.ids.contains(&id)
    }

    pub(crate) fn kept_runs(&self) -> u64 {
        let gone = u64::try_from(self.runs.len()).unwrap_or(u64::MAX);
        self.all_runs.saturating_sub(gone)
    }

    pub(crate) fn kept_bytes(&self) -> u64 {
        self.all_bytes.saturating_sub(self.freed_bytes())
    }

    /// What the runs that stay take, whether or not the rest can go now. Were that counted, runs would go for the sake of contents that are nobody's.
    pub(crate) fn wanted_bytes(&self) -> u64 {
        self.kept_bytes().saturating_sub(self.later_bytes)
    }

    fn freed_bytes(&self) -> u64 {
        self.run_bytes.saturating_add(self.object_bytes)
    }

    fn doom(&mut self, object: StoredObject) {
        if self.objects.insert(object.digest) {
            self.object_bytes = self.object_bytes.saturating_add(object.stored_bytes);
        }
    }

    fn doom_later(&mut self, object: StoredObject) {
        if self.later.insert(object.digest) {
            self.later_bytes = self.later_bytes.saturating_add(object.stored_bytes);
        }
    }

    fn is_settled(&self, object: &StoredObject) -> bool {
        let age = self.now.duration_since(object.modified);
        let may_be_waited_for = match self.waiting {
            Waiting::Nothing => false,
            Waiting::Journals { since } => object.modified >= since,
        };
        age.is_ok_and(|age| age >= SETTLED) && !may_be_waited_for
    }

    fn is_last_put_by(&self, object: &StoredObject, run: &Candidate) -> bool {
        let duration = Duration::from_micros(run.duration.map_or(0, unsigned));
        let ended = SystemTime::from(run.started).checked_add(duration + COLLECTED);
        self.waiting == Waiting::Nothing && ended.is_some_and(|ended| object.modified <= ended)
    }

    fn into_report(self) -> Pruned {
        Pruned {
            objects: u64::try_from(self.objects.len()).unwrap_or(u64::MAX),
            freed_bytes: self.freed_bytes(),
            kept_runs: self.kept_runs(),
            kept_bytes: self.kept_bytes(),
            runs: self.runs,
        }
    }
}

fn named(connection: &Connection, id: RunId) -> Result<Candidate, Fault> {
    let sql = "SELECT status, cause, exit_code, signal, kind, backend, has_artifacts, id, started, duration, stored_bytes, text
        FROM runs JOIN facets USING (facet) JOIN commands USING (command) WHERE id = ?1";
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query([id.as_bytes()])?;
    let Some(row) = rows.next()? else {
        let asked = id.to_string();
        return Err(StoreError::NoSuchRun { asked }.into());
    };
    let found = candidate(row)?;
    if found.status == Status::Running {
        return Err(Fault::Store(StoreError::Invalid {
            field: "run",
            value: id.to_string(),
            why: "it goes on; cancel it first".to_owned(),
        }));
    }
    Ok(found)
}

/// Whether it was there. Its parts go with it.
fn delete(connection: &Connection, id: RunId) -> Result<bool, Fault> {
    let sql = "SELECT command FROM runs WHERE id = ?1";
    let command: Option<i64> = connection
        .prepare_cached(sql)?
        .query_row([id.as_bytes()], |row| row.get(0))
        .optional()?;
    let Some(command) = command else {
        return Ok(false);
    };
    connection
        .prepare_cached("DELETE FROM runs WHERE id = ?1")?
        .execute([id.as_bytes()])?;
    commands::forget_unused(connection, command)?;
    Ok(true)
}

fn references(connection: &Connection, digest: &Digest) -> Result<u64, Fault> {
    let sql = "SELECT count(*) FROM contents WHERE digest = ?1";
    let mut statement = connection.prepare_cached(sql)?;
    Ok(unsigned(statement.query_row([digest.0], |row| row.get(0))?))
}

/// When it cannot be told, there may be some.
fn waiting(dir: &DataDir, now: SystemTime) -> Waiting {
    let always = Waiting::Journals {
        since: SystemTime::UNIX_EPOCH,
    };
    let entries = match fs::read_dir(dir.spool()) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Waiting::Nothing,
        Err(_) => return always,
    };
    let began = entries.flatten().filter_map(|entry| began(&entry, now));
    match began.min() {
        Some(oldest) => Waiting::Journals {
            since: oldest.checked_sub(SLACK).unwrap_or(oldest),
        },
        None => Waiting::Nothing,
    }
}

/// When the run of a journal was named, which is before it put anything. `None` for what is no journal, or none any more.
fn began(entry: &fs::DirEntry, now: SystemTime) -> Option<SystemTime> {
    let path = entry.path();
    let is_journal = path
        .extension()
        .is_none_or(|found| found == crate::journal::EXTENSION);
    if !is_journal {
        return None;
    }
    let named = path.file_stem().and_then(|stem| stem.to_str());
    let named = named.and_then(|stem| stem.parse::<RunId>().ok());
    let written = match entry.metadata().and_then(|found| found.modified()) {
        Ok(written) => written,
        // Adopted meanwhile, and recorded before that.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return None,
        Err(_) => return Some(SystemTime::UNIX_EPOCH),
    };
    let waits_for = now.duration_since(written).unwrap_or_default();
    (waits_for <= LONGEST_WAIT).then(|| named.map_or(written, RunId::made_at))
}

/// The clock that file systems take their times from; it is a little behind the other one.
fn file_clock() -> SystemTime {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::RealtimeCoarse);
    let seconds = Duration::from_secs(u64::try_from(now.tv_sec).unwrap_or(0));
    let rest = Duration::from_nanos(u64::try_from(now.tv_nsec).unwrap_or(0));
    SystemTime::UNIX_EPOCH + seconds + rest
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use cofferdam_contract::units::{Bytes, Cap};
    use jiff::Timestamp;

    use super::super::fixture::{Place, chunks, exited, id};
    use super::super::{KeptOutput, NewRun, Retention};
    use super::*;
    use crate::log;
    use crate::model::{Artifact, ArtifactKind, Outcome};

    const KEEP_ALL: Retention = Retention {
        max_age: Cap::Unlimited,
        max_age_of_failures: Cap::Unlimited,
        max_runs: Cap::Unlimited,
        max_bytes: Cap::Unlimited,
    };

    fn with_artifact(mut run: NewRun, digest: Digest, bytes: u64) -> NewRun {
        if let Outcome::Ended(closing) = &mut run.outcome {
            closing.artifacts.push(Artifact {
                path: "out".into(),
                digest,
                bytes,
                media_type: "text/plain".into(),
                kind: ArtifactKind::Added,
                mode: 0o644,
            });
        }
        run
    }

    /// As if it had been put so long ago.
    fn put(place: &Place, contents: &[u8], age: Duration) -> Result<Digest, StoreError> {
        let digest = Objects::open(&place.dir).put(contents)?.digest;
        let name = digest.to_string();
        let path = place.dir.objects().join(&name[..2]).join(&name[2..]);
        let set = |file: File| file.set_modified(SystemTime::now() - age);
        File::options()
            .write(true)
            .open(&path)
            .and_then(set)
            .map_err(StoreError::io("age", &path))?;
        Ok(digest)
    }

    fn is_there(place: &Place, digest: &Digest) -> bool {
        Objects::open(&place.dir).contains(digest)
    }

    const OLD: Duration = Duration::from_secs(7200);
    /// The clock of files is some milliseconds behind.
    const JUST_NOW: Duration = Duration::from_millis(100);
    /// What an object's file has before its contents.
    const HEAD: u64 = 17;

    /// Contents that no compression makes smaller.
    fn noise(length: usize) -> Vec<u8> {
        let digests = (0..).map(|n: u64| Digest::of(&n.to_le_bytes()).0);
        digests.flatten().take(length).collect()
    }

    #[test]
    fn contents_go_with_the_last_run_that_refers_to_them() {
        let mut place = Place::new().unwrap();
        let shared = put(&place, &[1; 1000], OLD).unwrap();
        let own = put(&place, &[2; 300], OLD).unwrap();
        let output = log::encode(&chunks("a long output"));
        let stored = put(&place, &output, OLD).unwrap();
        let first = with_artifact(with_artifact(exited(1, 0), shared, 1000), own, 300);
        let second = NewRun {
            output: KeptOutput::Object(stored),
            ..with_artifact(exited(2, 0), shared, 1000)
        };
        place.history.record(&[first, second]).unwrap();
        assert_eq!(
            place.history.output(id(2)).unwrap(),
            chunks("a long output")
        );
        let stats = place.history.stats().unwrap();
        assert_eq!(
            (stats.objects, stats.logical_bytes),
            (3, 1000 + 300 + 1000 + 3)
        );

        let dry = place.history.remove(&[id(1)], PruneMode::DryRun).unwrap();
        assert!(is_there(&place, &own));
        let done = place.history.remove(&[id(1)], PruneMode::Remove).unwrap();
        assert_eq!(done, dry);
        assert_eq!(done.objects, 1);
        assert!(!is_there(&place, &own) && is_there(&place, &shared));
        let done = place.history.remove(&[id(2)], PruneMode::Remove).unwrap();
        assert_eq!((done.objects, done.kept_runs, done.kept_bytes), (2, 0, 0));
        assert!(!is_there(&place, &shared) && !is_there(&place, &stored));
    }

    #[test]
    fn one_run_of_two_that_share_frees_the_contents_only_with_the_other() {
        let mut place = Place::new().unwrap();
        let shared = put(&place, &noise(100_000), OLD).unwrap();
        let runs = [1, 2, 3].map(|n| with_artifact(exited(n, 0), shared, 1));
        place.history.record(&runs).unwrap();
        let tight = Retention {
            max_bytes: Cap::AtMost(Bytes::new(50_000)),
            ..KEEP_ALL
        };
        // Nothing smaller than all of them helps.
        let dry = place.history.prune(&tight, PruneMode::DryRun).unwrap();
        assert_eq!((dry.runs.len(), dry.objects, dry.kept_bytes), (3, 1, 0));
        assert_eq!(place.history.prune(&tight, PruneMode::Remove).unwrap(), dry);
        assert!(!is_there(&place, &shared));
    }

    #[test]
    fn orphans_go_after_an_hour_and_not_before() {
        let mut place = Place::new().unwrap();
        let old = put(&place, b"old", OLD).unwrap();
        let young = put(&place, b"young", Duration::from_secs(1800)).unwrap();
        let dry = place.history.prune(&KEEP_ALL, PruneMode::DryRun).unwrap();
        let done = place.history.prune(&KEEP_ALL, PruneMode::Remove).unwrap();
        assert_eq!((&done, done.objects, done.freed_bytes), (&dry, 1, HEAD + 3));
        assert!(!is_there(&place, &old) && is_there(&place, &young));
    }

    /// A run of just now, whose artifacts went into the store with it.
    fn fresh_run(place: &mut Place) -> Digest {
        let digest = put(place, b"fresh", JUST_NOW).unwrap();
        let mut run = with_artifact(exited(1, 0), digest, 5);
        run.opening.started_at = Timestamp::now();
        place.history.record(&[run]).unwrap();
        digest
    }

    #[test]
    fn young_contents_go_with_their_run_unless_a_journal_waits() {
        let mut place = Place::new().unwrap();
        let digest = fresh_run(&mut place);
        let done = place.history.remove(&[id(1)], PruneMode::Remove).unwrap();
        assert_eq!(done.objects, 1);
        assert!(!is_there(&place, &digest));

        let mut place = Place::new().unwrap();
        let digest = fresh_run(&mut place);
        fs::write(place.dir.spool().join("x.run"), b"").unwrap();
        let done = place.history.remove(&[id(1)], PruneMode::Remove).unwrap();
        assert_eq!((done.objects, done.kept_bytes), (0, HEAD + 5));
        assert!(is_there(&place, &digest));
    }

    /// A large journal waits until somebody reads the history, for days if nobody does, and only it says which contents are its run's.
    #[test]
    fn the_artifacts_of_a_run_whose_journal_waits_stay_however_old_they_are() {
        let mut place = Place::new().unwrap();
        let hours_ago =
            |hours: i32| Timestamp::now() - jiff::SignedDuration::from_hours(hours.into());
        let older = put(&place, b"older than the run", Duration::from_secs(5 * 3600)).unwrap();
        let own = put(&place, b"of the run", OLD).unwrap();
        let run = RunId::floor(hours_ago(3));
        let journal = place.dir.spool().join(format!("{run}.run"));
        fs::write(&journal, b"").unwrap();
        place.history.prune(&KEEP_ALL, PruneMode::Remove).unwrap();
        assert!(is_there(&place, &own) && !is_there(&place, &older));

        // Also where an old run that goes refers to the same contents.
        let before = with_artifact(exited(1, 0), own, 10);
        place.history.record(&[before]).unwrap();
        place.history.remove(&[id(1)], PruneMode::Remove).unwrap();
        assert!(is_there(&place, &own));

        // One that nobody can read keeps nothing for ever.
        let long_ago = SystemTime::now() - LONGEST_WAIT - OLD;
        let file = File::options().write(true).open(&journal).unwrap();
        file.set_modified(long_ago).unwrap();
        place.history.prune(&KEEP_ALL, PruneMode::Remove).unwrap();
        assert!(!is_there(&place, &own));
    }

    #[test]
    fn contents_that_somebody_puts_while_the_store_is_listed_stay() {
        let mut place = Place::new().unwrap();
        let digest = put(&place, b"again", OLD).unwrap();
        let objects = Objects::open(&place.dir);
        let doomed = place
            .history
            .read(|connection| {
                let mut doomed = Doomed::new(connection, &objects, &place.dir)?;
                doomed.sweep_orphans(connection)?;
                Ok(doomed)
            })
            .unwrap();
        assert!(doomed.objects.contains(&digest));
        // In the same tick, mostly.
        objects.put(b"again").unwrap();
        let done = place.history.carry_out(doomed, PruneMode::Remove).unwrap();
        assert_eq!(done.objects, 0);
        assert!(is_there(&place, &digest));
    }

    /// Contents that cannot go yet must not cost runs that could stay.
    #[test]
    fn no_run_goes_for_contents_that_cannot_go_yet() {
        let mut place = Place::new().unwrap();
        for n in 1..=4 {
            let mut contents = noise(100_000);
            contents.push(n);
            let digest = put(&place, &contents, JUST_NOW).unwrap();
            let run = with_artifact(exited(n.into(), 0), digest, 100_001);
            place.history.record(&[run]).unwrap();
        }
        fs::write(place.dir.spool().join("x.run"), b"").unwrap();
        let tight = Retention {
            max_bytes: Cap::AtMost(Bytes::new(250_000)),
            ..KEEP_ALL
        };
        let done = place.history.prune(&tight, PruneMode::Remove).unwrap();
        assert_eq!((done.runs.len(), done.kept_runs, done.objects), (2, 2, 0));
    }

    #[test]
    fn contents_that_somebody_refers_to_meanwhile_stay() {
        let mut place = Place::new().unwrap();
        let digest = put(&place, b"wanted", OLD).unwrap();
        place
            .history
            .record(&[with_artifact(exited(1, 0), digest, 6)])
            .unwrap();
        let objects = Objects::open(&place.dir);
        let doomed = place
            .history
            .read(|connection| {
                let mut doomed = Doomed::new(connection, &objects, &place.dir)?;
                let candidate = named(connection, id(1))?;
                doomed.add(connection, &candidate, PruneReason::Named)?;
                Ok(doomed)
            })
            .unwrap();
        place
            .history
            .record(&[with_artifact(exited(2, 0), digest, 6)])
            .unwrap();
        let done = place.history.carry_out(doomed, PruneMode::Remove).unwrap();
        assert_eq!(done.objects, 0);
        assert!(is_there(&place, &digest));
    }
}
