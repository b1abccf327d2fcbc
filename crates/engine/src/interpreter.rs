//! Interpreters that may be started before there is anything to run, and which runs can have one.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use cofferdam_contract::request::Request;

use crate::ahead;
use crate::zygote::File;

/// An interpreter that may be kept waiting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interpreter {
    /// As requests name it, such as `python3`.
    pub name: String,
    pub way: Way,
    /// The variables that decide how it starts. A request whose own differ is started cold.
    pub env: Vec<(OsString, OsString)>,
    /// Modules that every copy has already.
    pub preload: Vec<String>,
    /// Scripts that many runs begin with, by their path inside. Copies read them again for each run, but have them compiled. Workspaces that wait for such a run have theirs already.
    pub scripts: Vec<(String, String)>,
}

/// How a run gets one that has started already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// One waits, and each run has a copy of it.
    Copy,
    /// One is started in each sandbox that waits, with a script of [`Interpreter::scripts`], which waits for what it is to do.
    Ahead,
}

/// Names of variables that a program reads while it starts, by how they begin.
const DECIDE_THE_START: [&str; 13] = [
    "PYTHON", "NODE", "UV_", "SSL_", "LD_", "LC_", "LANG", "LOCPATH", "GLIBC_", "MALLOC_",
    "OPENSSL_", "PATH", "HOME",
];

impl Interpreter {
    /// Python as a command starts it, for scripts and for `-c`.
    pub fn python() -> Self {
        Self {
            name: "python3".to_owned(),
            way: Way::Copy,
            env: Vec::new(),
            preload: Vec::new(),
            scripts: Vec::new(),
        }
    }

    /// Whether the request's program is this one, started as this one is.
    pub(crate) fn suits(&self, request: &Request) -> bool {
        let asked = request
            .env
            .iter()
            .filter(|(name, _)| decides_the_start(name));
        let own = self.env.iter().filter(|(name, _)| decides_the_start(name));
        let (mut asked, mut own): (Vec<_>, Vec<_>) = (asked.collect(), own.collect());
        asked.sort();
        own.sort();
        let is_named = || {
            let name = request.argv.first();
            name.is_some_and(|name| **name == *self.name || self.lies_at(name))
        };
        let runs = match self.way {
            Way::Copy => is_script(request) || is_command(request),
            // What waits for it reads text.
            Way::Ahead => self.script(request).is_some() && is_text(request),
        };
        runs && asked == own && is_named()
    }

    fn lies_at(&self, path: &OsStr) -> bool {
        // Most programs have another name, and nothing is looked at for them.
        let path = Path::new(path);
        let may_be = path.is_absolute() && path.file_name() == Some(OsStr::new(&self.name));
        may_be && File::of(&self.name).is_some_and(|file| file.path() == path)
    }

    /// The script of a request, where it is known.
    pub(crate) fn script(&self, request: &Request) -> Option<&(String, String)> {
        let word = request.argv.get(script_at(request)?)?;
        self.scripts.iter().find(|(path, _)| *word == **path)
    }

    /// The command that starts it ahead of such a request.
    pub(crate) fn start(&self, request: &Request) -> Option<Vec<OsString>> {
        let mut words = request.argv.get(..=script_at(request)?)?.to_vec();
        words.push(ahead::WAIT.into());
        (self.way == Way::Ahead).then_some(words)
    }
}

fn is_script(request: &Request) -> bool {
    let script = request.argv.get(1).map(|word| word.as_bytes());
    script.is_some_and(|word| word.ends_with(b".py") && !word.starts_with(b"-"))
}

/// A program among the words, as in `python3 -c TEXT`. What is no text is left for a cold start to refuse.
fn is_command(request: &Request) -> bool {
    let Some([option, text]) = request.argv.get(1..3) else {
        return false;
    };
    option == "-c" && text.to_str().is_some()
}

/// The first word after the name that is no option. An option with a value of its own is not known here, and its value is then no script that is known.
fn script_at(request: &Request) -> Option<usize> {
    let is_script = |word: &OsString| !word.as_bytes().starts_with(b"-");
    let at = request.argv.get(1..)?.iter().position(is_script)?;
    Some(at + 1)
}

fn is_text(request: &Request) -> bool {
    let is_text = |word: &OsString| word.to_str().is_some();
    let mut pairs = request.env.iter();
    request.argv.iter().all(is_text)
        && pairs.all(|(name, value)| is_text(name) && is_text(value))
        && request.cwd.iter().all(|cwd| cwd.to_str().is_some())
}

fn decides_the_start(name: &OsStr) -> bool {
    let begins = |with: &&str| name.as_bytes().starts_with(with.as_bytes());
    DECIDE_THE_START.iter().any(begins)
}
