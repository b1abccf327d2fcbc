//! What the daemon is told at its start. Every bound has a value; none is unlimited by default.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use cofferdam_callback::client::Timeouts;
use cofferdam_callback::schedule::Schedule;
use cofferdam_callback::{Bearer, ControlPlane, Policy};
use cofferdam_contract::limits::Limits;
use cofferdam_contract::mode::Mode;
use cofferdam_contract::network::Network;
use cofferdam_contract::units::Bytes;
use cofferdam_observe::{Endpoint, Ratio};
use cofferdam_store::DataDir;
use cofferdam_store::adopt::Keeping;
use cofferdam_store::collect::ArtifactLimits;
use cofferdam_store::database::Retention;
use cofferdam_store::outbox;
use cofferdam_store::sift::redact::Rules;

pub use crate::asked_image::{ImagePattern, ImagePlace, Images};
pub use crate::ceilings::Ceilings;

/// The settings of one daemon.
#[derive(Debug, Clone)]
pub struct Config {
    pub listen: SocketAddr,
    pub data_dir: DataDir,
    pub http: HttpBounds,
    pub runs: RunBounds,
    pub callbacks: Callbacks,
    /// How long the daemon may take to end, reports included. Running work may go on for most of it.
    pub grace: Duration,
    /// Directories with manifests of languages, besides those that are built in.
    pub languages: Vec<PathBuf>,
    /// What is kept of runs, and for how long.
    pub history: Remembrance,
    pub otlp: Otlp,
    /// The fleet whose front door this is, where it runs nothing itself.
    pub front_door: Option<FrontDoorConfig>,
}

/// How work is put on a fleet.
#[derive(Debug, Clone)]
pub struct FrontDoorConfig {
    pub address: cofferdam_fleet::Address,
    /// Whose answers count.
    pub trust: cofferdam_fleet::coordinator::Trust,
    /// How many workers are asked for each run, and compared.
    pub replicas: u32,
    /// Which part of the runs is given to one more worker, to check the first.
    pub audit_rate: f64,
}

impl Default for FrontDoorConfig {
    fn default() -> Self {
        Self {
            address: cofferdam_fleet::Address::default(),
            trust: cofferdam_fleet::coordinator::Trust::FirstUse,
            replicas: 1,
            audit_rate: 0.0,
        }
    }
}

/// Who carries runs out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Carrier {
    #[default]
    Here,
    Fleet,
}

/// What the history keeps.
#[derive(Debug, Clone)]
pub struct Remembrance {
    pub keeping: Keeping,
    pub retention: Retention,
    /// Of the files that a run leaves; `None` for nothing.
    pub artifacts: Option<ArtifactLimits>,
    /// What is taken out before anything is written.
    pub rules: Rules,
    /// Who gets the answers of pure runs again.
    pub results: ResultSharing,
}

/// Who is given an answer that is known already.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ResultSharing {
    /// Nobody, and none is kept.
    Off,
    /// Whoever has the token that asked first.
    #[default]
    PerToken,
    /// Everybody.
    Shared,
}

impl Default for Remembrance {
    fn default() -> Self {
        Self {
            keeping: Keeping::default(),
            retention: Retention::default(),
            artifacts: Some(ArtifactLimits::default()),
            rules: Rules::default(),
            results: ResultSharing::default(),
        }
    }
}

/// Where traces are told.
#[derive(Debug, Clone)]
pub struct Otlp {
    /// Nowhere when absent.
    pub endpoint: Option<Endpoint>,
    pub service_name: String,
    /// Of the traces that begin here; for others, whoever began them has decided.
    pub ratio: Ratio,
}

impl Default for Otlp {
    fn default() -> Self {
        Self {
            endpoint: None,
            service_name: "cofferdam".to_owned(),
            ratio: Ratio::ALL,
        }
    }
}

/// Who is told about runs, besides those who ask.
#[derive(Debug, Clone)]
pub struct Callbacks {
    /// The operator's, which is told everything.
    pub control_plane: Option<ControlPlane>,
    /// What the control plane is shown.
    pub token: Option<TokenSource>,
    /// Which addresses clients may name. Nothing, unless the operator says so.
    pub policy: Policy,
    /// The session that `container_ready` and `container_exited` are about; a new one for each start when absent.
    pub session: Option<String>,
    /// The name of the machine when absent.
    pub pod: Option<String>,
    /// Between two signs of life of a run.
    pub heartbeat: Duration,
    pub outbox: outbox::Limits,
    pub timeouts: Timeouts,
    pub schedule: Schedule,
}

/// Where the control plane's token comes from.
#[derive(Debug, Clone)]
pub enum TokenSource {
    Given(Bearer),
    /// Read for each attempt, so that a new token is used as soon as it is there.
    File(PathBuf),
}

impl Callbacks {
    /// The name that messages carry instead of the token.
    pub const TOKEN: &'static str = "control-plane";

    pub(crate) fn is_on(&self) -> bool {
        self.control_plane.is_some() || !self.policy.allow.is_empty()
    }
}

impl Default for Callbacks {
    fn default() -> Self {
        Self {
            control_plane: None,
            token: None,
            policy: Policy::default(),
            session: None,
            pod: None,
            heartbeat: Duration::from_secs(5),
            outbox: outbox::Limits::default(),
            timeouts: Timeouts::default(),
            schedule: Schedule::default(),
        }
    }
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

/// Whether runs may be copies of an interpreter that waits. Copies of one share its layout of addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Copies {
    Used,
    Never,
}

/// How much runs at once, how much waits, and what a run may ask for.
#[derive(Debug, Clone)]
pub struct RunBounds {
    /// What may be asked for at all.
    pub mode: Option<Mode>,
    pub carrier: Carrier,
    /// Runs at once; as many as there are CPUs when absent.
    pub at_once: Option<usize>,
    /// What the memory limits of all running work may add up to.
    pub memory: MemoryBudget,
    pub queue: usize,
    pub patience: Patience,
    /// Sandboxes that stand ready at most; twice as many as runs at once when absent.
    pub pool: Option<usize>,
    pub copies: Copies,
    /// What a request gets that asks for nothing else.
    pub defaults: Limits,
    pub longest: Duration,
    /// From arrival to the end, queue included.
    pub longest_deadline: Duration,
    pub largest_output: Bytes,
    pub ceilings: Ceilings,
    /// What a run that asks for the network gets at most.
    pub network: Network,
    pub images: Images,
    /// How long a result stays in memory as the program gave it; afterwards history answers.
    pub remembered_for: Duration,
    pub remembered: usize,
    pub remembered_bytes: Bytes,
}

/// How long a request waits for a place in a full queue before it is refused, by endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Patience {
    pub execute: Duration,
    /// `/v1/runs` and `/v1/payloads`; a batch has none.
    pub runs: Duration,
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
        let images = Images {
            dir: Some(data_dir.clone()),
            ..Images::default()
        };
        Self {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 8080)),
            data_dir,
            http: HttpBounds::default(),
            runs: RunBounds {
                images,
                ..RunBounds::default()
            },
            callbacks: Callbacks::default(),
            grace: Duration::from_secs(2),
            languages: Vec::new(),
            history: Remembrance::default(),
            otlp: Otlp::default(),
            front_door: None,
        }
    }

    /// As the front door of a fleet: what takes memory here is waiting, and nothing runs.
    pub(crate) fn at_the_door(mut self) -> Self {
        const AT_ONCE: usize = 256;
        if self.front_door.is_some() {
            let runs = &mut self.runs;
            runs.carrier = Carrier::Fleet;
            runs.at_once.get_or_insert(AT_ONCE);
            runs.memory = MemoryBudget::Overcommit;
            runs.pool = Some(0);
            self.history.results = ResultSharing::Off;
        }
        self
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
            mode: None,
            carrier: Carrier::Here,
            at_once: None,
            memory: MemoryBudget::OfAvailable { percent: 80 },
            queue: 100,
            patience: Patience::default(),
            pool: None,
            copies: Copies::Used,
            defaults: Limits::DEFAULT,
            longest: Duration::from_secs(3600),
            longest_deadline: Duration::from_secs(2 * 3600),
            largest_output: Bytes::new(16 << 20),
            ceilings: Ceilings::default(),
            network: Network::Denied,
            images: Images::default(),
            remembered_for: Duration::from_secs(600),
            remembered: 1000,
            remembered_bytes: Bytes::new(64 << 20),
        }
    }
}
