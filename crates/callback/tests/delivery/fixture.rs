//! A data directory, a clock that is set by hand, and a carrier over both.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use cofferdam_callback::client::Timeouts;
use cofferdam_callback::courier::{Carrier, Clock};
use cofferdam_callback::schedule::Verdict;
use cofferdam_callback::{Bearer, Policy, Settings, Tokens};
use cofferdam_store::outbox::{Entry, Kind, Limits, Message, Outbox, Peer as Who, Standing};
use cofferdam_store::{DataDir, StoreError};
use jiff::Timestamp;

pub(crate) struct Bench {
    pub(crate) dir: tempfile::TempDir,
    pub(crate) outbox: Outbox,
    pub(crate) settings: Settings,
    milliseconds: Arc<AtomicI64>,
}

const START: i64 = 1_800_000_000_000;

/// For peers that answer: a busy machine must not look like a slow peer.
pub(crate) fn patient() -> Timeouts {
    Timeouts {
        connect: Duration::from_secs(10),
        read: Duration::from_secs(20),
        whole: Duration::from_secs(40),
    }
}

/// For peers that do not.
pub(crate) fn short() -> Timeouts {
    Timeouts {
        connect: Duration::from_millis(500),
        read: Duration::from_millis(250),
        whole: Duration::from_millis(900),
    }
}

impl Bench {
    pub(crate) fn new() -> Result<Self, StoreError> {
        let dir = tempfile::tempdir().map_err(|source| StoreError::Io {
            what: "make",
            path: "a temporary directory".into(),
            source,
        })?;
        let outbox = Outbox::open_with(&DataDir::at(dir.path()), Limits::default())?;
        let milliseconds = Arc::new(AtomicI64::new(START));
        let read = Arc::clone(&milliseconds);
        let clock: Clock = Arc::new(move || moment(read.load(Ordering::Acquire)));
        let settings = Settings {
            timeouts: patient(),
            clock,
            ..Settings::default()
        };
        Ok(Self {
            dir,
            outbox,
            settings,
            milliseconds,
        })
    }

    pub(crate) fn now(&self) -> Timestamp {
        (self.settings.clock)()
    }

    pub(crate) fn advance(&self, by: Duration) {
        let by = i64::try_from(by.as_millis()).unwrap_or(i64::MAX);
        self.milliseconds.fetch_add(by, Ordering::AcqRel);
    }

    /// To when something is due, and says how far that was.
    pub(crate) fn advance_to_next(&self) -> Duration {
        let next = self.outbox.next_due_at().ok().flatten();
        let wait = next.map_or(Duration::ZERO, |at| {
            Duration::try_from(at.duration_since(self.now())).unwrap_or_default()
        });
        self.advance(wait);
        wait
    }

    pub(crate) fn carrier(&self) -> Carrier {
        Carrier::new(self.outbox.clone(), tokens(), &self.settings)
    }

    pub(crate) fn bring(&self, url: &str, run: &str, kind: Kind, key: &str) {
        let message = message(url, run, kind, key);
        let brought = self.outbox.enqueue(message, self.now());
        assert!(brought.is_ok(), "{brought:?}");
    }

    pub(crate) fn list(&self, standing: Standing) -> Vec<Entry> {
        self.outbox.list(standing, 1000).unwrap_or_default()
    }
}

pub(crate) fn message(url: &str, run: &str, kind: Kind, key: &str) -> Message {
    Message {
        run: run.to_owned(),
        kind,
        url: format!("{url}/executions/{run}/{}", kind.as_str()),
        idempotency_key: key.to_owned(),
        body: format!("{{\"key\":\"{key}\"}}").into_bytes(),
        authorization: Some("plane".to_owned()),
        trace: None,
        peer: Who::ControlPlane,
    }
}

pub(crate) fn to_client(url: &str) -> Message {
    Message {
        peer: Who::Client,
        authorization: None,
        ..message(url, "r", Kind::Result, "r")
    }
}

pub(crate) fn tokens() -> Arc<dyn Tokens> {
    Arc::new(|_: &str| Bearer::new("t0ken"))
}

pub(crate) fn policy(allow: &[&str]) -> Policy {
    Policy {
        allow: allow.iter().filter_map(|text| text.parse().ok()).collect(),
        ..Policy::default()
    }
}

pub(crate) fn why(verdict: Option<Verdict>) -> String {
    match verdict {
        Some(Verdict::Retry(retry)) => format!("retry: {}", retry.why),
        Some(Verdict::GiveUp { why, .. }) => format!("given up: {why}"),
        Some(Verdict::Delivered { answer }) => format!("delivered: {answer}"),
        None => "nothing was due".to_owned(),
    }
}

fn moment(milliseconds: i64) -> Timestamp {
    Timestamp::from_millisecond(milliseconds).unwrap_or(Timestamp::UNIX_EPOCH)
}
