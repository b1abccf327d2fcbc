//! What a record says about a run that had to give the same each time: for each thing that differs between runs, whether it is fixed, seeded or not fixed, and by what.

use std::collections::BTreeMap;
use std::ffi::OsString;

use super::answers::Answers;

/// What such a program finds in its environment, unless the caller has set it.
pub(crate) fn variables(seed: u64) -> Vec<(OsString, OsString)> {
    // Python takes 32 bits.
    let [a, b, c, d, ..] = seed.to_le_bytes();
    let python = u32::from_le_bytes([a, b, c, d]);
    let all = [
        ("LC_ALL", "C.UTF-8".to_owned()),
        ("TZ", "UTC0".to_owned()),
        ("PYTHONHASHSEED", python.to_string()),
        ("PERL_HASH_SEED", format!("0x{seed:016x}")),
        ("PERL_PERTURB_KEYS", "DETERMINISTIC".to_owned()),
    ];
    let all = all.into_iter();
    all.map(|(name, value)| (name.into(), value.into()))
        .collect()
}

impl Answers {
    /// What was done, and what was not.
    pub(crate) fn account(&self) -> BTreeMap<String, String> {
        let seed = self.seed();
        let seeded = |what: &str| format!("seeded: {what} from seed {seed}");
        let short = &self.shortfall;
        let mut told: BTreeMap<&str, String> = ALWAYS
            .into_iter()
            .map(|(item, how)| (item, how.to_owned()))
            .collect();
        told.insert("random", seeded("getrandom has a sequence for each thread"));
        told.insert("hash_seeds", seeded("PYTHONHASHSEED and PERL_HASH_SEED"));
        told.insert(
            "random_device",
            match short.device {
                None => seeded("/dev/urandom and /dev/random are one sequence for all readers"),
                Some(errno) => format!("not fixed: its pipe could not be opened ({errno})"),
            },
        );
        told.insert(
            "random_at_start",
            match short.clocks {
                None => seeded("the 16 bytes that the kernel gives a program"),
                Some(errno) => {
                    format!("not fixed: a program's memory could not be changed ({errno})")
                }
            },
        );
        told.insert(
            "clock",
            match short.clocks {
                None => CLOCK.to_owned(),
                Some(errno) => format!(
                    "not fixed: a program reads it without a call, and its memory could not be changed ({errno})"
                ),
            },
        );
        if short.machine_time {
            let how =
                "not fixed: without a time namespace, a wait until a point in time ends at once";
            told.insert("waits", how.to_owned());
        }
        if short.calls > 0 {
            let how = format!("not fixed: the kernel's own answer, {} times", short.calls);
            told.insert("unanswered", how);
        }
        let told = told.into_iter();
        told.map(|(item, how)| (item.to_owned(), how)).collect()
    }
}

const CLOCK: &str = "fixed: from 2000-01-01T00:00:00Z, 10 microseconds for each look, and what was waited out; the clock of CPU time is the same one";

/// What is so in every such run.
const ALWAYS: [(&str, &str); 17] = [
    ("addresses", "fixed: no random placement"),
    ("cpus", "fixed: one, numbered 0"),
    ("directories", "fixed: in the order of names"),
    ("environment", "fixed: clean, LC_ALL=C.UTF-8, TZ=UTC0"),
    ("host_name", "fixed: sandbox"),
    (
        "machine",
        "fixed: /proc/cpuinfo, meminfo, stat, uptime, loadavg, boot id, machine id, sysinfo",
    ),
    (
        "process_numbers",
        "fixed: the program is 2, its children count from there",
    ),
    (
        "resource_limits",
        "fixed: those that shape a program's memory",
    ),
    ("umask", "fixed: 022"),
    (
        "waits",
        "fixed: they take as long as they say, and move the clock by that when they were waited out",
    ),
    ("file_times", "not fixed: files have the machine's time"),
    (
        "file_numbers",
        "not fixed: inode and device numbers are the file system's",
    ),
    (
        "instructions",
        "not fixed: rdtsc, rdrand and cpuid need no call",
    ),
    ("kernel", "not fixed: uname says the machine's"),
    (
        "memory_use",
        "not fixed: /proc/self tells what the kernel counts",
    ),
    (
        "order",
        "not fixed: threads and processes at the same time take turns as they come",
    ),
    ("timers", "not fixed: alarms go off in real time"),
];

#[cfg(test)]
mod tests {
    use rustix::io::Errno;

    use super::*;

    #[test]
    fn every_item_says_what_it_is_and_a_shortfall_shows() {
        let mut answers = Answers::new(7);
        let told = answers.account();
        let words = ["fixed: ", "seeded: ", "not fixed: "];
        let is_told = |how: &String| words.iter().any(|word| how.starts_with(word));
        assert!(told.values().all(is_told), "{told:#?}");
        assert!(told["clock"].starts_with("fixed: ") && told["random"].ends_with("seed 7"));
        answers.shortfall.clocks = Some(Errno::PERM);
        answers.shortfall.calls = 3;
        let told = answers.account();
        assert!(told["clock"].starts_with("not fixed: "));
        assert!(told["unanswered"].contains('3'));
    }

    #[test]
    fn a_seed_of_any_size_gives_python_what_it_takes() {
        let python = |seed| variables(seed)[2].1.clone();
        assert_eq!(python(7), "7");
        assert_eq!(python(u64::MAX), "4294967295");
    }
}
