//! The filter of one kind of sandbox, and what the supervisor asks about the calls it refuses.

use libc::sock_filter;

use super::model::{Decision, Entry, Noise, Refusal, Restriction, Variants};
use super::table::{RESTRICTIONS, TABLE};
use super::tree::{self, Action, Span};

/// How the kernel treats a refused call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Denied {
    /// It answers the errno itself; nobody is told.
    Errno,
    /// It asks the supervisor, who records the attempt and answers with [`errno_for`]. Calls the policy marks quiet, and numbers it does not
    /// know, are answered as with `Errno`.
    Notify,
}

/// A program ready to be installed.
#[derive(Debug, Clone)]
pub struct Filter {
    program: Vec<sock_filter>,
}

impl Filter {
    #[must_use]
    pub fn build(variants: Variants, denied: Denied) -> Self {
        Self {
            program: tree::program(&spans(variants, denied)),
        }
    }

    #[must_use]
    pub fn program(&self) -> &[sock_filter] {
        &self.program
    }
}

/// What a refused call answers. Numbers the policy does not know, x32's among them, answer ENOSYS.
#[must_use]
pub fn errno_for(number: u32, variants: Variants) -> i32 {
    let errno = match entry(number).map(|entry| decide(entry, restrictions(variants))) {
        Some(Decision::Deny(refusal) | Decision::Check(_, refusal)) => i32::from(refusal.errno),
        // Never asked for: an allowed call is not refused. If it is asked all the same, refuse.
        Some(Decision::Allow) => libc::EPERM,
        None => libc::ENOSYS,
    };
    debug_assert!(errno > 0, "an errno of 0 would report success");
    errno
}

/// The system call's name, for reports.
#[must_use]
pub fn name_of(number: u32) -> Option<&'static str> {
    entry(number).map(|entry| entry.name)
}

/// Why the policy refuses the call, or some uses of it; `None` if it is always allowed or unknown.
#[must_use]
pub fn reason_of(number: u32, variants: Variants) -> Option<&'static str> {
    match decide(entry(number)?, restrictions(variants)) {
        Decision::Allow => None,
        Decision::Check(_, refusal) | Decision::Deny(refusal) => Some(refusal.reason),
    }
}

fn entry(number: u32) -> Option<&'static Entry> {
    let index = TABLE
        .binary_search_by_key(&number, |entry| entry.number)
        .ok()?;
    TABLE.get(index)
}

fn restrictions(variants: Variants) -> impl Iterator<Item = &'static Restriction> {
    let all = RESTRICTIONS.iter();
    all.filter(move |restriction| variants.contains(restriction.variant))
}

fn decide(entry: &Entry, among: impl IntoIterator<Item = &'static Restriction>) -> Decision {
    let mut among = among.into_iter();
    match among.find(|restriction| restriction.numbers.contains(&entry.number)) {
        Some(restriction) => match restriction.check {
            Some(check) => Decision::Check(check, restriction.refusal),
            None => Decision::Deny(restriction.refusal),
        },
        None => entry.decision,
    }
}

/// The table as spans of equal action from number 0 to the largest, unknown numbers included.
fn spans(variants: Variants, denied: Denied) -> Vec<Span> {
    let restrictions: Vec<&'static Restriction> = restrictions(variants).collect();
    let mut spans: Vec<Span> = Vec::with_capacity(128);
    let mut add = |first, action| {
        if spans.last().is_none_or(|last| last.action != action) {
            spans.push(Span { first, action });
        }
    };
    let mut next = 0;
    for entry in TABLE {
        if entry.number > next {
            add(next, UNKNOWN);
        }
        let decision = decide(entry, restrictions.iter().copied());
        add(entry.number, action(decision, denied));
        next = entry.number + 1;
    }
    add(next, UNKNOWN);
    spans
}

/// x32 numbers (0x4000_0000 and up) are unknown too: the answer is that of a kernel without x32.
const UNKNOWN: Action = Action::Return(libc::SECCOMP_RET_ERRNO | 38);
const _: () = assert!(libc::ENOSYS == 38);

fn action(decision: Decision, denied: Denied) -> Action {
    match decision {
        Decision::Allow => Action::Return(libc::SECCOMP_RET_ALLOW),
        Decision::Check(check, refusal) => Action::Check {
            check,
            refused: refused(refusal, denied),
            refused_quietly: refused(refusal, Denied::Errno),
        },
        Decision::Deny(refusal) => Action::Return(refused(refusal, denied)),
    }
}

fn refused(refusal: Refusal, denied: Denied) -> u32 {
    match (denied, refusal.noise) {
        (Denied::Notify, Noise::Recorded) => libc::SECCOMP_RET_USER_NOTIF,
        (Denied::Errno, _) | (Denied::Notify, Noise::Quiet) => {
            libc::SECCOMP_RET_ERRNO | u32::from(refusal.errno)
        }
    }
}
