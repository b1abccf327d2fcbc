//! How output is printed: raw, as lines with what stands before them, or as JSON. Takes pieces as they come and gives bytes; reads and writes nothing.

use cofferdam_contract::ending::Stream;
use cofferdam_contract::record::{CapturedStream, Encoding};
use cofferdam_store::log::Chunk;
use jiff::Timestamp;
use serde::Serialize;

use super::lines::{Line, Lines};
use crate::arguments::history::LogsArgs;
use crate::terminal::colour::{Colour, Paint};
use crate::terminal::control::Filter;
use crate::terminal::size::Target;
use crate::terminal::time;

pub(crate) const SCHEMA: &str = "cofferdam.log/1";

/// Which streams are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Streams {
    Both,
    Only(Stream),
}

/// What the bytes become.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// Exactly what was written.
    Raw,
    Lines(LineForm),
    Json,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LineForm {
    prefix: Prefix,
    timestamps: Timestamps,
    content: Content,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Prefix {
    Stream,
    None,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Timestamps {
    Shown,
    None,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Content {
    Raw,
    /// Nothing steers the terminal.
    Filtered,
}

/// Which of the lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    All,
    Head(usize),
    Tail(usize),
}

#[derive(Debug)]
pub(crate) struct Printer {
    form: Form,
    streams: Streams,
    part: Part,
    start: Timestamp,
    paint: Paint,
    lines: Lines,
    stdout: Filter,
    stderr: Filter,
}

impl Streams {
    pub(crate) const fn of(args: &LogsArgs) -> Self {
        if args.stdout {
            Self::Only(Stream::Stdout)
        } else if args.stderr {
            Self::Only(Stream::Stderr)
        } else {
            Self::Both
        }
    }

    pub(crate) fn includes(self, stream: Stream) -> bool {
        match self {
            Self::Both => true,
            Self::Only(only) => only == stream,
        }
    }
}

impl Part {
    pub(crate) const fn of(args: &LogsArgs) -> Self {
        match (args.head, args.tail) {
            (Some(n), _) => Self::Head(n),
            (None, Some(n)) => Self::Tail(n),
            (None, None) => Self::All,
        }
    }

    fn pick(self, lines: Vec<Line>) -> Vec<Line> {
        match self {
            Self::All => lines,
            Self::Head(n) => lines.into_iter().take(n).collect(),
            Self::Tail(n) => {
                let skipped = lines.len().saturating_sub(n);
                lines.into_iter().skip(skipped).collect()
            }
        }
    }
}

impl Form {
    pub(crate) fn of(args: &LogsArgs, target: Target) -> Self {
        if args.json {
            return Self::Json;
        }
        let both = Streams::of(args) == Streams::Both;
        let wanted = args.prefix || (both && target.is_terminal() && !args.no_prefix);
        let form = LineForm {
            prefix: if wanted { Prefix::Stream } else { Prefix::None },
            timestamps: if args.timestamps {
                Timestamps::Shown
            } else {
                Timestamps::None
            },
            content: if target.is_terminal() {
                Content::Filtered
            } else {
                Content::Raw
            },
        };
        let plain = LineForm {
            prefix: Prefix::None,
            timestamps: Timestamps::None,
            content: Content::Raw,
        };
        if form == plain && Part::of(args) == Part::All {
            Self::Raw
        } else {
            Self::Lines(form)
        }
    }
}

impl Printer {
    pub(crate) fn new(args: &LogsArgs, start: Timestamp, target: Target) -> Self {
        let paint = Paint::of(args.color, target);
        Self {
            form: Form::of(args, target),
            streams: Streams::of(args),
            part: Part::of(args),
            start,
            paint,
            lines: Lines::default(),
            stdout: Filter::new(paint),
            stderr: Filter::new(paint),
        }
    }

    /// All that there is.
    pub(crate) fn whole(&mut self, chunks: &[Chunk]) -> Vec<u8> {
        match self.form {
            Form::Raw | Form::Json => self.pieces(chunks),
            Form::Lines(form) => {
                let mut lines = self.finished(chunks);
                lines.extend(self.lines.finish());
                self.render_all(self.part.pick(lines), form)
            }
        }
    }

    /// What came since the last time; of lines, those that are finished.
    pub(crate) fn more(&mut self, chunks: &[Chunk]) -> Vec<u8> {
        match self.form {
            Form::Raw | Form::Json => self.pieces(chunks),
            Form::Lines(form) => {
                let lines = self.finished(chunks);
                let picked = self.part.pick(lines);
                // The last lines are those of the beginning; after it, every line is new.
                self.part = Part::All;
                self.render_all(picked, form)
            }
        }
    }

    /// What is left when nothing more comes.
    pub(crate) fn finish(&mut self) -> Vec<u8> {
        match self.form {
            Form::Raw | Form::Json => Vec::new(),
            Form::Lines(form) => {
                let rest = self.lines.finish();
                self.render_all(rest, form)
            }
        }
    }

    fn finished(&mut self, chunks: &[Chunk]) -> Vec<Line> {
        let mut lines = Vec::new();
        for chunk in chunks {
            if self.streams.includes(chunk.stream) {
                lines.extend(self.lines.push(chunk));
            }
        }
        lines
    }

    fn pieces(&self, chunks: &[Chunk]) -> Vec<u8> {
        let mut printed = Vec::new();
        for chunk in chunks {
            if !self.streams.includes(chunk.stream) {
                continue;
            }
            match self.form {
                Form::Json => printed.extend(self.json(chunk)),
                Form::Raw | Form::Lines(_) => printed.extend_from_slice(&chunk.bytes),
            }
        }
        printed
    }

    fn json(&self, chunk: &Chunk) -> Vec<u8> {
        let captured = CapturedStream::whole(&chunk.bytes);
        let piece = Piece {
            schema: SCHEMA,
            stream: chunk.stream.to_string(),
            at: time::after(self.start, chunk.at_micros).to_string(),
            at_micros: chunk.at_micros,
            data: captured.data,
            encoding: captured.encoding,
        };
        // A struct of strings and numbers always becomes JSON.
        let mut line = serde_json::to_vec(&piece).unwrap_or_default();
        line.push(b'\n');
        line
    }

    fn render_all(&mut self, lines: Vec<Line>, form: LineForm) -> Vec<u8> {
        let mut printed = Vec::new();
        for line in lines {
            self.render(&mut printed, &line, form);
        }
        printed
    }

    fn render(&mut self, printed: &mut Vec<u8>, line: &Line, form: LineForm) {
        if form.timestamps == Timestamps::Shown {
            let at = time::exact(time::after(self.start, line.at_micros));
            printed.extend(self.paint.paint(Colour::Dim, &at).into_bytes());
            printed.push(b' ');
        }
        if form.prefix == Prefix::Stream {
            let (name, colour) = match line.stream {
                Stream::Stdout => ("[stdout]", Colour::Cyan),
                Stream::Stderr => ("[stderr]", Colour::Red),
            };
            printed.extend(self.paint.paint(colour, name).into_bytes());
            printed.push(b' ');
        }
        match form.content {
            Content::Filtered => {
                let filter = match line.stream {
                    Stream::Stdout => &mut self.stdout,
                    Stream::Stderr => &mut self.stderr,
                };
                printed.extend(filter.line(line.content()).into_bytes());
                printed.push(b'\n');
            }
            Content::Raw => {
                printed.extend_from_slice(&line.bytes);
                let added = form.prefix == Prefix::Stream || form.timestamps == Timestamps::Shown;
                // What follows must not look like a part of this line.
                if added && !line.bytes.ends_with(b"\n") {
                    printed.push(b'\n');
                }
            }
        }
    }
}

/// One piece of output as a line of JSON.
#[derive(Debug, Serialize)]
struct Piece {
    schema: &'static str,
    stream: String,
    at: String,
    at_micros: u64,
    data: String,
    encoding: Encoding,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runs::sample::{STARTED, err, out};
    use crate::terminal::colour::When;
    use crate::terminal::size::Window;

    const TERMINAL: Target = Target::Terminal(Window {
        columns: 80,
        rows: 24,
    });

    fn chunks() -> Vec<Chunk> {
        vec![
            out(1000, b"one\ntw"),
            err(2000, b"\x1b[31moops\x1b[0m\x1b[2J\n"),
            out(3000, b"o\nlast"),
        ]
    }

    fn plain() -> LogsArgs {
        LogsArgs {
            color: When::Never,
            ..LogsArgs::default()
        }
    }

    fn printed(args: &LogsArgs, target: Target) -> String {
        let bytes = Printer::new(args, STARTED, target).whole(&chunks());
        String::from_utf8_lossy(&bytes).into_owned()
    }

    #[test]
    fn a_pipe_gets_both_as_they_came() {
        assert_eq!(
            printed(&plain(), Target::Pipe),
            "one\ntw\u{1b}[31moops\u{1b}[0m\u{1b}[2J\no\nlast"
        );
    }

    #[test]
    fn one_stream_through_a_pipe_is_exactly_its_bytes() {
        let stdout = LogsArgs {
            stdout: true,
            ..plain()
        };
        assert_eq!(printed(&stdout, Target::Pipe), "one\ntwo\nlast");
        let stderr = LogsArgs {
            stderr: true,
            ..plain()
        };
        assert_eq!(
            printed(&stderr, Target::Pipe),
            "\u{1b}[31moops\u{1b}[0m\u{1b}[2J\n"
        );
    }

    #[test]
    fn a_terminal_gets_prefixes_and_nothing_that_steers() {
        let expected = "\
[stdout] one
[stderr] oops\\u{1b}[2J
[stdout] two
[stdout] last
";
        assert_eq!(printed(&plain(), TERMINAL), expected);
        let colour = LogsArgs {
            color: When::Always,
            stderr: true,
            ..plain()
        };
        assert_eq!(
            printed(&colour, TERMINAL),
            "\u{1b}[31moops\u{1b}[0m\\u{1b}[2J\u{1b}[0m\n"
        );
        let no_prefix = LogsArgs {
            no_prefix: true,
            ..plain()
        };
        assert!(printed(&no_prefix, TERMINAL).starts_with("one\noops"));
    }

    #[test]
    fn timestamps_are_those_of_the_first_byte() {
        let args = LogsArgs {
            stdout: true,
            timestamps: true,
            ..plain()
        };
        let expected = "\
2025-11-15T09:46:40.001Z one
2025-11-15T09:46:40.001Z two
2025-11-15T09:46:40.003Z last
";
        assert_eq!(printed(&args, Target::Pipe), expected);
    }

    #[test]
    fn head_and_tail_are_lines() {
        let tail = |n| LogsArgs {
            tail: Some(n),
            ..plain()
        };
        assert_eq!(printed(&tail(2), Target::Pipe), "two\nlast");
        assert_eq!(printed(&tail(0), Target::Pipe), "");
        assert_eq!(printed(&tail(99), Target::Pipe).lines().count(), 4);
        let head = LogsArgs {
            head: Some(1),
            prefix: true,
            ..plain()
        };
        assert_eq!(printed(&head, Target::Pipe), "[stdout] one\n");
    }

    #[test]
    fn json_has_one_object_per_piece_without_loss() {
        let args = LogsArgs {
            json: true,
            ..plain()
        };
        let mut printer = Printer::new(&args, STARTED, TERMINAL);
        let bytes = printer.whole(&[out(1500, b"a\n"), err(2000, b"\xff")]);
        let text = String::from_utf8(bytes).unwrap();
        assert_eq!(
            text,
            "{\"schema\":\"cofferdam.log/1\",\"stream\":\"stdout\",\"at\":\"2025-11-15T09:46:40.0015Z\",\"at_micros\":1500,\"data\":\"a\\n\",\"encoding\":\"utf-8\"}\n\
             {\"schema\":\"cofferdam.log/1\",\"stream\":\"stderr\",\"at\":\"2025-11-15T09:46:40.002Z\",\"at_micros\":2000,\"data\":\"/w==\",\"encoding\":\"base64\"}\n"
        );
    }

    #[test]
    fn what_comes_piece_by_piece_is_what_comes_at_once() {
        for target in [TERMINAL, Target::Pipe] {
            let mut printer = Printer::new(&plain(), STARTED, target);
            let mut bytes = Vec::new();
            for chunk in chunks() {
                bytes.extend(printer.more(&[chunk]));
            }
            bytes.extend(printer.finish());
            assert_eq!(String::from_utf8_lossy(&bytes), printed(&plain(), target));
        }
    }

    #[test]
    fn a_tail_that_is_followed_goes_on_with_every_line() {
        let args = LogsArgs {
            tail: Some(1),
            stdout: true,
            ..plain()
        };
        let mut printer = Printer::new(&args, STARTED, Target::Pipe);
        let mut bytes = printer.more(&[out(0, b"1\n2\n3\n4")]);
        bytes.extend(printer.more(&[out(1, b"\n5\n6\n")]));
        bytes.extend(printer.finish());
        assert_eq!(String::from_utf8_lossy(&bytes), "3\n4\n5\n6\n");
    }
}
