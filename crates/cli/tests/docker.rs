//! The docker backend from the command line, against a real daemon: flags, configuration, payloads, a person's terminal, and a kill at any moment.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "the functions beside a test are as much test as it is"
)]

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use cofferdam_testkit::docker::{Dockerd, IMAGE, pack, put_busybox, skip, succeed, until};
use cofferdam_testkit::registry::Registry;
use cofferdam_testkit::shape;
use serde_json::{Value, json};

/// The binary with a place of its own for everything.
struct Place {
    dir: tempfile::TempDir,
    endpoint: String,
}

impl Place {
    fn new(endpoint: String) -> Self {
        Self {
            dir: tempfile::tempdir().unwrap(),
            endpoint,
        }
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cofferdam"));
        command.env_clear().env("PATH", "/usr/bin:/bin");
        command.env("HOME", self.dir.path());
        command.env("DOCKER_HOST", &self.endpoint);
        command.args(args).stdin(Stdio::null());
        command
    }

    fn run(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    fn json(&self, args: &[&str]) -> Value {
        let output = self.run(args);
        let stderr = String::from_utf8_lossy(&output.stderr);
        shape::read(args, &output.stdout).unwrap_or_else(|| panic!("{stderr}"))
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// One line with a stable code, and nothing ran.
#[track_caller]
fn refused(output: &Output, code: &str, words: &str) {
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(125), "{stderr}");
    assert!(stderr.contains(words), "{stderr}");
    assert!(
        stderr.trim_end().ends_with(&format!("[{code}]")),
        "{stderr}"
    );
}

const DOCKER: [&str; 5] = ["run", "--backend", "docker", "--image", IMAGE];

#[test]
fn a_command_runs_in_a_container_with_its_own_exit_code_and_history() {
    let Some(daemon) = Dockerd::start() else {
        return;
    };
    let place = Place::new(daemon.endpoint());
    let output = place.run(
        &[
            &DOCKER[..],
            &["--", "sh", "-c", "echo out; echo err >&2; exit 3"],
        ]
        .concat(),
    );
    assert_eq!(output.status.code(), Some(3));
    assert_eq!(
        (&*text(&output.stdout), &*text(&output.stderr)),
        ("out\n", "err\n")
    );

    let mut piped = place.command(&[&DOCKER[..], &["--json", "--", "wc", "-c"]].concat());
    let mut child = piped
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    std::io::Write::write_all(&mut stdin, &[b'x'; 100_000]).unwrap();
    drop(stdin);
    let record: Value = serde_json::from_slice(&child.wait_with_output().unwrap().stdout).unwrap();
    assert_eq!(record["backend"], "docker");
    assert_eq!(record["stdout"]["data"], "100000\n");

    let late = place.run(&[&DOCKER[..], &["--timeout", "300ms", "--", "sleep", "1000"]].concat());
    assert_eq!(late.status.code(), Some(124), "{}", text(&late.stderr));
    assert!(text(&late.stderr).contains("raise it with --timeout"));
    let absent = place.run(&[&DOCKER[..], &["--", "no-such-program"]].concat());
    assert_eq!(absent.status.code(), Some(127), "{}", text(&absent.stderr));

    let shown = place.json(&["runs", "show", "latest~3", "--json"]);
    assert_eq!(shown["backend"], "docker", "{shown:#}");
    assert_eq!(shown["exit_code"], 3, "{shown:#}");
    daemon.assert_clean();
}

#[test]
fn what_containers_are_told_comes_from_files_variables_and_flags() {
    let Some(daemon) = Dockerd::start() else {
        return;
    };
    let place = Place::new("ssh://nowhere".to_owned());
    // A variable that only other programs understand is in nobody's way but of those who need it.
    let native = place.run(&["run", "--no-history", "--", "true"]);
    assert_eq!(native.status.code(), Some(0), "{}", text(&native.stderr));
    let output = place.run(&[&DOCKER[..], &["--", "true"]].concat());
    refused(&output, "config.invalid", "DOCKER_HOST");

    let config = place.dir.path().join("config.yml");
    let endpoint = daemon.endpoint();
    let file = format!(
        "sandbox:\n  default_runtime: docker\n  docker:\n    image: {IMAGE}\n    memory_limit: 64m\n    pull: never\n"
    );
    fs::write(&config, file).unwrap();
    let place = Place::new(endpoint);
    let config = config.to_str().unwrap();
    let record = place.json(&["--config", config, "run", "--json", "--", "true"]);
    assert_eq!(record["isolation"]["image"], IMAGE, "{record:#}");
    let shown = place.json(&["--config", config, "config", "show", "--json"]);
    let rows = shown["settings"].as_array().unwrap();
    let row = |name: &str| rows.iter().find(|row| row["setting"] == name).unwrap();
    assert_eq!(row("sandbox.docker.image")["value"], IMAGE);
    assert_eq!(row("sandbox.limits.memory")["value"], "64 MiB");
    assert_eq!(row("sandbox.docker.host")["origin"]["name"], "DOCKER_HOST");
    let output = place.run(&["--config", config, "run", "--image", "absent", "--", "true"]);
    refused(&output, "backend.unavailable", "local images only");
    let code = ["--language", "python", "--code", "print(1)"];
    let output = place.run(&[&["--config", config, "run"][..], &code].concat());
    refused(&output, "input.invalid", "runs in the native backend");

    refused(
        &place.run(&["run", "--image", IMAGE, "--", "true"]),
        "backend.unavailable",
        "run it in a container with --backend docker",
    );
    refused(
        &place.run(&["run", "--backend", "docker", "--", "true"]),
        "input.invalid",
        "--image",
    );
    let root = [&DOCKER[..], &["--root", "/", "--", "true"]].concat();
    refused(
        &place.run(&root),
        "input.invalid",
        "has an image for its root",
    );
    let runtime = [&DOCKER[..], &["--runtime", "no-such", "--", "true"]].concat();
    refused(&place.run(&runtime), "backend.unavailable", "no-such");
    daemon.assert_clean();
}

#[test]
fn a_payload_is_answered_from_a_container() {
    let Some(daemon) = Dockerd::start() else {
        return;
    };
    let place = Place::new(daemon.endpoint());
    let draft = json!({
        "contract_id": "sums",
        "scope": "add two numbers",
        "task": {"kind": "command", "argv": ["sh", "-c", "echo \"{\\\"sum\\\": $((2+3))}\""]},
        "expected_output_format": {"type": "object", "properties": {"sum": {"type": "integer"}}, "required": ["sum"]},
        "max_runtime_seconds": 30,
    });
    let at = |name: &str| place.dir.path().join(name).display().to_string();
    fs::write(at("draft"), draft.to_string()).unwrap();
    fs::write(at("payload"), place.run(&["seal", &at("draft")]).stdout).unwrap();
    let flags = ["--backend", "docker", "--image", IMAGE];
    let output = place.run(&[&["execute", &at("payload")], &flags[..]].concat());
    let envelope: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(envelope["status"], "SUCCESS", "{envelope:#}");
    assert_eq!(envelope["output"], json!({"sum": 5}));
    fs::write(at("envelope"), &output.stdout).unwrap();
    let (payload, envelope) = (at("payload"), at("envelope"));
    let again = [&["verify", "--rerun", &payload, &envelope], &flags[..]].concat();
    let output = place.run(&again);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stdout));
    daemon.assert_clean();
}

#[test]
fn nothing_is_left_of_a_run_that_was_killed_at_any_moment() {
    let Some(daemon) = Dockerd::start() else {
        return;
    };
    let place = Place::new(daemon.endpoint());
    let dir = place.dir.path().join("job");
    fs::create_dir(&dir).unwrap();
    fs::write(dir.join("file"), "x").unwrap();
    let workspace = format!("{}:rw", dir.display());
    let command = [
        &DOCKER[..],
        &["--workspace", &workspace, "--", "sleep", "1000"],
    ]
    .concat();
    // While it connects, while it makes the container, while that starts, and while it runs.
    for delay in [0, 5, 20, 50, 100, 200, 400, 1500] {
        let mut run = place.command(&command).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(delay));
        run.kill().unwrap();
        run.wait().unwrap();
        until("the container and its volume are gone", || {
            daemon.left().is_empty()
        });
    }
    // And once more when there surely was something.
    let mut run = place.command(&command).spawn().unwrap();
    until("it runs", || {
        daemon.docker(&["ps", "--quiet"]).lines().count() == 1
    });
    run.kill().unwrap();
    run.wait().unwrap();
    until("the container and its volume are gone", || {
        daemon.left().is_empty()
    });
    let listed = place.json(&["runs", "list", "--json"]);
    assert!(listed.to_string().contains("interrupted"), "{listed:#}");
}

#[test]
fn a_pull_shows_a_bar_on_a_terminal_and_only_there() {
    let Some(registry) = Registry::start() else {
        return;
    };
    let Some(daemon) = Dockerd::start() else {
        return;
    };
    let place = Place::new(daemon.endpoint());
    let name = format!("{}/large:1", registry.address());
    // Random, so that it takes a while to come.
    let archive = place.dir.path().join("large.tar");
    let root = place.dir.path().join("root");
    fs::create_dir(&root).unwrap();
    let mut random = fs::File::open("/dev/urandom").unwrap();
    let mut noise = fs::File::create(root.join("noise")).unwrap();
    std::io::copy(&mut std::io::Read::take(&mut random, 64 << 20), &mut noise).unwrap();
    let mut tar = Command::new("tar");
    tar.arg("-C").arg(&root).arg("-cf").arg(&archive).arg(".");
    assert!(tar.status().unwrap().success());
    daemon.docker(&["import", archive.to_str().unwrap(), &name]);
    daemon.docker(&["push", &name]);
    daemon.docker(&["rmi", &name]);

    let binary = env!("CARGO_BIN_EXE_cofferdam");
    let line = format!("{binary} images pull {name}");
    let mut terminal = place.command(&[]);
    terminal = {
        let mut script = Command::new("script");
        script
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("TERM", "xterm");
        for (name, value) in terminal.get_envs() {
            script.env(name, value.unwrap_or_default());
        }
        script.args(["--quiet", "--return", "--command", &line, "/dev/null"]);
        script.stdin(Stdio::null());
        script
    };
    let seen = terminal.output().unwrap();
    let seen = text(&seen.stdout);
    assert!(seen.contains("pulling ") && seen.contains("[#"), "{seen}");
    assert!(seen.contains("@sha256:"), "{seen}");

    daemon.docker(&["rmi", &name]);
    let quiet = place.run(&["images", "pull", &name, "--json"]);
    assert_eq!(text(&quiet.stderr), "");
    let pulled: Value = serde_json::from_slice(&quiet.stdout).unwrap();
    assert_eq!(pulled["names"], json!([name]));
    let listed = place.json(&["images", "list", "--json"]);
    assert_eq!(listed["images"].as_array().unwrap().len(), 2, "{listed:#}");
    let table = text(&place.run(&["images", "list"]).stdout);
    assert!(
        table.contains(IMAGE) && table.contains("PINNED AS"),
        "{table}"
    );
    let pruned = place.json(&["images", "prune", "--unused", "--json"]);
    assert!(pruned["freed_bytes"].as_u64().unwrap() > 0, "{pruned:#}");
}

#[test]
fn the_doctor_says_whether_a_daemon_answers() {
    let Some(daemon) = Dockerd::start() else {
        return;
    };
    let found = Place::new(daemon.endpoint()).json(&["doctor", "--json"]);
    let docker = &found["docker"];
    assert_eq!(docker["mark"], "ok", "{docker:#}");
    assert!(
        docker["found"].as_str().unwrap().contains("runc"),
        "{docker:#}"
    );
    let place = Place::new("unix:///no/such/socket".to_owned());
    let found = place.json(&["doctor", "--json"]);
    assert_eq!(found["docker"]["mark"], "missing");
    let output = place.run(&["doctor"]);
    assert!(text(&output.stdout).contains("OTHER BACKENDS"));
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn an_ordinary_user_needs_the_socket_and_nothing_else() {
    let Some(daemon) = Dockerd::start() else {
        return;
    };
    let place = Place::new(daemon.endpoint());
    let open = |path: &std::path::Path, mode| {
        let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
        fs::set_permissions(path, mode).unwrap();
    };
    open(daemon.dir(), 0o755);
    open(&daemon.socket(), 0o600);
    let job = place.dir.path().join("job");
    fs::create_dir(&job).unwrap();
    for dir in [place.dir.path(), &job] {
        std::os::unix::fs::chown(dir, Some(1000), Some(1000)).unwrap();
    }
    let as_user = |args: &[&str]| {
        let own = place.command(args);
        let mut command = Command::new("setpriv");
        command.args(["--reuid", "1000", "--regid", "1000", "--clear-groups", "--"]);
        command
            .arg(own.get_program())
            .args(own.get_args())
            .env_clear();
        command.envs(
            own.get_envs()
                .filter_map(|(name, value)| Some((name, value?))),
        );
        command.stdin(Stdio::null()).output().unwrap()
    };
    let hello = [&DOCKER[..], &["--", "echo", "hello"]].concat();
    refused(
        &as_user(&hello),
        "backend.unavailable",
        "you may not use the daemon",
    );
    open(&daemon.socket(), 0o666);
    let output = as_user(&hello);
    assert_eq!(text(&output.stdout), "hello\n", "{}", text(&output.stderr));

    // Nobody but root can look at how much a volume holds.
    let workspace = format!("{}:rw", job.display());
    let write = ["--workspace", &workspace, "--", "sh", "-c", "echo x >file"];
    let output = as_user(&[&DOCKER[..], &write].concat());
    refused(&output, "limit.unenforceable", "--waive disk");
    let output = as_user(&[&DOCKER[..], &["--waive", "disk"], &write].concat());
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(fs::read_to_string(job.join("file")).unwrap(), "x\n");
    daemon.assert_clean();
}

/// An image with the host's Python, pytest and what makes environments.
const PYTHON_IMAGE: &str = "cofferdam-python";
const PACK_PYTHON: &str = r#"
cd /
libs=$(ldd /usr/bin/python3 | grep -o '/[^ ]*')
for name in pytest _pytest iniconfig packaging pluggy attr py py.py; do
    packages="$packages usr/lib/python3/dist-packages/$name"
done
tar -chf - --exclude 'config-*' --exclude test --exclude idlelib --exclude tkinter --exclude lib2to3 --exclude pydoc_data $(echo $libs | sed 's# /# #g; s#^/##') \
    usr/bin/python3 usr/lib/python3.* usr/share/python-wheels $packages | tar -xf - -C "$1"
"#;

fn python_image(daemon: &Dockerd) {
    let root = daemon.dir().join("python-image");
    put_busybox(&root.join("bin"));
    fs::create_dir(root.join("tmp")).unwrap();
    succeed(
        Command::new("sh")
            .args(["-ec", PACK_PYTHON, "sh"])
            .arg(&root),
    );
    succeed(
        daemon
            .client()
            .arg("import")
            .arg(pack(&root))
            .arg(PYTHON_IMAGE),
    );
}

impl Place {
    /// A verb on a project, in a container of the image.
    fn project(&self, verb: &str, dir: &Path, more: &[&str]) -> (Option<i32>, Value) {
        let dir = dir.to_str().unwrap();
        let mut args = vec![verb, dir, "--backend", "docker", "--image", PYTHON_IMAGE];
        args.extend(["--json"].iter().chain(more));
        let output = self.run(&args);
        let told = serde_json::from_slice(&output.stdout);
        let told = told.unwrap_or_else(|_| panic!("{verb}: {}", text(&output.stderr)));
        (output.status.code(), told)
    }
}

#[test]
fn a_project_is_restored_built_and_tested_with_the_tools_of_an_image() {
    let has = |path: &str| Path::new(path).exists();
    if !has("/usr/lib/python3/dist-packages/pytest") || !has("/usr/share/python-wheels") {
        skip::<()>("python3-pytest and python3-venv");
        return;
    }
    let Some(daemon) = Dockerd::start() else {
        return;
    };
    python_image(&daemon);
    let place = Place::new(daemon.endpoint());
    let dir = place.dir.path().join("job");
    fs::create_dir_all(&dir).unwrap();
    fs::write(dir.join("pytest.ini"), "[pytest]\n").unwrap();
    let tests = "import os, socket, pytest\ndef test_ok(): open('made', 'w').write('x')\ndef test_bad(): assert 1 == 2\n@pytest.mark.skip(reason='later')\ndef test_sk(): pass\ndef test_alone():\n    assert [name for _, name in socket.if_nameindex()] == ['lo']\n    assert os.getuid() == 1000\n    with pytest.raises(OSError): open('/cache/x', 'w')\n";
    fs::write(dir.join("test_a.py"), tests).unwrap();

    let (code, told) = place.project("test", &dir, &[]);
    let counts = &told["counts"];
    assert_eq!(
        (
            code,
            &counts["total"],
            &counts["passed"],
            &counts["failed"],
            &counts["skipped"]
        ),
        (Some(1), &json!(4), &json!(2), &json!(1), &json!(1)),
        "{told:#}"
    );
    let cases = told["projects"][0]["steps"][0]["tests"]["cases"]
        .as_array()
        .unwrap();
    let bad = cases
        .iter()
        .find(|case| case["status"] == "failed")
        .unwrap();
    assert_eq!(
        (&bad["file"], &bad["line"]),
        (&json!("test_a.py"), &json!(3))
    );
    assert_eq!(fs::read_to_string(dir.join("made")).unwrap(), "x");
    let shown = place.json(&["runs", "show", "latest", "--json"]);
    assert_eq!(
        (&shown["backend"], &shown["kind"]),
        (&json!("docker"), &json!("test")),
        "{shown:#}"
    );
    assert_eq!(shown["isolation"]["network"], "none", "{shown:#}");
    assert_eq!(shown["isolation"]["image"], PYTHON_IMAGE, "{shown:#}");

    // A limit ends it, and what was told before is there; nothing of it comes into the project with --cow.
    fs::remove_file(dir.join("made")).unwrap();
    fs::write(
        dir.join("test_a.py"),
        "import time\ndef test_ok(): open('made', 'w')\ndef test_hangs(): time.sleep(600)\n",
    )
    .unwrap();
    let (code, told) = place.project("test", &dir, &["--timeout", "20s", "--cow"]);
    assert_eq!(
        (code, &told["counts"]["passed"]),
        (Some(124), &json!(1)),
        "{told:#}"
    );
    assert!(!dir.join("made").exists());

    fs::write(dir.join("test_a.py"), "def broken(:\n").unwrap();
    for verb in ["build", "lint"] {
        let (code, told) = place.project(verb, &dir, &[]);
        let found = &told["projects"][0]["steps"][0]["diagnostics"][0];
        assert_eq!(
            (code, &found["file"], &found["line"], &found["code"]),
            (
                Some(1),
                &json!("test_a.py"),
                &json!(1),
                &json!("SyntaxError")
            ),
            "{told:#}"
        );
    }
    let (code, told) = place.project("format", &dir, &[]);
    assert_eq!(
        (code, &told["verdict"]),
        (Some(0), &json!("nothing")),
        "{told:#}"
    );
    what_it_depends_on_is_installed_from_a_cache(&place);
    daemon.assert_clean();
}

fn what_it_depends_on_is_installed_from_a_cache(place: &Place) {
    let dir = place.dir.path().join("needy");
    fs::create_dir_all(&dir).unwrap();
    fs::write(dir.join("requirements.txt"), "tiny==1.0\n").unwrap();
    let tests = "import unittest, tiny\nclass A(unittest.TestCase):\n    def test_it(self): self.assertTrue(tiny.__file__.startswith('/work/.venv/'))\n";
    fs::write(dir.join("test_a.py"), tests).unwrap();
    let cache = place.dir.path().join("cache");
    let at = cache.to_str().unwrap();
    // As `restore --backend host` leaves it there.
    let wheels = cache.join("pip/wheels");
    fs::create_dir_all(&wheels).unwrap();
    let script = "import sys, zipfile\nwheel = zipfile.ZipFile(sys.argv[1], 'w')\nwheel.writestr('tiny.py', '')\nwheel.writestr('tiny-1.0.dist-info/METADATA', 'Metadata-Version: 2.1\\nName: tiny\\nVersion: 1.0\\n')\nwheel.writestr('tiny-1.0.dist-info/WHEEL', 'Wheel-Version: 1.0\\nGenerator: x\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n')\nwheel.writestr('tiny-1.0.dist-info/RECORD', 'tiny.py,,\\ntiny-1.0.dist-info/METADATA,,\\ntiny-1.0.dist-info/WHEEL,,\\ntiny-1.0.dist-info/RECORD,,\\n')\n";
    succeed(
        Command::new("python3")
            .args(["-c", script])
            .arg(wheels.join("tiny-1.0-py3-none-any.whl")),
    );
    let (code, told) = place.project("restore", &dir, &["--cache-dir", at]);
    assert_eq!(code, Some(0), "{told:#}");
    let (code, told) = place.project("test", &dir, &["--cache-dir", at]);
    assert_eq!(
        (code, &told["counts"]["passed"]),
        (Some(0), &json!(1)),
        "{told:#}"
    );
}

#[test]
fn directories_that_are_shown_are_copied_in_and_back_where_they_are_writable() {
    let Some(daemon) = Dockerd::start() else {
        return;
    };
    let place = Place::new(daemon.endpoint());
    let (read, write) = (
        place.dir.path().join("read"),
        place.dir.path().join("write"),
    );
    for dir in [&read, &write] {
        fs::create_dir(dir).unwrap();
        fs::write(dir.join("old"), "old").unwrap();
    }
    let (ro, rw) = (
        format!("{}:/opt/read", read.display()),
        format!("{}:/opt/deep/write:rw", write.display()),
    );
    let script = "cat /opt/read/old; echo x > /opt/read/new; rm -f /opt/deep/write/old; echo y > /opt/deep/write/new";
    let args = ["--mount", &ro, "--mount", &rw, "--", "sh", "-c", script];
    let output = place.run(&[&DOCKER[..], &args].concat());
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(text(&output.stdout), "old");
    assert!(
        text(&output.stderr).contains("denied"),
        "{}",
        text(&output.stderr)
    );
    assert!(!read.join("new").exists() && read.join("old").exists());
    assert!(!write.join("old").exists());
    assert_eq!(fs::read_to_string(write.join("new")).unwrap(), "y\n");
    // One limit for each place that can be written to.
    let script =
        "for n in 1 2 3 4 5; do head -c 4m /dev/zero > /opt/deep/write/big$n; done; sleep 100";
    let args = ["--disk", "8m", "--mount", &rw, "--", "sh", "-c", script];
    let output = place.run(&[&DOCKER[..], &args].concat());
    assert_eq!(output.status.code(), Some(153), "{}", text(&output.stderr));
    let file = format!("{}:/opt/file", read.join("old").display());
    let output = place.run(&[&DOCKER[..], &["--mount", &file, "--", "true"]].concat());
    assert_eq!(output.status.code(), Some(125), "{}", text(&output.stderr));
    assert!(
        text(&output.stderr).contains("as a directory"),
        "{}",
        text(&output.stderr)
    );
    daemon.assert_clean();
}
