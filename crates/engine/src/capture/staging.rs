//! The way of output that has been read to a pipe of the caller's: through a pipe of our own, from which pages move without waiting.

use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::pipe::{PipeFlags, SpliceFlags};

/// Output that has been read and is on its way to a pipe of the caller's. Writing there could block, whatever is asked before; moving pages there need not.
#[derive(Debug)]
pub(super) struct Staging {
    pub(super) read: OwnedFd,
    write: OwnedFd,
    /// How much is in it.
    pub(super) waiting: usize,
    /// What it had no room for: whoever has many pipes gets small ones.
    pub(super) rest: Vec<u8>,
}

impl Staging {
    pub(super) fn new() -> Result<Self, Errno> {
        let flags = PipeFlags::CLOEXEC | PipeFlags::NONBLOCK;
        let (read, write) = rustix::pipe::pipe_with(flags)?;
        Ok(Self {
            read,
            write,
            waiting: 0,
            rest: Vec::new(),
        })
    }

    pub(super) fn holds(&self) -> bool {
        self.waiting > 0 || !self.rest.is_empty()
    }

    /// Puts in what there is room for.
    pub(super) fn fill(&mut self) -> Result<(), Errno> {
        while !self.rest.is_empty() {
            match rustix::io::write(&self.write, &self.rest) {
                Ok(written) => {
                    self.waiting += written;
                    self.rest.drain(..written);
                }
                Err(Errno::AGAIN) if self.waiting > 0 => break,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
        Ok(())
    }
}

/// Moves pages from one pipe to another, as many as there is room for now.
pub(super) fn splice(from: &OwnedFd, to: &OwnedFd, amount: usize) -> Result<usize, Errno> {
    let flags = SpliceFlags::NONBLOCK | SpliceFlags::MOVE;
    rustix::pipe::splice(from, None, to, None, amount, flags)
}
