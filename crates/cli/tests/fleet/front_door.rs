//! `serve --fleet`: the daemon's own interface, with workers behind it.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

use cofferdam_testkit::desk;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::client::{self, Reply};
use crate::field::{Field, Guest, PATIENCE, shell};

/// A daemon in front of the fleet, with a data directory of its own.
pub(crate) struct Door {
    pub(crate) guest: Guest,
    pub(crate) address: SocketAddr,
    log: PathBuf,
}

impl Door {
    pub(crate) fn open(field: &Field, more: &[&str]) -> Self {
        Self::serve(field, &[&["--fleet", &field.nats.url()], more].concat())
    }

    /// In front of nothing, unless the arguments say so.
    pub(crate) fn serve(field: &Field, more: &[&str]) -> Self {
        let log = field.desk.path("door.log");
        let file = std::fs::File::create(&log).unwrap();
        let mut command = field.desk.command();
        command.arg("--data-dir").arg(field.desk.path("door"));
        command.args(["serve", "--listen", "127.0.0.1:0"]);
        command.args(more);
        command.stdout(Stdio::null()).stderr(file);
        let guest = Guest(command.spawn().unwrap());
        let mut door = Self {
            guest,
            address: SocketAddr::from(([127, 0, 0, 1], 0)),
            log,
        };
        field.until("the daemon listens", || door.listens().is_some());
        door.address = door.listens().unwrap();
        door.until("/health", |health| health["status"] == "healthy");
        door
    }

    fn listens(&self) -> Option<SocketAddr> {
        let log = std::fs::read_to_string(&self.log).ok()?;
        let (_, rest) = log.split_once("127.0.0.1:")?;
        let port: String = rest.chars().take_while(char::is_ascii_digit).collect();
        let whole = rest.len() > port.len();
        let port = port.parse().ok().filter(|_| whole)?;
        Some(SocketAddr::from(([127, 0, 0, 1], port)))
    }

    pub(crate) fn ask(&self, method: &str, path: &str, body: Option<&Value>) -> Reply {
        let asked = client::ask(self.address, method, path, &[], body);
        asked.unwrap_or_else(|error| {
            let log = std::fs::read_to_string(&self.log).unwrap_or_default();
            panic!("{method} {path}: {error}\n{log}")
        })
    }

    pub(crate) fn get(&self, path: &str) -> Reply {
        self.ask("GET", path, None)
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> Value {
        let reply = self.ask("POST", path, Some(body));
        let told = reply.json();
        assert!(reply.status < 300, "{path}: {} {told:#}", reply.status);
        told
    }

    fn refused(&self, path: &str, body: &Value) -> (u16, String) {
        let reply = self.ask("POST", path, Some(body));
        (
            reply.status,
            reply.json()["error_code"]
                .as_str()
                .unwrap_or_default()
                .to_owned(),
        )
    }

    pub(crate) fn until(&self, path: &str, so: impl Fn(&Value) -> bool) -> Value {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let found = self.get(path).json();
            if so(&found) {
                return found;
            }
            let log = || std::fs::read_to_string(&self.log).unwrap_or_default();
            assert!(Instant::now() < deadline, "{path}: {found:#}\n{}", log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Takes work on without waiting for it.
    pub(crate) fn begin(&self, script: &str) -> String {
        let work = json!({"command": ["sh", "-c", script], "wait": false});
        let told = self.post("/v1/runs", &work);
        told["run_id"].as_str().unwrap().to_owned()
    }

    pub(crate) fn ended(&self, id: &str) -> Value {
        self.until(&format!("/v1/runs/{id}"), |run| run["state"] == "ended")
    }
}

#[test]
fn what_is_sent_to_a_front_door_is_carried_out_by_workers_and_recorded_here() {
    let Some(field) = Field::new(desk!(), "10s", &[]) else {
        return;
    };
    let door = Door::open(&field, &[]);
    let _workers = ["w1", "w2"].map(|name| field.worker(name));
    field.ready(2);
    // A command, with a file that no message has room for, and files that it leaves.
    let large = "0123456789abcdef".repeat(20_000);
    let run = door.post("/v1/runs", &json!({
        "command": ["sh", "-c", "cat given given > made; echo small > notes; echo out; echo err >&2; exit 3"],
        "files": [{"path": "given", "content": large}], "tags": {"a": "b"}, "execution_id": "mine",
    }));
    assert_eq!(
        (&run["status"], &run["exit_code"]),
        (&json!("failure"), &json!(3)),
        "{run:#}"
    );
    assert_eq!(
        (&run["stdout"]["data"], &run["stderr"]["data"]),
        (&json!("out\n"), &json!("err\n"))
    );
    let worker = run["isolation"]["worker"].as_str().unwrap();
    assert!(
        ["w1", "w2"].contains(&worker) && run["enforced_by"]["memory"].is_string(),
        "{run:#}"
    );
    let id = run["run_id"].as_str().unwrap();
    let made = door.get(&format!("/v1/runs/{id}/artifacts/made"));
    assert!(made.status == 200 && made.body == large.repeat(2).into_bytes());
    let listed = door.get("/v1/runs?tag=a=b").json();
    assert_eq!(
        listed["runs"].as_array().map(Vec::len),
        Some(1),
        "{listed:#}"
    );
    assert_eq!(listed["runs"][0]["run_id"], json!(id), "{listed:#}");
    let stored = door.get(&format!("/v1/runs/{id}")).json();
    assert_eq!(
        (&stored["execution_id"], &stored["status"]),
        (&json!("mine"), &json!("failure"))
    );
    // Source code with a handler; several inputs; what does not compile; a limit.
    let code = "def handler(event):\n    return {'sum': sum(event['xs'])}\n";
    let answer = door.post(
        "/execute",
        &json!({"language": "python", "code": code, "event": {"xs": [1, 2, 39]}}),
    );
    assert_eq!(
        (&answer["status"], &answer["return_value"]),
        (&json!("success"), &json!({"sum": 42})),
        "{answer:#}"
    );
    let inputs = json!({"language": "python", "code": "print(input())", "inputs": [{"stdin": "a"}, {"stdin": "b"}]});
    let told = door.post("/v1/runs", &inputs);
    assert_eq!(
        (
            &told["inputs"][0]["stdout"]["data"],
            &told["inputs"][1]["stdout"]["data"]
        ),
        (&json!("a\n"), &json!("b\n")),
        "{told:#}"
    );
    let slow = json!({"command": ["sleep", "600"], "limits": {"wall_time_ms": 300}});
    let told = door.post("/v1/runs", &slow);
    assert_eq!(
        (&told["status"], &told["ending"]["cause"]),
        (&json!("timeout"), &json!("wall_time")),
        "{told:#}"
    );
    let missing = door.post("/v1/runs", &json!({"command": ["/no/such/program"]}));
    assert_eq!(missing["status"], "never_started", "{missing:#}");
    // A sealed payload is answered by the worker's own, signed envelope.
    let payload = field.desk.seal("p.json", &shell("SEALED", "echo sealed"));
    let payload: Value = serde_json::from_slice(&std::fs::read(payload).unwrap()).unwrap();
    let envelope = door.post("/v1/payloads", &payload);
    assert_eq!(
        (&envelope["status"], &envelope["output"]["stdout"]),
        (&json!("SUCCESS"), &json!("sealed\n")),
        "{envelope:#}"
    );
    assert!(
        envelope["receipt"].is_string() && envelope["worker_id"].as_str().unwrap().starts_with('w')
    );
    // Several at once.
    let one = |n: u32| json!({"command": ["echo", n.to_string()]});
    let batch = door.post("/v1/runs/batch", &json!({"runs": [one(1), one(2), one(3)]}));
    let out: Vec<&Value> = batch["runs"]
        .as_array()
        .unwrap()
        .iter()
        .map(|run| &run["stdout"]["data"])
        .collect();
    assert_eq!(out, ["1\n", "2\n", "3\n"], "{batch:#}");
    // News of a run, from waiting to its end.
    let id = door.begin("echo news");
    let events = String::from_utf8(door.get(&format!("/v1/runs/{id}/events")).body).unwrap();
    let order: Vec<Option<usize>> = ["queued", "running", "news", "event: end"]
        .map(|word| events.find(word))
        .to_vec();
    assert!(
        order.iter().all(Option::is_some) && order.is_sorted(),
        "{events}"
    );
    // Nothing of them is left on the fleet but who did what.
    let status = field.fleet(&["status", "--json"]);
    assert_eq!(
        (&status["jobs_open"], &status["objects"]),
        (&json!(0), &json!(0)),
        "{status:#}"
    );
    for (path, body, refusal) in [
        (
            "/v1/runs",
            json!({"language": "cobol", "code": "x"}),
            (400, "input.invalid"),
        ),
        (
            "/v1/runs",
            json!({"command": ["true"], "image": "x:1"}),
            (400, "input.invalid"),
        ),
        (
            "/v1/runs",
            json!({"command": ["true"], "network": "full"}),
            (400, "input.invalid"),
        ),
        ("/v1/payloads", json!({"x": 1}), (422, "payload.invalid")),
    ] {
        let (status, code) = door.refused(path, &body);
        assert_eq!((status, code.as_str()), refusal, "{body}");
    }
}

#[test]
fn a_run_on_the_fleet_is_cancelled_from_the_front_door() {
    let Some(field) = Field::new(desk!(), "10s", &[]) else {
        return;
    };
    let door = Door::open(&field, &[]);
    // Before anybody has it.
    let waits = door.begin("sleep 600");
    assert_eq!(
        door.ask("DELETE", &format!("/v1/runs/{waits}"), None)
            .status,
        202
    );
    assert_eq!(door.ended(&waits)["status"], "canceled");
    // And while it runs.
    let _worker = field.worker("w1");
    field.ready(1);
    let runs = door.begin("sleep 600");
    door.until(&format!("/v1/runs/{runs}"), |run| run["state"] == "running");
    assert_eq!(
        door.ask("DELETE", &format!("/v1/runs/{runs}"), None).status,
        202
    );
    assert_eq!(door.ended(&runs)["status"], "canceled");
    let about = field.fleet(&["jobs", &runs, "--json"]);
    assert_eq!(about["job"]["end"]["outcome"], "canceled", "{about:#}");
    // The worker has ended it and takes the next one; nobody is blamed.
    let next = door.post("/v1/runs", &json!({"command": ["echo", "next"]}));
    assert_eq!(next["stdout"]["data"], "next\n", "{next:#}");
    let url = field.nats.url();
    let (_, ledger) = field.desk.json(&format!("ledger --nats {url} show --json"));
    let ledger = &ledger["workers"];
    assert_eq!(ledger["w1"]["offences"], json!({}), "{ledger:#}");
    // A person at the fleet can do the same, and have it forgotten.
    let other = door.begin("sleep 600");
    door.until(&format!("/v1/runs/{other}"), |run| {
        run["state"] == "running"
    });
    field.desk.ok(&["fleet", "--nats", &url, "cancel", &other]);
    assert_eq!(door.ended(&other)["status"], "canceled");
    field.desk.ok(&["fleet", "--nats", &url, "forget", &other]);
    let jobs = field.fleet(&["jobs", "--json"]).to_string();
    assert!(!jobs.contains(&other) && jobs.contains(&runs), "{jobs}");
}

#[test]
fn a_front_door_that_dies_or_ends_leaves_its_work_on_the_fleet_and_the_next_one_takes_it_in_once() {
    let Some(field) = Field::new(desk!(), "10s", &[]) else {
        return;
    };
    let door = Door::open(&field, &[]);
    let waits = door.begin("echo first > made; echo first");
    // Killed with work that nobody has yet, and told to end with the same: both leave it.
    door.guest.signal(Signal::KILL);
    drop(door);
    let mut door = Door::open(&field, &["--grace", "1s"]);
    let second = door.begin("echo second");
    field.until("it is on the fleet", || {
        field.fleet(&["jobs", &second, "--json"])["job"]["queued"] == true
    });
    door.guest.signal(Signal::TERM);
    assert_eq!(door.guest.0.wait().unwrap().code(), Some(143));
    drop(door);
    let _worker = field.worker("w1");
    // Without a daemon the work is done; who coordinates sees to its end.
    field.until("both are answered", || {
        field.fleet(&["status", "--json"])["results"] == 2
    });
    let door = Door::open(&field, &[]);
    for (id, word) in [(&waits, "first\n"), (&second, "second\n")] {
        let run = door.ended(id);
        assert_eq!(
            (&run["status"], &run["stdout"]["data"]),
            (&json!("success"), &json!(word)),
            "{run:#}"
        );
    }
    let listed = door.get("/v1/runs").json();
    assert_eq!(
        listed["runs"].as_array().map(Vec::len),
        Some(2),
        "{listed:#}"
    );
    assert_eq!(
        field.fleet(&["status", "--json"])["results"],
        2,
        "nothing ran twice"
    );
    // A server that is away is waited for.
    let last = door.post("/v1/runs", &json!({"command": ["echo", "last"]}));
    assert_eq!(last["stdout"]["data"], "last\n");
    assert!(
        std::fs::read_dir(field.desk.path("door/accepted"))
            .unwrap()
            .next()
            .is_none()
    );
}

#[test]
fn a_project_that_is_sent_to_a_front_door_is_tested_by_a_worker() {
    if !std::path::Path::new("/usr/bin/python3").exists() {
        let _: Option<()> = cofferdam_testkit::docker::skip("python3");
        return;
    }
    let Some(field) = Field::new(desk!(), "10s", &[]) else {
        return;
    };
    let door = Door::open(&field, &[]);
    let _worker = field.worker("w1");
    field.ready(1);
    let test = "import unittest\n\nclass T(unittest.TestCase):\n    def test_a(self):\n        self.assertEqual(1, 1)\n    def test_b(self):\n        self.assertEqual(1, 2)\n";
    field.desk.write("project/setup.cfg", "");
    field.desk.write("project/test_x.py", test);
    let server = format!("http://{}", door.address);
    let project = field.desk.path("project");
    let done = field.desk.run([
        "submit",
        "--server",
        &server,
        "--project",
        project.to_str().unwrap(),
        "--json",
    ]);
    let (code, told) = cofferdam_testkit::desk::json(&done);
    assert_eq!(
        (code, &told["counts"]["passed"], &told["counts"]["failed"]),
        (1, &json!(1), &json!(1)),
        "{told:#}"
    );
    // Its reports are files of this history.
    let runs = door.get("/v1/runs").json();
    let id = runs["runs"][0]["run_id"].as_str().unwrap().to_owned();
    let report = door.get(&format!(
        "/v1/runs/{id}/artifacts/cofferdam-reports/junit.xml"
    ));
    assert!(report.status == 200 && String::from_utf8_lossy(&report.body).contains("test_b"));
    // A payload that names one has no tree to go with it.
    let sealed = field.desk.seal(
        "project.json",
        &json!({"contract_id": "c", "scope": "s", "task": {"kind": "project", "action": "test"}, "deadline": "2099-01-01T00:00:00Z"}),
    );
    let sealed: Value = serde_json::from_slice(&std::fs::read(sealed).unwrap()).unwrap();
    let (status, code) = door.refused("/v1/payloads", &sealed);
    assert_eq!((status, code.as_str()), (422, "backend.unsupported_task"));
}
