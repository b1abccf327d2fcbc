//! What a program sees of the machine in a run that must give the same each time: one processor, a fixed amount of memory, no load, names that are nobody's.

/// In the scratch file system; put where `/dev/urandom` is.
pub(crate) const RANDOM_PIPE: &str = "random";

/// Put over the kernel's files of these names.
pub(crate) const PROC_FILES: [(&str, &str); 9] = [
    (
        "/proc/cpuinfo",
        "processor\t: 0\nvendor_id\t: unknown\nmodel name\t: unknown\ncpu MHz\t\t: 1000.000\nphysical id\t: 0\nsiblings\t: 1\ncore id\t\t: 0\ncpu cores\t: 1\n\n",
    ),
    (
        "/proc/stat",
        "cpu  0 0 0 0 0 0 0 0 0 0\ncpu0 0 0 0 0 0 0 0 0 0 0\nintr 0\nctxt 0\nbtime 946684799\nprocesses 2\nprocs_running 1\nprocs_blocked 0\n",
    ),
    ("/proc/uptime", "1.00 1.00\n"),
    ("/proc/loadavg", "0.00 0.00 0.00 1/2 2\n"),
    (
        "/proc/meminfo",
        "MemTotal:        1048576 kB\nMemFree:         1048576 kB\nMemAvailable:    1048576 kB\nBuffers:               0 kB\nCached:                0 kB\nSwapTotal:             0 kB\nSwapFree:              0 kB\n",
    ),
    ("/proc/vmstat", "nr_free_pages 262144\n"),
    ("/proc/sys/kernel/random/boot_id", UUID),
    ("/proc/sys/kernel/random/uuid", UUID),
    ("/proc/sys/kernel/random/entropy_avail", "256\n"),
];

const UUID: &str = "00000000-0000-4000-8000-000000000000\n";

/// Written besides what every sandbox has in /etc.
pub(crate) const ETC_FILES: [(&str, &str); 2] = [
    ("/etc/machine-id", "00000000000040008000000000000000\n"),
    ("/etc/timezone", "UTC\n"),
];

const MEMORY: u64 = 1 << 30;

/// `struct sysinfo`: how long the machine is up, then its load, memory, and processes.
pub(super) fn sysinfo(up: u64) -> [u8; 112] {
    const PROCESSES: u64 = 2;
    const UNIT: u64 = 1;
    let words: [u64; 14] = [
        up, 0, 0, 0, MEMORY, MEMORY, 0, 0, 0, 0, PROCESSES, 0, 0, UNIT,
    ];
    let mut bytes = [0; 112];
    bytes.copy_from_slice(words.map(u64::to_ne_bytes).as_flattened());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_and_we_agree_on_where_figures_are() {
        // SAFETY is not needed: the offsets are constants of the type.
        assert_eq!(size_of::<libc::sysinfo>(), 112);
        let bytes = sysinfo(7);
        let word = |at: usize| u64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap());
        assert_eq!(word(std::mem::offset_of!(libc::sysinfo, uptime)), 7);
        assert_eq!(word(std::mem::offset_of!(libc::sysinfo, totalram)), MEMORY);
        assert_eq!(word(std::mem::offset_of!(libc::sysinfo, freeram)), MEMORY);
        let procs = std::mem::offset_of!(libc::sysinfo, procs);
        assert_eq!(bytes[procs..procs + 2], 2_u16.to_ne_bytes());
        let unit = std::mem::offset_of!(libc::sysinfo, mem_unit);
        assert_eq!(bytes[unit..unit + 4], 1_u32.to_ne_bytes());
    }
}
