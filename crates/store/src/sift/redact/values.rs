//! Redaction of what is not a stream: a text, the arguments of a command, a JSON document.

use std::collections::HashMap;

use serde_json::{Map, Value};

use super::bytes::PLACEHOLDER;
use super::names::{self, Kind};
use super::{Redactor, Rules, is_sensitive_name};

/// Options whose value is `user:password`.
const USER_OPTIONS: [&str; 4] = ["-u", "-U", "--user", "--proxy-user"];

pub fn redact_text(rules: &Rules, text: &str) -> (String, u64) {
    let mut redactor = Redactor::new(rules);
    let mut out = Vec::with_capacity(text.len());
    redactor.push(text.as_bytes(), &mut out);
    redactor.finish(&mut out);
    let count = redactor.count();
    let text = match String::from_utf8(out) {
        Ok(text) => text,
        // A pattern on bytes may cut a character in two.
        Err(broken) => String::from_utf8_lossy(broken.as_bytes()).into_owned(),
    };
    (text, count)
}

/// Each argument as a text, and what only shows across two of them: after an option whose name says that its value is a secret (`--password`, `--token`, `--api-key`,
/// `--client-secret`, `-password` …) the next argument is replaced whole unless it begins with `--`; so is the value in `--token=VALUE` and `NAME=VALUE`.
/// After `-u`, `-U`, `--user`, `--proxy-user` the password in `user:password` is. `-pVALUE` is not recognised: it is a port as often as a password.
pub fn redact_arguments(rules: &Rules, arguments: &[String]) -> (Vec<String>, u64) {
    let mut count = 0;
    let mut before: Option<&str> = None;
    let mut redacted = Vec::with_capacity(arguments.len());
    for argument in arguments {
        let (text, found) = redact_argument(rules, before, argument);
        redacted.push(text);
        count += found;
        before = Some(argument);
    }
    (redacted, count)
}

/// Every string is redacted as a text, a list of strings as arguments. A string under a key that names a secret is replaced whole, also in a list there, and so is the `value` beside
/// such a `name`. Keys are redacted as texts, and numbered where two become equal. Numbers stay as they are.
pub fn redact_json(rules: &Rules, value: &mut Value) -> u64 {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
        Value::String(text) => {
            let (redacted, count) = redact_text(rules, text);
            if count > 0 {
                *text = redacted;
            }
            count
        }
        Value::Array(entries) => redact_array(rules, entries),
        Value::Object(entries) => {
            let named = entries.get("name").and_then(Value::as_str);
            let named = named.is_some_and(names_a_secret);
            let mut count = 0;
            for (key, entry) in entries.iter_mut() {
                count += match names_a_secret(key) || (named && key == "value") {
                    true => hide_strings(rules, entry),
                    false => redact_json(rules, entry),
                };
            }
            count + redact_keys(rules, entries)
        }
    }
}

fn redact_keys(rules: &Rules, entries: &mut Map<String, Value>) -> u64 {
    let count = entries.keys().map(|key| redact_text(rules, key).1).sum();
    if count == 0 {
        return 0;
    }
    // The last number of each name: thousands of keys may become equal.
    let mut numbers: HashMap<String, usize> = HashMap::new();
    for (key, entry) in std::mem::take(entries) {
        let (clean, _) = redact_text(rules, &key);
        let number = numbers.entry(clean.clone()).or_insert(1);
        let mut name = clean.clone();
        while entries.contains_key(&name) {
            *number += 1;
            name = format!("{clean}~{number}");
        }
        entries.insert(name, entry);
    }
    count
}

fn redact_array(rules: &Rules, entries: &mut [Value]) -> u64 {
    let strings: Option<Vec<String>> = entries
        .iter()
        .map(|entry| entry.as_str().map(str::to_owned))
        .collect();
    let Some(strings) = strings else {
        return entries
            .iter_mut()
            .map(|entry| redact_json(rules, entry))
            .sum();
    };
    let (redacted, count) = redact_arguments(rules, &strings);
    for (entry, text) in entries.iter_mut().zip(redacted) {
        *entry = Value::String(text);
    }
    count
}

fn hide_strings(rules: &Rules, value: &mut Value) -> u64 {
    match value {
        Value::String(text) => hide(text),
        Value::Array(entries) => entries
            .iter_mut()
            .map(|entry| hide_strings(rules, entry))
            .sum(),
        other => redact_json(rules, other),
    }
}

fn hide(text: &mut String) -> u64 {
    if text.is_empty() || text == PLACEHOLDER {
        return 0;
    }
    PLACEHOLDER.clone_into(text);
    1
}

fn redact_argument(rules: &Rules, before: Option<&str>, argument: &str) -> (String, u64) {
    let mut text = argument.to_owned();
    if before.is_some_and(is_secret_option) && !argument.starts_with("--") {
        let count = hide(&mut text);
        return (text, count);
    }
    if before.is_some_and(|before| USER_OPTIONS.contains(&before)) {
        return redact_user(rules, argument);
    }
    match argument.split_once('=') {
        Some((name, value)) if names_a_secret(name.trim_start_matches('-')) && is_name(name) => {
            let mut value = value.to_owned();
            let count = hide(&mut value);
            (format!("{name}={value}"), count)
        }
        _ => redact_text(rules, argument),
    }
}

fn redact_user(rules: &Rules, argument: &str) -> (String, u64) {
    match argument.split_once(':') {
        Some((user, password)) if !password.starts_with("//") => {
            let mut password = password.to_owned();
            let count = hide(&mut password);
            (format!("{user}:{password}"), count)
        }
        _ => redact_text(rules, argument),
    }
}

fn is_secret_option(argument: &str) -> bool {
    let name = argument.trim_start_matches('-');
    name.len() < argument.len() && is_name(name) && names_a_secret(name)
}

fn is_name(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
    !text.is_empty() && text.bytes().all(plain)
}

/// As in a text; and a name in capitals as that of a variable.
fn names_a_secret(name: &str) -> bool {
    let shouted = !name.bytes().any(|byte| byte.is_ascii_lowercase());
    match names::kind_of(name.as_bytes()) {
        Some(Kind::BarePwd) => !shouted,
        Some(Kind::Password | Kind::Issued | Kind::Vague | Kind::Authorization) => true,
        None => shouted && is_sensitive_name(name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn arguments(given: &[&str]) -> (Vec<String>, u64) {
        let given: Vec<String> = given.iter().map(|&text| text.to_owned()).collect();
        redact_arguments(&Rules::builtin(), &given)
    }

    /// Forty thousand variables of such names fit into one payload.
    #[test]
    fn many_keys_that_become_equal_are_numbered_in_linear_time() {
        const KEYS: usize = 20_000;
        let entries = (0..KEYS).map(|n| (format!("ghp_{n:036}"), json!(n)));
        let mut value = Value::Object(entries.collect());
        assert_eq!(
            redact_json(&Rules::builtin(), &mut value),
            u64::try_from(KEYS).unwrap()
        );
        let entries = value.as_object().unwrap();
        assert_eq!(entries.len(), KEYS);
        let first = entries.keys().min().unwrap();
        assert!(entries.contains_key(&format!("{first}~{KEYS}")));
    }

    #[test]
    fn secrets_in_arguments_are_found_across_two_of_them() {
        let (redacted, count) = arguments(&[
            "tool",
            "--password",
            "hunter2",
            "--token=abc",
            "-u",
            "joe:s3cret",
            "API_KEY=x y",
            "--password-file",
            "/run/pw",
            "--token",
            "--verbose",
            "-H",
            "Authorization: Bearer abcdefgh1",
            "--api-key",
            "-dash",
            "https://joe:pw@host/",
        ]);
        let expected = [
            "tool",
            "--password",
            "[REDACTED]",
            "--token=[REDACTED]",
            "-u",
            "joe:[REDACTED]",
            "API_KEY=[REDACTED]",
            "--password-file",
            "/run/pw",
            "--token",
            "--verbose",
            "-H",
            "Authorization: Bearer [REDACTED]",
            "--api-key",
            "[REDACTED]",
            "https://joe:[REDACTED]@host/",
        ];
        assert_eq!(redacted, expected);
        assert_eq!(count, 7);
        let again = redact_arguments(&Rules::builtin(), &redacted);
        assert_eq!(again, (redacted, 0));
    }

    #[test]
    fn harmless_arguments_stay() {
        let harmless = [
            "sh",
            "-c",
            "echo monkey=5",
            "-u",
            "root",
            "-p",
            "80:80",
            "--tokens=12",
            "PATH=/bin",
            "--keyboard",
            "us",
        ];
        assert_eq!(
            arguments(&harmless),
            (harmless.map(str::to_owned).to_vec(), 0)
        );
    }

    #[test]
    fn json_is_redacted_by_key_and_by_text() {
        let mut value = json!({
            "env": {"API_KEY": "x", "PATH": "/bin", "KEY": "y"},
            "command": ["login", "--password", "p"],
            "list": [{"name": "DB_PASSWORD", "value": "z"}, {"name": "HOME", "value": "/root"}],
            "note": "see https://a:b@c and token: abc123def",
            "password": ["one", 2, {"user": "joe"}],
            "tokens": 12, "key": "plain",
        });
        assert_eq!(redact_json(&Rules::builtin(), &mut value), 7);
        let expected = json!({
            "env": {"API_KEY": "[REDACTED]", "PATH": "/bin", "KEY": "[REDACTED]"},
            "command": ["login", "--password", "[REDACTED]"],
            "list": [{"name": "DB_PASSWORD", "value": "[REDACTED]"}, {"name": "HOME", "value": "/root"}],
            "note": "see https://a:[REDACTED]@c and token: [REDACTED]",
            "password": ["[REDACTED]", 2, {"user": "joe"}],
            "tokens": 12, "key": "plain",
        });
        assert_eq!(value, expected);
        assert_eq!(redact_json(&Rules::builtin(), &mut value), 0);
    }
}
