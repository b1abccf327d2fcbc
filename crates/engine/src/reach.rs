//! Whether a program that may write to one directory could reach another through it: by its path, by a link on the way, or by a mount that shows it a second time.

use std::ffi::OsStr;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Component, Path, PathBuf};

/// A place as the kernel knows it: a file system, and a path from its own root.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Place {
    device: String,
    path: PathBuf,
}

/// One line of `/proc/self/mountinfo`.
#[derive(Debug)]
struct Mount {
    device: String,
    /// What of the file system is shown.
    root: PathBuf,
    at: PathBuf,
}

/// As many as the kernel follows.
const MOST_LINKS: usize = 40;

/// Whether whoever writes below `writable` could change what is found at `wanted`, or what leads there.
pub(crate) fn reaches(writable: &Path, wanted: &Path) -> bool {
    let (Ok(writable), Ok(wanted)) = (writable.canonicalize(), std::path::absolute(wanted)) else {
        return false;
    };
    let mounts = mounts();
    let mut open = vec![place(&mounts, &writable)];
    // What is mounted below is shown, too.
    let below = mounts
        .iter()
        .filter(|mount| mount.at.starts_with(&writable));
    open.extend(below.map(|mount| Place {
        device: mount.device.clone(),
        path: mount.root.clone(),
    }));
    let on_the_way = on_the_way(&wanted);
    let target = on_the_way.last().cloned();
    let is_open = |spot: &Path| {
        let spot = place(&mounts, spot);
        open.iter().any(|open| contains(open, &spot))
    };
    // A directory within the wanted one is as bad as one around it.
    let is_within = target.is_some_and(|target| {
        let target = place(&mounts, &target);
        open.iter().any(|open| contains(&target, open))
    });
    is_within || on_the_way.iter().any(|spot| is_open(spot))
}

fn contains(outer: &Place, inner: &Place) -> bool {
    outer.device == inner.device && inner.path.starts_with(&outer.path)
}

/// Every entry that is looked at on the way to a path, links included, with the links before each resolved. What does not exist yet counts as what it will be.
fn on_the_way(path: &Path) -> Vec<PathBuf> {
    let mut spots = Vec::new();
    let mut here = PathBuf::from("/");
    let mut left: Vec<PathBuf> = parts(path);
    let mut links = 0;
    while let Some(part) = left.pop() {
        if part.as_os_str() == ".." {
            here.pop();
            continue;
        }
        let entry = here.join(&part);
        spots.push(entry.clone());
        match std::fs::read_link(&entry) {
            Ok(target) if links < MOST_LINKS => {
                links += 1;
                if target.is_absolute() {
                    here = PathBuf::from("/");
                }
                left.extend(parts(&target));
            }
            _ => here = entry,
        }
    }
    spots
}

/// Last first.
fn parts(path: &Path) -> Vec<PathBuf> {
    let named = path.components().filter_map(|component| match component {
        Component::Normal(name) => Some(PathBuf::from(name)),
        Component::ParentDir => Some(PathBuf::from("..")),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    });
    let mut named: Vec<PathBuf> = named.collect();
    named.reverse();
    named
}

/// Of several mounts over each other, the last one is seen.
fn place(mounts: &[Mount], path: &Path) -> Place {
    let mut found = Place {
        device: String::new(),
        path: path.to_owned(),
    };
    let mut longest = 0;
    for mount in mounts {
        let length = mount.at.as_os_str().len();
        if let Ok(rest) = path.strip_prefix(&mount.at)
            && length >= longest
        {
            longest = length;
            found = Place {
                device: mount.device.clone(),
                path: if rest.as_os_str().is_empty() {
                    mount.root.clone()
                } else {
                    mount.root.join(rest)
                },
            };
        }
    }
    found
}

fn mounts() -> Vec<Mount> {
    let text = std::fs::read("/proc/self/mountinfo").unwrap_or_default();
    text.split(|byte| *byte == b'\n')
        .filter_map(|line| {
            let mut fields = line.split(|byte| *byte == b' ').skip(2);
            let device = String::from_utf8_lossy(fields.next()?).into_owned();
            Some(Mount {
                device,
                root: unescaped(fields.next()?),
                at: unescaped(fields.next()?),
            })
        })
        .collect()
}

/// The kernel writes blanks, tabs, line ends and backslashes as `\040`.
fn unescaped(field: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, after)) = rest.split_first() {
        let octal = after
            .get(..3)
            .filter(|_| *first == b'\\')
            .and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok());
        match octal {
            Some(byte) => {
                bytes.push(byte);
                rest = after.get(3..).unwrap_or_default();
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    PathBuf::from(std::ffi::OsString::from_vec(bytes))
}

/// For messages and records: bytes that are not UTF-8 are written as `\xff`.
pub(crate) fn shown(path: &Path) -> String {
    crate::changes::readable(OsStr::as_bytes(path.as_os_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_links_and_spellings_lead_there() {
        let top = tempfile::tempdir().unwrap();
        let top = top.path();
        for dir in ["work/data", "work/sub", "elsewhere/data", "other"] {
            std::fs::create_dir_all(top.join(dir)).unwrap();
        }
        std::os::unix::fs::symlink(top.join("elsewhere"), top.join("work/link")).unwrap();
        std::os::unix::fs::symlink("work", top.join("alias")).unwrap();
        let work = top.join("work");
        for reached in [
            "work",
            "work/data",
            "work/not/yet",
            "alias/data",
            "other/../work/data",
            // The program could lead this link somewhere else.
            "work/link/data",
            // What holds the workspace.
            ".",
        ] {
            assert!(reaches(&work, &top.join(reached)), "{reached}");
        }
        for safe in ["elsewhere/data", "other", "workshop"] {
            assert!(!reaches(&work, &top.join(safe)), "{safe}");
        }
        assert!(!reaches(&top.join("missing"), &top.join("other")));
    }

    #[test]
    fn fields_of_mountinfo_are_read() {
        assert_eq!(unescaped(b"/a\\040b\\134c"), Path::new("/a b\\c"));
        assert_eq!(unescaped(b"/a\\9"), Path::new("/a\\9"));
        assert!(mounts().iter().any(|mount| mount.at == Path::new("/")));
    }
}
