//! SARIF 2.1.0, as editors and code hosts read it: one run, one result for each diagnostic.

use serde_json::{Value, json};

use super::model::{Diagnostic, Severity};

/// The document. Paths are relative to the project, and there is no time in it: the same diagnostics give the same bytes.
pub fn sarif(diagnostics: &[Diagnostic], version: &str) -> Value {
    let mut rules: Vec<&str> = diagnostics
        .iter()
        .filter_map(|found| found.code.as_deref())
        .collect();
    rules.sort_unstable();
    rules.dedup();
    let results: Vec<Value> = diagnostics.iter().map(result).collect();
    let rules: Vec<Value> = rules.into_iter().map(|id| json!({ "id": id })).collect();
    json!({
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{
            "tool": { "driver": { "name": "cofferdam", "version": version, "rules": rules } },
            "results": results,
        }],
    })
}

fn result(found: &Diagnostic) -> Value {
    let level = match found.severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
        Severity::Note => "note",
    };
    let mut result = json!({ "level": level, "message": { "text": found.message } });
    if let Some(code) = &found.code {
        result["ruleId"] = json!(code);
    }
    if let Some(file) = &found.file {
        let mut physical = json!({ "artifactLocation": { "uri": uri(file) } });
        if let Some(line) = found.line {
            physical["region"] = json!({ "startLine": line });
            if let Some(column) = found.column {
                physical["region"]["startColumn"] = json!(column);
            }
        }
        result["locations"] = json!([{ "physicalLocation": physical }]);
    }
    result
}

/// A path as a reference: what would end it or begin a query is written in hexadecimal.
fn uri(path: &str) -> String {
    let mut written = String::new();
    for byte in path.bytes() {
        if byte.is_ascii_alphanumeric() || b"/-._~".contains(&byte) {
            written.push(char::from(byte));
        } else {
            written.push_str(&format!("%{byte:02X}"));
        }
    }
    written
}
