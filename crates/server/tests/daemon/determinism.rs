//! Runs that must give the same each time, asked for over HTTP: the same bytes, the same account of what is fixed, and a refusal where that cannot be had.

use cofferdam_contract::address::Nearby;
use cofferdam_contract::ids::Entropy;
use cofferdam_contract::network::Network;
use cofferdam_contract::seal::Draft;
use serde_json::{Value, json};

use crate::support::{Daemon, JSON, Outcome};

/// Everything that usually differs: the time, randomness, the order of a set, numbers of processes, addresses, names of temporary files.
const NOISY: &str = r#"
import os, random, subprocess, tempfile, time
print(time.time(), time.monotonic(), time.perf_counter())
print(os.urandom(8).hex(), random.random(), tempfile.mktemp())
print({"a", "b", "c", "d", "e"}, hash("x"), id(object()))
print(os.getpid(), subprocess.run(["sh", "-c", "echo $$; date +%s%N"], capture_output=True).stdout)
"#;

fn fixed(mut request: Value) -> Value {
    request["deterministic"] = json!(true);
    request
}

fn run(daemon: &Daemon, request: &Value) -> Outcome<Value> {
    let reply = daemon.post("/v1/runs", request)?;
    assert_eq!(reply.status, 200, "{}", reply.text());
    let view = reply.json();
    assert_eq!(view["status"], "success", "{view:#}");
    Ok(view)
}

fn stdout(view: &Value) -> String {
    let data = view["stdout"]["data"].as_str();
    data.unwrap_or_default().to_owned()
}

#[test]
fn a_deterministic_run_gives_the_same_bytes_and_says_what_was_fixed() -> Outcome<()> {
    // Also where sandboxes and interpreters stand ready, which are everybody's.
    let mut daemon = Daemon::start(|config| config.runs.pool = Some(2))?;
    let requests = [
        json!({"command": ["/usr/bin/python3", "-c", NOISY]}),
        json!({"language": "python", "code": NOISY}),
        json!({"command": ["sh", "-c", "echo $$; date +%s%N; mktemp -u; od -An -N8 -tx1 /dev/urandom; ls -f"],
            "files": [{"path": "b", "content": "1"}, {"path": "a", "content": "2"}]}),
    ];
    let mut last = Value::Null;
    for request in requests {
        let first = run(&daemon, &fixed(request.clone()))?;
        let again = run(&daemon, &fixed(request.clone()))?;
        assert_ne!(first["run_id"], again["run_id"]);
        assert_eq!(stdout(&first), stdout(&again));
        assert_eq!(first["cached"], Value::Null, "it was run");
        assert_eq!(again["cached"], Value::Null, "it was run");
        let told = |item: &str| first["determinism"][item].as_str().unwrap_or_default();
        assert!(told("clock").starts_with("fixed: "), "{first:#}");
        assert!(told("random").starts_with("seeded: ") && told("random").ends_with("seed 0"));
        assert!(told("order").starts_with("not fixed: "), "{first:#}");
        assert_eq!(first["determinism"], again["determinism"]);
        let mut other = fixed(request.clone());
        other["seed"] = json!(7);
        let other = run(&daemon, &other)?;
        assert_ne!(stdout(&other), stdout(&first), "another seed");
        let free = run(&daemon, &request)?;
        assert_ne!(stdout(&free), stdout(&first), "not asked for");
        assert_eq!(free["determinism"], Value::Null);
        last = again;
    }
    // The history has it too.
    daemon.restart()?;
    let path = format!("/v1/runs/{}", last["run_id"].as_str().unwrap_or_default());
    let found = daemon.get(&path)?.json();
    assert_eq!(found["source"], "history", "{found:#}");
    assert_eq!(found["determinism"], last["determinism"]);
    Ok(())
}

#[test]
fn handlers_inputs_and_compiled_programs_are_deterministic_too() -> Outcome<()> {
    let daemon = Daemon::start(|_| {})?;
    let code = "import os, time\ndef handler(event):\n    return [str(time.time_ns()), os.urandom(4).hex(), os.getpid(), list({'a', 'b', 'c'})]\n";
    let execute = |extra: &Value| -> Outcome<Value> {
        let mut request = json!({"code": code, "language": "python"});
        for (name, value) in extra.as_object().into_iter().flatten() {
            request[name] = value.clone();
        }
        let reply = daemon.post("/execute", &request)?;
        assert_eq!(reply.status, 200, "{}", reply.text());
        let answer = reply.json();
        assert_eq!(answer["status"], "success", "{answer:#}");
        Ok(answer)
    };
    let first = execute(&json!({"deterministic": true}))?;
    let again = execute(&json!({"deterministic": true}))?;
    assert_eq!(first["return_value"], again["return_value"]);
    assert!(first["determinism"]["clock"].is_string(), "{first:#}");
    let other = execute(&json!({"deterministic": true, "seed": 7}))?;
    assert_ne!(first["return_value"], other["return_value"]);
    let free = execute(&json!({}))?;
    assert_ne!(first["return_value"], free["return_value"]);
    assert_eq!(free["determinism"], Value::Null);

    // Each input begins anew, and so does whoever sends them again.
    let request = fixed(json!({"language": "python", "code": NOISY, "inputs": [{}, {}]}));
    let (one, two) = (run(&daemon, &request)?, run(&daemon, &request)?);
    let printed = |view: &Value, index: usize| view["inputs"][index]["stdout"]["data"].clone();
    assert_eq!(printed(&one, 0), printed(&one, 1));
    assert_eq!(printed(&one, 0), printed(&two, 1));
    assert!(one["determinism"]["clock"].is_string(), "{one:#}");

    // The time of compiling is part of some programs.
    let code = "#include <stdio.h>\n#include <time.h>\nint main(void) { printf(\"%s %s %ld %p\\n\", __DATE__, __TIME__, (long)time(0), (void *)main); return 0; }";
    let request = fixed(json!({"language": "c", "code": code}));
    let (one, two) = (run(&daemon, &request)?, run(&daemon, &request)?);
    assert_eq!(stdout(&one), stdout(&two));
    assert!(stdout(&one).starts_with("Jan  1 2000 "), "{}", stdout(&one));
    Ok(())
}

fn sealed(id: &str, extra: &Value) -> Outcome<Value> {
    let mut draft = json!({
        "payload_id": id, "contract_id": "C-1", "scope": "noise",
        "task": {"kind": "command", "argv": ["/usr/bin/python3", "-c", NOISY]},
    });
    for (name, value) in extra.as_object().into_iter().flatten() {
        draft[name] = value.clone();
    }
    let draft = Draft::from_value(draft)?;
    let sealed = draft.seal(jiff::Timestamp::now(), Entropy([1; 16]))?;
    Ok(sealed.json().clone())
}

#[test]
fn a_payload_that_must_give_the_same_each_time_does_and_is_then_known() -> Outcome<()> {
    let daemon = Daemon::start(|_| {})?;
    let ask = |payload: &Value, headers: &[(&str, &str)]| -> Outcome<Value> {
        let headers = [&[JSON], headers].concat();
        let body = payload.to_string();
        let reply = daemon.send("POST", "/v1/payloads", &headers, body.as_bytes())?;
        assert_eq!(reply.status, 200, "{}", reply.text());
        let envelope = reply.json();
        assert_eq!(envelope["status"], "SUCCESS", "{envelope:#}");
        Ok(envelope)
    };
    let anew = [("Cache-Control", "no-cache")];
    let payload = |id: &str, extra: Value| sealed(id, &extra);
    let first = ask(&payload("P-1", json!({"deterministic": true}))?, &anew)?;
    let again = ask(&payload("P-2", json!({"deterministic": true}))?, &anew)?;
    assert_eq!(again["cached"], Value::Null);
    assert_eq!(first["output"], again["output"]);
    let other = json!({"deterministic": true, "seed": 7});
    let other = ask(&payload("P-3", other)?, &anew)?;
    assert_ne!(first["output"], other["output"]);
    let free = ask(&payload("P-4", json!({}))?, &anew)?;
    assert_ne!(first["output"], free["output"]);

    let task = json!({"kind": "source", "language": "python", "code": NOISY});
    let source = json!({"deterministic": true, "task": task});
    let one = ask(&payload("P-5", source.clone())?, &anew)?;
    let two = ask(&payload("P-6", source)?, &anew)?;
    assert_eq!(one["output"], two["output"]);

    // Known from here on, unless it says that it varies all the same.
    let kept = ask(&payload("P-7", json!({"deterministic": true}))?, &[])?;
    assert_eq!(kept["cached"], Value::Null);
    let known = ask(&payload("P-8", json!({"deterministic": true}))?, &[])?;
    let by = &kept["produced_by"]["run_id"];
    assert_eq!(known["cached"], json!({ "run_id": by }));
    assert_eq!(known["output"], first["output"]);
    let varies = json!({"deterministic": true, "pure": false});
    let varies = ask(&payload("P-9", varies)?, &[])?;
    assert_eq!(varies["cached"], Value::Null);
    Ok(())
}

#[test]
fn what_cannot_be_made_the_same_each_time_is_refused_and_named() -> Outcome<()> {
    let given = Network::read("allow=example.org").unwrap().by(
        Nearby {
            loopback: false,
            private: false,
        },
        None,
    );
    let daemon = Daemon::start(|config| config.runs.network = given)?;
    let refused = |path: &str, request: &Value, says: &[&str]| -> Outcome<()> {
        let reply = daemon.post(path, request)?;
        assert!([400, 422].contains(&reply.status), "{}", reply.text());
        for word in says {
            assert!(reply.text().contains(word), "{word}: {}", reply.text());
        }
        Ok(())
    };
    let networked = fixed(json!({"command": ["true"], "network": "allow=example.org"}));
    refused("/v1/runs", &networked, &["deterministic", "network"])?;
    let project =
        fixed(json!({"project": {"action": "test"}, "files": [{"path": "a", "content": "b"}]}));
    refused("/v1/runs", &project, &["deterministic", "project"])?;
    let seeded = json!({"command": ["true"], "seed": 7});
    refused("/v1/runs", &seeded, &["seed", "deterministic"])?;
    let negative = fixed(json!({"command": ["true"], "seed": -1}));
    refused("/v1/runs", &negative, &["seed"])?;
    let seeded = json!({"language": "python", "code": "1", "seed": 7});
    refused("/execute", &seeded, &["seed", "deterministic"])?;
    // Sealed by somebody who did not look.
    let mut payload = sealed("P-1", &json!({"deterministic": true}))?;
    payload["network_allowed"] = json!(true);
    if let Some(fields) = payload.as_object_mut() {
        fields.shift_remove("digest");
    }
    let digest = cofferdam_contract::canonical::digest(&payload)?;
    payload["digest"] = json!(digest);
    refused(
        "/v1/payloads",
        &payload,
        &["deterministic", "network_allowed"],
    )?;
    Ok(())
}
