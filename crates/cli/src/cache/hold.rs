//! Who uses a cache now: a lock on a file beside it. Where the tool keeps parallel runs apart, everybody shares; where it does not, one that writes is alone. Whoever removes a cache is
//! always alone. The kernel lets go when the holder ends, however it ends.

use std::fs::{File, OpenOptions};
use std::os::fd::BorrowedFd;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use cofferdam_contract::codes::ErrorCode;
use cofferdam_contract::request::MountAccess;
use cofferdam_project::{Cache, Sharing};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::{FlockOperation, OFlags};
use rustix::io::Errno;

use super::place;
use super::volume::Use;
use crate::failure::Failure;
use crate::terminal::output::note;

/// Locks that go with this.
#[derive(Debug, Default)]
pub(crate) struct Held(
    #[expect(dead_code, reason = "held, and let go by being dropped")] Vec<File>,
);

/// Longer than any restore should take; somebody who waits longer waits for a mistake.
const PATIENCE: Duration = Duration::from_secs(900);
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// Makes these caches where they are missing, and holds each as it is used. Always in the same order, so that no two wait for each other.
pub(crate) fn hold(place: &Path, uses: &[Use], cancel: BorrowedFd<'_>) -> Result<Held, Failure> {
    let mut uses = uses.to_vec();
    uses.sort_by_key(|each| each.cache);
    let mut held = Vec::new();
    for each in uses {
        let lock = open(place, each.cache)?;
        wait(&lock, how(each), each.cache, cancel)?;
        // Only now: whoever removed it meanwhile has removed all of it.
        place::prepare(place, &[each.cache])?;
        let _ = lock.set_modified(SystemTime::now());
        held.push(lock);
    }
    Ok(Held(held))
}

/// The lock that whoever removes a cache needs; `None` while a run uses it.
pub(super) fn alone(place: &Path, cache: Cache) -> Result<Option<File>, Failure> {
    let lock = open(place, cache)?;
    match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(lock)),
        Err(Errno::WOULDBLOCK) => Ok(None),
        Err(errno) => Err(place::failed(place, &errno.into())),
    }
}

/// Whether a run uses it now, and when one last began to.
pub(super) fn seen(place: &Path, cache: Cache) -> (bool, Option<SystemTime>) {
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

fn how(each: Use) -> FlockOperation {
    match (each.cache.sharing(), each.access) {
        (Sharing::InTurn, MountAccess::ReadWrite) => FlockOperation::NonBlockingLockExclusive,
        (Sharing::ByTool, _) | (Sharing::InTurn, MountAccess::ReadOnly) => {
            FlockOperation::NonBlockingLockShared
        }
    }
}

fn path(place: &Path, cache: Cache) -> std::path::PathBuf {
    place.join(place::LOCKS).join(cache.as_str())
}

fn open(place: &Path, cache: Cache) -> Result<File, Failure> {
    place::make(&place.join(place::LOCKS))?;
    let path = path(place, cache);
    OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(OFlags::NOFOLLOW.bits().cast_signed())
        .open(&path)
        .map_err(|error| place::failed(&path, &error))
}

fn wait(
    lock: &File,
    how: FlockOperation,
    cache: Cache,
    cancel: BorrowedFd<'_>,
) -> Result<(), Failure> {
    let began = Instant::now();
    let mut is_told = false;
    loop {
        match rustix::fs::flock(lock, how) {
            Ok(()) => return Ok(()),
            Err(Errno::WOULDBLOCK | Errno::INTR) => {}
            Err(errno) => {
                let what = format!("cannot lock the {} cache", cache.as_str());
                return Err(Failure::io(
                    ErrorCode::InputUnreadable,
                    &what,
                    &errno.into(),
                ));
            }
        }
        if !is_told {
            note(&format!(
                "cofferdam: waiting for the {} cache, which another run uses",
                cache.as_str()
            ));
            is_told = true;
        }
        if began.elapsed() > PATIENCE {
            let message = format!(
                "--cache: another run has used the {} cache for {} s; end it, or name another place with --cache-dir",
                cache.as_str(),
                PATIENCE.as_secs()
            );
            return Err(Failure::new(ErrorCode::InputUnreadable, message));
        }
        if is_canceled(cancel) {
            return Err(Failure::new(
                ErrorCode::InputUnreadable,
                "canceled while waiting for a cache; nothing has run",
            ));
        }
    }
}

/// Waits a moment for somebody to end us.
fn is_canceled(cancel: BorrowedFd<'_>) -> bool {
    let mut fds = [PollFd::from_borrowed_fd(cancel, PollFlags::IN)];
    let moment = Timespec {
        tv_sec: 0,
        tv_nsec: i64::from(LOOK_AGAIN.subsec_nanos()),
    };
    rustix::event::poll(&mut fds, Some(&moment)).is_ok_and(|ready| ready > 0)
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd as _;

    use super::*;

    fn used(cache: Cache, access: MountAccess) -> Use {
        Use { cache, access }
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
        let first = hold(place.path(), &[npm], quiet.as_fd()).unwrap();
        let second = hold(place.path(), &[npm], quiet.as_fd()).unwrap();
        assert!(alone(place.path(), Cache::Npm).unwrap().is_none());
        drop((first, second));
        assert!(alone(place.path(), Cache::Npm).unwrap().is_some());

        let writes = used(Cache::Pip, MountAccess::ReadWrite);
        let writer = hold(place.path(), &[writes], quiet.as_fd()).unwrap();
        let (canceled, write) = nobody();
        drop(write);
        let reads = used(Cache::Pip, MountAccess::ReadOnly);
        assert!(hold(place.path(), &[reads], canceled.as_fd()).is_err());
        assert!(seen(place.path(), Cache::Pip).0);
        drop(writer);
        let first = hold(place.path(), &[reads], quiet.as_fd()).unwrap();
        let second = hold(place.path(), &[reads], quiet.as_fd()).unwrap();
        drop((first, second));
        let (is_used, last) = seen(place.path(), Cache::Pip);
        assert!(!is_used && last.is_some());
    }

    #[test]
    fn a_lock_that_is_a_link_is_not_followed() {
        let place = tempfile::tempdir().unwrap();
        let outside = place.path().join("outside");
        std::fs::create_dir_all(place.path().join(place::LOCKS)).unwrap();
        std::os::unix::fs::symlink(&outside, path(place.path(), Cache::Npm)).unwrap();
        assert!(alone(place.path(), Cache::Npm).is_err());
        assert!(!outside.exists());
    }
}
