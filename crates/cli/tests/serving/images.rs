//! Images in the daemon: only those that the operator lists, only those that are here, unpacked or in a container.

use cofferdam_testkit::docker::{Dockerd, IMAGE};
use cofferdam_testkit::{Need, Way, host};
use serde_json::{Value, json};

use crate::client;
use crate::daemon::Daemon;

/// Refused, and why.
#[track_caller]
fn refused(daemon: &Daemon<'_>, path: &str, request: &Value, words: &str) {
    let reply = daemon.post(path, request);
    let said = reply.json();
    assert!((400..500).contains(&reply.status), "{said:#}");
    assert!(said.to_string().contains(words), "{said:#}");
}

#[test]
fn a_request_runs_in_an_image_that_the_operator_lists_and_in_no_other() {
    let Some(docker) = Dockerd::start() else {
        return;
    };
    let host = host!(Need::Root, Need::UnprivilegedUser);
    docker.let_everybody_in();
    for way in [Way::Root, Way::User] {
        let import = ["images", "import", "--docker", IMAGE, "--name", "box:1"];
        let imported = host
            .launch(import)
            .way(way)
            .env("DOCKER_HOST", docker.endpoint())
            .finish();
        assert_eq!(imported.code(), 0, "{imported:#?}");

        let daemon = Daemon::start(&host, way, &["--image", "box:*"]);
        let look =
            "echo $FROM_IMAGE; readlink /bin/ls; touch /x 2>/dev/null || echo read-only; cat given";
        let files = json!([{"path": "given", "content": "here\n"}]);
        let run = json!({"command": ["sh", "-c", look], "image": "box:1", "files": files});
        let done = daemon.post("/v1/runs", &run);
        let record = done.json();
        assert_eq!(done.status, 200, "{record:#}");
        assert_eq!(
            record["stdout"]["data"], "yes\nbusybox\nread-only\nhere\n",
            "{record:#}"
        );
        assert_eq!(record["isolation"]["image"], "box:1", "{record:#}");
        // Code, by the interpreter that the image has.
        let handler = "handler() { echo \"\\\"$FROM_IMAGE\\\"\" > $COFFERDAM_RESULT; }";
        let code = json!({"language": "shell", "code": handler, "event": {}, "image": "box:1"});
        let answer = daemon.post("/execute", &code).json();
        assert_eq!(answer["return_value"], "yes", "{answer:#}");
        let inputs = json!([{"stdin": "1"}, {"stdin": "2"}]);
        let many = json!({"language": "shell", "code": "echo $FROM_IMAGE $(cat)", "inputs": inputs, "image": "box:1"});
        let answer = daemon.post("/v1/runs", &many).json();
        let text = answer.to_string();
        assert!(
            text.contains("yes 1") && text.contains("yes 2"),
            "{answer:#}"
        );
        // Without one, this machine's programs.
        let host_run = daemon.post(
            "/v1/runs",
            &json!({"command": ["test", "-e", "/usr/bin/env"]}),
        );
        assert_eq!(host_run.json()["exit_code"], 0);

        let with = |image: &str| json!({"command": ["true"], "image": image});
        refused(&daemon, "/v1/runs", &with("other:1"), "serve --image");
        refused(
            &daemon,
            "/v1/runs",
            &with("box:2"),
            "there is no image `box:2`",
        );
        let python = json!({"language": "python", "code": "1", "image": "box:1"});
        let missing = daemon.post("/execute", &python);
        assert!(missing.status >= 400, "{:#}", missing.json());
        daemon.end();

        let daemon = Daemon::start(&host, way, &[]);
        refused(&daemon, "/v1/runs", &with("box:1"), "serve --image");
        daemon.end();
    }
}

#[test]
fn a_daemon_that_runs_images_in_containers_fetches_none() {
    let Some(docker) = Dockerd::start() else {
        return;
    };
    let host = host!(Need::Root);
    let args = ["--image", "*", "--image-backend", "docker"];
    let env = [("DOCKER_HOST", docker.endpoint())];
    let daemon = Daemon::start_with_env(&host, Way::Root, &args, &env);
    let files = json!([{"path": "given", "content": "here\n"}]);
    let script = "cat given; echo made > made.txt; echo $FROM_IMAGE";
    let run = json!({"command": ["sh", "-c", script], "image": IMAGE, "files": files});
    let done = daemon.post("/v1/runs", &run);
    let record = done.json();
    assert_eq!(done.status, 200, "{record:#}");
    assert_eq!(record["stdout"]["data"], "here\nyes\n", "{record:#}");
    assert_eq!(record["enforced_by"]["memory"], "docker", "{record:#}");
    assert_eq!(record["isolation"]["image"], IMAGE, "{record:#}");
    assert!(record.to_string().contains("made.txt"), "{record:#}");
    // Two at once, each in its own.
    std::thread::scope(|scope| {
        for number in 0..2 {
            let address = daemon.address;
            scope.spawn(move || {
                let run = json!({"command": ["echo", number.to_string()], "image": IMAGE});
                let reply = client::ask(address, "POST", "/v1/runs", &[], Some(&run));
                let record = reply.unwrap().json();
                assert_eq!(
                    record["stdout"]["data"],
                    format!("{number}\n"),
                    "{record:#}"
                );
            });
        }
    });
    let absent = daemon.post(
        "/v1/runs",
        &json!({"command": ["true"], "image": "absent:1"}),
    );
    let said = absent.json();
    assert!(said.to_string().contains("local images only"), "{said:#}");
    let code = json!({"language": "shell", "code": "echo 1", "image": IMAGE});
    refused(&daemon, "/execute", &code, "no channel for an answer");
    daemon.end();
    docker.assert_clean();
}
