//! What a program sees of the machine: the synthetic files of /etc, and as many CPUs as it may use.

use std::fmt::Write as _;

use crate::fixed;
use crate::walls::Walls;

/// The files that are written, never taken from the host: who lives here, and what the machine is called.
pub(crate) const ETC_FILES: [(&str, &str); 6] = [
    (
        "/etc/passwd",
        "root:x:0:0:root:/root:/usr/sbin/nologin\n\
         sandbox:x:1000:1000:sandbox:/home/sandbox:/bin/sh\n\
         nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
    ),
    (
        "/etc/group",
        "root:x:0:\nsandbox:x:1000:\nnogroup:x:65534:\n",
    ),
    (
        "/etc/hosts",
        "127.0.0.1 localhost sandbox\n::1 localhost sandbox\n",
    ),
    ("/etc/hostname", "sandbox\n"),
    (
        "/etc/nsswitch.conf",
        "passwd: files\ngroup: files\nhosts: files dns\nservices: files\nprotocols: files\n",
    ),
    // An address that no network routes: a look-up fails at once, and the attempt shows in the kernel's counters.
    (
        "/etc/resolv.conf",
        "nameserver 192.0.2.1\noptions attempts:1 timeout:1\n",
    ),
];

/// Public data of the host's /etc that programs need to work: no configuration that could name hosts, users or secrets.
pub(crate) const ETC_FROM_HOST: [&str; 7] = [
    "/etc/ld.so.cache",
    "/etc/alternatives",
    "/etc/ssl/certs",
    "/etc/java-11-openjdk",
    "/etc/java-17-openjdk",
    "/etc/java-21-openjdk",
    "/etc/maven",
];

/// All that are written for these walls.
pub(super) fn etc_files(walls: &Walls) -> impl Iterator<Item = (&'static str, &'static str)> {
    let fixed = walls.seed.map(|_| fixed::view::ETC_FILES);
    ETC_FILES.into_iter().chain(fixed.into_iter().flatten())
}

/// What is put over files in /proc where not all CPUs are shown, or where nothing of the machine's must show.
pub(super) fn proc_files(walls: &Walls, count: usize) -> Vec<(&'static str, String)> {
    match walls.seed {
        None => cpu_files(count).to_vec(),
        Some(_) => fixed::view::PROC_FILES
            .map(|(path, content)| (path, content.to_owned()))
            .to_vec(),
    }
}

/// /proc/cpuinfo and /proc/stat with the first `count` CPUs only, renumbered.
pub(crate) fn cpu_files(count: usize) -> [(&'static str, String); 2] {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    [
        ("/proc/cpuinfo", trim_cpuinfo(&read("/proc/cpuinfo"), count)),
        ("/proc/stat", trim_stat(&read("/proc/stat"), count)),
    ]
}

/// `0-3` or `0`, as /sys/devices/system/cpu/online spells it.
pub(crate) fn cpu_range(count: usize) -> String {
    match count {
        0 | 1 => "0\n".to_owned(),
        more => format!("0-{}\n", more - 1),
    }
}

fn trim_cpuinfo(text: &str, count: usize) -> String {
    let mut kept = String::new();
    for block in text
        .split("\n\n")
        .filter(|block| block.starts_with("processor"))
        .take(count)
    {
        let _ = write!(kept, "{block}\n\n");
    }
    kept
}

fn trim_stat(text: &str, count: usize) -> String {
    let is_beyond = |line: &str| {
        let digits = line
            .strip_prefix("cpu")
            .and_then(|rest| rest.split(' ').next());
        digits
            .and_then(|digits| digits.parse::<usize>().ok())
            .is_some_and(|cpu| cpu >= count)
    };
    let mut kept = String::new();
    for line in text.lines().filter(|line| !is_beyond(line)) {
        kept.push_str(line);
        kept.push('\n');
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_first_cpus_are_shown() {
        let stat = "cpu  1 2 3\ncpu0 1 1 1\ncpu1 0 1 2\ncpu10 1 1 1\nintr 5\n";
        assert_eq!(trim_stat(stat, 1), "cpu  1 2 3\ncpu0 1 1 1\nintr 5\n");
        let info = "processor : 0\nmodel : a\n\nprocessor : 1\nmodel : a\n\n";
        assert_eq!(trim_cpuinfo(info, 1), "processor : 0\nmodel : a\n\n");
        assert_eq!(cpu_range(1), "0\n");
        assert_eq!(cpu_range(4), "0-3\n");
    }
}
