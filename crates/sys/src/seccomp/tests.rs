//! Runs emitted programs in a small interpreter and holds the results against the policy file itself, read without the table or the
//! emitter; then installs filters for real, in children.

mod policy_file;
mod program;
mod real;

use std::collections::BTreeMap;
use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::sync::OnceLock;

use libc::sock_filter;
use proptest::prelude::*;
use toml::Table;

use super::table::{LIBC, TABLE};
use super::*;
use crate::raw;
use policy_file::policy;

const X86_64: u32 = 0xc000_003e;
const I386: u32 = 0x4000_0003;
const AARCH64: u32 = 0xc000_00b7;
const X32: u32 = 0x4000_0000;

const ALLOW: u32 = libc::SECCOMP_RET_ALLOW;
const KILL: u32 = libc::SECCOMP_RET_KILL_PROCESS;
const NOTIFY: u32 = libc::SECCOMP_RET_USER_NOTIF;

const EVERY_VARIANTS: [Variants; 6] = [
    Variants::NONE,
    Variants::NONE.with(Variant::NoShm),
    Variants::NONE.with(Variant::PinCpus),
    Variants::NONE.with(Variant::NoShm).with(Variant::PinCpus),
    Variants::NONE.with(Variant::Fixed),
    Variants::NONE
        .with(Variant::NoShm)
        .with(Variant::PinCpus)
        .with(Variant::Fixed),
];

fn errno(code: i32) -> u32 {
    libc::SECCOMP_RET_ERRNO | code.cast_unsigned()
}

fn number(name: &str) -> u32 {
    let entry = TABLE.iter().find(|entry| entry.name == name);
    entry.unwrap_or_else(|| panic!("{name}")).number
}

#[derive(Debug, Clone, Copy)]
struct Call {
    number: u32,
    arch: u32,
    args: [u64; 6],
}

fn call(number: u32, args: [u64; 6]) -> Call {
    Call {
        number,
        arch: X86_64,
        args,
    }
}

impl Call {
    /// `struct seccomp_data` as the kernel lays it out.
    fn word(&self, offset: u32) -> u32 {
        let mut data = Vec::new();
        data.extend(self.number.to_le_bytes());
        data.extend(self.arch.to_le_bytes());
        data.extend(0x7fff_dead_beef_u64.to_le_bytes());
        self.args
            .iter()
            .for_each(|arg| data.extend(arg.to_le_bytes()));
        let at = usize::try_from(offset).unwrap();
        u32::from_le_bytes(data[at..at + 4].try_into().unwrap())
    }
}

struct Outcome {
    value: u32,
    steps: usize,
}

fn interpret(program: &[sock_filter], call: Call) -> Outcome {
    let (mut accumulator, mut at, mut steps) = (0u32, 0usize, 0usize);
    loop {
        let instruction = program[at];
        steps += 1;
        at += 1;
        let branch = |condition: bool| {
            usize::from(if condition {
                instruction.jt
            } else {
                instruction.jf
            })
        };
        match instruction.code {
            0x20 => accumulator = call.word(instruction.k),
            0x54 => accumulator &= instruction.k,
            0x05 => at += usize::try_from(instruction.k).unwrap(),
            0x15 => at += branch(accumulator == instruction.k),
            0x25 => at += branch(accumulator > instruction.k),
            0x35 => at += branch(accumulator >= instruction.k),
            0x06 => {
                let value = instruction.k;
                return Outcome { value, steps };
            }
            code => panic!("the emitter does not use {code:#x}"),
        }
    }
}

#[test]
fn the_table_names_every_call_of_the_kernel_once_and_in_order() {
    assert!(TABLE.windows(2).all(|pair| pair[0].number < pair[1].number));
    let numbers: Vec<u32> = TABLE.iter().map(|entry| entry.number).collect();
    let known: Vec<u32> = (0..=336).chain(424..=469).collect();
    assert_eq!(numbers, known);
    let policy = policy();
    let named: Vec<&str> = policy.calls.keys().map(String::as_str).collect();
    let mut listed: Vec<&str> = TABLE.iter().map(|entry| entry.name).collect();
    listed.sort_unstable();
    assert_eq!(listed, named);
}

#[test]
fn the_numbers_are_those_of_libc() {
    assert!(LIBC.len() > 350);
    for (name, expected) in LIBC {
        assert_eq!(libc::c_long::from(number(name)), *expected, "{name}");
        assert_eq!(name_of(number(name)), Some(*name));
    }
    assert_eq!(name_of(337), None);
    assert_eq!(name_of(X32), None);
}

#[test]
fn a_refused_call_never_answers_success_and_always_has_a_reason() {
    for variants in EVERY_VARIANTS {
        for number in 0..600 {
            assert!(
                (1..=4095).contains(&errno_for(number, variants)),
                "{number}"
            );
            let allowed = policy().expected(call(number, [0; 6]), variants, Denied::Errno) == ALLOW;
            let reasoned = reason_of(number, variants).is_some_and(|reason| reason.len() > 10);
            assert!(allowed || reasoned || name_of(number).is_none(), "{number}");
        }
    }
    assert_eq!(errno_for(X32 | 1, Variants::NONE), libc::ENOSYS);
    assert_eq!(errno_for(number("mount"), Variants::NONE), libc::EPERM);
    assert_eq!(
        errno_for(number("socket"), Variants::NONE),
        libc::EPROTONOSUPPORT
    );
    assert_eq!(errno_for(number("shmget"), EVERY_VARIANTS[1]), libc::ENOSYS);
}
