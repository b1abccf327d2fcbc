//! WebAssembly tasks in the daemon: many at once in one process, each with its own limits, and the daemon none the worse for any of them.

use cofferdam_testkit::{Host, Way, host};
use serde_json::{Value, json};

use crate::client;
use crate::daemon::Daemon;

/// Prints a result.
const PRINTS: &str = r#"(module
  (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (data (i32.const 0) "\08\00\00\00\09\00\00\00{\22n\22: 1}\n")
  (func (export "_start") (drop (call $write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 32)))))"#;
const ENDLESS: &str = r#"(module (func (export "_start") (loop br 0)))"#;
const BREAKS: &str = r#"(module (func (export "_start") unreachable))"#;
const LIBRARY: &str = r#"(module (func (export "add")))"#;

fn sealed(host: &Host, name: &str, module: &str) -> Value {
    let module = wat::parse_str(module).unwrap();
    let draft = json!({
        "contract_id": "c",
        "scope": "s",
        "task": {"kind": "wasm", "module_base64": data_encoding::BASE64.encode(&module)},
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
            ("library", LIBRARY, json!(null)),
        ];
        let payloads =
            modules.map(|(name, module, violation)| (name, sealed(&host, name, module), violation));
        std::thread::scope(|scope| {
            for _ in 0..2 {
                for (name, payload, violation) in &payloads {
                    let address = daemon.address;
                    scope.spawn(move || {
                        let path = "/v1/payloads";
                        let reply = client::ask(address, "POST", path, &[], Some(payload)).unwrap();
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
