//! Directories in the order of their names, whatever order the file system has. A listing is read whole when its first part is asked for, and handed out in parts as a reader has room.

use std::collections::HashMap;

use rustix::io::Errno;

/// What is kept of listings, all together. What does not fit is listed as the kernel does it.
pub(super) const MOST: usize = 64 << 20;

/// The process that reads, and its descriptor.
pub(super) type Reader = (u32, u64);

#[derive(Debug, Default)]
pub(super) struct Listings {
    begun: HashMap<Reader, Begun>,
    kept: usize,
}

#[derive(Debug)]
struct Begun {
    /// Where the descriptor was left: elsewhere, it is another directory, or somebody has moved it.
    position: u64,
    /// Entries that are still to come, the next one last.
    entries: Vec<Vec<u8>>,
}

impl Listings {
    pub(super) fn room(&self) -> usize {
        MOST.saturating_sub(self.kept)
    }

    /// Takes a whole listing, as the kernel has written it.
    pub(super) fn begin(&mut self, reader: Reader, position: u64, listing: &[u8]) {
        self.forget(reader);
        let mut entries = sorted(listing);
        entries.reverse();
        self.kept += weight(&entries);
        self.begun.insert(reader, Begun { position, entries });
    }

    pub(super) fn forget(&mut self, reader: Reader) {
        if let Some(begun) = self.begun.remove(&reader) {
            self.kept -= weight(&begun.entries);
        }
    }

    /// The next part for whoever has so much room; nothing at the end. `None` where the listing is not one of ours.
    pub(super) fn next(
        &mut self,
        reader: Reader,
        position: u64,
        room: usize,
    ) -> Option<Result<Vec<u8>, Errno>> {
        let begun = self.begun.get_mut(&reader)?;
        if begun.position != position {
            return None;
        }
        let mut part = Vec::new();
        while let Some(entry) = begun.entries.last()
            && part.len() + entry.len() <= room
        {
            self.kept -= entry.len();
            part.extend(begun.entries.pop().unwrap_or_default());
        }
        if begun.entries.is_empty() {
            self.begun.remove(&reader);
        } else if part.is_empty() {
            return Some(Err(Errno::INVAL));
        }
        Some(Ok(part))
    }
}

fn weight(entries: &[Vec<u8>]) -> usize {
    entries.iter().map(Vec::len).sum()
}

/// What stands before a name: the inode number, the next position, the length of the entry, the kind.
const HEAD: usize = 19;
const LENGTH_AT: usize = 16;

/// Entries as they were written, in the order of their names.
fn sorted(listing: &[u8]) -> Vec<Vec<u8>> {
    let mut entries: Vec<&[u8]> = Vec::new();
    let mut rest = listing;
    while let Some(&[low, high]) = rest.get(LENGTH_AT..LENGTH_AT + 2) {
        let length = usize::from(u16::from_ne_bytes([low, high]));
        match rest.split_at_checked(length) {
            Some((entry, after)) if length > HEAD => {
                entries.push(entry);
                rest = after;
            }
            _ => break,
        }
    }
    entries.sort_by_key(|entry| name(entry));
    entries.into_iter().map(<[u8]>::to_vec).collect()
}

fn name(entry: &[u8]) -> &[u8] {
    let name = entry.get(HEAD..).unwrap_or_default();
    name.split(|byte| *byte == 0).next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &str) -> Vec<u8> {
        let mut bytes = vec![9; LENGTH_AT];
        let length = (HEAD + name.len() + 1).next_multiple_of(8);
        bytes.extend(u16::try_from(length).unwrap().to_ne_bytes());
        bytes.push(8);
        bytes.extend(name.as_bytes());
        bytes.resize(length, 0);
        bytes
    }

    fn names(part: &[u8]) -> Vec<String> {
        let entries = sorted(part);
        let texts = entries.iter().map(|entry| name(entry).to_vec());
        texts.map(|text| String::from_utf8(text).unwrap()).collect()
    }

    #[test]
    fn a_listing_comes_in_the_order_of_names_in_parts_that_fit() {
        let listing: Vec<u8> = ["b", "a long name", ".", "c", ".."].map(entry).concat();
        let mut listings = Listings::default();
        let reader = (7, 3);
        listings.begin(reader, 99, &listing);
        assert_eq!(listings.next(reader, 98, 100), None, "moved meanwhile");
        assert_eq!(listings.next((7, 4), 99, 100), None, "another descriptor");
        assert_eq!(listings.next(reader, 99, 8), Some(Err(Errno::INVAL)));
        let first = listings.next(reader, 99, 60).unwrap().unwrap();
        assert_eq!(names(&first), [".", ".."]);
        let second = listings.next(reader, 99, 1000).unwrap().unwrap();
        assert_eq!(names(&second), ["a long name", "b", "c"]);
        assert_eq!(
            listings.next(reader, 99, 1000),
            None,
            "the kernel says the end"
        );
        assert_eq!(listings.room(), MOST);
    }

    #[test]
    fn a_listing_that_was_cut_gives_whole_entries_only() {
        let listing = [entry("a"), entry("b")].concat();
        for cut in entry("a").len()..listing.len() {
            assert_eq!(names(&listing[..cut]), ["a"], "{cut}");
        }
    }
}
