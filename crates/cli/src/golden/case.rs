//! One case: its command, its input, what is expected, and what it did.

use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::tree::{self, Entry, Tree};
use crate::runs::unified::{self, Bounds, StreamDiff};

/// A directory with a command.
#[derive(Debug)]
pub(super) struct Case {
    pub(super) name: String,
    pub(super) dir: PathBuf,
    pub(super) command: String,
    pub(super) input: Tree,
    /// In the form of the files that hold it.
    pub(super) expected: Tree,
}

/// One file that is not as expected.
#[derive(Debug)]
pub(super) struct Difference {
    pub(super) path: String,
    pub(super) what: What,
}

#[derive(Debug)]
pub(super) enum What {
    Missing,
    Unexpected,
    Changed(StreamDiff),
    /// More than is kept: what follows could be anything.
    Cut,
}

const COMMAND: &str = "command";
const EXPECTED: &str = "expected";
const MAX_COMMAND: u64 = 64 << 10;

/// The cases of a directory, by name.
pub(super) fn read_all(dir: &Path) -> io::Result<Vec<Case>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let (path, name) = (entry.path(), entry.file_name());
        let Some(command) = command(&path.join(COMMAND))? else {
            continue;
        };
        found.push(Case {
            name: name.to_string_lossy().into_owned(),
            command,
            input: tree::read(&path.join("input"))?,
            expected: tree::read(&path.join(EXPECTED))?,
            dir: path,
        });
    }
    found.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(found)
}

/// The command of a directory that has one: a short regular file, and no link to one.
fn command(file: &Path) -> io::Result<Option<String>> {
    let bad = |why: &str| io::Error::other(format!("{}: {why}", file.display()));
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let opened = match rustix::fs::open(file, flags, Mode::empty()) {
        Ok(opened) => fs::File::from(opened),
        Err(Errno::NOENT | Errno::NOTDIR) => return Ok(None),
        Err(Errno::LOOP) => return Err(bad("is a link; put the file itself there")),
        Err(errno) => return Err(bad(&errno.to_string())),
    };
    if !opened.metadata()?.is_file() {
        return Err(bad("is not a regular file"));
    }
    let mut command = String::new();
    let read = opened.take(MAX_COMMAND + 1).read_to_string(&mut command)?;
    if u64::try_from(read).is_ok_and(|read| read > MAX_COMMAND) || command.trim().is_empty() {
        return Err(bad("is empty or too long"));
    }
    Ok(Some(command))
}

impl Case {
    /// What the case did, in the form of the files that hold what is expected.
    pub(super) fn told(&self, exit_code: u8, stdout: &[u8], stderr: &[u8], left: Tree) -> Tree {
        let file = |bytes: &[u8]| Entry::File {
            bytes: bytes.to_vec(),
            is_program: false,
        };
        let mut told = Tree::from([
            (
                "exit_code".to_owned(),
                file(format!("{exit_code}\n").as_bytes()),
            ),
            ("stdout".to_owned(), file(stdout)),
        ]);
        if !stderr.is_empty() {
            told.insert("stderr".to_owned(), file(stderr));
        }
        for path in self.input.keys().filter(|path| !left.contains_key(*path)) {
            told.insert(format!("removed/{path}"), file(b""));
        }
        // What lies there as it was put there says nothing of the command.
        let new = left
            .into_iter()
            .filter(|(path, entry)| self.input.get(path) != Some(entry));
        told.extend(new.map(|(path, entry)| (format!("files/{path}"), entry)));
        told
    }

    /// Streams that are longer than what is kept differ, whatever their beginning is.
    pub(super) fn differences(&self, told: &Tree, cut: &[&str]) -> Vec<Difference> {
        let mut found: Vec<Difference> =
            cut.iter().map(|name| difference(name, What::Cut)).collect();
        for (path, wanted) in &self.expected {
            match told.get(path) {
                None => found.push(difference(path, What::Missing)),
                Some(got) if got != wanted => {
                    let diff = unified::compare(&text(wanted), &text(got), 3, Bounds::USUAL);
                    found.push(difference(path, What::Changed(diff)));
                }
                Some(_) => {}
            }
        }
        let unexpected = told
            .keys()
            .filter(|path| !self.expected.contains_key(*path));
        found.extend(unexpected.map(|path| difference(path, What::Unexpected)));
        found
    }

    /// Writes it down as what is expected: all of it, or what was there stays.
    pub(super) fn bless(&self, told: &Tree) -> io::Result<()> {
        let (place, fresh) = (self.dir.join(EXPECTED), self.dir.join(".expected.fresh"));
        match fs::remove_dir_all(&fresh) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        tree::write(told, &fresh)?;
        match fs::remove_dir_all(&place) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        fs::rename(&fresh, &place)
    }
}

fn difference(path: &str, what: What) -> Difference {
    Difference {
        path: path.to_owned(),
        what,
    }
}

fn text(entry: &Entry) -> Vec<u8> {
    match entry {
        Entry::File { bytes, is_program } => {
            let mut bytes = bytes.clone();
            if *is_program {
                bytes.extend_from_slice(b"\n(a program)\n");
            }
            bytes
        }
        Entry::Link(target) => format!("a link to {target}\n").into_bytes(),
    }
}
