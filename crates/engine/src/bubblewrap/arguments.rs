//! The command line of `bwrap`, as one list. Everything but the command goes through a descriptor, so that no environment shows in anybody's list of processes.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use cofferdam_sys::attendant;

use crate::outer::{Entry, Mode};

/// Where the attendant lies inside.
pub(super) const ATTENDANT: &str = "/.attendant";

/// What is asked of bwrap. Contents are numbers of descriptors by the time that bwrap reads them; [`Words::content`] decides which.
#[derive(Debug)]
pub(super) struct Asked<'a> {
    pub(super) view: &'a [Entry],
    pub(super) env: &'a [(OsString, OsString)],
    /// The scratch space; `None` for no limit of its own.
    pub(super) scratch_bytes: Option<u64>,
    /// Files of /proc that say something else than the kernel would.
    pub(super) covers: &'a [(PathBuf, Vec<u8>)],
    pub(super) hides_keys: HidesKeys,
}

/// Whether /proc/keys would name the caller's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HidesKeys {
    Yes,
    No,
}

/// The list as it grows, and what has to be given along.
#[derive(Debug, Default)]
pub(super) struct Words {
    pub(super) words: Vec<OsString>,
    /// By place in `words`: the number of the descriptor that has this content goes there.
    pub(super) contents: Vec<(usize, Vec<u8>)>,
}

/// Namespaces that are wanted, none of them "if possible".
const FIXED: [&str; 19] = [
    "--unshare-user",
    "--unshare-ipc",
    "--unshare-pid",
    "--unshare-net",
    "--unshare-uts",
    "--unshare-cgroup",
    "--uid",
    "1000",
    "--gid",
    "1000",
    "--hostname",
    "sandbox",
    "--cap-drop",
    "ALL",
    "--new-session",
    "--die-with-parent",
    "--clearenv",
    "--proc",
    "/proc",
];

/// Everything between `bwrap` and the command, but for the descriptors that bwrap itself talks over.
pub(super) fn arguments(asked: &Asked<'_>) -> Words {
    let mut words = Words::default();
    words.plain(FIXED);
    for (name, value) in asked.env {
        words.plain(["--setenv"]);
        words.words.extend([name.clone(), value.clone()]);
    }
    for entry in asked.view {
        words.entry(entry);
    }
    if asked.hides_keys == HidesKeys::Yes {
        words.plain(["--dev-bind-try", "/dev/null", "/proc/keys"]);
    }
    for (path, content) in asked.covers {
        words.plain(["--ro-bind-data"]);
        words.content(content.clone());
        words.words.push(path.into());
    }
    if let Some(bytes) = asked.scratch_bytes {
        words.plain(["--size", &bytes.to_string()]);
    }
    words.plain(["--perms", "1777", "--tmpfs", attendant::SCRATCH]);
    words.plain(["--perms", "0555", "--file"]);
    words.content(attendant::executable().to_vec());
    words.plain([ATTENDANT]);
    // Last: from here on nothing can be made in the root itself.
    words.plain(["--remount-ro", "/", "--chdir", "/"]);
    words
}

impl Words {
    fn plain<const N: usize>(&mut self, words: [&str; N]) {
        self.words.extend(words.map(OsString::from));
    }

    pub(super) fn content(&mut self, content: Vec<u8>) {
        self.contents.push((self.words.len(), content));
        self.words.push(OsString::new());
    }

    fn pair(&mut self, option: &str, from: &Path, to: &Path) {
        self.words
            .extend([option.into(), from.into(), OsString::from(to)]);
    }

    fn entry(&mut self, entry: &Entry) {
        match entry {
            Entry::Dir(path) => {
                self.plain(["--dir"]);
                self.words.push(path.into());
            }
            Entry::Link { target, path } => self.pair("--symlink", target, path),
            Entry::File { path, content } => {
                self.plain(["--perms", "0644", "--file"]);
                self.content(content.clone());
                self.words.push(path.into());
            }
            Entry::Bind { source, path, mode } => {
                let option = match mode {
                    Mode::ReadOnly => "--ro-bind",
                    Mode::ReadWrite => "--bind",
                    Mode::Device => "--dev-bind",
                };
                self.pair(option, source, path);
            }
        }
    }

    /// As `--args` wants them: each followed by a NUL.
    pub(super) fn for_descriptor(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for word in &self.words {
            bytes.extend_from_slice(word.as_bytes());
            bytes.push(0);
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(asked: &Asked<'_>) -> String {
        let words = arguments(asked);
        assert!(
            words
                .contents
                .iter()
                .all(|(at, _)| words.words[*at].is_empty())
        );
        let texts: Vec<_> = words
            .words
            .iter()
            .map(|word| word.to_string_lossy())
            .collect();
        texts.join(" ")
    }

    #[test]
    fn every_wall_is_asked_for_and_the_root_is_sealed_last() {
        let view = [
            Entry::Dir("/etc".into()),
            Entry::File {
                path: "/etc/passwd".into(),
                content: b"x".to_vec(),
            },
            Entry::Link {
                target: "usr/bin".into(),
                path: "/bin".into(),
            },
            Entry::Bind {
                source: "/usr".into(),
                path: "/usr".into(),
                mode: Mode::ReadOnly,
            },
            Entry::Bind {
                source: "/a b".into(),
                path: "/work".into(),
                mode: Mode::ReadWrite,
            },
            Entry::Bind {
                source: "/dev/null".into(),
                path: "/dev/null".into(),
                mode: Mode::Device,
            },
        ];
        let covers = [(PathBuf::from("/proc/stat"), b"cpu".to_vec())];
        let env = [("HOME".into(), "/home/sandbox".into())];
        let asked = Asked {
            view: &view,
            env: &env,
            scratch_bytes: Some(4096),
            covers: &covers,
            hides_keys: HidesKeys::Yes,
        };
        assert_eq!(
            line(&asked),
            "--unshare-user --unshare-ipc --unshare-pid --unshare-net --unshare-uts --unshare-cgroup --uid 1000 --gid 1000 \
             --hostname sandbox --cap-drop ALL --new-session --die-with-parent --clearenv --proc /proc \
             --setenv HOME /home/sandbox --dir /etc --perms 0644 --file  /etc/passwd --symlink usr/bin /bin \
             --ro-bind /usr /usr --bind /a b /work --dev-bind /dev/null /dev/null --dev-bind-try /dev/null /proc/keys \
             --ro-bind-data  /proc/stat --size 4096 --perms 1777 --tmpfs /tmp --perms 0555 --file  /.attendant \
             --remount-ro / --chdir /"
        );
    }

    #[test]
    fn words_reach_bwrap_whole_whatever_they_hold() {
        let mut words = Words::default();
        words
            .words
            .extend(["--setenv", "A", "b c\n--bind"].map(OsString::from));
        assert_eq!(words.for_descriptor(), b"--setenv\0A\0b c\n--bind\0");
    }
}
