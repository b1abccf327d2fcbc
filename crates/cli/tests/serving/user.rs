//! The daemon as root and as an ordinary user: what it can do differs, what it promises does not.

use cofferdam_testkit::{Need, Way, host};
use serde_json::json;

use crate::daemon::Daemon;

#[test]
fn the_daemon_holds_its_promises_for_root_and_for_an_ordinary_user() {
    let host = host!(Need::Python);
    for way in Way::all() {
        let daemon = Daemon::start(&host, way, &["--grace", "1s"]);
        let answer = daemon.post(
            "/execute",
            &json!({
                "language": "python",
                "code": "import os\ndef handler(event):\n    return [sum(event['xs']), os.getuid()]",
                "event": {"xs": [1, 2, 3]},
            }),
        );
        let answer = answer.json();
        assert_eq!(answer["return_value"], json!([6, 1000]), "{way:?} {answer}");

        for (cause, command, limits) in [
            ("wall_time", "sleep 1000", json!({"wall_time_ms": 300})),
            (
                "cpu_time",
                "while :; do :; done",
                json!({"cpu_time_ms": 300}),
            ),
            (
                "memory",
                "python3 -c 'x = bytearray(256 << 20); input()' < /dev/zero; sleep 60",
                json!({"memory_bytes": 64 << 20}),
            ),
            ("output", "yes", json!({"output_bytes": 64 << 10})),
        ] {
            let work = json!({"command": ["sh", "-c", command], "limits": limits});
            let run = daemon.post("/v1/runs", &work).json();
            let ending = (&run["ending"]["kind"], &run["ending"]["cause"]);
            assert_eq!(ending, (&json!("stopped"), &json!(cause)), "{way:?} {run}");
        }

        let work = json!({"command": ["sh", "-c", "cat given > made"], "files": [{"path": "given", "content": "x"}]});
        let run = daemon.post("/v1/runs", &work).json();
        let id = run["run_id"].as_str().unwrap();
        let made = daemon.get(&format!("/v1/runs/{id}/artifacts/made"));
        assert_eq!((made.status, &*made.body), (200, &b"x"[..]), "{way:?}");

        // What goes on when it is told to end goes with it.
        let long = json!({"command": ["sleep", "1000"], "wait": false});
        assert_eq!(daemon.post("/v1/runs", &long).status, 202);
        daemon.until("/health", |health| health["active_executions"] == 1);
        daemon.end();
        let workspaces = host.history(way).join("work");
        let left = std::fs::read_dir(workspaces).map_or(0, Iterator::count);
        assert_eq!(left, 0, "{way:?}");
    }
}
