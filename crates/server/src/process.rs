//! What the kernel says about this process: memory, descriptors, threads, time. What cannot be read is left out.

use std::fs;

/// Figures of one moment.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct Process {
    pub(crate) resident_bytes: Option<u64>,
    pub(crate) open_files: Option<usize>,
    pub(crate) most_files: Option<u64>,
    pub(crate) threads: Option<u64>,
    pub(crate) cpu_seconds: Option<f64>,
    /// Since 1970, in seconds.
    pub(crate) started: Option<f64>,
}

impl Process {
    pub(crate) fn read() -> Self {
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
        let system = fs::read_to_string("/proc/stat").unwrap_or_default();
        let ticks = rustix::param::clock_ticks_per_second() as f64;
        Self {
            resident_bytes: field(&status, "VmRSS:").and_then(|kib| kib.checked_mul(1024)),
            // Less the one that the directory is read with.
            open_files: fs::read_dir("/proc/self/fd")
                .ok()
                .map(|found| found.count().saturating_sub(1)),
            most_files: rustix::process::getrlimit(rustix::process::Resource::Nofile).current,
            threads: field(&status, "Threads:"),
            cpu_seconds: cpu_ticks(&stat).map(|used| used as f64 / ticks),
            started: started(&stat, &system, ticks),
        }
    }
}

/// The first number after a name at the beginning of a line.
fn field(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Fields after the name, which may hold anything; the first of them is the third of the file.
fn after_name(stat: &str) -> Option<impl Iterator<Item = &str>> {
    let (_, rest) = stat.rsplit_once(')')?;
    Some(rest.split_whitespace())
}

fn cpu_ticks(stat: &str) -> Option<u64> {
    let mut times = after_name(stat)?.skip(11);
    let (user, system): (u64, u64) = (times.next()?.parse().ok()?, times.next()?.parse().ok()?);
    user.checked_add(system)
}

fn started(stat: &str, system: &str, ticks: f64) -> Option<f64> {
    let since_boot: u64 = after_name(stat)?.nth(19)?.parse().ok()?;
    let boot = field(system, "btime")?;
    Some(boot as f64 + since_boot as f64 / ticks)
}

#[cfg(test)]
mod tests {
    use std::time::{SystemTime, UNIX_EPOCH};

    use super::*;

    #[test]
    fn this_process_is_described_as_it_is() {
        let before = Process::read();
        let held: Vec<_> = (0..10)
            .map(|_| fs::File::open("/dev/null").unwrap())
            .collect();
        let after = Process::read();
        assert_eq!(
            after.open_files,
            before.open_files.map(|open| open + held.len())
        );
        assert!(after.resident_bytes.unwrap() > 1 << 20);
        assert!(after.threads.unwrap() >= 1);
        assert!(after.cpu_seconds.unwrap() >= before.cpu_seconds.unwrap());
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let age = now.as_secs_f64() - after.started.unwrap();
        assert!((-5.0..3600.0).contains(&age), "{age}");
    }

    #[test]
    fn a_name_with_parentheses_misleads_nobody() {
        let stat = "1 (a) b (c) S 1 1 1 0 -1 0 0 0 0 0 700 300 0 0 20 0 1 0 4200 0 0";
        assert_eq!(cpu_ticks(stat), Some(1000));
        assert_eq!(started(stat, "cpu 1\nbtime 1000\n", 100.0), Some(1042.0));
        assert_eq!(cpu_ticks("nonsense"), None);
    }
}
