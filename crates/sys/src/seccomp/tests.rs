//! Runs emitted programs in a small interpreter and holds the results against the policy file itself, read without the table or the
//! emitter; then installs filters for real, in children.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::sync::OnceLock;

use libc::sock_filter;
use proptest::prelude::*;
use toml::Table;

use super::table::{LIBC, TABLE};
use super::*;
use crate::raw;

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

// ------------------------------------------------------------------------------------------------------------- interpreter

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

// ------------------------------------------------------------------------------------------------ the policy, read naively

struct Policy {
    calls: BTreeMap<String, Decided>,
    variants: Vec<(Variant, Table)>,
}

enum Decided {
    Allow,
    Deny {
        errno: u32,
        quiet: bool,
    },
    Check {
        errno: u32,
        quiet: bool,
        table: Table,
    },
}

fn policy() -> &'static Policy {
    static POLICY: OnceLock<Policy> = OnceLock::new();
    POLICY.get_or_init(read_policy)
}

fn read_policy() -> Policy {
    let toml: Table = include_str!("../../../../policies/native.toml")
        .parse()
        .unwrap();
    let mut calls = BTreeMap::new();
    let mut add = |names: Vec<String>, decided: &dyn Fn() -> Decided| {
        for name in names {
            assert!(
                calls.insert(name.clone(), decided()).is_none(),
                "{name} twice"
            );
        }
    };
    for group in groups(&toml, "allow") {
        add(names(group), &|| Decided::Allow);
    }
    for group in groups(&toml, "deny") {
        add(names(group), &|| Decided::Deny {
            errno: refusal(group),
            quiet: quiet(group),
        });
    }
    for group in groups(&toml, "check") {
        add(names(group), &|| Decided::Check {
            errno: refusal(group),
            quiet: quiet(group),
            table: group.clone(),
        });
    }
    let variants = groups(&toml, "variant").map(|group| {
        let variant = match group["name"].as_str().unwrap() {
            "no-shm" => Variant::NoShm,
            "pin-cpus" => Variant::PinCpus,
            "fixed" => Variant::Fixed,
            other => panic!("{other}"),
        };
        (variant, group.clone())
    });
    let variants = variants.collect();
    Policy { calls, variants }
}

fn groups<'t>(toml: &'t Table, key: &str) -> impl Iterator<Item = &'t Table> {
    toml[key]
        .as_array()
        .unwrap()
        .iter()
        .map(|group| group.as_table().unwrap())
}

fn names(group: &Table) -> Vec<String> {
    match group.get("names") {
        Some(names) => strings(names),
        None => vec![group["name"].as_str().unwrap().to_owned()],
    }
}

fn strings(value: &toml::Value) -> Vec<String> {
    value
        .as_array()
        .unwrap()
        .iter()
        .map(|s| s.as_str().unwrap().to_owned())
        .collect()
}

fn quiet(group: &Table) -> bool {
    group.get("quiet").is_some_and(|q| q.as_bool().unwrap())
}

fn refusal(group: &Table) -> u32 {
    errno(match group.get("errno").map(|e| e.as_str().unwrap()) {
        None | Some("EPERM") => libc::EPERM,
        Some("ENOSYS") => libc::ENOSYS,
        Some("EINVAL") => libc::EINVAL,
        Some("EPROTONOSUPPORT") => libc::EPROTONOSUPPORT,
        Some("EAFNOSUPPORT") => libc::EAFNOSUPPORT,
        Some(other) => panic!("{other}"),
    })
}

/// What the first matching rule of a check says.
fn check(table: &Table, args: [u64; 6]) -> &str {
    for rule in groups(table, "rule") {
        let holds = groups(rule, "when").all(|test| {
            let arg = args[usize::try_from(test["arg"].as_integer().unwrap()).unwrap()];
            let bits = |key: &str| -> Option<Vec<u64>> {
                let table = test.get(key)?.as_table().unwrap();
                Some(
                    table
                        .values()
                        .map(|v| v.as_integer().unwrap().cast_unsigned())
                        .collect(),
                )
            };
            let mask = bits("mask").map_or(0xffff_ffff, |bits| {
                bits.iter().fold(0, |all, bit| all | bit)
            });
            bits("values").unwrap().contains(&(arg & mask))
        });
        if holds {
            return rule["then"].as_str().unwrap();
        }
    }
    table["otherwise"].as_str().unwrap()
}

impl Policy {
    fn expected(&self, call: Call, variants: Variants, denied: Denied) -> u32 {
        if call.arch != X86_64 {
            return KILL;
        }
        let refused = |errno: u32, quiet: bool| match denied {
            Denied::Notify if !quiet => NOTIFY,
            Denied::Notify | Denied::Errno => errno,
        };
        let Some(name) = name_of(call.number) else {
            return errno(libc::ENOSYS);
        };
        for (variant, group) in &self.variants {
            if !variants.contains(*variant) || !strings(&group["deny"]).iter().any(|n| n == name) {
                continue;
            }
            let verdict = match group.get("rule") {
                Some(_) => check(group, call.args),
                None => "deny",
            };
            return match verdict {
                "allow" => ALLOW,
                "deny" => refused(refusal(group), false),
                other => panic!("{other}"),
            };
        }
        match &self.calls[name] {
            Decided::Allow => ALLOW,
            Decided::Deny { errno, quiet } => refused(*errno, *quiet),
            Decided::Check {
                errno,
                quiet,
                table,
            } => match check(table, call.args) {
                "allow" => ALLOW,
                "deny" => refused(*errno, *quiet),
                "deny-quietly" => refused(*errno, true),
                other => panic!("{other}"),
            },
        }
    }
}

// ------------------------------------------------------------------------------------------------------------------- table

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

// ----------------------------------------------------------------------------------------------------------------- program

/// Values at and around everything the policy compares with, alone and with bits in the half the kernel ignores.
fn edge_values() -> Vec<u64> {
    let mut values = vec![0, 1, 0x7fff_ffff, 0x8000_0000, 0xffff_ffff];
    for entry in TABLE {
        let model::Decision::Check(check, _) = entry.decision else {
            continue;
        };
        for test in check.rules.iter().flat_map(|rule| rule.when) {
            let bounds = test.ranges.iter().flat_map(|(low, high)| [*low, *high]);
            for value in bounds.chain([test.mask]) {
                values.extend([value.wrapping_sub(1), value, value.wrapping_add(1)].map(u64::from));
            }
            values.extend((0..32).map(|bit| 1u64 << bit));
        }
    }
    values.sort_unstable();
    values.dedup();
    values
}

#[test]
fn the_program_decides_as_the_policy_says() {
    let policy = policy();
    let edges = edge_values();
    for (variants, denied) in kinds() {
        let filter = Filter::build(variants, denied);
        let agree = |call: Call| {
            let got = interpret(filter.program(), call).value;
            assert_eq!(
                got,
                policy.expected(call, variants, denied),
                "{variants:?} {denied:?} {call:x?}"
            );
        };
        let unusual = [
            X32,
            X32 | 1,
            X32 | 59,
            X32 | 512,
            X32 | 520,
            0x7fff_ffff,
            0x8000_0000,
            u32::MAX,
        ];
        for number in (0..=600).chain(unusual) {
            for arch in [X86_64, I386, AARCH64, 0] {
                for args in [[0; 6], [u64::MAX; 6], [1; 6]] {
                    agree(Call { number, arch, args });
                }
            }
        }
        for entry in TABLE
            .iter()
            .filter(|e| matches!(e.decision, model::Decision::Check(..)))
        {
            for value in &edges {
                for position in 0..3 {
                    for high in [0, 1 << 32, 0xffff_ffff << 32] {
                        let mut args = [0; 6];
                        args[position] = value | high;
                        agree(call(entry.number, args));
                    }
                }
            }
        }
    }
}

fn kinds() -> impl Iterator<Item = (Variants, Denied)> {
    let all = EVERY_VARIANTS.into_iter();
    all.flat_map(|variants| [(variants, Denied::Errno), (variants, Denied::Notify)])
}

proptest! {
    #[test]
    fn random_arguments_are_decided_as_the_policy_says(
        which in any::<prop::sample::Index>(),
        kind in any::<prop::sample::Index>(),
        args in prop::array::uniform6(prop_oneof![
            any::<u64>(),
            prop::sample::select(edge_values()),
            (0u64..64),
        ]),
    ) {
        let checked: Vec<u32> = TABLE
            .iter()
            .filter(|e| matches!(e.decision, model::Decision::Check(..)))
            .map(|e| e.number)
            .collect();
        let call = call(*which.get(&checked), args);
        let kinds: Vec<_> = kinds().collect();
        let (variants, denied) = *kind.get(&kinds);
        let got = interpret(Filter::build(variants, denied).program(), call).value;
        prop_assert_eq!(got, policy().expected(call, variants, denied));
    }
}

#[test]
fn the_program_stays_small_and_shallow() {
    for (variants, denied) in kinds() {
        let filter = Filter::build(variants, denied);
        assert!(filter.program().len() < 350, "{}", filter.program().len());
        let steps = |number| interpret(filter.program(), call(number, [0; 6])).steps;
        let checked = |number: u32| {
            let entry = TABLE.iter().find(|entry| entry.number == number);
            let restricted = table::RESTRICTIONS.iter().any(|restriction| {
                variants.contains(restriction.variant)
                    && restriction.check.is_some()
                    && restriction.numbers.contains(&number)
            });
            restricted
                || entry.is_some_and(|entry| matches!(entry.decision, model::Decision::Check(..)))
        };
        let deepest = (0..600).filter(|n| !checked(*n)).map(steps).max();
        assert!(deepest <= Some(12), "{deepest:?}");
    }
}

#[test]
fn a_jump_out_of_reach_takes_a_stepping_stone() {
    // Numbers alternate between many distinct answers, so that neither returns nor subtrees are near each other.
    let spans: Vec<tree::Span> = (0..3000u32)
        .map(|first| tree::Span {
            first,
            action: tree::Action::Return(if first % 2 == 0 {
                ALLOW
            } else {
                errno(1) + first % 700
            }),
        })
        .collect();
    let program = tree::program(&spans);
    assert!(program.len() > 3000);
    for number in 0..3000 {
        let expected = if number % 2 == 0 {
            ALLOW
        } else {
            errno(1) + number % 700
        };
        assert_eq!(
            interpret(&program, call(number, [0; 6])).value,
            expected,
            "{number}"
        );
    }
    assert_eq!(
        interpret(&program, call(u32::MAX, [0; 6])).value,
        errno(1) + 2999 % 700
    );
}

#[test]
fn attacks_the_policy_names_are_refused_and_their_harmless_twins_are_not() {
    let filter = Filter::build(Variants::NONE, Denied::Errno);
    let answer = |name, args| interpret(filter.program(), call(number(name), args)).value;
    let high = 1 << 32;
    let cases = [
        ("ioctl", [0, 0x5412, 0, 0, 0, 0], errno(libc::EPERM)),
        ("ioctl", [0, 0x5412 | high, 0, 0, 0, 0], errno(libc::EPERM)),
        ("ioctl", [0, 0x5413, 0, 0, 0, 0], ALLOW),
        ("clone", [0x1000_0011, 0, 0, 0, 0, 0], errno(libc::EPERM)),
        (
            "clone",
            [0x1000_0011 | high, 0, 0, 0, 0, 0],
            errno(libc::EPERM),
        ),
        ("clone", [0x003d_0f00, 0, 0, 0, 0, 0], ALLOW),
        ("clone3", [0; 6], errno(libc::ENOSYS)),
        ("socket", [40, 1, 0, 0, 0, 0], errno(libc::EPROTONOSUPPORT)),
        ("socket", [2, 1, 132, 0, 0, 0], errno(libc::EPROTONOSUPPORT)),
        ("socket", [2, 1, 262, 0, 0, 0], errno(libc::EPROTONOSUPPORT)),
        ("socket", [2, 6, 0, 0, 0, 0], errno(libc::EPROTONOSUPPORT)),
        ("socket", [10, 0x8_0801, 6, 0, 0, 0], ALLOW),
        ("socket", [1, 5, 0, 0, 0, 0], ALLOW),
        ("socket", [16, 3, 0, 0, 0, 0], ALLOW),
        ("socket", [16, 3, 9, 0, 0, 0], errno(libc::EPROTONOSUPPORT)),
        ("prctl", [35, 0, 0, 0, 0, 0], errno(libc::EINVAL)),
        ("prctl", [38, 1, 0, 0, 0, 0], ALLOW),
        ("personality", [0xffff_ffff, 0, 0, 0, 0, 0], ALLOW),
        (
            "personality",
            [0x40_0000, 0, 0, 0, 0, 0],
            errno(libc::EPERM),
        ),
        ("mknodat", [0, 0, 0o60_600, 0, 0, 0], errno(libc::EPERM)),
        ("mknodat", [0, 0, 0o10_600, 0, 0, 0], ALLOW),
        ("prlimit64", [1, 0, 0, 0, 0, 0], errno(libc::EPERM)),
    ];
    for (name, args, expected) in cases {
        assert_eq!(answer(name, args), expected, "{name} {args:x?}");
    }
    // Go's probe for MPTCP is no attack: refused without a word, where SCTP is reported.
    let telling = Filter::build(Variants::NONE, Denied::Notify);
    let socket = |protocol| {
        interpret(
            telling.program(),
            call(number("socket"), [2, 1, protocol, 0, 0, 0]),
        )
        .value
    };
    assert_eq!(
        [socket(262), socket(132)],
        [errno(libc::EPROTONOSUPPORT), NOTIFY]
    );
}

// -------------------------------------------------------------------------------------------------------------- for real

/// Runs `body` in a forked child; what it returns is the child's exit code. A signal is 128 and its number.
fn in_child(body: impl FnOnce() -> u8) -> i32 {
    // SAFETY: the child runs `body`, which makes system calls and nothing that needs the threads fork left behind, and leaves by exit_group.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0);
    if pid == 0 {
        raw::exit(body());
    }
    let mut status = 0;
    // SAFETY: the kernel writes one int at the pointer.
    assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
    if libc::WIFEXITED(status) {
        libc::WEXITSTATUS(status)
    } else {
        128 + libc::WTERMSIG(status)
    }
}

fn confine(filter: &Filter, listener: Listener) -> Option<i32> {
    // SAFETY: takes no pointer.
    unsafe { raw::syscall(libc::SYS_prctl, [38, 1, 0, 0, 0, 0]) }.unwrap();
    install(filter.program(), listener).unwrap()
}

fn answer(number: libc::c_long, args: [usize; 6]) -> u8 {
    // SAFETY: callers pass null pointers or plain numbers, at which the kernel writes nothing.
    match unsafe { raw::syscall(number, args) } {
        Ok(_) => 0,
        Err(errno) => u8::try_from(errno.raw_os_error()).unwrap(),
    }
}

#[test]
fn a_confined_child_still_execs() {
    let filter = Filter::build(Variants::NONE, Denied::Errno);
    let argv = [c"/bin/true".as_ptr(), std::ptr::null()];
    let code = in_child(|| {
        confine(&filter, Listener::Absent);
        // SAFETY: both arrays end with null and the strings with zero; on success the call does not return.
        unsafe { libc::execv(argv[0], argv.as_ptr()) };
        99
    });
    assert_eq!(code, 0);
}

#[test]
fn refused_calls_answer_their_errno_in_a_confined_child() {
    let filter = Filter::build(Variants::NONE, Denied::Errno);
    let refused =
        |number, args| in_child(|| (confine(&filter, Listener::Absent), answer(number, args)).1);
    assert_eq!(refused(libc::SYS_mount, [0; 6]), libc::EPERM);
    assert_eq!(refused(libc::SYS_clone3, [0; 6]), libc::ENOSYS);
    assert_eq!(
        refused(
            libc::SYS_unshare,
            [libc::CLONE_NEWUSER as usize, 0, 0, 0, 0, 0]
        ),
        libc::EPERM
    );
    assert_eq!(
        refused(libc::SYS_socket, [40, 1, 0, 0, 0, 0]),
        libc::EPROTONOSUPPORT
    );
    assert_eq!(refused(i64::from(X32) | 39, [0; 6]), libc::ENOSYS);
    assert_eq!(refused(libc::SYS_getpid, [0; 6]), 0);
}

#[test]
fn a_call_through_the_32_bit_entry_ends_the_process() {
    let filter = Filter::build(Variants::NONE, Denied::Errno);
    let code = in_child(|| {
        confine(&filter, Listener::Absent);
        // SAFETY: getpid of the 32-bit entry takes no argument; eax is the only register the kernel changes that is not restored.
        unsafe {
            core::arch::asm!("int 0x80", inlateout("eax") 20 => _, out("r8") _, out("r9") _, out("r10") _, out("r11") _)
        };
        0
    });
    // A kernel built without 32-bit support faults the instruction itself.
    assert!(
        [128 + libc::SIGSYS, 128 + libc::SIGSEGV].contains(&code),
        "{code}"
    );
}

#[test]
fn without_no_new_privs_or_capability_nothing_is_installed() {
    let filter = Filter::build(Variants::NONE, Denied::Errno);
    let code = in_child(|| {
        // SAFETY: takes no pointer. Dropping the identity drops root's capabilities; failing means there were none.
        let _ = unsafe { raw::syscall(libc::SYS_setresuid, [65534, 65534, 65534, 0, 0, 0]) };
        match install(filter.program(), Listener::Absent) {
            Ok(_) => 0,
            Err(errno) => u8::try_from(errno.raw_os_error()).unwrap(),
        }
    });
    assert_eq!(code, libc::EACCES);
}

#[test]
fn the_supervisor_reads_a_refused_call_and_answers_it() {
    let filter = Filter::build(Variants::NONE, Denied::Notify);
    std::thread::scope(|scope| {
        let (send, listener) = std::sync::mpsc::channel();
        // A filter belongs to a thread: this one confines itself, the test's own supervises.
        let confined = scope.spawn(move || {
            let fd = confine(&filter, Listener::Wanted).unwrap();
            // SAFETY: the kernel just made the descriptor for us alone.
            send.send(unsafe { OwnedFd::from_raw_fd(fd) }).unwrap();
            let recorded = answer(libc::SYS_mount, [1, 2, 3, 4, 5, 0]);
            (
                recorded,
                answer(libc::SYS_clone3, [0; 6]),
                answer(libc::SYS_getpid, [0; 6]),
            )
        });
        let listener = listener.recv().unwrap();
        let Received::Call(call) = receive(listener.as_fd()).unwrap() else {
            panic!("the caller is waiting");
        };
        assert_eq!(name_of(call.number), Some("mount"));
        assert_eq!(call.args, [1, 2, 3, 4, 5, 0]);
        let errno = errno_for(call.number, Variants::NONE);
        assert_eq!(
            respond(listener.as_fd(), call.id, errno),
            Ok(Answered::Sent)
        );
        assert_eq!(confined.join().unwrap(), (1, 38, 0));
        assert_eq!(
            respond(listener.as_fd(), call.id, errno),
            Ok(Answered::Gone)
        );
    });
}

#[test]
fn a_caller_that_died_is_gone_not_an_error() {
    let filter = Filter::build(Variants::NONE, Denied::Notify);
    let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
    // SAFETY: as in `in_child`.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        let fd = confine(&filter, Listener::Wanted).unwrap();
        let byte = [u8::try_from(fd).unwrap()];
        std::io::Write::write_all(&mut &theirs, &byte).unwrap();
        raw::exit(answer(libc::SYS_mount, [0; 6]));
    }
    let mut byte = [0];
    std::io::Read::read_exact(&mut &ours, &mut byte).unwrap();
    let child = rustix::process::Pid::from_raw(pid).unwrap();
    let pidfd = rustix::process::pidfd_open(child, rustix::process::PidfdFlags::empty()).unwrap();
    let flags = rustix::process::PidfdGetfdFlags::empty();
    let listener = rustix::process::pidfd_getfd(&pidfd, i32::from(byte[0]), flags).unwrap();
    let Received::Call(call) = receive(listener.as_fd()).unwrap() else {
        panic!("the caller is waiting");
    };
    rustix::process::kill_process(child, rustix::process::Signal::KILL).unwrap();
    rustix::process::waitpid(Some(child), rustix::process::WaitOptions::empty()).unwrap();
    assert_eq!(
        respond(listener.as_fd(), call.id, libc::EPERM),
        Ok(Answered::Gone)
    );
}
