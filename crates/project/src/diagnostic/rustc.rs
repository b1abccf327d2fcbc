//! rustc and clippy through cargo's JSON: one message on each line.

use serde::Deserialize;

use super::model::{Diagnostic, MOST_SAID, Severity, Speaker};

#[derive(Deserialize)]
struct Line {
    reason: String,
    #[serde(default)]
    message: Option<Message>,
}

#[derive(Deserialize)]
struct Message {
    message: String,
    level: String,
    #[serde(default)]
    code: Option<Code>,
    #[serde(default)]
    spans: Vec<Span>,
}

#[derive(Deserialize)]
struct Code {
    code: String,
}

#[derive(Deserialize)]
struct Span {
    file_name: String,
    line_start: u32,
    column_start: u32,
    is_primary: bool,
    #[serde(default)]
    label: Option<String>,
}

/// Macros make long messages; no message is longer than this.
const MAX_LINE: usize = 4 << 20;

pub(super) fn read(output: &str) -> Vec<Diagnostic> {
    let lines = output
        .lines()
        .filter(|line| line.starts_with('{') && line.len() <= MAX_LINE);
    lines
        .filter_map(|line| serde_json::from_str::<Line>(line).ok())
        .filter(|line| line.reason == "compiler-message")
        .filter_map(|line| line.message)
        .filter_map(one)
        .take(MOST_SAID)
        .collect()
}

fn one(message: Message) -> Option<Diagnostic> {
    let severity = match message.level.as_str() {
        "error" | "error: internal compiler error" => Severity::Error,
        "warning" => Severity::Warning,
        _ => return None,
    };
    let span = message.spans.iter().find(|span| span.is_primary);
    // `aborting due to 2 previous errors` says nothing of its own.
    if span.is_none()
        && (message.message.starts_with("aborting due")
            || message.message.contains("warning emitted")
            || message.message.contains("warnings emitted"))
    {
        return None;
    }
    let text = match span.and_then(|span| span.label.as_deref()) {
        Some(label) if !label.is_empty() => format!("{} ({label})", message.message),
        _ => message.message,
    };
    let mut found = Diagnostic::new(Speaker::Rustc, severity, text);
    if let Some(span) = span {
        found = found.at(
            &span.file_name,
            Some(span.line_start),
            Some(span.column_start),
        );
    }
    found.code = message.code.map(|code| code.code);
    Some(found)
}
