//! Bundles with bytes changed or cut off: refused, and no panic.

use std::io::Cursor;
use std::ops::Range;
use std::path::PathBuf;

use proptest::prelude::*;

use crate::bundle::archive::{Archive, Method};
use crate::bundle::import::import_from;
use crate::bundle::{ImportOptions, Imported, Limits};
use crate::error::StoreError;
use crate::model::{Outcome, StoredRun};

use super::memory::Memory;
use super::samples::{FIRST, INTERRUPTED, bundle, closing, options, run, signed};
use super::zipped::look;

#[test]
fn a_bundle_that_is_cut_off_anywhere_is_refused() {
    let whole = bundle(&[FIRST], &signed()).unwrap();
    for length in 0..whole.len() {
        let cut = look(&whole[..length]);
        assert!(
            matches!(cut, Err(StoreError::BundleRefused { .. })),
            "{length}: {cut:?}"
        );
    }
}

fn take(target: &mut Memory, bytes: &[u8]) -> Result<Imported, StoreError> {
    let archive = Archive::open(Cursor::new(bytes), PathBuf::new(), &Limits::default())?;
    import_from(target, archive, &ImportOptions::default(), &mut |_| ())
}

#[test]
fn a_changed_byte_is_refused_and_imports_nothing() {
    for options in [options(), signed()] {
        let mut bytes = bundle(&[FIRST, INTERRUPTED], &options).unwrap();
        for at in 0..bytes.len() {
            bytes[at] ^= 0xff;
            let mut target = Memory::default();
            let taken = take(&mut target, &bytes);
            assert!(
                matches!(taken, Err(StoreError::BundleRefused { .. })),
                "byte {at}: {taken:?}"
            );
            assert_eq!(target, Memory::default(), "byte {at}");
            bytes[at] ^= 0xff;
        }
    }
}

/// Deflate pads its last byte, and has more than one way to write the same: only there can a bit be another and everything be the same.
#[test]
fn a_changed_bit_is_refused_or_lies_in_compressed_contents_that_read_the_same() {
    for (bit, options) in (0..8).flat_map(|bit| [(bit, options()), (bit, signed())]) {
        let mut bytes = bundle(&[FIRST, INTERRUPTED], &options).unwrap();
        let mut original = Memory::default();
        take(&mut original, &bytes).unwrap();
        let compressed = compressed(&bytes);
        for at in 0..bytes.len() {
            bytes[at] ^= 1 << bit;
            let mut target = Memory::default();
            match take(&mut target, &bytes) {
                Ok(_) => {
                    assert_eq!(target, original, "byte {at}, bit {bit}");
                    let is_there = compressed.iter().any(|range| range.contains(&at));
                    assert!(is_there, "byte {at}, bit {bit}");
                }
                Err(StoreError::BundleRefused { .. }) => {
                    assert_eq!(target, Memory::default(), "byte {at}, bit {bit}");
                }
                Err(other) => panic!("byte {at}, bit {bit}: {other}"),
            }
            bytes[at] ^= 1 << bit;
        }
    }
}

/// Where the contents of deflated entries lie.
fn compressed(bytes: &[u8]) -> Vec<Range<usize>> {
    let archive = Archive::open(Cursor::new(bytes), PathBuf::new(), &Limits::default());
    let entries = archive.unwrap().entries.into_values();
    let deflated = entries.filter(|entry| entry.method == Method::Deflated);
    let ranges = deflated.map(|entry| entry.start..entry.start + entry.compressed);
    let to_usize = |at: u64| usize::try_from(at).unwrap();
    ranges
        .map(|range| to_usize(range.start)..to_usize(range.end))
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn no_mixture_of_pieces_panics(
        edits in proptest::collection::vec(
            (any::<prop::sample::Index>(), 0_usize..9, any::<[u8; 8]>(), 0_usize..3),
            1..6,
        ),
    ) {
        let mut bytes = bundle(&[FIRST, INTERRUPTED], &signed()).unwrap();
        for (index, length, new, kind) in edits {
            let at = index.index(bytes.len());
            let end = (at + length).min(bytes.len());
            match kind {
                0 => bytes.splice(at..end, new[..length.min(8)].iter().copied()).for_each(drop),
                1 => drop(bytes.drain(at..end)),
                _ => {
                    let piece = bytes[at..].to_vec();
                    bytes.extend(piece);
                }
            }
            if bytes.is_empty() {
                break;
            }
        }
        let _ = look(&bytes);
    }

    #[test]
    fn a_run_is_equal_to_itself_after_being_written_and_read(
        wall_ms in any::<f64>().prop_filter("JSON has no other", |number| number.is_finite()),
        limit in any::<f64>().prop_filter("JSON has no other", |number| number.is_finite()),
    ) {
        let mut closing = closing(Vec::new());
        closing.usage.wall_ms = wall_ms;
        let mut run = run(FIRST, Outcome::Ended(Box::new(closing)));
        run.opening.policy = serde_json::json!({ "limit": limit });
        let text = serde_json::to_vec(&run).unwrap();
        prop_assert_eq!(serde_json::from_slice::<StoredRun>(&text).unwrap(), run);
    }
}
