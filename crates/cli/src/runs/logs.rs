//! `cofferdam runs logs`: what a run wrote, and with `--follow` what it writes.

use std::process::ExitCode;

use cofferdam_contract::ending::Stream;
use cofferdam_store::RunId;
use cofferdam_store::journal::{self, Writer};
use cofferdam_store::log::{self, Chunk};
use cofferdam_store::model::{Outcome, StoredRun, StreamKept};
use rustix::event::{PollFd, PollFlags, Timespec};

use super::printer::{Printer, Streams};
use super::{Kept, binary, find, open_history, words};
use crate::arguments::history::LogsArgs;
use crate::failure::Failure;
use crate::terminal::amount;
use crate::terminal::output::{self, Reader};
use crate::terminal::pager::{self, Paging};
use crate::terminal::size::Target;

/// How often a run that goes on is looked at.
const LOOK_EVERY: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 100_000_000,
};

pub(crate) fn logs(args: &LogsArgs, kept: &Kept) -> Result<ExitCode, Failure> {
    let history = open_history(kept)?;
    let run = find(&history, &args.run)?;
    let target = Target::of_stdout();
    let id = run.opening.run_id;
    let mut printer = Printer::new(args, run.opening.started_at, target);
    if args.follow {
        drop(history);
        let mut followed = Followed::default();
        let fetch = || followed.more(kept, id);
        follow(&mut printer, fetch, output::write_stdout, wait)?;
        tell_cuts(followed.stored.as_ref(), Streams::of(args));
        return Ok(ExitCode::SUCCESS);
    }
    let chunks = history.output(id)?;
    if chunks.is_empty() {
        output::note(nothing(&run));
    }
    print(args, &mut printer, &run, &chunks, target)?;
    tell_cuts(Some(&run), Streams::of(args));
    Ok(ExitCode::SUCCESS)
}

fn print(
    args: &LogsArgs,
    printer: &mut Printer,
    run: &StoredRun,
    chunks: &[Chunk],
    target: Target,
) -> Result<(), Failure> {
    if !target.is_terminal() || args.json {
        return output::write_stdout(&printer.whole(chunks)).map(|_| ());
    }
    let (text, previews) = without_binary(chunks, run, Streams::of(args));
    let mut shown = String::from_utf8_lossy(&printer.whole(&text)).into_owned();
    shown.push_str(&previews);
    let paging = if args.no_pager {
        Paging::Refused
    } else {
        Paging::Allowed
    };
    pager::show(&shown, target, paging)
}

/// For a terminal: the streams that are text, and what is said about those that are not.
fn without_binary(chunks: &[Chunk], run: &StoredRun, streams: Streams) -> (Vec<Chunk>, String) {
    let mut text = chunks.to_vec();
    let mut previews = String::new();
    for (stream, kept) in each_stream(run) {
        let bytes = log::stream(chunks, stream);
        if streams.includes(stream) && (kept.binary || binary::is_binary(&bytes)) {
            text.retain(|chunk| chunk.stream != stream);
            let id = run.opening.run_id;
            previews.push_str(&format!(
                "[{stream}] {}To a file: cofferdam runs logs {id} --{stream} > FILE\n",
                binary::preview(&bytes)
            ));
        }
    }
    (text, previews)
}

const fn each_stream(run: &StoredRun) -> [(Stream, StreamKept); 2] {
    [
        (Stream::Stdout, run.log.stdout),
        (Stream::Stderr, run.log.stderr),
    ]
}

/// Why there is no output. What was written last is held back until it is known to be no part of a secret, and goes with whoever ran it if they are killed.
fn nothing(run: &StoredRun) -> &'static str {
    match &run.outcome {
        Outcome::Running => "nothing of this run's output is there yet",
        Outcome::Ended(closing) if closing.stdout.bytes + closing.stderr.bytes == 0 => {
            "this run wrote nothing"
        }
        Outcome::Ended(_) | Outcome::Interrupted { .. } => "nothing of this run's output is kept",
    }
}

fn tell_cuts(run: Option<&StoredRun>, streams: Streams) {
    for note in run.into_iter().flat_map(|run| cuts(run, streams)) {
        output::note(&note);
    }
}

/// What is not there any more is said.
fn cuts(run: &StoredRun, streams: Streams) -> Vec<String> {
    let mut notes = Vec::new();
    for stream in [Stream::Stdout, Stream::Stderr] {
        let gone = words::not_kept(run, stream);
        if streams.includes(stream) && gone > 0 {
            notes.push(format!(
                "note: {} of {stream} were not kept",
                amount::bytes(gone)
            ));
        }
    }
    notes
}

/// How far a run was followed. Its journal has all of its output; what is stored of a run that has ended may be cut, and then is not the rest of what was printed before. So the
/// journal is read as long as it is there, and is not taken in by us.
#[derive(Debug, Default)]
struct Followed {
    /// Where reading the journal goes on.
    journal: u64,
    seen: Seen,
    /// Where the journal is gone.
    stored: Option<StoredRun>,
}

impl Followed {
    /// What is new, and whether more may come.
    fn more(&mut self, kept: &Kept, id: RunId) -> Result<(Vec<Chunk>, Writer), Failure> {
        if let Some((read, writer)) = journal::follow(&kept.dir, id, self.journal)? {
            self.journal = read.end;
            self.seen.count(&read.chunks);
            return Ok((read.chunks, writer));
        }
        let history = open_history(kept)?;
        let run = history.get(id)?;
        let mut chunks = history.output(id)?;
        // Somebody else took it in before we saw the end. What was cut does not go on where we were.
        for (stream, _) in each_stream(&run)
            .iter()
            .filter(|(_, kept)| kept.removed > 0)
        {
            if *self.seen.of(*stream) > 0 {
                chunks.retain(|chunk| chunk.stream != *stream);
            }
        }
        self.stored = Some(run);
        Ok((self.seen.new_of(&chunks), Writer::Gone))
    }
}

/// Prints what is new until the run has ended or nobody reads.
fn follow(
    printer: &mut Printer,
    mut fetch: impl FnMut() -> Result<(Vec<Chunk>, Writer), Failure>,
    mut write: impl FnMut(&[u8]) -> Result<Reader, Failure>,
    mut wait: impl FnMut() -> Reader,
) -> Result<(), Failure> {
    loop {
        let (chunks, writer) = fetch()?;
        let mut bytes = printer.more(&chunks);
        let goes_on = writer == Writer::Alive;
        if !goes_on {
            bytes.extend(printer.finish());
        }
        let reader = if bytes.is_empty() {
            Reader::There
        } else {
            write(&bytes)?
        };
        if !goes_on || reader == Reader::Gone || wait() == Reader::Gone {
            return Ok(());
        }
    }
}

/// Until the next look. A reader that goes while nothing is written would not be noticed otherwise.
fn wait() -> Reader {
    let stdout = std::io::stdout();
    let mut fds = [PollFd::new(&stdout, PollFlags::empty())];
    let gone = PollFlags::ERR | PollFlags::HUP | PollFlags::NVAL;
    match rustix::event::poll(&mut fds, Some(&LOOK_EVERY)) {
        Ok(_) if fds.iter().any(|fd| fd.revents().intersects(gone)) => Reader::Gone,
        Ok(_) | Err(_) => Reader::There,
    }
}

/// How much of each stream was printed. Pieces are not counted: they may be joined when a run ends.
#[derive(Debug, Default)]
struct Seen {
    stdout: usize,
    stderr: usize,
}

impl Seen {
    fn count(&mut self, chunks: &[Chunk]) {
        for chunk in chunks {
            *self.of(chunk.stream) += chunk.bytes.len();
        }
    }

    fn of(&mut self, stream: Stream) -> &mut usize {
        match stream {
            Stream::Stdout => &mut self.stdout,
            Stream::Stderr => &mut self.stderr,
        }
    }

    /// What was not seen before of all that there is.
    fn new_of(&mut self, chunks: &[Chunk]) -> Vec<Chunk> {
        let mut before = Self { ..*self };
        let mut new = Vec::new();
        for chunk in chunks {
            let skip = before.of(chunk.stream);
            let known = (*skip).min(chunk.bytes.len());
            *skip -= known;
            let fresh = chunk.bytes.get(known..).unwrap_or_default();
            if !fresh.is_empty() {
                new.push(Chunk {
                    bytes: fresh.to_vec(),
                    ..chunk.clone()
                });
            }
        }
        self.count(&new);
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runs::sample::{self, STARTED, err, out};

    /// The reader goes at a write, or after some looks at which nothing is new.
    fn followed(states: Vec<(Vec<Chunk>, Writer)>, until: usize) -> (String, usize) {
        let patience = 10;
        let mut printer = Printer::new(&LogsArgs::default(), STARTED, Target::Pipe);
        let mut states = states.into_iter();
        let mut seen = Seen::default();
        let mut printed = Vec::new();
        let (mut waited, mut writes) = (0, 0);
        let done = follow(
            &mut printer,
            || {
                let (chunks, writer) = states.next().unwrap_or((Vec::new(), Writer::Alive));
                Ok((seen.new_of(&chunks), writer))
            },
            |bytes| {
                printed.extend_from_slice(bytes);
                writes += 1;
                Ok(if writes >= until {
                    Reader::Gone
                } else {
                    Reader::There
                })
            },
            || {
                waited += 1;
                if waited < patience {
                    Reader::There
                } else {
                    Reader::Gone
                }
            },
        );
        assert!(done.is_ok());
        (String::from_utf8_lossy(&printed).into_owned(), waited)
    }

    #[test]
    fn only_what_is_new_is_printed() {
        let states = vec![
            (vec![out(0, b"on")], Writer::Alive),
            (vec![out(0, b"on")], Writer::Alive),
            (
                vec![out(0, b"on"), err(1, b"!"), out(2, b"e\n")],
                Writer::Alive,
            ),
            // Adopted: the pieces are joined.
            (vec![out(0, b"one\nend"), err(1, b"!?")], Writer::Gone),
        ];
        assert_eq!(followed(states, 99), ("on!e\nend?".to_owned(), 3));
    }

    #[test]
    fn nobody_reading_ends_it() {
        let states = vec![(vec![out(0, b"a\n")], Writer::Alive)];
        assert_eq!(followed(states, 1), ("a\n".to_owned(), 0));
        let quiet = vec![(vec![out(0, b"a\n")], Writer::Alive)];
        assert_eq!(followed(quiet, 99), ("a\n".to_owned(), 10));
    }

    #[test]
    fn what_was_cut_short_when_stored_prints_nothing_twice() {
        let states = vec![
            (vec![out(0, b"a long line\n")], Writer::Alive),
            (vec![out(0, b"a l")], Writer::Gone),
        ];
        assert_eq!(followed(states, 99).0, "a long line\n");
    }

    #[test]
    fn a_terminal_sees_a_preview_of_what_is_not_text() {
        let chunks = [out(0, b"\x7fELF\0\x1b[2J"), err(1, b"text\n")];
        let run = sample::exited(0);
        let (text, previews) = without_binary(&chunks, &run, Streams::Both);
        assert_eq!(text, [err(1, b"text\n")]);
        assert!(previews.starts_with("[stdout] binary, 9 "), "{previews}");
        assert!(previews.contains("--stdout > FILE") && !previews.contains('\u{1b}'));
        let only = Streams::Only(Stream::Stderr);
        assert_eq!(without_binary(&chunks, &run, only).1, "");
    }

    #[test]
    fn what_was_not_kept_is_said() {
        let mut run = sample::exited(0);
        assert_eq!(cuts(&run, Streams::Both), [""; 0]);
        run.log.stdout.removed = 2048;
        assert_eq!(
            cuts(&run, Streams::Both),
            ["note: 2 KiB of stdout were not kept"]
        );
        assert_eq!(cuts(&run, Streams::Only(Stream::Stderr)), [""; 0]);
    }
}
