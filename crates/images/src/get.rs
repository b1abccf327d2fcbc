//! From wherever an image is to the store: its configuration is read, its layers are unpacked one on the other, and every digest is compared.

use std::fmt;
use std::io::{self, Read};
use std::sync::Arc;

use crate::beneath::Root;
use crate::bounds::Left;
use crate::config;
use crate::digest::Digest;
use crate::error::ImageError;
use crate::layer::{self, Expected, LeftOut};
use crate::store::{Store, Stored};

/// Is told how many bytes have come, and of how many.
#[derive(Clone)]
pub struct Progress(pub Arc<dyn Fn(u64, u64) + Send + Sync>);

impl fmt::Debug for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Progress")
    }
}

/// An image that was found and not read yet.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) config: Vec<u8>,
    /// The digests of the layers as they come, lowest first, where anybody says so.
    pub(crate) layers: Vec<Option<Digest>>,
    /// What it is to be called.
    pub(crate) names: Vec<String>,
}

/// Unpacks it into the store, unless it is there.
pub(crate) fn put(
    store: &Store,
    found: &Found,
    left: &Left,
    open: &mut dyn FnMut(usize) -> Result<Box<dyn Read>, ImageError>,
) -> Result<Stored, ImageError> {
    let id = Digest::of(&found.config);
    let (start, plain) = config::read(&found.config)?;
    if plain.len() != found.layers.len() {
        let why = format!(
            "its configuration names {} layers and there are {}",
            plain.len(),
            found.layers.len()
        );
        return Err(ImageError::refused(format!("the image {id}"), why));
    }
    let image = store.make(&id, left.until(), |place| {
        let failed = |errno: rustix::io::Errno| ImageError::unwritable(place)(errno.into());
        let root = Root::open(place, left).map_err(failed)?;
        let mut left_out = LeftOut::default();
        for (at, (plain, blob)) in plain.into_iter().zip(&found.layers).enumerate() {
            let expected = Expected {
                blob: blob.clone(),
                plain,
            };
            let blob = open(at)?;
            layer::apply(&root, place, blob, &expected, left, &mut left_out)?;
        }
        Ok((start, left_out))
    })?;
    store.name(image, &found.names)
}

/// Tells how much has passed.
pub(crate) struct Told<R> {
    inner: R,
    done: u64,
    of: u64,
    tell: Option<Progress>,
}

impl<R> Told<R> {
    /// `done` bytes came before these.
    pub(crate) fn new(inner: R, done: u64, of: u64, tell: Option<Progress>) -> Self {
        Self {
            inner,
            done,
            of,
            tell,
        }
    }
}

impl<R: Read> Read for Told<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.done += read as u64;
        if let Some(Progress(tell)) = &self.tell {
            tell(self.done, self.of);
        }
        Ok(read)
    }
}
