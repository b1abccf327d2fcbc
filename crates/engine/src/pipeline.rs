//! The whole path of a run, in order. Each step consumes what the one before it made:
//!
//! ```text
//! Request ─grant─▶ Grant ─plan─▶ Plan ─start─▶ Running ─supervise─▶ Ended ─▶ RunRecord ─▶ history
//! ```
//!
//! A [`Grant`] can only be made by checking a request, and only a grant can be planned, so nothing runs that was not checked.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use cofferdam_contract::ending::Stream;
use cofferdam_contract::enforcement::LimitName;
use cofferdam_contract::record::{FinishedRun, RunRecord};
use cofferdam_contract::request::{Grant, MountAccess, Network, Request, WorkspaceAccess};
use cofferdam_contract::units::Cap;
use cofferdam_store::RunId;
use cofferdam_sys::blueprint::{Isolation, Privileged};
use cofferdam_sys::cgroup::RunGroup;
use cofferdam_sys::descendants;
use cofferdam_sys::protocol::{Event, ProcView};
use cofferdam_sys::signals;
use jiff::Timestamp;
use rustix::io::Errno;
use rustix::process::Signal;
use rustix::time::ClockId;

pub use crate::capture::{OnLimit, Sink};
pub use crate::feed::Input;
pub use crate::live_usage::{LiveUsage, Sample};
pub use crate::plan::{Evidence, RESULT_VARIABLE};
pub use crate::recording::{KeptFiles, Recording, Results, Secrets};

use crate::ahead;
use crate::capture::{Budget, Drain, ResultDrain};
use crate::changes;
use crate::disk::Growth;
use crate::error::EngineError;
use crate::feed::Feed;
use crate::fixed::Answers;
use crate::headstart::Headstart;
use crate::host::Host;
use crate::outlet::Outlet;
use crate::pipes;
use crate::plan::{self, Channel, Enclosure, Plan};
use crate::pool::Seat;
use crate::stand::Stand;
use crate::supervise::{self, Clearing, Ended, Running};
use crate::walls;
use crate::watch::Watch;

/// Where a run's streams come from and go to, and how its caller can end it.
#[derive(Debug)]
pub struct Streams<'a> {
    pub stdin: Input,
    pub stdout: Sink,
    pub stderr: Sink,
    /// How much is kept of what the program says over a channel of its own, descriptor 3, whose number is in [`RESULT_VARIABLE`]; `None` for no such channel.
    /// What it prints cannot be taken for it.
    pub result: Option<usize>,
    pub on_output_limit: OnLimit,
    pub evidence: Evidence,
    /// The run is cancelled when this becomes readable.
    pub cancel: Option<BorrowedFd<'a>>,
    /// Where the run is written down, from before its start; `None` keeps nothing.
    pub recording: Option<Recording>,
    /// Where it is told what the run uses while it goes on; `None` where nobody watches.
    pub usage: Option<Arc<LiveUsage>>,
}

impl Streams<'_> {
    /// No input, so much of each output kept, and nothing more found out or written down than how it ended.
    pub fn kept(at_most: usize) -> Self {
        Self {
            stdin: Input::Empty,
            stdout: Sink::Keep { at_most },
            stderr: Sink::Keep { at_most },
            result: None,
            on_output_limit: OnLimit::Stop,
            evidence: Evidence::Ending,
            cancel: None,
            recording: None,
            usage: None,
        }
    }
}

/// Runs a granted request to its end.
pub fn run(grant: Grant, streams: Streams<'_>, host: &Host) -> Result<RunRecord, EngineError> {
    run_in(Quarters::default(), grant, streams, host)
}

/// Where a run takes place.
#[derive(Debug)]
#[allow(
    clippy::large_enum_variant,
    reason = "one for each run, moved a few times: a box would cost more"
)]
pub enum Quarters {
    /// In a sandbox that is built for it, of which something may be on its way.
    New(Option<Headstart>),
    /// In one that stands already. If it was built for other walls than the request wants, or has ended meanwhile, it is not used.
    Seat(Seat),
}

impl Default for Quarters {
    fn default() -> Self {
        Self::New(None)
    }
}

impl From<Option<Seat>> for Quarters {
    fn from(seat: Option<Seat>) -> Self {
        seat.map_or_else(Self::default, Self::Seat)
    }
}

/// The same in quarters that somebody has prepared.
pub fn run_in(
    quarters: Quarters,
    grant: Grant,
    streams: Streams<'_>,
    host: &Host,
) -> Result<RunRecord, EngineError> {
    let recording = streams.recording.as_ref();
    let run_id = recording.map_or_else(RunId::new, |recording| recording.run_id);
    let started_at = whole_micros(Timestamp::now());
    if let Some(recording) = &streams.recording {
        recording.check(grant.request())?;
        // A limit on the size of our own files is a full journal, not our end.
        signals::hold_back(Signal::XFSZ).map_err(EngineError::system("hold a signal back"))?;
    }
    let channel = match streams.result {
        Some(_) => Channel::Open,
        None => Channel::None,
    };
    let plan = plan::plan(grant, host, streams.evidence, channel)?;
    let cancel = streams.cancel;
    let quarters = match quarters {
        Quarters::Seat(seat) => Quarters::from(seat.fitted(&plan)),
        Quarters::New(headstart) => Quarters::New(headstart),
    };
    let bin = match &quarters {
        Quarters::Seat(seat) => Some(seat.bin()),
        Quarters::New(_) => None,
    };
    let birth = Birth { run_id, started_at };
    let running = start(plan, quarters, streams, host, birth)?;
    let mut ended =
        supervise::supervise(running).map_err(EngineError::system("supervise the run"))?;
    let failures = [
        (Stream::Stdout, ended.stdout.failure()),
        (Stream::Stderr, ended.stderr.failure()),
    ];
    let recorder = ended.recorder.take();
    let upper = ended.upper.take();
    // Writing the end down fits in while the groups are removed.
    let waste = std::mem::take(&mut ended.waste);
    let mut record = record(ended, upper.as_ref(), Birth { run_id, started_at });
    record.unrecorded = recorder.and_then(|recorder| recorder.finish(&record, upper, cancel));
    // What holds much memory until it is gone is not left to others: the caller counts on having it back.
    let is_small = record.usage.disk_bytes.unwrap_or(0) <= SMALL_SCRATCH;
    match bin.filter(|_| is_small) {
        Some(bin) => bin.leave(waste),
        None => drop(waste),
    }
    for (stream, failure) in failures {
        if let Some(errno) = failure {
            return Err(EngineError::OutputWriteFailed { stream, errno });
        }
    }
    Ok(record)
}

const SMALL_SCRATCH: u64 = 1 << 20;

/// As exact as times are kept everywhere: one that was printed finds its run again.
pub(crate) fn whole_micros(time: Timestamp) -> Timestamp {
    Timestamp::from_microsecond(time.as_microsecond()).unwrap_or(time)
}

/// What a run is known by.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Birth {
    pub(crate) run_id: RunId,
    pub(crate) started_at: Timestamp,
}

fn start<'a>(
    plan: Plan,
    quarters: Quarters,
    streams: Streams<'a>,
    host: &Host,
    birth: Birth,
) -> Result<Running<'a>, EngineError> {
    let open = EngineError::system("look at an output stream");
    let Plan {
        enclosure,
        errand,
        bounds,
        mut terms,
        attended,
    } = plan;
    let (mut seat, headstart) = match quarters {
        Quarters::Seat(seat) => (Some(seat), None),
        Quarters::New(headstart) => (None, headstart),
    };
    // One that has started has its streams, and goes by a sign on them.
    let (theirs, ends, sign) = match seat.as_mut().and_then(Seat::take_streams) {
        Some(ends) => (None, ends, ahead::GO.to_vec()),
        None => {
            let channel = match streams.result {
                Some(_) => Channel::Open,
                None => Channel::None,
            };
            let (theirs, ends) = pipes::make(channel)?;
            (Some(theirs), ends, Vec::new())
        }
    };
    let departure = errand.departure.as_ref();
    if let (Some(theirs), Some(&(uid, gid))) =
        (&theirs, departure.and_then(|gone| gone.identity.as_ref()))
    {
        theirs.hand_over(uid, gid)?;
    }
    let seed = match &enclosure {
        Enclosure::Walls(walls) => walls.seed,
        Enclosure::None(_) => None,
    };
    let children_before = adopt_orphans(&enclosure)?;
    let start = seat.as_ref().and_then(Seat::start);
    let clearing = match seat {
        Some(_) => Clearing::Later,
        None => Clearing::Meanwhile,
    };
    let stand = match seat {
        Some(seat) => seat.take(errand)?,
        None => {
            let name = format!("cofferdam-{}", birth.run_id);
            let task = (enclosure, errand);
            let built = Stand::build(task, &bounds, &name, host, headstart);
            built.map_err(|error| error.of_backend(terms.request.backend))?
        }
    };
    // What goes first when something fails here is declared last: the processes.
    let Stand {
        mut told,
        remover,
        group,
        sandbox,
    } = stand;
    if let Isolation::Namespaces(identity) = sandbox.blueprint().isolation {
        if let (Some(theirs), Privileged::Yes) = (&theirs, identity.privileged) {
            theirs.hand_over(identity.outside_uid, identity.outside_gid)?;
        }
        terms.isolation = walls::isolation(&identity, &terms.request.root, host);
        if terms.request.network != Network::Denied {
            let network = terms.request.network.to_string();
            terms.isolation.insert("network".to_owned(), network);
        }
        if let Some(start) = start {
            terms.isolation.insert("start".to_owned(), start);
        }
    }
    let fixed = seed.map(Answers::new);
    // Fits in while the sandbox takes its last steps; earlier, it would be in the way of the first.
    let recorder = streams
        .recording
        .map(|recording| recording.begin(&terms.request, birth));
    let joins = group.as_ref().map(RunGroup::joins).unwrap_or_default();
    // Before the program can write anything.
    let growths = growths(&terms.request)?;
    // An init that could not build the sandbox is gone by now, and its reason waits in the socket.
    match &theirs {
        Some(theirs) => match sandbox.go(&theirs.given(), &joins) {
            Ok(()) | Err(Errno::PIPE | Errno::CONNRESET) => {}
            Err(errno) => return Err(EngineError::system("let the program go")(errno)),
        },
        // It went long ago, and begins with the sign.
        None => {
            let now = rustix::time::clock_gettime(ClockId::Monotonic);
            let at = Duration::try_from(now).unwrap_or_default();
            told.push(Event::Started { at });
        }
    }
    drop(theirs);
    let guest = match growths.as_slice() {
        [] => None,
        // Only whoever has a directory of the caller's to fill is looked for.
        _ => sandbox.guest_pid(),
    };
    let result = ends.result.zip(streams.result);
    let result = result.map(|(end, at_most)| ResultDrain::new(end, at_most));
    let result = result.transpose().map_err(&open)?;
    let mut watch = Watch::new(&terms, sandbox.pid(), growths);
    if let Some(guest) = guest {
        watch.look_at_guest(guest);
    }
    if let Some(usage) = streams.usage {
        watch.tell(usage);
    }
    Ok(Running {
        feed: Feed::new(ends.stdin, sign, streams.stdin),
        stdout: Drain::new(Stream::Stdout, ends.stdout, streams.stdout).map_err(&open)?,
        stderr: Drain::new(Stream::Stderr, ends.stderr, streams.stderr).map_err(&open)?,
        result,
        budget: Budget::new(terms.request.limits.output, streams.on_output_limit),
        recorder,
        watch,
        outlet: Outlet::new(&terms.request.network),
        attended,
        cancel: streams.cancel,
        children_before,
        terms,
        sandbox,
        group,
        remover,
        told,
        fixed,
        clearing,
    })
}

fn record(mut ended: Ended, upper: Option<&OwnedFd>, birth: Birth) -> RunRecord {
    let request = &ended.terms.request;
    let changes = match (upper, &request.workspace) {
        (Some(upper), Some(workspace)) => Some(changes::list(upper, &workspace.path)),
        _ => None,
    };
    if !ended.terms.isolation.is_empty() {
        let proc = match ended.proc {
            ProcView::Own => "own",
            ProcView::Absent => "absent",
        };
        ended
            .terms
            .isolation
            .entry("proc".to_owned())
            .or_insert_with(|| proc.to_owned());
    }
    let determinism = ended.determinism.take();
    let mut record = RunRecord::new(FinishedRun {
        run_id: birth.run_id.to_string(),
        backend: ended.terms.request.backend,
        ending: ended.ending,
        stdout: ended.stdout.into_captured(),
        stderr: ended.stderr.into_captured(),
        result: ended.result.map(ResultDrain::into_captured),
        usage: ended.usage,
        enforced_by: ended.terms.enforced_by,
        isolation: ended.terms.isolation,
        denials: ended.denials,
        changes,
        started_at: birth.started_at,
        ended_at: whole_micros(Timestamp::now()),
    });
    record.network = ended.network;
    record.determinism = determinism;
    record
}

/// Without a pid namespace, what loses its parent must come to us and not get away. Returns the children that this process has already.
fn adopt_orphans(enclosure: &Enclosure) -> Result<Vec<u32>, EngineError> {
    if matches!(enclosure, Enclosure::Walls(_)) {
        return Ok(Vec::new());
    }
    let own = rustix::process::getpid();
    rustix::process::set_child_subreaper(Some(own))
        .map_err(EngineError::system("adopt orphans"))?;
    Ok(descendants::children())
}

/// The directories of the caller's that the program may fill. One that cannot be looked at could be filled without anybody noticing.
pub(crate) fn growths(request: &Request) -> Result<Vec<Growth>, EngineError> {
    let Cap::AtMost(limit) = request.limits.disk else {
        return Ok(Vec::new());
    };
    let workspace = request
        .workspace
        .iter()
        .filter(|workspace| workspace.access == WorkspaceAccess::ReadWrite);
    let mounts = request
        .mounts
        .iter()
        .filter(|mount| mount.access == MountAccess::ReadWrite);
    let paths = workspace
        .map(|workspace| &workspace.path)
        .chain(mounts.map(|mount| &mount.source));
    let watched = paths.filter_map(|path| match Growth::new(path, limit) {
        Ok(growth) => Some(Ok(growth)),
        // A single file is held by the limit on the size of files.
        Err(Errno::NOTDIR) => None,
        Err(_) if request.waived.contains(&LimitName::Disk) => None,
        Err(errno) => Some(Err(EngineError::Unenforceable {
            limit: LimitName::Disk,
            why: format!("`{}` cannot be listed: {errno}", path.display()),
            fix: "make it readable for yourself (chmod u+rx)".to_owned(),
        })),
    });
    watched.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use cofferdam_contract::limits::Limits;
    use cofferdam_contract::request::Workspace;

    #[test]
    fn a_directory_that_cannot_be_looked_at_has_no_silent_limit() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        std::fs::write(&file, "").unwrap();
        let with = |path: &std::path::Path| Request {
            limits: Limits::DEFAULT,
            workspace: Some(Workspace {
                path: path.to_owned(),
                access: WorkspaceAccess::ReadWrite,
            }),
            ..Request::command(["true"])
        };
        assert_eq!(growths(&with(dir.path())).unwrap().len(), 1);
        assert_eq!(growths(&with(&file)).unwrap().len(), 0);
        let mut gone = with(&dir.path().join("gone"));
        let told = growths(&gone).unwrap_err().to_string();
        assert!(told.contains("disk") && told.contains("gone"), "{told}");
        gone.waived = vec![LimitName::Disk];
        assert_eq!(growths(&gone).unwrap().len(), 0);
    }
}
