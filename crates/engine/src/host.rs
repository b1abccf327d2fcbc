//! What this host lets us do, found out once per process and cheaply: a run pays for every look.

use std::ffi::CStr;
use std::path::Path;

use cofferdam_sys::cgroup::{self, Hierarchy};
use cofferdam_sys::landlock;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::thread::CapabilitySet;

/// The facts about this host that decide how a sandbox is built.
#[derive(Debug)]
pub struct Host {
    pub privilege: Privilege,
    pub cgroups: Hierarchy,
    pub landlock_abi: Option<u32>,
    /// CPUs that this process may run on.
    pub cpus: Vec<usize>,
    /// Whether the kernel tells which processes a process has started.
    pub lists_children: bool,
}

/// What this process is to the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Privilege {
    /// May give a sandbox any outside identity: root with its usual capabilities, over the whole range of ids.
    Root,
    /// May give a sandbox its own identity only.
    User { uid: u32, gid: u32 },
}

/// Set to leave control groups alone, for hosts where they misbehave and for the tests of what happens without them.
pub const NO_CGROUPS_VARIABLE: &str = "COFFERDAM_NO_CGROUPS";

impl Host {
    /// Looks at the host. Never fails: what cannot be found out is not there.
    pub fn detect() -> Self {
        Self {
            privilege: privilege(),
            cgroups: cgroups(),
            landlock_abi: landlock::abi(),
            cpus: cpus(),
            lists_children: std::path::Path::new("/proc/thread-self/children").exists(),
        }
    }
}

fn privilege() -> Privilege {
    let uid = rustix::process::geteuid();
    let gid = rustix::process::getegid();
    let user = Privilege::User {
        uid: uid.as_raw(),
        gid: gid.as_raw(),
    };
    if !uid.is_root() {
        return user;
    }
    let needed = CapabilitySet::SETUID | CapabilitySet::SETGID | CapabilitySet::SYS_ADMIN;
    let has = rustix::thread::capabilities(None).is_ok_and(|sets| sets.effective.contains(needed));
    // Root of a container's user namespace has only the ids that were mapped into it.
    let all_ids = read_proc(c"/proc/self/uid_map").is_ok_and(|map| maps_everything(&map));
    if has && all_ids {
        Privilege::Root
    } else {
        user
    }
}

fn maps_everything(uid_map: &str) -> bool {
    uid_map.split_whitespace().eq(["0", "0", "4294967295"])
}

fn cgroups() -> Hierarchy {
    if std::env::var_os(NO_CGROUPS_VARIABLE).is_some_and(|value| !value.is_empty()) {
        return Hierarchy::None {
            why: format!("{NO_CGROUPS_VARIABLE} is set"),
        };
    }
    match read_proc(c"/proc/self/cgroup") {
        Ok(own) => cgroup::find(Path::new("/sys/fs/cgroup"), &own),
        Err(errno) => Hierarchy::None {
            why: format!("/proc/self/cgroup cannot be read: {errno}"),
        },
    }
}

/// In one gulp: the kernel makes such a file anew for every read, and the standard library asks for a few bytes at a time.
fn read_proc(path: &CStr) -> Result<String, Errno> {
    const GULP: usize = 4096;
    let file = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    let mut text = Vec::with_capacity(GULP);
    loop {
        text.reserve(GULP);
        match rustix::io::read(&file, rustix::buffer::spare_capacity(&mut text)) {
            Ok(0) => break,
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(String::from_utf8_lossy(&text).into_owned())
}

fn cpus() -> Vec<usize> {
    let Ok(set) = rustix::thread::sched_getaffinity(None) else {
        return vec![0];
    };
    (0..rustix::thread::CpuSet::MAX_CPU)
        .filter(|&cpu| set.is_set(cpu))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_whole_range_counts_as_root() {
        assert!(maps_everything("         0          0 4294967295\n"));
        assert!(!maps_everything("         0     100000      65536\n"));
        assert!(!maps_everything("0 1000 1\n1 100000 65536\n"));
        assert!(!maps_everything(""));
    }
}
