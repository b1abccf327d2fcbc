//! What an answer to a request says beside its envelope, and whether those that agree by their envelopes agree in that too: what a handler returned, what came of each input, which files
//! were left. Pure.

use cofferdam_contract::canonical::{self, Digest};
use cofferdam_contract::replicas::{Agreement, Outcome};
use serde::Deserialize;
use serde_json::{Value, json};

/// Two digests, as a difference in the one is a lie and a difference in the other need not be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Beside {
    /// Of which step the answer is, and what a handler returned.
    answer: Digest,
    /// What came of inputs and projects, and which files were left. Honest machines may differ: a file can have the time in it, an input can be stopped by a limit.
    rest: Digest,
}

/// What of a document is compared. Its record is compared by its envelope.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Told {
    stage: Value,
    answer: Value,
    inputs: Option<Vec<Value>>,
    project: Value,
    artifacts: Vec<Value>,
}

impl Beside {
    /// Of a document that came with an answer. One that cannot be read is like no other.
    pub(crate) fn of(bytes: &[u8]) -> Self {
        let digests = || {
            let told: Told = serde_json::from_slice(bytes).ok()?;
            let inputs = told.inputs.as_ref();
            let inputs: Option<Vec<Value>> =
                inputs.map(|inputs| inputs.iter().map(input).collect());
            let answer = json!([told.stage, told.answer]);
            let rest = json!([inputs, told.project, files(&told.artifacts)]);
            Some(Self {
                answer: digest(&answer),
                rest: digest(&rest),
            })
        };
        let unread = Digest::of(bytes);
        digests().unwrap_or(Self {
            answer: unread,
            rest: unread,
        })
    }
}

/// A handler may return numbers that have no canonical form; honest ones write them the same.
fn digest(value: &Value) -> Digest {
    canonical::digest(value).unwrap_or_else(|_| Digest::of(value.to_string().as_bytes()))
}

/// What came of one input, without when and how long.
fn input(input: &Value) -> Value {
    let Some(ran) = input.get("ran") else {
        return input.clone();
    };
    let of_record = |name: &str| ran.pointer(&format!("/record/{name}")).cloned();
    let artifacts = ran.get("artifacts").and_then(Value::as_array);
    json!([
        of_record("ending"),
        of_record("stdout"),
        ran.get("answer"),
        artifacts.map(|artifacts| files(artifacts)),
    ])
}

fn files(artifacts: &[Value]) -> Vec<Value> {
    let file = |artifact: &Value| json!([artifact.get("path"), artifact.get("digest")]);
    artifacts.iter().map(file).collect()
}

/// The decision, when what is beside the envelopes counts too. The answer that most of the majority have stands, if they are still enough; who returned something else stands against it,
/// and who differs in the rest neither counts nor is blamed.
pub(crate) fn narrowed(agreed: Agreement, beside: &[Option<Beside>]) -> Agreement {
    let of = |place: usize| beside.get(place).copied().flatten();
    let same = |leader: usize| -> Vec<usize> {
        let places = agreed.majority.iter().copied();
        places.filter(|place| of(*place) == of(leader)).collect()
    };
    let mut with = Vec::new();
    for leader in &agreed.majority {
        let found = same(*leader);
        if found.len() > with.len() {
            with = found;
        }
    }
    if with.len() == agreed.majority.len() {
        return agreed;
    }
    if with.len() < agreed.required {
        return Agreement {
            outcome: Outcome::Dispute,
            majority: Vec::new(),
            minority: Vec::new(),
            excused: (0..beside.len()).collect(),
            ..agreed
        };
    }
    let stands = with.first().copied().and_then(of);
    let (mut minority, mut excused) = (agreed.minority, agreed.excused);
    for place in agreed.majority {
        if !with.contains(&place) {
            let is_other = of(place).map(|one| one.answer) != stands.map(|one| one.answer);
            let list = if is_other {
                &mut minority
            } else {
                &mut excused
            };
            list.push(place);
        }
    }
    minority.sort_unstable();
    excused.sort_unstable();
    Agreement {
        outcome: Outcome::Resolved,
        required: agreed.required,
        majority: with,
        minority,
        excused,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn document(answer: &Value, file: &str, time: u32) -> Option<Beside> {
        let text = json!({
            "record": {"usage": {"wall_ms": time}}, "stage": "run", "answer": {"value": answer},
            "inputs": [{"ran": {"record": {"ending": "e", "stdout": "s", "started_at": time}, "answer": "none", "artifacts": []}}],
            "project": null, "artifacts": [{"path": "a", "digest": file, "mode": time}], "left_out": [],
        });
        Some(Beside::of(text.to_string().as_bytes()))
    }

    fn all(count: usize) -> Agreement {
        Agreement {
            outcome: Outcome::Consensus,
            required: cofferdam_contract::replicas::required(count),
            majority: (0..count).collect(),
            minority: Vec::new(),
            excused: Vec::new(),
        }
    }

    #[test]
    fn a_handlers_answer_and_the_files_are_compared_and_times_are_not() {
        let one = document(&json!(42), "f", 1);
        assert_eq!(one, document(&json!(42), "f", 2));
        let (lie, other_file) = (document(&json!(43), "f", 1), document(&json!(42), "g", 1));
        // Two that say different things: nobody is believed and nobody blamed.
        for other in [lie, other_file, Some(Beside::of(b"nonsense")), None] {
            let found = narrowed(all(2), &[one, other]);
            assert_eq!(found.outcome, Outcome::Dispute);
            assert_eq!((found.minority, found.excused), (vec![], vec![0, 1]));
        }
        // More than half decide; only who returned something else is named.
        let found = narrowed(all(3), &[lie, one, one]);
        assert_eq!(
            (found.outcome, found.majority),
            (Outcome::Resolved, vec![1, 2])
        );
        assert_eq!((found.minority, found.excused), (vec![0], vec![]));
        let found = narrowed(all(3), &[one, other_file, one]);
        assert_eq!((found.minority, found.excused), (vec![], vec![1]));
        assert_eq!(found.majority, [0, 2]);
        assert_eq!(narrowed(all(3), &[one, one, one]), all(3));
        assert_eq!(
            narrowed(all(2), &[None, None]),
            all(2),
            "payloads have none"
        );
    }

    #[test]
    fn an_input_that_came_out_otherwise_is_a_difference() {
        let of = |stdout: &str, answer: &str| {
            let record = json!({"ending": "e", "stdout": stdout});
            let ran = json!({"ran": {"record": record, "answer": answer, "artifacts": []}});
            Beside::of(
                json!({"stage": "run", "inputs": [ran]})
                    .to_string()
                    .as_bytes(),
            )
        };
        assert_eq!(of("a", "b"), of("a", "b"));
        assert_ne!(of("a", "b"), of("x", "b"));
        assert_ne!(of("a", "b"), of("a", "x"));
    }
}
