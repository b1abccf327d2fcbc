//! Settles how a run ended: once, in one place, from what stopped it, what the kernel counted and what init reported. Nothing here looks at anything itself.

use cofferdam_contract::ending::{DiskPlace, Ending, SetupFailure, SetupFailureKind, StopCause};
use cofferdam_contract::request::Request;
use cofferdam_contract::units::Cap;
use cofferdam_sys::blueprint::Step;
use cofferdam_sys::protocol::{Stage, WaitStatus};
use rustix::io::Errno;

use crate::program;

/// Everything that is known when a run is over.
#[derive(Debug)]
pub(crate) struct Evidence<'a> {
    pub(crate) request: &'a Request,
    pub(crate) steps: &'a [Step],
    /// Set by whoever stopped the run.
    pub(crate) cause: Option<StopCause>,
    /// A limit that the kernel held against the program, by its own counters.
    pub(crate) refused: Option<StopCause>,
    /// A disk that was found full, or a directory found too large.
    pub(crate) disk: Option<StopCause>,
    pub(crate) started: Started,
    pub(crate) report: Report,
}

/// Whether the program was ever executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Started {
    Yes,
    No,
}

/// What init said last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Report {
    Ended(WaitStatus),
    SetupFailed {
        stage: Stage,
        errno: i32,
    },
    ExecFailed {
        stage: Stage,
        errno: i32,
    },
    /// The tool that builds the walls ended before the program could begin.
    ToolFailed {
        tool: &'static str,
    },
    /// Nothing: the kernel or somebody outside killed it.
    InitGone,
}

const SIGKILL: i32 = 9;
const SIGXFSZ: i32 = 25;

impl Report {
    /// Whether the program itself says that something went wrong.
    pub(crate) fn is_failure(self) -> bool {
        match self {
            Self::Ended(status) => status != WaitStatus::Exited { code: 0 },
            Self::SetupFailed { .. }
            | Self::ExecFailed { .. }
            | Self::ToolFailed { .. }
            | Self::InitGone => false,
        }
    }
}

/// Whoever stopped the run comes first, then what the kernel held against a program that failed, then the program's own word. A program that met a limit and
/// still says that all is well is believed.
pub(crate) fn settle(evidence: Evidence<'_>) -> Ending {
    let Evidence {
        request,
        steps,
        cause,
        refused,
        disk,
        started,
        report,
    } = evidence;
    if let Some(cause) = cause {
        return Ending::Stopped(cause);
    }
    let limits = &request.limits;
    match report {
        Report::SetupFailed { stage, errno } => {
            Ending::NeverStarted(setup_failure(steps, stage, errno))
        }
        Report::ExecFailed { stage, errno } => {
            Ending::NeverStarted(exec_failure(request, stage, errno))
        }
        // A limit can be too small for the tool itself.
        Report::ToolFailed { tool } => match refused {
            Some(cause) => Ending::Stopped(cause),
            None => Ending::NeverStarted(SetupFailure {
                kind: SetupFailureKind::Sandbox,
                step: "build the sandbox".to_owned(),
                message: format!(
                    "{tool} could not build the sandbox; it says why on standard error; `cofferdam doctor` shows what this host allows"
                ),
                errno: None,
            }),
        },
        Report::Ended(WaitStatus::Exited { code: 0 }) => Ending::Exited { code: 0 },
        Report::Ended(status) => match (refused.or(disk), status) {
            (Some(cause), _) => Ending::Stopped(cause),
            (None, WaitStatus::Exited { code }) => Ending::Exited { code },
            (None, WaitStatus::Signaled { signal }) => signaled(signal, limits.disk),
        },
        Report::InitGone => match (refused, started) {
            (Some(cause), _) => Ending::Stopped(cause),
            (None, Started::Yes) => Ending::Signaled { signal: SIGKILL },
            (None, Started::No) => Ending::NeverStarted(SetupFailure {
                kind: SetupFailureKind::Sandbox,
                step: "build the sandbox".to_owned(),
                message: "the sandbox's first process was killed while it was being built"
                    .to_owned(),
                errno: None,
            }),
        },
    }
}

/// One signal is the kernel's way of saying that a resource limit of ours was met. The one about CPU time is not: the kernel kills without it, where soft and hard limit are the same, so
/// that only the program itself can have asked for it.
fn signaled(signal: i32, disk: Cap<cofferdam_contract::units::Bytes>) -> Ending {
    match (signal, disk) {
        (SIGXFSZ, Cap::AtMost(limit)) => Ending::Stopped(StopCause::Disk {
            limit,
            place: DiskPlace::Scratch,
        }),
        _ => Ending::Signaled { signal },
    }
}

fn setup_failure(steps: &[Step], stage: Stage, errno: i32) -> SetupFailure {
    let step = match stage {
        Stage::Step(index) => steps
            .get(index as usize)
            .map_or_else(|| stage.describe().to_owned(), Step::describe),
        fixed => fixed.describe().to_owned(),
    };
    let said = Errno::from_raw_os_error(errno);
    SetupFailure {
        kind: SetupFailureKind::Sandbox,
        message: format!(
            "could not {step}: {said}; `cofferdam doctor` shows what this host allows"
        ),
        step,
        errno: Some(errno),
    }
}

fn exec_failure(request: &Request, stage: Stage, errno: i32) -> SetupFailure {
    let said = Errno::from_raw_os_error(errno);
    let (kind, message) = match (stage, said) {
        (Stage::Exec, Errno::NOENT) => (
            SetupFailureKind::ProgramNotFound,
            program::not_found(request),
        ),
        (Stage::Exec, _) => {
            let name = program::name(request);
            (
                SetupFailureKind::ProgramNotExecutable,
                format!("`{name}` cannot be executed: {said}"),
            )
        }
        (Stage::Cwd, _) => {
            let fix = match said {
                Errno::ACCESS => {
                    "check that you may enter the workspace, or name another with --cwd"
                }
                _ => "name one that exists inside with --cwd",
            };
            (
                SetupFailureKind::Sandbox,
                format!("cannot start in the working directory: {said}; {fix}"),
            )
        }
        (stage, _) => (
            SetupFailureKind::Sandbox,
            format!("could not {}: {said}", stage.describe()),
        ),
    };
    SetupFailure {
        kind,
        step: stage.describe().to_owned(),
        message,
        errno: Some(errno),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use cofferdam_contract::units::Bytes;

    use super::*;

    fn request() -> Request {
        Request::command(["true"])
    }

    fn ended(status: WaitStatus, refused: Option<StopCause>, cause: Option<StopCause>) -> Ending {
        let request = request();
        settle(Evidence {
            request: &request,
            steps: &[],
            cause,
            refused,
            disk: None,
            started: Started::Yes,
            report: Report::Ended(status),
        })
    }

    const MEMORY: StopCause = StopCause::Memory {
        limit: Bytes::new(1 << 20),
    };

    #[test]
    fn whoever_stopped_the_run_is_the_cause() {
        let wall = StopCause::WallTime {
            limit: Duration::from_secs(1),
        };
        let status = WaitStatus::Exited { code: 0 };
        assert_eq!(
            ended(status, Some(MEMORY), Some(wall.clone())),
            Ending::Stopped(wall)
        );
    }

    #[test]
    fn the_kernels_evidence_explains_a_failure_and_not_a_success() {
        let killed = WaitStatus::Signaled { signal: SIGKILL };
        assert_eq!(ended(killed, Some(MEMORY), None), Ending::Stopped(MEMORY));
        assert_eq!(
            ended(killed, None, None),
            Ending::Signaled { signal: SIGKILL }
        );
        let fine = WaitStatus::Exited { code: 0 };
        assert_eq!(ended(fine, Some(MEMORY), None), Ending::Exited { code: 0 });
    }

    #[test]
    fn only_the_signal_of_a_limit_that_the_kernel_sends_names_it() {
        const SIGXCPU: i32 = 24;
        assert_eq!(
            ended(WaitStatus::Signaled { signal: SIGXCPU }, None, None),
            Ending::Signaled { signal: SIGXCPU }
        );
        let file = ended(WaitStatus::Signaled { signal: SIGXFSZ }, None, None);
        let limit = Bytes::new(1 << 30);
        assert_eq!(
            file,
            Ending::Stopped(StopCause::Disk {
                limit,
                place: DiskPlace::Scratch
            })
        );
    }

    #[test]
    fn an_init_that_vanished_during_set_up_never_started_anything() {
        let request = request();
        let ending = settle(Evidence {
            request: &request,
            steps: &[],
            cause: None,
            refused: None,
            disk: None,
            started: Started::No,
            report: Report::InitGone,
        });
        assert!(matches!(ending, Ending::NeverStarted(_)), "{ending:?}");
    }
}
