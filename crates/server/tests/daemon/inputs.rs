//! Compiled once, run for many inputs: each in a sandbox of its own, each with a result of its own, all of them bounded together.

use cofferdam_contract::units::Bytes;
use serde_json::{Value, json};

use crate::support::{Daemon, Outcome, skipped_without_a_compiler};

const ADD: &str = r#"
#include <stdio.h>
#include <stdlib.h>
int main(int argc, char **argv) {
    int a = 0;
    if (scanf("%d", &a) != 1) { fprintf(stderr, "no number\n"); return 3; }
    printf("%d\n", a + (argc > 1 ? atoi(argv[1]) : 0));
    return 0;
}"#;

/// `None` on a machine without this language, which says so.
fn run(daemon: &Daemon, body: &Value) -> Outcome<Option<Value>> {
    let reply = daemon.post("/v1/runs", body)?;
    match reply.status {
        200 => Ok(Some(reply.json())),
        _ if skipped_without_a_compiler(&reply) => Ok(None),
        _ => Err(reply.text().into()),
    }
}

fn statuses(run: &Value) -> Vec<&str> {
    let inputs = run["inputs"].as_array();
    let inputs = inputs.map(Vec::as_slice).unwrap_or_default();
    inputs
        .iter()
        .filter_map(|input| input["status"].as_str())
        .collect()
}

#[test]
fn a_program_is_compiled_once_and_run_for_each_input_in_order() {
    let daemon = Daemon::start(|_| {}).unwrap();
    let body = json!({
        "language": "c", "code": ADD, "tags": {"job": "sums"},
        "inputs": [{"stdin": "1", "args": ["10"]}, {"stdin": "x"}, {"stdin_base64": "Mg=="}],
    });
    let Some(run) = run(&daemon, &body).unwrap() else {
        return;
    };
    let inputs = run["inputs"].as_array().unwrap();
    assert_eq!(statuses(&run), ["success", "failure", "success"], "{run}");
    let outputs: Vec<_> = inputs
        .iter()
        .map(|input| input["stdout"]["data"].as_str().unwrap())
        .collect();
    assert_eq!(outputs, ["11\n", "", "2\n"]);
    assert_eq!(inputs[1]["exit_code"], 3);
    assert_eq!(inputs[1]["stderr"]["data"], "no number\n");
    assert!(
        inputs
            .iter()
            .all(|input| input["usage"]["wall_ms"].as_f64().unwrap() > 0.0)
    );
    // Together they ended as the first that did not end well.
    assert_eq!(
        (&run["status"], &run["exit_code"]),
        (&json!("failure"), &json!(3))
    );
    let id = run["run_id"].as_str().unwrap();
    let listed = daemon.get(&format!("/v1/runs?parent={id}")).unwrap().json();
    let kinds: Vec<_> = listed["runs"]
        .as_array()
        .unwrap()
        .iter()
        .map(|run| run["kind"].as_str().unwrap())
        .collect();
    assert_eq!(
        kinds.iter().filter(|kind| **kind == "build").count(),
        1,
        "{listed}"
    );
    assert_eq!(kinds.len(), 4, "{listed}");
    let kept = daemon.get("/v1/runs?tag=job=sums").unwrap().json();
    assert!(kept.to_string().contains(id), "{kept}");
}

#[test]
fn inputs_do_not_see_what_others_left() {
    let daemon = Daemon::start(|_| {}).unwrap();
    let code = "ls -A | grep -v cofferdam; cat shared.txt; echo changed > shared.txt; echo > $1; rm -f /work/gone.txt";
    let body = json!({
        "language": "sh", "code": code,
        "files": [{"path": "shared.txt", "content": "as sent\n"}, {"path": "gone.txt", "content": ""}],
        "inputs": [{"args": ["one"]}, {"args": ["two"]}],
    });
    let run = run(&daemon, &body).unwrap().unwrap();
    let inputs = run["inputs"].as_array().unwrap();
    assert_eq!(statuses(&run), ["success", "success"], "{run}");
    assert_eq!(inputs[0]["stdout"], inputs[1]["stdout"], "{run}");
    assert!(
        inputs[0]["stdout"]["data"]
            .as_str()
            .unwrap()
            .contains("as sent")
    );
    let left: Vec<_> = inputs
        .iter()
        .map(|input| input["artifacts"].to_string())
        .collect();
    assert!(
        left[0].contains("\"one\"") && !left[0].contains("\"two\""),
        "{run}"
    );
    assert!(left[1].contains("\"two\""), "{run}");
    let path = format!(
        "/v1/runs/{}/artifacts/shared.txt",
        inputs[0]["run_id"].as_str().unwrap()
    );
    assert_eq!(daemon.get(&path).unwrap().text(), "changed\n");
}

#[test]
fn a_handler_gets_the_event_of_each_input() {
    let daemon = Daemon::start(|_| {}).unwrap();
    let code =
        "def handler(event):\n    if event is None: raise ValueError('none')\n    return event * 2";
    let body = json!({
        "language": "python", "code": code,
        "inputs": [{"event": 1}, {"event": "ab"}, {"event": null}, {"event": {}}],
    });
    let reply = daemon.post("/v1/runs", &body).unwrap();
    // JSON's null is no event.
    assert_eq!(reply.error(), (400, "input.invalid".to_owned()));
    let mut body = body;
    body["inputs"] = json!([{"event": 1}, {"event": "ab"}, {"event": {}}]);
    let run = run(&daemon, &body).unwrap().unwrap();
    let inputs = run["inputs"].as_array().unwrap();
    assert_eq!(
        (&inputs[0]["return_value"], &inputs[1]["return_value"]),
        (&json!(2), &json!("abab")),
        "{run}"
    );
    assert_eq!(inputs[2]["raised"]["type"], "TypeError", "{run}");
}

#[test]
fn each_input_has_its_own_limits_and_all_of_them_one_bound() {
    let daemon = Daemon::start(|config| {
        config.runs.largest_output = Bytes::new(200 << 10);
    })
    .unwrap();
    let code = "case $1 in slow) sleep 30;; loud) yes | head -c 90000;; esac";
    let body = json!({
        "language": "sh", "code": code,
        "inputs": [
            {"args": ["slow"], "limits": {"wall_time_ms": 100}},
            {"args": ["loud"], "limits": {"output_bytes": 1000}},
            {"args": ["loud"]}, {"args": ["loud"]}, {"args": ["loud"]}, {"args": ["quiet"]},
        ],
    });
    let run = run(&daemon, &body).unwrap().unwrap();
    assert_eq!(
        statuses(&run),
        ["timeout", "limit", "success", "success", "limit", "not_run"],
        "{run}"
    );
    let total: usize = run["inputs"]
        .as_array()
        .unwrap()
        .iter()
        .map(|input| input["stdout"]["data"].as_str().map_or(0, str::len))
        .sum();
    assert!(total <= 200 << 10, "{total}");
    let why = run["inputs"][5]["why"].as_str().unwrap();
    assert!(why.contains("204800"), "{why}");
}

#[test]
fn every_problem_of_the_inputs_is_named_before_anything_runs() {
    let daemon = Daemon::start(|_| {}).unwrap();
    let body = json!({
        "language": "sh", "code": "true", "stdin": "x", "args": ["y"],
        "inputs": [
            {"stdin": "a", "stdin_base64": "YQ=="},
            {"stdin_base64": "!"},
            {"limits": {"processes": 1_000_000}},
            {"event": 1},
        ],
    });
    let reply = daemon.post("/v1/runs", &body).unwrap();
    assert_eq!(reply.error(), (400, "input.invalid".to_owned()));
    let detail = reply.json()["error_detail"].as_str().unwrap().to_owned();
    for field in [
        "stdin:",
        "args:",
        "inputs:",
        "inputs[0].stdin_base64:",
        "inputs[1].stdin_base64:",
        "inputs[2].limits.processes:",
    ] {
        let found = detail.lines().any(|line| line.starts_with(field));
        assert!(found, "{field} in {detail}");
    }
    let none = json!({"language": "sh", "code": "true", "inputs": []});
    assert_eq!(daemon.post("/v1/runs", &none).unwrap().status, 400);
    let many = json!({"language": "sh", "code": "true", "inputs": vec![json!({}); 1001]});
    assert_eq!(daemon.post("/v1/runs", &many).unwrap().status, 400);
    let command = json!({"command": ["true"], "inputs": [{}]});
    assert_eq!(daemon.post("/v1/runs", &command).unwrap().status, 400);
}

#[test]
fn a_failed_compile_is_one_answer_and_is_kept_under_its_own_id() {
    let daemon = Daemon::start(|_| {}).unwrap();
    for inputs in [Value::Null, json!([{"stdin": "1"}, {"stdin": "2"}])] {
        let body =
            json!({"language": "c", "code": "int main(void) { return oops; }", "inputs": inputs});
        let Some(run) = run(&daemon, &body).unwrap() else {
            return;
        };
        assert_eq!(
            (&run["stage"], &run["status"], &run["inputs"]),
            (&json!("compile"), &json!("failure"), &Value::Null),
            "{run}"
        );
        assert!(run["stderr"]["data"].as_str().unwrap().contains("oops"));
        let id = run["run_id"].as_str().unwrap().to_owned();
        let logs = daemon
            .get(&format!("/v1/runs/{id}/logs?format=text"))
            .unwrap();
        assert!(logs.text().contains("oops"), "{}", logs.text());
        let listed = daemon.get("/v1/runs?status=failure").unwrap().json();
        let kept = listed["runs"]
            .as_array()
            .unwrap()
            .iter()
            .find(|kept| kept["run_id"] == json!(id));
        assert_eq!(
            kept.map(|kept| &kept["exit_code"]),
            Some(&run["exit_code"]),
            "{listed}"
        );
    }
}

#[test]
fn cancelling_ends_the_input_that_runs_and_those_that_wait() {
    let daemon = Daemon::start(|_| {}).unwrap();
    let body = json!({
        "language": "sh", "code": "sleep 60", "wait": false,
        "inputs": [{}, {}, {}],
    });
    let reply = daemon.post("/v1/runs", &body).unwrap();
    assert_eq!(reply.status, 202, "{}", reply.text());
    let path = reply.header("location").unwrap().to_owned();
    daemon
        .until(&path, |run| run["state"] == "running")
        .unwrap();
    daemon.send("DELETE", &path, &[], b"").unwrap();
    let run = daemon.until(&path, |run| run["state"] == "ended").unwrap();
    assert_eq!(run["status"], "canceled", "{run}");
    assert_eq!(statuses(&run), ["canceled", "not_run", "not_run"], "{run}");
}
