//! What /proc says about a process tree, for hosts where no control group counts it. Each look is a moment; what lives and dies between two looks is not seen.

use std::collections::HashSet;
use std::os::fd::AsFd;
use std::time::Duration;

use rustix::fs::{CWD, Mode, OFlags};

/// The sum over a process tree at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TreeUsage {
    pub pids: Vec<u32>,
    /// Of everything alive, and of everything dead that its parent waited for.
    pub cpu: Duration,
    /// Resident pages; what several processes share counts once for each.
    pub resident_bytes: u64,
    /// Processes and threads, the root of the tree not counted.
    pub tasks: u64,
}

/// Looks at `root` and everything below it.
pub fn tree_usage(root: u32) -> TreeUsage {
    let mut usage = TreeUsage::default();
    let mut seen: HashSet<u32> = HashSet::new();
    let mut next = vec![root];
    while let Some(pid) = next.pop() {
        if !seen.insert(pid) {
            continue;
        }
        let Some(stat) = read(&format!("/proc/{pid}/stat")).and_then(|text| parse_stat(&text))
        else {
            continue;
        };
        usage.cpu += stat.cpu;
        if pid != root {
            usage.pids.push(pid);
            usage.resident_bytes += stat.resident_bytes;
            usage.tasks += stat.threads;
        }
        next.extend(children(pid));
    }
    usage
}

/// Memory of these processes with shared pages divided among their sharers: exact, and slower than [`tree_usage`].
pub fn proportional_bytes(pids: &[u32]) -> u64 {
    let pss = |pid: &u32| {
        let text = read(&format!("/proc/{pid}/smaps_rollup"))?;
        let line = text.lines().find_map(|line| line.strip_prefix("Pss:"))?;
        line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()
    };
    pids.iter().filter_map(pss).sum::<u64>() * 1024
}

/// Space held by files that these processes have open and that no longer have a name (or never had one), each once. `device` restricts it to one file system.
pub fn nameless_bytes(pids: &[u32], device: Option<u64>) -> u64 {
    let mut seen = HashSet::new();
    let mut bytes = 0;
    for pid in pids {
        let Ok(entries) = std::fs::read_dir(format!("/proc/{pid}/fd")) else {
            continue;
        };
        for entry in entries.flatten() {
            let Ok(stat) = rustix::fs::stat(entry.path()) else {
                continue;
            };
            let regular = stat.st_mode & libc::S_IFMT == libc::S_IFREG;
            let here = device.is_none_or(|device| stat.st_dev == device);
            if regular && here && stat.st_nlink == 0 && seen.insert((stat.st_dev, stat.st_ino)) {
                bytes += stat.st_blocks.unsigned_abs() * 512;
            }
        }
    }
    bytes
}

struct Stat {
    cpu: Duration,
    resident_bytes: u64,
    threads: u64,
}

fn parse_stat(text: &str) -> Option<Stat> {
    // The command name may hold spaces and parentheses; the fields start after the last one.
    let fields: Vec<&str> = text.get(text.rfind(')')? + 2..)?.split(' ').collect();
    let field = |number: usize| fields.get(number - 3)?.trim().parse::<i64>().ok();
    let ticks: i64 = field(14)? + field(15)? + field(16)? + field(17)?;
    let per_second = rustix::param::clock_ticks_per_second().max(1);
    let page = rustix::param::page_size() as u64;
    Some(Stat {
        cpu: Duration::from_nanos(ticks.unsigned_abs() * (1_000_000_000 / per_second)),
        resident_bytes: field(24)?.unsigned_abs() * page,
        threads: field(20)?.unsigned_abs(),
    })
}

fn children(pid: u32) -> Vec<u32> {
    let Ok(tasks) = std::fs::read_dir(format!("/proc/{pid}/task")) else {
        return Vec::new();
    };
    let mut found = Vec::new();
    for task in tasks.flatten() {
        let Ok(text) = std::fs::read_to_string(task.path().join("children")) else {
            continue;
        };
        found.extend(
            text.split_whitespace()
                .filter_map(|word| word.parse::<u32>().ok()),
        );
    }
    found
}

fn read(path: &str) -> Option<String> {
    let file =
        rustix::fs::openat(CWD, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let mut buffer = [0u8; 4096];
    let length = rustix::io::read(file.as_fd(), &mut buffer).ok()?;
    Some(String::from_utf8_lossy(buffer.get(..length)?).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_name_cannot_confuse_the_fields() {
        let text = "42 (a) R (b 1 1 1) S 1 42 42 0 -1 4194304 100 0 0 0 7 5 3 2 20 0 4 0 100 1000000 25 18446744073709551615 1 1\n";
        let stat = parse_stat(text).unwrap();
        assert_eq!(stat.cpu, Duration::from_millis(170));
        assert_eq!(stat.threads, 4);
        assert_eq!(stat.resident_bytes, 25 * rustix::param::page_size() as u64);
    }

    #[test]
    fn this_process_is_found() {
        use std::io::{Read as _, Write as _};
        use std::process::Stdio;
        let mut child = std::process::Command::new("cat")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        // Once it echoes it has been executed and has pages of its own.
        child.stdin.as_mut().unwrap().write_all(b"x").unwrap();
        child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
        let usage = tree_usage(std::process::id());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(usage.pids.contains(&child.id()), "{usage:?}");
        assert!(usage.tasks >= 1 && usage.resident_bytes > 0, "{usage:?}");
    }
}
