//! Starting other programs: with the person watching, or for their output. A failure names the command line.

use std::path::Path;
use std::process::{Command, Output, Stdio};

/// The cargo that started this chore, so that a `+toolchain` is kept.
pub(crate) fn cargo(root: &Path) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    // `cargo run` adds its own library directories, which make every dynamic program start slower.
    command.current_dir(root).env_remove("LD_LIBRARY_PATH");
    command
}

/// Runs it with its output on the terminal; fails when it fails.
pub(crate) fn watch(command: &mut Command) -> Result<(), String> {
    let status = command
        .status()
        .map_err(|error| cannot_start(command, &error))?;
    if status.success() {
        Ok(())
    } else {
        Err(format!("`{}` failed: {status}", line(command)))
    }
}

/// Runs it and returns what it wrote to stdout; fails when it fails.
pub(crate) fn read(command: &mut Command) -> Result<String, String> {
    let output = command
        .stdin(Stdio::null())
        .output()
        .map_err(|error| cannot_start(command, &error))?;
    let Output {
        status,
        stdout,
        stderr,
    } = output;
    if !status.success() {
        let stderr = String::from_utf8_lossy(&stderr);
        return Err(format!(
            "`{}` failed: {status}\n{}",
            line(command),
            stderr.trim_end()
        ));
    }
    String::from_utf8(stdout).map_err(|_| format!("`{}` did not write UTF-8", line(command)))
}

/// Whether it starts and ends well, silently.
pub(crate) fn succeeds(command: &mut Command) -> bool {
    let quiet = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    quiet.status().is_ok_and(|status| status.success())
}

/// Whether this process is root, as the owner of its own entry in /proc.
pub(crate) fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0)
}

fn cannot_start(command: &Command, error: &std::io::Error) -> String {
    format!("`{}` cannot be started: {error}", line(command))
}

fn line(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words
        .map(|word| word.to_string_lossy())
        .collect::<Vec<_>>()
        .join(" ")
}
