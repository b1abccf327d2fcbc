//! The records of a ZIP archive, as a bundle has them. Anything else that the format allows is refused: other systems, encryption, data descriptors, comments, extra fields.

use std::io::{self, Read};

use super::archive::{Entry, Method};
use super::format::EntryName;

pub(super) const LOCAL: u32 = 0x0403_4b50;
const CENTRAL: u32 = 0x0201_4b50;
pub(super) const END: u32 = 0x0605_4b50;
const END64: u32 = 0x0606_4b50;
const LOCATOR64: u32 = 0x0706_4b50;
pub(super) const END_SIZE: u64 = 22;
pub(super) const END64_SIZE: u64 = 56;
pub(super) const LOCATOR64_SIZE: u64 = 20;
/// In a field of 32 bits: the value stands in the ZIP64 field.
pub(super) const IN_ZIP64: u32 = u32::MAX;
const ZIP64_FIELD: u16 = 1;
const UNIX: u8 = 3;
/// A regular file, with the permissions that every entry gets.
const REGULAR_FILE: u32 = 0o100_644;
const ENCRYPTED: u16 = 1;
/// The longest name in the layout has 74 bytes.
const LONGEST_NAME: u16 = 256;
/// The ZIP64 field with two sizes and an offset has 28 bytes.
const LONGEST_EXTRA: u16 = 64;

/// Where the directory stands.
#[derive(Debug)]
pub(super) struct Directory {
    pub(super) entries: u64,
    pub(super) start: u64,
    pub(super) bytes: u64,
}

/// An entry as the directory has it.
#[derive(Debug)]
pub(super) struct Listed {
    /// Version, flags, method, time, date and checksum, which the local header repeats.
    repeated: [u8; 14],
    pub(super) offset: u64,
    /// Where it starts is not known yet.
    pub(super) entry: Entry,
}

/// Little-endian numbers, one after the other.
#[derive(Debug)]
pub(super) struct Fields<'a>(pub(super) &'a [u8]);

impl<'a> Fields<'a> {
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (found, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*found)
    }

    pub(super) fn u8(&mut self) -> Option<u8> {
        self.array().map(u8::from_le_bytes)
    }

    pub(super) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    /// A size or an offset: here, or in the ZIP64 field.
    fn wide(&mut self, zip64: &mut Fields<'a>) -> Option<u64> {
        match self.u32()? {
            IN_ZIP64 => zip64.u64(),
            short => Some(short.into()),
        }
    }
}

pub(super) fn read_directory64(at: u64, locator: &[u8], record: &[u8]) -> Option<Directory> {
    let mut locator = Fields(locator);
    let locator_fits = locator.u32()? == LOCATOR64
        && locator.u32()? == 0
        && locator.u64()? == at
        && locator.u32()? == 1;
    let mut record = Fields(record);
    let record_fits = record.u32()? == END64 && record.u64()? == END64_SIZE - 12;
    let (made_by, needed) = (record.u16()?, record.u16()?);
    let no_disks = record.u64()? == 0;
    let (here, entries) = (record.u64()?, record.u64()?);
    let (bytes, start) = (record.u64()?, record.u64()?);
    let adjoins = start.checked_add(bytes)? == at;
    let is_ours = made_by == needed && no_disks && here == entries && adjoins;
    (locator_fits && record_fits && is_ours).then_some(Directory {
        entries,
        start,
        bytes,
    })
}

pub(super) fn read_central(from: &mut impl Read) -> io::Result<Listed> {
    let fixed: [u8; 46] = read_array(from)?;
    let damaged = || bad("its directory is damaged: an entry cannot be read");
    let mut fields = Fields(&fixed);
    if fields.u32() != Some(CENTRAL) {
        return Err(damaged());
    }
    let (version, system) = (fields.u8(), fields.u8());
    let repeated: [u8; 14] = fields.array().ok_or_else(damaged)?;
    let needed = Fields(&repeated).u16();
    if version.map(u16::from) != needed {
        return Err(damaged());
    }
    let lengths = fixed.get(28..34).ok_or_else(damaged)?;
    let (name, zip64) = name_and_zip64(from, lengths)?;
    let name = EntryName::parse(&name).map_err(bad)?;
    let attributes = fixed.get(32..42).and_then(Attributes::read);
    check_attributes(name, system, &attributes.ok_or_else(damaged)?)?;
    let unreadable = || bad(format!("the sizes of `{name}` cannot be read"));
    let mut zip64 = Fields(&zip64);
    let compressed_field = fields.array::<4>().ok_or_else(damaged)?;
    let bytes = fields.wide(&mut zip64).ok_or_else(unreadable)?;
    let compressed = Fields(&compressed_field)
        .wide(&mut zip64)
        .ok_or_else(unreadable)?;
    let offset = fixed.last_chunk::<4>().ok_or_else(damaged)?;
    let offset = Fields(offset).wide(&mut zip64).ok_or_else(unreadable)?;
    if !zip64.0.is_empty() {
        return Err(unreadable());
    }
    Ok(Listed {
        repeated,
        offset,
        entry: Entry {
            name,
            start: 0,
            compressed,
            bytes,
            crc32: crc32(&repeated).ok_or_else(damaged)?,
            method: method(name, &repeated)?,
        },
    })
}

/// How many bytes the header of an entry takes, if it says what the directory says.
pub(super) fn read_local(from: &mut impl Read, listed: &Listed) -> io::Result<u64> {
    let fixed: [u8; 30] = read_array(from)?;
    let name = listed.entry.name;
    let disagrees = || bad(format!("the directory and the header of `{name}` disagree"));
    let mut fields = Fields(&fixed);
    if fields.u32() != Some(LOCAL) || fields.array() != Some(listed.repeated) {
        return Err(disagrees());
    }
    let lengths = fixed.last_chunk::<4>().ok_or_else(disagrees)?;
    let (raw_name, zip64) = name_and_zip64(from, lengths)?;
    let mut zip64 = Fields(&zip64);
    let compressed_field = fields.array::<4>().ok_or_else(disagrees)?;
    let bytes = fields.wide(&mut zip64);
    let compressed = Fields(&compressed_field).wide(&mut zip64);
    let same = raw_name == name.to_string().as_bytes()
        && bytes == Some(listed.entry.bytes)
        && compressed == Some(listed.entry.compressed)
        && zip64.0.is_empty();
    let mut lengths = Fields(lengths);
    match (lengths.u16(), lengths.u16()) {
        (Some(name), Some(extra)) if same => Ok(30 + u64::from(name) + u64::from(extra)),
        _ => Err(disagrees()),
    }
}

/// What follows the fixed part of a header: the name, and an extra field, which is the ZIP64 one or none.
fn name_and_zip64(from: &mut impl Read, lengths: &[u8]) -> io::Result<(Vec<u8>, Vec<u8>)> {
    let mut lengths = Fields(lengths);
    let name = lengths.u16().unwrap_or(u16::MAX);
    let extra = lengths.u16().unwrap_or(u16::MAX);
    if name > LONGEST_NAME || extra > LONGEST_EXTRA {
        return Err(bad("a name or an extra field is too long for a bundle"));
    }
    let (name, extra) = (read_vec(from, name)?, read_vec(from, extra)?);
    let zip64 = zip64_values(&extra);
    let zip64 = zip64.ok_or_else(|| bad("it has extra fields that a bundle has not"))?;
    Ok((name, zip64.to_vec()))
}

fn zip64_values(extra: &[u8]) -> Option<&[u8]> {
    if extra.is_empty() {
        return Some(extra);
    }
    let mut fields = Fields(extra);
    let fits = fields.u16()? == ZIP64_FIELD && usize::from(fields.u16()?) == fields.0.len();
    fits.then_some(fields.0)
}

fn crc32(repeated: &[u8; 14]) -> Option<u32> {
    repeated.last_chunk::<4>().copied().map(u32::from_le_bytes)
}

fn method(name: EntryName, repeated: &[u8; 14]) -> io::Result<Method> {
    let mut fields = Fields(repeated);
    let _version = fields.u16();
    match (fields.u16(), fields.u16()) {
        (Some(0), Some(0)) => Ok(Method::Stored),
        (Some(0), Some(8)) => Ok(Method::Deflated),
        (Some(0), Some(other)) => Err(bad(format!(
            "`{name}` is compressed by method {other}; only 0 (stored) and 8 (deflate) are read"
        ))),
        (Some(flags), _) if flags & ENCRYPTED != 0 => Err(bad(format!("`{name}` is encrypted"))),
        (flags, _) => Err(bad(format!(
            "`{name}` has the flags {:#x}, and a bundle has none",
            flags.unwrap_or_default()
        ))),
    }
}

/// From the length of the comment on.
struct Attributes {
    comment: u16,
    disk: u16,
    internal: u16,
    external: u32,
}

impl Attributes {
    fn read(fixed: &[u8]) -> Option<Self> {
        let mut fields = Fields(fixed);
        Some(Self {
            comment: fields.u16()?,
            disk: fields.u16()?,
            internal: fields.u16()?,
            external: fields.u32()?,
        })
    }
}

fn check_attributes(name: EntryName, system: Option<u8>, found: &Attributes) -> io::Result<()> {
    let mode = found.external >> 16;
    if system != Some(UNIX) || mode != REGULAR_FILE || found.external & 0xffff != 0 {
        return Err(bad(format!(
            "`{name}` is not a regular file as a bundle has them (mode {mode:o}); no links, directories or devices"
        )));
    }
    if (found.comment, found.disk, found.internal) != (0, 0, 0) {
        return Err(bad(format!(
            "`{name}` has a comment or attributes that a bundle has not"
        )));
    }
    Ok(())
}

pub(super) fn bad(why: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why.into())
}

pub(super) fn read_array<const N: usize>(from: &mut impl Read) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    from.read_exact(&mut bytes)?;
    Ok(bytes)
}

fn read_vec(from: &mut impl Read, length: u16) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; length.into()];
    from.read_exact(&mut bytes)?;
    Ok(bytes)
}
