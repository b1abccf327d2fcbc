//! Emitted programs, run in the interpreter, decide as the policy says.

use super::policy_file::*;
use super::*;

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
