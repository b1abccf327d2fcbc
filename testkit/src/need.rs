//! What a test needs of the host, and what happens when the host does not have it: a failure in CI, a counted line on a laptop.

use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Something a test cannot do without.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    Root,
    /// Control groups that this process may make.
    Cgroup,
    /// Starting processes as somebody else, who may make user namespaces.
    UnprivilegedUser,
    Python,
    Gcc,
    /// A file of the host's /usr, such as the program of a package.
    Installed(&'static str),
    /// The host's `bwrap`.
    Bubblewrap,
    /// The host's `runsc`.
    Gvisor,
    /// A compiler from C to WebAssembly, with a libc for it.
    WasiCompiler,
    /// Two CPUs, for what is about sharing them.
    TwoCpus,
}

static SKIPPED: AtomicUsize = AtomicUsize::new(0);

impl Need {
    fn is_met(self) -> bool {
        match self {
            Self::Root => is_root(),
            Self::Cgroup => has_cgroups(),
            Self::UnprivilegedUser => is_root() && users_may_unshare(),
            // Inside, only the host's /usr is in view.
            Self::Python => std::path::Path::new("/usr/bin/python3").exists(),
            Self::Gcc => answers("gcc"),
            Self::Bubblewrap => answers("bwrap"),
            Self::Gvisor => answers("runsc"),
            Self::Installed(path) => std::path::Path::new(path).exists(),
            Self::WasiCompiler => {
                std::path::Path::new("/usr/lib/wasm32-wasi/libc.a").exists()
                    && ["clang", "wasm-ld"].iter().all(|tool| {
                        Command::new(tool)
                            .arg("--version")
                            .stdout(Stdio::null())
                            .status()
                            .is_ok_and(|status| status.success())
                    })
            }
            Self::TwoCpus => std::thread::available_parallelism().is_ok_and(|n| n.get() >= 2),
        }
    }
}

fn answers(tool: &str) -> bool {
    Command::new(tool)
        .arg("--version")
        .stdout(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// Whether all needs are met. Panics in CI when one is not.
pub(crate) fn all_met(needs: &[Need]) -> bool {
    let missing: Vec<Need> = needs
        .iter()
        .copied()
        .filter(|need| !need.is_met())
        .collect();
    if missing.is_empty() {
        return true;
    }
    let test = std::thread::current().name().unwrap_or("a test").to_owned();
    assert!(
        std::env::var_os("CI").is_none(),
        "{test} needs {missing:?}, and CI must have it"
    );
    let count = SKIPPED.fetch_add(1, Ordering::Relaxed) + 1;
    eprintln!("SKIPPED ({count}): {test} needs {missing:?}");
    false
}

pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

pub(crate) fn has_cgroups() -> bool {
    let writable = |dir: &str| {
        rustix::fs::access(dir, rustix::fs::Access::WRITE_OK).is_ok()
            && std::path::Path::new(dir).is_dir()
    };
    if std::path::Path::new("/sys/fs/cgroup/cgroup.controllers").exists() {
        return is_root() && writable("/sys/fs/cgroup");
    }
    is_root() && writable("/sys/fs/cgroup/memory") && writable("/sys/fs/cgroup/pids")
}

fn users_may_unshare() -> bool {
    let number = |path: &str| {
        std::fs::read_to_string(path)
            .ok()
            .and_then(|text| text.trim().parse::<u64>().ok())
    };
    number("/proc/sys/kernel/unprivileged_userns_clone") != Some(0)
        && number("/proc/sys/user/max_user_namespaces") != Some(0)
}
