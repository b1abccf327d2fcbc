//! Settles how a program ended: from who stopped it, what it was refused, and what the engine says. Looks at nothing itself.

use cofferdam_contract::ending::{Ending, SetupFailure, SetupFailureKind, StopCause};
use cofferdam_contract::limits::Limits;
use cofferdam_contract::units::Cap;
use wasmtime::Trap;
use wasmtime_wasi::I32Exit;

use crate::memory::Refused;

/// Everything that is known when a program is over.
pub(crate) struct Evidence<'a> {
    pub(crate) limits: &'a Limits,
    /// Set by whoever stopped it.
    pub(crate) cause: Option<StopCause>,
    pub(crate) memory: Refused,
    /// Directories that were found full after a failure.
    pub(crate) disk: Option<StopCause>,
    pub(crate) said: Said,
}

/// What the engine says.
pub(crate) enum Said {
    /// The program returned.
    Returned { code: i32 },
    /// It was unwound.
    Failed(wasmtime::Error),
    /// Not one instruction of it was run.
    NotStarted(wasmtime::Error),
}

/// The ending, and the words of the trap where there was one.
pub(crate) struct Settled {
    pub(crate) ending: Ending,
    pub(crate) trap: Option<String>,
}

/// As native programs end that do the same.
const SIGABRT: i32 = 6;
const SIGFPE: i32 = 8;
const SIGSEGV: i32 = 11;

/// Whoever stopped the run comes first, then what was refused to a program that failed, then the program's own word.
pub(crate) fn settle(evidence: Evidence<'_>) -> Settled {
    let ended = |ending| Settled { ending, trap: None };
    if let Some(cause) = evidence.cause {
        return ended(Ending::Stopped(cause));
    }
    let refused = match (evidence.memory, evidence.limits.memory) {
        (Refused::Yes, Cap::AtMost(limit)) => Some(StopCause::Memory { limit }),
        _ => evidence.disk,
    };
    let error = match evidence.said {
        Said::Returned { code: 0 } => return ended(Ending::Exited { code: 0 }),
        Said::Returned { code } => {
            return ended(refused.map_or(Ending::Exited { code }, Ending::Stopped));
        }
        Said::NotStarted(error) => {
            let failure = || {
                Ending::NeverStarted(SetupFailure {
                    kind: SetupFailureKind::ProgramNotExecutable,
                    step: "make an instance of the module".to_owned(),
                    message: format!("the module cannot be run: {error:#}"),
                    errno: None,
                })
            };
            return ended(refused.map_or_else(failure, Ending::Stopped));
        }
        Said::Failed(error) => error,
    };
    if let Some(I32Exit(code)) = error.downcast_ref() {
        // The kernel keeps only the low byte of what a program returns, and so do we.
        let code = code & 0xff;
        return ended(match (code, refused) {
            (0, _) | (_, None) => Ending::Exited { code },
            (_, Some(cause)) => Ending::Stopped(cause),
        });
    }
    let trap = error.downcast_ref::<Trap>().copied();
    if let (Some(Trap::OutOfFuel), Cap::AtMost(limit)) = (trap, evidence.limits.cpu_time) {
        return ended(Ending::Stopped(StopCause::CpuTime { limit }));
    }
    let ending = refused.map_or_else(
        || Ending::Signaled {
            signal: signal(trap),
        },
        Ending::Stopped,
    );
    Settled {
        ending,
        trap: Some(trap.map_or_else(|| format!("{error:#}"), words)),
    }
}

/// What the engine says, without its saying that it says it.
fn words(trap: Trap) -> String {
    let text = trap.to_string();
    text.strip_prefix("wasm trap: ").unwrap_or(&text).to_owned()
}

/// The signal of a native program that does the same; `abort` is `unreachable` here.
fn signal(trap: Option<Trap>) -> i32 {
    match trap {
        Some(
            Trap::StackOverflow
            | Trap::MemoryOutOfBounds
            | Trap::HeapMisaligned
            | Trap::TableOutOfBounds
            | Trap::IndirectCallToNull
            | Trap::BadSignature
            | Trap::NullReference
            | Trap::ArrayOutOfBounds,
        ) => SIGSEGV,
        Some(
            Trap::IntegerOverflow | Trap::IntegerDivisionByZero | Trap::BadConversionToInteger,
        ) => SIGFPE,
        _ => SIGABRT,
    }
}
