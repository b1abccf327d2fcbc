//! Files in beside the request, and the whole run out as a bundle.

use cofferdam_contract::units::Bytes;
use cofferdam_store::bundle::{self, InspectOptions};
use serde_json::{Value, json};

use crate::support::{Daemon, Outcome, Reply};

/// Name, filename, contents.
type Part<'a> = (&'a str, Option<&'a str>, &'a [u8]);

fn body(boundary: &str, parts: &[Part<'_>]) -> Vec<u8> {
    let mut body = Vec::new();
    for (name, filename, contents) in parts {
        let filename = filename.map_or(String::new(), |name| format!("; filename=\"{name}\""));
        let head = format!(
            "--{boundary}\r\nContent-Disposition: form-data; name=\"{name}\"{filename}\r\n\r\n"
        );
        body.extend(head.as_bytes());
        body.extend(*contents);
        body.extend(b"\r\n");
    }
    body.extend(format!("--{boundary}--\r\n").as_bytes());
    body
}

fn send(daemon: &Daemon, headers: &[(&str, &str)], parts: &[Part<'_>]) -> Outcome<Reply> {
    send_with(daemon, "xXxboundaryxXx", headers, parts)
}

fn send_with(
    daemon: &Daemon,
    boundary: &str,
    headers: &[(&str, &str)],
    parts: &[Part<'_>],
) -> Outcome<Reply> {
    let kind = format!("multipart/form-data; boundary={boundary}");
    let mut all = vec![("Content-Type", kind.as_str())];
    all.extend(headers);
    daemon.send("POST", "/v1/runs", &all, &body(boundary, parts))
}

#[test]
fn uploaded_files_are_placed_as_files_in_the_request_are() {
    let daemon = Daemon::start(|_| {}).unwrap();
    let request = json!({
        "command": ["sh", "-c", "bin/show data/in.bin; cat inline.txt"],
        "files": [{"path": "inline.txt", "content": " inline"}],
    })
    .to_string();
    let binary = b"\x00\xff\r\n--not the boundary\r\n";
    let reply = send(
        &daemon,
        &[],
        &[
            ("file", Some("data/in.bin"), binary),
            ("request", None, request.as_bytes()),
            ("executable", Some("bin/show"), b"#!/bin/sh\nwc -c < $1"),
        ],
    )
    .unwrap();
    assert_eq!(reply.status, 200, "{}", reply.text());
    let run = reply.json();
    assert_eq!(
        run["stdout"]["data"],
        format!("{}\n inline", binary.len()),
        "{run}"
    );
    let code = json!({"language": "sh", "code": "./tool; cat note"}).to_string();
    let reply = send(
        &daemon,
        &[],
        &[
            ("request", None, code.as_bytes()),
            ("executable", Some("tool"), b"#!/bin/sh\necho tool"),
            ("file", Some("note"), b"note"),
        ],
    )
    .unwrap();
    assert_eq!(
        reply.json()["stdout"]["data"],
        "tool\nnote",
        "{}",
        reply.text()
    );
}

#[test]
fn no_upload_leads_outside_and_none_is_lost_silently() {
    let daemon = Daemon::start(|config| config.http.body = Bytes::new(256 << 10)).unwrap();
    let request = json!({"command": ["true"]}).to_string();
    let request: Part<'_> = ("request", None, request.as_bytes());
    for path in ["/etc/passwd", "../x", "a/../../x", "a//b", "", "."] {
        let parts = [request, ("file", Some(path), b"x".as_slice())];
        let reply = send(&daemon, &[], &parts).unwrap();
        assert_eq!(reply.error(), (400, "input.invalid".to_owned()), "{path}");
    }
    let twice = [
        request,
        ("file", Some("a"), b"1".as_slice()),
        ("file", Some("a"), b"2".as_slice()),
    ];
    let bad: [&[Part<'_>]; 5] = [
        &[("file", Some("a"), b"x")],
        &[request, request],
        &[request, ("file", None, b"x")],
        &[request, ("upload", Some("a"), b"x")],
        &twice,
    ];
    for parts in bad {
        let reply = send(&daemon, &[], parts).unwrap();
        assert_eq!(
            reply.error(),
            (400, "input.invalid".to_owned()),
            "{parts:?}"
        );
    }
    let many: Vec<String> = (0..1001).map(|number| format!("f{number}")).collect();
    let mut parts = vec![request];
    parts.extend(
        many.iter()
            .map(|name| ("file", Some(name.as_str()), b"".as_slice())),
    );
    assert_eq!(send(&daemon, &[], &parts).unwrap().status, 400);
    let large = vec![b'x'; 257 << 10];
    let reply = send(&daemon, &[], &[request, ("file", Some("a"), &large)]).unwrap();
    assert_eq!(reply.error(), (413, "http.body_too_large".to_owned()));
    let kind = ("Content-Type", "multipart/form-data; boundary=b");
    let reply = daemon
        .send("POST", "/v1/runs", &[kind], b"--b\r\ncut off")
        .unwrap();
    assert_eq!(reply.error(), (400, "input.invalid".to_owned()));
    let reply = daemon
        .send("POST", "/v1/runs/batch", &[kind], b"--b--\r\n")
        .unwrap();
    assert_eq!(reply.status, 415);
}

#[test]
fn the_same_key_and_files_are_the_same_run_whatever_stands_between_the_parts() {
    let daemon = Daemon::start(|_| {}).unwrap();
    let request = json!({"command": ["cat", "a"]}).to_string();
    let key = [("Idempotency-Key", "k")];
    let run = |boundary: &str, contents: &[u8]| {
        let parts = [
            ("request", None, request.as_bytes()),
            ("file", Some("a"), contents),
        ];
        send_with(&daemon, boundary, &key, &parts).unwrap()
    };
    let first = run("one", b"same").json();
    assert_eq!(first["stdout"]["data"], "same", "{first}");
    assert_eq!(run("two", b"same").json()["run_id"], first["run_id"]);
    let other = run("two", b"other");
    assert_eq!(other.error(), (409, "idempotency.conflict".to_owned()));
}

#[test]
fn a_run_comes_out_as_a_bundle_that_can_be_checked() {
    let daemon = Daemon::start(|config| config.runs.pool = Some(0)).unwrap();
    let body =
        json!({"command": ["sh", "-c", "echo said; echo left > file.txt"], "workspace": true});
    let run = daemon.post("/v1/runs", &body).unwrap().json();
    let id = run["run_id"].as_str().unwrap();
    let reply = daemon.get(&format!("/v1/runs/{id}/export")).unwrap();
    assert_eq!(reply.status, 200, "{}", reply.text());
    assert_eq!(reply.header("content-type"), Some("application/zip"));
    assert!(
        reply
            .header("content-disposition")
            .is_some_and(|how| how.contains(id))
    );
    let inspected = bundle::inspect_bytes(&reply.body, &InspectOptions::default()).unwrap();
    assert_eq!(inspected.runs.len(), 1);
    assert_eq!(inspected.runs[0].opening.run_id.to_string(), id);
    assert_eq!(inspected.manifest.artifact_bytes, 5);
    // Nothing of it stays behind.
    let work = daemon.dir.path().join("data/work");
    let began = std::time::Instant::now();
    while std::fs::read_dir(&work).unwrap().next().is_some() {
        let is_late = began.elapsed() > crate::support::PATIENCE;
        assert!(!is_late, "the bundle is still there");
        std::thread::sleep(crate::support::AGAIN);
    }
    let body = json!({"command": ["sleep", "60"], "wait": false});
    let run = daemon.post("/v1/runs", &body).unwrap();
    let path = run.header("location").unwrap();
    let reply = daemon.get(&format!("{path}/export")).unwrap();
    assert_eq!(reply.error(), (409, "run.goes_on".to_owned()));
    daemon.send("DELETE", path, &[], b"").unwrap();
    let missing = "/v1/runs/00000000-0000-7000-8000-000000000000/export";
    assert_eq!(daemon.get(missing).unwrap().status, 404);
    assert_eq!(run.json()["return_value"], Value::Null);
}
