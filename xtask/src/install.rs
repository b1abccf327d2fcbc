//! What the tests need from the system, and getting it: Debian packages when root, cargo-nextest, and a guest kernel for cgroup v2.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::process::{cargo, is_root, read, succeeds, watch};

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
        reason: "what the benchmarks compare with",
    },
    Package {
        name: "python3",
        shows: "/usr/bin/python3",
        reason: "hostile programs in Python; the sandbox sees /usr only, so another python does not do",
    },
    Package {
        name: "gcc",
        shows: "gcc",
        reason: "hostile programs in C",
    },
    Package {
        name: "libc6-dev",
        shows: "/usr/include/stdlib.h",
        reason: "headers and the static libc for those programs",
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
        name: "qemu-system-x86",
        shows: "qemu-system-x86_64",
        reason: "a guest with cgroup v2, which the host may not have",
    },
    Package {
        name: "docker.io",
        shows: "dockerd",
        reason: "the binary inside a container as an ordinary user",
    },
];

/// Installs what is missing when that is possible; otherwise says what to do and goes on.
pub(crate) fn packages() -> Result<(), String> {
    let missing: Vec<&Package> = PACKAGES
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

/// A kernel image to boot as a guest: Debian's cloud kernel, fetched once and unpacked under `target/vm`, never installed.
pub(crate) fn guest_kernel(root: &Path) -> Result<PathBuf, String> {
    const META: &str = "linux-image-cloud-amd64";
    let vm = root.join("target/vm");
    let unpacked = vm.join("kernel");
    if let Some(kernel) = image_in(&unpacked) {
        return Ok(kernel);
    }
    let package = match concrete_package(META) {
        Ok(package) => package,
        Err(_) if is_root() => {
            watch(Command::new("apt-get").arg("update"))?;
            concrete_package(META)?
        }
        Err(error) => return Err(error),
    };
    println!("fetching {package}");
    let fresh = vm.join("fresh");
    // A download that was interrupted earlier must not be taken for a whole one.
    remove_if_there(&fresh)?;
    fs::create_dir_all(&fresh).map_err(|error| format!("{}: {error}", fresh.display()))?;
    read(
        Command::new("apt-get")
            .args(["--quiet", "download", &package])
            .current_dir(&fresh),
    )?;
    let deb = only_file_with(&fresh, "deb")?;
    read(
        Command::new("dpkg-deb")
            .arg("-x")
            .arg(&deb)
            .arg(fresh.join("kernel")),
    )?;
    remove_if_there(&unpacked)?;
    fs::rename(fresh.join("kernel"), &unpacked)
        .map_err(|error| format!("{}: {error}", unpacked.display()))?;
    remove_if_there(&fresh)?;
    image_in(&unpacked).ok_or_else(|| format!("{package} holds no boot/vmlinuz-*"))
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

/// The package that the meta-package stands for today.
fn concrete_package(meta: &str) -> Result<String, String> {
    let depends = read(Command::new("apt-cache").args(["depends", "--important", meta]))?;
    first_dependency(&depends).ok_or_else(|| {
        format!("`apt-cache depends {meta}` names no dependency; run apt-get update")
    })
}

fn first_dependency(depends: &str) -> Option<String> {
    let named = depends.lines().find_map(|line| {
        line.trim()
            .trim_start_matches('|')
            .strip_prefix("Depends: ")
    })?;
    Some(named.trim_matches(['<', '>']).to_owned())
}

fn image_in(unpacked: &Path) -> Option<PathBuf> {
    let entries = fs::read_dir(unpacked.join("boot")).ok()?;
    let images = entries.filter_map(|entry| entry.ok().map(|entry| entry.path()));
    images
        .filter(|path| {
            path.file_name()
                .is_some_and(|name| name.to_string_lossy().starts_with("vmlinuz-"))
        })
        .max()
}

fn only_file_with(dir: &Path, extension: &str) -> Result<PathBuf, String> {
    let entries = fs::read_dir(dir).map_err(|error| format!("{}: {error}", dir.display()))?;
    let mut paths = entries.filter_map(|entry| entry.ok().map(|entry| entry.path()));
    paths
        .find(|path| path.extension().is_some_and(|found| found == extension))
        .ok_or_else(|| format!("{}: nothing was downloaded", dir.display()))
}

fn remove_if_there(dir: &Path) -> Result<(), String> {
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(format!("{}: {error}", dir.display()))
        }
        _ => Ok(()),
    }
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

/// The kernel for the tests that boot one, or why there is none.
pub(crate) fn guest_kernel_best_effort(root: &Path) -> Result<Option<PathBuf>, String> {
    match guest_kernel(root) {
        Ok(kernel) => Ok(Some(kernel)),
        Err(error) if std::env::var_os("CI").is_some() => Err(error),
        Err(error) => {
            println!(
                "no guest kernel: {error}\nthe tests that boot one {}",
                without_them()
            );
            Ok(None)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_meta_package_resolves_to_its_first_dependency() {
        let depends = "linux-image-cloud-amd64\n  Depends: linux-image-6.1.0-35-cloud-amd64\n  Recommends: apparmor\n";
        assert_eq!(
            first_dependency(depends).as_deref(),
            Some("linux-image-6.1.0-35-cloud-amd64")
        );
        let alternative = "x\n |Depends: <linux-image-a>\n  Depends: b\n";
        assert_eq!(
            first_dependency(alternative).as_deref(),
            Some("linux-image-a")
        );
        assert_eq!(first_dependency("x\n"), None);
    }

    #[test]
    fn the_newest_unpacked_image_is_taken() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(image_in(dir.path()), None);
        let boot = dir.path().join("boot");
        fs::create_dir(&boot).unwrap();
        for name in ["config-6.1.0-2", "vmlinuz-6.1.0-1", "vmlinuz-6.1.0-2"] {
            fs::write(boot.join(name), "").unwrap();
        }
        assert_eq!(image_in(dir.path()), Some(boot.join("vmlinuz-6.1.0-2")));
    }

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
