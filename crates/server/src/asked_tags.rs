//! The tags that a client gives a run: how many, how long, and what they may hold.

use std::collections::BTreeMap;

use cofferdam_contract::problem::Problem;

pub(crate) fn check(tags: &BTreeMap<String, String>, problems: &mut Vec<Problem>) {
    const MOST: usize = 32;
    const LONGEST: usize = 255;
    if tags.len() > MOST {
        problems.push(Problem::new(
            "tags",
            tags.len(),
            "are too many; use at most 32",
        ));
    }
    for (key, value) in tags.iter().take(MOST) {
        let fix = if key.is_empty() {
            "has no name; give it one"
        } else if key.len() + value.len() > LONGEST {
            "is too long; use at most 255 bytes"
        } else if key.contains('=') || format!("{key}{value}").chars().any(char::is_control) {
            "holds control characters, or `=` in its name; remove them"
        } else {
            continue;
        };
        problems.push(Problem::new("tags", key, fix));
    }
}
