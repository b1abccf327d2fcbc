//! Watches over one run from its start to its end: moves its input and output, enforces what the kernel does not, and settles how it ended, once, from
//! evidence.

mod calls;
mod interest;

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use cofferdam_contract::ending::{Ending, StopCause, Stream};
use cofferdam_contract::network_record::NetworkRecord;
use cofferdam_contract::record::Denial;
use cofferdam_contract::units::{Bytes, Cap};
use cofferdam_contract::usage::Usage;
use cofferdam_sys::blueprint::Isolation;
use cofferdam_sys::cgroup::{Counters, RunGroup};
use cofferdam_sys::descendants;
use cofferdam_sys::janitor::Remover;
use cofferdam_sys::launch::Sandbox;
use cofferdam_sys::protocol::{Event, ProcView};
use cofferdam_sys::routes;
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;

use crate::capture::{Budget, Drain, Drained, ResultDrain};
use crate::denials;
use crate::feed::Feed;
use crate::fixed::Answers;
use crate::outer::{Attended, Told};
use crate::outlet::Outlet;
use crate::plan::Terms;
use crate::recording::Recorder;
use crate::settle::{self, Evidence, Report, Started};
use crate::stand::Waste;
use crate::watch::Watch;
use interest::Source;

/// A sandbox that has been started, with everything that belongs to it.
#[derive(Debug)]
pub(crate) struct Running<'a> {
    pub(crate) terms: Terms,
    pub(crate) sandbox: Sandbox,
    pub(crate) group: Option<RunGroup>,
    pub(crate) remover: Option<Remover>,
    pub(crate) feed: Feed,
    pub(crate) stdout: Drain,
    pub(crate) stderr: Drain,
    pub(crate) result: Option<ResultDrain>,
    pub(crate) budget: Budget,
    /// Where the run is being written down, if it is.
    pub(crate) recorder: Option<Recorder>,
    pub(crate) watch: Watch,
    /// The ways out, where the run has any.
    pub(crate) outlet: Outlet,
    /// Where a tool has built the walls.
    pub(crate) attended: Option<Attended>,
    /// Children that this process had before the run; not its business.
    pub(crate) children_before: Vec<u32>,
    /// Readable when the caller wants the run to end.
    pub(crate) cancel: Option<BorrowedFd<'a>>,
    /// What the sandbox said before there was a run.
    pub(crate) told: Vec<Event>,
    /// Where the run must give the same each time.
    pub(crate) fixed: Option<Answers>,
    pub(crate) clearing: Clearing,
}

/// When what is left of a run in which nobody is left is cleared away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Clearing {
    /// It begins before the record is made, whose caller waits for both.
    Meanwhile,
    /// Somebody else has the time, once the record is there.
    Later,
}

/// A run that is over: nothing of it is left but this, once its waste is gone.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) waste: Waste,
    pub(crate) terms: Terms,
    pub(crate) ending: Ending,
    pub(crate) usage: Usage,
    pub(crate) stdout: Drain,
    pub(crate) stderr: Drain,
    pub(crate) result: Option<ResultDrain>,
    pub(crate) denials: Vec<Denial>,
    pub(crate) network: Option<NetworkRecord>,
    pub(crate) recorder: Option<Recorder>,
    pub(crate) proc: ProcView,
    /// The upper layer of a copy-on-write workspace.
    pub(crate) upper: Option<OwnedFd>,
    /// What was fixed in a run that must give the same each time.
    pub(crate) determinism: Option<BTreeMap<String, String>>,
}

/// How long the init of a run without a pid namespace gets to end everything.
const HOST_INIT_PATIENCE: Duration = Duration::from_secs(1);

/// Supervises until the end.
pub(crate) fn supervise(mut running: Running<'_>) -> Result<Ended, Errno> {
    let told = std::mem::take(&mut running.told);
    let mut supervisor = Supervisor {
        run: running,
        buffer: Vec::new(),
        listener: None,
        denied: BTreeMap::new(),
        started: None,
        deadline: None,
        over: Over::No,
        cause: None,
        report: None,
        cpu_by_wait: Duration::ZERO,
        routes: None,
        proc: ProcView::Absent,
        upper: None,
    };
    for event in told {
        supervisor.note(event);
    }
    loop {
        if let Some(report) = supervisor.report.take() {
            return supervisor.finish(report);
        }
        supervisor.turn()?;
    }
}

struct Supervisor<'a> {
    run: Running<'a>,
    buffer: Vec<u8>,
    listener: Option<OwnedFd>,
    /// How often each system call was refused.
    denied: BTreeMap<u32, u64>,
    started: Option<Instant>,
    deadline: Option<Instant>,
    over: Over,
    /// Set by whoever stops the run, once.
    cause: Option<StopCause>,
    /// What init said last about the program.
    report: Option<Report>,
    cpu_by_wait: Duration,
    /// Of the program's network namespace, where they are wanted.
    routes: Option<routes::Counters>,
    proc: ProcView,
    upper: Option<OwnedFd>,
}

/// Whether the program has ended by itself, or been ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Over {
    Yes,
    No,
}

impl Supervisor<'_> {
    /// Waits for the next thing to happen and deals with it.
    fn turn(&mut self) -> Result<(), Errno> {
        let ready = self.wait()?;
        for (source, happened) in ready {
            match source {
                Source::Control => self.listen()?,
                Source::Guest => self.look_at_guest(),
                Source::Stdout => self.drain(Stream::Stdout),
                Source::Stderr => self.drain(Stream::Stderr),
                Source::Result => self.drain_result(),
                Source::Stdin => self.run.feed.advance(),
                // Nobody is left who could call.
                Source::Listener if !happened.contains(PollFlags::IN) => self.listener = None,
                Source::Listener => self.answer_call(),
                Source::Random => self.fill_random(),
                Source::Cancel => self.stop(StopCause::Canceled),
            }
        }
        if self.report.is_some() {
            return Ok(());
        }
        let now = Instant::now();
        if let (Some(deadline), Cap::AtMost(limit)) =
            (self.deadline, self.run.terms.request.limits.wall_time)
            && now >= deadline
        {
            self.stop(StopCause::WallTime { limit });
        }
        if self.started.is_some()
            && self.cause.is_none()
            && now >= self.run.watch.next_look()
            && let Some(cause) = self.run.watch.look(self.run.group.as_ref())
        {
            self.stop(cause);
        }
        Ok(())
    }

    /// Reads what init has to say.
    fn listen(&mut self) -> Result<(), Errno> {
        let event = match self.run.sandbox.receive() {
            Ok(Some(event)) => event,
            Ok(None) => {
                self.report.get_or_insert(Report::InitGone);
                return Ok(());
            }
            // Init went without reading everything, which is told once; what it said before is still to come.
            Err(Errno::CONNRESET | Errno::AGAIN | Errno::INTR) => return Ok(()),
            Err(errno) => return Err(errno),
        };
        self.note(event);
        Ok(())
    }

    /// A program's process that came from elsewhere is our child, and not init's. What it said before it ended comes first.
    fn look_at_guest(&mut self) {
        while let Ok(Some(event)) = self.run.sandbox.receive() {
            self.note(event);
        }
        if self.report.is_some() {
            return;
        }
        match (self.run.sandbox.guest_ended(), self.started) {
            (Some((status, cpu)), Some(_)) => self.note(Event::Exited { status, cpu }),
            // It was ended before it was the program, or nobody can tell any more how it ended.
            (Some(_), None) => self.report = Some(Report::InitGone),
            (None, _) if self.run.sandbox.guest_pidfd().is_none() => {
                self.report = Some(Report::InitGone);
            }
            (None, _) => {}
        }
    }

    fn note(&mut self, event: Event) {
        match event {
            Event::Ready { dirs, proc } => {
                let mut dirs = dirs.into_iter();
                if let Some(scratch) = dirs.next() {
                    if let Some(fixed) = &mut self.run.fixed {
                        fixed.open_device(scratch.as_fd());
                    }
                    self.run.watch.set_scratch(scratch);
                }
                self.upper = dirs.next();
                self.proc = proc;
            }
            Event::Waiting | Event::Joined | Event::Namespaces { .. } | Event::Guest { .. } => {}
            Event::Listener { fd } => {
                self.listener = Some(fd);
                self.run.watch.expect_shared_memory_reports();
            }
            Event::Routes { counters } => self.routes = Some(counters),
            Event::Door { index, socket } => {
                self.report = self.run.outlet.take(index, socket).err().or(self.report)
            }
            Event::Started { at } => self.begin(at),
            Event::Exited { status, cpu } => {
                self.cpu_by_wait = cpu;
                self.report = Some(Report::Ended(status));
            }
            Event::SetupFailed { stage, errno } => {
                self.report = Some(Report::SetupFailed { stage, errno })
            }
            Event::ExecFailed { stage, errno } => {
                self.report = Some(Report::ExecFailed { stage, errno })
            }
        }
    }

    /// The program's time runs from the moment at which it said that it goes, not from when we heard of it.
    fn begin(&mut self, at: Duration) {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        let now = Duration::try_from(now).unwrap_or(at);
        let started = Instant::now()
            .checked_sub(now.saturating_sub(at))
            .unwrap_or_else(Instant::now);
        self.started = Some(started);
        let limit = self.run.terms.request.limits.wall_time.at_most();
        self.deadline = limit.and_then(|limit| started.checked_add(limit));
    }

    fn drain(&mut self, stream: Stream) {
        let drain = match stream {
            Stream::Stdout => &mut self.run.stdout,
            Stream::Stderr => &mut self.run.stderr,
        };
        let journal = self.run.recorder.as_mut().and_then(Recorder::journal);
        match drain.advance(&mut self.run.budget, &mut self.buffer, journal) {
            Drained::Open | Drained::Ended => {}
            Drained::OverLimit => {
                drain.close();
                if let Cap::AtMost(limit) = self.run.terms.request.limits.output {
                    self.stop(StopCause::Output { limit, stream });
                }
            }
            // As a shell does to the left side of a pipe whose right side has ended.
            Drained::ReaderGone if self.over == Over::No => self.stop(StopCause::Canceled),
            Drained::ReaderGone => {}
        }
    }

    fn drain_result(&mut self) {
        if let Some(result) = &mut self.run.result {
            result.advance(&mut self.buffer);
        }
    }

    /// Ends the run for `cause`, unless something has ended it already.
    fn stop(&mut self, cause: StopCause) {
        if self.cause.is_none() {
            self.cause = Some(cause);
            self.kill();
            // Whatever init may still say cannot change anything.
            self.report.get_or_insert(Report::InitGone);
        }
    }

    /// Everything at once: with a pid namespace its init takes all with it; without one the group does, and init finds the rest.
    fn kill(&mut self) {
        match self.run.sandbox.blueprint().isolation {
            Isolation::Namespaces(_) => {
                let _ = self.run.sandbox.kill();
            }
            Isolation::None => {
                if let Some(group) = &self.run.group {
                    group.kill();
                }
                self.run.sandbox.end();
            }
        }
    }

    /// Clears up, reads the last output and the kernel's last figures, and has the ending settled.
    fn finish(mut self, report: Report) -> Result<Ended, Errno> {
        let wall = self
            .started
            .map_or(Duration::ZERO, |started| started.elapsed());
        self.over = Over::Yes;
        let mut disk = None;
        let counters = if self.cause.is_none() {
            // Before the tree is torn down: files without a name are gone with their processes. The kernel's figures are final, since what is left of
            // the tree is about to be killed, so the group can go meanwhile.
            let counters = self.counters();
            if report.is_failure() {
                disk = self.run.watch.met_disk_limit();
            }
            if self.is_deserted() {
                // Nobody is left who could write anything, or would have to be waited for.
                if self.run.clearing == Clearing::Meanwhile {
                    self.kill();
                    self.begin_removal();
                }
            } else {
                self.kill();
                self.begin_removal();
                // While init goes: letting go of these takes time too.
                self.listener = None;
                self.run.group = None;
                self.run.feed.close();
                self.reap()?;
            }
            counters
        } else {
            self.kill();
            self.reap()?;
            let counters = self.counters();
            self.begin_removal();
            counters
        };
        self.run.feed.close();
        self.last_words();
        let told = Told::of(self.run.attended.take(), report);
        let disk = disk.or_else(|| told.disk_cause(self.run.terms.request.limits.disk));
        let ending = settle::settle(Evidence {
            request: &self.run.terms.request,
            steps: &self.run.sandbox.blueprint().steps,
            cause: self
                .cause
                .or_else(|| told.cause(self.run.terms.request.limits.processes)),
            refused: self.run.watch.refused(&counters),
            disk,
            started: if self.started.is_some() {
                Started::Yes
            } else {
                Started::No
            },
            report: told.report,
        });
        let without_route = self
            .routes
            .as_ref()
            .map_or(0, routes::Counters::attempts_without_route);
        // Everybody who could use them is gone.
        let (network, turned_away) = self.run.outlet.close();
        let denials = [denials::list(&self.denied, without_route), turned_away].concat();
        let mut usage = self.run.watch.usage(&counters, self.cpu_by_wait);
        usage.wall = wall;
        usage.output = Bytes::new(self.run.stdout.seen() + self.run.stderr.seen());
        told.correct(&mut usage);
        Ok(Ended {
            waste: Waste::new(self.run.sandbox, self.run.group, self.run.remover),
            terms: self.run.terms,
            ending,
            usage,
            stdout: self.run.stdout,
            stderr: self.run.stderr,
            result: self.run.result,
            denials,
            network,
            recorder: self.run.recorder,
            proc: self.proc,
            upper: self.upper,
            determinism: self.run.fixed.as_ref().map(Answers::account),
        })
    }

    /// Without a pid namespace, init is within its program's reach. If that ended it or holds it up, what it should have ended is ours to end: orphans come to
    /// us, and we know which children we had before. Behind a tool's walls nobody reaches init.
    fn reap(&mut self) -> Result<(), Errno> {
        match self.run.sandbox.blueprint().isolation {
            Isolation::Namespaces(_) => self.run.sandbox.reap(),
            Isolation::None => {
                self.run.sandbox.reap_or_kill(HOST_INIT_PATIENCE)?;
                let mut spared = self.run.children_before.clone();
                spared.extend(self.run.remover.as_ref().and_then(Remover::pid));
                if self.run.attended.is_none() || descendants::has_children_but(&spared) {
                    descendants::kill_all_but(&spared);
                }
                Ok(())
            }
        }
    }

    /// Whether nobody but init is left, which ends with its sandbox.
    fn is_deserted(&self) -> bool {
        let is_walled = matches!(
            self.run.sandbox.blueprint().isolation,
            Isolation::Namespaces(_)
        );
        is_walled && self.run.group.as_ref().is_some_and(RunGroup::is_deserted)
    }

    fn begin_removal(&mut self) {
        if let Some(remover) = &mut self.run.remover {
            remover.begin();
        }
    }

    fn counters(&self) -> Counters {
        self.run
            .group
            .as_ref()
            .map(RunGroup::counters)
            .unwrap_or_default()
    }

    /// Every process is gone, so what is in the pipes now is all there will be. A reader of ours that takes its time is waited for: the output is the caller's,
    /// and only the caller can give it up.
    fn last_words(&mut self) {
        loop {
            self.drain(Stream::Stdout);
            self.drain(Stream::Stderr);
            self.drain_result();
            let mut fds: Vec<PollFd<'_>> = Vec::with_capacity(4);
            for drain in [&mut self.run.stdout, &mut self.run.stderr] {
                if let Some((fd, flags)) = drain.last_interest() {
                    fds.push(PollFd::from_borrowed_fd(fd, flags));
                }
            }
            let result = self.run.result.as_mut();
            if let Some((fd, flags)) = result.and_then(ResultDrain::last_interest) {
                fds.push(PollFd::from_borrowed_fd(fd, flags));
            }
            if fds.is_empty() {
                return;
            }
            let streams = fds.len();
            fds.extend(
                self.run
                    .cancel
                    .map(|cancel| PollFd::from_borrowed_fd(cancel, PollFlags::IN)),
            );
            let waited = rustix::event::poll(&mut fds, None);
            let canceled = fds.iter().skip(streams).any(|fd| !fd.revents().is_empty());
            if canceled || waited.is_err_and(|errno| errno != Errno::INTR) {
                return;
            }
        }
    }
}
