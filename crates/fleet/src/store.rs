//! Buckets with values of a type: read, made once, changed only by whoever has seen the latest.

use std::time::Duration;

use async_nats::jetstream::kv::{self, CreateErrorKind, Operation, UpdateErrorKind};
use futures_util::{Stream, StreamExt as _};
use jiff::Timestamp;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::FleetError;

/// A value, and what has to be shown to change it.
#[derive(Debug, Clone)]
pub(crate) struct Seen<T> {
    pub(crate) value: T,
    pub(crate) revision: u64,
    /// By the server's clock.
    pub(crate) written_at: Timestamp,
}

pub(crate) async fn get<T: DeserializeOwned>(
    bucket: &kv::Store,
    key: &str,
) -> Result<Option<Seen<T>>, FleetError> {
    let trouble = "cannot read from the fleet";
    let entry = asked(trouble, || bucket.entry(key)).await?;
    let entry = entry.map_err(FleetError::talk(trouble))?;
    let Some(entry) = entry.filter(|entry| entry.operation == Operation::Put) else {
        return Ok(None);
    };
    Ok(Some(Seen {
        value: read(&entry.value, || format!("{}/{key}", bucket.name))?,
        revision: entry.revision,
        written_at: Timestamp::from_nanosecond(entry.created.unix_timestamp_nanos())
            .unwrap_or(Timestamp::UNIX_EPOCH),
    }))
}

/// The new revision; `None` where there is one already.
pub(crate) async fn create<T: Serialize>(
    bucket: &kv::Store,
    key: &str,
    value: &T,
) -> Result<Option<u64>, FleetError> {
    match within(WRITING, bucket.create(key, written(value)?)).await? {
        Ok(revision) => Ok(Some(revision)),
        Err(error) if error.kind() == CreateErrorKind::AlreadyExists => Ok(None),
        Err(error) => Err(FleetError::talk(WRITING)(error)),
    }
}

/// The new revision; `None` where somebody else was first.
pub(crate) async fn swap<T: Serialize>(
    bucket: &kv::Store,
    key: &str,
    value: &T,
    revision: u64,
) -> Result<Option<u64>, FleetError> {
    match within(WRITING, bucket.update(key, written(value)?, revision)).await? {
        Ok(revision) => Ok(Some(revision)),
        Err(error) if error.kind() == UpdateErrorKind::WrongLastRevision => Ok(None),
        Err(error) => Err(FleetError::talk(WRITING)(error)),
    }
}

pub(crate) async fn put<T: Serialize>(
    bucket: &kv::Store,
    key: &str,
    value: &T,
) -> Result<(), FleetError> {
    let put = within(WRITING, bucket.put(key, written(value)?)).await?;
    put.map(|_| ()).map_err(FleetError::talk(WRITING))
}

pub(crate) async fn remove(bucket: &kv::Store, key: &str) -> Result<(), FleetError> {
    let trouble = "cannot remove from the fleet";
    let removed = within(trouble, bucket.purge(key)).await?;
    removed.map_err(FleetError::talk(trouble))
}

pub(crate) async fn keys(bucket: &kv::Store) -> Result<Vec<String>, FleetError> {
    let trouble = "cannot list what the fleet has";
    let mut found = listed(trouble, QUIET, || async {
        bucket.keys().await.map_err(FleetError::talk(trouble))
    })
    .await?;
    found.sort();
    Ok(found)
}

const WRITING: &str = "cannot write to the fleet";
/// How long one question to the server may take. The client bounds its requests, but not all that it waits for on the way: a connection that breaks at the wrong moment would keep us for ever.
pub(crate) const ANSWER: Duration = Duration::from_secs(15);

/// What the server answers, or that it does not.
pub(crate) async fn within<T>(
    trouble: &'static str,
    question: impl Future<Output = T>,
) -> Result<T, FleetError> {
    let answer = tokio::time::timeout(ANSWER, question).await;
    answer.map_err(|_| FleetError::talk(trouble)("the server does not answer"))
}

/// The same for what changes nothing, and is asked again.
pub(crate) async fn asked<T, F: Future<Output = T>>(
    trouble: &'static str,
    question: impl Fn() -> F,
) -> Result<T, FleetError> {
    for _ in 1..ATTEMPTS {
        if let Ok(answer) = within(trouble, question()).await {
            return Ok(answer);
        }
    }
    within(trouble, question()).await
}

/// Hears what is said under a subject.
pub(crate) async fn heard(
    client: &async_nats::Client,
    subject: String,
) -> Result<async_nats::Subscriber, FleetError> {
    let trouble = "cannot listen";
    let subscribed = asked(trouble, || client.subscribe(subject.clone())).await?;
    subscribed.map_err(FleetError::talk(trouble))
}

/// How long the next one of a list may be waited for.
pub(crate) const QUIET: Duration = Duration::from_secs(5);
const ATTEMPTS: u32 = 4;

/// Everything of a list. It ends with what was the last when it began; where that is removed meanwhile, or the server dies, it would never end: after a while of quiet it is begun again.
pub(crate) async fn listed<T, E, S, F>(
    trouble: &'static str,
    quiet: Duration,
    list: impl Fn() -> F,
) -> Result<Vec<T>, FleetError>
where
    E: std::fmt::Display,
    S: Stream<Item = Result<T, E>> + Unpin,
    F: Future<Output = Result<S, FleetError>>,
{
    'again: for _ in 0..ATTEMPTS {
        let mut items = asked(trouble, &list).await??;
        let mut found = Vec::new();
        loop {
            match tokio::time::timeout(quiet, items.next()).await {
                Ok(Some(item)) => found.push(item.map_err(FleetError::talk(trouble))?),
                Ok(None) => return Ok(found),
                Err(_) => continue 'again,
            }
        }
    }
    Err(FleetError::talk(trouble)("it does not come to an end"))
}

pub(crate) fn written<T: Serialize>(value: &T) -> Result<bytes::Bytes, FleetError> {
    let bytes = serde_json::to_vec(value);
    bytes
        .map(Into::into)
        .map_err(FleetError::talk("cannot be written as JSON"))
}

pub(crate) fn read<T: DeserializeOwned>(
    bytes: &[u8],
    what: impl FnOnce() -> String,
) -> Result<T, FleetError> {
    serde_json::from_slice(bytes).map_err(|error| FleetError::Damaged {
        what: what(),
        why: error.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use futures_util::stream;

    use super::*;

    const SHORT: Duration = Duration::from_millis(20);

    type Items = stream::BoxStream<'static, Result<u8, String>>;

    fn run<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap()
            .block_on(future)
    }

    #[test]
    fn a_list_that_does_not_end_is_begun_again_and_at_last_given_up() {
        let times = Cell::new(0);
        let begun = |ends: u32| {
            let items = stream::iter([Ok(1), Ok(2)]);
            times.set(times.get() + 1);
            let list: Items = match times.get() >= ends {
                true => items.boxed(),
                // What was to be the last has been removed.
                false => items.chain(stream::pending()).boxed(),
            };
            async { Ok(list) }
        };
        assert_eq!(run(listed("x", SHORT, || begun(1))).unwrap(), [1, 2]);
        times.set(0);
        assert_eq!(run(listed("x", SHORT, || begun(3))).unwrap(), [1, 2]);
        assert_eq!(times.get(), 3);
        times.set(0);
        let given_up = run(listed("cannot list", SHORT, || begun(u32::MAX))).unwrap_err();
        assert!(matches!(given_up, FleetError::Talk { .. }), "{given_up}");
        assert_eq!(times.get(), ATTEMPTS);
    }
}
