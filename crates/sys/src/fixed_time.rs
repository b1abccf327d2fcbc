//! Clocks since the start of the machine that begin anew, by a time namespace. Only the program is in it: the kernel moves a process when it executes. Allocates nothing.

use rustix::thread::UnshareFlags;

use crate::blueprint::Fixed;
use crate::child;

/// Best effort: kernels before 6.2 move children only, and some have no such namespace. Whoever answers for the clock looks whether it was done.
pub(crate) fn begin_best_effort(fixed: &Fixed) {
    // SAFETY: this process is a single thread, and nothing but its own clocks changes.
    if unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWTIME) }.is_err() {
        return;
    }
    // One line for each clock: its name, seconds, nanoseconds.
    let mut text = Text::new();
    for (name, offset) in [
        (&b"monotonic "[..], fixed.offsets[0]),
        (b"boottime ", fixed.offsets[1]),
    ] {
        text.push(name);
        let (seconds, nanos) = (offset.div_euclid(BILLION), offset.rem_euclid(BILLION));
        if seconds < 0 {
            text.push(b"-");
        }
        text.push_number(seconds.unsigned_abs());
        text.push(b" ");
        text.push_number(nanos.unsigned_abs());
        text.push(b"\n");
    }
    child::write_own_setting_best_effort(c"/proc/self/timens_offsets", text.bytes());
}

const BILLION: i64 = 1_000_000_000;

struct Text {
    bytes: [u8; 128],
    used: usize,
}

impl Text {
    const fn new() -> Self {
        Self {
            bytes: [0; 128],
            used: 0,
        }
    }

    fn push(&mut self, more: &[u8]) {
        let to = self.used + more.len();
        if let Some(room) = self.bytes.get_mut(self.used..to) {
            room.copy_from_slice(more);
            self.used = to;
        }
    }

    fn push_number(&mut self, number: u64) {
        let mut digits = [0; 20];
        let mut at = digits.len();
        let mut rest = number;
        loop {
            at -= 1;
            // A digit.
            digits[at] = b'0' + (rest % 10).to_le_bytes()[0];
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        self.push(digits.get(at..).unwrap_or_default());
    }

    fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.used).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_the_kernel_reads_them() {
        let mut text = Text::new();
        for number in [0, 7, 10, u64::MAX] {
            text.push_number(number);
            text.push(b" ");
        }
        assert_eq!(text.bytes(), b"0 7 10 18446744073709551615 ");
    }
}
