//! Random bytes from the kernel: all of them, or none and why.

use std::io;

use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};

pub fn bytes<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    let mut filled = 0;
    while let Some(rest @ [_, ..]) = bytes.get_mut(filled..) {
        match getrandom(rest, GetRandomFlags::empty()) {
            Ok(more) => filled += more,
            // While a machine starts, the kernel may wait, and a signal end that.
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_is_random() {
        let all: Vec<[u8; 64]> = (0..64).map(|_| bytes().unwrap()).collect();
        for at in 0..64 {
            assert!(all.iter().any(|bytes| bytes[at] != all[0][at]), "{at}");
        }
    }
}
