//! The settings of this host that explain why something is refused. Only reads, and believes that what cannot be read is not set.

use std::path::Path;

use crate::host::{Host, NO_CGROUPS_VARIABLE, Privilege};

/// What is set here.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Facts {
    pub(super) is_root_user: bool,
    pub(super) container: Option<&'static str>,
    /// Whether systemd runs this machine, so that its commands help.
    pub(super) systemd: bool,
    /// Whether a filter that we did not install is on this process.
    pub(super) seccomp_on_us: bool,
    pub(super) userns_in_kernel: bool,
    pub(super) max_user_namespaces: Option<u64>,
    /// Debian's and Arch's switch.
    pub(super) unprivileged_userns_clone: Option<u64>,
    /// Ubuntu's switch.
    pub(super) apparmor_restricts_userns: Option<u64>,
    pub(super) cgroups_switched_off: bool,
    /// Whether the machine has version 2 only.
    pub(super) unified_cgroups: bool,
    /// The security modules in force, where they can be read.
    pub(super) lsm: Option<String>,
}

impl Facts {
    pub(super) fn read(host: &Host) -> Self {
        Self {
            is_root_user: rustix::process::geteuid().is_root(),
            container: container(host),
            systemd: Path::new("/run/systemd/system").exists(),
            seccomp_on_us: status_field("Seccomp").is_some_and(|mode| mode != "0"),
            userns_in_kernel: Path::new("/proc/self/ns/user").exists(),
            max_user_namespaces: number("/proc/sys/user/max_user_namespaces"),
            unprivileged_userns_clone: number("/proc/sys/kernel/unprivileged_userns_clone"),
            apparmor_restricts_userns: number(
                "/proc/sys/kernel/apparmor_restrict_unprivileged_userns",
            ),
            cgroups_switched_off: std::env::var_os(NO_CGROUPS_VARIABLE)
                .is_some_and(|value| !value.is_empty()),
            unified_cgroups: Path::new("/sys/fs/cgroup/cgroup.controllers").exists(),
            lsm: std::fs::read_to_string("/sys/kernel/security/lsm").ok(),
        }
    }
}

/// How many namespaces of a kind may be made here; `None` when the kernel does not say.
pub(super) fn max_namespaces(sysctl: &str) -> Option<u64> {
    number(&format!("/proc/sys/user/{sysctl}"))
}

/// Each kind of container leaves its own mark. A user namespace around us is one too, of an unknown kind.
fn container(host: &Host) -> Option<&'static str> {
    // A machine made from a container's image carries the marks and is none.
    if FIRST_NAMESPACES
        .iter()
        .all(|(file, first)| is_namespace(file, *first))
    {
        return None;
    }
    if Path::new("/.dockerenv").exists() {
        return Some("docker");
    }
    if Path::new("/run/.containerenv").exists() {
        return Some("podman");
    }
    if std::env::var_os("KUBERNETES_SERVICE_HOST").is_some() {
        return Some("kubernetes");
    }
    let confined_root =
        rustix::process::geteuid().is_root() && matches!(host.privilege, Privilege::User { .. });
    confined_root.then_some("unknown")
}

/// The namespaces that the kernel starts with have fixed numbers (`include/uapi/linux/nsfs.h`).
const FIRST_NAMESPACES: [(&str, u32); 4] = [
    ("ipc", 0xEFFF_FFFF),
    ("uts", 0xEFFF_FFFE),
    ("user", 0xEFFF_FFFD),
    ("pid", 0xEFFF_FFFC),
];

fn is_namespace(file: &str, number: u32) -> bool {
    let link = std::fs::read_link(format!("/proc/self/ns/{file}"));
    link.is_ok_and(|link| link == Path::new(&format!("{file}:[{number}]")))
}

fn number(path: &str) -> Option<u64> {
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
}

fn status_field(name: &str) -> Option<String> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    Some(line.trim().to_owned())
}
