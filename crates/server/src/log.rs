//! The daemon's own log: one JSON object on a line, on standard error, each with the trace it belongs to. Holds ids, routes and causes; never what a program wrote or was given, no
//! query, no body, no secret.
//!
//! Lines are written by a thread of their own: whoever reads them slowly must not hold up a request. What does not fit into the queue is lost and counted.

use std::fmt;
use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, SyncSender, TrySendError};
use std::time::{Duration, Instant};

use cofferdam_observe::{Sampled, TraceContext};
use jiff::Timestamp;
use serde_json::{Map, Value, json};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id};
use tracing::{Event, Subscriber};
use tracing_subscriber::layer::{Context, SubscriberExt as _};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::{EnvFilter, Layer, Registry};

/// Names what is logged, as in `info` or `cofferdam_server=debug`.
pub const VARIABLE: &str = "COFFERDAM_LOG";
pub const DEFAULT: &str = "info";
/// Lines that may wait to be written.
const WAITING: usize = 4096;
/// Of one value; no line needs more.
const LONGEST_VALUE: usize = 2048;
const FLUSH_WITHIN: Duration = Duration::from_secs(1);

/// Logs until it goes; then what waits is written.
#[derive(Debug)]
#[must_use]
pub struct Log {
    queue: Option<Queue>,
}

/// Why a filter cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "is not a level; write `error`, `warn`, `info`, `debug` or `trace`, or levels by part such as `info,cofferdam_server=debug`"
)]
pub struct BadFilter;

/// Whether the text says what is logged.
pub fn check(filter: &str) -> Result<(), BadFilter> {
    let parts: Vec<_> = filter.split(',').map(str::trim).collect();
    let is_level = |text: &str| text.parse::<tracing::level_filters::LevelFilter>().is_ok();
    let is_part = |part: &&str| {
        let level = part.rsplit_once('=').map_or(*part, |(_, level)| level);
        !part.is_empty() && is_level(level)
    };
    let are_parts = parts.iter().all(is_part);
    let parsed = EnvFilter::builder().parse(filter);
    (are_parts && parsed.is_ok()).then_some(()).ok_or(BadFilter)
}

/// Starts logging for this process; once. A process that logs already keeps its way.
pub fn start(filter: &str) -> Result<Log, BadFilter> {
    check(filter)?;
    let filter = EnvFilter::builder().parse(filter).map_err(|_| BadFilter)?;
    let (sender, receiver) = mpsc::sync_channel(WAITING);
    let queue = Queue {
        sender,
        lost: Arc::default(),
    };
    let writing = std::thread::Builder::new().name("log".to_owned());
    if writing.spawn(move || write_lines(&receiver)).is_err() {
        return Ok(Log { queue: None });
    }
    let lines = Lines {
        queue: queue.clone(),
        of_daemon: TraceContext::root(Sampled::No),
    };
    let subscriber = Registry::default().with(filter).with(lines);
    if tracing::subscriber::set_global_default(subscriber).is_err() {
        return Ok(Log { queue: None });
    }
    report_faults(queue.clone());
    Ok(Log { queue: Some(queue) })
}

/// A fault of ours is a line like every other. Where it happened is told, not what it says: that may quote what a program was given.
fn report_faults(queue: Queue) {
    std::panic::set_hook(Box::new(move |fault| {
        let at = fault.location().map(ToString::to_string);
        tracing::error!(at = at.unwrap_or_default(), "a fault of the daemon");
        queue.flush();
    }));
}

impl Drop for Log {
    fn drop(&mut self) {
        if let Some(queue) = &self.queue {
            queue.flush();
        }
    }
}

#[derive(Debug)]
enum Message {
    Line(Vec<u8>),
    /// Answered when everything before it is written.
    Flush(SyncSender<()>),
}

#[derive(Debug, Clone)]
struct Queue {
    sender: SyncSender<Message>,
    lost: Arc<AtomicU64>,
}

impl Queue {
    /// With how many were lost before, which the line says.
    fn put(&self, line: Vec<u8>, lost_before: u64) {
        match self.sender.try_send(Message::Line(line)) {
            Ok(()) => {}
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {
                self.lost.fetch_add(lost_before + 1, Ordering::Relaxed);
            }
        }
    }

    fn flush(&self) {
        let until = Instant::now() + FLUSH_WITHIN;
        let (done, written) = mpsc::sync_channel(1);
        let mut message = Message::Flush(done);
        while let Err(TrySendError::Full(back)) = self.sender.try_send(message) {
            if Instant::now() > until {
                return;
            }
            message = back;
            std::thread::sleep(Duration::from_millis(5));
        }
        let _ = written.recv_timeout(until.saturating_duration_since(Instant::now()));
    }
}

fn write_lines(lines: &Receiver<Message>) {
    while let Ok(message) = lines.recv() {
        match message {
            // There is nobody who could be told that nothing can be told.
            Message::Line(line) => drop(std::io::stderr().write_all(&line)),
            Message::Flush(done) => drop(done.send(())),
        }
    }
}

/// Turns events into lines.
struct Lines {
    queue: Queue,
    /// For what belongs to no request.
    of_daemon: TraceContext,
}

/// What is known of a span, for every line inside it.
struct Known(Map<String, Value>);

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Lines {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        if let Some(span) = context.span(id) {
            span.extensions_mut().insert(Known(fields.0));
        }
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let mut around = Map::new();
        for span in context.event_scope(event).into_iter().flatten() {
            if let Some(Known(known)) = span.extensions().get() {
                for (name, value) in known {
                    // The innermost comes first.
                    around.entry(name).or_insert_with(|| value.clone());
                }
            }
        }
        let lost = self.queue.lost.swap(0, Ordering::Relaxed);
        if lost > 0 {
            fields.0.insert("lines_lost".to_owned(), json!(lost));
        }
        let meta = event.metadata();
        let head = Head {
            level: meta.level().as_str(),
            target: meta.target(),
            of_daemon: &self.of_daemon,
        };
        self.queue.put(line(&head, around, fields.0), lost);
    }
}

struct Head<'a> {
    level: &'a str,
    target: &'a str,
    of_daemon: &'a TraceContext,
}

fn line(head: &Head<'_>, around: Map<String, Value>, mut own: Map<String, Value>) -> Vec<u8> {
    let mut whole = Map::new();
    let mut put = |name: &str, value: Value| {
        whole.insert(name.to_owned(), value);
    };
    put("time", json!(Timestamp::now().to_string()));
    put("level", json!(head.level.to_ascii_lowercase()));
    put("message", own.remove("message").unwrap_or(Value::Null));
    put("target", json!(head.target));
    put("trace_id", json!(head.of_daemon.trace.to_string()));
    put("span_id", json!(head.of_daemon.span.to_string()));
    const RESERVED: [&str; 4] = ["time", "level", "message", "target"];
    for (name, value) in around.into_iter().chain(own) {
        if !RESERVED.contains(&name.as_str()) {
            whole.insert(name, value);
        }
    }
    let mut line = Value::Object(whole).to_string().into_bytes();
    line.push(b'\n');
    line
}

#[derive(Default)]
struct Fields(Map<String, Value>);

impl Fields {
    fn put(&mut self, field: &Field, value: Value) {
        self.0.insert(field.name().to_owned(), value);
    }

    fn text(&mut self, field: &Field, text: &str) {
        let cut = text.floor_char_boundary(LONGEST_VALUE);
        self.put(field, json!(text.get(..cut)));
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.text(field, &format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.text(field, value);
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(field, json!(value));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, json!(value));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, json!(value));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, json!(value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is logged by the work, as objects.
    fn logged(filter: &str, work: impl FnOnce()) -> Vec<Value> {
        let (sender, receiver) = mpsc::sync_channel(8);
        let lines = Lines {
            queue: Queue {
                sender,
                lost: Arc::default(),
            },
            of_daemon: TraceContext::root(Sampled::No),
        };
        let filter = EnvFilter::builder().parse(filter).unwrap();
        let subscriber = Registry::default().with(filter).with(lines);
        tracing::subscriber::with_default(subscriber, work);
        let parsed = receiver.try_iter().map(|message| match message {
            Message::Line(line) => {
                let text = String::from_utf8(line).unwrap();
                assert_eq!(text.matches('\n').count(), 1, "{text}");
                serde_json::from_str(&text).unwrap()
            }
            Message::Flush(_) => Value::Null,
        });
        parsed.collect()
    }

    #[test]
    fn a_line_is_one_object_with_everything_known_around_it() {
        let lines = logged("info", || {
            tracing::debug!("not this");
            tracing::info!("of the daemon");
            let request = tracing::error_span!("request", trace_id = "t", request_id = "r");
            let run = tracing::error_span!(parent: &request, "run", run_id = "x", span_id = "s");
            run.in_scope(|| tracing::warn!(level = "fake", took_ms = 1.5, "two\nlines \u{1b}[2J"));
        });
        assert_eq!(lines.len(), 2, "{lines:?}");
        assert_eq!(lines[0]["message"], "of the daemon");
        assert_eq!(lines[0]["trace_id"].as_str().map(str::len), Some(32));
        let mut last = lines[1].clone();
        assert!(last["time"].as_str().unwrap().parse::<Timestamp>().is_ok());
        last.as_object_mut().unwrap().remove("time");
        let expected = json!({
            "level": "warn", "message": "two\nlines \u{1b}[2J", "target": module_path!(),
            "trace_id": "t", "span_id": "s", "request_id": "r", "run_id": "x", "took_ms": 1.5,
        });
        assert_eq!(last, expected);
    }

    #[test]
    fn a_reader_that_does_not_read_costs_lines_and_no_time() {
        let (sender, receiver) = mpsc::sync_channel(8);
        let lost = Arc::default();
        let lines = Lines {
            queue: Queue {
                sender,
                lost: Arc::clone(&lost),
            },
            of_daemon: TraceContext::root(Sampled::No),
        };
        tracing::subscriber::with_default(Registry::default().with(lines), || {
            for number in 0..20_u64 {
                tracing::info!(number, "one of many");
            }
            assert_eq!(lost.load(Ordering::Relaxed), 12);
            assert_eq!(receiver.try_iter().count(), 8);
            tracing::info!("heard again");
        });
        let Ok(Message::Line(line)) = receiver.try_recv() else {
            panic!("no line");
        };
        let line: Value = serde_json::from_slice(&line).unwrap();
        assert_eq!(line["lines_lost"], 12);
        let (sender, receiver) = mpsc::sync_channel(1);
        let queue = Queue {
            sender,
            lost: Arc::default(),
        };
        queue.put(b"1".to_vec(), 0);
        queue.put(b"2".to_vec(), 0);
        assert_eq!(queue.lost.load(Ordering::Relaxed), 1);
        drop(receiver);
        queue.put(b"3".to_vec(), 0);
        assert_eq!(queue.lost.load(Ordering::Relaxed), 2);
        queue.flush();
    }

    #[test]
    fn a_value_is_cut_before_it_fills_the_log() {
        let lines = logged("info", || tracing::info!(detail = "ä".repeat(5000), "long"));
        assert!(lines[0]["detail"].as_str().unwrap().len() <= LONGEST_VALUE);
    }

    #[test]
    fn a_filter_is_a_level_or_levels_by_part() {
        for good in [
            "info",
            "debug",
            "off",
            "warn,cofferdam_server=debug",
            "INFO",
        ] {
            assert_eq!(check(good), Ok(()), "{good}");
        }
        for bad in ["", "loud", "info,", "a=b", "cofferdam_server"] {
            assert_eq!(check(bad), Err(BadFilter), "{bad}");
        }
    }
}
