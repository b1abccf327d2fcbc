//! Files in and files out, and nothing left on the daemon's disk.

use serde_json::json;

use crate::support::Daemon;

#[test]
fn files_go_in_and_what_the_program_leaves_comes_out() {
    let daemon = Daemon::start(|config| config.runs.pool = Some(0)).unwrap();
    let run = daemon
        .post(
            "/v1/runs",
            &json!({
                "command": ["sh", "-c", "./run.sh > out/result.txt; echo plain > note.txt; printf 'x\\001' > b.bin"],
                "files": [
                    {"path": "run.sh", "content": "#!/bin/sh\ncat data/in.bin\n", "executable": true},
                    {"path": "data/in.bin", "content_base64": "aGk="},
                    {"path": "out/.keep", "content": ""},
                ],
            }),
        )
        .unwrap()
        .json();
    assert_eq!(run["status"], "success", "{run}");
    let base = format!("/v1/runs/{}/artifacts", run["run_id"].as_str().unwrap());
    let listed = daemon.get(&base).unwrap().json();
    let mut paths: Vec<_> = listed["artifacts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|artifact| artifact["path"].as_str().unwrap())
        .collect();
    paths.sort_unstable();
    assert_eq!(paths, ["b.bin", "note.txt", "out/result.txt"]);
    assert_eq!(run["artifacts"], listed["artifacts"]);
    let file = daemon.get(&format!("{base}/out/result.txt")).unwrap();
    assert_eq!((file.status, file.body.as_slice()), (200, b"hi".as_slice()));
    assert_eq!(file.header("content-disposition"), Some("attachment"));
    assert_eq!(file.header("content-length"), Some("2"));
    let missing = daemon.get(&format!("{base}/../../../etc/passwd")).unwrap();
    assert_eq!(missing.status, 404);
    // It is answered before its workspace is gone.
    let work = daemon.dir.path().join("data/work");
    let began = std::time::Instant::now();
    while std::fs::read_dir(&work).unwrap().count() > 0 {
        assert!(began.elapsed() < crate::support::PATIENCE);
        std::thread::sleep(crate::support::AGAIN);
    }
}

#[test]
fn hostile_names_are_refused_before_anything_is_made() {
    let daemon = Daemon::start(|config| config.runs.pool = Some(0)).unwrap();
    for path in ["../x", "/etc/cron.d/x", "a/../../x", ""] {
        let body = json!({"command": ["true"], "files": [{"path": path, "content": ""}]});
        let reply = daemon.post("/v1/runs", &body).unwrap();
        assert_eq!(reply.error(), (400, "input.invalid".to_owned()), "{path}");
    }
    let clash = json!({"command": ["true"], "files": [{"path": "a", "content": ""}, {"path": "a/b", "content": ""}]});
    let reply = daemon.post("/v1/runs", &clash).unwrap();
    assert_eq!(reply.error(), (400, "input.invalid".to_owned()));
    let work = daemon.dir.path().join("data/work");
    assert!(std::fs::read_dir(work).map_or(0, Iterator::count) == 0);
}
