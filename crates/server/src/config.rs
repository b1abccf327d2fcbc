//! What the daemon is told at its start. Every bound has a value; none is unlimited by default.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use cofferdam_contract::limits::Limits;
use cofferdam_contract::units::Bytes;
use cofferdam_store::DataDir;

pub use crate::ceilings::Ceilings;

/// The settings of one daemon.
#[derive(Debug, Clone)]
pub struct Config {
    pub listen: SocketAddr,
    pub data_dir: DataDir,
    pub http: HttpBounds,
    pub runs: RunBounds,
    /// How long running work may go on after the daemon was asked to end.
    pub grace: Duration,
}

/// What one client can take up.
#[derive(Debug, Clone)]
pub struct HttpBounds {
    pub body: Bytes,
    /// All bodies together, until their work is done.
    pub bodies: Bytes,
    /// All answers that wait to be read, together.
    pub answers: Bytes,
    /// Request line and headers together.
    pub head: Bytes,
    pub connections: usize,
    /// From the first byte, or the end of the last request, to the end of the headers.
    pub head_timeout: Duration,
    pub body_timeout: Duration,
    /// For an answer that waits for no run.
    pub request_timeout: Duration,
}

/// How much runs at once, how much waits, and what a run may ask for.
#[derive(Debug, Clone)]
pub struct RunBounds {
    /// Runs at once; as many as there are CPUs when absent.
    pub at_once: Option<usize>,
    /// What the memory limits of all running work may add up to.
    pub memory: MemoryBudget,
    pub queue: usize,
    /// What a request gets that asks for nothing else.
    pub defaults: Limits,
    pub longest: Duration,
    /// From arrival to the end, queue included.
    pub longest_deadline: Duration,
    pub largest_output: Bytes,
    pub ceilings: Ceilings,
    /// How long a result stays in memory as the program gave it; afterwards history answers.
    pub remembered_for: Duration,
    pub remembered: usize,
    pub remembered_bytes: Bytes,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemoryBudget {
    /// This many of a hundred parts of what the kernel says is available at the start.
    OfAvailable {
        percent: u8,
    },
    AtMost(Bytes),
    /// Limits may add up to more than there is.
    Overcommit,
}

impl Config {
    pub fn new(data_dir: DataDir) -> Self {
        Self {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 8080)),
            data_dir,
            http: HttpBounds::default(),
            runs: RunBounds::default(),
            grace: Duration::from_secs(10),
        }
    }
}

impl Default for HttpBounds {
    fn default() -> Self {
        Self {
            body: Bytes::new(16 << 20),
            bodies: Bytes::new(256 << 20),
            answers: Bytes::new(256 << 20),
            head: Bytes::new(32 << 10),
            connections: 1024,
            head_timeout: Duration::from_secs(10),
            body_timeout: Duration::from_secs(30),
            request_timeout: Duration::from_secs(30),
        }
    }
}

impl Default for RunBounds {
    fn default() -> Self {
        Self {
            at_once: None,
            memory: MemoryBudget::OfAvailable { percent: 80 },
            queue: 100,
            defaults: Limits::DEFAULT,
            longest: Duration::from_secs(3600),
            longest_deadline: Duration::from_secs(2 * 3600),
            largest_output: Bytes::new(16 << 20),
            ceilings: Ceilings::default(),
            remembered_for: Duration::from_secs(600),
            remembered: 1000,
            remembered_bytes: Bytes::new(64 << 20),
        }
    }
}
