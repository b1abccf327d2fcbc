//! The directories in which package managers keep what they fetched, made and held before a step that looks for them. Who uses one now: a lock on a file beside it. Where the tool keeps parallel runs apart, everybody shares; where it does not, one that writes is alone. Whoever removes a cache is
//! always alone. The kernel lets go when the holder ends, however it ends.
//!
//! What a sandbox could write to is not obeyed outside of one: a tool started there would follow its links and its settings. Such a cache is marked, and is empty again before it is used outside.

use std::fs::{DirBuilder, File, OpenOptions};
use std::os::fd::BorrowedFd;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use cofferdam_contract::codes::ErrorCode;
use cofferdam_contract::request::MountAccess;
use cofferdam_project::{Cache, Sharing};
use cofferdam_store::beneath;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::{FlockOperation, OFlags};
use rustix::io::Errno;

use crate::error::WorkError;

/// Holds a file for each cache, that whoever uses it locks. Beside the caches and not in them: what is inside, a program could lock too.
const LOCKS: &str = ".locks";

/// One cache, and what may be done with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Use {
    pub cache: Cache,
    pub access: MountAccess,
    pub side: Side,
}

/// Whether the tool that uses a cache has walls around it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    Inside,
    Outside,
}

/// Locks that go with this.
#[derive(Debug, Default)]
pub struct Held(#[expect(dead_code, reason = "held, and let go by being dropped")] Vec<File>);

/// Longer than any restore should take; somebody who waits longer waits for a mistake.
const PATIENCE: Duration = Duration::from_secs(900);
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// Makes these caches where they are missing, and holds each as it is used. Always in the same order, so that no two wait for each other. `waits` is told when one has to be waited for.
pub fn hold(
    place: &Path,
    uses: &[Use],
    cancel: Option<BorrowedFd<'_>>,
    waits: &dyn Fn(Cache),
) -> Result<Held, WorkError> {
    hold_until(Instant::now() + PATIENCE, place, uses, cancel, waits)
}

/// The same, for somebody whose own time ends.
pub(crate) fn hold_until(
    until: Instant,
    place: &Path,
    uses: &[Use],
    cancel: Option<BorrowedFd<'_>>,
    waits: &dyn Fn(Cache),
) -> Result<Held, WorkError> {
    let began = Instant::now();
    let mut uses = uses.to_vec();
    uses.sort_by_key(|each| each.cache);
    let mut held = Vec::new();
    for each in uses {
        let lock = open(place, each.cache)?;
        let turn = Turn {
            how: how(each),
            cache: each.cache,
            began,
            until: until.min(began + PATIENCE),
        };
        turn.wait(&lock, cancel, waits)?;
        trust(place, &lock, each)?;
        // Only now: whoever removed it meanwhile has removed all of it.
        prepare(&place.join(each.cache.as_str()))?;
        let _ = lock.set_modified(SystemTime::now());
        held.push(lock);
    }
    Ok(Held(held))
}

/// The lock that whoever removes a cache needs; `None` while a run uses it.
pub fn alone(place: &Path, cache: Cache) -> Result<Option<File>, WorkError> {
    let lock = open(place, cache)?;
    match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(lock)),
        Err(Errno::WOULDBLOCK) => Ok(None),
        Err(errno) => Err(failed(place, &errno.into())),
    }
}

/// Whether a run uses it now, and when one last began to.
pub fn seen(place: &Path, cache: Cache) -> (bool, Option<SystemTime>) {
    let Ok(lock) = File::open(path(place, cache)) else {
        return (false, None);
    };
    let is_used = match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {
            let _ = rustix::fs::flock(&lock, FlockOperation::Unlock);
            false
        }
        Err(_) => true,
    };
    let last = lock.metadata().and_then(|found| found.modified()).ok();
    (is_used, last)
}

/// Marks what a sandbox is about to be able to write to, and empties what one could have before it is used outside. The mark is in the file of the lock, where no program comes.
fn trust(place: &Path, lock: &File, each: Use) -> Result<(), WorkError> {
    const MARKED: u64 = 1;
    let volume = place.join(each.cache.as_str());
    let failed = |error: std::io::Error| failed(&volume, &error);
    match (each.side, each.access) {
        (Side::Inside, MountAccess::ReadOnly) => Ok(()),
        (Side::Inside, MountAccess::ReadWrite) => lock.set_len(MARKED).map_err(failed),
        (Side::Outside, _) if lock.metadata().map_err(failed)?.len() == 0 => Ok(()),
        (Side::Outside, _) => {
            let dir = File::open(place).map_err(failed)?;
            match beneath::remove(&dir, each.cache.as_str()) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(failed(error)),
                _ => lock.set_len(0).map_err(failed),
            }
        }
    }
}

fn how(each: Use) -> FlockOperation {
    match (each.cache.sharing(), each.access) {
        // No sandbox may write to it meanwhile.
        _ if each.side == Side::Outside => FlockOperation::NonBlockingLockExclusive,
        (Sharing::InTurn, MountAccess::ReadWrite) => FlockOperation::NonBlockingLockExclusive,
        (Sharing::ByTool, _) | (Sharing::InTurn, MountAccess::ReadOnly) => {
            FlockOperation::NonBlockingLockShared
        }
    }
}

fn path(place: &Path, cache: Cache) -> std::path::PathBuf {
    place.join(LOCKS).join(cache.as_str())
}

fn open(place: &Path, cache: Cache) -> Result<File, WorkError> {
    make(&place.join(LOCKS))?;
    let path = path(place, cache);
    OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(OFlags::NOFOLLOW.bits().cast_signed())
        .open(&path)
        .map_err(|error| failed(&path, &error))
}

/// One lock that is waited for, and how long.
struct Turn {
    how: FlockOperation,
    cache: Cache,
    began: Instant,
    until: Instant,
}

impl Turn {
    fn wait(
        &self,
        lock: &File,
        cancel: Option<BorrowedFd<'_>>,
        waits: &dyn Fn(Cache),
    ) -> Result<(), WorkError> {
        let cache = self.cache;
        let mut is_told = false;
        loop {
            match rustix::fs::flock(lock, self.how) {
                Ok(()) => return Ok(()),
                Err(Errno::WOULDBLOCK | Errno::INTR) => {}
                Err(errno) => {
                    let what = format!("cannot lock the {} cache", cache.as_str());
                    return Err(WorkError::io(
                        ErrorCode::InputUnreadable,
                        &what,
                        &errno.into(),
                    ));
                }
            }
            if !is_told {
                waits(cache);
                is_told = true;
            }
            if Instant::now() >= self.until {
                let message = format!(
                    "--cache: another run has used the {} cache for {} s; end it, or name another place with --cache-dir",
                    cache.as_str(),
                    self.began.elapsed().as_secs()
                );
                return Err(WorkError::new(ErrorCode::InputUnreadable, message));
            }
            if is_canceled(cancel) {
                return Err(WorkError::new(
                    ErrorCode::InputUnreadable,
                    "canceled while waiting for a cache; nothing has run",
                ));
            }
        }
    }
}

/// Waits a moment for somebody to end us.
fn is_canceled(cancel: Option<BorrowedFd<'_>>) -> bool {
    let mut fds: Vec<PollFd<'_>> = cancel
        .map(|cancel| PollFd::from_borrowed_fd(cancel, PollFlags::IN))
        .into_iter()
        .collect();
    let moment = Timespec {
        tv_sec: 0,
        tv_nsec: i64::from(LOOK_AGAIN.subsec_nanos()),
    };
    rustix::event::poll(&mut fds, Some(&moment)).is_ok_and(|ready| ready > 0)
}

/// Readable inside, where whoever looks is somebody else.
fn prepare(volume: &Path) -> Result<(), WorkError> {
    make(volume)?;
    let is_dir = volume.symlink_metadata().is_ok_and(|found| found.is_dir());
    match is_dir {
        true => Ok(()),
        false => {
            let why = std::io::Error::other("is a link or no directory; remove it");
            Err(failed(volume, &why))
        }
    }
}

fn make(dir: &Path) -> Result<(), WorkError> {
    let made = DirBuilder::new().recursive(true).mode(0o755).create(dir);
    made.map_err(|error| failed(dir, &error))
}

fn failed(dir: &Path, error: &std::io::Error) -> WorkError {
    let what = format!("--cache-dir: cannot use `{}`", dir.display());
    WorkError::io(ErrorCode::InputUnreadable, &what, error)
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd as _;

    use super::*;

    fn used(cache: Cache, access: MountAccess) -> Use {
        Use {
            cache,
            access,
            side: Side::Inside,
        }
    }

    /// A pipe that says nothing: nobody cancels.
    fn nobody() -> (std::io::PipeReader, std::io::PipeWriter) {
        std::io::pipe().unwrap()
    }

    #[test]
    fn what_the_tool_keeps_apart_is_shared_and_what_it_does_not_is_taken_in_turn() {
        let place = tempfile::tempdir().unwrap();
        let (quiet, _write) = nobody();
        let npm = used(Cache::Npm, MountAccess::ReadWrite);
        let first = hold(place.path(), &[npm], Some(quiet.as_fd()), &|_| ()).unwrap();
        let second = hold(place.path(), &[npm], Some(quiet.as_fd()), &|_| ()).unwrap();
        assert!(alone(place.path(), Cache::Npm).unwrap().is_none());
        drop((first, second));
        assert!(alone(place.path(), Cache::Npm).unwrap().is_some());

        let writes = used(Cache::Pip, MountAccess::ReadWrite);
        let writer = hold(place.path(), &[writes], Some(quiet.as_fd()), &|_| ()).unwrap();
        let (canceled, write) = nobody();
        drop(write);
        let reads = used(Cache::Pip, MountAccess::ReadOnly);
        assert!(hold(place.path(), &[reads], Some(canceled.as_fd()), &|_| ()).is_err());
        assert!(seen(place.path(), Cache::Pip).0);
        drop(writer);
        let first = hold(place.path(), &[reads], Some(quiet.as_fd()), &|_| ()).unwrap();
        let second = hold(place.path(), &[reads], Some(quiet.as_fd()), &|_| ()).unwrap();
        drop((first, second));
        let (is_used, last) = seen(place.path(), Cache::Pip);
        assert!(!is_used && last.is_some());
    }

    #[test]
    fn what_a_sandbox_could_write_to_is_empty_before_it_is_used_outside() {
        let place = tempfile::tempdir().unwrap();
        let (place, outside) = (place.path().join("caches"), place.path().join("outside"));
        std::fs::create_dir_all(&outside).unwrap();
        std::fs::write(outside.join("kept"), "x").unwrap();
        let fetch = Use {
            side: Side::Outside,
            ..used(Cache::Pip, MountAccess::ReadWrite)
        };
        let hold_now = |each: Use| hold(&place, &[each], None, &|_| ()).unwrap();
        let fetched = place.join("pip/fetched");
        drop(hold_now(fetch));
        std::fs::write(&fetched, "x").unwrap();
        // What only tools outside have written to stays, also when a sandbox has read it.
        drop(hold_now(used(Cache::Pip, MountAccess::ReadOnly)));
        let held = hold_now(fetch);
        assert!(fetched.exists());
        assert!(alone(&place, Cache::Pip).unwrap().is_none());
        drop(held);

        drop(hold_now(used(Cache::Pip, MountAccess::ReadWrite)));
        std::os::unix::fs::symlink(&outside, place.join("pip/wheels")).unwrap();
        drop(hold_now(fetch));
        assert_eq!(std::fs::read_dir(place.join("pip")).unwrap().count(), 0);
        assert!(outside.join("kept").exists());
        std::fs::write(&fetched, "x").unwrap();
        drop(hold_now(fetch));
        assert!(fetched.exists());
    }

    #[test]
    fn a_lock_that_is_a_link_is_not_followed() {
        let place = tempfile::tempdir().unwrap();
        let outside = place.path().join("outside");
        std::fs::create_dir_all(place.path().join(LOCKS)).unwrap();
        std::os::unix::fs::symlink(&outside, path(place.path(), Cache::Npm)).unwrap();
        assert!(alone(place.path(), Cache::Npm).is_err());
        assert!(!outside.exists());
    }
}
