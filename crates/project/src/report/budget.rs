//! How much is kept of the tests of one step, from all of its reports together. What does not fit is counted all the same, and failures have room of their own, so that a report of any size says
//! how many failed and which.

use super::model::{Status, TestCase};

/// What is left.
#[derive(Debug, Clone)]
pub struct Budget {
    all: Room,
    /// For failures, once the rest is used up.
    failures: Room,
    /// Tests of which only the name and the status are kept.
    thinned: usize,
}

#[derive(Debug, Clone, Copy)]
struct Room {
    cases: usize,
    text: usize,
}

/// One for each step.
impl Default for Budget {
    fn default() -> Self {
        Self {
            all: Room {
                cases: 150_000,
                text: 24 << 20,
            },
            failures: Room {
                cases: 5_000,
                text: 4 << 20,
            },
            thinned: 0,
        }
    }
}

impl Budget {
    #[cfg(test)]
    pub(super) const fn small(cases: usize) -> Self {
        let text = 24 << 20;
        let failures = Room { cases: 10, text };
        let all = Room { cases, text };
        Self {
            all,
            failures,
            thinned: 0,
        }
    }

    /// Takes the room for one more test; `false` where there is none. Its texts go before it does.
    pub(super) fn take(&mut self, case: &mut TestCase) -> bool {
        let is_failure = case.status == Status::Failed;
        let name = name_length(case);
        let fits = |room: &Room| room.cases > 0 && room.text >= name;
        let room = if fits(&self.all) {
            &mut self.all
        } else if is_failure && fits(&self.failures) {
            &mut self.failures
        } else {
            return false;
        };
        room.cases -= 1;
        room.text -= name;
        let said = said_length(case);
        match room.text.checked_sub(said) {
            Some(rest) => room.text = rest,
            None => {
                thin(case);
                self.thinned += 1;
            }
        }
        true
    }

    /// For what is learnt of a test after it was taken.
    pub(super) fn amend(&mut self, case: &mut TestCase, before: usize) {
        let more = length(case).saturating_sub(before);
        match self.all.text.checked_sub(more) {
            Some(rest) => self.all.text = rest,
            None => {
                thin(case);
                self.thinned += 1;
            }
        }
    }

    /// Of how many tests what they said was left out.
    pub(super) const fn thinned(&self) -> usize {
        self.thinned
    }
}

fn thin(case: &mut TestCase) {
    case.message = None;
    case.stack = None;
    case.expected = None;
    case.actual = None;
}

pub(super) fn length(case: &TestCase) -> usize {
    name_length(case) + said_length(case)
}

fn name_length(case: &TestCase) -> usize {
    case.name.len() + sum(&[&case.suite, &case.file])
}

fn said_length(case: &TestCase) -> usize {
    sum(&[&case.message, &case.stack, &case.expected, &case.actual])
}

fn sum(texts: &[&Option<String>]) -> usize {
    let lengths = texts
        .iter()
        .map(|text| text.as_ref().map_or(0, String::len));
    lengths.sum()
}
