//! What a run did with the network it was given, as its record tells it. Holds what was counted; decides nothing.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Everything that went through the only way out, or was turned away there.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct NetworkRecord {
    /// By the program.
    pub sent_bytes: u64,
    /// By the program.
    pub received_bytes: u64,
    /// In the order in which they began; only the first few hundred.
    pub events: Vec<NetworkEvent>,
    /// How many more there were.
    pub left_out: u64,
}

/// One name that was asked for, or one connection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NetworkEvent {
    /// Since the ways out were opened, shortly before the program began.
    pub at_ms: u64,
    pub outcome: NetworkOutcome,
    pub way: NetworkWay,
    /// A name, or an address that was spelled out.
    pub host: String,
    /// Null for a name that was only asked for.
    pub port: Option<u16>,
    /// What was connected to.
    pub address: Option<String>,
    pub sent_bytes: u64,
    pub received_bytes: u64,
    /// Why it was denied or failed.
    pub why: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum NetworkOutcome {
    Allowed,
    Denied,
    /// Allowed, and nobody was there.
    Failed,
}

/// How the program tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum NetworkWay {
    /// It asked for a name.
    Name,
    /// By the HTTP proxy, as its variables say.
    HttpProxy,
    /// By the SOCKS proxy.
    Socks,
    /// It just connected.
    Direct,
}

impl NetworkOutcome {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::Denied => "denied",
            Self::Failed => "failed",
        }
    }
}
