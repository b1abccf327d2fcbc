//! The description: it is current, it is sound, and every path in it is there.

use serde_json::Value;

use crate::support::Daemon;

/// Regenerated with `COFFERDAM_BLESS=1 cargo test -p cofferdam-server openapi`.
#[test]
fn the_golden_file_is_current() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/openapi.json");
    let text = cofferdam_server::openapi::text();
    if std::env::var_os("COFFERDAM_BLESS").is_some() {
        std::fs::write(path, &text).unwrap();
    }
    assert!(
        std::fs::read_to_string(path).unwrap() == text,
        "docs/openapi.json is stale"
    );
}

#[test]
fn every_reference_leads_somewhere() {
    fn references(value: &Value, found: &mut Vec<String>) {
        match value {
            Value::Object(map) => {
                found.extend(map.get("$ref").and_then(Value::as_str).map(str::to_owned));
                map.values().for_each(|value| references(value, found));
            }
            Value::Array(items) => items.iter().for_each(|value| references(value, found)),
            _ => {}
        }
    }
    let document = cofferdam_server::openapi::document();
    let mut found = Vec::new();
    references(&document, &mut found);
    assert!(found.len() > 20);
    for reference in found {
        let pointer = reference.strip_prefix('#').unwrap();
        assert!(document.pointer(pointer).is_some(), "{reference}");
    }
}

#[test]
fn what_is_described_is_served() {
    let daemon = Daemon::start(|_| {}).unwrap();
    let document = daemon.get("/openapi.json").unwrap().json();
    assert_eq!(document["openapi"], "3.1.0");
    for (path, methods) in document["paths"].as_object().unwrap() {
        let path = path.replace("{id}", "x").replace("{path}", "y");
        for method in methods.as_object().unwrap().keys() {
            let reply = daemon
                .send(&method.to_uppercase(), &path, &[], b"")
                .unwrap();
            let (status, code) = reply.error();
            assert_ne!(status, 405, "{method} {path}");
            assert_ne!(code, "http.not_found", "{method} {path}");
        }
    }
    let page = daemon.get("/docs").unwrap();
    assert!(
        page.header("content-type")
            .unwrap()
            .starts_with("text/html")
    );
    let text = page.text();
    assert!(text.contains("/v1/runs/{id}/events"));
    assert!(
        !text.contains("<script") && !text.contains("http://cdn") && !text.contains("https://cdn")
    );
}
