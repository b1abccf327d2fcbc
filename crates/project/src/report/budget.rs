//! How much is kept of tests, from all reports and all steps of a call together. What does not fit is counted all the same, and failures have room of their own, so that a report of any size says
//! how many failed and which.

use super::model::{Status, TestCase};
use crate::coverage;

/// What is left.
#[derive(Debug, Clone)]
pub struct Budget {
    all: Room,
    /// For failures, once the rest is used up.
    failures: Room,
    /// Tests of which only the name and the status are kept.
    thinned: usize,
    diagnostics: usize,
    coverage: coverage::Room,
}

#[derive(Debug, Clone, Copy)]
struct Room {
    cases: usize,
    text: usize,
}

/// For somebody's own machine.
impl Default for Budget {
    fn default() -> Self {
        Self::new(150_000, 24 << 20, 20_000)
    }
}

impl Budget {
    /// So many tests, with so many bytes of text, and so many diagnostics.
    pub const fn new(cases: usize, text: usize, diagnostics: usize) -> Self {
        Self {
            all: Room { cases, text },
            failures: Room {
                cases: cases / 30,
                text: text / 6,
            },
            thinned: 0,
            diagnostics,
            // A test or more for each file of source.
            coverage: coverage::Room::new(cases / 2),
        }
    }

    /// For one who keeps the tests of many strangers, and tells them as JSON.
    pub const fn shared() -> Self {
        Self::new(20_000, 8 << 20, 5_000)
    }

    /// From here on for the next step.
    pub const fn begin(&mut self) {
        self.thinned = 0;
    }

    /// For which lines were reached.
    pub const fn coverage(&mut self) -> &mut coverage::Room {
        &mut self.coverage
    }

    /// How many of so many diagnostics are kept.
    pub fn diagnostics(&mut self, there: usize) -> usize {
        let kept = there.min(self.diagnostics);
        self.diagnostics -= kept;
        kept
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
