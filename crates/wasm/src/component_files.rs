//! What a component sees of files, laid over the calls of preview 2: directories in the order of their names, and no more of them held than there is room for. In a deterministic run
//! also times that are always the same, and what tells files apart in the order in which they are met.

use std::collections::{HashMap, VecDeque};

use wasmtime::StoreContextMut;
use wasmtime::component::{Linker, Resource};
use wasmtime_wasi::WasiView as _;
use wasmtime_wasi::filesystem::{Descriptor, WasiFilesystemCtxView, WasiFilesystemView as _};
use wasmtime_wasi::p2::bindings::clocks::wall_clock::Datetime;
use wasmtime_wasi::p2::bindings::filesystem::types::{
    DescriptorStat, DirectoryEntry, ErrorCode, HostDescriptor as _, HostDirectoryEntryStream,
    MetadataHashValue, PathFlags,
};
use wasmtime_wasi::p2::{FsError, FsResult, ReaddirIterator};

use crate::engines::Flavour;
use crate::fixed::EPOCH;
use crate::guest::Guest;

/// As the engine's own bindings are called; a test sees it when they change.
const TYPES: &str = "wasi:filesystem/types@0.2.12";
/// What the entries of all directories that are being read may take.
const MOST: usize = 64 << 20;

/// Directories that are being read.
#[derive(Debug, Default)]
pub(crate) struct Listings {
    begun: HashMap<u32, VecDeque<DirectoryEntry>>,
    kept: usize,
}

impl Listings {
    fn begin(&mut self, stream: u32, entries: Vec<DirectoryEntry>) {
        self.forget(stream);
        self.kept += entries.iter().map(weight).sum::<usize>();
        self.begun.insert(stream, entries.into());
    }

    fn next(&mut self, stream: u32) -> Option<DirectoryEntry> {
        let entry = self.begun.get_mut(&stream)?.pop_front();
        match &entry {
            Some(entry) => self.kept -= weight(entry),
            None => self.forget(stream),
        }
        entry
    }

    fn forget(&mut self, stream: u32) {
        if let Some(rest) = self.begun.remove(&stream) {
            self.kept -= rest.iter().map(weight).sum::<usize>();
        }
    }

    /// Of directories that the program has let go of before their end.
    fn forget_closed(&mut self, is_open: impl Fn(u32) -> bool) {
        let closed: Vec<u32> = self.begun.keys().copied().collect();
        for stream in closed.into_iter().filter(|stream| !is_open(*stream)) {
            self.forget(stream);
        }
    }
}

fn weight(entry: &DirectoryEntry) -> usize {
    size_of::<DirectoryEntry>() + entry.name.len()
}

pub(crate) fn lay_over(linker: &mut Linker<Guest>, flavour: Flavour) -> wasmtime::Result<()> {
    linker.allow_shadowing(true);
    let mut types = linker.instance(TYPES)?;
    types.func_wrap_async(
        "[method]descriptor.read-directory",
        |store: StoreContextMut<'_, Guest>, (fd,): (Resource<Descriptor>,)| {
            Box::new(async move { Ok((told(list(store, fd).await)?,)) })
        },
    )?;
    types.func_wrap(
        "[method]directory-entry-stream.read-directory-entry",
        |mut store: StoreContextMut<'_, Guest>, (stream,): (Resource<ReaddirIterator>,)| {
            let entry = store.data_mut().listings.next(stream.rep());
            Ok((Ok::<_, ErrorCode>(entry),))
        },
    )?;
    if flavour == Flavour::Timed {
        return Ok(());
    }
    types.func_wrap_async(
        "[method]descriptor.stat",
        |mut store: StoreContextMut<'_, Guest>, (fd,): (Resource<Descriptor>,)| {
            Box::new(async move {
                let stat = files(&mut store).stat(fd).await;
                Ok((told(stat.map(timeless))?,))
            })
        },
    )?;
    types.func_wrap_async(
        "[method]descriptor.stat-at",
        |mut store: StoreContextMut<'_, Guest>,
         (fd, flags, path): (Resource<Descriptor>, PathFlags, String)| {
            Box::new(async move {
                let stat = files(&mut store).stat_at(fd, flags, path).await;
                Ok((told(stat.map(timeless))?,))
            })
        },
    )?;
    types.func_wrap_async(
        "[method]descriptor.metadata-hash",
        |mut store: StoreContextMut<'_, Guest>, (fd,): (Resource<Descriptor>,)| {
            Box::new(async move {
                let hash = files(&mut store).metadata_hash(fd).await;
                Ok((told(hash.map(|hash| number(&mut store, hash)))?,))
            })
        },
    )?;
    types.func_wrap_async(
        "[method]descriptor.metadata-hash-at",
        |mut store: StoreContextMut<'_, Guest>,
         (fd, flags, path): (Resource<Descriptor>, PathFlags, String)| {
            Box::new(async move {
                let hash = files(&mut store).metadata_hash_at(fd, flags, path).await;
                Ok((told(hash.map(|hash| number(&mut store, hash)))?,))
            })
        },
    )
}

fn files<'a>(store: &'a mut StoreContextMut<'_, Guest>) -> WasiFilesystemCtxView<'a> {
    store.data_mut().filesystem()
}

/// An error number for the program, or the end of it.
fn told<T>(done: FsResult<T>) -> wasmtime::Result<Result<T, ErrorCode>> {
    match done {
        Ok(value) => Ok(Ok(value)),
        Err(error) => error.downcast().map(Err),
    }
}

/// The engine reads a directory whole and keeps it; so do we, sorted, and no more than there is room for. Its own stream stays as the name of ours.
async fn list(
    mut store: StoreContextMut<'_, Guest>,
    fd: Resource<Descriptor>,
) -> FsResult<Resource<ReaddirIterator>> {
    let guest = store.data_mut();
    let stream = guest.filesystem().read_directory(fd).await?;
    let mut entries = Vec::new();
    loop {
        let same = Resource::new_borrow(stream.rep());
        match guest.filesystem().read_directory_entry(same).await {
            Ok(Some(entry)) => entries.push(entry),
            Ok(None) => break,
            Err(error) => {
                let_go(guest, stream)?;
                return Err(error);
            }
        }
    }
    entries.sort_unstable_by(|one, other| one.name.cmp(&other.name));
    let Guest { wasi, listings, .. } = guest;
    let table = wasi.ctx().table;
    listings.forget_closed(|stream| {
        let stream = Resource::<ReaddirIterator>::new_borrow(stream);
        table.get(&stream).is_ok()
    });
    guest.listings.begin(stream.rep(), entries);
    if guest.listings.kept > MOST {
        guest.listings.forget(stream.rep());
        let_go(guest, stream)?;
        return Err(ErrorCode::InsufficientMemory.into());
    }
    Ok(stream)
}

fn let_go(guest: &mut Guest, stream: Resource<ReaddirIterator>) -> FsResult<()> {
    HostDirectoryEntryStream::drop(&mut guest.filesystem(), stream).map_err(FsError::trap)
}

fn timeless(mut stat: DescriptorStat) -> DescriptorStat {
    let time = Some(Datetime {
        seconds: EPOCH.as_secs(),
        nanoseconds: 0,
    });
    stat.data_access_timestamp = time;
    stat.data_modification_timestamp = time;
    stat.status_change_timestamp = time;
    stat
}

fn number(store: &mut StoreContextMut<'_, Guest>, hash: MetadataHashValue) -> MetadataHashValue {
    MetadataHashValue {
        lower: store.data_mut().met.number(hash.upper, hash.lower),
        upper: 0,
    }
}

#[cfg(test)]
mod tests {
    use wasmtime_wasi::p2::bindings::filesystem::types::DescriptorType;

    use super::*;

    fn entries(names: &[&str]) -> Vec<DirectoryEntry> {
        let entry = |name: &&str| DirectoryEntry {
            type_: DescriptorType::RegularFile,
            name: (*name).to_owned(),
        };
        names.iter().map(entry).collect()
    }

    #[test]
    fn what_is_kept_of_directories_is_counted_until_it_was_read_or_let_go() {
        let mut listings = Listings::default();
        listings.begin(1, entries(&["a", "b"]));
        listings.begin(2, entries(&["c"]));
        let both = listings.kept;
        assert_eq!(listings.next(1).unwrap().name, "a");
        assert!(listings.kept < both);
        assert_eq!(listings.next(1).unwrap().name, "b");
        assert!(listings.next(1).is_none() && listings.next(1).is_none());
        assert!(listings.next(7).is_none());
        listings.begin(2, entries(&["d"]));
        assert_eq!(listings.begun.len(), 1);
        listings.forget_closed(|_| false);
        assert_eq!((listings.kept, listings.begun.len()), (0, 0));
    }
}
