//! Buckets with values of a type: read, made once, changed only by whoever has seen the latest.

use std::collections::HashSet;
use std::time::{Duration, Instant};

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
    let mut found = listed(trouble, QUIET, String::clone, || async {
        bucket.keys().await.map_err(FleetError::talk(trouble))
    })
    .await?;
    found.sort();
    Ok(found)
}

const WRITING: &str = "cannot write to the fleet";
/// How long one question to the server may take. The client bounds its requests, but not all that it waits for on the way: a connection that breaks at the wrong moment would keep us for ever.
pub(crate) const ANSWER: Duration = Duration::from_secs(15);

/// What the server answers, or that it does not. The question is on the heap: those of the client are large, and everything that waits for one would be as large on a thread's stack.
pub(crate) fn within<T>(
    trouble: &'static str,
    question: impl Future<Output = T>,
) -> impl Future<Output = Result<T, FleetError>> {
    let question = Box::pin(question);
    async move {
        let answer = tokio::time::timeout(ANSWER, question).await;
        answer.map_err(|_| FleetError::talk(trouble)("the server does not answer"))
    }
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

/// How long one attempt at a list may take in all: where something is written all the time, there is never quiet.
const WHOLE: Duration = Duration::from_secs(60);

/// Everything of a list, each with a name of its own. It ends with what was the last when it began; where that is removed or written anew meanwhile, or the server dies, it would never end: after a while of quiet it is
/// begun again, and what comes a second time is news, before which everything has come that was there.
pub(crate) async fn listed<T, E, S, F>(
    trouble: &'static str,
    quiet: Duration,
    name: impl Fn(&T) -> String,
    list: impl Fn() -> F,
) -> Result<Vec<T>, FleetError>
where
    E: std::fmt::Display,
    S: Stream<Item = Result<T, E>> + Unpin,
    F: Future<Output = Result<S, FleetError>>,
{
    'again: for _ in 0..ATTEMPTS {
        let mut items = asked(trouble, &list).await??;
        let (mut found, mut names) = (Vec::new(), HashSet::new());
        let until = Instant::now() + WHOLE;
        while Instant::now() < until {
            match tokio::time::timeout(quiet, items.next()).await {
                Ok(Some(item)) => {
                    let item = item.map_err(FleetError::talk(trouble))?;
                    if !names.insert(name(&item)) {
                        return Ok(found);
                    }
                    found.push(item);
                }
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
        let listed = |ends: u32| run(listed("x", SHORT, u8::to_string, || begun(ends)));
        assert_eq!(listed(1).unwrap(), [1, 2]);
        times.set(0);
        assert_eq!(listed(3).unwrap(), [1, 2]);
        assert_eq!(times.get(), 3);
        times.set(0);
        let given_up = listed(u32::MAX).unwrap_err();
        assert!(matches!(given_up, FleetError::Talk { .. }), "{given_up}");
        assert_eq!(times.get(), ATTEMPTS);
    }

    /// Workers give a sign of life all the time; a server that was started anew may not say which was the last that was there.
    #[test]
    fn a_list_to_which_news_comes_without_end_ends_with_the_first_news() {
        let begun = || {
            let there = stream::iter([Ok(1), Ok(2), Ok(3)]);
            let news = stream::iter([2, 1, 3].map(Ok).into_iter().cycle());
            let list: Items = there.chain(news).boxed();
            async { Ok(list) }
        };
        let found = run(listed("x", SHORT, u8::to_string, begun)).unwrap();
        assert_eq!(found, [1, 2, 3]);
    }
}
