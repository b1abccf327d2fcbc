//! WebAssembly tasks in the daemon: many at once in one process, each with its own limits, and the daemon none the worse for any of them.

use cofferdam_testkit::{Host, Way, host};
use serde_json::{Value, json};

use crate::daemon::Daemon;

/// `(module (import "wasi_snapshot_preview1" "fd_write" …) …)`: prints `{"n": 1}`.
const PRINTS: &[u8] = b"\0asm\x01\0\0\0\x01\x0c\x02\x60\x04\x7f\x7f\x7f\x7f\x01\x7f\x60\0\0\x02\x23\x01\x16wasi_snapshot_preview1\x08fd_write\0\0\x03\x02\x01\x01\x05\x03\x01\0\x01\x07\x13\x02\x06memory\x02\0\x06_start\0\x01\x0a\x0f\x01\x0d\0\x41\x01\x41\0\x41\x01\x41\x1e\x10\0\x1a\x0b\x0b\x17\x01\0\x41\0\x0b\x11\x08\0\0\0\x09\0\0\0{\"n\": 1}\n";
/// `(module (func (export "_start") (loop br 0)))`
const ENDLESS: &[u8] = b"\0asm\x01\0\0\0\x01\x04\x01\x60\0\0\x03\x02\x01\0\x07\x0a\x01\x06_start\0\0\x0a\x09\x01\x07\0\x03\x40\x0c\0\x0b\x0b";
/// `(module (func (export "_start") unreachable))`
const BREAKS: &[u8] = b"\0asm\x01\0\0\0\x01\x04\x01\x60\0\0\x03\x02\x01\0\x07\x0a\x01\x06_start\0\0\x0a\x05\x01\x03\0\0\x0b";
/// Ends in the middle.
const BROKEN: &[u8] = b"\0asm\x01\0\0\0\x01\x04\x01";

fn sealed(host: &Host, name: &str, module: &[u8]) -> Value {
    let draft = json!({
        "contract_id": "c",
        "scope": "s",
        "task": {"kind": "wasm", "module_base64": data_encoding::BASE64.encode(module)},
        "expected_output_format": {},
        "max_cpu_seconds": 1,
        "max_runtime_seconds": 20,
        "max_memory_mb": 16,
    });
    let path = host.dir().join(name);
    std::fs::write(&path, draft.to_string()).unwrap();
    let sealed = host.run(["seal", path.to_str().unwrap()]);
    assert_eq!(sealed.code(), 0, "{sealed:#?}");
    serde_json::from_slice(&sealed.stdout).unwrap()
}

#[test]
fn modules_run_in_the_daemon_side_by_side_and_it_goes_on() {
    let host = host!();
    for way in Way::all() {
        let daemon = Daemon::start(&host, way, &["--concurrency", "4"]);
        let modules = [
            ("prints", PRINTS, json!(null)),
            ("endless", ENDLESS, json!("CPU_LIMIT_EXCEEDED")),
            ("breaks", BREAKS, json!(null)),
            ("broken", BROKEN, json!(null)),
        ];
        let payloads =
            modules.map(|(name, module, violation)| (name, sealed(&host, name, module), violation));
        std::thread::scope(|scope| {
            for _ in 0..2 {
                for (name, payload, violation) in &payloads {
                    let daemon = &daemon;
                    scope.spawn(move || {
                        let reply = daemon.post("/v1/payloads", payload);
                        let envelope = reply.json();
                        assert_eq!(reply.status, 200, "{name}: {envelope:#}");
                        let is_success = envelope["status"] == "SUCCESS";
                        assert_eq!(is_success, *name == "prints", "{name}: {envelope:#}");
                        if is_success {
                            assert_eq!(envelope["output"], json!({"n": 1}));
                        }
                        if !violation.is_null() {
                            assert_eq!(&envelope["verdict"]["violation"], violation);
                        }
                    });
                }
            }
        });
        assert_eq!(daemon.get("/health").json()["status"], "healthy");
        daemon.end();
    }
}
