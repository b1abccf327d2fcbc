//! Buckets with values of a type: read, made once, changed only by whoever has seen the latest.

use async_nats::jetstream::kv::{self, CreateErrorKind, Operation, UpdateErrorKind};
use futures_util::StreamExt as _;
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
    let entry = bucket.entry(key).await;
    let entry = entry.map_err(FleetError::talk("cannot read from the fleet"))?;
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
    match bucket.create(key, written(value)?).await {
        Ok(revision) => Ok(Some(revision)),
        Err(error) if error.kind() == CreateErrorKind::AlreadyExists => Ok(None),
        Err(error) => Err(FleetError::talk("cannot write to the fleet")(error)),
    }
}

/// The new revision; `None` where somebody else was first.
pub(crate) async fn swap<T: Serialize>(
    bucket: &kv::Store,
    key: &str,
    value: &T,
    revision: u64,
) -> Result<Option<u64>, FleetError> {
    match bucket.update(key, written(value)?, revision).await {
        Ok(revision) => Ok(Some(revision)),
        Err(error) if error.kind() == UpdateErrorKind::WrongLastRevision => Ok(None),
        Err(error) => Err(FleetError::talk("cannot write to the fleet")(error)),
    }
}

pub(crate) async fn put<T: Serialize>(
    bucket: &kv::Store,
    key: &str,
    value: &T,
) -> Result<(), FleetError> {
    let put = bucket.put(key, written(value)?).await;
    put.map(|_| ())
        .map_err(FleetError::talk("cannot write to the fleet"))
}

pub(crate) async fn remove(bucket: &kv::Store, key: &str) -> Result<(), FleetError> {
    let removed = bucket.purge(key).await;
    removed.map_err(FleetError::talk("cannot remove from the fleet"))
}

pub(crate) async fn keys(bucket: &kv::Store) -> Result<Vec<String>, FleetError> {
    let trouble = "cannot list what the fleet has";
    let mut keys = bucket.keys().await.map_err(FleetError::talk(trouble))?;
    let mut found = Vec::new();
    while let Some(key) = keys.next().await {
        found.push(key.map_err(FleetError::talk(trouble))?);
    }
    found.sort();
    Ok(found)
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
