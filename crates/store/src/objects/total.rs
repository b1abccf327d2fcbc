//! A running count of what the store holds, so that a limit on it costs one small read and not a look at every file.
//!
//! `objects/total` is a list of signed 64-bit numbers, little-endian: each object adds its size, each removal subtracts it. Appending needs no lock. The count may drift when a
//! writer is killed between the object and its number, or two store the same contents at once; a long list is counted anew from the files.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::path::Path;

use super::shelf::Objects;
use crate::error::StoreError;

const NAME: &str = "total";

/// Of the file. A count is wrong by what drifted within so many changes at most.
const LONGEST: usize = 8 * 4096;

pub(super) fn add_best_effort(dir: &Path, bytes: u64) {
    append_best_effort(dir, i64::try_from(bytes).unwrap_or(i64::MAX));
}

pub(super) fn subtract_best_effort(dir: &Path, bytes: u64) {
    append_best_effort(dir, i64::try_from(bytes).map_or(i64::MIN, |bytes| -bytes));
}

/// Where there is no list, none is begun: it would not know what came before.
fn append_best_effort(dir: &Path, change: i64) {
    let list = OpenOptions::new().append(true).open(dir.join(NAME));
    let _ = list.and_then(|mut list| list.write_all(&change.to_le_bytes()));
}

pub(super) fn read(objects: &Objects) -> Result<u64, StoreError> {
    let path = objects.dir().join(NAME);
    match fs::read(&path) {
        Ok(list) => match sum(&list) {
            Some(sum) => Ok(sum),
            None => recount(objects),
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => recount(objects),
        Err(error) => Err(StoreError::io("read", path)(error)),
    }
}

/// `None` when the list cannot be right, or is due to be counted anew.
fn sum(list: &[u8]) -> Option<u64> {
    let (changes, torn) = list.as_chunks::<8>();
    if list.is_empty() || list.len() > LONGEST || !torn.is_empty() {
        return None;
    }
    let sum = changes.iter().try_fold(0_i64, |sum, change| {
        sum.checked_add(i64::from_le_bytes(*change))
    })?;
    u64::try_from(sum).ok()
}

pub(super) fn recount(objects: &Objects) -> Result<u64, StoreError> {
    let sum = objects.stored_bytes()?;
    if objects.dir().is_dir() {
        let path = objects.dir().join(NAME);
        let mut file = objects.new_file()?;
        let first = i64::try_from(sum).unwrap_or(i64::MAX).to_le_bytes();
        file.write_all(&first)
            .and_then(|()| file.persist(&path).map_err(|refused| refused.error))
            .map_err(StoreError::io("write", &path))?;
    }
    Ok(sum)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data_dir::DataDir;

    #[test]
    fn the_count_follows_the_files() {
        let dir = tempfile::tempdir().unwrap();
        let objects = Objects::open(&DataDir::at(dir.path()));
        assert_eq!(objects.about_stored_bytes().unwrap(), 0);
        objects.put(b"before there is a list").unwrap();
        assert_eq!(
            objects.about_stored_bytes().unwrap(),
            objects.stored_bytes().unwrap()
        );
        let second = objects.put(&[7; 9000]).unwrap();
        objects.put(&[7; 9000]).unwrap();
        objects.put(b"third").unwrap();
        assert_eq!(
            objects.about_stored_bytes().unwrap(),
            objects.stored_bytes().unwrap()
        );
        objects.remove(&second.digest).unwrap();
        assert_eq!(
            objects.about_stored_bytes().unwrap(),
            objects.stored_bytes().unwrap()
        );
        assert_eq!(
            fs::read(objects.dir().join(NAME)).unwrap().len(),
            8 * 4,
            "counted once, then added to"
        );
    }

    #[test]
    fn a_list_that_cannot_be_right_is_counted_anew() {
        let dir = tempfile::tempdir().unwrap();
        let objects = Objects::open(&DataDir::at(dir.path()));
        let stored = objects.put(b"contents").unwrap().stored_bytes;
        for broken in [
            Vec::new(),
            vec![1, 2, 3],
            (-5_i64).to_le_bytes().to_vec(),
            [i64::MAX.to_le_bytes(), 1_i64.to_le_bytes()].concat(),
            vec![0; LONGEST + 8],
        ] {
            fs::write(objects.dir().join(NAME), broken).unwrap();
            assert_eq!(objects.about_stored_bytes().unwrap(), stored);
            assert_eq!(fs::read(objects.dir().join(NAME)).unwrap().len(), 8);
        }
    }
}
