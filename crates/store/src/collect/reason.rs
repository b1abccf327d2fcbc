//! Why a file is not kept, as people read it.

use std::fmt;

use cofferdam_contract::units::Bytes;
use rustix::fs::FileType;

/// Why a file is not kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reason {
    SensitiveName,
    SensitiveContents,
    NotAFile(FileType),
    LargerThanFile {
        bytes: u64,
        limit: Bytes,
    },
    LargerThanRun {
        bytes: u64,
        limit: Bytes,
    },
    TooMany {
        bytes: u64,
        limit: u64,
    },
    StoreFull {
        bytes: u64,
        limit: Bytes,
    },
    /// A record holds only so much of names.
    NamesTooLong {
        bytes: u64,
        limit: Bytes,
    },
    Unreadable {
        error: String,
    },
    /// So many before it had to be looked at that this one was not.
    TooMuchWork {
        bytes: u64,
    },
    /// Removed, or put in the place of something else, since it was listed.
    Gone,
    ChangedMeanwhile,
    NotStored {
        error: String,
    },
    UnreadableDirectory {
        error: String,
    },
    OtherMount,
    TooDeep {
        limit: usize,
    },
    /// Of the workspace as a whole.
    TooManyEntries {
        limit: usize,
    },
    /// Of the list of what is left out.
    AndMore {
        count: usize,
    },
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SensitiveName => f.write_str("its name says that it holds secrets"),
            Self::SensitiveContents => f.write_str("it seems to hold secrets"),
            Self::NotAFile(kind) => {
                write!(f, "it is {}; only regular files are kept", kind_name(*kind))
            }
            Self::TooMuchWork { bytes } => write!(
                f,
                "it has {}; looking at the files before it took too long",
                Bytes::new(*bytes)
            ),
            Self::LargerThanFile { bytes, limit } => {
                let bytes = Bytes::new(*bytes);
                write!(f, "it has {bytes}; a file may have at most {limit}")
            }
            Self::LargerThanRun { bytes, limit } => write!(
                f,
                "it has {}; with it, the run's files would have more than {limit}",
                Bytes::new(*bytes)
            ),
            Self::TooMany { bytes, limit } => write!(
                f,
                "it has {}; {limit} files are kept of a run, and it comes after them",
                Bytes::new(*bytes)
            ),
            Self::StoreFull { bytes, limit } => write!(
                f,
                "it has {}; with it, all that is kept would take more than {limit}",
                Bytes::new(*bytes)
            ),
            Self::NamesTooLong { bytes, limit } => write!(
                f,
                "it has {}; with it, the names of the run's files would have more than {limit}",
                Bytes::new(*bytes)
            ),
            Self::Unreadable { error } => write!(f, "it cannot be read: {error}"),
            Self::Gone => f.write_str("it was removed or replaced after the run"),
            Self::ChangedMeanwhile => f.write_str("it was being changed while it was read"),
            Self::NotStored { error } => write!(f, "it cannot be stored: {error}"),
            Self::UnreadableDirectory { error } => {
                write!(f, "this directory cannot be read: {error}")
            }
            Self::OtherMount => f.write_str("something else is mounted here"),
            Self::TooDeep { limit } => {
                write!(f, "directories are looked into {limit} levels deep")
            }
            Self::TooManyEntries { limit } => write!(
                f,
                "the workspace has more than {limit} entries, or very long names; the rest was not looked at"
            ),
            Self::AndMore { count } => write!(f, "{count} more are left out"),
        }
    }
}

fn kind_name(kind: FileType) -> &'static str {
    match kind {
        FileType::RegularFile => "a file",
        FileType::Directory => "a directory",
        FileType::Symlink => "a symbolic link",
        FileType::Fifo => "a pipe",
        FileType::Socket => "a socket",
        FileType::CharacterDevice | FileType::BlockDevice => "a device",
        FileType::Unknown => "of an unknown kind",
    }
}
