//! The tests of two runs compared: which fail now and did not, which pass now and did not, which have become slower, which are new or gone.

use std::collections::BTreeMap;

use cofferdam_project::report::Status;
use cofferdam_store::model::{Outcome, StoredRun};
use serde::Serialize;
use serde_json::Value;

/// Of `b` against `a`.
#[derive(Debug, PartialEq, Serialize)]
pub struct TestsDiff {
    pub newly_failing: Vec<String>,
    pub fixed: Vec<String>,
    pub slower: Vec<Slower>,
    pub added: Vec<String>,
    pub removed: Vec<String>,
}

#[derive(Debug, PartialEq, Serialize)]
pub struct Slower {
    pub name: String,
    pub a_ms: f64,
    pub b_ms: f64,
}

/// Less than this is the machine's noise.
const LEAST_MS: f64 = 50.0;
const FACTOR: f64 = 1.5;

impl TestsDiff {
    /// Slower alone is no difference: no two runs take the same time.
    pub fn is_empty(&self) -> bool {
        let lists = [&self.newly_failing, &self.fixed, &self.added, &self.removed];
        lists.iter().all(|list| list.is_empty())
    }
}

/// `None` unless both runs told of tests.
pub fn compare(a: &StoredRun, b: &StoredRun) -> Option<TestsDiff> {
    let (a, b) = (results(a)?, results(b)?);
    let mut diff = between(&cases(a)?, cases(b)?);
    // Where not all were kept, one that is not there is no test that is new or gone.
    if is_cut(a) || is_cut(b) {
        diff.added.clear();
        diff.removed.clear();
    }
    Some(diff)
}

fn is_cut(results: &Value) -> bool {
    let beyond = results.get("not_kept").and_then(Value::as_u64);
    beyond.is_some_and(|beyond| beyond > 0)
}

fn between(a: &BTreeMap<String, Case>, b: BTreeMap<String, Case>) -> TestsDiff {
    let mut diff = TestsDiff {
        newly_failing: Vec::new(),
        fixed: Vec::new(),
        slower: Vec::new(),
        added: Vec::new(),
        removed: a
            .keys()
            .filter(|name| !b.contains_key(*name))
            .cloned()
            .collect(),
    };
    for (name, now) in b {
        let Some(then) = a.get(&name) else {
            if now.status == Status::Failed {
                diff.newly_failing.push(name.clone());
            }
            diff.added.push(name);
            continue;
        };
        match (then.status, now.status) {
            (Status::Passed | Status::Skipped, Status::Failed) => {
                diff.newly_failing.push(name.clone());
            }
            // Whoever only passes by it has not mended it.
            (Status::Failed, Status::Passed) => diff.fixed.push(name.clone()),
            (Status::Failed, Status::Failed | Status::Skipped)
            | (Status::Passed | Status::Skipped, Status::Passed | Status::Skipped) => {}
        }
        if let (Some(a_ms), Some(b_ms)) = (then.ms, now.ms)
            && b_ms > a_ms * FACTOR
            && b_ms - a_ms > LEAST_MS
        {
            diff.slower.push(Slower { name, a_ms, b_ms });
        }
    }
    diff
}

struct Case {
    status: Status,
    ms: Option<f64>,
}

fn results(run: &StoredRun) -> Option<&Value> {
    match &run.outcome {
        Outcome::Ended(closing) => closing.results.as_ref(),
        _ => None,
    }
}

fn cases(results: &Value) -> Option<BTreeMap<String, Case>> {
    let cases = results.get("cases")?.as_array()?;
    let one = |case: &Value| {
        let text = |key: &str| case.get(key).and_then(Value::as_str);
        let name = match text("suite") {
            Some(suite) => format!("{suite} › {}", text("name")?),
            None => text("name")?.to_owned(),
        };
        let case = Case {
            status: match text("status") {
                Some("failed") => Status::Failed,
                Some("skipped") => Status::Skipped,
                _ => Status::Passed,
            },
            ms: case.get("duration_ms").and_then(Value::as_f64),
        };
        Some((name, case))
    };
    Some(cases.iter().filter_map(one).collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn told(cases: &[(&str, &str, f64)]) -> BTreeMap<String, Case> {
        let case = |(name, status, ms): &(&str, &str, f64)| json!({ "suite": "s", "name": name, "status": status, "duration_ms": ms });
        let all: Vec<Value> = cases.iter().map(case).collect();
        cases_of(json!({ "cases": all }))
    }

    fn cases_of(results: Value) -> BTreeMap<String, Case> {
        cases(&results).unwrap()
    }

    #[test]
    fn what_fails_newly_what_is_fixed_and_what_is_slower_is_told_and_noise_is_not() {
        let then = told(&[
            ("breaks", "passed", 1.0),
            ("wakes", "skipped", 1.0),
            ("mended", "failed", 1.0),
            ("passed by", "failed", 1.0),
            ("slow", "passed", 100.0),
            ("noise", "passed", 1.0),
            ("a little", "passed", 1000.0),
            ("gone", "passed", 1.0),
        ]);
        let now = told(&[
            ("breaks", "failed", 1.0),
            ("wakes", "failed", 1.0),
            ("mended", "passed", 1.0),
            ("passed by", "skipped", 1.0),
            ("slow", "passed", 151.0),
            // Fifty times as long, and fifty milliseconds are nothing.
            ("noise", "passed", 50.0),
            ("a little", "passed", 1400.0),
            ("new", "passed", 1.0),
            ("new and bad", "failed", 1.0),
        ]);
        let named = |names: &[&str]| -> Vec<String> {
            names.iter().map(|name| format!("s › {name}")).collect()
        };
        let diff = between(&then, now);
        assert_eq!(
            diff,
            TestsDiff {
                newly_failing: named(&["breaks", "new and bad", "wakes"]),
                fixed: named(&["mended"]),
                slower: vec![Slower {
                    name: "s › slow".to_owned(),
                    a_ms: 100.0,
                    b_ms: 151.0,
                }],
                added: named(&["new", "new and bad"]),
                removed: named(&["gone"]),
            }
        );
        assert!(!diff.is_empty());
        let slower = told(&[("slow", "passed", 1.0)]);
        let only_slower = between(&slower, told(&[("slow", "passed", 900.0)]));
        assert!(only_slower.is_empty() && only_slower.slower.len() == 1);
    }
}
