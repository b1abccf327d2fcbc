//! Watches over a container from its start to its end: moves input and output, holds the limits that are held here, asks it to end and then ends it.

use std::future::pending;
use std::os::fd::BorrowedFd;
use std::pin::Pin;
use std::time::{Duration, Instant};

use bollard::Docker;
use bollard::container::{AttachContainerResults, LogOutput};
use bollard::errors::Error;
use bollard::models::ContainerInspectResponse;
use bollard::query_parameters::{
    InspectContainerOptions, KillContainerOptionsBuilder, WaitContainerOptionsBuilder,
};
use cofferdam_contract::ending::{DiskPlace, StopCause, Stream};
use cofferdam_contract::limits::Limits;
use cofferdam_contract::units::Cap;
use cofferdam_engine::backend::{self, Filling, OpenRun, Taken};
use futures_util::StreamExt as _;

use crate::course::Failed;
use crate::daemon;
use crate::feed::Feed;
use crate::meter::{self, Counted, Meter};
use crate::ready::{Cancel, Reader};
use crate::scratch::Scratch;
use crate::settings::{Init, Settings};

/// A container that has been started.
#[derive(Debug)]
pub(crate) struct Watching<'a> {
    pub(crate) client: &'a Docker,
    pub(crate) id: &'a str,
    pub(crate) settings: &'a Settings,
    pub(crate) filling: Option<Filling>,
    pub(crate) cancel: Option<BorrowedFd<'a>>,
    pub(crate) started: Instant,
}

/// What was seen of it.
#[derive(Debug)]
pub(crate) struct Seen {
    /// Set by whoever stopped it, once.
    pub(crate) cause: Option<StopCause>,
    pub(crate) code: i64,
    pub(crate) wall: Duration,
    pub(crate) counted: Counted,
    /// Its scratch space, where it can be looked at.
    pub(crate) scratch: Option<Scratch>,
    /// Whether the program printed anything. An init says on the other stream what it could not execute.
    pub(crate) has_printed: bool,
}

/// What whoever watches is told, at most this often.
const SAMPLE: Duration = Duration::from_millis(250);
/// The stream of a container that has ended closes by itself; this long without a word it is closed for it.
const SILENCE: Duration = Duration::from_secs(5);

impl Watching<'_> {
    pub(crate) async fn follow(
        mut self,
        open: &mut OpenRun,
        attached: AttachContainerResults,
        feed: Option<&mut Feed>,
    ) -> Result<Seen, Failed> {
        let AttachContainerResults { mut output, input } = attached;
        let mut pump: Pin<Box<dyn Future<Output = ()> + '_>> = match feed {
            Some(feed) => Box::pin(feed.pump(input)),
            None => Box::pin(async { drop(input) }),
        };
        let (client, id) = (self.client, self.id);
        let mut found: Asked<'_, Result<ContainerInspectResponse, Error>> = Some(Box::pin(
            client.inspect_container(id, None::<InspectContainerOptions>),
        ));
        let mut stats: Asked<'_, Option<Counted>> = None;
        let ended = WaitContainerOptionsBuilder::default()
            .condition("not-running")
            .build();
        let mut wait = Box::pin(client.wait_container(id, Some(ended)));
        let cancel = Cancel::new(self.cancel);
        let filling = self.filling.take();
        let mut state = State::new(&self, filling, open.request().limits.clone());
        let (mut is_pumped, mut is_closed) = (false, false);
        loop {
            if state.is_over(is_closed, open) {
                break;
            }
            let reader = open.waits_for().map(Reader::new);
            let next = state.next();
            tokio::select! {
                () = cancel.wished(), if !state.has_given_up => {
                    state.stop(StopCause::Canceled);
                    state.has_given_up = true;
                }
                ended = wait.next(), if state.ended.is_none() => state.note_end(ended)?,
                piece = output.next(), if !is_closed && reader.is_none() => match piece {
                    Some(Ok(piece)) => {
                        state.heard = Instant::now();
                        state.take(open, piece);
                    }
                    // The daemon tells what has become of the container in another way.
                    Some(Err(_)) | None => is_closed = true,
                },
                () = room(reader.as_ref()), if reader.is_some() => {
                    // Nobody listened while the reader was full: what is said next is still to come.
                    state.heard = Instant::now();
                    if let Taken::Stop(cause) = open.pass_on() {
                        state.stop(cause);
                    }
                }
                killed = answer(&mut state.killing), if state.killing.is_some() => {
                    state.killing = None;
                    note_kill(killed)?;
                }
                () = &mut pump, if !is_pumped => is_pumped = true,
                told = answer(&mut found), if found.is_some() => {
                    found = None;
                    let process = told.ok().and_then(|told| told.state).and_then(|state| state.pid);
                    if let Some(pid) = process.filter(|pid| *pid > 0 && self.settings.endpoint.is_local()) {
                        state.meter.find(pid, id);
                        if state.meter.reads_groups() {
                            state.scratch = Scratch::open(pid);
                        }
                    }
                }
                told = answer(&mut stats), if stats.is_some() => {
                    stats = None;
                    state.meter.take(told.unwrap_or_default());
                    state.look(open)?;
                }
                () = tokio::time::sleep_until(next.into()) => {
                    if state.is_to_be_asked(found.is_none() && stats.is_none()) {
                        stats = Some(Box::pin(meter::ask(client, id)));
                    }
                    state.look(open)?;
                }
            }
        }
        drop(pump);
        Ok(state.into_seen())
    }
}

/// A question that is on its way.
type Asked<'a, T> = Option<Pin<Box<dyn Future<Output = T> + 'a>>>;

async fn answer<T>(asked: &mut Asked<'_, T>) -> T {
    match asked {
        Some(asked) => asked.await,
        None => pending().await,
    }
}

async fn room(reader: Option<&Reader>) {
    match reader {
        Some(reader) => reader.has_room().await,
        None => pending().await,
    }
}

fn note_kill(killed: Result<(), Error>) -> Result<(), Failed> {
    match killed {
        // Or it has ended by itself meanwhile.
        Ok(()) | Err(Error::DockerResponseServerError { .. }) => Ok(()),
        Err(error) => Err(Failed::Lost(daemon::lost(&error))),
    }
}

/// What has become of the run so far.
struct State<'a, 'w> {
    watching: &'a Watching<'w>,
    limits: Limits,
    meter: Meter,
    filling: Option<Filling>,
    scratch: Option<Scratch>,
    cause: Option<StopCause>,
    /// The signal that is on its way.
    killing: Asked<'a, Result<(), Error>>,
    ended: Option<(i64, Instant)>,
    deadline: Option<Instant>,
    /// When a container that was asked to end is ended.
    hard: Option<Instant>,
    /// When a daemon that was told to end it is taken for lost.
    lost: Option<Instant>,
    next_look: Instant,
    next_sample: Instant,
    /// When there was a word last, or nobody to listen to one.
    heard: Instant,
    has_given_up: bool,
    has_printed: bool,
}

impl<'a, 'w> State<'a, 'w> {
    fn new(watching: &'a Watching<'w>, filling: Option<Filling>, limits: Limits) -> Self {
        let now = Instant::now();
        let init = match watching.settings.init {
            Init::Daemons => 1,
            Init::None => 0,
        };
        let wall = limits.wall_time.at_most();
        Self {
            watching,
            meter: Meter::new(init),
            filling,
            scratch: None,
            cause: None,
            killing: None,
            ended: None,
            deadline: wall.and_then(|limit| watching.started.checked_add(limit)),
            hard: None,
            lost: None,
            next_look: now,
            next_sample: now,
            heard: now,
            has_given_up: false,
            has_printed: false,
            limits,
        }
    }

    /// It has ended, and everything that it said is with whoever wants it; or nobody does.
    fn is_over(&self, is_closed: bool, open: &OpenRun) -> bool {
        let Some((_, at)) = self.ended else {
            return false;
        };
        if open.waits_for().is_some() {
            return self.watching.cancel.is_some_and(backend::is_readable);
        }
        is_closed || self.heard.max(at).elapsed() >= SILENCE
    }

    fn next(&self) -> Instant {
        if self.ended.is_some() {
            return Instant::now() + SILENCE;
        }
        let times = [
            self.deadline.filter(|_| self.cause.is_none()),
            self.hard,
            self.lost,
        ];
        let first = times.into_iter().flatten().min();
        first.map_or(self.next_look, |first| first.min(self.next_look))
    }

    /// Whether it is time for the daemon's own figures.
    fn is_to_be_asked(&self, is_idle: bool) -> bool {
        is_idle
            && self.ended.is_none()
            && !self.meter.reads_groups()
            && Instant::now() >= self.next_look
    }

    fn take(&mut self, open: &mut OpenRun, piece: LogOutput) {
        let (stream, bytes) = match piece {
            LogOutput::StdOut { message } => (Stream::Stdout, message),
            LogOutput::StdErr { message } => (Stream::Stderr, message),
            // The daemon's own words, or an echo: not the program's output.
            LogOutput::StdIn { .. } | LogOutput::Console { .. } => return,
        };
        self.has_printed |= stream == Stream::Stdout && !bytes.is_empty();
        let mut taken = open.take(stream, &bytes);
        if taken == Taken::Open {
            taken = open.pass_on();
        }
        if let Taken::Stop(cause) = taken {
            self.stop(cause);
        }
    }

    /// Everything that time brings.
    fn look(&mut self, open: &OpenRun) -> Result<(), Failed> {
        let now = Instant::now();
        if self.ended.is_some() {
            return Ok(());
        }
        if self.lost.is_some_and(|lost| now >= lost) {
            return Err(Failed::Lost(daemon::lost(&Error::RequestTimeoutError)));
        }
        if self.hard.is_some_and(|hard| now >= hard) {
            self.end();
        }
        if let (Some(deadline), Cap::AtMost(limit)) = (self.deadline, self.limits.wall_time)
            && now >= deadline
        {
            self.stop(StopCause::WallTime { limit });
        }
        if now < self.next_look {
            return Ok(());
        }
        self.next_look = now + self.meter.pause();
        self.meter.look();
        let counted = self.meter.counted();
        if let Cap::AtMost(limit) = self.limits.cpu_time
            && counted.cpu >= limit
        {
            self.stop(StopCause::CpuTime { limit });
        }
        if let Some(cause) = counted.refused(&self.limits) {
            self.stop(cause);
        }
        if let (Some(filling), Cap::AtMost(limit)) = (&mut self.filling, self.limits.disk)
            && filling.is_over()
        {
            let place = DiskPlace::Workspace;
            self.stop(StopCause::Disk { limit, place });
        }
        if now >= self.next_sample {
            self.next_sample = now + SAMPLE;
            open.sample(counted.sample());
        }
        Ok(())
    }

    /// Ends the run for `cause`, unless something has already. A program whose time is over, or whom nobody wants any more, is asked first; one that took more than
    /// it may is not.
    fn stop(&mut self, cause: StopCause) {
        if self.cause.is_some() || self.ended.is_some() {
            return;
        }
        let is_asked = match cause {
            StopCause::WallTime { .. } | StopCause::Canceled => true,
            StopCause::CpuTime { .. }
            | StopCause::Memory { .. }
            | StopCause::Output { .. }
            | StopCause::Processes { .. }
            | StopCause::Disk { .. } => false,
        };
        self.cause = Some(cause);
        let grace = self.watching.settings.grace;
        if !is_asked || grace.is_zero() {
            return self.end();
        }
        self.hard = Some(Instant::now() + grace);
        self.kill("SIGTERM");
    }

    fn end(&mut self) {
        self.hard = None;
        self.lost = Some(Instant::now() + self.watching.settings.patience);
        self.kill("SIGKILL");
    }

    /// Beside everything else: the daemon answers when the program has ended, and that may have to wait until its output was read.
    fn kill(&mut self, signal: &str) {
        let how = KillContainerOptionsBuilder::default()
            .signal(signal)
            .build();
        let (client, id) = (self.watching.client, self.watching.id);
        self.killing = Some(Box::pin(client.kill_container(id, Some(how))));
    }

    fn note_end(
        &mut self,
        ended: Option<Result<bollard::models::ContainerWaitResponse, Error>>,
    ) -> Result<(), Failed> {
        let code = match ended {
            Some(Ok(ended)) => ended.status_code,
            Some(Err(Error::DockerContainerWaitError { code, .. })) => code,
            Some(Err(error)) => return Err(Failed::Lost(daemon::lost(&error))),
            None => {
                let gone = std::io::Error::from(std::io::ErrorKind::UnexpectedEof);
                return Err(Failed::Lost(daemon::lost(&gone.into())));
            }
        };
        self.ended = Some((code, Instant::now()));
        Ok(())
    }

    fn into_seen(self) -> Seen {
        let (code, at) = self.ended.unwrap_or((0, Instant::now()));
        Seen {
            cause: self.cause,
            code,
            wall: at.saturating_duration_since(self.watching.started),
            counted: self.meter.counted(),
            scratch: self.scratch,
            has_printed: self.has_printed,
        }
    }
}
