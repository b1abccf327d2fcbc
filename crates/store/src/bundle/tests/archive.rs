//! Archives that no exporter writes, and large ones that it does.

use std::io::{Cursor, Write as _};
use std::path::PathBuf;

use zip::write::SimpleFileOptions;

use crate::bundle::archive::Archive;
use crate::bundle::{EntryName, InspectOptions, Limits, inspect_bytes};
use crate::id::RunId;
use crate::model::Digest;

use super::samples::{FIRST, bundle, options};
use super::zipped::{RawFile, deflate, file, why, zip, zip_with};

#[track_caller]
fn refused(bytes: &[u8], with: &str) {
    let why = why(bytes);
    assert!(why.contains(with), "expected `{with}` in: {why}");
}

fn note() -> RawFile {
    file("provenance.json", b"{}")
}

#[test]
fn what_is_no_whole_archive_is_refused() {
    refused(b"", "too short");
    refused(b"hello, this is a text and no archive", "not a ZIP archive");
    let bytes = bundle(&[FIRST], &options()).unwrap();
    refused(&bytes[..bytes.len() - 1], "cut off");
    refused(&bytes[..bytes.len() / 2], "cut off");
    refused(&[&bytes[..], b"x"].concat(), "after its end");
    refused(&[b"MZ stub", &bytes[..]].concat(), "damaged");
    refused(&bytes[4..], "not");
    refused(&zip_with(&[note()], b"", b"comment"), "after its end");
    refused(&zip_with(&[note()], b"hidden", b""), "between its files");
}

#[test]
fn hostile_names_are_refused() {
    for (name, with) in [
        (&b"/etc/passwd"[..], "is absolute"),
        (b"../../etc/passwd", "leads out"),
        (b"artifacts/../../x", "leads out"),
        (b"artifacts\\..\\x", "backslash"),
        (b"C:evil", "drive letter"),
        (b"runs/a\0b.json", "control"),
        (b"runs/a\x1b[2J.json", "control"),
        (b"caf\xe9", "not UTF-8"),
        (b"artifacts/", "a directory"),
        (b"unknown.json", "not in the layout"),
        (b"", "not in the layout"),
        (&[b'a'; 300], "too long"),
    ] {
        let bytes = zip(&[file(name, b"x")]);
        refused(&bytes, with);
        assert!(!why(&bytes).contains(['\0', '\x1b']));
    }
}

#[test]
fn one_name_stands_for_one_file() {
    refused(&zip(&[note(), note()]), "in it twice");
}

#[test]
fn only_regular_files_are_taken() {
    let with = |change: &dyn Fn(&mut RawFile)| {
        let mut raw = note();
        change(&mut raw);
        zip(&[raw])
    };
    for mode in [
        0o120_777, 0o040_755, 0o020_666, 0o060_666, 0o010_644, 0o140_755, 0,
    ] {
        refused(
            &with(&|raw| raw.attributes = mode << 16),
            "not a regular file",
        );
    }
    refused(&with(&|raw| raw.attributes |= 0x10), "not a regular file");
    refused(&with(&|raw| raw.system = 0), "not a regular file");
    refused(&with(&|raw| raw.comment = b"c".to_vec()), "comment");
    refused(
        &with(&|raw| raw.extra = vec![0x75, 0x70, 1, 0, 0]),
        "extra fields",
    );
    refused(&with(&|raw| raw.extra = vec![0; 65]), "too long");
    refused(
        &with(&|raw| raw.extra = vec![1, 0, 8, 0, 1, 2, 3, 4, 5, 6, 7, 8]),
        "sizes",
    );
}

#[test]
fn encryption_and_other_compression_are_refused() {
    let with = |flags, method| {
        let mut raw = file("manifest.json", b"\x07{}");
        (raw.flags, raw.method) = (flags, method);
        zip(&[raw])
    };
    refused(&with(1, 0), "encrypted");
    refused(&with(0x41, 0), "encrypted");
    refused(&with(8, 0), "flags 0x8");
    refused(&with(0, 99), "method 99");
    refused(&with(0, 12), "method 12");
    refused(&with(0, 8), "cannot be read");
}

#[test]
fn directory_and_headers_must_say_the_same() {
    let with = |change: &dyn Fn(&mut RawFile)| {
        let mut raw = file("manifest.json", b"{}");
        change(&mut raw);
        zip(&[note(), raw])
    };
    let disagree = "disagree";
    refused(
        &with(&|raw| raw.local_name = b"manifest.jsom".to_vec()),
        disagree,
    );
    refused(
        &with(&|raw| raw.local_name = b"../etc/passwd".to_vec()),
        disagree,
    );
    refused(&with(&|raw| raw.local_bytes = 3), disagree);
    refused(&with(&|raw| raw.bytes = 3), "cannot have 3 bytes");
    refused(&with(&|raw| raw.crc32 ^= 1), "checksum is wrong");
    // Two entries over the same bytes: the overlapping bomb.
    refused(&with(&|raw| raw.offset = Some(0)), "does not begin where");
    refused(
        &with(&|raw| raw.offset = Some(1 << 30)),
        "does not begin where",
    );

    let bytes = zip(&[note()]);
    let end = bytes.len() - 22;
    for (at, value) in [(4, 1), (8, 2), (10, 2), (12, 7), (16, 1)] {
        let mut changed = bytes.clone();
        changed[end + at] = value;
        refused(&changed, "damaged");
    }
    for entries in [0_u8, 2] {
        let mut changed = bytes.clone();
        changed[end + 8] = entries;
        changed[end + 10] = entries;
        refused(&changed, "its directory has");
    }
}

#[test]
fn a_bomb_stops_where_it_said_it_would_end() {
    let zeros = vec![0; 32 << 20];
    let bomb = deflate(&zeros);
    let with = |bytes: u32| {
        let mut raw = file("manifest.json", &bomb);
        (raw.method, raw.bytes, raw.local_bytes) = (8, bytes, bytes);
        raw.crc32 = crc32fast::hash(&zeros);
        zip(&[raw])
    };
    // It says ten bytes and has millions.
    refused(&with(10), "should have 10");
    // It says more than can come out of so few bytes.
    refused(&with(u32::MAX - 1), "cannot have");
    // It says the truth, and that is too much.
    let limits = Limits {
        manifest_bytes: 1 << 20,
        ..Limits::default()
    };
    let options = InspectOptions {
        limits,
        ..InspectOptions::default()
    };
    let error = inspect_bytes(&with(32 << 20), &options).unwrap_err();
    assert!(error.to_string().contains("at most 1048576"), "{error}");
}

#[test]
fn nothing_hides_after_compressed_contents() {
    let mut data = deflate(b"{}");
    data.extend(b"hidden");
    let mut raw = file("manifest.json", &data);
    raw.method = 8;
    (raw.bytes, raw.local_bytes, raw.crc32) = (2, 2, crc32fast::hash(b"{}"));
    refused(&zip(&[raw]), "something after its end");
}

/// The structure alone.
fn open(bytes: &[u8]) -> Option<usize> {
    let archive = Archive::open(Cursor::new(bytes), PathBuf::new(), &Limits::default());
    archive.ok().map(|archive| archive.entries.len())
}

fn written(count: u32, options: SimpleFileOptions) -> Option<Vec<u8>> {
    let mut writer = zip::ZipWriter::new(Cursor::new(Vec::new()));
    for number in 0..count {
        let mut id = [0; 16];
        id[..4].copy_from_slice(&number.to_be_bytes());
        let name = EntryName::Output(RunId::from_bytes(id));
        writer.start_file(name, options).ok()?;
        writer.write_all(b"contents").ok()?;
    }
    writer.finish().ok().map(Cursor::into_inner)
}

#[test]
fn wide_fields_are_read() {
    let plain = SimpleFileOptions::default()
        .compression_method(zip::CompressionMethod::Stored)
        .unix_permissions(0o644);
    let mut wide = written(3, plain.large_file(true)).unwrap();
    assert_eq!(open(&wide), Some(3));
    // The sizes stand in the wide field; a byte of it that is changed in one place is noticed.
    let name = EntryName::Output(RunId::from_bytes([0; 16])).to_string();
    wide[30 + name.len() + 4] ^= 1;
    assert_eq!(open(&wide), None);
}

/// At and over the number of files that the short form can say.
#[test]
fn many_files_are_read() {
    let plain = SimpleFileOptions::default()
        .compression_method(zip::CompressionMethod::Stored)
        .unix_permissions(0o644);
    assert_eq!(open(&written(65_535, plain).unwrap()), Some(65_535));
    let mut many = written(65_536, plain).unwrap();
    assert_eq!(open(&many), Some(65_536));
    for back in 1..=(22 + 20 + 56) {
        let at = many.len() - back;
        // Versions say nothing about where anything is.
        if !(83..=86).contains(&back) {
            many[at] ^= 0x10;
            assert_eq!(open(&many), None, "{back} bytes before the end");
            many[at] ^= 0x10;
        }
    }
}

#[test]
fn the_default_limits_are_the_documented_ones() {
    let limits = Limits::default();
    assert_eq!(limits.total_bytes, 10 * 1024 * 1024 * 1024);
    assert_eq!(limits.entries, 1_000_000);
    assert_eq!(limits.of(EntryName::Manifest), 64 * 1024 * 1024);
    assert_eq!(limits.of(EntryName::Run(FIRST)), 16 * 1024 * 1024);
    assert_eq!(
        limits.of(EntryName::Artifact(Digest::of(b""))),
        limits.total_bytes
    );
}
