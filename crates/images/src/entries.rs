//! The entries of an archive as a stranger may have written it. Long names are read here and not by the library, which would take as much memory for one as the archive says.

use std::io::Read;

use tar::{Archive, EntryType, PaxExtensions};

use crate::bounds::{self, LONGEST_NAME};
use crate::error::ImageError;

/// One entry with its whole name.
pub(crate) struct Entry<'a, R: Read> {
    pub(crate) name: Vec<u8>,
    pub(crate) link: Vec<u8>,
    pub(crate) kind: EntryType,
    pub(crate) mode: u32,
    pub(crate) size: u64,
    /// When it was last changed, in seconds since 1970.
    pub(crate) time: u64,
    /// Where its contents begin in the archive.
    pub(crate) position: u64,
    pub(crate) contents: tar::Entry<'a, R>,
}

/// A header of extensions with other things than names in it.
const LONGEST_EXTENSION: u64 = 1 << 20;

/// Names that belong to the entry that comes next.
#[derive(Default)]
struct Ahead {
    name: Option<Vec<u8>>,
    link: Option<Vec<u8>>,
    size: Option<u64>,
}

/// Gives every entry to `each`, in order, until the end of the archive or the first error.
pub(crate) fn each<R: Read>(
    archive: &mut Archive<R>,
    what: &str,
    mut each: impl FnMut(&mut Entry<'_, R>) -> Result<(), ImageError>,
) -> Result<(), ImageError> {
    let bad = |error: &std::io::Error| bounds::explain(what, error);
    let refused = |why: &str| ImageError::refused(what, why);
    let mut ahead = Ahead::default();
    let entries = archive.entries().map_err(|error| bad(&error))?.raw(true);
    for entry in entries {
        let mut entry = entry.map_err(|error| bad(&error))?;
        let kind = entry.header().entry_type();
        match kind {
            EntryType::GNULongName => {
                ahead.name = Some(long_name(&mut entry, what)?);
                continue;
            }
            EntryType::GNULongLink => {
                ahead.link = Some(long_name(&mut entry, what)?);
                continue;
            }
            EntryType::XHeader => {
                extensions(&mut entry, &mut ahead, what)?;
                continue;
            }
            EntryType::XGlobalHeader => {
                short(&mut entry, LONGEST_EXTENSION, what)?;
                continue;
            }
            EntryType::GNUSparse => return Err(refused("it has a sparse file in it")),
            _ => {}
        }
        let header = entry.header();
        let size = header.entry_size().map_err(|error| bad(&error))?;
        let told = std::mem::take(&mut ahead);
        if told.size.is_some_and(|told| told != size) {
            return Err(refused("it has a file of more than 8 GiB in it"));
        }
        let mut entry = Entry {
            name: told
                .name
                .unwrap_or_else(|| header.path_bytes().into_owned()),
            link: told.link.unwrap_or_else(|| {
                let link = header.link_name_bytes();
                link.map(|link| link.into_owned()).unwrap_or_default()
            }),
            kind,
            mode: header.mode().unwrap_or(0o644),
            size,
            time: header.mtime().unwrap_or(0),
            position: entry.raw_file_position(),
            contents: entry,
        };
        if entry.name.len() > LONGEST_NAME || entry.link.len() > LONGEST_NAME {
            return Err(refused("a name in it is too long"));
        }
        each(&mut entry)?;
    }
    Ok(())
}

/// The names of the way to an entry, without those that mean nothing; `None` for one that leads out.
pub(crate) fn parts(name: &[u8]) -> Option<Vec<&[u8]>> {
    let parts = name.split(|&byte| byte == b'/');
    let parts: Vec<&[u8]> = parts.filter(|part| !matches!(*part, b"" | b".")).collect();
    let is_strange = |part: &&[u8]| *part == b".." || part.contains(&0) || part.len() > 255;
    (!parts.iter().any(is_strange)).then_some(parts)
}

fn long_name<R: Read>(entry: &mut tar::Entry<'_, R>, what: &str) -> Result<Vec<u8>, ImageError> {
    let mut name = short(entry, LONGEST_NAME as u64 + 1, what)?;
    if name.last() == Some(&0) {
        name.pop();
    }
    Ok(name)
}

fn extensions<R: Read>(
    entry: &mut tar::Entry<'_, R>,
    ahead: &mut Ahead,
    what: &str,
) -> Result<(), ImageError> {
    let bytes = short(entry, LONGEST_EXTENSION, what)?;
    for extension in PaxExtensions::new(&bytes) {
        let extension = extension.map_err(|error| bounds::explain(what, &error))?;
        let value = extension.value_bytes();
        match extension.key_bytes() {
            b"path" => ahead.name = Some(value.to_vec()),
            b"linkpath" => ahead.link = Some(value.to_vec()),
            b"size" => {
                let size = extension.value().ok().and_then(|text| text.parse().ok());
                ahead.size = Some(size.unwrap_or(u64::MAX));
            }
            key if key.starts_with(b"GNU.sparse.") => {
                return Err(ImageError::refused(what, "it has a sparse file in it"));
            }
            // Owners, times and extended attributes: everything belongs to one user here, and no attribute grants anything.
            _ => {}
        }
    }
    Ok(())
}

fn short<R: Read>(
    entry: &mut tar::Entry<'_, R>,
    at_most: u64,
    what: &str,
) -> Result<Vec<u8>, ImageError> {
    let mut bytes = Vec::new();
    let read = entry.take(at_most + 1).read_to_end(&mut bytes);
    let read = read.map_err(|error| bounds::explain(what, &error))?;
    if read as u64 > at_most {
        return Err(ImageError::refused(what, "a name in it is too long"));
    }
    Ok(bytes)
}
