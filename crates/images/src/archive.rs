//! Images in a file: what `docker save` and `podman save` write, and OCI layouts. The file is looked through once for where everything in it lies; nothing of it is put anywhere by its name.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufReader, Read, Seek as _, SeekFrom};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::sync::Arc;

use serde::Deserialize;
use tar::{Archive, EntryType};

use crate::bounds::{Bounds, LONGEST_DOCUMENT, MOST_LAYERS};
use crate::digest::Digest;
use crate::entries::{self, parts};
use crate::error::ImageError;
use crate::get::{self, Found, Progress, Told};
use crate::manifest::{self, Descriptor};
use crate::reference::Reference;
use crate::store::{Store, Stored};

/// Files in an archive of images: a few for each layer.
const MOST_FILES: usize = 10_000;
/// Images in one file.
const MOST_IMAGES: usize = 64;
/// How many indexes may point at one another.
const DEEPEST: usize = 4;
/// In which an OCI layout says what an image is called.
const NAME: &str = "org.opencontainers.image.ref.name";
const FULL_NAME: &str = "io.containerd.image.name";

/// Reads every image in the file into the store; the bounds are those of the whole file. `name` is for the only image of a file, instead of what the file calls it.
pub fn import(
    store: &Store,
    path: &Path,
    name: Option<&Reference>,
    bounds: &Bounds,
    tell: Option<Progress>,
) -> Result<Vec<Stored>, ImageError> {
    let shelf = Shelf::open(path)?;
    let found = shelf.images()?;
    if found.len() > 1 && name.is_some() {
        let why = "it holds several images, and one name was given; leave the name out";
        return Err(ImageError::refused(shelf.what, why));
    }
    let total = found.iter().flat_map(|image| &image.layers);
    let total = total.map(|layer| layer.span.size).sum();
    let mut done = 0;
    let mut stored = Vec::new();
    let left = bounds.left();
    for image in found {
        let names = match name {
            Some(name) => vec![name.tagged()],
            None => image.names,
        };
        let got = Found {
            config: shelf.config(&image.config)?,
            layers: image
                .layers
                .iter()
                .map(|layer| layer.digest.clone())
                .collect(),
            names,
        };
        stored.push(get::put(store, &got, &left, &mut |at| {
            let span = image.layers.get(at).map(|layer| layer.span);
            let span = span.unwrap_or(Span { at: 0, size: 0 });
            let reader = Told::new(shelf.reader(span), done, total, tell.clone());
            done += span.size;
            Ok(Box::new(reader))
        })?);
    }
    Ok(stored)
}

/// Where something lies in the file.
#[derive(Debug, Clone, Copy)]
struct Span {
    at: u64,
    size: u64,
}

struct Layer {
    span: Span,
    digest: Option<Digest>,
}

/// Where its configuration is. It is read when its turn comes: those of all images together are as large as whoever wrote the file likes.
enum Config {
    Named(String),
    Blob(Digest),
}

struct Image {
    config: Config,
    layers: Vec<Layer>,
    names: Vec<String>,
}

/// The file, and where everything in it is.
struct Shelf {
    what: String,
    file: Arc<File>,
    spans: BTreeMap<Vec<u8>, Span>,
}

/// One image of `docker save`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Saved {
    config: String,
    #[serde(default)]
    repo_tags: Option<Vec<String>>,
    layers: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct Index {
    manifests: Vec<Descriptor>,
}

impl Shelf {
    fn open(path: &Path) -> Result<Self, ImageError> {
        let unreadable = ImageError::unreadable(path);
        // A pipe must not hold us up, and cannot be looked through twice.
        let waiting = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
        let file = File::options().read(true).custom_flags(waiting).open(path);
        let file = file.map_err(&unreadable)?;
        let what = format!("the archive `{}`", path.display());
        if !file.metadata().map_err(&unreadable)?.is_file() {
            let why = "it is no regular file; write it to one first";
            return Err(ImageError::refused(what, why));
        }
        let mut first = [0; 2];
        if file.read_exact_at(&mut first, 0).is_ok() && first == [0x1f, 0x8b] {
            let why = "it is compressed; unpack it with `gunzip` first";
            return Err(ImageError::refused(what, why));
        }
        let spans = spans(&file, &what)?;
        Ok(Self {
            what,
            file: Arc::new(file),
            spans,
        })
    }

    fn images(&self) -> Result<Vec<Image>, ImageError> {
        // What newer daemons save is both; a layout has more digests in it.
        if self.spans.contains_key(&b"oci-layout"[..]) {
            return self.layout();
        }
        if self.spans.contains_key(&b"manifest.json"[..]) {
            return self.saved();
        }
        let why = "it has neither an `oci-layout` nor a `manifest.json`; write it with `docker save` or `podman save`";
        Err(self.refused(why))
    }

    fn layout(&self) -> Result<Vec<Image>, ImageError> {
        let index: Index = self.json("index.json")?;
        self.count(index.manifests.len())?;
        let mut images: Vec<Image> = Vec::new();
        for entry in index.manifests {
            let named = self.name(&entry);
            let (manifest, digest) = self.resolve(entry)?;
            let mut names = Vec::new();
            if let Some(named) = named {
                names.push(named.tagged());
                names.push(named.pinned(&digest));
            }
            let layers = manifest.layers.iter().map(|layer| {
                Ok(Layer {
                    span: self.span(&blob(&layer.digest))?,
                    digest: Some(layer.digest.clone()),
                })
            });
            let image = Image {
                layers: layers.collect::<Result<_, ImageError>>()?,
                config: Config::Blob(manifest.config.digest),
                names,
            };
            images.push(image);
        }
        Ok(images)
    }

    /// Follows indexes to the manifest for this machine, and returns the digest of what was pointed at first.
    fn resolve(&self, entry: Descriptor) -> Result<(manifest::Manifest, Digest), ImageError> {
        let first = entry.digest.clone();
        let mut at = entry;
        for _ in 0..DEEPEST {
            match manifest::read(&self.what, &self.document(&at.digest)?)? {
                manifest::Found::Manifest(manifest) => return Ok((manifest, first)),
                manifest::Found::Elsewhere(next) => at = next,
            }
        }
        Err(self.refused("its indexes point at one another"))
    }

    fn saved(&self) -> Result<Vec<Image>, ImageError> {
        let saved: Vec<Saved> = self.json("manifest.json")?;
        self.count(saved.len())?;
        let images = saved.into_iter().map(|image| {
            if image.layers.len() > MOST_LAYERS {
                let why = format!("an image in it has more than {MOST_LAYERS} layers");
                return Err(self.refused(&why));
            }
            let layers = image.layers.iter().map(|layer| {
                let span = self.span(layer.as_bytes())?;
                Ok(Layer { span, digest: None })
            });
            let tags = image.repo_tags.unwrap_or_default();
            let names = tags.iter().filter_map(|tag| Reference::parse(tag).ok());
            Ok(Image {
                layers: layers.collect::<Result<_, ImageError>>()?,
                config: Config::Named(image.config),
                names: names.map(|name| name.tagged()).collect(),
            })
        });
        images.collect()
    }

    fn count(&self, images: usize) -> Result<(), ImageError> {
        if images > MOST_IMAGES {
            let why = format!("it lists more than {MOST_IMAGES} images; write fewer into one file");
            return Err(self.refused(&why));
        }
        Ok(())
    }

    fn config(&self, at: &Config) -> Result<Vec<u8>, ImageError> {
        let name = match at {
            Config::Blob(digest) => return self.document(digest),
            Config::Named(name) => name,
        };
        let config = self.short(self.span(name.as_bytes())?)?;
        // Its name is its digest where Docker wrote it.
        let stem = name.rsplit('/').next().unwrap_or_default();
        let stem = stem.strip_suffix(".json").unwrap_or(stem);
        if let Some(named) = Digest::parse(&format!("sha256:{stem}"))
            && named != Digest::of(&config)
        {
            return Err(self.refused("its configuration does not have the digest it is named by"));
        }
        Ok(config)
    }

    /// What a layout calls an image; one that is only a tag names nothing.
    fn name(&self, entry: &Descriptor) -> Option<Reference> {
        let notes = entry.annotations.as_ref()?;
        let named = notes.get(FULL_NAME).or_else(|| notes.get(NAME))?;
        let is_whole = notes.contains_key(FULL_NAME) || named.contains([':', '/']);
        Reference::parse(named).ok().filter(|_| is_whole)
    }

    /// A small thing by its digest, which must be right.
    fn document(&self, wanted: &Digest) -> Result<Vec<u8>, ImageError> {
        let bytes = self.short(self.span(&blob(wanted))?)?;
        if Digest::of(&bytes) != *wanted {
            let why = format!("what it has as {wanted} is something else");
            return Err(self.refused(&why));
        }
        Ok(bytes)
    }

    fn json<T: for<'de> Deserialize<'de>>(&self, name: &str) -> Result<T, ImageError> {
        let bytes = self.short(self.span(name.as_bytes())?)?;
        let bad = |error| self.refused(&format!("`{name}` in it: {error}"));
        serde_json::from_slice(&bytes).map_err(bad)
    }

    fn span(&self, name: &[u8]) -> Result<Span, ImageError> {
        let key = parts(name).map(|parts| parts.join(&b'/'));
        let span = key.and_then(|key| self.spans.get(&key).copied());
        span.ok_or_else(|| {
            let name = String::from_utf8_lossy(name).into_owned();
            self.refused(&format!("it names `{name}`, which is not in it"))
        })
    }

    fn short(&self, span: Span) -> Result<Vec<u8>, ImageError> {
        if span.size > LONGEST_DOCUMENT {
            return Err(self.refused("a description in it is too long"));
        }
        let mut bytes = Vec::new();
        let read = self.reader(span).read_to_end(&mut bytes);
        read.map_err(|error| self.refused(&error.to_string()))?;
        Ok(bytes)
    }

    fn reader(&self, span: Span) -> impl Read + use<> {
        Piece {
            file: Arc::clone(&self.file),
            at: span.at,
            left: span.size,
        }
    }

    fn refused(&self, why: &str) -> ImageError {
        ImageError::refused(&self.what, why)
    }
}

fn blob(digest: &Digest) -> Vec<u8> {
    format!("blobs/sha256/{}", digest.hex()).into_bytes()
}

/// Where every file is. A second name, as older daemons write for a layer that two images have, is where the first is.
fn spans(file: &File, what: &str) -> Result<BTreeMap<Vec<u8>, Span>, ImageError> {
    let mut spans = BTreeMap::new();
    let mut reader = BufReader::new(file);
    let start = reader.seek(SeekFrom::Start(0));
    start.map_err(|error| ImageError::refused(what, error.to_string()))?;
    let mut archive = Archive::new(reader);
    entries::each(&mut archive, what, |entry| {
        if spans.len() >= MOST_FILES {
            let why = format!("it has more than {MOST_FILES} files in it");
            return Err(ImageError::refused(what, why));
        }
        let Some(name) = parts(&entry.name) else {
            return Err(ImageError::refused(what, "a name in it leads out of it"));
        };
        let name = name.join(&b'/');
        match entry.kind {
            EntryType::Regular | EntryType::Continuous => {
                let span = Span {
                    at: entry.position,
                    size: entry.size,
                };
                spans.insert(name, span);
            }
            EntryType::Link | EntryType::Symlink => {
                let beside = match entry.kind {
                    EntryType::Symlink => name.iter().rposition(|&byte| byte == b'/'),
                    _ => None,
                };
                let beside = name.get(..beside.unwrap_or(0)).unwrap_or_default();
                let target = resolved(beside, &entry.link);
                if let Some(span) = target.and_then(|target| spans.get(&target).copied()) {
                    spans.insert(name, span);
                }
            }
            _ => {}
        }
        Ok(())
    })?;
    Ok(spans)
}

/// `../x/layer.tar` in `y` is `x/layer.tar`; nothing is above the top.
fn resolved(beside: &[u8], link: &[u8]) -> Option<Vec<u8>> {
    let mut way: Vec<&[u8]> = parts(beside)?;
    for part in link.split(|&byte| byte == b'/') {
        match part {
            b"" | b"." => {}
            b".." => {
                way.pop()?;
            }
            part => way.push(part),
        }
    }
    Some(way.join(&b'/'))
}

/// A part of the file, read without moving anybody else's place in it.
struct Piece {
    file: Arc<File>,
    at: u64,
    left: u64,
}

impl Read for Piece {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = usize::try_from(self.left).unwrap_or(usize::MAX);
        let most = most.min(buffer.len());
        let Some(room) = buffer.get_mut(..most).filter(|room| !room.is_empty()) else {
            return Ok(0);
        };
        let read = self.file.read_at(room, self.at)?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.at += read as u64;
        self.left -= read as u64;
        Ok(read)
    }
}
