//! Rust text with comments and literals blanked out, so that a word in a message is not taken for code. Line numbers stay.

/// The code alone: every character of a comment, string or character literal becomes a space, line breaks stay.
pub(super) fn code_only(text: &str) -> String {
    let mut rest = text;
    let mut code = String::with_capacity(text.len());
    while !rest.is_empty() {
        let literal = literal_len(rest, &code);
        if literal > 0 {
            let (blanked, after) = rest.split_at(literal);
            code.extend(blanked.chars().map(|c| if c == '\n' { '\n' } else { ' ' }));
            rest = after;
        } else {
            let mut chars = rest.chars();
            code.extend(chars.next());
            rest = chars.as_str();
        }
    }
    code
}

/// The bytes of the comment or literal that starts here; 0 when none does.
fn literal_len(rest: &str, before: &str) -> usize {
    if rest.starts_with("//") {
        return rest.find('\n').unwrap_or(rest.len());
    }
    if rest.starts_with("/*") {
        return block_comment_len(rest);
    }
    if rest.starts_with('"') {
        return quoted_len(rest, '"');
    }
    if rest.starts_with('\'') {
        return character_len(rest);
    }
    let in_word = before.ends_with(|c: char| c.is_alphanumeric() || c == '_');
    if rest.starts_with(['r', 'b', 'c']) && !in_word {
        raw_string_len(rest)
    } else {
        0
    }
}

fn block_comment_len(rest: &str) -> usize {
    let mut depth = 0usize;
    let mut at = 0;
    while let Some(tail) = rest.get(at..).filter(|tail| !tail.is_empty()) {
        if tail.starts_with("/*") {
            depth += 1;
            at += 2;
        } else if tail.starts_with("*/") {
            depth = depth.saturating_sub(1);
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += tail.chars().next().map_or(1, char::len_utf8);
        }
    }
    rest.len()
}

fn quoted_len(rest: &str, quote: char) -> usize {
    let mut escaped = true; // The opening quote does not close.
    for (at, c) in rest.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            _ if c == quote => return at + 1,
            _ => {}
        }
    }
    rest.len()
}

/// `'a'` and `'\n'` are literals, `'a` is a lifetime.
fn character_len(rest: &str) -> usize {
    let mut chars = rest.chars();
    chars.next();
    match (chars.next(), chars.next()) {
        (Some('\\'), _) => quoted_len(rest, '\''),
        (Some(c), Some('\'')) => 2 + c.len_utf8(),
        _ => 0,
    }
}

/// `r"…"`, `r#"…"#`, `br"…"`, `cr"…"`; the plain `b"…"` and `c"…"` end as any string does.
fn raw_string_len(rest: &str) -> usize {
    let prefix = rest
        .find(|c: char| !matches!(c, 'r' | 'b' | 'c'))
        .unwrap_or(rest.len());
    let (word, tail) = rest.split_at(prefix);
    let hashes = tail.bytes().take_while(|byte| *byte == b'#').count();
    let starts_string = tail.get(hashes..).is_some_and(|tail| tail.starts_with('"'));
    match word {
        "r" | "br" | "cr" if starts_string => {
            let close = format!("\"{}", "#".repeat(hashes));
            let open = prefix + hashes + 1;
            rest.get(open..)
                .and_then(|body| body.find(&close))
                .map_or(rest.len(), |end| open + end + close.len())
        }
        "b" | "c" if starts_string && hashes == 0 => 1 + quoted_len(tail, '"'),
        _ => 0,
    }
}

/// Whether a word stands in a line of code on its own.
pub(super) fn has_word(line: &str, word: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word).any(|(at, found)| {
        let before = line
            .get(..at)
            .is_some_and(|before| before.ends_with(is_part));
        let after = line
            .get(at + found.len()..)
            .is_some_and(|after| after.starts_with(is_part));
        !before && !after
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        code_only(text)
            .split_whitespace()
            .map(str::to_owned)
            .collect()
    }

    #[test]
    fn comments_and_literals_are_blanked() {
        assert_eq!(words("a // b\nc /* d /* e */ f */ g"), ["a", "c", "g"]);
        assert_eq!(words(r#"a("b \" c") d"#), ["a(", ")", "d"]);
        assert_eq!(
            words(r###"a(r#"b " c"#) d br"e\" f"###),
            ["a(", ")", "d", "f"]
        );
        assert_eq!(
            words(r"x('a', '\'', '\\', b'z') y"),
            ["x(", ",", ",", ",", "b", ")", "y"]
        );
        assert_eq!(
            words("fn f<'a>(x: &'a str) {}"),
            ["fn", "f<'a>(x:", "&'a", "str)", "{}"]
        );
        assert_eq!(words("for r in b {}"), ["for", "r", "in", "b", "{}"]);
        assert_eq!(words(r##"c"x" y r#type"##), ["y", "r#type"]);
    }

    #[test]
    fn lines_stay_where_they_were() {
        let text = "a\n/* b\n c */\n\"d\ne\"\nf";
        assert_eq!(code_only(text).lines().count(), text.lines().count());
        assert_eq!(code_only(text).lines().last(), Some("f"));
    }

    #[test]
    fn unclosed_things_end_with_the_text() {
        for text in ["\"", "/*", "r#\"", "'", "'\\", "b\"", "/*é", "r", "\\"] {
            assert_eq!(
                code_only(text).chars().count(),
                text.chars().count(),
                "{text}"
            );
        }
    }

    #[test]
    fn a_word_is_whole() {
        assert!(has_word("x = word;", "word"));
        assert!(!has_word("word_count words sword", "word"));
    }
}
