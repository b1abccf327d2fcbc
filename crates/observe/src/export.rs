//! The way of spans to a collector: a bounded buffer and a thread that empties it. A collector that is down, slow or full costs spans and nothing else; the oldest go first and are counted.

use std::collections::VecDeque;
use std::fmt;
use std::io::{self, Read as _};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ureq::Agent;
use ureq::http::header;
use ureq::tls::{Certificate, RootCerts, TlsConfig, TlsProvider};

use crate::endpoint::Endpoint;
use crate::otlp::{self, Speaker};
use crate::span::Span;

/// Spans that wait at most; a megabyte or two.
const BUFFER: usize = 4096;
/// Spans in one request.
const BATCH: usize = 512;
/// How long the first span of a batch waits for others.
const GATHER: Duration = Duration::from_millis(500);
const REQUEST: Duration = Duration::from_secs(10);
const ATTEMPTS: u32 = 6;
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
const MAX_ANSWER: u64 = 64 * 1024;

/// What has become of spans.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Figures {
    pub waiting: usize,
    pub exported: u64,
    /// There was no room, or the collector would not have them.
    pub dropped: u64,
    /// Requests that were not taken.
    pub failures: u64,
}

pub(crate) struct Exporter {
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    /// Told when there is something to do, and when the thread has ended.
    changed: Condvar,
}

#[derive(Default)]
struct State {
    spans: VecDeque<Span>,
    figures: Figures,
    /// Whether the last request failed; told once, not for each.
    is_failing: bool,
    stop_by: Option<Instant>,
    ended: bool,
}

/// What a collector made of a batch.
enum Answer {
    Taken,
    /// With another try it may be.
    Later {
        /// 0 where there was no answer.
        status: u16,
        pause: Option<Duration>,
    },
    Refused {
        status: u16,
    },
}

impl fmt::Debug for Exporter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exporter").finish_non_exhaustive()
    }
}

impl Exporter {
    pub(crate) fn start(endpoint: Endpoint, speaker: Speaker) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            state: Mutex::default(),
            changed: Condvar::new(),
        });
        let of_thread = Arc::clone(&shared);
        std::thread::Builder::new()
            .name("otlp".to_owned())
            .spawn(move || {
                of_thread.empty(&endpoint, &speaker);
                of_thread.state().ended = true;
                of_thread.changed.notify_all();
            })?;
        Ok(Self { shared })
    }

    pub(crate) fn take(&self, span: Span) {
        let mut state = self.shared.state();
        if state.spans.len() >= BUFFER {
            state.spans.pop_front();
            state.figures.dropped += 1;
        }
        state.spans.push_back(span);
        let is_time = matches!(state.spans.len(), 1 | BATCH);
        drop(state);
        if is_time {
            self.shared.changed.notify_all();
        }
    }

    pub(crate) fn figures(&self) -> Figures {
        let state = self.shared.state();
        Figures {
            waiting: state.spans.len(),
            ..state.figures
        }
    }

    /// The thread may be in the midst of a request; it is not waited for longer than said.
    pub(crate) fn stop(&self, within: Duration) {
        let mut state = self.shared.state();
        state.stop_by = Some(Instant::now() + within);
        self.shared.changed.notify_all();
        let ended = self
            .shared
            .changed
            .wait_timeout_while(state, within, |state| !state.ended);
        drop(ended.unwrap_or_else(PoisonError::into_inner));
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn empty(&self, endpoint: &Endpoint, speaker: &Speaker) {
        let agent = agent(endpoint);
        while let Some(batch) = self.next() {
            let count = u64::try_from(batch.len()).unwrap_or(u64::MAX);
            let body = otlp::request(speaker, &batch).to_string();
            drop(batch);
            let was_taken = self.deliver(&agent, endpoint, body.as_bytes());
            let mut state = self.state();
            if was_taken {
                state.figures.exported += count;
            } else {
                state.figures.dropped += count;
            }
        }
    }

    /// The next batch, or `None` when it is time to end.
    fn next(&self) -> Option<Vec<Span>> {
        let idle = |state: &mut State| state.spans.is_empty() && state.stop_by.is_none();
        let state = self.changed.wait_while(self.state(), idle);
        let state = state.unwrap_or_else(PoisonError::into_inner);
        let few = |state: &mut State| state.spans.len() < BATCH && state.stop_by.is_none();
        let waited = self.changed.wait_timeout_while(state, GATHER, few);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let is_over = state.stop_by.is_some_and(|by| by <= Instant::now());
        let count = state.spans.len().min(BATCH);
        (count > 0 && !is_over).then(|| state.spans.drain(..count).collect())
    }

    fn deliver(&self, agent: &Agent, endpoint: &Endpoint, body: &[u8]) -> bool {
        for attempt in 0..ATTEMPTS {
            let (status, asked) = match post(agent, endpoint, body) {
                Answer::Taken => {
                    self.taken();
                    return true;
                }
                Answer::Later { status, pause } => (status, pause),
                Answer::Refused { status } => {
                    self.failed(status);
                    return false;
                }
            };
            self.failed(status);
            // Whoever gives up does not wait first.
            if attempt + 1 == ATTEMPTS {
                return false;
            }
            let own = Duration::from_millis(500).saturating_mul(1 << attempt.min(10));
            let pause = asked.unwrap_or(own).min(LONGEST_PAUSE);
            let goes_on = |state: &mut State| state.stop_by.is_none();
            let waited = self
                .changed
                .wait_timeout_while(self.state(), pause, goes_on);
            let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
            if state.stop_by.is_some() {
                return false;
            }
        }
        false
    }

    fn failed(&self, status: u16) {
        let mut state = self.state();
        state.figures.failures += 1;
        if !std::mem::replace(&mut state.is_failing, true) {
            drop(state);
            tracing::warn!(
                status,
                "the collector of traces does not take spans; runs go on, spans may be lost"
            );
        }
    }

    fn taken(&self) {
        let mut state = self.state();
        if std::mem::take(&mut state.is_failing) {
            drop(state);
            tracing::info!("the collector of traces takes spans again");
        }
    }
}

fn agent(endpoint: &Endpoint) -> Agent {
    let mut config = Agent::config_builder()
        .http_status_as_error(false)
        .proxy(None)
        .max_redirects(0)
        .max_redirects_will_error(false)
        .user_agent(concat!("cofferdam/", env!("CARGO_PKG_VERSION")))
        .timeout_global(Some(REQUEST))
        .max_idle_connections(1);
    // The system's certificates take memory; without encryption nobody needs them.
    if endpoint.is_encrypted() {
        let system = rustls_native_certs::load_native_certs().certs;
        let system = system
            .iter()
            .map(|found| Certificate::from_der(found).to_owned());
        let tls = TlsConfig::builder()
            .provider(TlsProvider::Rustls)
            .root_certs(RootCerts::from(system))
            .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .build();
        config = config.tls_config(tls);
    }
    config.build().new_agent()
}

fn post(agent: &Agent, endpoint: &Endpoint, body: &[u8]) -> Answer {
    let mut request = agent
        .post(endpoint.url())
        .header("Content-Type", "application/json");
    for (name, value) in &endpoint.headers {
        request = request.header(name, value);
    }
    let answer = match request.send(body) {
        Ok(answer) => answer,
        Err(_) => {
            return Answer::Later {
                status: 0,
                pause: None,
            };
        }
    };
    let status = answer.status().as_u16();
    let pause = answer.headers().get(header::RETRY_AFTER);
    let pause = pause.and_then(|value| value.to_str().ok()?.trim().parse().ok());
    // Read to its end, so that the connection can be used again.
    let _ = answer
        .into_body()
        .into_reader()
        .take(MAX_ANSWER)
        .read_to_end(&mut Vec::new());
    match status {
        200..300 => Answer::Taken,
        // Those that the protocol calls retryable.
        429 | 502 | 503 | 504 => Answer::Later {
            status,
            pause: pause.map(Duration::from_secs),
        },
        // Sending it again could tell it twice.
        status => Answer::Refused { status },
    }
}
