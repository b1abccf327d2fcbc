//! What streams, buckets and subjects are called, and how an id becomes a part of one.

use cofferdam_contract::canonical::Digest;

pub const WORK_STREAM: &str = "COFFERDAM_WORK";
pub const RESULT_STREAM: &str = "COFFERDAM_RESULTS";
pub const DEAD_STREAM: &str = "COFFERDAM_DEAD";
pub const EVENT_STREAM: &str = "COFFERDAM_EVENTS";
pub const JOBS: &str = "cofferdam_jobs";
pub const OPEN: &str = "cofferdam_open";
pub const CLAIMS: &str = "cofferdam_claims";
pub const WORKERS: &str = "cofferdam_workers";
pub const LEDGER: &str = "cofferdam_ledger";
pub const SETTINGS: &str = "cofferdam_settings";
pub const OBJECTS: &str = "cofferdam_objects";
pub const SETTINGS_KEY: &str = "settings";
/// A plain message that says that there is work, with the name of its queue.
pub const WAKE: &str = "cofferdam.wake";

/// One token of a subject, which is also a key of a bucket: everything but letters, digits, `-` and `_` is written as `=` and two hexadecimal digits.
pub fn token(text: &str) -> String {
    let mut token = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_') {
            token.push(char::from(byte));
        } else {
            token.push_str(&format!("={byte:02X}"));
        }
    }
    token
}

/// The text that a token was made of.
pub fn untoken(token: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(token.len());
    let mut rest = token.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'=' => {
                let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
                let (high, low) = (digit(rest.next())?, digit(rest.next())?);
                u8::try_from(high * 16 + low).ok()?
            }
            other => other,
        });
    }
    String::from_utf8(bytes).ok()
}

/// A class with a tenant is a queue of its own, so that each tenant has its turn.
pub fn queue_name(class: &str, tenant: &str) -> String {
    format!(
        "{}__{}",
        class.replace('.', "_"),
        token(tenant).replace('=', "-")
    )
}

/// The same with what makes it one of a kind. The short name is one that people write, and may be another's: `a.b` and `a-2Eb` have the same.
pub fn queue_name_apart(class: &str, tenant: &str) -> String {
    let digest = Digest::of(queue_filter(class, tenant).as_bytes()).hex();
    format!("{}__{digest}", queue_name(class, tenant))
}

pub fn queue_filter(class: &str, tenant: &str) -> String {
    format!("cofferdam.work.{class}.{}.>", token(tenant))
}

pub fn work_subject(class: &str, tenant: &str, job: &str, slot: u32) -> String {
    format!(
        "cofferdam.work.{class}.{}.{}.{slot}",
        token(tenant),
        token(job)
    )
}

/// Everything that is in the queue for a job.
pub fn work_of(class: &str, tenant: &str, job: &str) -> String {
    format!("cofferdam.work.{class}.{}.{}.*", token(tenant), token(job))
}

pub fn result_subject(job: &str, slot: u32, worker: &str) -> String {
    format!("cofferdam.result.{}.{slot}.{}", token(job), token(worker))
}

pub fn results_of(job: &str, slot: u32) -> String {
    format!("cofferdam.result.{}.{slot}.*", token(job))
}

pub fn dead_subject(job: &str, slot: u32) -> String {
    format!("cofferdam.dead.{}.{slot}", token(job))
}

pub fn event_subject(job: &str) -> String {
    format!("cofferdam.event.{}", token(job))
}

/// A plain message that says that a job is not wanted any more.
pub fn cancel_subject(job: &str) -> String {
    format!("cofferdam.cancel.{}", token(job))
}

pub fn claim_key(job: &str, slot: u32) -> String {
    format!("{}.{slot}", token(job))
}

/// Which of a job's slots a worker has taken: it gets one.
pub fn taken_key(job: &str, worker: &str) -> String {
    format!("{}.by.{}", token(job), token(worker))
}

/// The class and tenant of a queue's filter.
pub fn class_of_filter(filter: &str) -> Option<(String, String)> {
    let mut parts: Vec<&str> = filter.strip_prefix("cofferdam.work.")?.split('.').collect();
    (parts.pop() == Some(">")).then_some(())?;
    let tenant = untoken(parts.pop()?)?;
    (parts.len() == 4).then(|| (parts.join("."), tenant))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_token_has_no_dots_or_wildcards_and_is_read_back(text in "\\PC{0,40}") {
            let made = token(&text);
            prop_assert!(made.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'=')), "{}", made);
            prop_assert_eq!(untoken(&made), Some(text));
        }
    }

    proptest! {
        #[test]
        fn a_queue_has_a_name_of_its_own(one in "[a._=2E-]{1,6}", other in "[a._=2E-]{1,6}") {
            let name = |tenant: &str| queue_name_apart("native.python.cpu.m512", tenant);
            prop_assert_eq!(name(&one) == name(&other), one == other);
        }
    }

    #[test]
    fn the_filter_of_a_queue_tells_its_class_and_tenant() {
        let filter = queue_filter("native.python.cpu.m512", "team.a");
        assert_eq!(filter, "cofferdam.work.native.python.cpu.m512.team=2Ea.>");
        let read = class_of_filter(&filter);
        assert_eq!(
            read,
            Some(("native.python.cpu.m512".into(), "team.a".into()))
        );
        assert_eq!(class_of_filter("cofferdam.work.x.>"), None);
        assert_eq!(class_of_filter("other"), None);
    }
}
