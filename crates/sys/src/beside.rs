//! Work that a process of ours has done beside it, in a process that shares its memory and descriptors, while it goes on. Allocates nothing.

use std::cell::UnsafeCell;
use std::mem::MaybeUninit;

use rustix::io::Errno;
use rustix::process::{Pid, WaitOptions};

use crate::{clone, raw};

/// Enough for the deepest of the works in an unoptimised build.
const STACK: usize = 32 * 1024;

/// The work, the place for its result, and the stack that it runs on.
pub(crate) struct Work<T> {
    result: UnsafeCell<Option<T>>,
    work: fn() -> T,
    stack: [MaybeUninit<u8>; STACK],
}

/// Work under way. It borrows its place, so that cannot go away before [`Beside::wait`] has returned.
pub(crate) struct Beside<'a, T> {
    pid: Pid,
    result: &'a UnsafeCell<Option<T>>,
}

impl<T: Copy> Work<T> {
    pub(crate) const fn new(work: fn() -> T) -> Self {
        Self {
            result: UnsafeCell::new(None),
            work,
            stack: [const { MaybeUninit::uninit() }; STACK],
        }
    }

    /// Starts the work, which must keep to raw system calls.
    pub(crate) fn begin(&mut self) -> Result<Beside<'_, T>, Errno> {
        let argument = std::ptr::from_mut(self).cast();
        // SAFETY: the works of this crate make raw system calls only. `self` stays borrowed until the process has been waited for; a caller that ends
        // before that ends the whole pid namespace with it.
        let pid = unsafe { clone::spawn_sharing_all(&mut self.stack, enter::<T>, argument) }?;
        Ok(Beside {
            pid,
            result: &self.result,
        })
    }
}

impl<T: Copy> Beside<'_, T> {
    /// Waits for the work to be done.
    pub(crate) fn wait(self) -> Result<T, Errno> {
        while let Err(Errno::INTR) = rustix::process::waitpid(Some(self.pid), WaitOptions::empty())
        {
        }
        // SAFETY: the only other user of the cell has ended.
        unsafe { *self.result.get() }.ok_or(Errno::CHILD)
    }
}

extern "C" fn enter<T>(argument: *mut libc::c_void) -> libc::c_int {
    let work: *mut Work<T> = argument.cast();
    // SAFETY: `begin` handed us a live `Work`; its owner looks at the result only after we have ended. The stack, on which we run, is not touched
    // through this pointer.
    unsafe { *(*work).result.get() = Some(((*work).work)()) };
    raw::exit(0)
}
