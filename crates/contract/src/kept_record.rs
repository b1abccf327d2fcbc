//! A run's record in a form that can be read back, for giving a known answer again. Only what a program itself brought about is kept: a run that never started, or that a person
//! ended, has no form here.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::ending::{DiskPlace, Ending, StopCause, Stream};
use crate::enforcement::Enforcement;
use crate::envelope::CachedFrom;
use crate::record::{CapturedStream, Change, Denial, RunRecord, UsageRecord};
use crate::units::Bytes;

/// The record of a run whose answer may be given again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeptRecord {
    pub run_id: String,
    backend: String,
    ending: KeptEnding,
    stdout: CapturedStream,
    stderr: CapturedStream,
    result: Option<CapturedStream>,
    usage: UsageRecord,
    enforced_by: Enforcement,
    isolation: BTreeMap<String, String>,
    denials: Vec<Denial>,
    changes: Option<Vec<Change>>,
    started_at: String,
    pub ended_at: String,
    trap: Option<String>,
    determinism: Option<BTreeMap<String, String>>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum KeptEnding {
    Exited(i32),
    Signaled(i32),
    Stopped(KeptCause),
}

/// The limit that ended it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum KeptCause {
    WallTime(Duration),
    CpuTime(Duration),
    Memory(u64),
    Stdout(u64),
    Stderr(u64),
    Processes(u64),
    Scratch(u64),
    Workspace(u64),
}

/// Who ended a run whose answer is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndedBy {
    Program,
    Limit,
}

impl KeptRecord {
    /// `None` for what is nobody's answer: our own fault, a missing program, a person's word, output of which a part is gone.
    pub fn of(record: &RunRecord) -> Option<Self> {
        let streams = [
            Some(&record.stdout),
            Some(&record.stderr),
            record.result.as_ref(),
        ];
        let is_cut = streams.into_iter().flatten().any(|stream| stream.truncated);
        let ending = KeptEnding::of(&record.ending)?;
        // A run that the output limit ended is cut by it.
        if is_cut && !matches!(ending, KeptEnding::Stopped(_)) {
            return None;
        }
        Some(Self {
            run_id: record.run_id.clone(),
            backend: record.backend.clone(),
            ending,
            stdout: record.stdout.clone(),
            stderr: record.stderr.clone(),
            result: record.result.clone(),
            usage: record.usage,
            enforced_by: record.enforced_by.clone(),
            isolation: record.isolation.clone(),
            denials: record.denials.clone(),
            changes: record.changes.clone(),
            started_at: record.started_at.clone(),
            ended_at: record.ended_at.clone(),
            trap: record.trap.clone(),
            determinism: record.determinism.clone(),
        })
    }

    /// What the program wrote, in whichever way.
    pub fn written(&self) -> impl Iterator<Item = &CapturedStream> {
        [Some(&self.stdout), Some(&self.stderr), self.result.as_ref()]
            .into_iter()
            .flatten()
    }

    pub const fn ended_by(&self) -> EndedBy {
        match self.ending {
            KeptEnding::Exited(_) | KeptEnding::Signaled(_) => EndedBy::Program,
            KeptEnding::Stopped(_) => EndedBy::Limit,
        }
    }

    /// The record as it was, marked as one that is given again.
    pub fn again(self) -> RunRecord {
        let ending = self.ending.again();
        let (exit_code, signal) = ending.code_and_signal();
        RunRecord {
            schema: RunRecord::SCHEMA,
            cached: Some(CachedFrom {
                run_id: self.run_id.clone(),
            }),
            run_id: self.run_id,
            backend: self.backend,
            ending,
            exit_code,
            signal,
            stdout: self.stdout,
            stderr: self.stderr,
            result: self.result,
            usage: self.usage,
            enforced_by: self.enforced_by,
            isolation: self.isolation,
            denials: self.denials,
            changes: self.changes,
            started_at: self.started_at,
            ended_at: self.ended_at,
            trap: self.trap,
            determinism: self.determinism,
            // A run with network is never given again.
            network: None,
            unrecorded: None,
        }
    }
}

impl KeptEnding {
    pub(crate) fn of(ending: &Ending) -> Option<Self> {
        Some(match ending {
            Ending::Exited { code } => Self::Exited(*code),
            Ending::Signaled { signal } => Self::Signaled(*signal),
            Ending::Stopped(cause) => Self::Stopped(match cause {
                StopCause::WallTime { limit } => KeptCause::WallTime(*limit),
                StopCause::CpuTime { limit } => KeptCause::CpuTime(*limit),
                StopCause::Memory { limit } => KeptCause::Memory(limit.get()),
                StopCause::Output { limit, stream } => match stream {
                    Stream::Stdout => KeptCause::Stdout(limit.get()),
                    Stream::Stderr => KeptCause::Stderr(limit.get()),
                },
                StopCause::Processes { limit } => KeptCause::Processes(*limit),
                StopCause::Disk { limit, place } => match place {
                    DiskPlace::Scratch => KeptCause::Scratch(limit.get()),
                    DiskPlace::Workspace => KeptCause::Workspace(limit.get()),
                },
                StopCause::Canceled => return None,
            }),
            Ending::NeverStarted(_) => return None,
        })
    }

    pub(crate) const fn again(self) -> Ending {
        match self {
            Self::Exited(code) => Ending::Exited { code },
            Self::Signaled(signal) => Ending::Signaled { signal },
            Self::Stopped(cause) => Ending::Stopped(cause.again()),
        }
    }
}

impl KeptCause {
    const fn again(self) -> StopCause {
        match self {
            Self::WallTime(limit) => StopCause::WallTime { limit },
            Self::CpuTime(limit) => StopCause::CpuTime { limit },
            Self::Memory(limit) => StopCause::Memory {
                limit: Bytes::new(limit),
            },
            Self::Stdout(limit) => StopCause::Output {
                limit: Bytes::new(limit),
                stream: Stream::Stdout,
            },
            Self::Stderr(limit) => StopCause::Output {
                limit: Bytes::new(limit),
                stream: Stream::Stderr,
            },
            Self::Processes(limit) => StopCause::Processes { limit },
            Self::Scratch(limit) => StopCause::Disk {
                limit: Bytes::new(limit),
                place: DiskPlace::Scratch,
            },
            Self::Workspace(limit) => StopCause::Disk {
                limit: Bytes::new(limit),
                place: DiskPlace::Workspace,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ending::{SetupFailure, SetupFailureKind};
    use crate::envelope::tests::run;

    fn kept(ending: Ending) -> Option<KeptRecord> {
        let record = RunRecord::new(run(ending, b"out", b"\xff"));
        let kept = KeptRecord::of(&record)?;
        let text = serde_json::to_string(&kept).unwrap();
        let read: KeptRecord = serde_json::from_str(&text).unwrap();
        assert_eq!(read, kept);
        let mut again = read.clone().again();
        assert_eq!(again.cached.take().unwrap().run_id, record.run_id);
        assert_eq!(again, record, "the same but for the mark");
        Some(read)
    }

    #[test]
    fn what_a_program_or_a_limit_brought_about_comes_back_as_it_was() {
        for code in [0, 1, 255] {
            let kept = kept(Ending::Exited { code }).unwrap();
            assert_eq!(kept.ended_by(), EndedBy::Program);
        }
        let signaled = kept(Ending::Signaled { signal: 11 }).unwrap();
        assert_eq!(signaled.ended_by(), EndedBy::Program);
        let bytes = Bytes::new(4096);
        for cause in [
            StopCause::WallTime {
                limit: Duration::from_millis(1500),
            },
            StopCause::CpuTime {
                limit: Duration::from_secs(2),
            },
            StopCause::Memory { limit: bytes },
            StopCause::Output {
                limit: bytes,
                stream: Stream::Stdout,
            },
            StopCause::Output {
                limit: bytes,
                stream: Stream::Stderr,
            },
            StopCause::Processes { limit: 5 },
            StopCause::Disk {
                limit: bytes,
                place: DiskPlace::Scratch,
            },
            StopCause::Disk {
                limit: bytes,
                place: DiskPlace::Workspace,
            },
        ] {
            assert_eq!(
                kept(Ending::Stopped(cause)).unwrap().ended_by(),
                EndedBy::Limit
            );
        }
    }

    #[test]
    fn our_faults_a_persons_word_and_half_an_output_are_no_answers() {
        assert_eq!(kept(Ending::Stopped(StopCause::Canceled)), None);
        for kind in [
            SetupFailureKind::Sandbox,
            SetupFailureKind::ProgramNotFound,
            SetupFailureKind::ProgramNotExecutable,
        ] {
            let failure = SetupFailure {
                kind,
                step: "mount".into(),
                message: "no".into(),
                errno: None,
            };
            assert_eq!(kept(Ending::NeverStarted(failure)), None);
        }
        let mut cut = run(Ending::Exited { code: 0 }, b"out", b"");
        cut.stdout = CapturedStream::new(b"ou", 3);
        assert_eq!(KeptRecord::of(&RunRecord::new(cut)), None);
    }
}
