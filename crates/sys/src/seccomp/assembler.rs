//! Writes a classic BPF program from its end to its start. All jumps go forward, so a target's place is known before anything jumps to it,
//! and a conditional jump that cannot reach its target (255 instructions at most) gets a stepping stone in front of it on the spot.

use libc::sock_filter;

const LOAD_WORD: u16 = 0x20; // BPF_LD | BPF_W | BPF_ABS
const AND: u16 = 0x54; // BPF_ALU | BPF_AND | BPF_K
const JUMP: u16 = 0x05; // BPF_JMP | BPF_JA
const RETURN: u16 = 0x06; // BPF_RET | BPF_K

/// What a conditional jump asks of the accumulator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u16)]
pub(super) enum Compare {
    Equal = 0x15,   // BPF_JMP | BPF_JEQ | BPF_K
    Above = 0x25,   // BPF_JMP | BPF_JGT | BPF_K
    AtLeast = 0x35, // BPF_JMP | BPF_JGE | BPF_K
}

/// An instruction already written, counted from the program's end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place(usize);

/// A program under construction, last instruction first.
#[derive(Debug, Default)]
pub(super) struct Assembler {
    reversed: Vec<sock_filter>,
    /// The latest return of each value.
    returns: Vec<(u32, Place)>,
}

impl Assembler {
    pub(super) fn with_capacity(instructions: usize) -> Self {
        Self {
            reversed: Vec::with_capacity(instructions),
            returns: Vec::with_capacity(8),
        }
    }

    pub(super) fn finish(mut self) -> Vec<sock_filter> {
        self.reversed.reverse();
        self.reversed
    }

    /// Ends the program with `value`. The same return is written once and shared.
    pub(super) fn ret(&mut self, value: u32) -> Place {
        let shared = self.returns.iter().find(|(shared, _)| *shared == value);
        match shared {
            Some((_, place)) => *place,
            None => self.push_return(value),
        }
    }

    fn push_return(&mut self, value: u32) -> Place {
        let place = self.push(RETURN, 0, 0, value);
        self.returns.retain(|(other, _)| *other != value);
        self.returns.push((value, place));
        place
    }

    /// Loads the word at `offset` of `seccomp_data`, then goes on at `next`.
    pub(super) fn load(&mut self, offset: u32, next: Place) -> Place {
        self.continue_at(next);
        self.push(LOAD_WORD, 0, 0, offset)
    }

    /// ANDs the accumulator with `mask`, then goes on at `next`.
    pub(super) fn and(&mut self, mask: u32, next: Place) -> Place {
        self.continue_at(next);
        self.push(AND, 0, 0, mask)
    }

    pub(super) fn branch(&mut self, compare: Compare, with: u32, yes: Place, no: Place) -> Place {
        let (mut yes, mut no) = (yes, no);
        loop {
            match (self.short(yes), self.short(no)) {
                (Some(jt), Some(jf)) => return self.push(compare as u16, jt, jf, with),
                (None, _) => yes = self.stone(yes),
                (_, None) => no = self.stone(no),
            }
        }
    }

    fn push(&mut self, code: u16, jt: u8, jf: u8, k: u32) -> Place {
        self.reversed.push(sock_filter { code, jt, jf, k });
        Place(self.reversed.len() - 1)
    }

    /// How many instructions the next one written would skip to get to `place`.
    fn distance(&self, place: Place) -> usize {
        self.reversed.len() - 1 - place.0
    }

    fn short(&self, place: Place) -> Option<u8> {
        u8::try_from(self.distance(place)).ok()
    }

    /// Makes sure that falling through from the next instruction written leads to `place`.
    fn continue_at(&mut self, place: Place) {
        if self.distance(place) != 0 {
            self.stone(place);
        }
    }

    /// A single instruction that does what arriving at `place` would: a return is repeated, anything else is jumped to.
    fn stone(&mut self, place: Place) -> Place {
        let target = self.reversed[place.0];
        if target.code == RETURN {
            return self.push_return(target.k);
        }
        // A program has at most 4096 instructions, so the distance fits; if it did not, the kernel would refuse the jump as out of bounds.
        let distance = u32::try_from(self.distance(place)).unwrap_or(u32::MAX);
        self.push(JUMP, 0, 0, distance)
    }
}
