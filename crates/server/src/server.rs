//! The daemon's life: it starts, listens, and ends in order. Each connection is bounded in number, in the size of its headers and in the time it may take to send them.

use std::fs::{File, OpenOptions};
use std::io;
use std::net::{SocketAddr, TcpListener as StdListener};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use axum::Router;
use cofferdam_engine::heap;
use cofferdam_observe::Tracer;
use cofferdam_store::{DataDir, StoreError, private_dir};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use rustix::fs::FlockOperation;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Semaphore, watch};

use crate::accepted::Accepted;
use crate::answers::Answers;
use crate::app::App;
use crate::archive::Archive;
use crate::auth::{Exposure, Gate};
use crate::away::FrontDoor;
use crate::config::{Config, HttpBounds};
use crate::idempotency::Keys;
use crate::language::Languages;
use crate::metrics::Metrics;
use crate::notify;
use crate::patience::Door;
use crate::reports::Reports;
use crate::routes::table;
use crate::runner::Runner;
use crate::self_test::{Fitness, SelfTest};
use crate::takeup;
use crate::tokens::{TokenError, TokenFile};

/// Starts daemons.
#[derive(Debug)]
pub struct Server;

/// A daemon that listens. Ends when it is told to, not when this goes.
#[derive(Debug)]
pub struct Running {
    address: SocketAddr,
    runtime: Runtime,
    stop: watch::Sender<bool>,
    served: tokio::task::JoinHandle<()>,
    app: Arc<App>,
    threads: Vec<JoinHandle<()>>,
    stop_test: mpsc::Sender<()>,
    _lock: File,
}

/// Why the daemon could not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(
        "--listen: {address} can be reached by others, and there is no token; create one with `cofferdam token create`, or listen on 127.0.0.1"
    )]
    Exposed { address: SocketAddr },
    #[error("--listen: cannot listen on {address}: {source}; name another address or port")]
    Listen {
        address: SocketAddr,
        source: io::Error,
    },
    #[error(
        "another daemon uses the data directory `{}`; end it, or name another with --data-dir",
        path.display()
    )]
    InUse { path: PathBuf },
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Tokens(#[from] TokenError),
    #[error("--fleet: {0}")]
    Fleet(#[from] cofferdam_fleet::FleetError),
    #[error("cannot {what}: {source}")]
    System {
        what: &'static str,
        source: io::Error,
    },
}

/// What asked the daemon to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndedBy {
    Terminate,
    Interrupt,
}

impl EndedBy {
    /// 128 and the number of the signal, as a shell has it.
    pub const fn exit_code(self) -> u8 {
        match self {
            Self::Terminate => 143,
            Self::Interrupt => 130,
        }
    }
}

/// For answers, and for reports: however short the grace is, and however long.
const SHORTEST_FAREWELL: Duration = Duration::from_millis(300);
const LONGEST_FAREWELL: Duration = Duration::from_secs(2);
/// How long a daemon before this one may take to be gone.
const LOCKED_FOR: Duration = Duration::from_secs(1);
const WORKERS: usize = 2;
/// Between two tries of a self-test that failed.
const TEST_AGAIN: Duration = Duration::from_secs(5);

impl Server {
    pub fn start(config: Config) -> Result<Running, StartError> {
        let config = config.at_the_door();
        config.data_dir.create()?;
        raise_descriptors_best_effort();
        let lock = lock(&config.data_dir)?;
        private_dir::sweep_best_effort(&config.data_dir);
        let gate = gate(&config)?;
        let keys = Keys::open(&config.data_dir).map_err(system("keep keys"))?;
        let languages = Languages::new(&config.languages)
            .map_err(|bad| system("read the languages")(io::Error::other(bad.to_string())))?;
        heap::use_few_arenas();
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(WORKERS)
            .thread_name("http")
            .enable_all()
            .build()
            .map_err(system("start the runtime"))?;
        let front_door = config.front_door.as_ref();
        let front_door = front_door.map(|door| FrontDoor::open(door, runtime.handle()));
        let front_door = front_door.transpose()?;
        let (address, listener) = listen(config.listen)?;
        let archive = Arc::new(Archive::new(
            config.data_dir.clone(),
            config.history.clone(),
        ));
        let metrics = Arc::new(Metrics::default());
        let tracer = Arc::new(tracer(&config).map_err(system("start a thread"))?);
        let reports = Arc::new(Reports::start(
            &config.callbacks,
            &config.data_dir,
            &metrics,
        )?);
        let accepted = Accepted::open(&config.data_dir).map_err(system("keep what is accepted"))?;
        let runner = Runner::new(
            config.runs.clone(),
            Arc::clone(&archive),
            Arc::clone(&metrics),
            Arc::clone(&reports),
            accepted,
            languages.interpreters(),
        );
        let runner = Arc::new(runner.with_front_door(front_door));
        let app = Arc::new(App {
            started: Instant::now(),
            runner,
            archive,
            metrics,
            tracer,
            reports,
            gate,
            keys,
            self_test: SelfTest::new(),
            languages,
            answers: Answers::new(config.http.answers, config.http.request_timeout / 2),
            door: Door::default(),
            body_room: Arc::new(Semaphore::new(body_room(&config.http))),
            config,
        });
        app.reports.set_starting(true);
        let taken_up = takeup::take_up(&app);
        app.reports.set_starting(false);
        taken_up.map_err(system("take up what was accepted"))?;
        let (stop_test, test_stopped) = mpsc::channel();
        let threads =
            threads(&app, address.port(), test_stopped).map_err(system("start a thread"))?;
        let (stop, stopped) = watch::channel(false);
        let listener = {
            let _inside = runtime.enter();
            TcpListener::from_std(listener).map_err(system("listen"))?
        };
        let served = runtime.spawn(serve(
            listener,
            table::router(&app),
            app.config.http.clone(),
            stopped,
        ));
        tracing::info!(%address, version = env!("CARGO_PKG_VERSION"), "listening");
        Ok(Running {
            address,
            runtime,
            stop,
            served,
            app,
            threads,
            stop_test,
            _lock: lock,
        })
    }
}

impl Running {
    /// Where it listens; with port 0 asked for, the port that it got.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Waits for SIGTERM or SIGINT and ends in order.
    pub fn run_until_signal(self) -> Result<EndedBy, StartError> {
        let waited: io::Result<EndedBy> = self.runtime.block_on(async {
            let mut terminate = signal(SignalKind::terminate())?;
            let mut interrupt = signal(SignalKind::interrupt())?;
            Ok(tokio::select! {
                _ = terminate.recv() => EndedBy::Terminate,
                _ = interrupt.recv() => EndedBy::Interrupt,
            })
        });
        let by = waited.map_err(system("wait for signals"))?;
        self.end(Some(by));
        Ok(by)
    }

    /// No new connections and no new work; what runs may go on for most of the grace and is cancelled then. Returns how many runs had to be.
    pub fn stop(self) -> usize {
        self.end(None)
    }

    fn end(self, by: Option<EndedBy>) -> usize {
        let grace = self.app.config.grace;
        let until = Instant::now() + grace;
        notify::tell_best_effort("STOPPING=1");
        self.stop.send_replace(true);
        let _ = self.stop_test.send(());
        let canceled = self.app.runner.stop(grace - for_reports(grace));
        self.app.reports.exited(by);
        let left = |least| {
            let left = until.saturating_duration_since(Instant::now());
            left.clamp(least, LONGEST_FAREWELL)
        };
        // Answers to what has just ended go out.
        let answered = async { tokio::time::timeout(left(SHORTEST_FAREWELL), self.served).await };
        let _ = self.runtime.block_on(answered);
        self.app.reports.stop(left(SHORTEST_FAREWELL));
        self.app.archive.stop();
        for thread in self.threads {
            let _ = thread.join();
        }
        self.runtime.shutdown_timeout(SHORTEST_FAREWELL);
        self.app.tracer.stop(left(SHORTEST_FAREWELL));
        tracing::info!(canceled, "ended");
        canceled
    }
}

/// What of the grace is kept for cancelling, answering and reporting.
fn for_reports(grace: Duration) -> Duration {
    (grace / 4).min(Duration::from_millis(500))
}

/// Connections, runs and journals all take descriptors, and the usual 1024 are for programs that have few. What runs inside has limits of its own.
fn raise_descriptors_best_effort() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    let _ = setrlimit(Resource::Nofile, limit);
}

/// In KiB; one body always fits.
fn body_room(bounds: &HttpBounds) -> usize {
    let bytes = bounds.bodies.max(bounds.body).get();
    usize::try_from(bytes / 1024 + 1).map_or(Semaphore::MAX_PERMITS, |room| {
        room.min(Semaphore::MAX_PERMITS)
    })
}

fn tracer(config: &Config) -> io::Result<Tracer> {
    let otlp = &config.otlp;
    match otlp.endpoint.clone() {
        Some(endpoint) => Tracer::start(endpoint, &otlp.service_name, otlp.ratio),
        None => Ok(Tracer::off()),
    }
}

fn gate(config: &Config) -> Result<Gate, StartError> {
    let exposure = if config.listen.ip().is_loopback() {
        Exposure::Loopback
    } else {
        Exposure::Network
    };
    let gate = Gate::new(TokenFile::of(&config.data_dir), exposure)?;
    if exposure == Exposure::Network && !gate.has_tokens() {
        return Err(StartError::Exposed {
            address: config.listen,
        });
    }
    Ok(gate)
}

/// Two daemons would sweep each other's workspaces. The kernel lets go of the lock with the process.
fn lock(dir: &DataDir) -> Result<File, StartError> {
    let path = dir.path().join("daemon.lock");
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(&path)
        .map_err(system("make the daemon's lock"))?;
    let began = Instant::now();
    loop {
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(file),
            // The sandboxes of a daemon that was killed hold it until the kernel has ended them.
            Err(rustix::io::Errno::WOULDBLOCK) if began.elapsed() < LOCKED_FOR => {
                std::thread::sleep(Duration::from_millis(10));
            }
            Err(rustix::io::Errno::WOULDBLOCK) => {
                let path = dir.path().to_owned();
                return Err(StartError::InUse { path });
            }
            Err(errno) => return Err(system("lock the data directory")(errno.into())),
        }
    }
}

fn listen(address: SocketAddr) -> Result<(SocketAddr, StdListener), StartError> {
    let bound = || -> io::Result<(SocketAddr, StdListener)> {
        let listener = StdListener::bind(address)?;
        listener.set_nonblocking(true)?;
        Ok((listener.local_addr()?, listener))
    };
    bound().map_err(|source| StartError::Listen { address, source })
}

fn threads(app: &Arc<App>, port: u16, stop: mpsc::Receiver<()>) -> io::Result<Vec<JoinHandle<()>>> {
    let named = |name: &str| std::thread::Builder::new().name(name.to_owned());
    let archive = app.archive.start()?;
    let runner = Arc::clone(&app.runner);
    let clock = named("clock").spawn(move || runner.keep_time())?;
    let tested = Arc::clone(app);
    let test = named("self-test").spawn(move || test_until_fit(&tested, port, &stop))?;
    let heart = app.reports.start_heart()?;
    Ok([archive, clock, test].into_iter().chain(heart).collect())
}

fn test_until_fit(app: &App, port: u16, stop: &mpsc::Receiver<()>) {
    loop {
        match app.self_test.run(|| app.runner.test()) {
            Fitness::Fit => {
                tracing::info!("the self-test has passed");
                notify::tell_best_effort("READY=1");
                app.reports.ready(port);
                return;
            }
            Fitness::Unfit { reason } => tracing::error!(reason, "the self-test failed"),
        }
        // A message, or the other end gone: either way it ends.
        if stop.recv_timeout(TEST_AGAIN) != Err(mpsc::RecvTimeoutError::Timeout) {
            return;
        }
    }
}

async fn serve(
    listener: TcpListener,
    router: Router,
    bounds: HttpBounds,
    mut stopped: watch::Receiver<bool>,
) {
    let connections = Arc::new(Semaphore::new(bounds.connections));
    let graceful = GracefulShutdown::new();
    loop {
        // Before accepting: whoever is too many waits in the kernel's queue.
        let permit = tokio::select! {
            biased;
            _ = stopped.wait_for(|stopped| *stopped) => break,
            permit = Arc::clone(&connections).acquire_owned() => permit,
        };
        let Ok(permit) = permit else {
            break;
        };
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = stopped.wait_for(|stopped| *stopped) => break,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                // Out of descriptors, mostly. Trying at once would only burn the CPU.
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        prepare_best_effort(&stream);
        let service = TowerToHyperService::new(router.clone());
        let connection = builder(&bounds).serve_connection(TokioIo::new(stream), service);
        let watched = graceful.watch(connection);
        tokio::spawn(async move {
            if let Err(error) = watched.await {
                tracing::debug!(%error, "a connection ended badly");
            }
            drop(permit);
        });
    }
    drop(listener);
    graceful.shutdown().await;
}

fn builder(bounds: &HttpBounds) -> http1::Builder {
    const LEAST_BUFFER: usize = 64 << 10;
    let head = usize::try_from(bounds.head.get()).unwrap_or(usize::MAX);
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(bounds.head_timeout)
        .max_header_size(head)
        .max_buf_size(head.max(LEAST_BUFFER))
        .max_headers(100);
    builder
}

/// A reader that takes nothing for so long is gone: its connection must not be held for ever.
fn prepare_best_effort(stream: &TcpStream) {
    const SILENT_FOR: u32 = 60_000;
    let _ = stream.set_nodelay(true);
    let _ = rustix::net::sockopt::set_tcp_user_timeout(stream, SILENT_FOR);
    let _ = rustix::net::sockopt::set_socket_keepalive(stream, true);
}

fn system(what: &'static str) -> impl FnOnce(io::Error) -> StartError {
    move |source| StartError::System { what, source }
}
