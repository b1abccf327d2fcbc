//! What the API description says beside the types: examples that can be sent as they are, and which answer leads to which request.

use serde_json::{Map, Value, json};

use crate::routes::table::Method;

/// Examples of a body, by name.
pub(crate) fn examples(body: &str) -> Value {
    match body {
        "RunRequest" => json!({
            "command": { "value": { "command": ["echo", "hello"] } },
            "code": { "value": { "language": "shell", "code": "echo hello | tee made.txt", "wait": false } },
            "project": { "value": {
                "project": { "action": "test" },
                "files": [
                    { "path": "pyproject.toml", "content": "[project]\nname = \"demo\"\n" },
                    { "path": "test_demo.py", "content": "import unittest\n\nclass T(unittest.TestCase):\n    def test_one(self):\n        self.assertEqual(1 + 1, 2)\n" },
                ],
            } },
        }),
        "BatchRequest" => json!({
            "two": { "value": { "runs": [{ "command": ["echo", "1"] }, { "command": ["echo", "2"] }] } },
        }),
        "ExecuteRequest" => json!({
            "script": { "value": { "language": "shell", "code": "echo hello", "timeout": 2 } },
        }),
        "ExecutionPayload" => json!({ "sealed": { "value": sealed() } }),
        _ => json!({}),
    }
}

/// What the types of a run cannot say: it is a command, code in a language or a project, and some fields belong to one of them.
pub(crate) fn kinds_of_run() -> Value {
    json!([
        {
            "required": ["command"],
            "properties": {
                "command": { "type": "array", "minItems": 1 },
                "language": { "type": "null" },
                "code": { "type": "null" },
                "project": { "type": "null" },
                "event": { "type": "null" },
                "args": { "maxItems": 0 },
            },
        },
        {
            "required": ["language", "code"],
            "properties": {
                "language": { "type": "string" },
                "code": { "type": "string" },
                "command": { "type": "null" },
                "cwd": { "type": "null" },
                "project": { "type": "null" },
            },
        },
        {
            "required": ["project"],
            "properties": {
                "project": { "type": "object" },
                "command": { "type": "null" },
                "language": { "type": "null" },
                "code": { "type": "null" },
                "cwd": { "type": "null" },
                "event": { "type": "null" },
                "inputs": { "type": "null" },
                "args": { "maxItems": 0 },
                "stdin": { "type": "null" },
                "stdin_base64": { "type": "null" },
                "deterministic": { "const": false },
            },
        },
    ])
}

/// Where a client can go on with the id of the run that it got.
pub(crate) fn links(method: Method, path: &str) -> Map<String, Value> {
    const NEXT: [(&str, &str); 6] = [
        ("show", "get_v1_runs_id"),
        ("events", "get_v1_runs_id_events"),
        ("logs", "get_v1_runs_id_logs"),
        ("artifacts", "get_v1_runs_id_artifacts"),
        ("cancel", "post_v1_runs_id_cancel"),
        ("delete", "delete_v1_runs_id"),
    ];
    let mut links = Map::new();
    if (method, path) == (Method::Post, "/v1/runs") {
        for (name, operation) in NEXT {
            let link = json!({ "operationId": operation, "parameters": { "id": "$response.body#/run_id" } });
            links.insert(name.to_owned(), link);
        }
    }
    links
}

/// Its digest is right and its deadline far away.
fn sealed() -> Value {
    json!({
        "payload_id": "example-1",
        "contract_id": "example",
        "scope": "Say hello.",
        "task": { "kind": "command", "argv": ["echo", "hello"] },
        "expected_output_format": true,
        "max_runtime_seconds": 2,
        "max_cpu_seconds": 1,
        "max_memory_mb": 64,
        "max_output_size_kb": 4,
        "max_processes": 100,
        "max_open_files": 1024,
        "max_disk_mb": 1024,
        "network_allowed": false,
        "filesystem_write": false,
        "created_at": "2026-01-01T00:00:00Z",
        "deadline": "2099-01-01T00:00:00Z",
        "digest": "sha256:6ea843301c076ba33a97312d06ff89dab186374d7f6b31bd91e5e13fd6993fb8",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_of_a_payload_is_sealed() {
        let text = sealed().to_string();
        assert!(cofferdam_contract::seal::Sealed::open(text.as_bytes()).is_ok());
    }
}
