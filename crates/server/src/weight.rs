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
    let isolation = record.isolation.iter();
    let isolation = isolation.map(|(part, by)| 2 * size_of::<String>() + part.len() + by.len());
    let enforced = record.enforced_by.len() * 64;
    size_of::<RunRecord>()
        + stream(&record.stdout)
        + stream(&record.stderr)
        + record.result.as_ref().map_or(0, stream)
        + changes.sum::<usize>()
        + denials.sum::<usize>()
        + isolation.sum::<usize>()
        + enforced
}

fn artifacts(artifacts: &[Artifact]) -> usize {
    let one = |artifact: &Artifact| {
        size_of::<Artifact>() + artifact.path.len() + artifact.media_type.len()
    };
    artifacts.iter().map(one).sum()
}
