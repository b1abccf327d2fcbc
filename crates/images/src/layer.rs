//! One layer, put on what the layers below have left: files, links and directories of it replace theirs, and its whiteouts remove them.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read, Write as _};
use std::ops::Bound;
use std::path::Path;

use rustix::fs::FileType;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use tar::{Archive, EntryType};

use crate::beneath::{self, Root, Unmade};
use crate::bounds::{self, Bounded, Left};
use crate::compression;
use crate::digest::{Digest, Hashing};
use crate::entries::{self, Entry, parts};
use crate::error::ImageError;

/// What a layer must be.
#[derive(Debug, Clone)]
pub(crate) struct Expected {
    /// Of the bytes as they come; `None` where nobody says so, as in archives of `docker save`.
    pub(crate) blob: Option<Digest>,
    /// Of the plain archive.
    pub(crate) plain: Digest,
}

/// What was not taken over from an image.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftOut {
    /// Devices, pipes and sockets.
    pub special_files: u64,
    /// Files whose set-user-id or set-group-id bit was dropped.
    pub set_id_bits: u64,
}

const OPAQUE: &[u8] = b".wh..wh..opq";
const WHITEOUT: &[u8] = b".wh.";
/// Book-keeping of a file system that once used these names.
const BOOK_KEEPING: &[u8] = b".wh..wh.";
const DEEPEST: usize = 200;

/// Unpacks a layer. What does not have the right digests is an error, and then nothing of the root may be used.
pub(crate) fn apply(
    root: &Root<'_>,
    place: &Path,
    blob: impl Read,
    expected: &Expected,
    left: &Left,
    left_out: &mut LeftOut,
) -> Result<(), ImageError> {
    let what = format!("the layer {}", expected.plain);
    let mut blob = Hashing::new(blob);
    let plain = compression::plain(&mut blob).map_err(|error| bounds::explain(&what, &error))?;
    let mut archive = Archive::new(Bounded::new(Hashing::new(plain), left));
    let mut layer = Layer {
        root,
        place,
        what: &what,
        made: BTreeSet::new(),
        left,
        left_out,
    };
    entries::each(&mut archive, &what, |entry| layer.entry(entry))?;
    // The library stops at the first thing that looks like an end, and the digest is over everything.
    let mut rest = archive.into_inner();
    io::copy(&mut rest, &mut io::sink()).map_err(|error| bounds::explain(&what, &error))?;
    let found = rest.into_inner().finish();
    if found != expected.plain {
        let why = format!("its contents have the digest {found}");
        return Err(ImageError::refused(what, why));
    }
    io::copy(&mut blob, &mut io::sink()).map_err(|error| bounds::explain(&what, &error))?;
    let found = blob.finish();
    match &expected.blob {
        Some(blob) if *blob != found => {
            let why = format!("it came with the digest {found} and not {blob}");
            Err(ImageError::refused(what, why))
        }
        _ => Ok(()),
    }
}

struct Layer<'a> {
    root: &'a Root<'a>,
    place: &'a Path,
    what: &'a str,
    /// What this layer itself has made: its whiteouts are about the layers below.
    made: BTreeSet<Vec<u8>>,
    left: &'a Left,
    left_out: &'a mut LeftOut,
}

impl Layer<'_> {
    fn entry<R: Read>(&mut self, entry: &mut Entry<'_, R>) -> Result<(), ImageError> {
        self.left.take_entry()?;
        let whole = std::mem::take(&mut entry.name);
        let shown = shown(&whole);
        let Some(parts) = parts(&whole).filter(|parts| parts.len() <= DEEPEST) else {
            return Err(self.refused(&shown, "its name leads out of the image, or is no name"));
        };
        let Some(&name) = parts.last() else {
            // The root itself.
            return Ok(());
        };
        let failed = |why| self.failed(&shown, why);
        if name.starts_with(WHITEOUT) {
            return self.whiteout(&parts, name);
        }
        // An old way to write a directory.
        let kind = match entry.kind {
            EntryType::Regular if whole.ends_with(b"/") => EntryType::Directory,
            kind => kind,
        };
        match kind {
            EntryType::Directory => self.root.make_dir(&parts, entry.mode).map_err(failed)?,
            EntryType::Symlink => self.root.make_link(&parts, &entry.link).map_err(failed)?,
            EntryType::Link => {
                let of = entries::parts(&entry.link).filter(|of| !of.is_empty());
                let Some(of) = of else {
                    return Err(self.refused(&shown, "it is a second name of something outside"));
                };
                self.root.make_name(&parts, &of).map_err(failed)?;
            }
            EntryType::Regular | EntryType::Continuous => {
                let file = self.root.make_file(&parts).map_err(failed)?;
                self.fill(&file, entry, &shown)?;
                if entry.mode & 0o6000 != 0 {
                    self.left_out.set_id_bits += 1;
                }
            }
            _ => {
                self.left_out.special_files += 1;
                return Ok(());
            }
        }
        self.left.take_name(whole.len())?;
        self.made.insert(parts.join(&b'/'));
        Ok(())
    }

    fn fill<R: Read>(
        &self,
        mut file: &File,
        entry: &mut Entry<'_, R>,
        shown: &str,
    ) -> Result<(), ImageError> {
        let mut buffer = vec![0; 64 << 10];
        let mut size = 0_u64;
        loop {
            let read = match entry.contents.read(&mut buffer) {
                Ok(0) => break,
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(bounds::explain(self.what, &error)),
            };
            size += read as u64;
            let piece = buffer.get(..read).unwrap_or_default();
            file.write_all(piece)
                .map_err(ImageError::unwritable(&self.place.join(shown)))?;
        }
        if size != entry.size {
            return Err(self.refused(shown, "the archive ends in the middle of it"));
        }
        beneath::finish(file, entry.mode, entry.time).map_err(|errno| self.failed(shown, errno))
    }

    fn whiteout(&mut self, parts: &[&[u8]], name: &[u8]) -> Result<(), ImageError> {
        let way = parts.split_last().map_or(&[][..], |(_, way)| way);
        if name == OPAQUE {
            return self.clear_below(way);
        }
        if name.starts_with(BOOK_KEEPING) {
            return Ok(());
        }
        let gone = name.strip_prefix(WHITEOUT).unwrap_or_default();
        if matches!(gone, b"" | b"." | b"..") {
            return Err(self.refused(&shown(name), "it removes something without a name"));
        }
        let target = [way, &[gone]].concat();
        if self.has_made(&target.join(&b'/')) {
            return Ok(());
        }
        let removed = self.root.remove(&target);
        removed.map_err(|errno| self.failed(&shown(&target.join(&b'/')), errno))
    }

    /// Everything below a directory goes, but for what this layer has put there.
    fn clear_below(&self, way: &[&[u8]]) -> Result<(), ImageError> {
        let mut next = vec![way.join(&b'/')];
        while let Some(path) = next.pop() {
            let failed = |errno| self.failed(&shown(&path), errno);
            let way = entries::parts(&path).unwrap_or_default();
            for (name, kind) in self.root.names(&way).map_err(failed)? {
                let below = [&way[..], &[&name[..]]].concat();
                let joined = below.join(&b'/');
                match (self.has_made(&joined), kind) {
                    (false, _) => self.root.remove(&below).map_err(failed)?,
                    (true, FileType::Directory) => next.push(joined),
                    (true, _) => {}
                }
            }
        }
        Ok(())
    }

    /// Whether a path is of this layer, or the way to something that is.
    fn has_made(&self, path: &[u8]) -> bool {
        let below = [path, b"/"].concat();
        let from = (Bound::Included(below.as_slice()), Bound::Unbounded);
        let next = self.made.range::<[u8], _>(from).next();
        self.made.contains(path) || next.is_some_and(|next| next.starts_with(&below))
    }

    fn refused(&self, shown: &str, why: &str) -> ImageError {
        ImageError::refused(format!("`{shown}` in {}", self.what), why)
    }

    /// A name that cannot be made because of what the image itself holds there is the image's fault; anything else is the disk's.
    fn failed(&self, shown: &str, why: impl Into<Unmade>) -> ImageError {
        let errno = match why.into() {
            Unmade::Errno(errno) => errno,
            Unmade::Bound(error) => return error,
        };
        match errno {
            Errno::NOENT
            | Errno::NOTDIR
            | Errno::ISDIR
            | Errno::EXIST
            | Errno::LOOP
            | Errno::XDEV
            | Errno::NAMETOOLONG
            | Errno::INVAL
            | Errno::MLINK => {
                let why = format!("it cannot be put where it says: {errno}");
                self.refused(shown, &why)
            }
            other => ImageError::unwritable(&self.place.join(shown))(other.into()),
        }
    }
}

fn shown(name: &[u8]) -> String {
    let short = name.get(..300).unwrap_or(name);
    String::from_utf8_lossy(short).into_owned()
}
