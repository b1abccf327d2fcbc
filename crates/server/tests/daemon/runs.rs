//! Runs through the front door: results, limits, idempotency, batches, payloads, history.

use serde_json::{Value, json};

use crate::support::{Daemon, JSON};

#[test]
fn a_command_comes_back_whole() {
    let daemon = Daemon::start(|_| {}).unwrap();
    let reply = daemon
        .post(
            "/v1/runs",
            &json!({
                "command": ["sh", "-c", "cat; echo $WHO >&2; exit 3"],
                "stdin": "hello", "env": {"WHO": "me"}, "tags": {"a": "b"},
            }),
        )
        .unwrap();
    assert_eq!(reply.status, 200, "{}", reply.text());
    let run = reply.json();
    assert_eq!(run["state"], "ended");
    assert_eq!(run["status"], "failure");
    assert_eq!(run["exit_code"], 3);
    assert_eq!(run["stdout"]["data"], "hello");
    assert_eq!(run["stderr"]["data"], "me\n");
    assert_eq!(run["tags"], json!({"a": "b"}));
    assert!(
        run["usage"]["wall_ms"]
            .as_f64()
            .is_some_and(|wall| wall > 0.0)
    );
    assert!(
        run["isolation"]
            .as_object()
            .is_some_and(|layers| !layers.is_empty())
    );
    assert_eq!(run["unrecorded"], Value::Null);
    let location = reply.header("location").unwrap();
    assert_eq!(
        location,
        format!("/v1/runs/{}", run["run_id"].as_str().unwrap())
    );
    let again = daemon.get(location).unwrap().json();
    assert_eq!(again, run);
}

#[test]
fn limits_hold_and_are_named() {
    let daemon = Daemon::start(|_| {}).unwrap();
    let run = daemon
        .post(
            "/v1/runs",
            &json!({"command": ["sleep", "60"], "limits": {"wall_time_ms": 150}}),
        )
        .unwrap()
        .json();
    assert_eq!(run["status"], "timeout", "{run}");
    assert_eq!(run["ending"]["cause"], "wall_time");
    let run = daemon
        .post(
            "/v1/runs",
            &json!({"command": ["sh", "-c", "yes"], "limits": {"output_bytes": 1000}}),
        )
        .unwrap()
        .json();
    assert_eq!(
        (&run["status"], &run["ending"]["cause"]),
        (&json!("limit"), &json!("output"))
    );
    assert!(
        run["stdout"]["data"]
            .as_str()
            .is_some_and(|text| text.starts_with("y\n"))
    );
}

#[test]
fn a_program_that_is_not_there_is_a_result() {
    let daemon = Daemon::start(|_| {}).unwrap();
    let reply = daemon
        .post("/v1/runs", &json!({"command": ["no-such-program"]}))
        .unwrap();
    let run = reply.json();
    assert_eq!(
        (reply.status, &run["status"]),
        (200, &json!("never_started")),
        "{run}"
    );
    assert_eq!(run["ending"]["code"], "program.not_found");
}

#[test]
fn without_waiting_the_answer_comes_at_once_and_the_result_later() {
    let daemon = Daemon::start(|_| {}).unwrap();
    let reply = daemon
        .post(
            "/v1/runs",
            &json!({"command": ["echo", "x"], "wait": false}),
        )
        .unwrap();
    assert_eq!(reply.status, 202);
    let path = reply.header("location").unwrap().to_owned();
    let run = daemon.until(&path, |run| run["state"] == "ended").unwrap();
    assert_eq!(run["stdout"]["data"], "x\n");
}

#[test]
fn the_same_key_is_the_same_run() {
    let daemon = Daemon::start(|_| {}).unwrap();
    let send = |body: &Value| {
        let headers = [JSON, ("Idempotency-Key", "k-1")];
        daemon
            .send("POST", "/v1/runs", &headers, body.to_string().as_bytes())
            .unwrap()
    };
    let body = json!({"command": ["date", "+%N"]});
    let (first, second) = (send(&body).json(), send(&body).json());
    assert_eq!(first["run_id"], second["run_id"]);
    assert_eq!(first["stdout"], second["stdout"]);
    let other = send(&json!({"command": ["true"]}));
    assert_eq!(other.error(), (409, "idempotency.conflict".to_owned()));
    let reply = daemon
        .send(
            "POST",
            "/v1/runs",
            &[JSON, ("Idempotency-Key", &"x".repeat(300))],
            b"{\"command\":[\"true\"]}",
        )
        .unwrap();
    assert_eq!(reply.error(), (400, "input.invalid".to_owned()));
}

#[test]
fn twenty_clients_at_once_each_get_their_own() {
    let daemon = Daemon::start(|_| {}).unwrap();
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..20)
            .map(|number| {
                let daemon = &daemon;
                scope.spawn(move || {
                    let body = json!({"command": ["echo", number.to_string()]});
                    daemon.post("/v1/runs", &body).unwrap().json()
                })
            })
            .collect();
        for (number, client) in clients.into_iter().enumerate() {
            let run = client.join().unwrap();
            assert_eq!(run["stdout"]["data"], format!("{number}\n"), "{run}");
        }
    });
    let listed = daemon.get("/v1/runs?limit=200").unwrap().json();
    assert_eq!(listed["runs"].as_array().unwrap().len(), 20);
}

#[test]
fn a_batch_is_checked_whole_and_answered_in_order() {
    let daemon = Daemon::start(|_| {}).unwrap();
    let reply = daemon
        .post(
            "/v1/runs/batch",
            &json!({"runs": [{"command": ["echo", "1"]}, {"command": ["echo", "2"]}]}),
        )
        .unwrap();
    let answer = reply.json();
    assert_eq!(reply.status, 200, "{answer}");
    let outputs: Vec<_> = answer["runs"]
        .as_array()
        .unwrap()
        .iter()
        .map(|run| &run["stdout"]["data"])
        .collect();
    assert_eq!(outputs, ["1\n", "2\n"]);
    let reply = daemon
        .post(
            "/v1/runs/batch",
            &json!({"runs": [{"command": ["true"]}, {"command": []}]}),
        )
        .unwrap();
    assert_eq!(reply.error(), (400, "input.invalid".to_owned()));
    assert!(
        reply.json()["error_detail"]
            .as_str()
            .unwrap()
            .starts_with("runs[1]: ")
    );
    assert_eq!(
        daemon
            .post("/v1/runs/batch", &json!({"runs": []}))
            .unwrap()
            .status,
        400
    );
}

#[test]
fn history_is_listed_filtered_and_paged() {
    let daemon = Daemon::start(|_| {}).unwrap();
    for number in 0..3 {
        let code = i32::from(number == 1);
        let body = json!({"command": ["sh", "-c", format!("exit {code}")], "tags": {"n": number.to_string()}});
        daemon.post("/v1/runs", &body).unwrap();
    }
    let count = |query: &str| {
        let page = daemon.get(&format!("/v1/runs{query}")).unwrap().json();
        page["runs"].as_array().map_or(usize::MAX, Vec::len)
    };
    assert_eq!(count(""), 3);
    assert_eq!(count("?status=failure"), 1);
    assert_eq!(count("?status=success,failure"), 3);
    assert_eq!(count("?tag=n=2"), 1);
    assert_eq!(count("?exit_code=0"), 2);
    assert_eq!(count("?kind=payload"), 0);
    assert_eq!(count("?command=sh*exit%201"), 1);
    let page = daemon.get("/v1/runs?limit=2").unwrap().json();
    let next = page["next"].as_str().unwrap();
    let rest = daemon
        .get(&format!("/v1/runs?limit=2&before={next}"))
        .unwrap()
        .json();
    assert_eq!(
        (rest["runs"].as_array().unwrap().len(), &rest["next"]),
        (1, &Value::Null)
    );
}

#[test]
fn what_is_forgotten_comes_from_the_history() {
    let daemon = Daemon::start(|config| config.runs.remembered = 0).unwrap();
    let run = daemon
        .post("/v1/runs", &json!({"command": ["echo", "kept"]}))
        .unwrap()
        .json();
    let path = format!("/v1/runs/{}", run["run_id"].as_str().unwrap());
    // Another run makes the daemon look at what it may forget.
    daemon
        .post("/v1/runs", &json!({"command": ["true"]}))
        .unwrap();
    let stored = daemon
        .until(&path, |found| found["source"] == "history")
        .unwrap();
    assert_eq!(stored["stdout"]["data"], "kept\n");
    assert_eq!(stored["status"], "success");
    let text = daemon.get(&format!("{path}/logs?format=text")).unwrap();
    assert_eq!(text.text(), "kept\n");
}

#[test]
fn logs_are_one_stream_or_both_and_can_be_cut() {
    let daemon = Daemon::start(|_| {}).unwrap();
    let body = json!({"command": ["sh", "-c", "echo a; echo b; echo e >&2; printf '\\377'"]});
    let run = daemon.post("/v1/runs", &body).unwrap().json();
    let path = format!("/v1/runs/{}/logs", run["run_id"].as_str().unwrap());
    let get = |query: &str| daemon.get(&format!("{path}{query}")).unwrap();
    assert_eq!(get("?stream=stderr&format=text").body, b"e\n");
    assert_eq!(get("?stream=stdout&format=text").body, b"a\nb\n\xff");
    assert_eq!(get("?stream=stdout&format=text&tail=2").body, b"b\n\xff");
    let pieces = get("").json();
    let pieces = pieces["pieces"].as_array().unwrap();
    assert!(
        pieces
            .iter()
            .any(|piece| piece["stream"] == "stderr" && piece["data"] == "e\n")
    );
    assert_eq!(get("?stream=stdin").status, 400);
}

#[test]
fn a_sealed_payload_becomes_an_envelope() {
    use cofferdam_contract::envelope::ResultEnvelope;
    use cofferdam_contract::ids::Entropy;
    use cofferdam_contract::seal::Draft;
    let daemon = Daemon::start(|_| {}).unwrap();
    let draft = json!({
        "contract_id": "c-1", "scope": "say hello",
        "task": {"kind": "command", "argv": ["echo", "{\"x\": 1}"]},
    });
    let sealed = Draft::from_value(draft)
        .unwrap()
        .seal(jiff::Timestamp::now(), Entropy([7; 16]))
        .unwrap();
    let reply = daemon.post("/v1/payloads", sealed.json()).unwrap();
    assert_eq!(reply.status, 200, "{}", reply.text());
    let envelope = ResultEnvelope::parse(&reply.body).unwrap();
    envelope.check(&sealed).unwrap();
    assert_eq!(
        reply.json()["output"],
        json!({"stdout": "{\"x\": 1}\n", "exit_code": 0})
    );
    let run = reply.header("x-run-id").unwrap();
    assert_eq!(
        daemon.get(&format!("/v1/runs/{run}")).unwrap().json()["kind"],
        "payload"
    );
    let mut changed = sealed.json().clone();
    changed["scope"] = json!("something else");
    let reply = daemon.post("/v1/payloads", &changed).unwrap();
    assert_eq!(reply.error(), (422, "payload.digest_mismatch".to_owned()));
}

#[test]
fn a_sealed_payload_may_be_source_code() {
    use cofferdam_contract::envelope::ResultEnvelope;
    use cofferdam_contract::ids::Entropy;
    use cofferdam_contract::seal::Draft;
    let daemon = Daemon::start(|_| {}).unwrap();
    let send = |task: Value, entropy: u8| {
        let draft = json!({"contract_id": "c-1", "scope": "run code", "task": task});
        let sealed = Draft::from_value(draft).unwrap();
        let sealed = sealed
            .seal(jiff::Timestamp::now(), Entropy([entropy; 16]))
            .unwrap();
        let reply = daemon.post("/v1/payloads", sealed.json()).unwrap();
        (sealed, reply)
    };
    let code = "import json\nprint(json.dumps({'x': 1}))";
    let (sealed, reply) = send(
        json!({"kind": "source", "language": "python", "code": code}),
        1,
    );
    assert_eq!(reply.status, 200, "{}", reply.text());
    let envelope = ResultEnvelope::parse(&reply.body).unwrap();
    envelope.check(&sealed).unwrap();
    assert_eq!(reply.json()["output"]["stdout"], "{\"x\": 1}\n");
    let id = reply.header("x-run-id").unwrap();
    let run = daemon.get(&format!("/v1/runs/{id}")).unwrap().json();
    assert_eq!(
        (&run["kind"], &run["status"]),
        (&json!("payload"), &json!("success"))
    );
    // Nothing was said of writing, so that it may not.
    let writes = json!({"kind": "source", "language": "sh", "code": "touch here"});
    let (_, reply) = send(writes, 2);
    let run = reply.header("x-run-id").unwrap();
    let run = daemon.get(&format!("/v1/runs/{run}")).unwrap().json();
    assert!(
        run["stderr"]["data"]
            .as_str()
            .unwrap()
            .contains("Read-only"),
        "{run}"
    );
    let unknown = json!({"kind": "source", "language": "cobol", "code": "x"});
    let (_, reply) = send(unknown, 3);
    assert_eq!(reply.error(), (422, "backend.unsupported_task".to_owned()));
}

#[test]
fn a_payload_that_does_not_compile_is_an_answer_and_its_secrets_are_not_kept() {
    use cofferdam_contract::ids::Entropy;
    use cofferdam_contract::seal::Draft;
    use cofferdam_store::{DataDir, History};
    let daemon = Daemon::start(|_| {}).unwrap();
    let secret = format!("ghp_{}", "a1B2".repeat(9));
    let code = format!("/* {secret} */ int main(void) {{ return oops; }}");
    let draft = json!({
        "contract_id": "c-1", "scope": "compile",
        "task": {"kind": "source", "language": "c", "code": code},
    });
    let sealed = Draft::from_value(draft).unwrap();
    let sealed = sealed
        .seal(jiff::Timestamp::now(), Entropy([9; 16]))
        .unwrap();
    let reply = daemon.post("/v1/payloads", sealed.json()).unwrap();
    if crate::support::skipped_without_a_compiler(&reply) {
        return;
    }
    assert_eq!(
        (reply.status, &reply.json()["status"]),
        (200, &json!("ERROR")),
        "{}",
        reply.text()
    );
    assert!(reply.text().contains("oops"));
    let id = reply.header("x-run-id").unwrap();
    // Taken in first.
    let listed = daemon.get("/v1/runs?kind=payload").unwrap().text();
    assert!(listed.contains(id), "{listed}");
    let history = History::open(&DataDir::at(daemon.dir.path().join("data"))).unwrap();
    let stored = json!(history.get(id.parse().unwrap()).unwrap()).to_string();
    assert!(
        stored.contains("oops") && !stored.contains(&secret),
        "{stored}"
    );
}

#[test]
fn runs_in_sandboxes_that_stood_ready_are_like_any_other() {
    let daemon = Daemon::start(|config| config.runs.pool = None).unwrap();
    let body = json!({
        "command": ["sh", "-c", "cat given; echo made > made"],
        "files": [{"path": "given", "content": "hi\n"}],
    });
    let began = std::time::Instant::now();
    let is_ready = |text: &str| {
        text.lines().any(|line| {
            line.starts_with("cofferdam_pool_asked_total{found=\"ready\"}") && !line.ends_with(" 0")
        })
    };
    loop {
        let run = daemon.post("/v1/runs", &body).unwrap().json();
        assert_eq!(
            (&run["status"], &run["stdout"]["data"]),
            (&json!("success"), &json!("hi\n")),
            "{run}"
        );
        assert_eq!(run["artifacts"][0]["path"], "made");
        if is_ready(&daemon.get("/metrics").unwrap().text()) {
            break;
        }
        assert!(began.elapsed().as_secs() < 20, "none stands ready");
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
}
