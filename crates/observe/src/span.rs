//! One thing that was done: its name, its time, what is known of it.

use std::borrow::Cow;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::context::{SpanId, TraceContext};

/// A span that has ended.
#[derive(Debug, Clone, PartialEq)]
pub struct Span {
    pub context: TraceContext,
    pub parent: Option<SpanId>,
    pub name: Cow<'static, str>,
    pub kind: Kind,
    /// Since 1970, in nanoseconds.
    pub began: u64,
    pub ended: u64,
    pub attributes: Vec<(&'static str, Attribute)>,
    pub status: Status,
}

/// Which side of a conversation it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Internal,
    Server,
    Client,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Attribute {
    Text(String),
    Whole(i64),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Status {
    /// Nothing went wrong that is our business.
    Unset,
    Error {
        message: String,
    },
}

/// When it began: by the clock on the wall, and by one that never jumps, so that no span ends before it began.
#[derive(Debug, Clone, Copy)]
pub struct SpanClock {
    wall: u64,
    steady: Instant,
}

impl SpanClock {
    pub fn start() -> Self {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH);
        Self {
            wall: nanoseconds(wall.unwrap_or_default()),
            steady: Instant::now(),
        }
    }

    pub fn began(&self) -> u64 {
        self.wall
    }

    pub fn elapsed(&self) -> Duration {
        self.steady.elapsed()
    }

    /// On the same clock, so that the times of one trace can be compared.
    pub fn at(&self, moment: Instant) -> u64 {
        let since = moment.saturating_duration_since(self.steady);
        self.wall.saturating_add(nanoseconds(since))
    }
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

impl From<&str> for Attribute {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Attribute {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<i32> for Attribute {
    fn from(number: i32) -> Self {
        Self::Whole(number.into())
    }
}

impl From<u64> for Attribute {
    fn from(number: u64) -> Self {
        Self::Whole(i64::try_from(number).unwrap_or(i64::MAX))
    }
}
