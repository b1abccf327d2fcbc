//! The tests of two runs compared: which fail now and did not, which pass now and did not, which have become slower, which are new or gone.

use std::collections::BTreeMap;

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
    let (a, b) = (cases(a)?, cases(b)?);
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
            if now.failed {
                diff.newly_failing.push(name.clone());
            }
            diff.added.push(name);
            continue;
        };
        match (then.failed, now.failed) {
            (false, true) => diff.newly_failing.push(name.clone()),
            (true, false) => diff.fixed.push(name.clone()),
            (true, true) | (false, false) => {}
        }
        if let (Some(a_ms), Some(b_ms)) = (then.ms, now.ms)
            && b_ms > a_ms * FACTOR
            && b_ms - a_ms > LEAST_MS
        {
            diff.slower.push(Slower { name, a_ms, b_ms });
        }
    }
    Some(diff)
}

struct Case {
    failed: bool,
    ms: Option<f64>,
}

fn cases(run: &StoredRun) -> Option<BTreeMap<String, Case>> {
    let Outcome::Ended(closing) = &run.outcome else {
        return None;
    };
    let cases = closing.results.as_ref()?.get("cases")?.as_array()?;
    let one = |case: &Value| {
        let text = |key: &str| case.get(key).and_then(Value::as_str);
        let name = match text("suite") {
            Some(suite) => format!("{suite} › {}", text("name")?),
            None => text("name")?.to_owned(),
        };
        let case = Case {
            failed: text("status") == Some("failed"),
            ms: case.get("duration_ms").and_then(Value::as_f64),
        };
        Some((name, case))
    };
    Some(cases.iter().filter_map(one).collect())
}
