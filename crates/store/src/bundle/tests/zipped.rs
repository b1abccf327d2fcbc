//! Archives made by hand, since no library makes the bad ones.

use std::collections::BTreeMap;
use std::io::{Cursor, Read as _, Write as _};

use flate2::Compression;
use flate2::write::DeflateEncoder;
use serde_json::{Value, json};

use crate::bundle::{FORMAT, InspectOptions, Inspected, inspect_bytes};
use crate::error::StoreError;
use crate::model::Digest;

/// One file, with everything that can be wrong about it.
#[derive(Debug, Clone)]
pub(super) struct RawFile {
    pub(super) name: Vec<u8>,
    /// In the local header.
    pub(super) local_name: Vec<u8>,
    pub(super) data: Vec<u8>,
    pub(super) method: u16,
    pub(super) flags: u16,
    pub(super) system: u8,
    pub(super) attributes: u32,
    pub(super) bytes: u32,
    pub(super) local_bytes: u32,
    pub(super) crc32: u32,
    pub(super) extra: Vec<u8>,
    pub(super) comment: Vec<u8>,
    pub(super) offset: Option<u32>,
}

pub(super) fn file(name: impl AsRef<[u8]>, data: &[u8]) -> RawFile {
    let bytes = u32::try_from(data.len()).unwrap_or(u32::MAX);
    RawFile {
        name: name.as_ref().to_vec(),
        local_name: name.as_ref().to_vec(),
        data: data.to_vec(),
        method: 0,
        flags: 0,
        system: 3,
        attributes: 0o100_644 << 16,
        bytes,
        local_bytes: bytes,
        crc32: crc32fast::hash(data),
        extra: Vec::new(),
        comment: Vec::new(),
        offset: None,
    }
}

pub(super) fn deflate(data: &[u8]) -> Vec<u8> {
    let mut encoder = DeflateEncoder::new(Vec::new(), Compression::best());
    let written = encoder.write_all(data).and_then(|()| encoder.finish());
    written.unwrap_or_default()
}

fn short(length: usize) -> [u8; 2] {
    u16::try_from(length).unwrap_or(u16::MAX).to_le_bytes()
}

fn long(length: usize) -> [u8; 4] {
    u32::try_from(length).unwrap_or(u32::MAX).to_le_bytes()
}

impl RawFile {
    /// From the version to the checksum.
    fn shared(&self) -> Vec<u8> {
        let mut out = vec![20, 0];
        out.extend(self.flags.to_le_bytes());
        out.extend(self.method.to_le_bytes());
        out.extend([0, 0, 0x21, 0]);
        out.extend(self.crc32.to_le_bytes());
        out
    }

    fn local(&self) -> Vec<u8> {
        let mut out = b"PK\x03\x04".to_vec();
        out.extend(self.shared());
        out.extend(long(self.data.len()));
        out.extend(self.local_bytes.to_le_bytes());
        out.extend(short(self.local_name.len()));
        out.extend(short(self.extra.len()));
        out.extend(&self.local_name);
        out.extend(&self.extra);
        out.extend(&self.data);
        out
    }

    fn central(&self, offset: usize) -> Vec<u8> {
        let mut out = b"PK\x01\x02".to_vec();
        out.extend([20, self.system]);
        out.extend(self.shared());
        out.extend(long(self.data.len()));
        out.extend(self.bytes.to_le_bytes());
        out.extend(short(self.name.len()));
        out.extend(short(self.extra.len()));
        out.extend(short(self.comment.len()));
        out.extend([0; 4]);
        out.extend(self.attributes.to_le_bytes());
        let offset = u32::try_from(offset).unwrap_or(u32::MAX);
        out.extend(self.offset.unwrap_or(offset).to_le_bytes());
        out.extend(&self.name);
        out.extend(&self.extra);
        out.extend(&self.comment);
        out
    }
}

pub(super) fn zip(files: &[RawFile]) -> Vec<u8> {
    zip_with(files, b"", b"")
}

/// With something between files and directory, and a comment at the end.
pub(super) fn zip_with(files: &[RawFile], between: &[u8], comment: &[u8]) -> Vec<u8> {
    let (mut out, mut directory) = (Vec::new(), Vec::new());
    for file in files {
        directory.extend(file.central(out.len()));
        out.extend(file.local());
    }
    out.extend(between);
    let start = out.len();
    out.extend(&directory);
    out.extend(b"PK\x05\x06\0\0\0\0");
    out.extend(short(files.len()));
    out.extend(short(files.len()));
    out.extend(long(directory.len()));
    out.extend(long(start));
    out.extend(short(comment.len()));
    out.extend(comment);
    out
}

/// What another reader finds in an archive.
pub(super) fn unzip(bytes: &[u8]) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    let Ok(mut archive) = zip::ZipArchive::new(Cursor::new(bytes)) else {
        return found;
    };
    for index in 0..archive.len() {
        if let Ok(mut file) = archive.by_index(index) {
            let mut contents = Vec::new();
            if file.read_to_end(&mut contents).is_ok() {
                found.insert(file.name().unwrap_or_default().to_string(), contents);
            }
        }
    }
    found
}

/// A manifest that fits these files.
pub(super) fn manifest(files: &BTreeMap<String, Vec<u8>>, missing: &Value) -> Value {
    let listed = files
        .iter()
        .filter(|(name, _)| !["manifest.json", "signature.json"].contains(&name.as_str()));
    let entry = |(name, data): (&String, &Vec<u8>)| {
        let facts = json!({"sha256": Digest::of(data).to_string(), "bytes": data.len()});
        (name.clone(), facts)
    };
    let artifact_bytes: usize = files
        .iter()
        .filter(|(name, _)| name.starts_with("artifacts/"))
        .map(|(_, data)| data.len())
        .sum();
    let runs = files
        .keys()
        .filter(|name| name.starts_with("runs/"))
        .count();
    json!({
        "format": FORMAT,
        "version": "1.0.0",
        "created_at": "2027-01-15T08:01:40Z",
        "tool_version": "0.1.0",
        "run_count": runs,
        "artifact_bytes": artifact_bytes,
        "files": listed.map(entry).collect::<serde_json::Map<String, Value>>(),
        "missing": missing,
    })
}

/// An archive of these files, with this manifest.
pub(super) fn with_manifest(files: &BTreeMap<String, Vec<u8>>, manifest: &Value) -> Vec<u8> {
    let mut raw: Vec<RawFile> = files
        .iter()
        .filter(|(name, _)| *name != "manifest.json")
        .map(|(name, data)| file(name, data))
        .collect();
    raw.push(file("manifest.json", manifest.to_string().as_bytes()));
    zip(&raw)
}

pub(super) fn look(bytes: &[u8]) -> Result<Inspected, StoreError> {
    inspect_bytes(bytes, &InspectOptions::default())
}

/// Why it is refused; panics in the test when it is not.
pub(super) fn why(bytes: &[u8]) -> String {
    match look(bytes) {
        Err(StoreError::BundleRefused { why }) => why,
        Err(other) => format!("another error: {other}"),
        Ok(_) => "not refused".to_owned(),
    }
}
