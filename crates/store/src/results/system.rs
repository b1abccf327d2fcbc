//! Which programs this host has, known cheaply: by the databases of its package managers and the times of the directories below `/usr` that programs and their libraries lie in.
//! Not seen is a file that somebody rewrites in its place by hand, but for the program that is run; `docs/result-cache.md` says so.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use sha2::{Digest as _, Sha256};

use super::contents::stat_bytes;

/// The host's programs, looked at again when the last look is too old.
#[derive(Debug, Default)]
pub struct System {
    last: Mutex<Option<(Instant, [u8; 32])>>,
}

/// Written to by whatever installs, removes or changes a package.
const DATABASES: [&str; 11] = [
    "/var/lib/dpkg/status",
    "/var/lib/dpkg/info",
    "/var/lib/rpm/rpmdb.sqlite",
    "/usr/lib/sysimage/rpm/rpmdb.sqlite",
    "/lib/apk/db/installed",
    "/var/lib/pacman/local",
    "/nix/var/nix/profiles/system",
    "/ostree/deploy",
    "/etc/ld.so.cache",
    "/etc/alternatives",
    "/etc/os-release",
];

/// Below `/usr`, and how deep: where people put things by hand.
const DIRECTORIES: [(&str, usize); 8] = [
    ("/usr", 0),
    ("/usr/bin", 0),
    ("/usr/sbin", 0),
    ("/usr/lib", 2),
    ("/usr/lib64", 1),
    ("/usr/libexec", 1),
    ("/usr/local", 5),
    ("/usr/share", 1),
];
const MOST: usize = 20_000;

impl System {
    /// As it was at most so long ago.
    pub fn identity(&self, at_most: Duration) -> [u8; 32] {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        match *last {
            Some((at, known)) if at.elapsed() <= at_most => known,
            _ => {
                let now = look();
                *last = Some((Instant::now(), now));
                now
            }
        }
    }
}

fn look() -> [u8; 32] {
    let mut hash = Sha256::new();
    let kernel = rustix::system::uname();
    for text in [kernel.sysname(), kernel.release(), kernel.machine()] {
        hash.update(text.to_bytes_with_nul());
    }
    for path in DATABASES {
        hash.update(facts(Path::new(path)));
    }
    let mut left = MOST;
    for (top, depth) in DIRECTORIES {
        directories(PathBuf::from(top), depth, &mut left, &mut hash);
    }
    hash.finalize().into()
}

/// Entries that come, go or are replaced change the time of their directory.
fn directories(top: PathBuf, depth: usize, left: &mut usize, hash: &mut Sha256) {
    let mut dirs = vec![(top, depth)];
    while let Some((dir, depth)) = dirs.pop() {
        let Some(fewer) = left.checked_sub(1) else {
            return;
        };
        *left = fewer;
        hash.update(facts(&dir));
        if depth == 0 {
            continue;
        }
        let mut below: Vec<PathBuf> = fs::read_dir(&dir)
            .into_iter()
            .flatten()
            .flatten()
            .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
            .map(|entry| entry.path())
            .collect();
        below.sort();
        dirs.extend(below.into_iter().map(|path| (path, depth - 1)));
    }
}

/// What the kernel says of a file, through links; nothing where there is none.
pub(super) fn facts(path: &Path) -> Vec<u8> {
    let mut bytes = path.as_os_str().as_encoded_bytes().to_vec();
    bytes.push(0);
    if let Ok(found) = fs::metadata(path) {
        bytes.extend(stat_bytes(&found));
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_that_nobody_changes_is_the_same() {
        let system = System::default();
        // Somebody may install something just now, and then not again.
        let is_same = (0..10).any(|_| {
            let known = system.identity(Duration::ZERO);
            system.identity(Duration::from_secs(3600)) == known
                && system.identity(Duration::ZERO) == known
        });
        assert!(is_same);
    }

    /// Change times are as coarse as the kernel's clock on some kernels.
    fn next_tick() {
        std::thread::sleep(Duration::from_millis(12));
    }

    #[test]
    fn what_comes_goes_or_is_replaced_is_seen_as_deep_as_is_looked() {
        let top = tempfile::tempdir().unwrap();
        let deep = top.path().join("lib/python3/dist-packages");
        fs::create_dir_all(&deep).unwrap();
        let seen = || {
            let mut hash = Sha256::new();
            directories(top.path().to_owned(), 3, &mut 1000, &mut hash);
            <[u8; 32]>::from(hash.finalize())
        };
        let before = seen();
        assert_eq!(seen(), before);
        next_tick();
        fs::write(deep.join("module.py"), "1").unwrap();
        let after = seen();
        assert_ne!(after, before);
        let other = top.path().join("lib/python3/other");
        fs::write(&other, "2").unwrap();
        next_tick();
        fs::rename(&other, deep.join("module.py")).unwrap();
        assert_ne!(seen(), after);
    }
}
