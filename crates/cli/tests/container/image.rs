//! The image of `deploy/container`, built by a real daemon from its own Dockerfile: the daemon in it is an ordinary user, serves, and runs programs.
//! Only the base differs, which no test can fetch: busybox takes the place of Debian.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use cofferdam_testkit::docker::{Dockerd, pack, put_busybox, skip, which};
use serde_json::{Value, json};

use crate::docker::{NO_SECCOMP, succeed};

const BASE: &str = "busybox-in-usr";
const BUILT: &str = "cofferdam-built";
const NAME: &str = "daemon";
const ADDRESS: &str = "127.0.0.1:8080";

#[test]
fn container_image_is_built_and_serves_as_an_ordinary_user() {
    if which("strip").is_none() {
        let _: Option<()> = skip("strip");
        return;
    }
    let Some(docker) = Dockerd::start() else {
        return;
    };
    build(&docker);
    let mut start = docker.client();
    start.args(["run", "--detach", "--name", NAME, "--network", "none"]);
    start.args(["--cap-drop", "ALL", "--security-opt", NO_SECCOMP]);
    start.args(["--tmpfs", "/tmp:rw,mode=1777"]);
    succeed(start.arg(BUILT));
    let until = Instant::now() + Duration::from_secs(120);
    while ask(&docker, "/health", None)["status"] != "healthy" {
        assert!(Instant::now() < until, "{}", log(&docker));
        std::thread::sleep(Duration::from_millis(20));
    }

    let id = succeed(docker.client().args(["exec", NAME, "id", "-u"]));
    assert_eq!(id, "1000\n");
    let work = json!({"command": ["sh", "-c", "id -u; echo works"]});
    let run = ask(&docker, "/v1/runs", Some(&work));
    assert_eq!(run["stdout"]["data"], "1000\nworks\n", "{run}");
    assert_eq!(run["ending"]["kind"], "exited", "{run}");

    // STOPSIGNAL and the end of a daemon are one thing.
    succeed(docker.client().args(["stop", "--time", "60", NAME]));
    let code = succeed(docker.client().args(["wait", NAME]));
    assert_eq!(code, "143\n", "{}", log(&docker));
    succeed(docker.client().args(["rm", "--volumes", NAME]));
}

/// From a context that holds nothing but the binary.
fn build(docker: &Dockerd) {
    let (root, context) = (docker.dir().join("base"), docker.dir().join("context"));
    put_busybox(&root.join("usr/bin"));
    std::os::unix::fs::symlink("usr/bin", root.join("bin")).unwrap();
    succeed(docker.client().arg("import").arg(pack(&root)).arg(BASE));
    std::fs::create_dir(&context).unwrap();
    let mut strip = Command::new("strip");
    strip.arg("-o").arg(context.join("cofferdam"));
    succeed(strip.arg(env!("CARGO_BIN_EXE_cofferdam")));
    let deploy = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy");
    let mut build = docker.client();
    build
        .env("DOCKER_BUILDKIT", "0")
        .args(["build", "--network", "none", "--tag", BUILT])
        .args(["--build-arg", &format!("BASE={BASE}")])
        .args(["--build-arg", "PACKAGES="])
        .args(["--build-arg", "BINARY=cofferdam", "--file"])
        .arg(deploy.join("container/Dockerfile"));
    succeed(build.arg(context));
}

/// By busybox's own client; null while nobody listens.
fn ask(docker: &Dockerd, path: &str, body: Option<&Value>) -> Value {
    let mut client = docker.client();
    client.args(["exec", NAME, "wget", "-q", "-O", "-"]);
    if let Some(body) = body {
        client.args(["--header", "Content-Type: application/json"]);
        client.args(["--post-data", &body.to_string()]);
    }
    client.arg(format!("http://{ADDRESS}{path}"));
    let done = client.stdin(Stdio::null()).output().unwrap();
    serde_json::from_slice(&done.stdout).unwrap_or_default()
}

fn log(docker: &Dockerd) -> String {
    let done = docker.client().args(["logs", NAME]).output().unwrap();
    String::from_utf8_lossy(&done.stderr).into_owned()
}
