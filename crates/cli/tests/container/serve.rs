//! `cofferdam serve` as the first process of a container, as an ordinary user, without a capability.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::docker::{Docker, IMAGE, NO_SECCOMP, USER, succeed};

const NAME: &str = "serving";
/// The host's programs, Python among them, and the binary outside of them.
const PROGRAMS: [&str; 3] = ["/usr:/usr:ro", "/lib:/lib:ro", "/lib64:/lib64:ro"];
const BINARY: &str = "/opt/cofferdam";
/// In the container: a request, and its answer as one line.
const CLIENT: &str = r#"
import json, sys, urllib.error, urllib.request
method, path, body = sys.argv[1:4]
request = urllib.request.Request("http://127.0.0.1:8080" + path, body.encode() or None, {"Content-Type": "application/json"}, method=method)
try:
    answer = urllib.request.urlopen(request, timeout=30)
except urllib.error.HTTPError as error:
    answer = error
print(json.dumps([answer.status, json.load(answer)]))
"#;
/// In the container: the names of all processes but its own, and how many of them nobody has waited for.
const PROCESSES: &str = r#"
import os
own, found = str(os.getpid()), []
for pid in filter(str.isdigit, os.listdir("/proc")):
    if pid != own:
        name, state = open(f"/proc/{pid}/stat").read().split("(", 1)[1].rsplit(")", 1)
        found.append(name + state[:2])
print(found)
"#;

#[test]
fn container_serves_an_ordinary_user_and_holds_every_limit() {
    let Some(docker) = Docker::start() else {
        return;
    };
    let binary = format!("{}:{BINARY}:ro", env!("CARGO_BIN_EXE_cofferdam"));
    let mut start = docker.client();
    start.args(["run", "--detach", "--name", NAME, "--network", "none"]);
    start.args(USER).args(["--security-opt", NO_SECCOMP]);
    start.args(["--tmpfs", "/data:rw,uid=1000,gid=1000,mode=700"]);
    for volume in PROGRAMS.into_iter().chain([&*binary]) {
        start.args(["--volume", volume]);
    }
    start.args([
        IMAGE,
        BINARY,
        "--data-dir",
        "/data",
        "serve",
        "--grace",
        "1s",
    ]);
    succeed(&mut start);
    let until = Instant::now() + Duration::from_secs(30);
    while !is_healthy(&docker) {
        assert!(Instant::now() < until, "{}", log(&docker));
    }

    let code = "import os\ndef handler(event):\n    return [event['n'] + 1, os.getuid()]";
    let work = json!({"language": "python", "code": code, "event": {"n": 1}});
    let answer = ask(&docker, "POST", "/execute", &work);
    assert_eq!(answer["return_value"], json!([2, 1000]), "{answer}");
    for (cause, command, limits) in [
        ("wall_time", "sleep 1000", json!({"wall_time_ms": 300})),
        (
            "cpu_time",
            "while :; do :; done",
            json!({"cpu_time_ms": 300}),
        ),
        (
            "memory",
            "python3 -c 'x = bytearray(256 << 20); import time; time.sleep(60)'",
            json!({"memory_bytes": 64 << 20}),
        ),
        ("output", "yes", json!({"output_bytes": 64 << 10})),
    ] {
        let work = json!({"command": ["sh", "-c", command], "limits": limits});
        let run = ask(&docker, "POST", "/v1/runs", &work);
        let ending = (&run["ending"]["kind"], &run["ending"]["cause"]);
        assert_eq!(ending, (&json!("stopped"), &json!(cause)), "{run}");
    }

    // Nothing of all that is left, though nobody but the daemon itself could clear it up.
    let processes = succeed(inside(&docker).args(["/usr/bin/python3", "-c", PROCESSES]));
    let processes = processes.replace(", 'cofferdam-pool S'", "");
    assert_eq!(processes, "['cofferdam S']\n");
    // Workspaces that wait for a run are empty.
    let find = ["/usr/bin/find", "/data/work", "-mindepth", "2"];
    assert_eq!(succeed(inside(&docker).args(find)), "");

    let long = json!({"command": ["sleep", "1000"], "wait": false});
    assert!(ask(&docker, "POST", "/v1/runs", &long)["run_id"].is_string());
    let mut kill = docker.client();
    succeed(kill.args(["kill", "--signal", "TERM", NAME]));
    let code = succeed(docker.client().args(["wait", NAME]));
    assert_eq!(code, "143\n", "{}", log(&docker));
    succeed(docker.client().args(["rm", NAME]));
}

fn is_healthy(docker: &Docker) -> bool {
    let output = client(docker, "GET", "/health", "").output().unwrap();
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    answer[1]["status"] == "healthy"
}

fn ask(docker: &Docker, method: &str, path: &str, body: &Value) -> Value {
    let answer = succeed(&mut client(docker, method, path, &body.to_string()));
    let answer: Value = serde_json::from_str(&answer).unwrap();
    assert!(answer[0].as_u64() < Some(300), "{answer}");
    answer[1].clone()
}

fn client(docker: &Docker, method: &str, path: &str, body: &str) -> Command {
    let mut command = inside(docker);
    command.args(["/usr/bin/python3", "-c", CLIENT, method, path, body]);
    command
}

fn inside(docker: &Docker) -> Command {
    let mut command = docker.client();
    command.args(["exec", NAME]).stdin(Stdio::null());
    command
}

fn log(docker: &Docker) -> String {
    let output = docker.client().args(["logs", NAME]).output().unwrap();
    String::from_utf8_lossy(&output.stderr).into_owned()
}
