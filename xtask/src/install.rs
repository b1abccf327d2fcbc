//! What the tests need from the system, and getting it: Debian packages when root, cargo-nextest, a tester for the daemon's API, and a guest to boot.

mod chain;
mod dotnet;
mod guest;
mod managers;
mod schemathesis;

use std::path::{Path, PathBuf};
use std::process::Command;

#[cfg(test)]
pub(crate) use chain::has_chain;
pub(crate) use chain::{chain_best_effort, solidity_compiler};
pub(crate) use dotnet::dotnet_best_effort;
pub(crate) use guest::guest_best_effort;
pub(crate) use managers::managers_best_effort;
pub(crate) use schemathesis::schemathesis_best_effort;

use crate::process::{cargo, is_root, succeeds, watch};

/// A Debian package, what shows that it is there, and why the tests want it.
struct Package {
    name: &'static str,
    /// A command, or an absolute path.
    shows: &'static str,
    reason: &'static str,
}

const PACKAGES: &[Package] = &[
    Package {
        name: "bubblewrap",
        shows: "bwrap",
        reason: "a backend, and what the benchmarks compare with",
    },
    Package {
        name: "runsc",
        shows: "runsc",
        reason: "gVisor, a backend, and containers with another kernel",
    },
    Package {
        name: "python3",
        shows: "/usr/bin/python3",
        reason: "hostile programs in Python; the sandbox sees /usr only, so another python does not do",
    },
    Package {
        name: "jq",
        shows: "jq",
        reason: "sessions in the documents, which are tried word for word",
    },
    Package {
        name: "git",
        shows: "/usr/bin/git",
        reason: "projects that are sent as a bundle, which is cloned inside; a client inside that is told nothing of proxies",
    },
    Package {
        name: "gcc",
        shows: "gcc",
        reason: "hostile programs in C",
    },
    Package {
        name: "g++",
        shows: "g++",
        reason: "programs in C++",
    },
    Package {
        name: "nodejs",
        shows: "/usr/bin/node",
        reason: "handlers in JavaScript; in /usr for the same reason",
    },
    Package {
        name: "npm",
        shows: "/usr/bin/npm",
        reason: "projects in JavaScript with packages of their own",
    },
    Package {
        name: "python3-pytest",
        shows: "/usr/lib/python3/dist-packages/pytest",
        reason: "projects in Python that pytest tests",
    },
    Package {
        name: "python3-pytest-cov",
        shows: "/usr/lib/python3/dist-packages/pytest_cov",
        reason: "coverage of projects in Python",
    },
    Package {
        name: "python3-venv",
        shows: "/usr/share/python-wheels",
        reason: "projects in Python with packages of their own",
    },
    Package {
        name: "python3-pip",
        shows: "/usr/lib/python3/dist-packages/pip",
        reason: "what fetches those packages",
    },
    Package {
        name: "golang-go",
        shows: "/usr/bin/go",
        reason: "projects in Go",
    },
    Package {
        name: "default-jdk-headless",
        shows: "/usr/bin/javac",
        reason: "projects in Java",
    },
    Package {
        name: "maven",
        shows: "/usr/bin/mvn",
        reason: "projects in Java",
    },
    Package {
        name: "junit4",
        shows: "/usr/share/maven-repo/junit/junit/4.x",
        reason: "their tests; from a repository in a directory, without network",
    },
    Package {
        name: "libsurefire-java",
        shows: "/usr/share/maven-repo/org/apache/maven/plugins/maven-surefire-plugin",
        reason: "what runs those tests",
    },
    Package {
        name: "libmaven-compiler-plugin-java",
        shows: "/usr/share/maven-repo/org/apache/maven/plugins/maven-compiler-plugin",
        reason: "what compiles them",
    },
    Package {
        name: "libmaven-resources-plugin-java",
        shows: "/usr/share/maven-repo/org/apache/maven/plugins/maven-resources-plugin",
        reason: "a step of every Maven build",
    },
    Package {
        name: "libc6-dev",
        shows: "/usr/include/stdlib.h",
        reason: "headers and the static libc for those programs",
    },
    Package {
        name: "curl",
        shows: "/usr/bin/curl",
        reason: "a client that knows of proxies, inside",
    },
    Package {
        name: "openssl",
        shows: "/usr/bin/openssl",
        reason: "a TLS server and a client of another make",
    },
    Package {
        name: "util-linux",
        shows: "setpriv",
        reason: "tests as another user (setpriv, unshare, nsenter)",
    },
    Package {
        name: "procps",
        shows: "ps",
        reason: "proof that no process is left behind",
    },
    Package {
        name: "iproute2",
        shows: "ip",
        reason: "proof of what the network looks like inside",
    },
    Package {
        name: "strace",
        shows: "strace",
        reason: "proof of what start-up does not do",
    },
    Package {
        name: "busybox-static",
        shows: "busybox",
        reason: "a whole root file system in one file",
    },
    Package {
        name: "cpio",
        shows: "cpio",
        reason: "the initramfs of the guest",
    },
    Package {
        name: "clang",
        shows: "clang",
        reason: "programs in C for WebAssembly",
    },
    Package {
        name: "lld",
        shows: "wasm-ld",
        reason: "linking those programs",
    },
    Package {
        name: "wasi-libc",
        shows: "/usr/lib/wasm32-wasi/libc.a",
        reason: "the libc of those programs",
    },
    Package {
        name: "libclang-rt-dev-wasm32",
        shows: "/usr/share/doc/libclang-rt-dev-wasm32",
        reason: "what the compiler of those programs adds to them",
    },
    Package {
        name: "docker.io",
        shows: "dockerd",
        reason: "the binary inside a container as an ordinary user, and containers as a backend",
    },
    Package {
        name: "podman",
        shows: "podman",
        reason: "the other daemon that speaks this API",
    },
    Package {
        name: "catatonit",
        shows: "catatonit",
        reason: "the first process of its containers",
    },
    Package {
        name: "nats-server",
        shows: "nats-server",
        reason: "the server that a fleet's work goes over",
    },
    Package {
        name: "systemd",
        shows: "systemd-analyze",
        reason: "whether it takes the units of a fleet",
    },
    Package {
        name: "docker-registry",
        shows: "docker-registry",
        reason: "images that are pulled",
    },
];

/// Sandboxes of others, for the benchmark that compares with them.
const PEERS: &[Package] = &[
    Package {
        name: "crun",
        shows: "crun",
        reason: "an OCI runtime to compare with",
    },
    Package {
        name: "runc",
        shows: "runc",
        reason: "an OCI runtime to compare with",
    },
    Package {
        name: "firejail",
        shows: "firejail",
        reason: "a sandbox to compare with",
    },
];

/// Installs what is missing when that is possible; otherwise says what to do and goes on.
pub(crate) fn packages() -> Result<(), String> {
    install(PACKAGES)
}

/// The same with what only comparisons need.
pub(crate) fn peers() -> Result<(), String> {
    packages()?;
    install(PEERS)
}

fn install(packages: &[Package]) -> Result<(), String> {
    let missing: Vec<&Package> = packages
        .iter()
        .filter(|package| !is_there(package.shows))
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    for package in &missing {
        println!("missing: {} ({})", package.name, package.reason);
    }
    let names: Vec<&str> = missing.iter().map(|package| package.name).collect();
    if !is_root() || !is_there("apt-get") {
        println!(
            "install them with: sudo apt-get install --no-install-recommends {}",
            names.join(" ")
        );
        println!("until then the tests that need them {}", without_them());
        return Ok(());
    }
    // Package lists are often absent or old in a fresh container; they are fetched only when the first attempt shows it.
    if watch(&mut apt_install(&names)).is_ok() {
        return Ok(());
    }
    watch(Command::new("apt-get").arg("update"))?;
    if watch(&mut apt_install(&names)).is_ok() {
        return Ok(());
    }
    // One package in conflict with the system must not keep the others away.
    for package in missing {
        if watch(&mut apt_install(&[package.name])).is_err() {
            println!(
                "not installed: {}; apt's reason is above. Nothing was removed to make room for it: that is for a person \
                 to decide. The tests that need it {}",
                package.name,
                without_them()
            );
        }
    }
    Ok(())
}

/// The runner that all tests go through.
pub(crate) fn nextest(root: &Path) -> Result<(), String> {
    if succeeds(cargo(root).args(["nextest", "--version"])) {
        return Ok(());
    }
    println!("missing: cargo-nextest (the test runner)");
    watch(cargo(root).args(["install", "cargo-nextest", "--locked"]))
}

/// What happens to a test whose need is not met.
pub(crate) fn without_them() -> &'static str {
    if std::env::var_os("CI").is_some() {
        "fail (CI is set)"
    } else {
        "are skipped and counted"
    }
}

/// Adds packages and never takes one away: a test run has no business removing what somebody put on the machine.
fn apt_install(names: &[&str]) -> Command {
    let mut command = Command::new("apt-get");
    command.args(["install", "--yes", "--no-remove", "--no-install-recommends"]);
    command.args(["-o", "DPkg::Lock::Timeout=300"]).args(names);
    command.env("DEBIAN_FRONTEND", "noninteractive");
    command
}

/// Whether a command is found or a path exists. /sbin and its friends are looked at too: they are not in everyone's PATH.
fn is_there(shows: &str) -> bool {
    if shows.starts_with('/') {
        return Path::new(shows).exists();
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let system = ["/usr/sbin", "/sbin", "/usr/bin", "/bin"].map(PathBuf::from);
    std::env::split_paths(&path)
        .chain(system)
        .any(|dir| dir.join(shows).is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn installing_never_removes() {
        let command = apt_install(&["cpio"]);
        assert!(command.get_args().any(|arg| arg == "--no-remove"));
    }

    #[test]
    fn commands_and_paths_are_found_or_not() {
        assert!(is_there("sh") && is_there("/proc/self"));
        assert!(!is_there("no-such-command-here") && !is_there("/no/such/path"));
    }
}
