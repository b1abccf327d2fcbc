//! What differs from one time to the next, taken out of what was printed: ids, times, durations, hashes and the test's own directory.

/// With a word in place of each.
pub(crate) fn mask(text: &str, own: &[(&str, &str)]) -> String {
    let mut text = text.to_owned();
    for (found, word) in own {
        text = text.replace(found, word);
    }
    let mut masked = String::new();
    let mut rest = text.as_str();
    while let Some(c) = rest.chars().next() {
        let is_inside = masked.ends_with(|c: char| c.is_ascii_alphanumeric());
        let found = (!is_inside).then(|| variable(rest, &masked)).flatten();
        match found {
            Some((length, word)) => {
                masked.push_str(word);
                rest = &rest[length..];
            }
            None => {
                masked.push(c);
                rest = &rest[c.len_utf8()..];
            }
        }
    }
    masked
}

/// How much at the beginning is different each time, and what stands for it. What stands before it says whether a time is one that was measured.
fn variable(text: &str, before: &str) -> Option<(usize, &'static str)> {
    let shaped = |shape: &str| {
        let bytes = text.as_bytes().get(..shape.len())?;
        let fits = bytes
            .iter()
            .zip(shape.bytes())
            .all(|(byte, kind)| match kind {
                b'x' => byte.is_ascii_hexdigit(),
                b'9' => byte.is_ascii_digit(),
                other => *byte == other,
            });
        fits.then_some(shape.len())
    };
    let more = |from: usize, fits: fn(char) -> bool| {
        let rest = text.get(from..).unwrap_or_default();
        from + rest.find(|c| !fits(c)).unwrap_or(rest.len())
    };
    if let Some(length) = shaped("xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx") {
        return Some((length, "ID"));
    }
    // A short one, as tables show it.
    if let Some(length) = shaped("xxxxxxxx-xxxx") {
        return Some((length, "ID"));
    }
    if let Some(length) = shaped("9999-99-99T99:99:99").or_else(|| shaped("9999-99-99 99:99:99")) {
        let end = more(length, |c| c.is_ascii_digit() || c == '.' || c == 'Z');
        return Some((end, "TIME"));
    }
    if let Some(length) = shaped("sha256:xxxxxxxxxxxxxxxx") {
        return Some((more(length, |c| c.is_ascii_hexdigit()), "sha256:DIGEST"));
    }
    let number = more(0, |c| c.is_ascii_digit() || c == '.');
    let unit = text.get(number..)?;
    if shaped("xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx").is_some() {
        return Some((64, "HASH"));
    }
    if let Some(id) = text.strip_prefix("RESULT-") {
        let end = id.find(|c: char| !c.is_ascii_alphanumeric() && c != '-');
        return Some(("RESULT-".len() + end.unwrap_or(id.len()), "RESULT"));
    }
    let is_size = [" KiB", " MiB"].iter().any(|size| unit.starts_with(size));
    if is_size && text.get(..number)?.contains('.') {
        return Some((number + " KiB".len(), "SIZE"));
    }
    // What a limit was is told exactly; how long something took is not.
    let known = match before.ends_with("in ") || before.ends_with("took ") {
        true => [" ms", " s"],
        false => [" ms ago", " s ago"],
    };
    let unit = (number > 0).then(|| known.iter().find(|known| unit.starts_with(**known)))??;
    let end = number + unit.len();
    let is_whole = !text
        .get(end..)?
        .starts_with(|c: char| c.is_ascii_alphanumeric());
    is_whole.then_some((end, "TIME"))
}

#[test]
fn what_differs_each_time_is_masked_and_what_does_not_is_kept() {
    let text = "run 019a8c3e-7f2b-7abc-8def-0123456789ab took 12.5 ms (2.53 KiB of at most 300 ms) at 2026-11-16T09:00:00.123Z in /tmp/x/y: 3 runs, 64 MiB, exit 124";
    assert_eq!(
        mask(text, &[("/tmp/x", "DIR")]),
        "run ID took TIME (SIZE of at most 300 ms) at TIME in DIR/y: 3 runs, 64 MiB, exit 124"
    );
}
