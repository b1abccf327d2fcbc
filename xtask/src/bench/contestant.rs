//! Who is measured: the same program bare, under bubblewrap and under Cofferdam. Each is one prepared command line that can be
//! started again and again with as little of our own work as possible.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use crate::process::{cargo, read};

pub(super) const BUBBLEWRAP: &[&str] = &[
    "/usr/bin/bwrap",
    "--unshare-all",
    "--die-with-parent",
    "--ro-bind",
    "/usr",
    "/usr",
    "--symlink",
    "usr/bin",
    "/bin",
    "--symlink",
    "usr/lib",
    "/lib",
    "--symlink",
    "usr/lib64",
    "/lib64",
    "--symlink",
    "usr/sbin",
    "/sbin",
    "--proc",
    "/proc",
    "--dev",
    "/dev",
    "--tmpfs",
    "/tmp",
    "--",
];

/// Costs one more exec, for every contestant alike: ratios come out nearer to 1 than they are.
const DROP_PRIVILEGE: [&str; 6] = [
    "/usr/bin/setpriv",
    "--reuid",
    "1000",
    "--regid",
    "1000",
    "--clear-groups",
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Privilege {
    /// As whoever started the benchmark.
    Own,
    /// As uid 1000.
    Dropped,
}

/// The release binary, copied to where every user may execute it and no build replaces it while it is measured.
#[derive(Debug)]
pub(super) struct Binary {
    dir: PathBuf,
}

/// An example of a package, for what can be measured only from within.
#[derive(Debug, Clone, Copy)]
pub(super) struct Beside {
    pub(super) package: &'static str,
    pub(super) example: &'static str,
}

#[derive(Debug, Clone)]
pub(super) struct Contestant {
    pub(super) name: &'static str,
    words: Vec<OsString>,
    /// Where it keeps history, if it does.
    history: Option<PathBuf>,
}

impl Binary {
    /// The release binary and what is measured beside it. `COFFERDAM_BENCH_BINARY` names one that is there already.
    pub(super) fn build(root: &Path, beside: &[Beside]) -> Result<Self, String> {
        let ready = std::env::var_os("COFFERDAM_BENCH_BINARY").filter(|_| beside.is_empty());
        match ready {
            Some(ready) => {
                eprintln!("measuring {}", ready.display());
                Self::of(&[("cofferdam", ready.into())])
            }
            None => Self::of(&built(root, beside)?),
        }
    }

    fn of(files: &[(&str, PathBuf)]) -> Result<Self, String> {
        let dir = std::env::temp_dir().join(format!("cofferdam-bench-{}", std::process::id()));
        let failed = |error: std::io::Error| format!("{}: {error}", dir.display());
        fs::create_dir(&dir).map_err(failed)?;
        let binary = Self { dir: dir.clone() };
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o755)).map_err(failed)?;
        for (name, built) in files {
            fs::copy(built, dir.join(name)).map_err(failed)?;
        }
        fs::create_dir(binary.history()).map_err(failed)?;
        fs::set_permissions(binary.history(), fs::Permissions::from_mode(0o777)).map_err(failed)?;
        Ok(binary)
    }

    pub(super) fn history(&self) -> PathBuf {
        self.dir.join("history")
    }

    /// How many runs wait to be taken into the database.
    pub(super) fn journals(&self) -> Result<usize, String> {
        let spool = self.history().join("spool");
        let entries =
            fs::read_dir(&spool).map_err(|error| format!("{}: {error}", spool.display()))?;
        let is_journal =
            |name: &std::ffi::OsStr| Path::new(name).extension() == Some("run".as_ref());
        Ok(entries
            .flatten()
            .filter(|entry| is_journal(&entry.file_name()))
            .count())
    }

    /// A directory beside the binary, which every user may write to.
    pub(super) fn directory(&self, name: &str) -> Result<PathBuf, String> {
        let dir = self.dir.join(name);
        let made = fs::create_dir_all(&dir)
            .and_then(|()| fs::set_permissions(&dir, fs::Permissions::from_mode(0o777)));
        made.map_err(|error| format!("{}: {error}", dir.display()))?;
        Ok(dir)
    }

    /// Another verb of ours.
    pub(super) fn verb(&self, privilege: Privilege, words: &[&str]) -> Contestant {
        let path = self.path();
        let path = path.to_string_lossy();
        Contestant {
            history: Some(self.history()),
            ..Contestant::new("cofferdam", privilege, &[&[&*path], words].concat())
        }
    }

    /// One that was built beside it.
    pub(super) fn example(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    pub(super) fn path(&self) -> PathBuf {
        self.dir.join("cofferdam")
    }

    /// A program under each of the contestants.
    pub(super) fn contestants(&self, program: &[&str], privilege: Privilege) -> [Contestant; 3] {
        let bare = Contestant::new("bare", privilege, program);
        let bubblewrap = Contestant::bubblewrap(privilege, program);
        [
            bare,
            bubblewrap,
            self.run("cofferdam", privilege, &[], program),
        ]
    }

    /// A program under `cofferdam run` with some flags.
    pub(super) fn run(
        &self,
        name: &'static str,
        privilege: Privilege,
        flags: &[&str],
        program: &[&str],
    ) -> Contestant {
        Contestant {
            name,
            ..self.verb(privilege, &[&["run"], flags, &["--"], program].concat())
        }
    }
}

impl Drop for Binary {
    fn drop(&mut self) {
        // A copy left behind in the temporary directory harms nobody.
        let _ = fs::remove_dir_all(&self.dir);
    }
}

impl Contestant {
    pub(super) fn new(name: &'static str, privilege: Privilege, words: &[&str]) -> Self {
        let prefix = match privilege {
            Privilege::Own => &[][..],
            Privilege::Dropped => &DROP_PRIVILEGE[..],
        };
        Self {
            name,
            words: prefix.iter().chain(words).map(OsString::from).collect(),
            history: None,
        }
    }

    pub(super) fn bubblewrap(privilege: Privilege, program: &[&str]) -> Self {
        Self::new("bubblewrap", privilege, &[BUBBLEWRAP, program].concat())
    }

    /// Its command line.
    pub(super) fn words(&self) -> &[OsString] {
        &self.words
    }

    /// Ready to start. The environment is small and the same for all: cargo's own would slow the dynamic loader of some contestants
    /// and not of others.
    pub(super) fn command(&self) -> Command {
        let (program, args) = self
            .words
            .split_first()
            .map_or((Default::default(), &[][..]), |(p, a)| (p.clone(), a));
        let mut command = Command::new(program);
        command
            .args(args)
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("HOME", "/nonexistent");
        if let Some(history) = &self.history {
            command.env("COFFERDAM_DATA_DIR", history);
        }
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        command
    }

    /// One run from start to reaping, however it ends.
    pub(super) fn time(&self) -> Result<(Duration, ExitStatus), String> {
        let mut command = self.command();
        let start = Instant::now();
        let status = command.status();
        let time = start.elapsed();
        Ok((time, status.map_err(|error| self.cannot_start(&error))?))
    }

    /// One run that must end well: a contestant that fails fast would win.
    pub(super) fn time_success(&self) -> Result<Duration, String> {
        match self.time()? {
            (time, status) if status.success() => Ok(time),
            (_, status) => Err(format!(
                "{} ended with {status} while it was measured",
                self.name
            )),
        }
    }

    /// One run before measuring, whose words are shown when it fails. Its output is not kept: it would make this program large, and
    /// the kernel counts that as the memory of the next one it starts.
    pub(super) fn try_once(&self) -> Result<(), String> {
        let output = self.command().stderr(Stdio::piped()).output();
        let output = output.map_err(|error| self.cannot_start(&error))?;
        if output.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stderr);
        Err(format!(
            "{} cannot be measured, it ended with {}: {}",
            self.line(),
            output.status,
            said.trim_end()
        ))
    }

    fn cannot_start(&self, error: &std::io::Error) -> String {
        format!(
            "{} cannot be started: {error}; `cargo xtask test` installs what is missing",
            self.line()
        )
    }

    fn line(&self) -> String {
        self.words
            .iter()
            .map(|word| word.to_string_lossy())
            .collect::<Vec<_>>()
            .join(" ")
    }
}

/// Where cargo put the binary and the examples.
fn built<'a>(root: &Path, beside: &'a [Beside]) -> Result<Vec<(&'a str, PathBuf)>, String> {
    eprintln!("building the release binary");
    let mut build = cargo(root);
    build.args(["build", "--release", "--package", "cofferdam"]);
    build.args(["--bin", "cofferdam"]);
    // All at once: one by one, what they share would be compiled again for each.
    for one in beside {
        build.args(["--package", one.package, "--example", one.example]);
    }
    // It takes minutes, and says so.
    build.stderr(Stdio::inherit());
    let messages = read(build.arg("--message-format=json-render-diagnostics"))?;
    let made: Vec<(String, String)> = messages.lines().filter_map(executable).collect();
    let place = |name: &'a str| {
        let found = made.iter().find(|(target, _)| target == name);
        let found = found.map(|(_, path)| (name, PathBuf::from(path)));
        found.ok_or_else(|| format!("cargo built no executable `{name}`"))
    };
    let examples = beside.iter().map(|one| one.example);
    std::iter::once("cofferdam")
        .chain(examples)
        .map(place)
        .collect()
}

fn executable(line: &str) -> Option<(String, String)> {
    let message: serde_json::Value = serde_json::from_str(line).ok()?;
    let name = message.get("target")?.get("name")?.as_str()?;
    let path = message.get("executable")?.as_str()?;
    Some((name.to_owned(), path.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_executable_is_taken_from_cargos_messages() {
        assert_eq!(
            executable(r#"{"target":{"name":"cofferdam"},"executable":"/t/cofferdam"}"#),
            Some(("cofferdam".to_owned(), "/t/cofferdam".to_owned()))
        );
        let library = r#"{"target":{"name":"x"},"executable":null}"#;
        assert_eq!(executable(library), None);
        assert_eq!(executable("not json"), None);
    }

    #[test]
    fn a_contestant_that_fails_is_not_measured() {
        let fails = Contestant::new(
            "bare",
            Privilege::Own,
            &["/bin/sh", "-c", "echo why >&2; exit 3"],
        );
        assert!(fails.time_success().unwrap_err().contains("exit status: 3"));
        assert!(fails.try_once().unwrap_err().contains("why"));
        let good = Contestant::new("bare", Privilege::Own, &["/bin/true"]);
        assert!(good.time_success().is_ok());
        let absent = Contestant::new("bare", Privilege::Own, &["/no/such"]);
        assert!(absent.try_once().unwrap_err().contains("cannot be started"));
    }
}
