//! Bundles with bytes changed or cut off: refused, or the same; and no panic.

use std::fs;

use proptest::prelude::*;

use crate::bundle::{ImportOptions, import};
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

#[test]
fn a_changed_byte_is_refused_or_changes_nothing_and_never_imports_half() {
    for options in [options(), signed()] {
        let whole = bundle(&[FIRST, INTERRUPTED], &options).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("b");
        let mut original = Memory::default();
        fs::write(&path, &whole).unwrap();
        import(&mut original, &path, &ImportOptions::default(), &mut |_| ()).unwrap();
        let mut taken = 0;
        for at in 0..whole.len() {
            for bit in [0x01, 0x80, 0xff] {
                let mut changed = whole.clone();
                changed[at] ^= bit;
                fs::write(&path, &changed).unwrap();
                let mut target = Memory::default();
                match import(&mut target, &path, &ImportOptions::default(), &mut |_| ()) {
                    Ok(_) => {
                        taken += 1;
                        assert_eq!(target, original, "byte {at} ^ {bit:#x}");
                    }
                    Err(StoreError::BundleRefused { .. }) => {
                        assert_eq!(target, Memory::default(), "byte {at} ^ {bit:#x}");
                    }
                    Err(other) => panic!("byte {at} ^ {bit:#x}: {other}"),
                }
            }
        }
        // The version that wrote an entry and its permission bits say nothing here.
        assert!(taken < whole.len() / 20, "{taken} of {}", whole.len());
    }
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
