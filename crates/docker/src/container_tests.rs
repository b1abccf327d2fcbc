//! What the daemon is told about a run, compared in whole values.

use cofferdam_contract::limits::Limits;
use cofferdam_contract::request::{BackendName, Gpus, WorkspaceAccess};
use serde_json::{Value, json};

use super::*;

pub(crate) fn request(argv: &[&str]) -> Request {
    Request {
        backend: BackendName::Docker,
        ..Request::command(argv.iter().copied())
    }
}

const DOCKER: Flavour = Flavour {
    maker: Maker::Docker,
    minor: 41,
};

#[test]
fn a_daemon_that_may_filter_nothing_is_told_to_filter() {
    let newer = Flavour {
        minor: 42,
        ..DOCKER
    };
    assert_eq!(security(newer), ["no-new-privileges", "seccomp=builtin"]);
    assert_eq!(security(DOCKER), ["no-new-privileges"]);
    let podman = Flavour {
        maker: Maker::Podman,
        minor: 42,
    };
    assert_eq!(security(podman), ["no-new-privileges"]);
}

fn image() -> Image {
    Image {
        name: "x".into(),
        id: "sha256:1".into(),
        digests: Vec::new(),
        env: vec!["PATH=/opt/bin:/bin".into(), "HOME=/root".into()],
        volumes: vec!["/data".into(), "/work/".into(), "/tmp".into()],
    }
}

fn asked(request: &Request, settings: &Settings) -> Value {
    let owner = Owner::current();
    let image = image();
    let wish = Wish {
        request,
        image: &image,
        settings,
        flavour: DOCKER,
        run_id: "r1".into(),
        owner: &owner,
        now: 1000,
        stdin: Stdin::Absent,
        cpus: None,
    };
    serde_json::to_value(body(&wish)).unwrap()
}

#[test]
fn every_wall_is_asked_for() {
    let mut request = request(&["sh", "-c", "true"]);
    request.limits.cpus = Cap::AtMost("1.5".parse().unwrap());
    let asked = asked(&request, &Settings::default());
    let host = &asked["HostConfig"];
    let walls = json!({
        "ReadonlyRootfs": true,
        "CapDrop": ["ALL"],
        "SecurityOpt": ["no-new-privileges"],
        "Privileged": false,
        "NetworkMode": "none",
        "IpcMode": "private",
        "CgroupnsMode": "private",
        "Memory": 512 << 20,
        "MemorySwap": 512 << 20,
        "NanoCpus": 1_500_000_000_u64,
        "PidsLimit": 101,
        "Init": true,
        "AutoRemove": false,
        "LogConfig": {"Type": "none"},
        "ShmSize": 64 << 20,
        "Tmpfs": {"/tmp": "rw,exec,nosuid,nodev,mode=1777,uid=1000,gid=1000,size=1006632960"},
        "Ulimits": [
            {"Name": "core", "Soft": 0, "Hard": 0},
            {"Name": "nofile", "Soft": 1024, "Hard": 1024},
            {"Name": "fsize", "Soft": 1 << 30, "Hard": 1 << 30},
            {"Name": "cpu", "Soft": 61, "Hard": 61},
        ],
        "Mounts": [{"Target": "/data", "Type": "tmpfs", "ReadOnly": true, "TmpfsOptions": {"SizeBytes": 4096}}],
    });
    assert_eq!(host, &walls);
    assert_eq!(asked["User"], "1000:1000");
    assert_eq!(asked["Image"], "sha256:1");
    assert_eq!(asked["Entrypoint"], json!(["sh", "-c", "true"]));
    assert_eq!(asked["Cmd"], json!([]));
    assert_eq!(asked["Healthcheck"], json!({"Test": ["NONE"]}));
    assert_eq!(asked["OpenStdin"], false);
}

#[test]
fn what_is_unlimited_is_not_asked_for() {
    let mut request = request(&["true"]);
    request.limits = Limits {
        wall_time: Cap::Unlimited,
        cpu_time: Cap::Unlimited,
        memory: Cap::Unlimited,
        output: Cap::Unlimited,
        processes: Cap::Unlimited,
        disk: Cap::Unlimited,
        open_files: Cap::Unlimited,
        cpus: Cap::Unlimited,
        disk_io: Cap::Unlimited,
    };
    let asked = asked(&request, &Settings::default());
    let host = &asked["HostConfig"];
    assert_eq!(
        (&host["Memory"], &host["NanoCpus"]),
        (&Value::Null, &Value::Null)
    );
    assert_eq!(host["PidsLimit"], -1);
    assert_eq!(host["Ulimits"].as_array().unwrap().len(), 1);
    assert!(!host["Tmpfs"]["/tmp"].as_str().unwrap().contains("size"));
    assert_eq!(asked["Labels"][UNTIL], "");
}

#[test]
fn runtime_and_init_are_chosen() {
    let settings = Settings {
        runtime: Some("runsc".into()),
        init: Init::None,
        ..Settings::default()
    };
    let asked = asked(&request(&["true"]), &settings);
    assert_eq!(asked["HostConfig"]["Runtime"], "runsc");
    assert_eq!(asked["HostConfig"]["Init"], false);
    assert_eq!(asked["HostConfig"]["PidsLimit"], 100);
}

#[test]
fn a_workspace_is_a_volume_that_is_known_as_ours() {
    let mut request = request(&["./solve"]);
    request.workspace = Some(Workspace {
        path: "/home/me/job".into(),
        access: WorkspaceAccess::ReadWrite,
    });
    let asked = asked(&request, &Settings::default());
    let mount = &asked["HostConfig"]["Mounts"][1];
    assert_eq!(
        (&mount["Target"], &mount["Type"]),
        (&json!("/work"), &json!("volume"))
    );
    assert_eq!(mount["Source"], Value::Null);
    assert_eq!(mount["VolumeOptions"]["Labels"][MANAGED], "true");
    assert_eq!(asked["WorkingDir"], "/work");
    assert_eq!(asked["Labels"][RUN], "r1");
    assert_eq!(asked["Labels"][UNTIL], "3101");
    assert!(!asked.to_string().contains("/home/me"));
}

#[test]
fn the_callers_variables_win_over_the_images_and_those_over_ours() {
    let mut request = request(&["true"]);
    request.env = vec![("A".into(), "b=c".into()), ("USER".into(), "me".into())];
    let env = environment(&request, &image());
    let expected = [
        "PATH=/opt/bin:/bin",
        "LANG=C.UTF-8",
        "SHELL=/bin/sh",
        "HOME=/tmp",
        "TMPDIR=/tmp",
        "USER=me",
        "LOGNAME=sandbox",
        "A=b=c",
    ];
    assert_eq!(env, expected);
}

#[test]
fn a_program_is_looked_for_as_a_shell_would() {
    let look = |name: &str| candidates(&request(&[name]), &image());
    assert_eq!(look("x"), ["/opt/bin/x", "/bin/x"]);
    assert_eq!(look("/a/x"), ["/a/x"]);
    assert_eq!(look("./x"), ["/tmp/./x"]);
}

#[test]
fn what_is_not_text_is_refused_by_name() {
    use std::os::unix::ffi::OsStringExt as _;
    let mut bad = request(&["x"]);
    bad.argv.push(std::ffi::OsString::from_vec(vec![0xff]));
    bad.env
        .push(("A".into(), std::ffi::OsString::from_vec(vec![0xfe])));
    let problems = check(&bad).unwrap_err();
    let fields: Vec<String> = problems
        .iter()
        .map(|problem| problem.field.clone())
        .collect();
    assert_eq!(fields, ["argv[1]", "env.A"]);
    assert!(check(&request(&["ä"])).is_ok());
}

#[test]
fn gpus_are_asked_for_as_the_command_line_of_docker_does() {
    assert_eq!(gpus(&Gpus::None), None);
    let all = gpus(&Gpus::All).unwrap();
    assert_eq!((all[0].count, &all[0].device_ids), (Some(-1), &None));
    assert_eq!(all[0].capabilities, Some(vec![vec!["gpu".to_owned()]]));
    let some = gpus(&Gpus::Numbered(vec![0, 2])).unwrap();
    assert_eq!(some[0].count, None);
    assert_eq!(
        some[0].device_ids,
        Some(vec!["0".to_owned(), "2".to_owned()])
    );
}
