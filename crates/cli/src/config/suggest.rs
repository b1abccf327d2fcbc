//! "Did you mean": the nearest known name to one that was mistyped.

/// Farther away than this, a guess would only confuse.
const MAX_EDITS: usize = 2;
/// No name of ours is longer; a hostile key of a megabyte must not cost quadratic time.
const MAX_LEN: usize = 64;

/// The known name that was probably meant, if any is near enough.
pub(crate) fn nearest<'a>(given: &str, known: &[&'a str]) -> Option<&'a str> {
    if given.len() > MAX_LEN {
        return None;
    }
    let given = given.to_ascii_lowercase().replace('-', "_");
    // `memory_limit` for `memory` is many edits away and still obvious.
    let extends =
        |name: &str| given.len() >= 3 && (name.starts_with(&given) || given.starts_with(name));
    known
        .iter()
        .map(|name| (edits(&given, name), *name))
        .min_by_key(|(edits, _)| *edits)
        .filter(|(edits, name)| *edits <= MAX_EDITS.min(name.len() / 2))
        .map(|(_, name)| name)
        .or_else(|| known.iter().copied().find(|name| extends(name)))
}

/// The number of single-character edits between two names (Levenshtein, one row).
fn edits(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (1..=b.len()).collect();
    let mut last = b.len();
    for (i, from) in a.chars().enumerate() {
        let mut diagonal = i;
        last = i + 1;
        for (to, cell) in b.iter().zip(&mut row) {
            let above = *cell;
            last = (diagonal + usize::from(from != *to))
                .min(above + 1)
                .min(last + 1);
            diagonal = above;
            *cell = last;
        }
    }
    last
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_finds_its_name_and_nonsense_finds_none() {
        let known = ["timeout", "memory", "cpu_time", "native", "host"];
        assert_eq!(nearest("timeot", &known), Some("timeout"));
        assert_eq!(nearest("Memory", &known), Some("memory"));
        assert_eq!(nearest("cpu-time", &known), Some("cpu_time"));
        assert_eq!(nearest("memory_limit", &known), Some("memory"));
        assert_eq!(nearest("naitve", &known), Some("native"));
        assert_eq!(nearest("zebra", &known), None);
        assert_eq!(nearest("", &known), None);
        assert_eq!(nearest(&"x".repeat(1 << 20), &known), None);
    }

    #[test]
    fn edits_counts_the_textbook_cases() {
        assert_eq!(edits("kitten", "sitting"), 3);
        assert_eq!(edits("", "abc"), 3);
        assert_eq!(edits("abc", ""), 3);
        assert_eq!(edits("same", "same"), 0);
    }
}
