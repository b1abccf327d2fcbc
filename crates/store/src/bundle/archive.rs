//! The ZIP archive as [`super::export`] writes it, read strictly: no byte that is not accounted for, and one way to read each.
//!
//! Readers that search for the directory, take the last of two entries or believe the local header read different files out of the same bytes. Here the entries stand one after the
//! other from the first byte, the directory follows at once and in the same order, then its end, and then nothing. So entries cannot overlap, and no other reader sees another file.

use std::collections::BTreeMap;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::path::PathBuf;

use crate::error::StoreError;

use super::contents::Contents;
use super::format::{EntryName, Limits, refused};
use super::headers::{
    Directory, END, END_SIZE, END64_SIZE, Fields, IN_ZIP64, LOCAL, LOCATOR64_SIZE, Listed,
    read_array, read_central, read_directory64, read_local,
};

/// Deflate cannot do better.
const BEST_RATIO: u64 = 1032;

/// A whole bundle, its structure checked, its contents not yet read.
#[derive(Debug)]
pub(super) struct Archive<R> {
    file: R,
    path: PathBuf,
    pub(super) entries: BTreeMap<EntryName, Entry>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) name: EntryName,
    /// Where its contents begin.
    pub(super) start: u64,
    pub(super) compressed: u64,
    pub(super) bytes: u64,
    pub(super) crc32: u32,
    pub(super) method: Method,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Method {
    Stored,
    Deflated,
}

impl<R: Read + Seek> Archive<R> {
    pub(super) fn open(file: R, path: PathBuf, limits: &Limits) -> Result<Self, StoreError> {
        let mut archive = Self {
            file,
            path,
            entries: BTreeMap::new(),
        };
        let directory = archive.directory()?;
        if directory.entries > limits.entries {
            return Err(refused(format!(
                "it has {} files, and at most {} are read",
                directory.entries, limits.entries
            )));
        }
        let mut listed = archive.listed(&directory)?;
        check_sizes(&listed, limits)?;
        archive.find_contents(&mut listed, &directory)?;
        for Listed { entry, .. } in listed {
            if archive.entries.insert(entry.name, entry).is_some() {
                return Err(refused(format!("`{}` is in it twice", entry.name)));
            }
        }
        Ok(archive)
    }

    /// A reader that fails at its end when size or checksum do not fit.
    pub(super) fn contents(&mut self, entry: &Entry) -> Result<Contents<'_>, StoreError> {
        self.seek(entry.start)?;
        Ok(Contents::new(&mut self.file, entry))
    }

    /// What went wrong while reading is either the archive's fault or the disk's.
    pub(super) fn failed(&self, error: io::Error) -> StoreError {
        match error.kind() {
            io::ErrorKind::InvalidData => refused(error.to_string()),
            io::ErrorKind::InvalidInput => refused("compressed contents cannot be read"),
            io::ErrorKind::UnexpectedEof => refused("it is cut off: the file ends too early"),
            _ => StoreError::io("read the bundle", &self.path)(error),
        }
    }

    fn directory(&mut self) -> Result<Directory, StoreError> {
        let length = self
            .file
            .seek(SeekFrom::End(0))
            .map_err(|error| self.failed(error))?;
        let Some(at) = length.checked_sub(END_SIZE) else {
            return Err(refused("it is not a ZIP archive: too short"));
        };
        let begin: [u8; 4] = self.read_at(0)?;
        let mut end = Fields(&self.read_at::<22>(at)?[..]);
        if end.u32() != Some(END) {
            return Err(refused(match u32::from_le_bytes(begin) {
                LOCAL => "it is cut off, was never finished, or has something after its end",
                _ => "it is not a ZIP archive",
            }));
        }
        let directory = self.directory_at(at, &mut end).transpose()?;
        directory.ok_or_else(|| refused("the end of its directory cannot be read: it is damaged"))
    }

    /// `None` for anything that is not as it is written.
    fn directory_at(
        &mut self,
        at: u64,
        end: &mut Fields<'_>,
    ) -> Option<Result<Directory, StoreError>> {
        let (disk, directory_disk) = (end.u16()?, end.u16()?);
        let (here, entries) = (end.u16()?, end.u16()?);
        let (bytes, start, comment) = (end.u32()?, end.u32()?, end.u16()?);
        if (disk, directory_disk, comment) != (0, 0, 0) || here != entries {
            return None;
        }
        let short = Directory {
            entries: entries.into(),
            start: start.into(),
            bytes: bytes.into(),
        };
        if short.start.checked_add(short.bytes)? == at {
            return Some(Ok(short));
        }
        if bytes != IN_ZIP64 && start != IN_ZIP64 && entries != u16::MAX {
            return None;
        }
        let long = match self.directory64(at) {
            Ok(long) => long?,
            Err(error) => return Some(Err(error)),
        };
        let agrees = (entries == u16::MAX || short.entries == long.entries)
            && (bytes == IN_ZIP64 || short.bytes == long.bytes)
            && (start == IN_ZIP64 || short.start == long.start);
        agrees.then_some(Ok(long))
    }

    fn directory64(&mut self, end: u64) -> Result<Option<Directory>, StoreError> {
        let Some(locator) = end.checked_sub(LOCATOR64_SIZE) else {
            return Ok(None);
        };
        let Some(at) = locator.checked_sub(END64_SIZE) else {
            return Ok(None);
        };
        let locator = self.read_at::<20>(locator)?;
        let record = self.read_at::<56>(at)?;
        Ok(read_directory64(at, &locator, &record))
    }

    fn listed(&mut self, directory: &Directory) -> Result<Vec<Listed>, StoreError> {
        self.seek(directory.start)?;
        let path = self.path.clone();
        let mut from = BufReader::new((&mut self.file).take(directory.bytes));
        let mut listed = Vec::new();
        for _ in 0..directory.entries {
            let entry = read_central(&mut from).map_err(|error| match error.kind() {
                io::ErrorKind::InvalidData => refused(error.to_string()),
                io::ErrorKind::UnexpectedEof => {
                    refused("its directory has fewer files than it says")
                }
                _ => StoreError::io("read the bundle", &path)(error),
            })?;
            listed.push(entry);
        }
        let mut more = [0];
        match from.read(&mut more) {
            Ok(0) => Ok(listed),
            Ok(_) => Err(refused("its directory has more in it than files")),
            Err(error) => Err(StoreError::io("read the bundle", &path)(error)),
        }
    }

    /// Where the contents of each begin, by headers that must say what the directory says.
    fn find_contents(
        &mut self,
        listed: &mut [Listed],
        directory: &Directory,
    ) -> Result<(), StoreError> {
        let mut at = 0;
        for one in listed {
            if one.offset != at {
                return Err(refused(format!(
                    "`{}` does not begin where the file before it ends",
                    one.entry.name
                )));
            }
            self.seek(at)?;
            let header = read_local(&mut self.file, one).map_err(|error| self.failed(error))?;
            one.entry.start = at.saturating_add(header);
            at = one.entry.start.saturating_add(one.entry.compressed);
        }
        if at != directory.start {
            return Err(refused(
                "there is something between its files and its directory",
            ));
        }
        Ok(())
    }

    fn read_at<const N: usize>(&mut self, at: u64) -> Result<[u8; N], StoreError> {
        self.seek(at)?;
        read_array(&mut self.file).map_err(|error| self.failed(error))
    }

    fn seek(&mut self, at: u64) -> Result<(), StoreError> {
        let sought = self.file.seek(SeekFrom::Start(at));
        sought.map(drop).map_err(|error| self.failed(error))
    }
}

/// Before anything is decompressed.
fn check_sizes(listed: &[Listed], limits: &Limits) -> Result<(), StoreError> {
    let mut total: u64 = 0;
    for Listed { entry, .. } in listed {
        check_size(entry, limits.of(entry.name))?;
        total = total.saturating_add(entry.bytes);
    }
    if total > limits.total_bytes {
        return Err(refused(format!(
            "it holds {total} bytes, and at most {} are read",
            limits.total_bytes
        )));
    }
    Ok(())
}

fn check_size(entry: &Entry, at_most: u64) -> Result<(), StoreError> {
    let Entry {
        name,
        bytes,
        compressed,
        ..
    } = entry;
    let possible = match entry.method {
        Method::Stored => compressed == bytes,
        Method::Deflated => *bytes <= compressed.saturating_mul(BEST_RATIO),
    };
    if !possible {
        return Err(refused(format!(
            "`{name}` cannot have {bytes} bytes out of {compressed}"
        )));
    }
    if *bytes > at_most {
        return Err(refused(format!(
            "`{name}` has {bytes} bytes, and at most {at_most} are read"
        )));
    }
    Ok(())
}
