//! `cofferdam run --pure`: what is asked is read whole before anything runs, a known answer is told as its run would have been, and what a run came to is kept.

use std::fs;
use std::io::{Read as _, Write as _};
use std::os::fd::{AsFd as _, BorrowedFd};

use cofferdam_contract::codes::ErrorCode;
use cofferdam_contract::record::RunRecord;
use cofferdam_contract::request::{BackendName, Request};
use cofferdam_contract::units::Bytes;
use cofferdam_engine::host::Host;
use cofferdam_engine::pipeline::{Input, OnLimit, Sink};
use cofferdam_server::backends::Asked;
use cofferdam_store::DataDir;
use cofferdam_store::results::WorkspaceIs;
use rustix::event::{PollFd, PollFlags};
use rustix::fs::OFlags;

use crate::arguments::keys::CacheArgs;
use crate::failure::{self, Failure};
use crate::known::{self, Known, Question};
use crate::terminal::output;

/// What is to be found out, and how it is told.
pub(crate) struct Wish<'a> {
    pub(crate) request: &'a Request,
    pub(crate) workspace: WorkspaceIs,
    pub(crate) asked: &'a Asked,
    /// What makes the program, where it has to be made.
    pub(crate) compiler: Option<&'a str>,
    pub(crate) on_output_limit: OnLimit,
    /// How much of each stream the record keeps; `None` for output that is passed on.
    pub(crate) capture: Option<Bytes>,
    pub(crate) host: &'a Host,
    pub(crate) dir: Option<&'a DataDir>,
    pub(crate) cache: &'a CacheArgs,
}

/// A run whose answer may be known.
pub(crate) struct Pure {
    known: Option<Known>,
    stdin: Vec<u8>,
    at_most: usize,
    is_passed_on: bool,
}

/// Input that is read whole.
const MOST_INPUT: u64 = 64 << 20;
/// Output that is held until the end.
const MOST_OUTPUT: Bytes = Bytes::new(64 << 20);

impl Pure {
    /// Reads the input; `None` where somebody ended it meanwhile.
    pub(crate) fn new(
        wish: &Wish<'_>,
        stdin: Input,
        cancel: BorrowedFd<'_>,
    ) -> Result<Option<Self>, Failure> {
        known::check_pure(wish.request, wish.workspace)?;
        let output = wish.capture.or(wish.request.limits.output.at_most());
        let Some(at_most) = output.filter(|most| *most <= MOST_OUTPUT) else {
            let fix = "holds the output until the end; say --output-limit 64m or less";
            return Err(Failure::problem("--pure", "", fix));
        };
        let Some(stdin) = read(stdin, cancel)? else {
            return Ok(None);
        };
        let mut question = Question::new(wish.request.clone(), wish.workspace, wish.host);
        let told = format!(
            "{:?} {:?} {:?}",
            wish.on_output_limit, wish.capture, wish.asked.seed
        );
        question.parts.push(("told", told.into_bytes()));
        question.programs.extend(wish.compiler.map(str::to_owned));
        question.parts.push(("stdin", stdin.clone()));
        if wish.request.backend == BackendName::Wasm {
            let module = wish.request.argv.first().map(fs::read);
            // What cannot be read is told by whoever runs it.
            let module = module.and_then(Result::ok).unwrap_or_default();
            question.parts.push(("module", module));
        }
        Ok(Some(Self {
            known: Known::of(question, wish.cache, wish.dir),
            stdin,
            at_most: usize::try_from(at_most.get()).unwrap_or(usize::MAX),
            is_passed_on: wish.capture.is_none(),
        }))
    }

    /// The known answer, told but for its ending.
    pub(crate) fn answer(&self) -> Result<Option<RunRecord>, Failure> {
        let record = self.known.as_ref().and_then(Known::answer);
        if let Some(record) = &record
            && self.is_passed_on
        {
            pass_on(record)?;
            let mut stderr = std::io::stderr();
            let _ = writeln!(
                stderr,
                "cofferdam: a known answer, of run {}",
                record.run_id
            );
        }
        Ok(record)
    }

    /// What the program reads and where its output goes.
    pub(crate) fn streams(&mut self) -> (Input, Sink, Sink) {
        let stdin = match std::mem::take(&mut self.stdin) {
            bytes if bytes.is_empty() => Input::Empty,
            bytes => Input::Bytes(bytes),
        };
        let keep = || Sink::Keep {
            at_most: self.at_most,
        };
        (stdin, keep(), keep())
    }

    /// Tells what the run wrote, and keeps it.
    pub(crate) fn ran(&self, record: &RunRecord, about: &str) -> Result<(), Failure> {
        if self.is_passed_on {
            pass_on(record)?;
        }
        if let Some(known) = &self.known {
            known.keep(record, about);
        }
        Ok(())
    }
}

fn pass_on(record: &RunRecord) -> Result<(), Failure> {
    // A reader that has gone away is not worth a message.
    output::write(
        &mut std::io::stderr().lock(),
        &record.stderr.bytes().unwrap_or_default(),
    )?;
    output::write_stdout(&record.stdout.bytes().unwrap_or_default())?;
    Ok(())
}

/// A terminal is not read: nobody knows when a person has finished.
fn read(stdin: Input, cancel: BorrowedFd<'_>) -> Result<Option<Vec<u8>>, Failure> {
    let failed = |error: std::io::Error| {
        let what = "cannot read the input";
        Failure::io(ErrorCode::InputUnreadable, what, &error)
    };
    let from = match stdin {
        Input::Empty => return Ok(Some(Vec::new())),
        Input::Bytes(bytes) => return Ok(Some(bytes)),
        Input::From(from) if rustix::termios::isatty(&from) => return Ok(Some(Vec::new())),
        Input::From(from) => from,
    };
    // The caller's own, where it is that: its flags are not ours to change.
    let is_waiting =
        !rustix::fs::fcntl_getfl(&from).is_ok_and(|flags| flags.contains(OFlags::NONBLOCK));
    let mut file = fs::File::from(from);
    let mut bytes = Vec::new();
    let mut piece = vec![0; 64 << 10];
    loop {
        let mut waited = [
            PollFd::from_borrowed_fd(cancel, PollFlags::IN),
            PollFd::from_borrowed_fd(file.as_fd(), PollFlags::IN),
        ];
        match rustix::event::poll(&mut waited, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(failed(errno.into())),
        }
        if waited
            .first()
            .is_some_and(|cancel| !cancel.revents().is_empty())
        {
            return Ok(None);
        }
        let is_ready = waited.get(1).is_some_and(|file| !file.revents().is_empty());
        if !is_ready && is_waiting {
            continue;
        }
        match file.read(&mut piece) {
            Ok(0) => return Ok(Some(bytes)),
            Ok(length) => bytes.extend_from_slice(piece.get(..length).unwrap_or_default()),
            Err(error)
                if matches!(
                    error.kind(),
                    std::io::ErrorKind::WouldBlock | std::io::ErrorKind::Interrupted
                ) => {}
            Err(error) => return Err(failed(error)),
        }
        if u64::try_from(bytes.len()).is_ok_and(|length| length > MOST_INPUT) {
            let fix = "reads the input first, at most 64 MiB; put it into a workspace";
            return Err(Failure::problem("--pure", "", fix));
        }
    }
}

/// For the list of answers.
pub(crate) fn about(request: &Request) -> String {
    let words = request.argv.iter().map(|word| word.to_string_lossy());
    failure::visible(&words.collect::<Vec<_>>().join(" "))
}
