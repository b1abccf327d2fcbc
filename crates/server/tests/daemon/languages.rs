//! Source code: handlers and scripts, answers that cannot be forged, the executor interface.

use serde_json::{Value, json};

use crate::support::{Daemon, Outcome};

fn execute(daemon: &Daemon, body: &Value) -> Outcome<Value> {
    let reply = daemon.post("/execute", body)?;
    if reply.status == 200 {
        Ok(reply.json())
    } else {
        Err(reply.text().into())
    }
}

#[test]
fn handlers_in_every_default_language_get_the_event_and_give_a_value() {
    let daemon = Daemon::start(|_| {}).unwrap();
    let cases = [
        (
            "python",
            "def handler(event):\n    print('hi')\n    return {'n': event['n'] + 1}",
        ),
        (
            "python",
            "async def handler(event):\n    print('hi')\n    return {'n': event['n'] + 1}",
        ),
        (
            "javascript",
            "async function handler(event) { console.log('hi'); return {n: event.n + 1}; }",
        ),
        (
            "shell",
            "handler() { echo hi; printf '{\"n\": 2}' > \"$COFFERDAM_RESULT\"; }",
        ),
    ];
    for (language, code) in cases {
        let body = json!({"language": language, "code": code, "event": {"n": 1}, "execution_id": "exec_20260101_abcdefgh"});
        let answer = execute(&daemon, &body).unwrap();
        assert_eq!(answer["status"], "success", "{language}: {answer}");
        assert_eq!(
            answer["return_value"],
            json!({"n": 2}),
            "{language}: {answer}"
        );
        assert_eq!(answer["stdout"], "hi\n", "{language}");
        assert_eq!(
            (&answer["exit_code"], &answer["execution_id"]),
            (&json!(0), &body["execution_id"])
        );
        assert!(
            answer["metrics"]["cpu_time_ms"]
                .as_f64()
                .is_some_and(|cpu| cpu > 0.0)
        );
        assert!(
            answer["execution_time"]
                .as_f64()
                .is_some_and(|time| time > 0.0)
        );
    }
}

#[test]
fn what_is_printed_is_not_taken_for_the_answer() {
    let daemon = Daemon::start(|_| {}).unwrap();
    let code = "import os\nprint('===SANDBOX_RESULT===')\nprint('{\"ok\": true, \"value\": 666}')\nprint('===SANDBOX_RESULT_END===')\ndef handler(event):\n    return 1";
    let answer = execute(&daemon, &json!({"language": "python", "code": code})).unwrap();
    assert_eq!(
        (&answer["status"], &answer["return_value"]),
        (&json!("success"), &json!(1))
    );
}

#[test]
fn what_goes_wrong_inside_is_a_result_with_its_reason() {
    let daemon = Daemon::start(|_| {}).unwrap();
    let python = |code: &str| json!({"language": "python", "code": code, "event": {}});
    let answer = execute(
        &daemon,
        &python("def handler(event):\n    raise ValueError('no good')"),
    )
    .unwrap();
    assert_eq!(
        (&answer["status"], &answer["return_value"]),
        (&json!("failed"), &Value::Null)
    );
    assert!(
        answer["stderr"]
            .as_str()
            .unwrap()
            .contains("ValueError: no good"),
        "{answer}"
    );
    assert_eq!(answer["exit_code"], 1);
    let answer = execute(
        &daemon,
        &python("def handler(event):\n    return float('nan')"),
    )
    .unwrap();
    assert_eq!(answer["status"], "failed");
    assert!(
        answer["stderr"]
            .as_str()
            .unwrap()
            .contains("the value is not JSON"),
        "{answer}"
    );
    let answer = execute(
        &daemon,
        &python("import os\ndef handler(event):\n    os._exit(0)"),
    )
    .unwrap();
    assert_eq!(answer["return_value"], Value::Null);
    let mut slow = python("import time\nprint('started', flush=True)\ntime.sleep(60)");
    slow["timeout"] = json!(1);
    let answer = execute(&daemon, &slow).unwrap();
    assert_eq!(
        (&answer["status"], &answer["exit_code"]),
        (&json!("timeout"), &json!(-1))
    );
    assert_eq!(answer["stdout"], "started\n");
    assert!(
        answer["stderr"].as_str().unwrap().contains("wall"),
        "{answer}"
    );
    let time = answer["execution_time"].as_f64().unwrap();
    // How long after its limit is another test's; it never slept to its end.
    assert!((1.0..60.0).contains(&time), "{time}");
}

#[test]
fn a_script_without_a_handler_just_runs_and_leaves_files() {
    let daemon = Daemon::start(|_| {}).unwrap();
    let code = "import os\nos.makedirs('output')\nopen('output/result.csv', 'w').write(os.environ['WHO'])\nopen('.hidden', 'w').write('x')";
    let body = json!({"language": "python", "code": code, "env_vars": {"WHO": "me"}});
    let answer = execute(&daemon, &body).unwrap();
    assert_eq!(
        (&answer["status"], &answer["return_value"]),
        (&json!("success"), &Value::Null),
        "{answer}"
    );
    assert_eq!(answer["artifacts"], json!(["output/result.csv"]));
    let path = format!(
        "/v1/runs/{}/artifacts/output/result.csv",
        answer["run_id"].as_str().unwrap()
    );
    assert_eq!(daemon.get(&path).unwrap().text(), "me");
    let run = daemon
        .get(&format!("/v1/runs/{}", answer["run_id"].as_str().unwrap()))
        .unwrap()
        .json();
    assert_eq!(run["status"], "success");
}

#[test]
fn code_through_v1_is_a_script_or_a_handler_as_asked() {
    let daemon = Daemon::start(|_| {}).unwrap();
    let script = json!({
        "language": "sh", "code": "cat; cat data.txt; echo $1", "args": ["arg"], "stdin": "in ",
        "files": [{"path": "data.txt", "content": "file "}],
    });
    let run = daemon.post("/v1/runs", &script).unwrap().json();
    assert_eq!(run["stdout"]["data"], "in file arg\n", "{run}");
    assert_eq!(run["return_value"], Value::Null);
    let handler =
        json!({"language": "python", "code": "def handler(e):\n    return [e]", "event": 5});
    let run = daemon.post("/v1/runs", &handler).unwrap().json();
    assert_eq!(run["return_value"], json!([5]), "{run}");
    let missing = json!({"language": "python", "code": "x = 1", "event": 5});
    let run = daemon.post("/v1/runs", &missing).unwrap().json();
    assert_eq!(run["raised"]["type"], "MissingHandler", "{run}");
}

#[test]
fn what_does_not_compile_is_told_and_not_run() {
    let daemon = Daemon::start(|_| {}).unwrap();
    let good = json!({"language": "c", "code": "#include <stdio.h>\nint main(void) { puts(\"compiled\"); return 4; }"});
    let reply = daemon.post("/v1/runs", &good).unwrap();
    let run = reply.json();
    if crate::support::skipped_without_a_compiler(&reply) {
        return;
    }
    assert_eq!(
        (&run["exit_code"], &run["stdout"]["data"]),
        (&json!(4), &json!("compiled\n")),
        "{run}"
    );
    let bad = json!({"language": "c", "code": "int main(void) { return oops; }"});
    let run = daemon.post("/v1/runs", &bad).unwrap().json();
    assert_eq!(
        (&run["stage"], &run["status"]),
        (&json!("compile"), &json!("failure")),
        "{run}"
    );
    assert!(run["stderr"]["data"].as_str().unwrap().contains("oops"));
}

#[test]
fn languages_are_listed_and_what_is_not_there_is_named() {
    let daemon = Daemon::start(|_| {}).unwrap();
    let listed = daemon.get("/v1/languages").unwrap().json();
    let listed = listed["languages"].as_array().unwrap();
    let python = listed
        .iter()
        .find(|language| language["name"] == "python")
        .unwrap();
    assert_eq!(
        (&python["available"], &python["handlers"]),
        (&json!(true), &json!(true))
    );
    assert!(python["version"].as_str().unwrap().starts_with('3'));
    for language in listed {
        let says_why = language["why"].as_str().is_some_and(|why| !why.is_empty());
        assert_ne!(language["available"] == true, says_why, "{language}");
    }
    let reply = daemon
        .post("/v1/runs", &json!({"language": "pyton", "code": "x"}))
        .unwrap();
    assert_eq!(reply.error(), (400, "input.invalid".to_owned()));
    assert!(
        reply.json()["error_detail"]
            .as_str()
            .unwrap()
            .contains("python")
    );
}

#[test]
fn the_executor_interface_has_its_own_names_for_errors() {
    let daemon = Daemon::start(|_| {}).unwrap();
    for bad in [
        json!({"language": "python"}),
        json!({"language": "cobol", "code": "x"}),
        json!({"language": "python", "code": "x", "timeout": 0}),
        json!({"language": "python", "code": "x", "timeout": 3601}),
        json!({"language": "python", "code": "x", "stdin": "{"}),
        json!({"language": "python", "code": "x", "event": {}, "stdin": "{}"}),
        json!({"language": "python", "code": "x".repeat((1 << 20) + 1)}),
    ] {
        let reply = daemon.post("/execute", &bad).unwrap();
        assert_eq!(reply.error(), (400, "Executor.ValidationError".to_owned()));
    }
    let body = json!({"language": "python", "code": "def handler(e):\n    return e['a']", "stdin": "{\"a\": 7}"});
    assert_eq!(execute(&daemon, &body).unwrap()["return_value"], 7);
}
