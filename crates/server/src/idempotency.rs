//! The same key with the same body is the same run, for a day. Keys belong to the token that sent them.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::http::HeaderMap;
use cofferdam_store::RunId;
use sha2::{Digest as _, Sha256};

use crate::fault::{Fault, Refusal};

const REMEMBERED_FOR: Duration = Duration::from_secs(24 * 3600);
const REMEMBERED: usize = 100_000;
const LONGEST: usize = 255;

/// Keys that were used.
#[derive(Debug, Default)]
pub(crate) struct Keys {
    used: Mutex<Used>,
}

#[derive(Debug, Default)]
struct Used {
    runs: HashMap<Key, Entry>,
    order: VecDeque<(Instant, Key)>,
}

/// One key of one token.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    tenant: String,
    key: String,
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    body: [u8; 32],
    run: RunId,
}

impl Key {
    /// `None` where the request has none.
    pub(crate) fn of(headers: &HeaderMap, tenant: &str) -> Result<Option<Self>, Fault> {
        let Some(value) = headers.get("idempotency-key") else {
            return Ok(None);
        };
        let text = value.to_str().unwrap_or_default();
        if text.is_empty() || text.len() > LONGEST {
            let shown = String::from_utf8_lossy(value.as_bytes());
            let fix = "use 1 to 255 printable ASCII characters";
            return Err(Fault::invalid("Idempotency-Key", shown, fix));
        }
        Ok(Some(Self {
            tenant: tenant.to_owned(),
            key: text.to_owned(),
        }))
    }
}

impl Keys {
    /// The run that this key stands for, or the one that `submit` makes. Two at once make one.
    pub(crate) fn once(
        &self,
        key: Key,
        body: &[u8],
        submit: impl FnOnce() -> Result<RunId, Fault>,
    ) -> Result<RunId, Fault> {
        let digest: [u8; 32] = Sha256::digest(body).into();
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        used.forget(now);
        if let Some(known) = used.runs.get(&key) {
            if known.body != digest {
                return Err(Refusal::IdempotencyConflict.because(format!("key `{}`", key.key)));
            }
            return Ok(known.run);
        }
        // A refusal leaves the key free: the same request may be sent again.
        let run = submit()?;
        let entry = Entry { body: digest, run };
        used.runs.insert(key.clone(), entry);
        used.order.push_back((now, key));
        Ok(run)
    }
}

impl Used {
    fn forget(&mut self, now: Instant) {
        while let Some((at, _)) = self.order.front() {
            let is_old = now.saturating_duration_since(*at) > REMEMBERED_FOR;
            if !is_old && self.order.len() < REMEMBERED {
                break;
            }
            if let Some((_, key)) = self.order.pop_front() {
                self.runs.remove(&key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(tenant: &str) -> Key {
        Key {
            tenant: tenant.to_owned(),
            key: "k".to_owned(),
        }
    }

    #[test]
    fn a_key_stands_for_one_run_with_one_body() {
        let keys = Keys::default();
        let first = keys.once(key("a"), b"1", || Ok(RunId::new())).unwrap();
        let again = keys.once(key("a"), b"1", || Err(Fault::internal("no")));
        assert_eq!(again.unwrap(), first);
        let other = keys.once(key("a"), b"2", || Ok(RunId::new())).unwrap_err();
        assert_eq!(other.code, "idempotency.conflict");
        let tenant = keys.once(key("b"), b"2", || Ok(RunId::new())).unwrap();
        assert_ne!(tenant, first);
    }

    #[test]
    fn what_was_refused_may_be_tried_again() {
        let keys = Keys::default();
        assert!(
            keys.once(key("a"), b"1", || Err(Fault::internal("full")))
                .is_err()
        );
        assert!(keys.once(key("a"), b"1", || Ok(RunId::new())).is_ok());
    }
}
