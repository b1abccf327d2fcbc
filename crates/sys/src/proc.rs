//! What /proc says about a process tree, for hosts where no control group counts it. Each look is a moment; what lives and dies between two looks is not seen.

use std::collections::HashSet;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;

use crate::raw;

/// Reads a file of /proc from its beginning.
pub(crate) fn whole(file: BorrowedFd<'_>) -> Result<Vec<u8>, Errno> {
    let mut text = Vec::new();
    let mut chunk = [0u8; 4096];
    loop {
        match rustix::io::pread(file, &mut chunk, text.len() as u64)? {
            0 => return Ok(text),
            more => text.extend_from_slice(chunk.get(..more).unwrap_or_default()),
        }
    }
}

/// One process at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Process {
    pub pid: u32,
    pub parent: u32,
    /// When it was born, in ticks since boot: with the pid, a name that nobody else ever has.
    pub born: u64,
    /// CPU time of its own threads, dead ones included.
    pub cpu: Duration,
    /// CPU time of the children that it has waited for, and of theirs.
    pub cpu_of_waited: Duration,
    /// None are left of one that is dead and still to be waited for.
    pub threads: u64,
}

/// `root` and everything below it. The tree can change while it is read, so that a process handed to another parent is missed: those in `known`, by pid and
/// birth, are asked for by name.
pub fn tree(root: u32, known: impl Iterator<Item = (u32, u64)>) -> Vec<Process> {
    let mut found = Vec::new();
    let mut seen = HashSet::new();
    walk(root, &mut seen, &mut found);
    for (pid, born) in known {
        if !seen.contains(&pid) && process(pid).is_some_and(|process| process.born == born) {
            walk(pid, &mut seen, &mut found);
        }
    }
    found
}

fn walk(from: u32, seen: &mut HashSet<u32>, found: &mut Vec<Process>) {
    let mut next = vec![from];
    while let Some(pid) = next.pop() {
        if !seen.insert(pid) {
            continue;
        }
        if let Some(process) = process(pid) {
            found.push(process);
            next.extend(children(pid));
        }
    }
}

/// The memory of one process: what it has in its page tables, those of shared memory objects left out, and the tables themselves. What several processes share
/// counts for each of them.
pub fn resident_bytes(pid: u32) -> u64 {
    read(&format!("/proc/{pid}/status")).map_or(0, |text| {
        sum_kib(&text, &["RssAnon:", "RssFile:", "VmPTE:"])
    })
}

/// As [`resident_bytes`] with shared pages divided among their sharers: exact, and much slower.
pub fn proportional_bytes(pid: u32) -> u64 {
    let pages = read(&format!("/proc/{pid}/smaps_rollup")).map_or(0, |text| without_objects(&text));
    let tables = read(&format!("/proc/{pid}/status")).map_or(0, |text| sum_kib(&text, &["VmPTE:"]));
    pages + tables
}

/// Before Linux 5.3 the kinds are not told apart, and the whole is all there is.
fn without_objects(rollup: &str) -> u64 {
    if rollup.contains("\nPss_Anon:") {
        sum_kib(rollup, &["Pss_Anon:", "Pss_File:"])
    } else {
        sum_kib(rollup, &["Pss:"])
    }
}

fn sum_kib(text: &str, names: &[&str]) -> u64 {
    let value = |line: &str| {
        let rest = names.iter().find_map(|name| line.strip_prefix(name))?;
        rest.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()
    };
    text.lines().filter_map(value).sum::<u64>() * 1024
}

/// Whether two processes have one memory between them, as after vfork: then it must be counted once. A kernel that cannot say says no.
pub fn share_memory(one: u32, other: u32) -> bool {
    const KCMP_VM: usize = 1;
    // SAFETY: kcmp takes numbers only and touches no memory of ours.
    let answer = unsafe {
        raw::syscall(
            libc::SYS_kcmp,
            [one as usize, other as usize, KCMP_VM, 0, 0, 0],
        )
    };
    answer == Ok(0)
}

/// Shared memory of the whole machine, tmpfs included: no run can hold more.
pub fn machine_shared_bytes() -> u64 {
    let Some(text) = read("/proc/meminfo") else {
        return u64::MAX;
    };
    let swapped = sum_kib(&text, &["SwapTotal:"]).saturating_sub(sum_kib(&text, &["SwapFree:"]));
    sum_kib(&text, &["Shmem:"]) + swapped
}

/// Whether a process's descriptor is a file, whose mappings hold no memory of their own.
pub fn is_regular_file(pid: u32, descriptor: u64) -> bool {
    rustix::fs::stat(format!("/proc/{pid}/fd/{descriptor}"))
        .is_ok_and(|stat| stat.st_mode & libc::S_IFMT == libc::S_IFREG)
}

fn process(pid: u32) -> Option<Process> {
    parse_stat(pid, &read(&format!("/proc/{pid}/stat"))?)
}

fn parse_stat(pid: u32, text: &str) -> Option<Process> {
    // The command name may hold spaces and parentheses; the fields start after the last one.
    let fields: Vec<&str> = text.get(text.rfind(')')? + 2..)?.split(' ').collect();
    let field = |number: usize| fields.get(number - 3)?.trim().parse::<u64>().ok();
    let per_second = rustix::param::clock_ticks_per_second().max(1);
    let time = |ticks: u64| Duration::from_nanos(ticks * (1_000_000_000 / per_second));
    Some(Process {
        pid,
        parent: u32::try_from(field(4)?).ok()?,
        born: field(22)?,
        cpu: time(field(14)? + field(15)?),
        cpu_of_waited: time(field(16)? + field(17)?),
        threads: match fields.first()? {
            &"Z" | &"X" => 0,
            _ => field(20)?,
        },
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
    let text = whole(file.as_fd()).ok()?;
    Some(String::from_utf8_lossy(&text).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_name_cannot_confuse_the_fields() {
        let text = "42 (a) R (b 1 1 1) S 1 42 42 0 -1 4194304 100 0 0 0 7 5 3 2 20 0 4 0 100 1000000 25 18446744073709551615 1 1\n";
        assert_eq!(
            parse_stat(42, text),
            Some(Process {
                pid: 42,
                parent: 1,
                born: 100,
                cpu: Duration::from_millis(120),
                cpu_of_waited: Duration::from_millis(50),
                threads: 4,
            })
        );
        let dead = parse_stat(42, &text.replace(") S ", ") Z "));
        assert_eq!(dead.map(|dead| dead.threads), Some(0));
    }

    #[test]
    fn shared_memory_objects_are_left_to_those_who_count_objects() {
        let rollup = "5570 [rollup]\nRss:  100 kB\nPss: 90 kB\nPss_Dirty: 5 kB\nPss_Anon: 40 kB\nPss_File: 20 kB\nPss_Shmem: 30 kB\n";
        assert_eq!(without_objects(rollup), 60 << 10);
        assert_eq!(without_objects("x\nPss: 90 kB\n"), 90 << 10);
    }

    #[test]
    fn a_child_is_found_and_one_that_lost_its_parent_too() {
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
        let own = std::process::id();
        let found = tree(own, std::iter::empty());
        let there = found
            .iter()
            .find(|process| process.pid == child.id())
            .copied();
        let (resident, exact) = (resident_bytes(child.id()), proportional_bytes(child.id()));
        let elsewhere = tree(
            u32::MAX,
            there.map(|found| (found.pid, found.born)).into_iter(),
        );
        let somebody_else = tree(u32::MAX, [(child.id(), 0)].into_iter());
        let (same, different) = (share_memory(own, own), share_memory(own, child.id()));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(same && !different);
        assert_eq!(there.map(|found| found.parent), Some(own), "{found:?}");
        assert_eq!((elsewhere.len(), somebody_else.len()), (1, 0));
        assert!(resident >= exact && exact > 0, "{resident} {exact}");
    }
}
