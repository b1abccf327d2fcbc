//! How much memory a result takes for as long as it is remembered: everything that it holds, not only what was printed.

use cofferdam_contract::record::{CapturedStream, RunRecord};
use cofferdam_store::model::{Artifact, LeftOut};

use crate::inputs::InputOutcome;
use crate::live::Finished;

impl Finished {
    pub(crate) fn weight(&self) -> usize {
        let inputs = self
            .inputs
            .as_ref()
            .map_or(0, |inputs| inputs.iter().map(InputOutcome::weight).sum());
        let left_out = |left: &LeftOut| size_of::<LeftOut>() + left.path.len() + left.why.len();
        record(&self.record)
            + self.answer.weight()
            + artifacts(&self.artifacts)
            + self.left_out.iter().map(left_out).sum::<usize>()
            + inputs
            // As a tree it takes several times as much as written.
            + self.project.as_ref().map_or(0, |done| 4 * done.bytes)
    }
}

impl InputOutcome {
    fn weight(&self) -> usize {
        let inside = match self {
            Self::NotRun { why } => why.len(),
            Self::Ran(result) => {
                record(&result.record) + result.answer.weight() + artifacts(&result.artifacts)
            }
        };
        size_of::<Self>() + inside
    }
}

fn record(record: &RunRecord) -> usize {
    let stream = |stream: &CapturedStream| stream.data.len();
    let changes = record.changes.iter().flatten();
    let changes = changes.map(|change| size_of_val(change) + change.path.len());
    let denials = record.denials.iter();
    let denials = denials.map(|denial| size_of_val(denial) + denial.what.len());
    let events = record.network.iter().flat_map(|told| &told.events);
    let events = events.map(|event| {
        let texts = [event.address.as_ref(), event.why.as_ref()];
        let texts = texts.into_iter().flatten().map(String::len).sum::<usize>();
        size_of_val(event) + event.host.len() + texts
    });
    let isolation = record.isolation.iter();
    let isolation = isolation.map(|(part, by)| 2 * size_of::<String>() + part.len() + by.len());
    let enforced = record.enforced_by.len() * 64;
    size_of::<RunRecord>()
        + stream(&record.stdout)
        + stream(&record.stderr)
        + record.result.as_ref().map_or(0, stream)
        + changes.sum::<usize>()
        + denials.sum::<usize>()
        + events.sum::<usize>()
        + isolation.sum::<usize>()
        + enforced
}

fn artifacts(artifacts: &[Artifact]) -> usize {
    let one = |artifact: &Artifact| {
        size_of::<Artifact>() + artifact.path.len() + artifact.media_type.len()
    };
    artifacts.iter().map(one).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inputs::InputResult;
    use crate::language::Answer;
    use crate::live::Stage;
    use cofferdam_contract::ending::Ending;
    use cofferdam_contract::record::{Change, ChangeKind, Denial, DenialKind, FinishedRun};
    use cofferdam_contract::request::BackendName;
    use cofferdam_contract::usage::Usage;
    use jiff::Timestamp;

    const LONG: usize = 100_000;

    fn plain() -> RunRecord {
        RunRecord::new(FinishedRun {
            run_id: String::new(),
            backend: BackendName::Native,
            ending: Ending::Exited { code: 0 },
            stdout: CapturedStream::whole(b""),
            stderr: CapturedStream::whole(b""),
            result: None,
            usage: Usage::default(),
            enforced_by: Default::default(),
            isolation: Default::default(),
            denials: Vec::new(),
            changes: None,
            started_at: Timestamp::UNIX_EPOCH,
            ended_at: Timestamp::UNIX_EPOCH,
        })
    }

    fn finished(change: impl FnOnce(&mut Finished)) -> usize {
        let mut finished = Finished::without_files(plain(), Stage::Run);
        change(&mut finished);
        finished.weight()
    }

    #[test]
    fn whatever_a_result_holds_counts() {
        let long = || "x".repeat(LONG);
        let bare = finished(|_| {});
        assert!(bare < LONG);
        let weights = [
            finished(|of| of.record.stdout = CapturedStream::whole(long().as_bytes())),
            finished(|of| of.record.stderr = CapturedStream::whole(long().as_bytes())),
            finished(|of| of.answer = Answer::Value(serde_json::json!({ long(): [] }))),
            finished(|of| of.answer = Answer::Bad { why: long() }),
            finished(|of| {
                let kind = ChangeKind::Added;
                of.record.changes = Some(vec![Change { path: long(), kind }]);
            }),
            finished(|of| {
                let kind = DenialKind::Syscall;
                of.record.denials = vec![Denial {
                    kind,
                    what: long(),
                    count: 1,
                }];
            }),
            finished(|of| {
                let (path, why) = (long(), String::new());
                of.left_out = vec![LeftOut { path, why }];
            }),
            finished(|of| {
                let mut record = plain();
                record.stdout = CapturedStream::whole(long().as_bytes());
                let result = InputResult {
                    record,
                    answer: Answer::None,
                    artifacts: Vec::new(),
                };
                of.inputs = Some(vec![InputOutcome::Ran(Box::new(result))]);
            }),
            finished(|of| of.inputs = Some(vec![InputOutcome::NotRun { why: long() }])),
        ];
        for (index, weight) in weights.into_iter().enumerate() {
            assert!(weight >= bare + LONG, "{index}: {weight}");
        }
        // Small values take more than their text.
        let many = serde_json::Value::Array(vec![serde_json::json!(1); LONG]);
        assert!(finished(|of| of.answer = Answer::Value(many)) > 10 * LONG);
    }
}
