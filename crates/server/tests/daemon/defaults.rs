//! Limits that nobody named: the daemon's own defaults never stand in the way of its own bounds.

use std::time::Duration;

use cofferdam_contract::units::Bytes;
use serde_json::json;

use crate::support::Daemon;

#[test]
fn a_default_above_what_is_allowed_is_lowered_and_a_wish_above_it_is_refused() {
    let daemon = Daemon::start(|config| {
        config.runs.longest = Duration::from_secs(2);
        config.runs.largest_output = Bytes::new(1000);
    })
    .unwrap();
    let command = json!({"command": ["sh", "-c", "yes | head -c 2000"]});
    let run = daemon.post("/v1/runs", &command).unwrap().json();
    assert_eq!(run["ending"]["cause"], "output", "{run}");
    let code = json!({"language": "shell", "code": "exit 3"});
    let run = daemon.post("/v1/runs", &code).unwrap().json();
    assert_eq!(run["exit_code"], 3, "{run}");
    let code = json!({"language": "shell", "code": "sleep 60", "limits": {}});
    let run = daemon.post("/v1/runs", &code).unwrap().json();
    assert_eq!(run["ending"]["cause"], "wall_time", "{run}");

    let wish = json!({"command": ["true"], "limits": {"wall_time_ms": 3000}});
    let reply = daemon.post("/v1/runs", &wish).unwrap();
    assert_eq!(reply.error(), (400, "input.invalid".to_owned()));
}
