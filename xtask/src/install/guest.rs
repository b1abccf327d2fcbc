//! What a guest with cgroup v2 boots from: Debian's cloud kernel and QEMU, fetched once and unpacked under `target/vm`, never installed. Debian's
//! qemu-system-x86 and a qemu-utils from backports cannot both be installed, and a test run must not choose between them.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::without_them;
use crate::process::{is_root, read, succeeds, watch};

const KERNEL: &str = "linux-image-cloud-amd64";
const QEMU: &str = "qemu-system-x86";
/// Taken even where they are installed: an emulator loads the modules and the firmware that it was built with, and no others.
const QEMU_OWN: [&str; 4] = [QEMU, "qemu-system-common", "qemu-system-data", "seabios"];

/// The emulator with its own libraries and firmware, wherever the directory is.
const LAUNCHER: &str = r#"#!/bin/sh
# Written by `cargo xtask test`: QEMU as unpacked beside this file.
qemu=$(dirname "$(readlink -f "$0")")/qemu
LD_LIBRARY_PATH=$qemu/usr/lib/x86_64-linux-gnu:$qemu/lib/x86_64-linux-gnu
QEMU_MODULE_DIR=$qemu/usr/lib/x86_64-linux-gnu/qemu
export LD_LIBRARY_PATH QEMU_MODULE_DIR
exec "$qemu/usr/bin/qemu-system-x86_64" -L "$qemu/usr/share/qemu" -L "$qemu/usr/share/seabios" "$@"
"#;

/// The kernel for the tests that boot a guest, with everything else that they need beside it; `None` after saying why there is none.
pub(crate) fn guest_best_effort(root: &Path) -> Result<Option<PathBuf>, String> {
    let vm = root.join("target/vm");
    match kernel(&vm).and_then(|kernel| emulator(&vm).map(|()| kernel)) {
        Ok(kernel) => Ok(Some(kernel)),
        Err(error) if std::env::var_os("CI").is_some() => Err(error),
        Err(error) => {
            println!(
                "no guest: {error}\nthe tests that boot one {}",
                without_them()
            );
            Ok(None)
        }
    }
}

fn kernel(vm: &Path) -> Result<PathBuf, String> {
    let unpacked = vm.join("kernel");
    if let Some(kernel) = image_in(&unpacked) {
        return Ok(kernel);
    }
    let package = with_lists(|| concrete_package(KERNEL))?;
    unpack(vm, "kernel", &BTreeSet::from([package.clone()]))?;
    image_in(&unpacked).ok_or_else(|| format!("{package} holds no boot/vmlinuz-*"))
}

fn emulator(vm: &Path) -> Result<(), String> {
    let launcher = vm.join("qemu-system-x86_64");
    // A library that was installed when QEMU was fetched may be gone by now, so it is started rather than looked for.
    let starts = || succeeds(Command::new(&launcher).arg("--version"));
    if fs::read_to_string(&launcher).is_ok_and(|text| text == LAUNCHER) && starts() {
        return Ok(());
    }
    let needed = with_lists(|| needed_by(QEMU))?;
    let present = installed()?;
    let wanted = needed
        .into_iter()
        .filter(|name| QEMU_OWN.contains(&name.as_str()) || !present.contains(name))
        .collect();
    unpack(vm, "qemu", &wanted)?;
    fs::write(&launcher, LAUNCHER)
        .and_then(|()| fs::set_permissions(&launcher, fs::Permissions::from_mode(0o755)))
        .map_err(|error| format!("{}: {error}", launcher.display()))?;
    if starts() {
        return Ok(());
    }
    read(Command::new(&launcher).arg("--version"))
        .map(drop)
        .map_err(|error| format!("the unpacked {QEMU} does not start: {error}"))
}

/// Asks apt; when it knows nothing, once more after fetching the lists, which only root can.
fn with_lists<T>(ask: impl Fn() -> Result<T, String>) -> Result<T, String> {
    match ask() {
        Err(_) if is_root() => {
            watch(Command::new("apt-get").arg("update"))?;
            ask()
        }
        other => other,
    }
}

/// Downloads packages and unpacks them together as `vm/name`: all of it or nothing.
fn unpack(vm: &Path, name: &str, packages: &BTreeSet<String>) -> Result<(), String> {
    let names: Vec<&str> = packages.iter().map(String::as_str).collect();
    println!("fetching {}", names.join(" "));
    let fresh = vm.join("fresh");
    // A download that was interrupted earlier must not be taken for a whole one.
    remove_if_there(&fresh)?;
    fs::create_dir_all(&fresh).map_err(|error| format!("{}: {error}", fresh.display()))?;
    let download = || {
        read(
            Command::new("apt-get")
                .args(["--quiet", "download"])
                .args(packages)
                .current_dir(&fresh),
        )
    };
    // Lists that are too old name versions that the mirror no longer has.
    with_lists(download)?;
    let debs = files_with(&fresh, "deb")?;
    if debs.len() < packages.len() {
        return Err(format!(
            "{}: {} packages were asked for and {} came",
            fresh.display(),
            packages.len(),
            debs.len()
        ));
    }
    for deb in debs {
        read(
            Command::new("dpkg-deb")
                .arg("-x")
                .arg(&deb)
                .arg(fresh.join(name)),
        )?;
    }
    let unpacked = vm.join(name);
    remove_if_there(&unpacked)?;
    fs::rename(fresh.join(name), &unpacked)
        .map_err(|error| format!("{}: {error}", unpacked.display()))?;
    remove_if_there(&fresh)
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

/// The package and all it depends on, as apt would install them on an empty machine: there nothing is in conflict with them.
fn needed_by(package: &str) -> Result<BTreeSet<String>, String> {
    let mut simulate = Command::new("apt-get");
    simulate.args(["--simulate", "--no-install-recommends", "install", package]);
    simulate.args(["-o", "Dir::State::status=/dev/null"]);
    // Or apt would keep what it concludes from the empty machine for its next call.
    simulate.args([
        "-o",
        "Dir::Cache::pkgcache=",
        "-o",
        "Dir::Cache::srcpkgcache=",
    ]);
    let needed = to_install(&read(&mut simulate)?);
    if needed.contains(package) {
        return Ok(needed);
    }
    Err(format!("apt knows no {package}; run apt-get update"))
}

fn to_install(simulation: &str) -> BTreeSet<String> {
    let names = simulation
        .lines()
        .filter_map(|line| line.strip_prefix("Inst "));
    names
        .filter_map(|rest| rest.split_whitespace().next())
        .map(str::to_owned)
        .collect()
}

fn installed() -> Result<BTreeSet<String>, String> {
    let format = "${db:Status-Status} ${Package}\n";
    let listed = read(Command::new("dpkg-query").args(["--show", "--showformat", format]))?;
    let names = listed
        .lines()
        .filter_map(|line| line.strip_prefix("installed "));
    Ok(names.map(str::to_owned).collect())
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

fn files_with(dir: &Path, extension: &str) -> Result<Vec<PathBuf>, String> {
    let entries = fs::read_dir(dir).map_err(|error| format!("{}: {error}", dir.display()))?;
    let paths = entries.filter_map(|entry| entry.ok().map(|entry| entry.path()));
    Ok(paths
        .filter(|path| path.extension().is_some_and(|found| found == extension))
        .collect())
}

fn remove_if_there(dir: &Path) -> Result<(), String> {
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(format!("{}: {error}", dir.display()))
        }
        _ => Ok(()),
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
    fn only_what_would_be_installed_is_needed() {
        let simulation = "Reading package lists...\nInst seabios (1.16.2-1 Debian:12 [all])\nInst qemu-system-x86 (1:7.2 [amd64]) []\nConf seabios (1.16.2-1)\n";
        let expected = ["qemu-system-x86", "seabios"].map(str::to_owned);
        assert_eq!(to_install(simulation), BTreeSet::from(expected));
    }
}
