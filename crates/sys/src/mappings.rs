//! Memory and disk space that only a mapping keeps: shared objects that are not, or no longer, in anybody's page tables, and files that have lost their name.

use std::collections::{HashMap, HashSet};

/// A file or memory object that has no name, by device and inode number as the kernel prints them in a process's mappings.
pub type ObjectId = (u64, u64);

/// Shared memory that the processes of a run keep by mapping it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SharedMemory {
    /// What the objects hold whose size the kernel told, resident or not.
    pub known_bytes: u64,
    /// The objects whose size is not ours to know, each with the end of the part that is mapped.
    pub unknown: HashMap<ObjectId, u64>,
}

/// Shared memory objects that these processes map: `MAP_SHARED | MAP_ANONYMOUS`, memfd, System V. `/proc/PID/map_files` tells what each holds, to who is
/// privileged in the machine's own user namespace.
pub fn shared_memory(pids: &[u32]) -> SharedMemory {
    let mut kept = SharedMemory::default();
    let mut counted = HashSet::new();
    for pid in pids {
        for mapping in mappings(*pid).filter(|mapping| mapping.kind == Kind::SharedMemory) {
            if counted.contains(&mapping.object) {
                continue;
            }
            if let Some(stat) = stat_mapped(*pid, &mapping.range) {
                counted.insert(mapping.object);
                kept.known_bytes += allocated(&stat);
            } else {
                let end = kept.unknown.entry(mapping.object).or_default();
                *end = (*end).max(mapping.end_in_object);
            }
        }
    }
    kept.unknown.retain(|object, _| !counted.contains(object));
    kept
}

/// Space of files without a name.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Nameless {
    pub bytes: u64,
    /// Whether a mapping keeps one whose size is not ours to know.
    pub has_unknown: bool,
}

/// Files without a name on `device` that these processes hold open or have mapped, each once.
pub fn nameless_files(pids: &[u32], device: u64) -> Nameless {
    let mut counted = HashSet::new();
    let mut bytes = 0;
    let mut count = |stat: &rustix::fs::Stat| {
        let here = stat.st_dev == device && is_nameless(stat);
        if here && counted.insert(stat.st_ino) {
            bytes += allocated(stat);
        }
    };
    for_each_open(pids, |_, stat| count(stat));
    let mut has_unknown = false;
    for pid in pids {
        for mapping in mappings(*pid).filter(|mapping| mapping.kind == Kind::NamelessFile) {
            match stat_mapped(*pid, &mapping.range) {
                Some(stat) => count(&stat),
                None => has_unknown = true,
            }
        }
    }
    Nameless { bytes, has_unknown }
}

/// What nameless files in memory hold that these processes have open, each once.
pub fn nameless_memory(pids: &[u32]) -> u64 {
    const TMPFS: i64 = 0x0102_1994;
    const HUGETLBFS: i64 = 0x9584_58f6;
    let mut counted = HashSet::new();
    let mut bytes = 0;
    for_each_open(pids, |path, stat| {
        if is_nameless(stat)
            && rustix::fs::statfs(path).is_ok_and(|fs| matches!(fs.f_type, TMPFS | HUGETLBFS))
            && counted.insert((stat.st_dev, stat.st_ino))
        {
            bytes += allocated(stat);
        }
    });
    bytes
}

fn for_each_open(pids: &[u32], mut each: impl FnMut(&std::path::Path, &rustix::fs::Stat)) {
    for pid in pids {
        let Ok(entries) = std::fs::read_dir(format!("/proc/{pid}/fd")) else {
            continue;
        };
        for entry in entries.flatten() {
            let path = entry.path();
            if let Ok(stat) = rustix::fs::stat(&path) {
                each(&path, &stat);
            }
        }
    }
}

fn is_nameless(stat: &rustix::fs::Stat) -> bool {
    stat.st_mode & libc::S_IFMT == libc::S_IFREG && stat.st_nlink == 0
}

fn allocated(stat: &rustix::fs::Stat) -> u64 {
    stat.st_blocks.unsigned_abs() * 512
}

fn stat_mapped(pid: u32, range: &str) -> Option<rustix::fs::Stat> {
    // The directory spells its ranges without the zeros that pad those of the list.
    let (start, end) = range.split_once('-')?;
    let plain = |text: &str| u64::from_str_radix(text, 16).ok();
    let (start, end) = (plain(start)?, plain(end)?);
    rustix::fs::stat(format!("/proc/{pid}/map_files/{start:x}-{end:x}")).ok()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    SharedMemory,
    NamelessFile,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Mapping {
    range: String,
    object: ObjectId,
    /// Where the mapped part ends in the object.
    end_in_object: u64,
    kind: Kind,
}

fn mappings(pid: u32) -> impl Iterator<Item = Mapping> {
    let bytes = std::fs::read(format!("/proc/{pid}/maps")).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes).into_owned();
    text.lines()
        .filter_map(parse_line)
        .collect::<Vec<_>>()
        .into_iter()
}

/// `7f00-7f01 rw-s 00000000 00:01 1027   /dev/zero (deleted)`. Only what has lost its name is of interest; a file whose name ends like that is asked about too,
/// and turns out to have one.
fn parse_line(line: &str) -> Option<Mapping> {
    let named = line.strip_suffix(" (deleted)")?;
    let mut fields = named.split_ascii_whitespace();
    let range = fields.next()?;
    let (start, end) = range.split_once('-')?;
    let hex = |text: &str| u64::from_str_radix(text, 16).ok();
    let length = hex(end)?.checked_sub(hex(start)?)?;
    let offset = hex(fields.nth(1)?)?;
    let (major, minor) = fields.next()?.split_once(':')?;
    let device = libc::makedev(
        u32::from_str_radix(major, 16).ok()?,
        u32::from_str_radix(minor, 16).ok()?,
    );
    let inode = fields.next()?.parse().ok()?;
    let name = fields.next()?;
    let in_memory = ["/dev/zero", "/memfd:", "/SYSV", "/anon_hugepage"]
        .iter()
        .any(|prefix| name.starts_with(prefix));
    Some(Mapping {
        range: range.to_owned(),
        object: (device, inode),
        end_in_object: offset.saturating_add(length),
        kind: if in_memory {
            Kind::SharedMemory
        } else {
            Kind::NamelessFile
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_memory_and_lost_files_are_told_apart_from_all_else() {
        let read = |line| parse_line(line).map(|found| (found.kind, found.end_in_object));
        assert_eq!(
            read("7f0000001000-7f0000003000 rw-s 00001000 00:01 1027    /dev/zero (deleted)"),
            Some((Kind::SharedMemory, 0x3000))
        );
        assert_eq!(
            read("7f0000001000-7f0000002000 r--s 00000000 fe:00 12 /work/a b (deleted)"),
            Some((Kind::NamelessFile, 0x1000))
        );
        for other in [
            "7f0000001000-7f0000002000 r--p 00000000 fe:00 12 /usr/bin/cat",
            "7ffe00000000-7ffe00021000 rw-p 00000000 00:00 0 [stack]",
            "7f0000001000-7f0000002000 rw-p 00000000 00:00 0 ",
            " (deleted)",
            "",
        ] {
            assert_eq!(read(other), None, "{other}");
        }
    }

    #[test]
    fn an_unlinked_file_that_is_open_counts_once() {
        use std::io::Write as _;
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[7; 100_000]).unwrap();
        file.sync_all().unwrap();
        let _again = file.try_clone().unwrap();
        let stat = rustix::fs::fstat(&file).unwrap();
        let found = nameless_files(&[std::process::id()], stat.st_dev);
        // Other tests of this process may have such files too.
        assert!((98_304..400_000).contains(&found.bytes), "{found:?}");
    }
}
