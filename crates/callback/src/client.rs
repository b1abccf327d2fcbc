//! One attempt: one request, one answer, both bounded in bytes and in time. Decides nothing about what follows.
//!
//! ureq, because it blocks (a courier is a few threads, not a runtime), lets us resolve names ourselves, bounds every phase, and builds with ring and a C compiler alone. Roots are those
//! of the system (`SSL_CERT_FILE` and `SSL_CERT_DIR` are heeded) and those that the operator names. Proxies of the environment are not used: they would resolve names for us.

use std::fmt;
use std::io::Read as _;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use cofferdam_store::outbox::{Delivery, Peer};
use jiff::Timestamp;
use jiff::fmt::rfc2822;
use ureq::http::{Response, header};
use ureq::tls::{Certificate, RootCerts, TlsConfig, TlsProvider};
use ureq::unversioned::transport::DefaultConnector;
use ureq::{Agent, Body};

use crate::policy::{Policy, Refused, usable};
use crate::resolve::{Checked, Lookup, system};
use crate::token::Bearer;

/// How long an attempt may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// Resolve, and then connect with TLS: each.
    pub connect: Duration,
    /// From the end of the request to the end of the answer's headers, and from there to its end: each.
    pub read: Duration,
    pub whole: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(5),
            read: Duration::from_secs(30),
            whole: Duration::from_secs(120),
        }
    }
}

/// What an attempt came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Attempt {
    /// A whole answer, or as much of it as we read.
    Answered {
        status: u16,
        retry_after: Option<Duration>,
        /// Its beginning, printable.
        answer: String,
    },
    /// Nothing, or not all of an answer, or not HTTP.
    Broken { why: String },
    /// There is no token to show. Nothing was sent.
    Unauthorised { why: String },
    /// The URL is not allowed. Nothing was sent.
    Refused { why: String },
    /// Its name leads where it is not allowed. Nothing was sent.
    RefusedAddress { why: String },
}

const MAX_HEADERS: usize = 32 * 1024;
const MAX_ANSWER: u64 = 64 * 1024;
/// Of an answer, kept with the message.
const KEPT: usize = 1024;
/// Servers close idle connections after 5 s and more; one that is being closed while it is used costs an attempt.
const IDLE: Duration = Duration::from_secs(4);

pub struct Client {
    policy: Arc<Policy>,
    timeouts: Timeouts,
    lookup: Lookup,
    extra_roots: Vec<Vec<u8>>,
    /// Made when first needed: the system's certificates are not read where nothing is sent.
    agents: OnceLock<Agents>,
}

/// Two, so that a connection which the operator's URL opened is never used for a client's.
struct Agents {
    control_plane: Agent,
    client: Agent,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("policy", &self.policy)
            .field("timeouts", &self.timeouts)
            .finish_non_exhaustive()
    }
}

impl Client {
    pub fn new(policy: Policy, timeouts: Timeouts) -> Self {
        Self {
            policy: Arc::new(policy),
            timeouts,
            lookup: system(),
            extra_roots: Vec::new(),
            agents: OnceLock::new(),
        }
    }

    /// Names are asked of this instead of the system.
    #[must_use]
    pub fn with_lookup(mut self, lookup: Lookup) -> Self {
        self.lookup = lookup;
        self
    }

    /// Certificates (DER) that are trusted besides the system's.
    #[must_use]
    pub fn with_roots(mut self, roots: Vec<Vec<u8>>) -> Self {
        self.extra_roots = roots;
        self
    }

    pub fn timeouts(&self) -> Timeouts {
        self.timeouts
    }

    pub fn post(&self, delivery: &Delivery, bearer: Option<&Bearer>, now: Timestamp) -> Attempt {
        let checked = match delivery.peer {
            Peer::ControlPlane => usable(&delivery.url),
            Peer::Client => self.policy.check(&delivery.url),
        };
        let url = match checked {
            Ok(url) => url,
            Err(refused) => {
                return Attempt::Refused {
                    why: refused.to_string(),
                };
            }
        };
        let agents = self.agents.get_or_init(|| self.agents());
        let agent = match delivery.peer {
            Peer::ControlPlane => &agents.control_plane,
            Peer::Client => &agents.client,
        };
        let mut request = agent
            .post(url.as_str())
            .header("Content-Type", "application/json")
            .header("Idempotency-Key", &delivery.idempotency_key);
        if let Some(bearer) = bearer {
            request = request.header("Authorization", bearer.header());
        }
        if let Some(trace) = &delivery.trace {
            request = request.header("traceparent", &trace.parent);
            if let Some(state) = &trace.state {
                request = request.header("tracestate", state);
            }
        }
        match request.send(delivery.body.as_slice()) {
            Ok(answer) => read(answer, now),
            Err(error) => failed(error),
        }
    }

    /// Ends every request that is under way. Afterwards nothing can be sent.
    pub fn abort(&self) {
        let agents = self.agents.get_or_init(|| self.agents());
        agents.control_plane.clone().shutdown();
        agents.client.clone().shutdown();
    }

    fn agents(&self) -> Agents {
        let tls = self.tls();
        Agents {
            control_plane: self.agent(&tls, None),
            client: self.agent(&tls, Some(Arc::clone(&self.policy))),
        }
    }

    fn agent(&self, tls: &TlsConfig, policy: Option<Arc<Policy>>) -> Agent {
        let times = self.timeouts;
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .proxy(None)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .user_agent(concat!("cofferdam/", env!("CARGO_PKG_VERSION")))
            .accept("application/json")
            .timeout_resolve(Some(times.connect))
            .timeout_connect(Some(times.connect))
            .timeout_recv_response(Some(times.read))
            .timeout_recv_body(Some(times.read))
            .timeout_global(Some(times.whole))
            .max_response_header_size(MAX_HEADERS)
            .input_buffer_size(2 * MAX_HEADERS)
            .output_buffer_size(2 * MAX_HEADERS)
            .max_idle_age(IDLE)
            .max_idle_connections(32)
            .max_idle_connections_per_host(8)
            .tls_config(tls.clone())
            .build();
        let resolver = Checked {
            policy,
            lookup: Arc::clone(&self.lookup),
            at_most: times.connect,
            running: Arc::new(AtomicUsize::new(0)),
        };
        Agent::with_parts(config, DefaultConnector::new(), resolver)
    }

    /// What of the system's certificates cannot be read is left out; a peer that needed it then fails by name.
    fn tls(&self) -> TlsConfig {
        let system = rustls_native_certs::load_native_certs().certs;
        let system = system
            .iter()
            .map(|found| Certificate::from_der(found).to_owned());
        let extra = self.extra_roots.iter();
        let extra = extra.map(|der| Certificate::from_der(der).to_owned());
        TlsConfig::builder()
            .provider(TlsProvider::Rustls)
            .root_certs(RootCerts::from(system.chain(extra)))
            .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .build()
    }
}

/// The whole answer counts: a peer that breaks off may have broken off before it kept the message.
fn read(answer: Response<Body>, now: Timestamp) -> Attempt {
    let status = answer.status().as_u16();
    let retry_after = answer
        .headers()
        .get(header::RETRY_AFTER)
        .and_then(|value| value.to_str().ok())
        .and_then(|text| wait_asked(text, now));
    let location = answer
        .headers()
        .get(header::LOCATION)
        .map(|value| excerpt(value.as_bytes()));
    let mut text = Vec::new();
    let body = answer
        .into_body()
        .into_reader()
        .take(MAX_ANSWER)
        .read_to_end(&mut text);
    if let Err(error) = body {
        let why = format!("answered {status}, and the answer broke off: {error}");
        return Attempt::Broken { why };
    }
    let answer = match location {
        Some(location) if (300..400).contains(&status) => {
            format!("redirects are not followed (to {location})")
        }
        _ => excerpt(&text),
    };
    Attempt::Answered {
        status,
        retry_after,
        answer,
    }
}

fn failed(error: ureq::Error) -> Attempt {
    if let ureq::Error::Other(other) = &error
        && let Some(refused) = other.downcast_ref::<Refused>()
    {
        let why = refused.to_string();
        return Attempt::RefusedAddress { why };
    }
    let why = match error {
        ureq::Error::Timeout(phase) => format!("too slow ({phase})"),
        ureq::Error::HostNotFound => "the host name is not known".to_owned(),
        other => other.to_string(),
    };
    Attempt::Broken {
        why: excerpt(why.as_bytes()),
    }
}

/// Printable, on one line, and short: it was chosen by somebody else.
fn excerpt(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes.get(..KEPT).unwrap_or(bytes));
    let printable = |c: char| if c.is_control() { ' ' } else { c };
    text.chars()
        .map(printable)
        .collect::<String>()
        .trim()
        .to_owned()
}

/// Seconds, or a date.
fn wait_asked(text: &str, now: Timestamp) -> Option<Duration> {
    let text = text.trim();
    if let Ok(seconds) = text.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let at = rfc2822::DateTimeParser::new().parse_timestamp(text).ok()?;
    Duration::try_from(at.duration_since(now)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_a_peer_asks_for_is_read_in_both_forms() {
        let now: Timestamp = "1994-11-06T08:49:00Z".parse().unwrap();
        let wait = |text| wait_asked(text, now);
        assert_eq!(wait("120"), Some(Duration::from_secs(120)));
        let dated = wait("Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(dated, Some(Duration::from_secs(37)));
        for useless in ["-1", "soon", "", "1e9", "Sun, 06 Nov 1994 08:48:37 GMT"] {
            assert_eq!(wait(useless), None, "{useless}");
        }
    }

    #[test]
    fn what_a_peer_says_cannot_draw_on_a_terminal() {
        assert_eq!(excerpt(b"\x1b[31mno\r\n\xff "), "[31mno  \u{fffd}");
        assert!(excerpt(&[b'a'; 5000]).len() <= KEPT);
    }
}
