//! Random bytes from the kernel, for names of requests and traces. Not for secrets: what cannot be had is filled with the time.

use data_encoding::HEXLOWER;
use jiff::Timestamp;
use rustix::rand::GetRandomFlags;

/// Hexadecimal digits, two for each of `N` bytes.
pub(crate) fn hex<const N: usize>() -> String {
    HEXLOWER.encode(&bytes::<N>())
}

pub(crate) fn bytes<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    match rustix::rand::getrandom(&mut bytes[..], GetRandomFlags::empty()) {
        Ok(got) if got == N => {}
        Ok(_) | Err(_) => {
            let time = Timestamp::now().as_nanosecond().to_le_bytes();
            for (byte, time) in bytes.iter_mut().zip(time) {
                *byte ^= time;
            }
        }
    }
    bytes
}
