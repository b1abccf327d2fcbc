//! Turns decisions into a program: a balanced search tree over spans of neighbouring numbers that are treated alike, with the argument checks
//! as leaves. The kernel runs a new filter once for every system call to learn which are always allowed, so a shallow tree is also what makes
//! installing cheap.

use libc::sock_filter;

use super::assembler::{Assembler, Compare, Place};
use super::model::{Check, Test, Verdict};

/// Offsets in the kernel's `struct seccomp_data`.
const NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;
const ARGUMENTS: u32 = 16;

const AUDIT_ARCH_X86_64: u32 = 0xc000_003e;

/// What happens to the calls of one span.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    Return(u32),
    Check {
        check: &'static Check,
        refused: u32,
        refused_quietly: u32,
    },
}

/// Calls from `first` up to the next span's `first`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Span {
    pub(super) first: u32,
    pub(super) action: Action,
}

/// The program for `spans`, which ascend from number 0; the last one extends to the largest number. A call made through another
/// architecture's entry (32-bit) ends the process: its numbers mean other calls.
pub(super) fn program(spans: &[Span]) -> Vec<sock_filter> {
    let mut asm = Assembler::with_capacity(256);
    // Written first so that it stands at the very end, within reach of most of the program.
    let allowed = asm.ret(libc::SECCOMP_RET_ALLOW);
    let tree = search(&mut asm, spans, allowed);
    let by_number = asm.load(NUMBER, tree);
    let foreign = asm.ret(libc::SECCOMP_RET_KILL_PROCESS);
    let ours = asm.branch(Compare::Equal, AUDIT_ARCH_X86_64, by_number, foreign);
    asm.load(ARCHITECTURE, ours);
    asm.finish()
}

fn search(asm: &mut Assembler, spans: &[Span], allowed: Place) -> Place {
    match spans {
        [] => asm.ret(libc::SECCOMP_RET_KILL_PROCESS),
        [only] => leaf(asm, only.action, allowed),
        // One number that differs from both its neighbours needs one comparison, not two.
        [before, odd, after] if before.action == after.action && after.first - odd.first == 1 => {
            let no = leaf(asm, before.action, allowed);
            let yes = leaf(asm, odd.action, allowed);
            asm.branch(Compare::Equal, odd.first, yes, no)
        }
        _ => {
            let (low, high) = spans.split_at(spans.len() / 2);
            let yes = search(asm, high, allowed);
            let no = search(asm, low, allowed);
            asm.branch(Compare::AtLeast, high[0].first, yes, no)
        }
    }
}

fn leaf(asm: &mut Assembler, action: Action, allowed: Place) -> Place {
    match action {
        Action::Return(value) => asm.ret(value),
        Action::Check {
            check,
            refused,
            refused_quietly,
        } => {
            let place = |asm: &mut Assembler, verdict| match verdict {
                Verdict::Allow => allowed,
                Verdict::Deny => asm.ret(refused),
                Verdict::DenyQuietly => asm.ret(refused_quietly),
            };
            let otherwise = place(asm, check.otherwise);
            check.rules.iter().rev().fold(otherwise, |next, rule| {
                let then = place(asm, rule.then);
                rule.when
                    .iter()
                    .rev()
                    .fold(then, |hit, condition| test(asm, condition, hit, next))
            })
        }
    }
}

fn test(asm: &mut Assembler, test: &Test, hit: Place, miss: Place) -> Place {
    let compare = test.ranges.iter().rev().fold(miss, |beyond, &(low, high)| {
        if low == high {
            return asm.branch(Compare::Equal, low, hit, beyond);
        }
        let not_below = asm.branch(Compare::Above, high, beyond, hit);
        asm.branch(Compare::AtLeast, low, not_below, miss)
    });
    let masked = if test.mask == u32::MAX {
        compare
    } else {
        asm.and(test.mask, compare)
    };
    // x86_64 is little-endian: an argument's low half comes first.
    asm.load(ARGUMENTS + 8 * u32::from(test.argument), masked)
}
