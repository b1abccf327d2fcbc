//! Why something about the fleet could not be done.

use cofferdam_contract::codes::ErrorCode;

#[derive(Debug, thiserror::Error)]
pub enum FleetError {
    #[error(
        "no NATS server answers at {url}: {why}; start one with `nats-server -js`, or name another"
    )]
    Unreachable { url: String, why: String },
    #[error(
        "the NATS server at {url} does not let us in: {why}; look at the user and password in the address, at --nats-creds and at --nats-nkey"
    )]
    NotLetIn { url: String, why: String },
    #[error(
        "no secure connection to the NATS server at {url}: {why}; name its authority with --nats-ca, and your own certificate with --nats-cert and --nats-key if it asks for one"
    )]
    NoTls { url: String, why: String },
    #[error("the NATS server at {url} has no JetStream: {why}; start it with -js")]
    NoJetStream { url: String, why: String },
    #[error("{option}: {why}")]
    BadOption { option: &'static str, why: String },
    #[error(
        "the stream {name} is not one of ours: {why}; use another NATS account, or remove that stream"
    )]
    WrongStream { name: String, why: String },
    #[error("{what}: {why}")]
    Talk { what: &'static str, why: String },
    #[error("{what} holds something that cannot be read: {why}")]
    Damaged { what: String, why: String },
    #[error("no job is called {job}; `cofferdam fleet jobs` lists them")]
    NoSuchJob { job: String },
    #[error("no worker is called {worker}; `cofferdam fleet workers` lists them")]
    NoSuchWorker { worker: String },
    #[error(
        "the job {job} was submitted before with another payload; seal this one under another id"
    )]
    OtherPayload { job: String },
    #[error(
        "the answer to {job} does not hold here: {why}; a coordinator that trusts other workers has let it pass"
    )]
    Unproven { job: String, why: String },
    #[error("the job {job} {why}")]
    Unfit { job: String, why: String },
    #[error("somebody else changes {what} all the time; try again")]
    Contended { what: String },
}

impl FleetError {
    pub const fn code(&self) -> ErrorCode {
        match self {
            Self::Unreachable { .. } | Self::NoJetStream { .. } | Self::Talk { .. } => {
                ErrorCode::ServerUnreachable
            }
            Self::BadOption { .. } | Self::OtherPayload { .. } => ErrorCode::InputInvalid,
            Self::NoSuchJob { .. } | Self::NoSuchWorker { .. } => ErrorCode::HistoryNotFound,
            Self::Unproven { .. } => ErrorCode::EnvelopeInvalid,
            Self::NotLetIn { .. }
            | Self::NoTls { .. }
            | Self::WrongStream { .. }
            | Self::Damaged { .. }
            | Self::Unfit { .. }
            | Self::Contended { .. } => ErrorCode::ServerRefused,
        }
    }

    /// For trouble with the server, with what was being done.
    pub(crate) fn talk<E: std::fmt::Display>(what: &'static str) -> impl FnOnce(E) -> Self {
        move |error| Self::Talk {
            what,
            why: error.to_string(),
        }
    }
}
