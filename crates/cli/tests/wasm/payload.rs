//! A WebAssembly task in a payload: sealed with its module, executed, verified, and in the daemon as well.

use std::fs;

use cofferdam_testkit::wasi::Both;
use cofferdam_testkit::{Host, Need, host};
use serde_json::{Value, json};

/// Reads a number, prints its double as JSON.
const DOUBLE: &str = r#"
#include <stdio.h>
#include <string.h>
int main(int argc, char **argv) {
    long n = 0; if (scanf("%ld", &n) != 1) return 2;
    fprintf(stderr, "got %ld\n", n);
    printf("{\"double\": %ld, \"argument\": \"%s\", \"name\": \"%s\"}\n", 2 * n, argc > 1 ? argv[1] : "", argv[0]);
    return 0;
}"#;

fn base64(bytes: &[u8]) -> String {
    data_encoding::BASE64.encode(bytes)
}

fn draft(module: &[u8], input: &[u8]) -> Value {
    json!({
        "contract_id": "double",
        "scope": "double a number",
        "task": {"kind": "wasm", "module_base64": base64(module), "args": ["x"], "input_base64": base64(input)},
        "expected_output_format": {"type": "object", "properties": {"double": {"type": "integer"}}, "required": ["double"]},
        "max_runtime_seconds": 20,
        "max_memory_mb": 64,
    })
}

fn seal(host: &Host, draft: &Value) -> std::path::PathBuf {
    let path = host.dir().join("draft.json");
    fs::write(&path, draft.to_string()).unwrap();
    let sealed = host.run(["seal", path.to_str().unwrap()]);
    assert_eq!(sealed.code(), 0, "{sealed:#?}");
    let payload = host.dir().join("payload.json");
    fs::write(&payload, &sealed.stdout).unwrap();
    payload
}

#[test]
fn a_module_in_a_payload_reads_its_input_and_its_envelope_holds() {
    let host = host!(Need::WasiCompiler);
    let module = fs::read(Both::compile(DOUBLE).wasm()).unwrap();
    let payload = seal(&host, &draft(&module, b"21"));
    let payload = payload.to_str().unwrap();
    let done = host.run(["execute", payload]);
    let envelope = done.told();
    assert_eq!(envelope["status"], "SUCCESS", "{envelope:#}");
    assert_eq!(
        envelope["output"],
        json!({"double": 42, "argument": "x", "name": "task.wasm"})
    );
    assert_eq!(envelope["logs"], json!(["got 21"]));
    let path = host.dir().join("envelope.json");
    fs::write(&path, &done.stdout).unwrap();
    let verified = host.run(["verify", "--rerun", payload, path.to_str().unwrap()]);
    assert_eq!(verified.code(), 0, "{verified:#?}");
}

#[test]
fn limits_of_a_payload_hold_for_a_module_and_are_its_verdict() {
    let host = host!();
    let endless = r#"(module (func (export "_start") (loop br 0)))"#;
    let endless = wat::parse_str(endless).unwrap();
    let mut draft = draft(&endless, b"");
    draft["max_cpu_seconds"] = json!(1);
    let payload = seal(&host, &draft);
    let envelope = host.run(["execute", payload.to_str().unwrap()]).told();
    assert_eq!(envelope["status"], "ERROR");
    assert_eq!(
        envelope["verdict"]["violation"], "CPU_LIMIT_EXCEEDED",
        "{envelope:#}"
    );
}

#[test]
fn a_task_runs_only_where_it_can() {
    let host = host!();
    let empty = b"\0asm\x01\0\0\0";
    let payload = seal(&host, &draft(empty, b""));
    let payload = payload.to_str().unwrap();
    host.run(["execute", "--backend", "native", payload])
        .assert_refused(125, "backend.unsupported_task");
    let envelope = host.run(["execute", payload]).told();
    assert_eq!(envelope["status"], "ERROR", "{envelope:#}");
    let command = json!({
        "contract_id": "c", "scope": "s",
        "task": {"kind": "command", "argv": ["/etc/passwd"]},
        "expected_output_format": {},
    });
    let payload = seal(&host, &command);
    host.run(["execute", "--backend", "wasm", payload.to_str().unwrap()])
        .assert_refused(125, "backend.unsupported_task");
}
