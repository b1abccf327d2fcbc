//! A message: what is told to whom, under which key. Checks what goes in, so that whatever is stored can be sent.

use std::fmt;

use crate::error::StoreError;

/// The number of a message in its outbox. Later ones have higher numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MessageId(pub(super) i64);

impl fmt::Display for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Something to be told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// Messages with the same run and the same peer leave in the order in which they came.
    pub run: String,
    pub kind: Kind,
    pub url: String,
    /// Names this message to the peer, however often it arrives. A second message with the same key to the same URL is the same message, and the first one stays.
    pub idempotency_key: String,
    pub body: Vec<u8>,
    /// The name of a token, never the token.
    pub authorization: Option<String>,
    pub peer: Peer,
    /// The trace that it belongs to; the same for every attempt.
    pub trace: Option<TraceHeaders>,
}

/// What the headers of a W3C trace context say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceHeaders {
    pub parent: String,
    pub state: Option<String>,
}

impl TraceHeaders {
    /// Neither holds a line break.
    pub(super) fn stored(&self) -> String {
        match &self.state {
            Some(state) => format!("{}\n{state}", self.parent),
            None => self.parent.clone(),
        }
    }

    pub(super) fn from_stored(text: &str) -> Self {
        let (parent, state) = match text.split_once('\n') {
            Some((parent, state)) => (parent, Some(state.to_owned())),
            None => (text, None),
        };
        Self {
            parent: parent.to_owned(),
            state,
        }
    }

    fn is_sane(&self) -> bool {
        let is_line = |text: &str| text.bytes().all(|byte| (0x20..=0x7e).contains(&byte));
        let state = self.state.as_deref().unwrap_or_default();
        self.parent.len() <= 128 && state.len() <= 512 && is_line(&self.parent) && is_line(state)
    }
}

/// Who chose the address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Peer {
    /// The operator's control plane: trusted, and the only one that is shown a token.
    ControlPlane,
    /// Whoever submitted the run. The address is checked before every attempt.
    Client,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    Result,
    Status,
    Heartbeat,
    Artifacts,
    ContainerReady,
    ContainerExited,
}

impl Kind {
    pub const ALL: [Self; 6] = [
        Self::Result,
        Self::Status,
        Self::Heartbeat,
        Self::Artifacts,
        Self::ContainerReady,
        Self::ContainerExited,
    ];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Result => "result",
            Self::Status => "status",
            Self::Heartbeat => "heartbeat",
            Self::Artifacts => "artifacts",
            Self::ContainerReady => "container_ready",
            Self::ContainerExited => "container_exited",
        }
    }

    pub(super) fn from_stored(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == text)
    }
}

impl Peer {
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::ControlPlane => "control_plane",
            Self::Client => "client",
        }
    }

    /// Between which two texts the column `peer` of such peers lies.
    pub(super) const fn stored_range(whose: Option<Self>) -> [&'static str; 2] {
        match whose {
            None => ["", "~"],
            Some(Self::ControlPlane) => ["control_plane ", "control_plane~"],
            Some(Self::Client) => ["client ", "client~"],
        }
    }

    pub(super) fn from_stored(text: &str) -> Option<Self> {
        [Self::ControlPlane, Self::Client]
            .into_iter()
            .find(|peer| peer.as_str() == text)
    }
}

/// What became of a message that was brought.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Enqueued {
    New(MessageId),
    /// The same key to the same URL was there already, waiting or done.
    Known(MessageId),
}

impl Enqueued {
    pub const fn id(self) -> MessageId {
        match self {
            Self::New(id) | Self::Known(id) => id,
        }
    }
}

const MAX_NAME: usize = 255;
const MAX_URL: usize = 8 * 1024;

impl Message {
    pub(super) fn check(&self) -> Result<(), StoreError> {
        let visible = |text: &str| text.bytes().all(|byte| byte.is_ascii_graphic());
        let sized = |text: &str, most: usize| (1..=most).contains(&text.len());
        if !sized(&self.run, MAX_NAME) {
            return Err(invalid("run", &self.run, "1 to 255 bytes are possible"));
        }
        if !sized(&self.idempotency_key, MAX_NAME) || !visible(&self.idempotency_key) {
            let why = "it becomes a header: 1 to 255 visible ASCII characters are possible";
            return Err(invalid("idempotency_key", &self.idempotency_key, why));
        }
        if !sized(&self.url, MAX_URL) || !visible(&self.url) || self.origin().is_none() {
            let why = "an http:// or https:// URL is needed, with a host, without a user name, up to 8 KiB of ASCII";
            return Err(invalid("url", &self.url, why));
        }
        if let Some(name) = &self.authorization {
            self.check_token_name(name)?;
        }
        if !self.trace.as_ref().is_none_or(TraceHeaders::is_sane) {
            let why = "it becomes headers: visible ASCII is possible, up to 512 bytes";
            return Err(invalid("trace", "…", why));
        }
        Ok(())
    }

    fn check_token_name(&self, name: &str) -> Result<(), StoreError> {
        let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
        if !(1..=64).contains(&name.len()) || !name.chars().all(fits) {
            // What does not look like a name may be the token itself, which must not come into a log.
            let why = "the name of a token is needed, not a token: 1 to 64 letters, digits, `_`, `-`, `.`";
            return Err(invalid("authorization", "…", why));
        }
        if self.peer == Peer::Client {
            let why = "an address that a client chose is never shown a token; leave it out";
            return Err(invalid("authorization", name, why));
        }
        Ok(())
    }

    pub(super) fn origin(&self) -> Option<String> {
        origin(&self.url)
    }

    /// What stands in the column `peer`.
    pub(super) fn stored_peer(&self) -> String {
        stored_peer(self.peer, &self.url)
    }
}

/// Who chose the address is a part of it: a client's callbacks and the control plane's are never one queue, not even to one host.
pub(super) fn stored_peer(peer: Peer, url: &str) -> String {
    format!("{} {}", peer.as_str(), origin(url).unwrap_or_default())
}

/// Scheme, host and port as written: what a peer is told apart by.
pub(super) fn origin(url: &str) -> Option<String> {
    let (scheme, rest) = url.split_once("://")?;
    let scheme = scheme.to_ascii_lowercase();
    let end = rest.find(['/', '?', '#', '\\']).unwrap_or(rest.len());
    let authority = rest.get(..end)?.to_ascii_lowercase();
    let usable = matches!(scheme.as_str(), "http" | "https")
        && !authority.is_empty()
        && !authority.contains('@');
    usable.then(|| format!("{scheme}://{authority}"))
}

pub(super) fn invalid(field: &'static str, value: &str, why: &str) -> StoreError {
    StoreError::Invalid {
        field,
        value: value.chars().take(200).collect(),
        why: why.to_owned(),
    }
}
