//! `cofferdam run --inputs`: code that is compiled once and run for each input, each in a sandbox of its own over what was compiled. One line of JSON for each, in order.

use std::fs;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::process::ExitCode;

use cofferdam_contract::codes::{self, ErrorCode};
use cofferdam_contract::ending::{Ending, EndingRecord, StopCause};
use cofferdam_contract::record::RunRecord;
use cofferdam_contract::request::{Grant, Request, WorkspaceAccess};
use cofferdam_engine::host::Host;
use cofferdam_engine::pipeline::{self, Evidence, Input, OnLimit, Recording, Sink, Streams};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::failure::{self, Failure};
use crate::history;
use crate::language::Prepared;
use crate::seal::document::Document;

/// One input of the program.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct OneInput {
    /// The name of its file, or its place in the list.
    #[serde(skip)]
    name: String,
    #[serde(default)]
    stdin: String,
    #[serde(skip)]
    bytes: Option<Vec<u8>>,
    #[serde(default)]
    args: Vec<String>,
    pub(crate) event: Option<Value>,
}

const MOST: usize = 1000;
/// How much of each stream a line carries.
const KEPT: usize = 16 << 20;

/// The files of a directory, by name, each the standard input of a run; or a JSON list of `{"stdin", "args", "event"}`.
pub(crate) fn read(path: &Path) -> Result<Vec<OneInput>, Failure> {
    let refused = |fix: &str| Failure::problem("--inputs", &path.to_string_lossy(), fix);
    let inputs = if path.is_dir() {
        of_directory(path)?
    } else {
        of_list(path)?
    };
    if inputs.is_empty() || inputs.len() > MOST {
        return Err(refused(&format!(
            "has no inputs or too many; give 1 to {MOST}"
        )));
    }
    let with_event = inputs.iter().filter(|input| input.event.is_some()).count();
    if with_event != 0 && with_event != inputs.len() {
        return Err(refused(
            "has inputs with an event and some without; give one to every input or to none",
        ));
    }
    Ok(inputs)
}

fn unreadable(path: &Path) -> impl Fn(std::io::Error) -> Failure {
    let what = format!("cannot read `{}`", path.display());
    move |error| Failure::io(ErrorCode::InputUnreadable, &what, &error)
}

fn of_directory(dir: &Path) -> Result<Vec<OneInput>, Failure> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(dir).map_err(unreadable(dir))? {
        let path = entry.map_err(unreadable(dir))?.path();
        if path.is_file() {
            paths.push(path);
        }
    }
    paths.sort();
    paths.truncate(MOST + 1);
    let one = |path: &std::path::PathBuf| {
        Ok(OneInput {
            name: path
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned(),
            stdin: String::new(),
            bytes: Some(Document::read(path)?.bytes),
            args: Vec::new(),
            event: None,
        })
    };
    paths.iter().map(one).collect()
}

fn of_list(path: &Path) -> Result<Vec<OneInput>, Failure> {
    let malformed = |why: String| {
        let message = format!("--inputs: `{}`: {why}", path.display());
        Failure::new(ErrorCode::InputMalformedJson, message)
    };
    let value = cofferdam_contract::strict_json::parse(&Document::read(path)?.bytes)
        .map_err(|bad| malformed(bad.to_string()))?;
    let mut inputs: Vec<OneInput> =
        serde_json::from_value(value).map_err(|bad| malformed(bad.to_string()))?;
    for (index, input) in inputs.iter_mut().enumerate() {
        input.name = index.to_string();
    }
    Ok(inputs)
}

/// What all runs share.
pub(crate) struct Each<'a> {
    pub(crate) code: &'a Prepared,
    pub(crate) request: Request,
    pub(crate) host: &'a Host,
    pub(crate) cancel: BorrowedFd<'a>,
    /// Where randomness begins, if each must give the same each time.
    pub(crate) seed: Option<u64>,
    pub(crate) on_output_limit: OnLimit,
}

impl Each<'_> {
    /// Runs them in order and tells of each. Exits as the first that did not end well.
    pub(crate) fn run(
        &self,
        inputs: Vec<OneInput>,
        mut recording: impl FnMut() -> Result<Option<Recording>, Failure>,
        afterwards: impl Fn(&RunRecord),
    ) -> Result<ExitCode, Failure> {
        let mut exit_code = 0;
        for input in inputs {
            let name = input.name.clone();
            let record = self.one(input, recording()?)?;
            failure::print(&self.line(&name, &record))?;
            history::tell_unrecorded(&record);
            afterwards(&record);
            if exit_code == 0 {
                exit_code = self.exit_code(&record);
            }
            if record.ending == Ending::Stopped(StopCause::Canceled) {
                break;
            }
        }
        Ok(ExitCode::from(exit_code))
    }

    /// A handler that ended well and has no answer that can be used has not done its work.
    fn exit_code(&self, record: &RunRecord) -> u8 {
        let exit_code = codes::exit_code(&record.ending);
        match record.ending {
            Ending::Exited { .. } if self.code.answer(record).is_err() => exit_code.max(1),
            _ => exit_code,
        }
    }

    fn one(&self, input: OneInput, recording: Option<Recording>) -> Result<RunRecord, Failure> {
        let invalid = |problems| Failure::problems(ErrorCode::InputInvalid, &problems);
        if let Some(event) = &input.event {
            self.code.place_event(event)?;
        }
        let stdin = input.bytes.unwrap_or_else(|| input.stdin.into_bytes());
        let job = self
            .code
            .job
            .for_input(&input.args, stdin)
            .map_err(invalid)?;
        let mut request = self.request.clone();
        request.argv = job.run.argv.iter().map(Into::into).collect();
        if let Some(workspace) = &mut request.workspace {
            workspace.access = WorkspaceAccess::CopyOnWrite;
        }
        let streams = Streams {
            stdin: if job.stdin.is_empty() {
                Input::Empty
            } else {
                Input::Bytes(job.stdin)
            },
            stdout: Sink::Keep { at_most: KEPT },
            stderr: Sink::Keep { at_most: KEPT },
            result: self.code.result(),
            on_output_limit: self.on_output_limit,
            evidence: Evidence::Ending,
            cancel: Some(self.cancel),
            recording,
            usage: None,
        };
        let mut grant = Grant::new(request).map_err(invalid)?;
        if let Some(seed) = self.seed {
            grant = grant.deterministic(seed).map_err(invalid)?;
        }
        Ok(pipeline::run(grant, streams, self.host)?)
    }

    fn line(&self, name: &str, record: &RunRecord) -> String {
        let (value, raised) = self.code.told(record);
        let line = json!({
            "schema": "cofferdam.input/1",
            "input": name,
            "run_id": record.run_id,
            "ending": EndingRecord::from(&record.ending),
            "exit_code": record.exit_code,
            "signal": record.signal,
            "stdout": record.stdout,
            "stderr": record.stderr,
            "return_value": value,
            "raised": raised,
            "usage": record.usage,
        });
        format!("{line}\n")
    }
}
