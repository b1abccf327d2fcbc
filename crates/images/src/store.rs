//! Where unpacked images are: `images/` in the data directory.
//!
//! ```text
//! roots/HEX/image.json   what it is; a run that uses the image holds a lock on this file
//! roots/HEX/root/        the file system; never written to again
//! making/HEX/            an image on its way, until it is whole and moved to roots/ in one step
//! making/HEX.lock        held by whoever makes it; another one waits and finds it made
//! names.json             what names mean
//! lock                   held while names change or an image goes
//! ```
//!
//! HEX is the digest of the image's configuration, which holds the digests of its layers.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant};

use cofferdam_store::data_dir::create_private;
use cofferdam_store::{DataDir, beneath};
use jiff::Timestamp;
use rustix::fs::FlockOperation;
use serde::{Deserialize, Serialize};

use crate::config::Start;
use crate::digest::Digest;
use crate::error::ImageError;
use crate::layer::LeftOut;
use crate::names::{Changing, Names};
use crate::reference::Reference;

/// The images that are here.
#[derive(Debug, Clone)]
pub struct Store {
    dir: PathBuf,
}

/// What is known of an unpacked image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Image {
    pub id: Digest,
    /// What it takes on the disk.
    pub size_bytes: u64,
    pub unpacked_at: Timestamp,
    pub start: Start,
    pub left_out: LeftOut,
}

/// An image with its names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Stored {
    #[serde(flatten)]
    pub image: Image,
    /// `name:tag`.
    pub names: Vec<String>,
    /// `name@sha256:…`, by which it can be pinned.
    pub digests: Vec<String>,
}

/// An image that cannot be removed for as long as this lives.
#[derive(Debug)]
pub struct Held {
    pub image: Image,
    /// The directory that holds the file system.
    pub root: PathBuf,
    _lock: File,
}

/// What pruning came to.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Removed {
    /// Names and ids.
    pub removed: Vec<String>,
    pub freed_bytes: u64,
    /// Ids of images that a run uses.
    pub in_use: Vec<String>,
}

/// Which images are pruned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Prune {
    /// Those without a tag.
    Nameless,
    /// Every one that no run uses.
    Unused,
}

const DESCRIPTION: &str = "image.json";

impl Store {
    pub fn of(dir: &DataDir) -> Self {
        Self { dir: dir.images() }
    }

    /// The image of this name, kept from being removed.
    pub fn hold(&self, name: &str) -> Result<Held, ImageError> {
        let id = self.id_of(name)?;
        self.hold_id(&id)?.ok_or_else(|| absent(name))
    }

    fn hold_id(&self, id: &Digest) -> Result<Option<Held>, ImageError> {
        let place = self.place(id);
        let path = place.join(DESCRIPTION);
        let file = match File::open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            other => other.map_err(ImageError::unreadable(&path))?,
        };
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared) {
            // It is just being removed.
            Err(rustix::io::Errno::WOULDBLOCK) => return Ok(None),
            other => other.map_err(|errno| ImageError::unreadable(&path)(errno.into()))?,
        }
        let is_still_there = match (fs::metadata(&path), file.metadata()) {
            (Ok(there), Ok(held)) => (there.dev(), there.ino()) == (held.dev(), held.ino()),
            _ => false,
        };
        if !is_still_there {
            return Ok(None);
        }
        let image = serde_json::from_reader(io::BufReader::new(&file)).map_err(|error| {
            let what = format!("the image in `{}`", place.display());
            ImageError::refused(
                what,
                format!("{error}; remove it with `cofferdam images rm {id}`"),
            )
        })?;
        Ok(Some(Held {
            image,
            root: place.join("root"),
            _lock: file,
        }))
    }

    /// Every image that is whole, by name.
    pub fn list(&self) -> Result<Vec<Stored>, ImageError> {
        let names = Names::of(&self.dir)?;
        let mut found = Vec::new();
        for id in self.ids()? {
            // One that is just being removed is none any more.
            if let Some(held) = self.hold_id(&id)? {
                found.push(with_names(held.image, &names));
            }
        }
        found.sort_by(|a, b| (&a.names, &a.image.id).cmp(&(&b.names, &b.image.id)));
        Ok(found)
    }

    /// Takes a name away; the image goes with its last tag. By its id it goes with all of them.
    pub fn remove(&self, name: &str) -> Result<Removed, ImageError> {
        let id = self.id_of(name)?;
        let changing = Changing::begin(&self.dir)?;
        let (tags, _) = Names::of(&self.dir)?.of_image(&id);
        let asked = Reference::parse(name).ok();
        let tag = asked
            .filter(|asked| asked.digest.is_none())
            .map(|asked| asked.tagged());
        let tag = tag.filter(|tag| tags.contains(tag));
        if let Some(tag) = tag.filter(|_| tags.len() > 1) {
            changing.change(|names| drop(names.0.remove(&tag)))?;
            return Ok(Removed {
                removed: vec![tag],
                ..Removed::default()
            });
        }
        match self.remove_id(&changing, &id)? {
            Some(removed) => Ok(removed),
            None => Err(ImageError::InUse {
                name: name.to_owned(),
            }),
        }
    }

    pub fn prune(&self, which: Prune) -> Result<Removed, ImageError> {
        let mut all = Removed::default();
        if !self.dir.exists() {
            return Ok(all);
        }
        let changing = Changing::begin(&self.dir)?;
        for id in self.ids()? {
            let (tags, _) = Names::of(&self.dir)?.of_image(&id);
            if which == Prune::Nameless && !tags.is_empty() {
                continue;
            }
            match self.remove_id(&changing, &id)? {
                Some(removed) => {
                    all.removed.extend(removed.removed);
                    all.freed_bytes += removed.freed_bytes;
                }
                None => all.in_use.push(id.to_string()),
            }
        }
        drop(changing);
        self.sweep_best_effort();
        Ok(all)
    }

    /// `None` where a run uses it.
    fn remove_id(&self, changing: &Changing, id: &Digest) -> Result<Option<Removed>, ImageError> {
        let place = self.place(id);
        let path = place.join(DESCRIPTION);
        let file = File::open(&path).map_err(ImageError::unreadable(&path))?;
        if rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
            return Ok(None);
        }
        let size = serde_json::from_reader(io::BufReader::new(&file));
        let size = size.map_or(0, |image: Image| image.size_bytes);
        let (mut removed, pinned) = Names::of(&self.dir)?.of_image(id);
        changing.change(|names| names.0.retain(|_, of| of != id))?;
        // Out of sight in one step; what is left of it after a kill is swept.
        let going = self.making().join(format!("{}.going", id.hex()));
        create_private(&self.making()).map_err(ImageError::unwritable(&going))?;
        beneath::remove(rustix::fs::CWD, going.as_path())
            .map_err(ImageError::unwritable(&going))?;
        fs::rename(&place, &going).map_err(ImageError::unwritable(&place))?;
        beneath::remove(rustix::fs::CWD, going.as_path())
            .map_err(ImageError::unwritable(&going))?;
        removed.extend(pinned);
        removed.push(id.to_string());
        Ok(Some(Removed {
            removed,
            freed_bytes: size,
            in_use: Vec::new(),
        }))
    }

    /// What a name means.
    fn id_of(&self, name: &str) -> Result<Digest, ImageError> {
        if let Some(id) = Digest::parse(name) {
            return Ok(id);
        }
        let asked = Reference::parse(name)?;
        let names = Names::of(&self.dir)?;
        let Some(digest) = &asked.digest else {
            let id = names.0.get(&asked.tagged()).cloned();
            return id.ok_or_else(|| absent(name));
        };
        let pinned = names.0.get(&asked.pinned(digest)).cloned();
        // An id is a digest of the same image.
        let own = || {
            self.place(digest)
                .join(DESCRIPTION)
                .exists()
                .then(|| digest.clone())
        };
        pinned.or_else(own).ok_or_else(|| absent(name))
    }

    fn ids(&self) -> Result<Vec<Digest>, ImageError> {
        let roots = self.dir.join("roots");
        let listing = match fs::read_dir(&roots) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            other => other.map_err(ImageError::unreadable(&roots))?,
        };
        let names = listing.flatten().map(|entry| entry.file_name());
        let ids = names.filter_map(|name| Digest::parse(&format!("sha256:{}", name.to_str()?)));
        Ok(ids.collect())
    }

    /// Makes an image unless it is there. Whoever comes while it is made waits for that.
    pub(crate) fn make(
        &self,
        id: &Digest,
        until: Instant,
        unpack: impl FnOnce(&Path) -> Result<(Start, LeftOut), ImageError>,
    ) -> Result<Image, ImageError> {
        let making = self.making();
        create_private(&making).map_err(ImageError::unwritable(&making))?;
        let _lock = self.lock(id, until)?;
        if let Some(held) = self.hold_id(id)? {
            return Ok(held.image);
        }
        let new = making.join(id.hex());
        let failed = ImageError::unwritable(&new);
        // Of somebody who was killed: nobody else has the lock.
        let clear = || beneath::remove(rustix::fs::CWD, new.as_path());
        clear().map_err(&failed)?;
        let made = self.make_whole(id, &new, unpack);
        if made.is_err() {
            let _ = clear();
        }
        made
    }

    fn make_whole(
        &self,
        id: &Digest,
        new: &Path,
        unpack: impl FnOnce(&Path) -> Result<(Start, LeftOut), ImageError>,
    ) -> Result<Image, ImageError> {
        let root = new.join("root");
        create_private(new).map_err(ImageError::unwritable(new))?;
        fs::create_dir(&root).map_err(ImageError::unwritable(&root))?;
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(&root, open).map_err(ImageError::unwritable(&root))?;
        let (start, left_out) = unpack(&root)?;
        let image = Image {
            id: id.clone(),
            size_bytes: size(&root).map_err(ImageError::unreadable(&root))?,
            unpacked_at: Timestamp::now(),
            start,
            left_out,
        };
        let path = new.join(DESCRIPTION);
        let failed = ImageError::unwritable(&path);
        let text = serde_json::to_vec_pretty(&image).unwrap_or_default();
        let mut file = File::create(&path).map_err(&failed)?;
        file.write_all(&text).map_err(&failed)?;
        // What has its name is on the disk: a machine that loses power must not leave a root with empty files.
        rustix::fs::syncfs(&file).map_err(|errno| failed(errno.into()))?;
        let roots = self.dir.join("roots");
        create_private(&roots).map_err(ImageError::unwritable(&roots))?;
        let place = self.place(id);
        fs::rename(new, &place).map_err(ImageError::unwritable(&place))?;
        Ok(image)
    }

    /// Says what the image is called. It may have gone meanwhile; then it has no name either.
    pub(crate) fn name(&self, image: Image, called: &[String]) -> Result<Stored, ImageError> {
        let changing = Changing::begin(&self.dir)?;
        if !self.place(&image.id).join(DESCRIPTION).exists() {
            return Err(absent(&image.id.to_string()));
        }
        changing.change(|names| {
            for name in called {
                names.0.insert(name.clone(), image.id.clone());
            }
        })?;
        Ok(with_names(image, &Names::of(&self.dir)?))
    }

    fn lock(&self, id: &Digest, until: Instant) -> Result<File, ImageError> {
        let path = self.making().join(format!("{}.lock", id.hex()));
        let mut options = File::options();
        let file = options.create(true).truncate(false).write(true).open(&path);
        let file = file.map_err(ImageError::unwritable(&path))?;
        while rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
            if Instant::now() >= until {
                return Err(ImageError::refused(
                    format!("the image {id}"),
                    "another process is making it, and did not get ready in time",
                ));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(file)
    }

    /// What killed processes have left. What somebody makes now is locked.
    fn sweep_best_effort(&self) {
        for entry in fs::read_dir(self.making()).into_iter().flatten().flatten() {
            let path = entry.path();
            let id = path.file_stem().and_then(|stem| stem.to_str());
            let id = id.and_then(|hex| Digest::parse(&format!("sha256:{hex}")));
            let is_dir = entry.file_type().is_ok_and(|kind| kind.is_dir());
            if let Some(id) = id.filter(|_| is_dir)
                && let Ok(_lock) = self.lock(&id, Instant::now())
            {
                let _ = beneath::remove(rustix::fs::CWD, path.as_path());
            }
        }
    }

    fn place(&self, id: &Digest) -> PathBuf {
        self.dir.join("roots").join(id.hex())
    }

    fn making(&self) -> PathBuf {
        self.dir.join("making")
    }
}

fn with_names(image: Image, names: &Names) -> Stored {
    let (tags, digests) = names.of_image(&image.id);
    Stored {
        image,
        names: tags,
        digests,
    }
}

fn absent(name: &str) -> ImageError {
    ImageError::Absent {
        name: name.to_owned(),
        command: format!("cofferdam images pull --store native {name}"),
    }
}

/// What a tree takes on the disk; a file with several names counts once.
fn size(root: &Path) -> io::Result<u64> {
    let mut seen = std::collections::BTreeSet::new();
    // Directories that wait share the long way to them.
    let mut next: Vec<(Rc<Path>, OsString)> = vec![(root.into(), OsString::new())];
    let mut bytes = 0;
    while let Some((parent, name)) = next.pop() {
        let dir: Rc<Path> = parent.join(name).into();
        for entry in fs::read_dir(&dir)? {
            let entry = entry?;
            let found = entry.metadata()?;
            if found.is_dir() {
                next.push((Rc::clone(&dir), entry.file_name()));
            }
            if found.nlink() < 2 || seen.insert(found.ino()) {
                bytes += found.blocks() * 512;
            }
        }
    }
    Ok(bytes)
}
