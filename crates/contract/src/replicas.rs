//! What several answers to one payload come to: which of them agree, by the payload's output class, whether those are more than half, and who stands against them. Pure: it is told
//! the answers and returns a decision.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::comparison::{Comparison, compare};
use crate::envelope::ResultEnvelope;
use crate::payload::ExecutionPayload;

/// An answer and whose it is.
#[derive(Debug, Clone, Copy)]
pub struct Answer<'a> {
    pub worker: &'a str,
    pub envelope: &'a ResultEnvelope,
}

/// What comparing all of them came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// All say the same.
    Consensus,
    /// More than half say the same.
    Resolved,
    /// No answer has more than half behind it: nobody is believed, and nobody is blamed.
    Dispute,
}

/// The decision, with every answer in exactly one of three lists.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Agreement {
    pub outcome: Outcome,
    /// How many had to agree.
    pub required: usize,
    /// Places in the list of answers, in its order. The first is the answer that stands.
    pub majority: Vec<usize>,
    /// Those that say something else, without an honest reason for it.
    pub minority: Vec<usize>,
    /// Those that differ for an honest reason: they neither count nor are blamed.
    pub excused: Vec<usize>,
}

/// More than half: half, rounded up, of one more.
pub const fn required(answers: usize) -> usize {
    answers.saturating_add(1).div_ceil(2)
}

/// Compares every answer with every other. With a tolerance "the same" is no equivalence, so that an answer is judged by how many are the same as it, and the first of the best leads.
pub fn agree(payload: &ExecutionPayload, answers: &[Answer<'_>]) -> Agreement {
    let required = required(answers.len());
    let compared = |leader: &Answer<'_>| -> Vec<Standing> {
        let with = |answer: &Answer<'_>| standing(payload, leader, answer);
        answers.iter().map(with).collect()
    };
    let mut best: Option<(usize, Vec<Standing>)> = None;
    for leader in answers {
        let standings = compared(leader);
        let count = standings.iter().filter(|s| **s == Standing::With).count();
        if best.as_ref().is_none_or(|(most, _)| count > *most) {
            best = Some((count, standings));
        }
    }
    let (count, standings) = best.unwrap_or_default();
    if count < required {
        return Agreement {
            outcome: Outcome::Dispute,
            required,
            majority: Vec::new(),
            minority: Vec::new(),
            excused: (0..answers.len()).collect(),
        };
    }
    let places = |wanted: Standing| {
        let of = |(place, standing): (usize, &Standing)| (*standing == wanted).then_some(place);
        standings.iter().enumerate().filter_map(of).collect()
    };
    Agreement {
        outcome: match count == answers.len() {
            true => Outcome::Consensus,
            false => Outcome::Resolved,
        },
        required,
        majority: places(Standing::With),
        minority: places(Standing::Against),
        excused: places(Standing::Excused),
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    With,
    Against,
    Excused,
}

fn standing(payload: &ExecutionPayload, leader: &Answer<'_>, answer: &Answer<'_>) -> Standing {
    match compare(payload, leader.envelope, answer.envelope) {
        Comparison::Same => Standing::With,
        Comparison::Different { .. } => Standing::Against,
        Comparison::NotComparable { .. } => Standing::Excused,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;
    use crate::ending::{Ending, StopCause};
    use crate::envelope::tests::{envelope, run, sealed};
    use crate::seal::{Draft, Sealed};
    use crate::units::Bytes;

    fn payload(changes: &Value) -> Sealed {
        let mut draft = sealed(json!(true)).json().clone();
        for (name, value) in changes.as_object().unwrap() {
            draft[name] = value.clone();
        }
        let draft = Draft::from_value(draft).unwrap();
        let entropy = crate::ids::Entropy([0; 16]);
        draft.seal(jiff::Timestamp::UNIX_EPOCH, entropy).unwrap()
    }

    fn agreed(sealed: &Sealed, outputs: &[&str]) -> Agreement {
        let ok = |text: &&str| {
            envelope(
                sealed,
                &run(Ending::Exited { code: 0 }, text.as_bytes(), b""),
            )
        };
        let envelopes: Vec<_> = outputs.iter().map(ok).collect();
        decide(sealed, &envelopes)
    }

    fn decide(sealed: &Sealed, envelopes: &[ResultEnvelope]) -> Agreement {
        let answer = |envelope| Answer {
            worker: "w",
            envelope,
        };
        let answers: Vec<_> = envelopes.iter().map(answer).collect();
        agree(sealed.payload(), &answers)
    }

    #[test]
    fn more_than_half_decide_a_tie_fails_and_the_minority_is_named() {
        use Outcome::{Consensus, Dispute, Resolved};
        let any = payload(&json!({}));
        for (outputs, outcome, majority, minority) in [
            (vec!["a"], Consensus, vec![0], vec![]),
            (vec!["a", "a"], Consensus, vec![0, 1], vec![]),
            (vec!["a", "b"], Dispute, vec![], vec![]),
            (vec!["b", "a", "a"], Resolved, vec![1, 2], vec![0]),
            (vec!["a", "b", "c"], Dispute, vec![], vec![]),
            (vec!["a", "a", "b", "b"], Dispute, vec![], vec![]),
            (vec!["a", "b", "a", "c"], Dispute, vec![], vec![]),
            (vec!["a", "b", "a", "a"], Resolved, vec![0, 2, 3], vec![1]),
            (
                vec!["x", "b", "b", "y", "b"],
                Resolved,
                vec![1, 2, 4],
                vec![0, 3],
            ),
        ] {
            let found = agreed(&any, &outputs);
            assert_eq!(found.outcome, outcome, "{outputs:?}");
            assert_eq!(
                (found.majority, found.minority),
                (majority, minority),
                "{outputs:?}"
            );
        }
        assert_eq!(agreed(&any, &[]).outcome, Dispute, "nobody is no majority");
        let ceil: Vec<usize> = (1..=7).map(required).collect();
        assert_eq!(ceil, [1, 2, 2, 3, 3, 4, 4]);
    }

    #[test]
    fn an_honest_difference_neither_counts_nor_is_blamed() {
        let any = payload(&json!({}));
        let memory = Ending::Stopped(StopCause::Memory {
            limit: Bytes::new(64 << 20),
        });
        let ok = Ending::Exited { code: 0 };
        let of = |ending: Ending, text: &[u8]| envelope(&any, &run(ending, text, b""));
        let found = decide(&any, &[of(memory, b""), of(ok.clone(), b"a"), of(ok, b"a")]);
        assert_eq!(found.outcome, Outcome::Resolved);
        assert_eq!(
            (found.majority, found.minority, found.excused),
            (vec![1, 2], vec![], vec![0])
        );
    }

    #[test]
    fn a_tolerance_is_judged_from_the_answer_that_most_are_near_to() {
        let changes = json!({"expected_output_format": {"type": "number"}, "output_class": {"absolute_tolerance": 1}});
        let found = agreed(&payload(&changes), &["0", "1", "2", "9"]);
        assert_eq!((found.majority, found.minority), (vec![0, 1, 2], vec![3]));
    }

    proptest! {
        #[test]
        fn every_answer_is_in_one_list_and_order_changes_no_outcome(words in prop::collection::vec("[abc]", 0..8), turn in 0usize..8) {
            let any = payload(&json!({}));
            let mut outputs: Vec<&str> = words.iter().map(String::as_str).collect();
            let first = agreed(&any, &outputs);
            let mut all: Vec<usize> = [&first.majority, &first.minority, &first.excused].into_iter().flatten().copied().collect();
            all.sort_unstable();
            prop_assert_eq!(all, (0..outputs.len()).collect::<Vec<_>>());
            prop_assert!(first.outcome == Outcome::Dispute || first.majority.len() * 2 > outputs.len());
            if !outputs.is_empty() {
                let by = turn % outputs.len();
                outputs.rotate_left(by);
            }
            let turned = agreed(&any, &outputs);
            prop_assert_eq!(turned.outcome, first.outcome);
            prop_assert_eq!(turned.minority.len(), first.minority.len());
        }
    }
}
