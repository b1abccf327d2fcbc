//! Text between two marks of a page, written by a program; what a person wrote around them stays.

/// The page with this between its marks, each of which is a line of its own.
pub(crate) fn replaced(
    name: &str,
    page: &str,
    (begin, end): (&str, &str),
    text: &str,
) -> Result<String, String> {
    let missing = || {
        format!(
            "{name}: its marks `{}` and `{}` are gone; put them back",
            begin.trim_end(),
            end.trim_end()
        )
    };
    let (before, rest) = page.split_once(begin).ok_or_else(missing)?;
    let (_, after) = rest.split_once(end).ok_or_else(missing)?;
    Ok(format!("{before}{begin}\n{text}\n{end}{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_between_the_marks_is_replaced() {
        let marks = ("<!-- a -->\n", "<!-- b -->\n");
        let page = "x\n<!-- a -->\nold\n<!-- b -->\nz\n";
        assert_eq!(
            replaced("page.md", page, marks, "new").unwrap(),
            "x\n<!-- a -->\n\nnew\n<!-- b -->\nz\n"
        );
        let error = replaced("page.md", "x\n<!-- a -->\n", marks, "new").unwrap_err();
        assert!(error.starts_with("page.md: its marks"), "{error}");
    }
}
