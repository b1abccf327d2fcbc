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
    sealed_draft(host, name, &draft(module))
}

fn draft(module: &str) -> Value {
    let module = wat::parse_str(module).unwrap();
    json!({
        "contract_id": "c",
        "scope": "s",
        "task": {"kind": "wasm", "module_base64": data_encoding::BASE64.encode(&module)},
        "expected_output_format": {},
        "max_cpu_seconds": 1,
        "max_runtime_seconds": 20,
        "max_memory_mb": 16,
    })
}

fn sealed_draft(host: &Host, name: &str, draft: &Value) -> Value {
    let path = host.dir().join(name);
    std::fs::write(&path, draft.to_string()).unwrap();
    let sealed = host.run(["seal", path.to_str().unwrap()]);
    assert_eq!(sealed.code(), 0, "{sealed:#?}");
    serde_json::from_slice(&sealed.stdout).unwrap()
}

/// Prints eight random bytes and the time, a letter for each byte.
const NOISY: &str = r#"(module
  (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "random_get" (func $random (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "clock_time_get" (func $time (param i32 i64 i32) (result i32)))
  (memory (export "memory") 1)
  (data (i32.const 0) "\08\00\00\00\10\00\00\00")
  (func (export "_start") (local $i i32)
    (drop (call $random (i32.const 8) (i32.const 8)))
    (drop (call $time (i32.const 0) (i64.const 1) (i32.const 16)))
    (loop $letters
      (i32.store8 offset=8 (local.get $i) (i32.add (i32.const 97) (i32.and (i32.const 15) (i32.load8_u offset=8 (local.get $i)))))
      (br_if $letters (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 1))) (i32.const 16))))
    (drop (call $write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 32)))))"#;

#[test]
fn a_deterministic_module_prints_the_same_in_the_daemon_and_out_of_it() {
    let host = host!();
    let seal = |name: &str, extra: Value| {
        let mut draft = draft(NOISY);
        draft["expected_output_format"] = json!(true);
        // So that the answer is made each time.
        draft["pure"] = json!(false);
        for (field, value) in extra.as_object().unwrap() {
            draft[field] = value.clone();
        }
        sealed_draft(&host, name, &draft)
    };
    let seven = json!({"deterministic": true, "seed": 7});
    let payload = seal("seven", seven);
    for way in Way::all() {
        let daemon = Daemon::start(&host, way, &[]);
        let ask = |payload: &Value| {
            let asked = client::ask(daemon.address, "POST", "/v1/payloads", &[], Some(payload));
            let reply = asked.unwrap();
            let envelope = reply.json();
            assert_eq!(reply.status, 200, "{envelope:#}");
            assert_eq!(envelope["status"], "SUCCESS", "{envelope:#}");
            envelope["output"].to_string()
        };
        let first = ask(&payload);
        assert_eq!(first, ask(&payload));
        assert_ne!(first, ask(&seal("zero", json!({"deterministic": true}))));
        assert_ne!(first, ask(&seal("free", json!({}))));
        daemon.end();
    }
    // What it is sealed with holds: a rerun needs no flag, and none contradicts it.
    let path = host.dir().join("payload.json");
    std::fs::write(&path, payload.to_string()).unwrap();
    let path = path.to_str().unwrap();
    let envelope = host.run(["execute", path]);
    assert_eq!(envelope.code(), 0, "{envelope:#?}");
    let answer = host.dir().join("envelope.json");
    std::fs::write(&answer, &envelope.stdout).unwrap();
    let rerun = host.run(["verify", "--rerun", path, answer.to_str().unwrap()]);
    assert_eq!(rerun.code(), 0, "{rerun:#?}");
    host.run(["execute", "--deterministic", "--seed", "9", path])
        .assert_refused(125, "input.invalid");
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
