//! Calls of preview 1 that the engine answers otherwise than a program may expect, or for longer than a clock may wait.

use wasmtime::{Caller, Extern, Linker};
use wasmtime_wasi::I32Exit;
use wasmtime_wasi::p1::wasi_snapshot_preview1::WasiSnapshotPreview1 as _;
use wiggle::{GuestMemory, GuestPtr};

use crate::guest::Guest;

const MODULE: &str = "wasi_snapshot_preview1";
/// As much randomness as is made before others get their turn.
const PIECE: u32 = 256 << 10;
/// The engine's number for an address outside of memory.
const FAULT: i32 = 21;

pub(crate) fn lay_over(linker: &mut Linker<Guest>) -> wasmtime::Result<()> {
    linker.allow_shadowing(true);
    // The engine's own refuses what a shell has a meaning for; a program may end with any code.
    linker.func_wrap(MODULE, "proc_exit", |code: i32| {
        Err::<(), _>(wasmtime::Error::from(I32Exit(code)))
    })?;
    // The engine's own fills gigabytes at a stretch, and no deadline is looked at meanwhile.
    linker.func_wrap_async(
        MODULE,
        "random_get",
        |mut caller: Caller<'_, Guest>, (to, length): (i32, i32)| {
            Box::new(async move {
                let (mut to, mut left) = (to.cast_unsigned(), length.cast_unsigned());
                let Some(Extern::Memory(export)) = caller.get_export("memory") else {
                    return Err(wasmtime::Error::msg("the module exports no memory"));
                };
                while left > 0 {
                    let piece = left.min(PIECE);
                    let (bytes, guest) = export.data_and_store_mut(&mut caller);
                    let mut memory = GuestMemory::Unshared(bytes);
                    let at = GuestPtr::<u8>::new(to);
                    if let Err(error) = guest.wasi.random_get(&mut memory, at, piece) {
                        return error.downcast().map(|errno| i32::from(u16::from(errno)));
                    }
                    left -= piece;
                    let Some(next) = to.checked_add(piece) else {
                        return Ok(if left == 0 { 0 } else { FAULT });
                    };
                    to = next;
                    tokio::task::yield_now().await;
                }
                Ok(0)
            })
        },
    )?;
    Ok(())
}
