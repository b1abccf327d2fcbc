//! What comes back of a run that was carried out elsewhere, as one document. Its reader trusts nothing in it: sizes, paths and digests are checked where it is taken in.

use std::collections::BTreeSet;

use cofferdam_contract::carried_record::CarriedRecord;
use cofferdam_contract::record::RunRecord;
use cofferdam_store::collect::ArtifactLimits;
use cofferdam_store::model::{Artifact, LeftOut};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::inputs::{InputOutcome, InputResult};
use crate::language::Answer;
use crate::live::{Finished, Stage};
use crate::project::Done;

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Brought {
    record: CarriedRecord,
    stage: Stage,
    answer: Answer,
    inputs: Option<Vec<BroughtInput>>,
    project: Option<Value>,
    pub(crate) artifacts: Vec<Artifact>,
    left_out: Vec<LeftOut>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum BroughtInput {
    Ran {
        record: Box<CarriedRecord>,
        answer: Answer,
        artifacts: Vec<Artifact>,
    },
    NotRun {
        why: String,
    },
}

impl Brought {
    pub(crate) fn of_record(record: &RunRecord) -> Self {
        Self {
            record: CarriedRecord::of(record),
            stage: Stage::Run,
            answer: Answer::None,
            inputs: None,
            project: None,
            artifacts: Vec::new(),
            left_out: Vec::new(),
        }
    }

    pub(crate) fn of(finished: &Finished) -> Self {
        let input = |outcome: &InputOutcome| match outcome {
            InputOutcome::Ran(result) => BroughtInput::Ran {
                record: Box::new(CarriedRecord::of(&result.record)),
                answer: result.answer.clone(),
                artifacts: result.artifacts.clone(),
            },
            InputOutcome::NotRun { why } => BroughtInput::NotRun { why: why.clone() },
        };
        let inputs = finished.inputs.as_ref();
        Self {
            record: CarriedRecord::of(&finished.record),
            stage: finished.stage,
            answer: finished.answer.clone(),
            inputs: inputs.map(|inputs| inputs.iter().map(input).collect()),
            project: finished.project.as_ref().map(|done| done.outcome.clone()),
            artifacts: finished.artifacts.clone(),
            left_out: finished.left_out.clone(),
        }
    }

    pub(crate) fn text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Every file that the run left, its inputs included, with the size that it is said to have; each once, unless it is said to have several.
    pub(crate) fn files(&self) -> BTreeSet<(String, u64)> {
        let of_inputs = self.inputs.iter().flatten().flat_map(|input| match input {
            BroughtInput::Ran { artifacts, .. } => artifacts.as_slice(),
            BroughtInput::NotRun { .. } => &[],
        });
        let all = self.artifacts.iter().chain(of_inputs);
        all.map(|artifact| (artifact.digest.to_string(), artifact.bytes))
            .collect()
    }

    /// The same without their sizes.
    pub(crate) fn digests(&self) -> Vec<String> {
        let mut digests: Vec<String> = self.files().into_iter().map(|(digest, _)| digest).collect();
        digests.dedup();
        digests
    }

    /// Leaves out what may not be kept, with the reason. What was asked of the worker it may have done otherwise.
    pub(crate) fn hold_to(&mut self, limits: Option<ArtifactLimits>) {
        let (mut bytes, mut files) = (0_u64, 0_u64);
        let mut held = |artifacts: &mut Vec<Artifact>, left_out: &mut Vec<LeftOut>| {
            artifacts.retain(|artifact| {
                let why = match limits {
                    None => Some("files are not kept here"),
                    Some(_) if !is_plain(&artifact.path) => Some("its name leads elsewhere"),
                    Some(limits) => {
                        bytes = bytes.saturating_add(artifact.bytes);
                        files = files.saturating_add(1);
                        let is_more = artifact.bytes > limits.per_file.get()
                            || bytes > limits.per_run.get()
                            || files > limits.files;
                        is_more.then_some("is more than is kept here")
                    }
                };
                if let Some(why) = why {
                    left_out.push(LeftOut {
                        path: artifact.path.clone(),
                        why: why.to_owned(),
                    });
                }
                why.is_none()
            });
        };
        held(&mut self.artifacts, &mut self.left_out);
        for input in self.inputs.iter_mut().flatten() {
            if let BroughtInput::Ran { artifacts, .. } = input {
                held(artifacts, &mut self.left_out);
            }
        }
    }

    /// As if it had been carried out here.
    pub(crate) fn finished(self) -> Finished {
        let input = |input: BroughtInput| match input {
            BroughtInput::Ran {
                record,
                answer,
                artifacts,
            } => InputOutcome::Ran(Box::new(InputResult {
                record: record.record(),
                answer,
                artifacts,
            })),
            BroughtInput::NotRun { why } => InputOutcome::NotRun { why },
        };
        let inputs = self.inputs;
        Finished {
            record: self.record.record(),
            stage: self.stage,
            artifacts: self.artifacts,
            left_out: self.left_out,
            answer: self.answer,
            inputs: inputs.map(|inputs| inputs.into_iter().map(input).collect()),
            project: self.project.map(|outcome| {
                let bytes = outcome.to_string().len();
                Box::new(Done { outcome, bytes })
            }),
            envelope: None,
        }
    }
}

/// A path of a file below a workspace and nothing else.
fn is_plain(path: &str) -> bool {
    let is_name = |name: &str| !name.is_empty() && name != "." && name != "..";
    path.len() <= 4096 && !path.contains('\0') && path.split('/').all(is_name)
}

#[cfg(test)]
mod tests {
    use cofferdam_contract::ending::Ending;
    use cofferdam_contract::record::{CapturedStream, FinishedRun};
    use cofferdam_contract::request::BackendName;
    use cofferdam_contract::usage::Usage;
    use cofferdam_store::model::{ArtifactKind, Digest};
    use jiff::Timestamp;

    use super::*;

    fn artifact(path: &str, bytes: u64) -> Artifact {
        Artifact {
            path: path.to_owned(),
            digest: Digest::of(path.as_bytes()),
            bytes,
            media_type: "text/plain".to_owned(),
            kind: ArtifactKind::Added,
            mode: 0o644,
        }
    }

    #[test]
    fn files_of_a_stranger_are_held_to_names_and_sizes() {
        let now = Timestamp::now();
        let record = RunRecord::new(FinishedRun {
            run_id: "run".to_owned(),
            backend: BackendName::Native,
            ending: Ending::Exited { code: 0 },
            stdout: CapturedStream::new(b"", 0),
            stderr: CapturedStream::new(b"", 0),
            result: None,
            usage: Usage::default(),
            enforced_by: Default::default(),
            isolation: Default::default(),
            denials: Vec::new(),
            changes: None,
            started_at: now,
            ended_at: now,
        });
        let mut brought = Brought::of_record(&record);
        brought.artifacts = vec![
            artifact("a/b", 5),
            artifact("../up", 1),
            artifact("/etc/passwd", 1),
            artifact("a//b", 1),
            artifact("large", 1 << 40),
        ];
        let text = brought.text();
        let read = || serde_json::from_str::<Brought>(&text).unwrap();
        let mut held = read();
        held.hold_to(Some(ArtifactLimits::default()));
        let finished = held.finished();
        let names: Vec<&str> = finished
            .artifacts
            .iter()
            .map(|one| one.path.as_str())
            .collect();
        assert_eq!(names, ["a/b"]);
        let out: Vec<&str> = finished
            .left_out
            .iter()
            .map(|one| one.path.as_str())
            .collect();
        assert_eq!(out, ["../up", "/etc/passwd", "a//b", "large"]);
        // What is said to have two sizes is asked for with both: one of them cannot be right.
        let mut twice = read();
        twice.artifacts = vec![artifact("a/b", 5), artifact("a/b", 5), artifact("a/b", 6)];
        let sizes: Vec<u64> = twice.files().into_iter().map(|(_, bytes)| bytes).collect();
        assert_eq!((sizes, twice.digests().len()), (vec![5, 6], 1));
        let mut none = read();
        none.hold_to(None);
        assert!(none.finished().artifacts.is_empty());
    }
}
