//! Several steps as one run: how they ended together, and what they used.

use cofferdam_contract::ending::Ending;
use cofferdam_contract::record::{CapturedStream, FinishedRun, RunRecord, UsageRecord};
use cofferdam_contract::request::BackendName;
use cofferdam_contract::usage::Usage;
use jiff::Timestamp;

use crate::outcome::{Outcome, Verdict};

/// What the parts of one run came to.
#[derive(Debug)]
pub struct Together<'a> {
    pub run_id: String,
    pub backend: BackendName,
    /// Of its parts, in order.
    pub records: &'a [RunRecord],
    pub ending: Ending,
    pub stdout: CapturedStream,
    pub stderr: CapturedStream,
    pub started_at: Timestamp,
}

impl Together<'_> {
    pub fn record(self) -> RunRecord {
        let first = self.records.first();
        let mut record = RunRecord::new(FinishedRun {
            run_id: self.run_id,
            backend: self.backend,
            ending: self.ending,
            stdout: self.stdout,
            stderr: self.stderr,
            result: None,
            usage: Usage::default(),
            enforced_by: first
                .map(|record| record.enforced_by.clone())
                .unwrap_or_default(),
            isolation: first
                .map(|record| record.isolation.clone())
                .unwrap_or_default(),
            denials: Vec::new(),
            changes: None,
            started_at: self.started_at,
            ended_at: Timestamp::now(),
        });
        record.usage = used(self.records.iter().map(|record| &record.usage));
        record
    }
}

/// Times and output add up; the rest was never in use at once.
pub fn used<'a>(each: impl Iterator<Item = &'a UsageRecord>) -> UsageRecord {
    let none = UsageRecord {
        wall_ms: 0.0,
        cpu_ms: 0.0,
        memory_peak_bytes: None,
        processes_peak: None,
        output_bytes: 0,
        disk_bytes: None,
    };
    each.fold(none, |sum, one| UsageRecord {
        wall_ms: sum.wall_ms + one.wall_ms,
        cpu_ms: sum.cpu_ms + one.cpu_ms,
        memory_peak_bytes: sum.memory_peak_bytes.max(one.memory_peak_bytes),
        processes_peak: sum.processes_peak.max(one.processes_peak),
        output_bytes: sum.output_bytes.saturating_add(one.output_bytes),
        disk_bytes: sum.disk_bytes.max(one.disk_bytes),
    })
}

impl Outcome {
    /// A step that was stopped says how; everything else is told by the exit code of the same thing on a command line. `last` is how the last step ended.
    pub fn ending(&self, last: Option<&Ending>) -> Ending {
        match (self.verdict, last) {
            (Verdict::Stopped, Some(ending @ (Ending::Stopped(_) | Ending::NeverStarted(_)))) => {
                ending.clone()
            }
            _ => Ending::Exited {
                code: i32::from(self.exit_code),
            },
        }
    }
}
