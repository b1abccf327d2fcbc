//! The attendant's side of a run: its command line, and what the supervisor makes of what it said and of what it did not say.

use std::ffi::OsString;
use std::os::fd::{AsFd, OwnedFd};

use cofferdam_contract::ending::{DiskPlace, StopCause};
use cofferdam_contract::request::Request;
use cofferdam_contract::units::{Bytes, Cap};
use cofferdam_contract::usage::Usage;
use cofferdam_sys::attendant::{FailedAt, MESSAGE, ScratchLeft, Word};
use cofferdam_sys::protocol::{Stage, WaitStatus};
use rustix::io::Errno;
use rustix::process::Resource;

use crate::error::EngineError;
use crate::program;
use crate::settle::Report;

/// What the supervisor keeps of the tool and the attendant, to be looked at when both have ended.
#[derive(Debug)]
pub(crate) struct Attended {
    /// Where the attendant tells: the end of a pipe, or a file, that is ours alone.
    pub(crate) told: OwnedFd,
    /// bubblewrap's own account, as JSON.
    pub(crate) status: Option<OwnedFd>,
    /// Processes of the tool that are counted with the program's; `None` where nobody can tell them apart.
    pub(crate) tool_processes: Option<u64>,
    /// The tool, for messages.
    pub(crate) tool: &'static str,
    /// Goes when the run has: what the tool has on disk.
    pub(crate) _premises: Option<Box<dyn std::any::Any + Send + Sync>>,
}

/// What was heard at the end.
#[derive(Debug)]
pub(crate) struct Told {
    pub(crate) report: Report,
    scratch: Option<ScratchLeft>,
    word: Option<Word>,
    /// Lasts as long as anything of the run is asked for.
    attended: Option<Attended>,
}

/// What the attendant has to do for the program.
#[derive(Debug)]
pub(crate) struct Hearing<'a> {
    pub(crate) request: &'a Request,
    pub(crate) rlimits: &'a [(Resource, u64)],
    /// Whom the program becomes, where the tool starts the attendant as root of its own kernel.
    pub(crate) becomes: Option<u32>,
    /// How many tasks the tool's own kernel may have, where the attendant has to count them.
    pub(crate) most_tasks: Option<u64>,
}

/// The attendant's arguments behind its name and the place where it tells.
pub(crate) fn words(hearing: &Hearing<'_>) -> Vec<OsString> {
    let limits: Vec<String> = hearing
        .rlimits
        .iter()
        .map(|(resource, value)| format!("{}={value}", *resource as u32))
        .collect();
    let (cwd, candidates) = program::place(hearing.request);
    let becomes = hearing.becomes.map(|id| id.to_string()).unwrap_or_default();
    // One more than the program's is the attendant.
    let too_many = hearing
        .most_tasks
        .map(|most| most.saturating_add(2).to_string());
    let mut words = vec![
        OsString::from(limits.join(",")),
        cwd,
        becomes.into(),
        too_many.unwrap_or_default().into(),
    ];
    words.extend(candidates);
    words.push(OsString::new());
    words.extend(hearing.request.argv.iter().cloned());
    words
}

/// A descriptor with this content, to be read from its beginning.
pub(crate) fn given(content: &[u8]) -> Result<OwnedFd, EngineError> {
    let failed = EngineError::system("lay out what the tool reads");
    let file =
        rustix::fs::memfd_create(c"cofferdam", rustix::fs::MemfdFlags::CLOEXEC).map_err(&failed)?;
    let mut rest = content;
    while !rest.is_empty() {
        let written = rustix::io::write(&file, rest).map_err(&failed)?;
        rest = rest.get(written..).unwrap_or_default();
    }
    rustix::fs::seek(&file, rustix::fs::SeekFrom::Start(0)).map_err(&failed)?;
    Ok(file)
}

impl Attended {
    fn word(&self) -> Option<Word> {
        read(&self.told, MESSAGE).and_then(|bytes| Word::read(&bytes))
    }

    /// Puts what the attendant said in the place of what is known of the tool's own process. What stopped the tool, or kept it from being started, stays.
    fn hear(&self, report: Report, word: Option<Word>) -> (Report, Option<ScratchLeft>) {
        let nothing = |report| (report, None);
        match (report, word) {
            (Report::Ended(_) | Report::InitGone, Some(Word::Ended { status, scratch })) => {
                (Report::Ended(wait_status(status)), scratch)
            }
            (Report::Ended(_) | Report::InitGone, Some(Word::Failed { at, errno })) => {
                nothing(failed(at, errno))
            }
            // The attendant was killed, or ended in no way of its own.
            (Report::Ended(status), None) if self.tool_says_that_it_began() => {
                nothing(Report::Ended(beyond_shell(status)))
            }
            (Report::Ended(_) | Report::ExecFailed { .. }, None) => {
                nothing(Report::ToolFailed { tool: self.tool })
            }
            (other, _) => nothing(other),
        }
    }

    fn tool_says_that_it_began(&self) -> bool {
        const MOST: usize = 4096;
        let text = self.status.as_ref().and_then(|status| read(status, MOST));
        let documents = serde_json::Deserializer::from_slice(text.as_deref().unwrap_or_default());
        documents
            .into_iter::<serde_json::Value>()
            .map_while(Result::ok)
            .any(|document| document.get("exit-code").is_some())
    }
}

impl Told {
    /// Without a tool, what init reported is all there is.
    pub(crate) fn of(attended: Option<Attended>, report: Report) -> Self {
        let word = attended.as_ref().and_then(Attended::word);
        let (report, scratch) = match &attended {
            Some(attended) => attended.hear(report, word),
            None => (report, None),
        };
        Self {
            report,
            scratch,
            word,
            attended,
        }
    }

    /// Without the tool's own processes.
    pub(crate) fn correct(&self, usage: &mut Usage) {
        let Some(attended) = &self.attended else {
            return;
        };
        usage.processes_peak = usage
            .processes_peak
            .zip(attended.tool_processes)
            .map(|(peak, tool)| peak.saturating_sub(tool).max(1));
        usage.disk = self.scratch.map(|scratch| Bytes::new(scratch.used_bytes));
    }

    /// A limit that the attendant held.
    pub(crate) fn cause(&self, processes: Cap<u64>) -> Option<StopCause> {
        let limit = processes.at_most()?;
        (self.word == Some(Word::TooManyTasks)).then_some(StopCause::Processes { limit })
    }

    /// After a failure: whether the scratch space was full.
    pub(crate) fn disk_cause(&self, limit: Cap<Bytes>) -> Option<StopCause> {
        let limit = limit.at_most()?;
        let left = self.scratch?;
        let is_full =
            left.free_bytes < 4096 || left.free_files == Some(0) || left.used_bytes >= limit.get();
        (is_full && self.report.is_failure()).then_some(StopCause::Disk {
            limit,
            place: DiskPlace::Scratch,
        })
    }
}

fn failed(at: FailedAt, errno: i32) -> Report {
    match at {
        FailedAt::Exec => Report::ExecFailed {
            stage: Stage::Exec,
            errno,
        },
        FailedAt::Cwd => Report::ExecFailed {
            stage: Stage::Cwd,
            errno,
        },
        FailedAt::Rlimits => Report::SetupFailed {
            stage: Stage::Rlimits,
            errno,
        },
        FailedAt::Identity => Report::SetupFailed {
            stage: Stage::Identity,
            errno,
        },
        FailedAt::Fork => Report::SetupFailed {
            stage: Stage::Clone,
            errno,
        },
    }
}

fn wait_status(status: i32) -> WaitStatus {
    match status & 0x7f {
        0 => WaitStatus::Exited {
            code: status >> 8 & 0xff,
        },
        signal => WaitStatus::Signaled { signal },
    }
}

/// Such tools say, as a shell does, 128 and the signal.
fn beyond_shell(status: WaitStatus) -> WaitStatus {
    match status {
        WaitStatus::Exited { code } if code > 128 => WaitStatus::Signaled { signal: code - 128 },
        other => other,
    }
}

/// What is there, without waiting for more.
fn read(from: &OwnedFd, at_most: usize) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(at_most);
    loop {
        let room = rustix::buffer::spare_capacity(&mut bytes);
        match rustix::io::read(from.as_fd(), room) {
            Ok(0) | Err(Errno::AGAIN) => break,
            Ok(_) if bytes.len() >= at_most => break,
            Ok(_) | Err(Errno::INTR) => {}
            Err(_) => return None,
        }
    }
    (!bytes.is_empty()).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn attended(told: &[u8], status: &str) -> Attended {
        Attended {
            told: given(told).unwrap(),
            status: Some(given(status.as_bytes()).unwrap()),
            tool_processes: Some(3),
            tool: "bubblewrap",
            _premises: None,
        }
    }

    fn message(kind: i32, value: i32) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.write_all(&kind.to_ne_bytes()).unwrap();
        bytes.write_all(&value.to_ne_bytes()).unwrap();
        bytes.resize(MESSAGE, 0);
        bytes
    }

    const BEGAN: &str = "{ \"child-pid\": 7 }\n{ \"exit-code\": 137 }\n";
    const ENDED: Report = Report::Ended(WaitStatus::Exited { code: 137 });

    #[test]
    fn the_attendants_word_comes_before_the_tools_exit_code() {
        let heard = |told: &[u8], status| Told::of(Some(attended(told, status)), ENDED).report;
        assert_eq!(heard(&message(1, 137 << 8), BEGAN), ENDED);
        let killed = Report::Ended(WaitStatus::Signaled { signal: 9 });
        assert_eq!(heard(&message(1, 9), BEGAN), killed);
        // Nobody is left to say it: the tool's code has to do.
        assert_eq!(heard(b"", BEGAN), killed);
        let failed = Report::ToolFailed { tool: "bubblewrap" };
        assert_eq!(heard(b"", "{ \"child-pid\": 7 }\n"), failed);
        assert_eq!(heard(b"", "not json"), failed);
        let missing = Report::ExecFailed {
            stage: Stage::Exec,
            errno: 2,
        };
        assert_eq!(heard(&message(2, 2), BEGAN), missing);
    }
}
