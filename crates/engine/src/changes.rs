//! What a copy-on-write workspace would have changed, read from its upper layer. The program wrote every name in there, and the original may hold links to
//! anywhere, so nothing is followed and everything is opened beneath a directory that we hold.

use std::collections::HashSet;
use std::ffi::{CStr, CString, OsStr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use cofferdam_contract::record::{Change, ChangeKind};
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

/// A listing stops here; a run that changes more is not read by people.
const MAX_CHANGES: usize = 100_000;
/// The same in bytes of names, as they are written: the program chose how long they are, and this is the supervisor's memory.
const MAX_BYTES: usize = 4 << 20;

/// Compares the upper layer with the workspace that it covers. Directories deeper than the kernel's longest path are not entered.
pub(crate) fn list(upper: &OwnedFd, workspace: &Path) -> Vec<Change> {
    let original = rustix::fs::open(
        workspace,
        OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    )
    .ok();
    let mut listing = Listing {
        upper,
        original,
        found: Vec::new(),
        bytes: 0,
        next: vec![Place {
            path: PathBuf::new(),
            below: Below::Merged,
        }],
    };
    while let Some(place) = listing.next.pop() {
        if !listing.is_full() {
            listing.compare(&place);
        }
    }
    listing.found.sort();
    let found = listing.found.into_iter();
    found.map(|(path, kind)| Change { path, kind }).collect()
}

struct Listing<'a> {
    upper: &'a OwnedFd,
    original: Option<OwnedFd>,
    found: Vec<(String, ChangeKind)>,
    /// Of the names in `found` and in `next`.
    bytes: usize,
    next: Vec<Place>,
}

/// A directory of the upper layer.
struct Place {
    path: PathBuf,
    below: Below,
}

/// What the program saw through a directory of the upper layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Below {
    /// The original's directory, where the upper layer has nothing else.
    Merged,
    /// Nothing of the original's directory, which was removed and made anew.
    Hidden,
    /// There is no such directory in the original.
    Absent,
}

impl Listing<'_> {
    fn is_full(&self) -> bool {
        self.found.len() >= MAX_CHANGES || self.bytes >= MAX_BYTES
    }

    fn add(&mut self, path: &Path, kind: ChangeKind) {
        let path = readable(path.as_os_str().as_bytes());
        self.bytes += path.len();
        if self.bytes <= MAX_BYTES {
            self.found.push((path, kind));
        }
    }

    fn compare(&mut self, place: &Place) {
        let Ok(upper) = open_beneath(self.upper.as_fd(), &place.path) else {
            return;
        };
        let original = match (&self.original, place.below) {
            (Some(original), Below::Merged | Below::Hidden) => {
                open_beneath(original.as_fd(), &place.path).ok()
            }
            _ => None,
        };
        let names = names(&upper);
        for name in &names {
            if self.is_full() {
                return;
            }
            self.compare_entry(place, &upper, original.as_ref(), name);
        }
        if let (Below::Hidden, Some(original)) = (place.below, &original) {
            let kept: HashSet<&CString> = names.iter().collect();
            for gone in self::names(original)
                .iter()
                .filter(|name| !kept.contains(name))
            {
                self.add(&place.path.join(os(gone)), ChangeKind::Deleted);
            }
        }
    }

    fn compare_entry(
        &mut self,
        place: &Place,
        upper: &OwnedFd,
        original: Option<&OwnedFd>,
        name: &CStr,
    ) {
        let path = place.path.join(os(name));
        let Ok(stat) = rustix::fs::statat(upper, name, AtFlags::SYMLINK_NOFOLLOW) else {
            return;
        };
        let kind = FileType::from_raw_mode(stat.st_mode);
        let before = original
            .and_then(|original| rustix::fs::statat(original, name, AtFlags::SYMLINK_NOFOLLOW).ok())
            .map(|stat| FileType::from_raw_mode(stat.st_mode));
        let change = match (kind, before) {
            (FileType::CharacterDevice, Some(_)) if stat.st_rdev == 0 => Some(ChangeKind::Deleted),
            (FileType::CharacterDevice, None) if stat.st_rdev == 0 => None,
            // A directory that was there is in the upper layer because of what is in it.
            (FileType::Directory, Some(FileType::Directory)) => None,
            (_, Some(_)) => Some(ChangeKind::Modified),
            (_, None) => Some(ChangeKind::Added),
        };
        if let Some(change) = change {
            self.add(&path, change);
        }
        if kind != FileType::Directory {
            return;
        }
        if Mode::from_raw_mode(stat.st_mode) & Mode::RWXU != Mode::RWXU {
            // The program's own directory, in a layer that is about to be thrown away.
            let _ = rustix::fs::chmodat(upper, name, Mode::RWXU, AtFlags::empty());
        }
        let below = match before {
            Some(FileType::Directory) if place.below == Below::Hidden => Below::Hidden,
            Some(FileType::Directory) if is_opaque(upper, name) => Below::Hidden,
            Some(FileType::Directory) => Below::Merged,
            Some(_) | None => Below::Absent,
        };
        self.bytes += path.as_os_str().len();
        self.next.push(Place { path, below });
    }
}

/// The kernel marks a directory that hides the original's: under the first name inside a user namespace, under the second for root.
fn is_opaque(parent: &OwnedFd, name: &CStr) -> bool {
    let Ok(dir) = open_beneath(parent.as_fd(), Path::new(os(name))) else {
        return false;
    };
    [c"user.overlay.opaque", c"trusted.overlay.opaque"]
        .iter()
        .any(|mark| {
            let mut value = [0u8; 4];
            rustix::fs::fgetxattr(&dir, *mark, &mut value)
                .is_ok_and(|length| value.get(..length) == Some(b"y"))
        })
}

fn open_beneath(top: BorrowedFd<'_>, path: &Path) -> Result<OwnedFd, Errno> {
    let path = if path.as_os_str().is_empty() {
        Path::new(".")
    } else {
        path
    };
    rustix::fs::openat2(
        top,
        path,
        OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW,
        Mode::empty(),
        ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS,
    )
}

fn names(dir: &OwnedFd) -> Vec<CString> {
    let Ok(entries) = Dir::read_from(dir) else {
        return Vec::new();
    };
    let mut bytes = 0;
    entries
        .flatten()
        .map(|entry| entry.file_name().to_owned())
        .filter(|name| name.as_c_str() != c"." && name.as_c_str() != c"..")
        .take_while(|name| {
            bytes += name.count_bytes();
            bytes <= MAX_BYTES
        })
        .take(MAX_CHANGES)
        .collect()
}

fn os(name: &CStr) -> &OsStr {
    OsStr::from_bytes(name.to_bytes())
}

/// Bytes that are no text are spelled out, so that two such names stay two.
pub(crate) fn readable(bytes: &[u8]) -> String {
    let mut text = String::new();
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        for byte in chunk.invalid() {
            text.push_str(&format!("\\x{byte:02x}"));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn listed(upper: &Path, workspace: &Path) -> Vec<(String, ChangeKind)> {
        let upper = rustix::fs::open(upper, OFlags::DIRECTORY, Mode::empty()).unwrap();
        list(&upper, workspace)
            .into_iter()
            .map(|change| (change.path, change.kind))
            .collect()
    }

    fn put(top: &tempfile::TempDir, paths: &[&str]) {
        for path in paths {
            let path = top.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "x").unwrap();
        }
    }

    #[test]
    fn a_directory_over_a_link_is_not_compared_with_where_the_link_leads() {
        let (workspace, elsewhere, upper) = (
            tempfile::tempdir().unwrap(),
            tempfile::tempdir().unwrap(),
            tempfile::tempdir().unwrap(),
        );
        put(&elsewhere, &["passwd"]);
        put(&workspace, &["dir/a", "file"]);
        symlink(elsewhere.path(), workspace.path().join("link")).unwrap();
        put(&upper, &["link/passwd", "dir/a", "dir/b", "file/x"]);
        use ChangeKind::{Added, Modified};
        assert_eq!(
            listed(upper.path(), workspace.path()),
            [
                ("dir/a".to_owned(), Modified),
                ("dir/b".to_owned(), Added),
                ("file".to_owned(), Modified),
                ("file/x".to_owned(), Added),
                ("link".to_owned(), Modified),
                ("link/passwd".to_owned(), Added),
            ]
        );
    }

    #[test]
    fn long_names_do_not_make_the_list_large() {
        let (workspace, upper) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let deep = format!("{0}/{0}/{0}/{0}", "\u{e9}".repeat(120));
        let deep = upper.path().join(deep);
        std::fs::create_dir_all(&deep).unwrap();
        for number in 0..8000 {
            std::fs::write(deep.join(number.to_string()), "").unwrap();
        }
        let listed = listed(upper.path(), workspace.path());
        let bytes: usize = listed.iter().map(|(path, _)| path.len()).sum();
        assert!((MAX_BYTES / 2..=MAX_BYTES).contains(&bytes), "{bytes}");
    }

    #[test]
    fn names_that_are_no_text_stay_apart() {
        let name = |bytes: &'static [u8]| readable(bytes);
        assert_eq!(name(b"caf\xc3\xa9"), "café");
        assert_eq!(
            (name(b"a\xff"), name(b"a\xfe\xc3")),
            ("a\\xff".to_owned(), "a\\xfe\\xc3".to_owned())
        );
    }
}
