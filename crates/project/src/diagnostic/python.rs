//! Python's tracebacks and syntax errors: the last frame, and the line that names the exception.

use super::model::{Diagnostic, MAX_LINE, MOST_SAID, Severity, Speaker};

pub(super) fn read(output: &str) -> Vec<Diagnostic> {
    let mut found = Vec::new();
    let mut place: Option<(&str, u32)> = None;
    let mut column = None;
    for line in output.lines().filter(|line| line.len() <= MAX_LINE) {
        if found.len() >= MOST_SAID {
            break;
        }
        // pytest marks the lines of an error.
        let line = line.strip_prefix("E ").unwrap_or(line);
        let trimmed = line.trim_start();
        if let Some(at) = frame(trimmed) {
            place = Some(at);
            column = None;
        } else if !trimmed.is_empty()
            && trimmed.chars().all(|c| matches!(c, '^' | ' ' | '~'))
            && trimmed.contains('^')
        {
            column = line.find('^');
        } else if let Some((name, message)) = exception(trimmed)
            && let Some((file, at)) = place.take()
        {
            let mut diagnostic =
                Diagnostic::new(Speaker::Python, Severity::Error, message).at(file, Some(at), None);
            // Python indents the source line by four.
            diagnostic.column = match name {
                "SyntaxError" | "IndentationError" | "TabError" => {
                    column.and_then(|at| u32::try_from(at.saturating_sub(3)).ok())
                }
                _ => None,
            };
            diagnostic.code = Some(name.to_owned());
            found.push(diagnostic);
        }
    }
    found
}

fn frame(line: &str) -> Option<(&str, u32)> {
    // `*** File "a.py", line 3` is how compileall begins.
    let line = line.strip_prefix("*** ").unwrap_or(line);
    let (file, rest) = line.strip_prefix("File \"")?.split_once("\", line ")?;
    let digits = rest
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(rest.len());
    Some((file, rest.get(..digits)?.parse().ok()?))
}

/// `package.SomeError: text`.
fn exception(line: &str) -> Option<(&str, &str)> {
    let line = line.strip_prefix("*** ").unwrap_or(line);
    let (name, message) = line.split_once(':').unwrap_or((line, ""));
    let short = name.rsplit('.').next()?;
    let is_name = name
        .chars()
        .all(|c| c.is_alphanumeric() || matches!(c, '_' | '.'));
    let is_exception = ["Error", "Exception", "Exit", "Interrupt", "Warning"]
        .iter()
        .any(|ending| short.ends_with(ending));
    (is_name && is_exception && short.starts_with(char::is_uppercase))
        .then_some((name, message.trim()))
}
