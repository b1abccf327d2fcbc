//! What a deterministic run sees of files: directories in the order of names, times that are always the same, inode numbers in the order in which they are met. Laid over the calls
//! of preview 1.

use std::collections::HashMap;

use wasmtime::{Caller, Extern, Linker};
use wasmtime_wasi::p1::types::{Errno, Error, Fd, Filestat, Lookupflags};
use wasmtime_wasi::p1::wasi_snapshot_preview1::WasiSnapshotPreview1 as _;
use wiggle::{GuestMemory, GuestPtr};

use crate::fixed::EPOCH;
use crate::guest::Guest;

const MODULE: &str = "wasi_snapshot_preview1";
/// A listing is read whole, into room that grows up to this.
const MOST: usize = 64 << 20;
/// What stands before a name: the next cookie, the inode number, the length of the name, the kind, and three bytes of nothing.
const HEAD: usize = 24;
/// What the engine may copy for one call.
const HOSTCALL: usize = 128 << 20;

/// The files that a run has met, in this order.
#[derive(Debug, Default)]
pub(crate) struct Met(HashMap<(u64, u64), u64>);

impl Met {
    pub(crate) fn number(&mut self, device: u64, inode: u64) -> u64 {
        let next = self.0.len() as u64 + 1;
        *self.0.entry((device, inode)).or_insert(next)
    }
}

/// The program's memory and its state, side by side.
macro_rules! with_memory {
    ($caller:ident, $memory:ident, $guest:ident) => {
        let Some(Extern::Memory(export)) = $caller.get_export("memory") else {
            return Err(wasmtime::Error::msg("the module exports no memory"));
        };
        let (bytes, $guest) = export.data_and_store_mut(&mut $caller);
        let mut $memory = GuestMemory::Unshared(bytes);
        $guest.wasi.set_hostcall_fuel(HOSTCALL);
    };
}

pub(crate) fn lay_over(linker: &mut Linker<Guest>) -> wasmtime::Result<()> {
    linker.allow_shadowing(true);
    linker.func_wrap_async(
        MODULE,
        "fd_readdir",
        |caller: Caller<'_, Guest>, (fd, to, room, cookie, used): (i32, i32, i32, i64, i32)| {
            let call = List {
                fd,
                to: to.cast_unsigned(),
                room: room.cast_unsigned(),
                cookie: cookie.cast_unsigned(),
                used: used.cast_unsigned(),
            };
            Box::new(async move { list(caller, call).await })
        },
    )?;
    linker.func_wrap_async(
        MODULE,
        "fd_filestat_get",
        |mut caller: Caller<'_, Guest>, (fd, to): (i32, i32)| {
            Box::new(async move {
                with_memory!(caller, memory, guest);
                let stat = guest.wasi.fd_filestat_get(&mut memory, Fd::from(fd)).await;
                answer(tell(&mut memory, &mut guest.met, stat, to))
            })
        },
    )?;
    linker.func_wrap_async(
        MODULE,
        "path_filestat_get",
        |mut caller: Caller<'_, Guest>,
         (fd, flags, path, length, to): (i32, i32, i32, i32, i32)| {
            Box::new(async move {
                with_memory!(caller, memory, guest);
                let Ok(flags) = Lookupflags::try_from(flags) else {
                    return answer(Err(Errno::Inval.into()));
                };
                let path = GuestPtr::<str>::new((path.cast_unsigned(), length.cast_unsigned()));
                let fd = Fd::from(fd);
                let stat = guest.wasi.path_filestat_get(&mut memory, fd, flags, path);
                let stat = stat.await;
                answer(tell(&mut memory, &mut guest.met, stat, to))
            })
        },
    )?;
    Ok(())
}

fn tell(
    memory: &mut GuestMemory<'_>,
    met: &mut Met,
    stat: Result<Filestat, Error>,
    to: i32,
) -> Result<(), Error> {
    let mut stat = stat?;
    let time = u64::try_from(EPOCH.as_nanos()).unwrap_or(0);
    stat.ino = met.number(stat.dev, stat.ino);
    stat.dev = 1;
    (stat.atim, stat.mtim, stat.ctim) = (time, time, time);
    let to = GuestPtr::<Filestat>::new(to.cast_unsigned());
    memory.write(to, stat).map_err(Error::from)
}

struct List {
    fd: i32,
    to: u32,
    room: u32,
    cookie: u64,
    used: u32,
}

async fn list(mut caller: Caller<'_, Guest>, call: List) -> wasmtime::Result<i32> {
    let mut room = 64 << 10;
    let listing = loop {
        let guest = caller.data_mut();
        guest.wasi.set_hostcall_fuel(HOSTCALL);
        let mut bytes = vec![0; room];
        // Into memory of ours, where there is room for all of it.
        let mut memory = GuestMemory::Unshared(&mut bytes);
        let size = u32::try_from(room).unwrap_or(u32::MAX);
        let fd = Fd::from(call.fd);
        let read = guest
            .wasi
            .fd_readdir(&mut memory, fd, GuestPtr::new(0), size, 0)
            .await;
        let read = match read {
            Ok(read) => usize::try_from(read).unwrap_or(room),
            Err(error) => return answer(Err(error)),
        };
        if read < room {
            bytes.truncate(read);
            break bytes;
        }
        if room >= MOST {
            return answer(Err(Errno::Nobufs.into()));
        }
        room *= 4;
    };
    let sorted = sorted(&listing);
    let skip = usize::try_from(call.cookie).unwrap_or(usize::MAX);
    let most = usize::try_from(call.room).unwrap_or(usize::MAX);
    let mut out: Vec<u8> = sorted.into_iter().skip(skip).flatten().collect();
    out.truncate(most);
    with_memory!(caller, memory, _guest);
    let to = GuestPtr::<[u8]>::new((call.to, u32::try_from(out.len()).unwrap_or(0)));
    let written = memory.copy_from_slice(&out, to).and_then(|()| {
        let used = GuestPtr::<u32>::new(call.used);
        memory.write(used, u32::try_from(out.len()).unwrap_or(0))
    });
    answer(written.map_err(Error::from))
}

/// The entries, each as it is written, in the order of their names. Where one begins decides nothing but its cookie.
fn sorted(listing: &[u8]) -> Vec<Vec<u8>> {
    let mut entries: Vec<(&[u8], u8)> = Vec::new();
    let mut rest = listing;
    while let Some((head, after)) = rest.split_at_checked(HEAD) {
        let length = head.get(16..20).and_then(|bytes| bytes.try_into().ok());
        let length = length.map_or(0, u32::from_le_bytes);
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        let Some((name, after)) = after.split_at_checked(length) else {
            break;
        };
        entries.push((name, head.get(20).copied().unwrap_or(0)));
        rest = after;
    }
    entries.sort_unstable();
    let numbered = (1_u64..).zip(entries);
    numbered
        .map(|(next, (name, kind))| {
            let mut entry = Vec::with_capacity(HEAD + name.len());
            entry.extend(next.to_le_bytes());
            entry.extend(number_of(name).to_le_bytes());
            entry.extend(u32::try_from(name.len()).unwrap_or(0).to_le_bytes());
            entry.extend([kind, 0, 0, 0]);
            entry.extend(name);
            entry
        })
        .collect()
}

/// FNV-1a; never 0, which stands for none.
fn number_of(name: &[u8]) -> u64 {
    let mix = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    name.iter().fold(0xcbf2_9ce4_8422_2325, mix) | 1
}

/// An error number for the program, or the end of it.
fn answer(done: Result<(), Error>) -> wasmtime::Result<i32> {
    match done {
        Ok(()) => Ok(0),
        Err(error) => error.downcast().map(|errno| i32::from(u16::from(errno))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(next: u64, name: &str, kind: u8) -> Vec<u8> {
        let mut bytes = next.to_le_bytes().to_vec();
        bytes.extend([9; 8]);
        bytes.extend(u32::try_from(name.len()).unwrap().to_le_bytes());
        bytes.extend([kind, 0, 0, 0]);
        bytes.extend(name.as_bytes());
        bytes
    }

    #[test]
    fn entries_come_in_the_order_of_their_names_whatever_order_they_had() {
        let names = ["b", "..", "a", ".", "c"];
        let one: Vec<u8> = (1..)
            .zip(names)
            .flat_map(|(next, name)| entry(next, name, 4))
            .collect();
        let other: Vec<u8> = (1..)
            .zip(names.into_iter().rev())
            .flat_map(|(next, name)| entry(next, name, 4))
            .collect();
        assert_eq!(sorted(&one), sorted(&other));
        let found: Vec<Vec<u8>> = sorted(&one)
            .into_iter()
            .map(|entry| entry[HEAD..].to_vec())
            .collect();
        assert_eq!(found, [&b"."[..], b"..", b"a", b"b", b"c"]);
    }

    #[test]
    fn a_listing_that_was_cut_gives_whole_entries_only() {
        let listing = [entry(1, "a", 4), entry(2, "long name", 4)].concat();
        for cut in 25..listing.len() {
            assert_eq!(sorted(&listing[..cut]).len(), 1, "{cut}");
        }
    }
}
