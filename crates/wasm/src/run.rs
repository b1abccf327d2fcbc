//! The whole path of a run in this backend: what holds its limits, its books opened, its code made ready, its program run to an end, the record.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read as _;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use cofferdam_contract::ending::{Ending, SetupFailure, SetupFailureKind, StopCause};
use cofferdam_contract::record::RunRecord;
use cofferdam_contract::request::{Grant, Request};
use cofferdam_contract::units::Bytes;
use cofferdam_contract::usage::Usage;
use cofferdam_engine::backend::{Calls, Directories, Ledger, Outcome, Outputs, WayOut};
use cofferdam_engine::error::EngineError;
use cofferdam_engine::host::Host;
use cofferdam_engine::pipeline::{Input, LiveUsage, Streams};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use wasmtime::Store;

use crate::engines::{Flavour, VERSION};
use crate::fixed;
use crate::guest::{self, Guest};
use crate::held;
use crate::outcome::{self, Evidence, Said, Settled};
use crate::pace::{self, Clock, Pace};
use crate::prepare::{Pantry, Program, Ready};
use crate::runtime::{self, Waiting};
use crate::settings::{Determinism, Settings};
use crate::stdio::{self, Shared, Stopped};
use crate::wait::{self, Alarm, Whole};
use crate::workshop::Unmade;

/// The backend. Compiled code, memory and threads are used again for as long as it lives.
pub struct Wasm {
    settings: Settings,
    pantry: Pantry,
    waiting: Waiting,
}

/// What is to be run: a binary, or its text.
#[derive(Debug, Clone)]
pub enum Code {
    File(PathBuf),
    Bytes(Arc<[u8]>),
}

/// A program that has been run.
struct Done {
    settled: Settled,
    usage: Usage,
    /// Instructions that it took, where they were counted.
    instructions: Option<u64>,
}

impl std::fmt::Debug for Wasm {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Wasm")
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

impl Wasm {
    /// Nothing is made before the first run.
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            pantry: Pantry::new(),
            waiting: Waiting::default(),
        }
    }

    /// Runs a granted request to its end.
    pub fn run(
        &self,
        code: &Code,
        determinism: Determinism,
        grant: Grant,
        streams: Streams<'_>,
        host: &Host,
    ) -> Result<RunRecord, EngineError> {
        let request = grant.into_request();
        let enforced_by = held::enforcement(&request, determinism)?;
        let cancel = streams.cancel;
        // Before the books are open: a directory that is not there is the caller's mistake and no run.
        drop(guest::world(&request)?);
        let outputs = Outputs {
            stdout: streams.stdout,
            stderr: streams.stderr,
            on_limit: streams.on_output_limit,
        };
        let way_out = WayOut::for_calls(&request.network).map_err(|errno| EngineError::System {
            doing: "open the ways out of a program",
            errno,
        })?;
        let ledger = Ledger::open(&request, streams.recording, outputs)?;
        let shared = Shared::new(ledger, request.limits.output);
        let mut isolation = isolation(&request);
        let done = match self.ready(code, determinism, host, cancel) {
            Ok(ready) => {
                isolation.insert("code".to_owned(), ready.origin.to_string());
                let calls = match (&way_out, &ready.program) {
                    (Some(_), Program::Module(_)) => Err(no_calls()),
                    (way_out, _) => Ok(way_out.as_ref().map(|(_, calls)| calls.clone())),
                };
                match calls {
                    Err(failure) => Done::without_a_start(Unmade::Failed(failure)),
                    Ok(calls) => self.execute(
                        &ready,
                        &request,
                        determinism,
                        Around {
                            stdin: streams.stdin,
                            shared: &shared,
                            cancel,
                            usage: streams.usage,
                            calls,
                        },
                    ),
                }
            }
            Err(unmade) => Done::without_a_start(unmade),
        };
        let shared = Arc::into_inner(shared).ok_or(EngineError::System {
            doing: "close the books of a run that is over",
            errno: Errno::BUSY,
        })?;
        let (network, denials) = way_out.map_or_else(Default::default, |(way, _)| way.close());
        let outcome = Outcome {
            ending: done.settled.ending,
            usage: done.usage,
            enforced_by,
            isolation,
            network,
            denials,
            determinism: fixed::account(determinism, done.instructions),
        };
        let mut record = shared.into_ledger().close(&request, outcome, cancel)?;
        record.trap = done.settled.trap;
        Ok(record)
    }

    fn ready(
        &self,
        code: &Code,
        determinism: Determinism,
        host: &Host,
        cancel: Option<BorrowedFd<'_>>,
    ) -> Result<Ready, Unmade> {
        let most = self.settings.compile.code;
        let read;
        let bytes = match code {
            Code::Bytes(bytes) => &**bytes,
            Code::File(path) => {
                read = read_code(path, most).map_err(Unmade::Failed)?;
                &read
            }
        };
        if bytes.len() as u64 > most.get() {
            return Err(Unmade::Failed(too_large(most)));
        }
        let flavour = match determinism {
            Determinism::Off => Flavour::Timed,
            Determinism::Exact { .. } => Flavour::Counted,
        };
        self.pantry
            .ready(bytes, flavour, &self.settings, host, cancel)
    }

    fn execute(
        &self,
        ready: &Ready,
        request: &Request,
        determinism: Determinism,
        around: Around<'_>,
    ) -> Done {
        let failed = |message: String| Done::failed(SetupFailureKind::Sandbox, message);
        let own = Waiting::default();
        let runtime = match determinism {
            Determinism::Off => self.waiting.get_or_make(runtime::shared),
            Determinism::Exact { .. } => own.get_or_make(fixed::runtime),
        };
        match runtime {
            // The thread that runs the program is the caller's.
            Ok(runtime) => runtime.block_on(async {
                match run_program(ready, request, determinism, around).await {
                    Ok(done) => done,
                    Err(error) => failed(format!("the program cannot be started: {error:#}")),
                }
            }),
            Err(why) => failed(format!("the program cannot be started: {why}")),
        }
    }
}

/// What a run is connected to.
struct Around<'a> {
    stdin: Input,
    shared: &'a Arc<Shared>,
    cancel: Option<BorrowedFd<'a>>,
    usage: Option<Arc<LiveUsage>>,
    /// The way out, where there is one.
    calls: Option<Calls>,
}

async fn run_program(
    ready: &Ready,
    request: &Request,
    determinism: Determinism,
    around: Around<'_>,
) -> wasmtime::Result<Done> {
    let limits = &request.limits;
    let shared = around.shared;
    // Made before the start: a run whose end nobody would notice does not begin. Input that is read before the start is within the time as well.
    let alarm = Alarm::new(limits.wall_time, around.cancel)?;
    let clock = Clock::start();
    let mut wasi = guest::world(request)?;
    let mut stdin = around.stdin;
    if let Determinism::Exact { seed } = determinism {
        fixed::fix(&mut wasi, seed);
        stdin = match wait::whole(stdin, &alarm)? {
            Whole::Read(input) => input,
            Whole::Stopped(cause) => return Ok(Done::stopped_before_the_start(cause, clock)),
        };
    }
    stdio::connect(&mut wasi, stdin, shared);
    let directories = Arc::new(Mutex::new(Directories::of(request)?));
    let mut guest = Guest::new(wasi, request);
    guest.reach.calls = around.calls;
    let mut store = Store::try_new(&ready.place.engine, guest)?;
    store.limiter(|guest| &mut guest.memory);
    store.set_epoch_deadline(1);
    let fuel = pace::fuel(limits.cpu_time);
    if let Determinism::Exact { .. } = determinism {
        store.set_fuel(fuel)?;
    }
    let usage = around.usage;
    let mut pace = Pace::new(shared, clock, limits, determinism, &directories, usage);
    store.epoch_deadline_callback(move |store| pace.look(&store));
    let beating = ready.place.ticker.beat();
    let said = tokio::select! {
        biased;
        said = call(&mut store, &ready.program) => said,
        cause = alarm.rings() => Said::Failed(shared.stop(cause).into()),
    };
    drop(beating);
    let used = Usage {
        wall: clock.wall(),
        cpu: clock.cpu(),
        memory_peak: Some(store.data().memory.peak()),
        ..Usage::default()
    };
    let has_failed = !matches!(said, Said::Returned { code: 0 });
    let instructions = store.get_fuel().ok().map(|left| fuel.saturating_sub(left));
    let memory = store.data().memory.refused();
    // What the program had open goes before its directories are looked at for the last time.
    drop(store);
    let mut directories = directories.lock().unwrap_or_else(PoisonError::into_inner);
    let settled = outcome::settle(Evidence {
        limits,
        cause: shared.cause(),
        memory,
        disk: has_failed
            .then(|| directories.look_after_failure())
            .flatten(),
        said,
    });
    Ok(Done {
        settled,
        usage: used,
        instructions,
    })
}

async fn call(store: &mut Store<Guest>, program: &Program) -> Said {
    match program {
        Program::Module(pre) => {
            let instance = match pre.instantiate_async(&mut *store).await {
                Ok(instance) => instance,
                Err(error) => return unstarted(error),
            };
            let entry = instance.get_typed_func::<(), ()>(&mut *store, "_start");
            match entry {
                Ok(entry) => returned(entry.call_async(&mut *store, ()).await.map(Ok)),
                Err(error) => Said::NotStarted(error),
            }
        }
        Program::Component(pre) => {
            let command = match pre.instantiate_async(&mut *store).await {
                Ok(command) => command,
                Err(error) => return unstarted(error),
            };
            returned(command.wasi_cli_run().call_run(&mut *store).await)
        }
    }
}

fn returned(returned: wasmtime::Result<Result<(), ()>>) -> Said {
    match returned {
        Ok(Ok(())) => Said::Returned { code: 0 },
        Ok(Err(())) => Said::Returned { code: 1 },
        Err(error) => Said::Failed(error),
    }
}

/// A start function is the program's own code, and so is what it does.
fn unstarted(error: wasmtime::Error) -> Said {
    let has_run = error.is::<wasmtime::Trap>()
        || error.is::<wasmtime_wasi::I32Exit>()
        || error.is::<Stopped>();
    if has_run {
        Said::Failed(error)
    } else {
        Said::NotStarted(error)
    }
}

impl Done {
    fn without_a_start(unmade: Unmade) -> Self {
        match unmade {
            Unmade::Failed(failure) => Self::ended(Ending::NeverStarted(failure)),
            Unmade::Canceled => Self::ended(Ending::Stopped(StopCause::Canceled)),
            Unmade::Engine(error) => Self::failed(SetupFailureKind::Sandbox, error.to_string()),
        }
    }

    fn stopped_before_the_start(cause: StopCause, clock: Clock) -> Self {
        Self {
            usage: Usage {
                wall: clock.wall(),
                cpu: clock.cpu(),
                ..Usage::default()
            },
            ..Self::ended(Ending::Stopped(cause))
        }
    }

    fn failed(kind: SetupFailureKind, message: String) -> Self {
        Self::ended(Ending::NeverStarted(SetupFailure {
            kind,
            step: "make the program ready".to_owned(),
            message,
            errno: None,
        }))
    }

    fn ended(ending: Ending) -> Self {
        Self {
            settled: Settled { ending, trap: None },
            usage: Usage::default(),
            instructions: None,
        }
    }
}

/// What a record says about the walls.
fn isolation(request: &Request) -> BTreeMap<String, String> {
    let files = match (request.workspace.is_some(), request.mounts.is_empty()) {
        (false, true) => "none",
        _ => "the directories that were given",
    };
    [
        ("engine", VERSION),
        ("files", files),
        ("network", &request.network.to_string()),
        ("processes", "none"),
    ]
    .into_iter()
    .map(|(part, by)| (part.to_owned(), by.to_owned()))
    .collect()
}

/// Better than a program that finds out by itself that there is nothing to call.
fn no_calls() -> SetupFailure {
    SetupFailure {
        kind: SetupFailureKind::ProgramNotExecutable,
        step: "open the network".to_owned(),
        message: "a module (WASI preview 1) has no calls to reach a network with; build it as a component (WASI preview 2), or leave --net out".to_owned(),
        errno: None,
    }
}

/// Reads the caller's file, without waiting for a pipe that nobody writes to.
fn read_code(path: &Path, most: Bytes) -> Result<Vec<u8>, SetupFailure> {
    let shown = path.display();
    let failed = |kind, message, errno: Option<Errno>| SetupFailure {
        kind,
        step: "read the code".to_owned(),
        message,
        errno: errno.map(Errno::raw_os_error),
    };
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = rustix::fs::open(path, flags, Mode::empty()).map_err(|errno| match errno {
        Errno::NOENT => failed(
            SetupFailureKind::ProgramNotFound,
            format!("`{shown}` was not found; name a file that holds WebAssembly"),
            Some(errno),
        ),
        _ => failed(
            SetupFailureKind::ProgramNotExecutable,
            format!("`{shown}` cannot be read: {errno}"),
            Some(errno),
        ),
    })?;
    let file = File::from(file);
    if !file.metadata().is_ok_and(|found| found.is_file()) {
        let message = format!("`{shown}` is no file; name one that holds WebAssembly");
        let kind = SetupFailureKind::ProgramNotExecutable;
        return Err(failed(kind, message, None));
    }
    let mut bytes = Vec::new();
    let read = file
        .take(most.get().saturating_add(1))
        .read_to_end(&mut bytes);
    match read {
        Ok(_) if bytes.len() as u64 > most.get() => Err(too_large(most)),
        Ok(_) => Ok(bytes),
        Err(error) => Err(failed(
            SetupFailureKind::ProgramNotExecutable,
            format!("`{shown}` cannot be read: {error}"),
            Errno::from_io_error(&error),
        )),
    }
}

fn too_large(most: Bytes) -> SetupFailure {
    SetupFailure {
        kind: SetupFailureKind::ProgramNotExecutable,
        step: "read the code".to_owned(),
        message: format!("the module is larger than {most}; make it smaller"),
        errno: None,
    }
}
