//! Reading and writing the small files of a control group, beneath a directory descriptor, with errors that say which file and what value.

use std::cell::OnceCell;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::run::CgroupError;

/// Writes one attribute.
pub(super) fn write(group: BorrowedFd<'_>, file: &str, value: &str) -> Result<(), CgroupError> {
    let failed = |errno| CgroupError::Attribute {
        file: file.to_owned(),
        value: value.to_owned(),
        errno,
    };
    let opened = rustix::fs::openat(group, file, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())
        .map_err(failed)?;
    rustix::io::write(&opened, value.as_bytes())
        .map(drop)
        .map_err(failed)
}

/// Opens an attribute to be read again and again; `None` where this kernel does not have it.
pub(super) fn open(group: BorrowedFd<'_>, file: &str) -> Option<OwnedFd> {
    rustix::fs::openat(group, file, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()
}

/// An attribute that is opened when it is first read: a run that is being started has no time for it.
#[derive(Debug)]
pub(super) struct Counter {
    file: &'static str,
    opened: OnceCell<OwnedFd>,
}

impl Counter {
    pub(super) const fn new(file: &'static str) -> Self {
        Self {
            file,
            opened: OnceCell::new(),
        }
    }

    /// The number that the whole attribute is.
    pub(super) fn number(&self, group: Option<BorrowedFd<'_>>) -> Option<u64> {
        self.text(group)?.trim().parse().ok()
    }

    /// The number behind `key` in an attribute of `key value` lines.
    pub(super) fn keyed(&self, group: Option<BorrowedFd<'_>>, key: &str) -> Option<u64> {
        lookup(&self.text(group)?, key)
    }

    fn text(&self, group: Option<BorrowedFd<'_>>) -> Option<String> {
        // What could not be opened once, for want of descriptors, is tried again: it may be the evidence of an ending.
        if self.opened.get().is_none() {
            let _ = self.opened.set(open(group?, self.file)?);
        }
        read(self.opened.get()?).ok()
    }
}

/// Reads a short attribute from its start.
pub(super) fn read(file: impl AsFd) -> Result<String, Errno> {
    let mut buffer = [0u8; 4096];
    let length = rustix::io::pread(file, &mut buffer, 0)?;
    Ok(String::from_utf8_lossy(buffer.get(..length).unwrap_or_default()).into_owned())
}

fn lookup(text: &str, key: &str) -> Option<u64> {
    text.lines().find_map(|line| {
        line.strip_prefix(key)?
            .strip_prefix(' ')?
            .trim()
            .parse()
            .ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_matched_whole() {
        let text = "oom 3\noom_kill 7\noom_group_kill 1\n";
        assert_eq!(lookup(text, "oom_kill"), Some(7));
        assert_eq!(lookup(text, "oom"), Some(3));
        assert_eq!(lookup(text, "max"), None);
        assert_eq!(lookup("max many\n", "max"), None);
    }
}
