//! Images from the command line: pulled without a daemon from a real registry, imported, built by a real daemon, and run natively and in a container.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "the functions beside a test are as much test as it is"
)]

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use cofferdam_testkit::docker::{Dockerd, IMAGE};
use cofferdam_testkit::registry::Registry;
use cofferdam_testkit::shape;
use serde_json::{Value, json};

/// The binary with a place of its own for everything, as root or as an ordinary user.
struct Place {
    dir: tempfile::TempDir,
    endpoint: String,
    user: User,
}

#[derive(Clone, Copy, PartialEq)]
enum User {
    Root,
    Ordinary,
}

/// Good for Docker's own clients, and not for ours.
const OTHER_DAEMON: &str = "ssh://somewhere";
const NO_DAEMON: &str = "unix:///no/such/socket";

impl Place {
    fn new(endpoint: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        Self {
            dir,
            endpoint: endpoint.to_owned(),
            user: User::Root,
        }
    }

    fn ordinary() -> Self {
        let place = Self::new(NO_DAEMON);
        std::os::unix::fs::chown(place.dir.path(), Some(1000), Some(1000)).unwrap();
        Self {
            user: User::Ordinary,
            ..place
        }
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = match self.user {
            User::Root => Command::new(self.binary()),
            User::Ordinary => {
                let mut command = Command::new("setpriv");
                command.args(["--reuid", "1000", "--regid", "1000", "--clear-groups", "--"]);
                command.arg(self.binary());
                command
            }
        };
        command.env_clear().env("PATH", "/usr/bin:/bin");
        command.env("HOME", self.dir.path());
        command.env("DOCKER_HOST", &self.endpoint);
        command.args(args).stdin(Stdio::null());
        command
    }

    /// Somewhere that an ordinary user can get to.
    fn binary(&self) -> PathBuf {
        let built = PathBuf::from(env!("CARGO_BIN_EXE_cofferdam"));
        if self.user == User::Root {
            return built;
        }
        let copy = self.dir.path().join("cofferdam");
        if !copy.exists() {
            fs::copy(&built, &copy).unwrap();
        }
        copy
    }

    fn run(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    #[track_caller]
    fn succeed(&self, args: &[&str]) -> String {
        let output = self.run(args);
        let stderr = text(&output.stderr);
        assert!(output.status.success(), "{args:?}: {stderr}");
        text(&output.stdout)
    }

    #[track_caller]
    fn json(&self, args: &[&str]) -> Value {
        let output = self.run(args);
        let stderr = text(&output.stderr);
        shape::read(args, &output.stdout).unwrap_or_else(|| panic!("{args:?}: {stderr}"))
    }

    fn at(&self, name: &str) -> String {
        self.dir.path().join(name).display().to_string()
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

/// What the daemon has, with more to say about how it starts, in a file as `docker save` writes it.
fn save(daemon: &Dockerd, place: &Place, name: &str) -> String {
    let root = place.dir.path().join("root.tar");
    let container = daemon.docker(&["create", IMAGE, "true"]);
    let container = container.trim();
    let exported = root.to_str().unwrap();
    daemon.docker(&["export", "--output", exported, container]);
    daemon.docker(&["rm", "--volumes", container]);
    daemon.docker(&[
        "import",
        "--change",
        "ENV FROM_IMAGE=yes PATH=/bin HOME=/root",
        "--change",
        "WORKDIR /srv/app",
        "--change",
        "USER 65534",
        "--change",
        "ENTRYPOINT [\"echo\",\"entered\"]",
        "--change",
        "CMD [\"by\",\"default\"]",
        exported,
        name,
    ]);
    // An import makes no directory for WORKDIR; a build step does.
    let context = place.dir.path().join("context");
    fs::create_dir_all(&context).unwrap();
    fs::write(
        context.join("Dockerfile"),
        format!("FROM {name}\nWORKDIR /srv/app\n"),
    )
    .unwrap();
    let mut build = daemon.client();
    build
        .env("DOCKER_BUILDKIT", "0")
        .args(["build", "--quiet", "--tag", name]);
    let built = build.arg(&context).output().unwrap();
    assert!(built.status.success(), "{}", text(&built.stderr));
    let file = place.at("image.tar");
    daemon.docker(&["save", "--output", &file, name]);
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    file
}

/// What a program can see of its image, the same in every backend.
const LOOK: &str = "echo $FROM_IMAGE; cat /bin/not-executable; echo; ls /bin | wc -l; readlink /bin/ls; id -u; \
    touch /file 2>/dev/null || echo read-only; exit 7";

#[test]
fn a_busybox_image_comes_from_a_registry_without_docker_and_does_the_same_as_in_a_container() {
    let (Some(registry), Some(daemon)) = (Registry::start(), Dockerd::start()) else {
        return;
    };
    let name = format!("{}/team/busybox:1", registry.address());
    daemon.docker(&["tag", IMAGE, &name]);
    daemon.docker(&["push", &name]);
    let docker = Place::new(&daemon.endpoint());
    let flags = ["run", "--backend", "docker", "--image", &name];
    let inside = docker.run(&[&flags[..], &["--", "sh", "-c", LOOK]].concat());
    assert_eq!(inside.status.code(), Some(7), "{}", text(&inside.stderr));
    drop(daemon);

    for place in [Place::new(NO_DAEMON), Place::ordinary()] {
        let output = place.run(&["run", "--image", &name, "--", "true"]);
        refused(
            &output,
            "backend.unavailable",
            "cofferdam images pull --store native",
        );
        // Without a daemon it goes to our own store.
        let pulled = place.json(&["images", "pull", &name, "--json"]);
        assert_eq!(pulled["store"], "native", "{pulled:#}");
        assert_eq!(pulled["names"], json!([name]));
        let pinned = pulled["digests"][0].as_str().unwrap();
        assert!(pinned.contains("/team/busybox@sha256:"), "{pinned}");
        for called in [&name, pinned, pulled["id"].as_str().unwrap()] {
            let output = place.run(&["run", "--image", called, "--", "sh", "-c", LOOK]);
            assert_eq!(
                text(&output.stdout),
                text(&inside.stdout),
                "{}",
                text(&output.stderr)
            );
            assert_eq!(output.status.code(), Some(7));
        }
        let record = place.json(&["run", "--json", "--image", &name, "--", "true"]);
        assert_eq!(record["ending"]["kind"], "exited", "{record:#}");
        assert_eq!(record["isolation"]["image"], json!(name), "{record:#}");
        assert_eq!(record["isolation"]["image_digest"], pulled["id"]);
        assert_eq!(record["backend"], "native");
        // Another digest is another image.
        let other = format!("{}@sha256:{}", name.trim_end_matches(":1"), "0".repeat(64));
        let output = place.run(&["run", "--image", &other, "--", "true"]);
        refused(&output, "backend.unavailable", "there is no image");
        let output = place.run(&["images", "pull", "--store", "native", &other]);
        refused(&output, "server.refused", "no such image");
        // What is there is not got again, but named.
        let again = place.json(&["images", "pull", pinned, "--store", "native", "--json"]);
        assert_eq!(again["id"], pulled["id"]);
    }
}

#[test]
fn an_image_says_how_a_program_starts_and_flags_say_it_better() {
    let Some(daemon) = Dockerd::start() else {
        return;
    };
    let maker = Place::new(&daemon.endpoint());
    let file = save(&daemon, &maker, "starts:1");
    let ordinary = Place::ordinary();
    let root = Place::new(NO_DAEMON);
    for place in [&root, &ordinary] {
        let imported = place.json(&["images", "import", &file, "--json"]);
        assert_eq!(
            imported["images"][0]["names"],
            json!(["starts:1"]),
            "{imported:#}"
        );
        assert_eq!(
            place.succeed(&["run", "--image", "starts:1"]),
            "entered by default\n"
        );
        let shown = place.succeed(&[
            "run",
            "--image",
            "starts:1",
            "--",
            "sh",
            "-c",
            "pwd; echo $HOME $PATH $FROM_IMAGE; id -u",
        ]);
        assert_eq!(shown, "/srv/app\n/home/sandbox /bin yes\n1000\n");
        let shown = place.succeed(&[
            "run",
            "--image",
            "starts:1",
            "--cwd",
            "/tmp",
            "--env",
            "FROM_IMAGE=no",
            "--",
            "sh",
            "-c",
            "pwd; echo $FROM_IMAGE",
        ]);
        assert_eq!(shown, "/tmp\nno\n");
        let record = place.json(&["run", "--json", "--image", "starts:1"]);
        assert_eq!(
            record["isolation"]["image_user"], "65534, as 1000",
            "{record:#}"
        );
        let shown = place.json(&["runs", "show", "latest", "--json"]);
        assert!(
            shown.to_string().contains("image starts:1 sha256:"),
            "{shown:#}"
        );
    }
    // Not twice a root, and not for what has none.
    let output = root.run(&["run", "--image", "starts:1", "--root", "/", "--", "true"]);
    assert_eq!(output.status.code(), Some(125), "{}", text(&output.stderr));
    let output = root.run(&[
        "run",
        "--backend",
        "host",
        "--image",
        "starts:1",
        "--",
        "true",
    ]);
    refused(&output, "input.invalid", "--backend docker");
    let output = root.run(&[
        "run",
        "--language",
        "python",
        "--code",
        "1",
        "--image",
        "starts:1",
    ]);
    refused(
        &output,
        "backend.unsupported_task",
        "does not work in the image",
    );
    let output = root.run(&["run", "--image", "../../etc", "--", "true"]);
    refused(&output, "input.invalid", "no name of an image");

    // A payload runs in it too, and its envelope holds.
    let draft = json!({
        "contract_id": "contract-1", "scope": "image",
        "task": {"kind": "command", "argv": ["sh", "-c", "echo \"{\\\"from\\\":\\\"$FROM_IMAGE\\\"}\""]},
        "expected_output_format": {"type": "object"}
    });
    fs::write(root.at("draft"), draft.to_string()).unwrap();
    fs::write(
        root.at("payload"),
        root.succeed(&["seal", &root.at("draft")]),
    )
    .unwrap();
    let envelope = root.json(&["execute", &root.at("payload"), "--image", "starts:1"]);
    assert_eq!(envelope["output"], json!({"from": "yes"}), "{envelope:#}");
}

#[test]
fn ours_are_built_by_the_daemon_over_any_base() {
    let Some(daemon) = Dockerd::start() else {
        return;
    };
    let place = Place::new(&daemon.endpoint());
    let base = format!("BASE={IMAGE}");
    let built = place.json(&[
        "images",
        "build",
        "--build-arg",
        &base,
        "--build-arg",
        "VERSION=7",
        "--json",
    ]);
    let names: Vec<&str> = built["images"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["name"].as_str().unwrap())
        .collect();
    assert_eq!(
        names,
        ["base", "python", "node", "java", "dotnet"].map(|name| format!("cofferdam/{name}:latest"))
    );
    for name in names {
        let format = "{{.Config.User}} {{index .Config.Labels \"org.opencontainers.image.version\"}} {{.Config.WorkingDir}}";
        let said = daemon.docker(&["inspect", "--format", format, name]);
        assert_eq!(said, "1000:1000 7 /home/sandbox\n", "{name}");
    }
    let output = place.run(&["images", "build", "dotnet"]);
    refused(&output, "input.invalid", "--build-arg BASE=");
    daemon.assert_clean();
}

#[test]
fn a_directory_is_built_by_the_daemon_and_runs_in_every_backend() {
    let Some(daemon) = Dockerd::start() else {
        return;
    };
    let place = Place::new(&daemon.endpoint());
    let context = place.dir.path().join("Tool");
    fs::create_dir_all(context.join("secret")).unwrap();
    fs::write(context.join("secret/key"), "key").unwrap();
    fs::write(
        context.join("hello"),
        "#!/bin/sh\necho hello from the context\n",
    )
    .unwrap();
    fs::write(context.join(".dockerignore"), "secret\n").unwrap();
    let dockerfile = format!(
        "FROM {IMAGE}\nCOPY . /opt/\nRUN chmod 755 /opt/hello && ! test -e /opt/secret\nCMD [\"/opt/hello\"]\n"
    );
    fs::write(context.join("Dockerfile"), dockerfile).unwrap();
    let dir = context.to_str().unwrap();
    let output = place.run(&["images", "build", dir, "--name", "tool:2", "--no-cache"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(
        text(&output.stdout).starts_with("tool:2  "),
        "{}",
        text(&output.stdout)
    );
    assert!(
        text(&output.stderr).contains("Step 3/"),
        "{}",
        text(&output.stderr)
    );

    let imported = place.succeed(&["images", "import", "--docker", "tool:2"]);
    assert_eq!(imported, "tool:2\n");
    assert_eq!(
        place.succeed(&["run", "--image", "tool:2"]),
        "hello from the context\n"
    );
    let hello = [
        "run",
        "--backend",
        "docker",
        "--image",
        "tool:2",
        "--",
        "/opt/hello",
    ];
    assert_eq!(place.succeed(&hello), "hello from the context\n");

    fs::write(
        context.join("Dockerfile"),
        format!("FROM {IMAGE}\nRUN exit 3\n"),
    )
    .unwrap();
    let output = place.run(&["images", "build", dir]);
    refused(&output, "backend.unavailable", "could not be built");
    let output = place.run(&["images", "build", "nothing"]);
    refused(
        &output,
        "input.invalid",
        "neither a directory nor one of ours",
    );
    let output = place.run(&["images", "build", "--name", "x"]);
    refused(&output, "input.invalid", "name one of them");
    daemon.assert_clean();
}

#[test]
fn both_stores_are_listed_and_cleared() {
    let Some(daemon) = Dockerd::start() else {
        return;
    };
    let place = Place::new(&daemon.endpoint());
    place.succeed(&["images", "import", "--docker", IMAGE, "--name", "mine:1"]);
    let listed = place.json(&["images", "list", "--json"]);
    let seen: Vec<(&str, &str)> = listed["images"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| {
            (
                one["store"].as_str().unwrap(),
                one["names"][0].as_str().unwrap(),
            )
        })
        .collect();
    assert_eq!(
        seen,
        [
            ("native", "mine:1"),
            ("docker", &*format!("{IMAGE}:latest"))
        ]
    );
    let table = place.succeed(&["images", "list"]);
    assert!(table.contains("mine:1") && table.contains(IMAGE), "{table}");
    let gone = place.json(&["images", "rm", "mine:1", "--json"]);
    assert_eq!(gone["removed"][0], "mine:1", "{gone:#}");
    place.succeed(&["images", "import", "--docker", IMAGE]);
    let pruned = place.json(&["images", "prune", "--unused", "--store", "native", "--json"]);
    assert!(pruned["freed_bytes"].as_u64().unwrap() > 0, "{pruned:#}");
    let listed = place.json(&["images", "list", "--json"]);
    assert_eq!(listed["images"].as_array().unwrap().len(), 1, "{listed:#}");
    place.succeed(&["images", "rm", IMAGE]);
    let listed = place.json(&["images", "list", "--json"]);
    assert_eq!(listed["images"], json!([]));
    let output = place.run(&["images", "rm", "--store", "native", "mine:1"]);
    refused(&output, "backend.unavailable", "there is no image");

    // Without a daemon ours are still there, and somebody is told.
    let alone = Place::new(NO_DAEMON);
    let output = alone.run(&["images", "list", "--json"]);
    let listed: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(listed["images"], json!([]));
    assert!(
        text(&output.stderr).contains("are not shown"),
        "{}",
        text(&output.stderr)
    );
}

#[test]
fn a_registry_that_is_away_or_wants_a_password_is_told_apart() {
    let (Some(registry), Some(daemon)) = (Registry::start_with_password(), Dockerd::start()) else {
        return;
    };
    let name = format!("{}/private:1", registry.address());
    daemon.docker(&[
        "login",
        "--username",
        "me",
        "--password",
        "secret",
        registry.address(),
    ]);
    daemon.docker(&["tag", IMAGE, &name]);
    daemon.docker(&["push", &name]);
    let place = Place::new(NO_DAEMON);
    let output = place.run(&["images", "pull", &name]);
    refused(&output, "server.refused", "--credentials");
    let file = place.at("credentials");
    let write = |auth: &str, mode| {
        let auths = json!({"auths": {registry.address(): {"auth": auth}}});
        fs::write(&file, auths.to_string()).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
    };
    let pull = ["images", "pull", &name, "--credentials", &file];
    write("bWU6c2VjcmV0", 0o644);
    refused(&place.run(&pull), "input.invalid", "chmod 600");
    write("bWU6d3Jvbmc=", 0o600);
    refused(&place.run(&pull), "server.refused", "who asks");
    write("bWU6c2VjcmV0", 0o600);
    let pinned = place.succeed(&pull);
    assert!(pinned.contains("/private@sha256:"), "{pinned}");
    assert_eq!(
        place.succeed(&["run", "--image", &name, "--", "echo", "in"]),
        "in\n"
    );

    let address = registry.address().to_owned();
    drop(registry);
    let output = place.run(&[
        "images",
        "pull",
        "--store",
        "native",
        &format!("{address}/private:2"),
    ]);
    refused(&output, "server.unreachable", "cofferdam images import");
    let output = place.run(&["images", "pull", "--store", "native", "busybox:1"]);
    refused(&output, "input.invalid", "no registry in front");
}

#[test]
fn whoever_is_killed_while_unpacking_leaves_nothing_that_can_be_run() {
    let Some(daemon) = Dockerd::start() else {
        return;
    };
    let maker = Place::new(&daemon.endpoint());
    let file = save(&daemon, &maker, "large:1");
    let place = Place::new(NO_DAEMON);
    let roots = place.dir.path().join(".local/share/cofferdam/images/roots");
    let making = place
        .dir
        .path()
        .join(".local/share/cofferdam/images/making");
    let count = |dir: &Path| {
        let entries = fs::read_dir(dir).into_iter().flatten().flatten();
        entries.filter(|entry| entry.path().is_dir()).count()
    };
    for delay in [0, 2, 5, 10, 20, 40] {
        let mut import = place.command(&["images", "import", &file]).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(delay));
        import.kill().unwrap();
        import.wait().unwrap();
        let output = place.run(&["run", "--image", "large:1", "--", "echo", "whole"]);
        match count(&roots) {
            0 => refused(&output, "backend.unavailable", "there is no image"),
            // Whole, with a name or just before it had one.
            _ => assert!(
                output.status.success() || text(&output.stderr).contains("there is no image")
            ),
        }
    }
    place.succeed(&["images", "import", &file]);
    assert_eq!(
        place.succeed(&["run", "--image", "large:1", "--", "echo", "whole"]),
        "whole\n"
    );
    assert_eq!(count(&making), 0);
    // What a run uses stays.
    let mut run = place.command(&[
        "run",
        "--image",
        "large:1",
        "--",
        "sh",
        "-c",
        "echo up; sleep 100",
    ]);
    let mut run = run.stdout(Stdio::piped()).spawn().unwrap();
    let mut first = [0; 3];
    std::io::Read::read_exact(run.stdout.as_mut().unwrap(), &mut first).unwrap();
    refused(
        &place.run(&["images", "rm", "--store", "native", "large:1"]),
        "input.invalid",
        "in use",
    );
    run.kill().unwrap();
    run.wait().unwrap();
    place.succeed(&["images", "rm", "--store", "native", "large:1"]);
    assert_eq!((count(&roots), count(&making)), (0, 0));
}

/// The host's Python in a root of its own, with a mark.
fn python(daemon: &Dockerd, place: &Place) -> bool {
    let root = place.dir.path().join("python");
    let script = "mkdir -p $1/usr/bin $1/lib64 $1/tmp; \
        p=$(readlink -f /usr/bin/python3); cp $p $1/usr/bin/python3; \
        lib=$(/usr/bin/python3 -c 'import sysconfig; print(sysconfig.get_path(\"stdlib\"))'); \
        mkdir -p $1$lib; tar -C $lib --exclude=test --exclude=__pycache__ --exclude='config-*' --exclude=dist-packages -cf - . | tar -C $1$lib -xf -; \
        for l in $(ldd $p | grep -o '/[^ ]*'); do mkdir -p $1$(dirname $l); cp -L $l $1$l; done; \
        echo in the image > $1/mark";
    let made = Command::new("sh")
        .args(["-ec", script, "sh"])
        .arg(&root)
        .status()
        .unwrap();
    if !made.success() {
        return false;
    }
    let archive = cofferdam_testkit::docker::pack(&root);
    daemon.docker(&["import", archive.to_str().unwrap(), "python:own"]);
    true
}

#[test]
fn code_runs_with_the_interpreter_of_an_image() {
    let Some(daemon) = Dockerd::start() else {
        return;
    };
    let place = Place::new(&daemon.endpoint());
    place.succeed(&["images", "import", "--docker", IMAGE, "--name", "box:1"]);
    let code = |language, code, more: &[&str]| {
        let flags = ["run", "--language", language, "--code", code];
        place.run(&[&flags[..], more].concat())
    };
    let image = ["--image", "box:1"];
    let output = code("shell", "echo $FROM_IMAGE; readlink /bin/ls", &image);
    assert_eq!(text(&output.stdout), "yes\nbusybox\n", "{output:?}");
    let handler = "handler() { echo 7 > $COFFERDAM_RESULT; }";
    let output = code("shell", handler, &[&image[..], &["--event", "{}"]].concat());
    assert_eq!(text(&output.stdout), "7\n", "{output:?}");
    let output = code("python", "print(1)", &image);
    refused(
        &output,
        "backend.unsupported_task",
        "does not work in the image",
    );

    assert!(python(&daemon, &place));
    place.succeed(&["images", "import", "--docker", "python:own"]);
    let own = ["--image", "python:own"];
    let output = code("python", "import json; print(open('/mark').read())", &own);
    assert_eq!(text(&output.stdout), "in the image\n\n", "{output:?}");
    let answers = "def handler(event): return open('/mark').read().strip() + event['end']";
    let event = [&own[..], &["--event", r#"{"end": "!"}"#]].concat();
    let output = code("python", answers, &event);
    assert_eq!(text(&output.stdout), "\"in the image!\"\n", "{output:?}");
    // In a container there is no channel for an answer.
    let output = code(
        "python",
        "1",
        &[&own[..], &["--backend", "docker"]].concat(),
    );
    refused(&output, "input.invalid", "cannot be used with");
}

#[test]
fn what_is_unpacked_here_does_not_depend_on_a_daemon_that_cannot_be_asked() {
    let place = Place::new(OTHER_DAEMON);
    let listed = place.json(&["images", "list", "--json"]);
    assert_eq!(listed["images"], json!([]));
    let pulled = place.run(&[
        "images",
        "pull",
        "--store",
        "native",
        "127.0.0.1:1/nothing:1",
    ]);
    let said = String::from_utf8_lossy(&pulled.stderr);
    assert!(
        !pulled.status.success() && !said.contains("ssh://"),
        "{said}"
    );
}
