//! The names of the daemon's settings: in a file below `serve`, in the environment, as flags.

/// One setting of the daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ServeKey {
    Listen,
    Concurrency,
    Queue,
    PatienceExecute,
    PatienceRuns,
    Pool,
    Copies,
    MemoryBudget,
    MaxTimeout,
    MaxOutput,
    MaxDisk,
    MaxProcesses,
    MaxOpenFiles,
    MaxBody,
    MaxBodies,
    MaxAnswers,
    MaxHead,
    MaxConnections,
    HeadTimeout,
    BodyTimeout,
    RequestTimeout,
    RememberFor,
    RememberRuns,
    RememberSize,
    Grace,
    Results,
    Languages,
    ControlPlane,
    ControlPlaneTokenFile,
    SessionId,
    CallbacksAllow,
    CallbacksAllowLoopback,
    CallbacksAllowPrivate,
    Net,
    NetPrivate,
    NetProxy,
    Images,
    ImagePlace,
    OtlpEndpoint,
    OtlpServiceName,
    OtlpSampling,
    Log,
}

/// Whether a setting takes a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Many {
    Yes,
    No,
}

/// The sections within `serve`.
pub(crate) const SECTIONS: [&str; 3] = ["callbacks", "otlp", "patience"];

impl ServeKey {
    pub(crate) const ALL: [Self; 42] = [
        Self::Listen,
        Self::Concurrency,
        Self::Queue,
        Self::PatienceExecute,
        Self::PatienceRuns,
        Self::Pool,
        Self::Copies,
        Self::MemoryBudget,
        Self::MaxTimeout,
        Self::MaxOutput,
        Self::MaxDisk,
        Self::MaxProcesses,
        Self::MaxOpenFiles,
        Self::MaxBody,
        Self::MaxBodies,
        Self::MaxAnswers,
        Self::MaxHead,
        Self::MaxConnections,
        Self::HeadTimeout,
        Self::BodyTimeout,
        Self::RequestTimeout,
        Self::RememberFor,
        Self::RememberRuns,
        Self::RememberSize,
        Self::Grace,
        Self::Results,
        Self::Languages,
        Self::ControlPlane,
        Self::ControlPlaneTokenFile,
        Self::SessionId,
        Self::CallbacksAllow,
        Self::CallbacksAllowLoopback,
        Self::CallbacksAllowPrivate,
        Self::Net,
        Self::NetPrivate,
        Self::NetProxy,
        Self::Images,
        Self::ImagePlace,
        Self::OtlpEndpoint,
        Self::OtlpServiceName,
        Self::OtlpSampling,
        Self::Log,
    ];

    /// Below `serve`, with its section.
    pub(crate) const fn yaml(self) -> &'static str {
        match self {
            Self::Listen => "listen",
            Self::Concurrency => "concurrency",
            Self::Queue => "queue",
            Self::MemoryBudget => "memory_budget",
            Self::MaxTimeout => "max_timeout",
            Self::MaxOutput => "max_output",
            Self::MaxDisk => "max_disk",
            Self::MaxProcesses => "max_processes",
            Self::MaxOpenFiles => "max_open_files",
            Self::MaxBody => "max_body",
            Self::MaxBodies => "max_bodies",
            Self::MaxAnswers => "max_answers",
            Self::Pool => "pool",
            Self::Copies => "copies",
            Self::PatienceExecute => "patience.execute",
            Self::PatienceRuns => "patience.runs",
            Self::MaxHead => "max_head",
            Self::MaxConnections => "max_connections",
            Self::HeadTimeout => "head_timeout",
            Self::BodyTimeout => "body_timeout",
            Self::RequestTimeout => "request_timeout",
            Self::RememberFor => "remember_for",
            Self::RememberRuns => "remember_runs",
            Self::RememberSize => "remember_size",
            Self::Grace => "grace",
            Self::Results => "results",
            Self::Languages => "languages",
            Self::ControlPlane => "control_plane",
            Self::ControlPlaneTokenFile => "control_plane_token_file",
            Self::SessionId => "session_id",
            Self::CallbacksAllow => "callbacks.allow",
            Self::CallbacksAllowLoopback => "callbacks.allow_loopback",
            Self::CallbacksAllowPrivate => "callbacks.allow_private",
            Self::Net => "net",
            Self::NetPrivate => "net_private",
            Self::NetProxy => "net_proxy",
            Self::Images => "images",
            Self::ImagePlace => "image_backend",
            Self::OtlpEndpoint => "otlp.endpoint",
            Self::OtlpServiceName => "otlp.service_name",
            Self::OtlpSampling => "otlp.sampling",
            Self::Log => "log",
        }
    }

    pub(crate) const fn env(self) -> Option<&'static str> {
        match self {
            Self::Listen => Some("COFFERDAM_LISTEN"),
            Self::ControlPlane => Some("COFFERDAM_CONTROL_PLANE"),
            Self::ControlPlaneTokenFile => Some("COFFERDAM_CONTROL_PLANE_TOKEN_FILE"),
            Self::SessionId => Some("COFFERDAM_SESSION_ID"),
            Self::OtlpEndpoint => Some("OTEL_EXPORTER_OTLP_ENDPOINT"),
            Self::OtlpServiceName => Some("OTEL_SERVICE_NAME"),
            Self::OtlpSampling => Some("OTEL_TRACES_SAMPLER_ARG"),
            Self::Log => Some(cofferdam_server::log::VARIABLE),
            _ => None,
        }
    }

    pub(crate) const fn flag(self) -> Option<&'static str> {
        match self {
            Self::Listen => Some("--listen"),
            Self::Concurrency => Some("--concurrency"),
            Self::Queue => Some("--queue"),
            Self::Pool => Some("--pool"),
            Self::Copies => Some("--copies"),
            Self::MemoryBudget => Some("--memory-budget"),
            Self::MaxTimeout => Some("--max-timeout"),
            Self::MaxDisk => Some("--max-disk"),
            Self::MaxProcesses => Some("--max-processes"),
            Self::MaxOpenFiles => Some("--max-open-files"),
            Self::MaxBody => Some("--max-body"),
            Self::Grace => Some("--grace"),
            Self::Languages => Some("--languages"),
            Self::ControlPlane => Some("--control-plane"),
            Self::ControlPlaneTokenFile => Some("--control-plane-token-file"),
            Self::SessionId => Some("--session-id"),
            Self::CallbacksAllow => Some("--callback-allow"),
            Self::CallbacksAllowLoopback => Some("--callback-allow-loopback"),
            Self::CallbacksAllowPrivate => Some("--callback-allow-private"),
            Self::Net => Some("--net"),
            Self::NetPrivate => Some("--net-private"),
            Self::NetProxy => Some("--net-proxy"),
            Self::Images => Some("--image"),
            Self::ImagePlace => Some("--image-backend"),
            Self::OtlpEndpoint => Some("--otlp-endpoint"),
            Self::OtlpServiceName => Some("--otlp-service-name"),
            Self::OtlpSampling => Some("--otlp-sampling"),
            Self::Log => Some("--debug"),
            _ => None,
        }
    }

    pub(crate) const fn many(self) -> Many {
        match self {
            Self::Languages | Self::CallbacksAllow | Self::Images => Many::Yes,
            _ => Many::No,
        }
    }

    pub(crate) fn named(yaml: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|key| key.yaml() == yaml)
    }

    /// What stands directly in a section of `serve`, or in `serve` itself for an empty one.
    pub(crate) fn names_in(section: &str) -> Vec<&'static str> {
        let own = Self::ALL.into_iter().filter_map(|key| {
            let name = match section {
                "" => Some(key.yaml()),
                _ => key.yaml().strip_prefix(section)?.strip_prefix('.'),
            };
            name.filter(|name| !name.contains('.'))
        });
        let sections = SECTIONS.into_iter().filter(|_| section.is_empty());
        own.chain(sections).collect()
    }
}
