//! A run as it happens, as server-sent events: `state` when it changes, `output` as it comes, `progress` as the tests of a project end, `usage` twice a second, `end` with the result.
//!
//! An event's id says how far its reader has come: the state, and how many bytes of stdout and stderr. Whoever comes back with it goes on from there, also when the journal has
//! meanwhile become history.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Bytes;
use cofferdam_contract::ending::Stream;
use cofferdam_contract::record::CapturedStream;
use cofferdam_contract::units;
use cofferdam_store::journal::{self, Writer};
use cofferdam_store::log::Chunk;
use cofferdam_store::{RunId, StoreError};
use hyper::body::Frame;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::MissedTickBehavior;

use crate::app::App;
use crate::fault::Fault;
use crate::live::{Live, Phase};
use crate::view::{RunView, State, milliseconds};

/// How often a journal is looked at while its run goes on.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// How many bytes of it at a time.
const LOOK: u64 = 64 << 10;
const SAMPLE_EVERY: Duration = Duration::from_millis(500);
/// A line that says nothing, so that nobody in between takes the silence for the end.
const BREATH_EVERY: Duration = Duration::from_secs(15);

/// How far a reader has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Position {
    /// 0 nothing, 1 queued, 2 running, 3 ended.
    state: u8,
    stdout: u64,
    stderr: u64,
}

/// Where a run's news come from.
#[derive(Debug)]
pub(crate) enum Source {
    Live(Arc<Live>),
    /// Not this daemon's, or long ended.
    Stored(RunId),
}

/// The body of an answer that goes on.
#[derive(Debug)]
pub(crate) struct ChannelBody {
    receiver: mpsc::Receiver<Bytes>,
}

impl ChannelBody {
    pub(crate) fn new(receiver: mpsc::Receiver<Bytes>) -> Self {
        Self { receiver }
    }
}

impl hyper::body::Body for ChannelBody {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        self.receiver
            .poll_recv(context)
            .map(|bytes| bytes.map(|bytes| Ok(Frame::data(bytes))))
    }
}

impl Position {
    pub(crate) const ENDED: u8 = 3;

    /// As it stands in `Last-Event-ID`.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('.');
        let state = parts.next()?.parse().ok().filter(|state| *state <= 3)?;
        let stdout = parts.next()?.parse().ok()?;
        let stderr = parts.next()?.parse().ok()?;
        let is_whole = parts.next().is_none();
        is_whole.then_some(Self {
            state,
            stdout,
            stderr,
        })
    }

    pub(crate) fn has_ended(self) -> bool {
        self.state == Self::ENDED
    }

    fn id(self) -> String {
        format!("{}.{}.{}", self.state, self.stdout, self.stderr)
    }

    fn of(&mut self, stream: Stream) -> &mut u64 {
        match stream {
            Stream::Stdout => &mut self.stdout,
            Stream::Stderr => &mut self.stderr,
        }
    }
}

/// The reader has gone.
#[derive(Debug)]
struct Gone;

/// Sends the news of one run until it has ended or nobody listens.
pub(crate) async fn tell(
    app: Arc<App>,
    source: Source,
    from: Position,
    request_id: String,
    to: mpsc::Sender<Bytes>,
) {
    let teller = Teller {
        tail: Tail::new(from),
        position: from,
        progress: 0,
        trace_id: match &source {
            Source::Live(live) => Some(live.trace.id()),
            Source::Stored(_) => None,
        },
        request_id,
        to,
    };
    // A reader that has gone needs no goodbye.
    let _ = match source {
        Source::Live(live) => teller.live(&app, &live).await,
        Source::Stored(run) => teller.stored(&app, run).await,
    };
}

struct Teller {
    tail: Tail,
    position: Position,
    /// Which state of a project was told last.
    progress: u64,
    /// The run's, as long as it is known.
    trace_id: Option<String>,
    request_id: String,
    to: mpsc::Sender<Bytes>,
}

impl Teller {
    async fn live(mut self, app: &Arc<App>, live: &Arc<Live>) -> Result<(), Gone> {
        let mut phases = live.follow();
        let mut looks = tokio::time::interval(LOOK_EVERY);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut breaths = tokio::time::interval(BREATH_EVERY);
        let mut samples = tokio::time::interval(SAMPLE_EVERY);
        samples.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let phase = phases.borrow_and_update().clone();
            self.state(1, "queued").await?;
            let is_running = matches!(phase, Phase::Running { .. });
            if is_running {
                self.state(2, "running").await?;
                self.output(app, live.id, Progress::GoesOn).await?;
                self.progress(live).await?;
            }
            if let Phase::Ended(_) = phase {
                if self.position.state < 2 && RunView::of_live(live, "").started_at.is_some() {
                    self.state(2, "running").await?;
                }
                self.output(app, live.id, Progress::Ended).await?;
                self.progress(live).await?;
                let view = RunView::of_live(live, &self.request_id).without_output();
                return self.end(json!(view)).await;
            }
            tokio::select! {
                changed = phases.changed() => if changed.is_err() { return Ok(()); },
                _ = looks.tick(), if is_running => {}
                _ = samples.tick(), if is_running => self.usage(live).await?,
                _ = breaths.tick() => self.send(": still here\n\n".to_owned()).await?,
                () = self.to.closed() => return Err(Gone),
            }
        }
    }

    async fn stored(mut self, app: &Arc<App>, run: RunId) -> Result<(), Gone> {
        let mut looks = tokio::time::interval(LOOK_EVERY * 4);
        let mut breaths = tokio::time::interval(BREATH_EVERY);
        self.state(1, "queued").await?;
        self.state(2, "running").await?;
        loop {
            self.output(app, run, Progress::GoesOn).await?;
            let view = app.blocking(move |app| {
                app.archive.read_all(|history| {
                    Ok(RunView::of_stored(history.get(run)?, &[]).without_output())
                })
            });
            match view.await {
                Ok(view) if view.state == State::Ended => {
                    self.output(app, run, Progress::Ended).await?;
                    return self.end(json!(view)).await;
                }
                Ok(_) => {}
                Err(fault) => return self.failed(&fault).await,
            }
            tokio::select! {
                _ = looks.tick() => {}
                _ = breaths.tick() => self.send(": still here\n\n".to_owned()).await?,
                () = self.to.closed() => return Err(Gone),
            }
        }
    }

    /// How far the reader has come does not change by it: a sample that was missed is not made up for.
    async fn usage(&mut self, live: &Live) -> Result<(), Gone> {
        let Some(sample) = live.usage.last() else {
            return Ok(());
        };
        let data = json!({
            "cpu_ms": milliseconds(sample.cpu),
            "memory_bytes": sample.memory.map(units::Bytes::get),
            "processes": sample.processes,
        });
        let event = self.event("usage", &data);
        self.send(event).await
    }

    /// The same holds here: what is told is where it stands now.
    async fn progress(&mut self, live: &Live) -> Result<(), Gone> {
        let Some((version, data)) = live.progress.since(self.progress) else {
            return Ok(());
        };
        self.progress = version;
        let event = self.event("progress", &data);
        self.send(event).await
    }

    async fn state(&mut self, number: u8, name: &str) -> Result<(), Gone> {
        if self.position.state >= number {
            return Ok(());
        }
        self.position.state = number;
        let mut news = json!({ "state": name });
        if let Some(trace) = &self.trace_id {
            news["trace_id"] = json!(trace);
        }
        let event = self.event("state", &news);
        self.send(event).await
    }

    async fn end(&mut self, view: Value) -> Result<(), Gone> {
        for piece in self.tail.flush() {
            self.piece(piece).await?;
        }
        self.position.state = Position::ENDED;
        let event = self.event("end", &view);
        self.send(event).await
    }

    /// The last event: trouble with the disk does not go away by looking again at once. Whoever comes back with its id goes on.
    async fn failed(&mut self, fault: &Fault) -> Result<(), Gone> {
        let event = self.event("error", &json!(fault.body(&self.request_id)));
        self.send(event).await?;
        Err(Gone)
    }

    /// Sends what is new. A reader that is slow has one look's worth waiting for it, not all that was written meanwhile.
    async fn output(&mut self, app: &Arc<App>, run: RunId, progress: Progress) -> Result<(), Gone> {
        loop {
            let offset = self.tail.offset;
            let found = app.blocking(move |app| look(app, run, offset)).await;
            match found {
                Ok(Found::Nothing) if progress == Progress::GoesOn => return Ok(()),
                Ok(Found::Nothing) => return self.history(app, run).await,
                Ok(Found::Journal { chunks, end }) => {
                    self.tail.offset = end;
                    self.tail.take(chunks);
                    self.drain().await?;
                    if end.saturating_sub(offset) < LOOK {
                        return Ok(());
                    }
                }
                Err(fault) => return self.failed(&fault).await,
            }
        }
    }

    /// The journal has become history, which is read whole: only so many at once.
    async fn history(&mut self, app: &Arc<App>, run: RunId) -> Result<(), Gone> {
        let size = app.blocking(move |app| app.archive.read_run(|history| history.get(run)));
        let size = match size.await {
            Ok(stored) => stored
                .log
                .stdout
                .bytes
                .saturating_add(stored.log.stderr.bytes),
            // Of a run that could not be kept there is nothing more to tell.
            Err(fault) if fault.status == axum::http::StatusCode::NOT_FOUND => return Ok(()),
            Err(fault) => return self.failed(&fault).await,
        };
        let room = app
            .answers
            .room(usize::try_from(size).unwrap_or(usize::MAX));
        let _room = match room.await {
            Ok(room) => room,
            Err(fault) => return self.failed(&fault).await,
        };
        let chunks = app.blocking(move |app| app.archive.read_run(|history| history.output(run)));
        match chunks.await {
            Ok(chunks) => self.tail.restart(chunks, self.position),
            Err(fault) => return self.failed(&fault).await,
        }
        self.drain().await
    }

    async fn drain(&mut self) -> Result<(), Gone> {
        while let Some(piece) = self.tail.ready.pop_front() {
            self.piece(piece).await?;
        }
        Ok(())
    }

    async fn piece(&mut self, piece: Chunk) -> Result<(), Gone> {
        let length = u64::try_from(piece.bytes.len()).unwrap_or(0);
        *self.position.of(piece.stream) += length;
        let captured = CapturedStream::whole(&piece.bytes);
        let data = json!({
            "stream": piece.stream.to_string(),
            "at_ms": piece.at_micros as f64 / 1000.0,
            "data": captured.data,
            "encoding": captured.encoding,
        });
        let event = self.event("output", &data);
        self.send(event).await
    }

    fn event(&self, name: &str, data: &Value) -> String {
        // JSON has no line breaks outside of strings, and none unescaped inside.
        format!(
            "id: {}\nevent: {name}\ndata: {data}\n\n",
            self.position.id()
        )
    }

    async fn send(&self, text: String) -> Result<(), Gone> {
        self.to.send(Bytes::from(text)).await.map_err(|_| Gone)
    }
}

/// Whether more may come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Progress {
    GoesOn,
    Ended,
}

enum Found {
    /// The journal is not there: not yet, or no more.
    Nothing,
    Journal {
        chunks: Vec<Chunk>,
        end: u64,
    },
}

fn look(app: &App, run: RunId, offset: u64) -> Result<Found, StoreError> {
    match journal::follow_some(app.archive.dir(), run, offset, LOOK)? {
        Some((read, Writer::Alive | Writer::Gone)) => Ok(Found::Journal {
            chunks: read.chunks,
            end: read.end,
        }),
        None => Ok(Found::Nothing),
    }
}

/// What has come and not been sent: skips what the reader has, and holds back the beginning of a character whose end has not come.
#[derive(Debug)]
struct Tail {
    offset: u64,
    skip: [u64; 2],
    held: [Vec<u8>; 2],
    held_at: [u64; 2],
    ready: VecDeque<Chunk>,
}

impl Tail {
    fn new(from: Position) -> Self {
        Self {
            offset: 0,
            skip: [from.stdout, from.stderr],
            held: [Vec::new(), Vec::new()],
            held_at: [0; 2],
            ready: VecDeque::new(),
        }
    }

    fn restart(&mut self, chunks: Vec<Chunk>, sent: Position) {
        *self = Self::new(sent);
        self.take(chunks);
    }

    fn take(&mut self, chunks: Vec<Chunk>) {
        for chunk in chunks {
            let at = match chunk.stream {
                Stream::Stdout => 0,
                Stream::Stderr => 1,
            };
            let ([skip_0, skip_1], [held_0, held_1]) = (&mut self.skip, &mut self.held);
            let (skip, held) = if at == 0 {
                (skip_0, held_0)
            } else {
                (skip_1, held_1)
            };
            let length = u64::try_from(chunk.bytes.len()).unwrap_or(0);
            let skipped = length.min(*skip);
            *skip -= skipped;
            let rest = usize::try_from(skipped)
                .ok()
                .and_then(|skipped| chunk.bytes.get(skipped..));
            held.extend_from_slice(rest.unwrap_or_default());
            let whole = held.len() - unfinished(held);
            let piece: Vec<u8> = held.drain(..whole).collect();
            if !piece.is_empty() {
                self.ready.push_back(Chunk {
                    bytes: piece,
                    ..chunk
                });
            }
            if let Some(held_at) = self.held_at.get_mut(at) {
                *held_at = chunk.at_micros;
            }
        }
    }

    fn flush(&mut self) -> Vec<Chunk> {
        let streams = [Stream::Stdout, Stream::Stderr];
        let mut last = Vec::new();
        for ((stream, held), at_micros) in streams.into_iter().zip(&mut self.held).zip(self.held_at)
        {
            let bytes = std::mem::take(held);
            if !bytes.is_empty() {
                last.push(Chunk {
                    stream,
                    at_micros,
                    bytes,
                });
            }
        }
        last
    }
}

/// How many bytes at the end are the beginning of a character. At most three: longer beginnings are none.
fn unfinished(bytes: &[u8]) -> usize {
    for length in 1..=3.min(bytes.len()) {
        let tail = bytes.get(bytes.len() - length..).unwrap_or_default();
        if let Err(error) = std::str::from_utf8(tail)
            && error.valid_up_to() == 0
            && error.error_len().is_none()
        {
            return length;
        }
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk(stream: Stream, bytes: &[u8]) -> Chunk {
        Chunk {
            stream,
            at_micros: 1,
            bytes: bytes.to_vec(),
        }
    }

    fn ready(tail: &mut Tail) -> Vec<Vec<u8>> {
        tail.ready.drain(..).map(|chunk| chunk.bytes).collect()
    }

    #[test]
    fn a_position_reads_as_it_was_written() {
        let position = Position {
            state: 2,
            stdout: 10,
            stderr: 3,
        };
        assert_eq!(Position::parse(&position.id()), Some(position));
        for bad in [
            "", "1", "1.2", "4.0.0", "1.2.3.4", "a.b.c", "-1.0.0", "1.-2.3",
        ] {
            assert_eq!(Position::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn what_the_reader_has_is_skipped_in_the_middle_of_a_chunk() {
        let from = Position {
            state: 2,
            stdout: 4,
            stderr: 0,
        };
        let mut tail = Tail::new(from);
        tail.take(vec![
            chunk(Stream::Stdout, b"abc"),
            chunk(Stream::Stderr, b"e"),
            chunk(Stream::Stdout, b"def"),
        ]);
        assert_eq!(ready(&mut tail), [b"e".to_vec(), b"ef".to_vec()]);
    }

    #[test]
    fn characters_are_not_cut() {
        let mut tail = Tail::new(Position::default());
        tail.take(vec![chunk(Stream::Stdout, &[b'a', 0xe2, 0x82])]);
        assert_eq!(ready(&mut tail), [b"a".to_vec()]);
        tail.take(vec![chunk(Stream::Stdout, &[0xac, b'b'])]);
        assert_eq!(ready(&mut tail), ["€b".as_bytes().to_vec()]);
        tail.take(vec![chunk(Stream::Stdout, &[0xf0])]);
        assert!(ready(&mut tail).is_empty());
        let flushed = tail.flush();
        assert_eq!(flushed, [chunk(Stream::Stdout, &[0xf0])]);
        tail.take(vec![chunk(Stream::Stdout, &[0xff, 0xfe])]);
        assert_eq!(ready(&mut tail), [vec![0xff, 0xfe]]);
    }
}
