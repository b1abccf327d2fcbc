//! Has code compiled: in the native sandbox, by a program of our own, within its own limits. What a stranger's code can do to a compiler it does there.

use std::fs::File;
use std::io::{Read as _, Seek as _};
use std::os::fd::BorrowedFd;

use cofferdam_contract::ending::{Ending, SetupFailure, SetupFailureKind, StopCause};
use cofferdam_contract::limits::Limits;
use cofferdam_contract::request::{
    BackendName, Gpus, Grant, Mount, MountAccess, Network, Request, Root,
};
use cofferdam_contract::units::{Bytes, Cap};
use cofferdam_engine::error::EngineError;
use cofferdam_engine::host::Host;
use cofferdam_engine::pipeline::{self, Evidence, Input, OnLimit, Sink, Streams};
use rustix::fs::MemfdFlags;

use crate::engines::Flavour;
use crate::load::Genuine;
use crate::settings::Settings;

/// Where the compiler is, inside.
const INSIDE: &str = "/opt/compiler";
/// How much of its complaint is passed on.
const COMPLAINT: usize = 4 << 10;

/// Why there is no code.
#[derive(Debug)]
pub(crate) enum Unmade {
    /// The code's own fault, or ours: nothing ran.
    Failed(SetupFailure),
    Canceled,
    Engine(EngineError),
}

/// Compiles, or says why not.
pub(crate) fn compile(
    code: Vec<u8>,
    flavour: Flavour,
    settings: &Settings,
    host: &Host,
    cancel: Option<BorrowedFd<'_>>,
) -> Result<Genuine, Unmade> {
    let system = |errno| {
        Unmade::Engine(EngineError::System {
            doing: "make room for compiled code",
            errno,
        })
    };
    let result = rustix::fs::memfd_create("compiled", MemfdFlags::CLOEXEC).map_err(system)?;
    let mut result = File::from(result);
    let to = result.try_clone().map_err(|error| system(errno(&error)))?;
    let memory = settings.compile.memory_for(code.len());
    let grant = Grant::new(request(flavour, settings, memory)).map_err(EngineError::from)?;
    let streams = Streams {
        stdin: Input::Bytes(code),
        stdout: Sink::Pass { to: to.into() },
        stderr: Sink::Keep { at_most: COMPLAINT },
        result: None,
        on_output_limit: OnLimit::Stop,
        evidence: Evidence::Ending,
        cancel,
        recording: None,
        usage: None,
    };
    let record = pipeline::run(grant, streams, host)?;
    let complaint = record.stderr.bytes().unwrap_or_default();
    judge(&record.ending, &complaint, memory)?;
    let mut bytes = Vec::new();
    result
        .rewind()
        .and_then(|()| result.read_to_end(&mut bytes))
        .map_err(|error| system(errno(&error)))?;
    Ok(Genuine::vouched(bytes))
}

fn request(flavour: Flavour, settings: &Settings, memory: Bytes) -> Request {
    let bounds = &settings.compile;
    let compiler = &settings.compiler;
    let args = compiler.args.iter().cloned();
    Request {
        argv: std::iter::once(INSIDE.into())
            .chain(args)
            .chain([flavour.as_str().into()])
            .collect(),
        env: Vec::new(),
        cwd: None,
        limits: Limits {
            wall_time: Cap::AtMost(bounds.wall_time),
            cpu_time: Cap::AtMost(bounds.cpu_time),
            memory: Cap::AtMost(memory),
            output: Cap::AtMost(bounds.result),
            processes: Cap::AtMost(8),
            disk: Cap::AtMost(Bytes::new(1 << 20)),
            ..Limits::DEFAULT
        },
        waived: Vec::new(),
        network: Network::Denied,
        root: Root::HostUsr,
        workspace: None,
        mounts: vec![Mount {
            source: compiler.program.clone(),
            target: INSIDE.into(),
            access: MountAccess::ReadOnly,
        }],
        backend: BackendName::Native,
        gpus: Gpus::None,
    }
}

fn judge(ending: &Ending, complaint: &[u8], memory: Bytes) -> Result<(), Unmade> {
    let failed = |kind, message: String| {
        Err(Unmade::Failed(SetupFailure {
            kind,
            step: "compile the code".to_owned(),
            message,
            errno: None,
        }))
    };
    match ending {
        Ending::Exited { code: 0 } => Ok(()),
        Ending::Exited { .. } => {
            let text = String::from_utf8_lossy(complaint);
            // What is wrong and where; the lines after that show the place, for which there is no room here.
            let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
            let text: Vec<&str> = lines.take(2).collect();
            failed(
                SetupFailureKind::ProgramNotExecutable,
                format!("the module {}", text.join(" ")),
            )
        }
        Ending::Stopped(StopCause::Canceled) => Err(Unmade::Canceled),
        Ending::Stopped(cause) => failed(
            SetupFailureKind::ProgramNotExecutable,
            format!(
                "the module takes too much to compile: {}; make it smaller",
                cause.reason()
            ),
        ),
        // A compiler that runs out of stack or memory is killed by itself or by the kernel.
        Ending::Signaled { signal } => failed(
            SetupFailureKind::ProgramNotExecutable,
            format!(
                "the module cannot be compiled: the compiler was ended by signal {signal} within {memory} of memory; make it smaller"
            ),
        ),
        Ending::NeverStarted(why) => failed(
            SetupFailureKind::Sandbox,
            format!("the compiler's sandbox: {}", why.message),
        ),
    }
}

fn errno(error: &std::io::Error) -> rustix::io::Errno {
    rustix::io::Errno::from_io_error(error).unwrap_or(rustix::io::Errno::IO)
}

impl From<EngineError> for Unmade {
    fn from(error: EngineError) -> Self {
        Self::Engine(error)
    }
}
