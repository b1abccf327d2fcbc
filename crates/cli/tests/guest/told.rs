//! What a guest told about its cases, and the collecting of everything that does not hold: one boot is to show all of it.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use serde_json::{Value, json};

/// What the guest told about one case.
#[derive(Debug, Default)]
pub(crate) struct Case {
    pub(crate) out: Vec<String>,
    pub(crate) err: Vec<String>,
    pub(crate) left: Vec<String>,
    pub(crate) rc: i32,
}

impl Case {
    pub(crate) fn record(&self) -> Value {
        assert_eq!((self.out.len(), self.err.as_slice()), (1, [].as_slice()));
        serde_json::from_str(&self.out[0]).unwrap()
    }

    pub(crate) fn exited(&self, code: i32) -> Value {
        let record = self.record();
        let ending = (&record["ending"]["kind"], &record["exit_code"]);
        assert_eq!(ending, (&json!("exited"), &json!(code)));
        assert_eq!(self.rc, code);
        record
    }

    pub(crate) fn stopped_by(&self, cause: &str, rc: i32) {
        let ending = self.record()["ending"].clone();
        let ending = (&ending["kind"], &ending["cause"]);
        assert_eq!(ending, (&json!("stopped"), &json!(cause)));
        assert_eq!(self.rc, rc);
    }

    /// One line with a stable code, and nothing ran.
    pub(crate) fn refused(&self, code: &str) {
        assert_eq!((self.rc, self.out.len(), self.err.len()), (125, 0, 1));
        let line = &self.err[0];
        assert!(
            line.starts_with("cofferdam: ") && line.ends_with(&format!(" [{code}]")),
            "{line}"
        );
    }

    /// Nothing is left is checked for every case.
    pub(crate) fn was_killed(&self) {
        assert_eq!(
            (self.rc, self.out.as_slice()),
            (137, ["it ran".to_owned()].as_slice())
        );
    }
}

/// Everything that the guest told, and which of it did not hold.
pub(crate) struct Told {
    cases: RefCell<BTreeMap<String, Case>>,
    failed: RefCell<Vec<String>>,
}

impl Told {
    pub(crate) fn new(cases: BTreeMap<String, Case>) -> Self {
        Self {
            cases: RefCell::new(cases),
            failed: RefCell::default(),
        }
    }

    /// Judges one case and goes on, so that one boot shows all that is wrong.
    pub(crate) fn check(&self, name: &str, judge: impl FnOnce(&Case)) {
        let case = self.cases.borrow_mut().remove(name);
        let good = case.as_ref().is_some_and(|case| {
            let judged = catch_unwind(AssertUnwindSafe(|| {
                judge(case);
                assert_eq!(case.left, [""; 0], "left behind");
            }));
            judged.is_ok()
        });
        if !good {
            eprintln!("case {name} failed: {case:#?}\n");
            self.failed.borrow_mut().push(name.to_owned());
        }
    }

    pub(crate) fn conclude(self) {
        let unjudged: Vec<String> = self.cases.into_inner().into_keys().collect();
        let failed = self.failed.into_inner();
        assert!(
            failed.is_empty() && unjudged.is_empty(),
            "failed cases: {failed:?}; cases that nothing judges: {unjudged:?}"
        );
    }
}
