//! What `deploy/` has: units that systemd takes, manifests whose names fit together, and no flag that this binary does not have.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use cofferdam_fleet::names;
use cofferdam_testkit::docker::{skip, succeed, which};
use cofferdam_testkit::{Desk, Need, desk, host};
use serde_json::Value;

fn deploy() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy")
}

fn files(dir: &str) -> Vec<(String, String)> {
    let entries = std::fs::read_dir(deploy().join(dir)).unwrap();
    let mut files: Vec<_> = entries
        .map(|entry| {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            (name, std::fs::read_to_string(path).unwrap())
        })
        .collect();
    files.sort();
    files
}

/// Every flag in the words is one that the verb's help has.
fn check_flags(desk: &Desk, words: &[&str], whence: &str) {
    let verbs = ["worker", "serve", "fleet", "coordinate"];
    let named: Vec<&str> = words
        .iter()
        .copied()
        .filter(|word| verbs.contains(word))
        .collect();
    assert!(!named.is_empty(), "{whence}: {words:?}");
    let help = desk.ok(&[&named[..], &["--help"]].concat());
    for flag in words.iter().filter(|word| word.starts_with("--")) {
        let is_there = help
            .split_whitespace()
            .any(|word| word.trim_end_matches(',') == *flag);
        assert!(is_there, "{whence}: {flag} is no flag of {named:?}");
    }
}

#[test]
fn the_units_are_as_systemd_takes_them_and_start_what_there_is() {
    let desk = desk!();
    for (name, text) in files("systemd") {
        let start = text
            .lines()
            .find_map(|line| line.strip_prefix("ExecStart="));
        let words: Vec<&str> = start.unwrap().split_whitespace().collect();
        if words[0].ends_with("cofferdam") {
            check_flags(&desk, &words, &name);
        }
        for section in ["[Unit]", "[Service]", "[Install]"] {
            assert!(text.contains(section), "{name}: {section}");
        }
    }
    let Some(tool) = which("systemd-analyze") else {
        let _: Option<()> = skip("systemd-analyze");
        return;
    };
    // What it starts need not be installed here: the same units with programs that are.
    let dir = tempfile::tempdir().unwrap();
    let mut units = Vec::new();
    for (name, text) in files("systemd") {
        let unit = dir.path().join(name.replace("@.", "@w1."));
        let text = text.replace("/usr/local/bin/cofferdam", "/usr/bin/env");
        let text = text.replace("/usr/sbin/nats-server", "/usr/bin/env");
        std::fs::write(&unit, text).unwrap();
        units.push(unit);
    }
    let told = Command::new(tool)
        .args(["verify", "--man=no"])
        .args(&units)
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&told.stderr).into_owned();
    // Of other units of this machine it may complain as it likes.
    let ours: Vec<&str> = told
        .lines()
        .filter(|line| line.contains("cofferdam"))
        .collect();
    assert!(ours.is_empty(), "{told}");
}

/// What the daemon's unit asks of systemd, done by hand in a mount namespace: an ordinary user without any capability to gain, a system that is read-only, no homes,
/// a /tmp of its own.
const HARDENED: &str = r#"
mount -t tmpfs tmpfs /mnt
cp "$1" /mnt/cofferdam
mount -t tmpfs tmpfs /home
mount -t tmpfs tmpfs /root
mount -t tmpfs -o mode=1777 tmpfs /tmp
mount -o remount,ro,bind /
shift
exec setpriv --reuid 12345 --regid 12345 --clear-groups --bounding-set=-all --inh-caps=-all --no-new-privs \
    env -i PATH=/usr/bin:/bin HOME=/ COFFERDAM_DATA_DIR=/tmp/state /mnt/cofferdam "$@"
"#;

#[test]
fn the_hardening_of_the_daemons_unit_leaves_sandboxes_what_they_need() {
    let host = host!(Need::Root, Need::UnprivilegedUser);
    let unit = std::fs::read_to_string(deploy().join("systemd/cofferdam.service")).unwrap();
    for setting in [
        "User=cofferdam",
        "CapabilityBoundingSet=",
        "NoNewPrivileges=yes",
        "ProtectSystem=strict",
        "ProtectHome=yes",
        "PrivateTmp=yes",
    ] {
        assert!(unit.lines().any(|line| line == setting), "{setting}");
    }
    let mut run = Command::new("unshare");
    run.args(["--mount", "sh", "-ec", HARDENED, "sh"]);
    run.arg(host.binary()).args(["run", "--json", "--"]);
    let record = succeed(run.args(["sh", "-c", "id -u; ls -d /proc/self/"]));
    let record: Value = serde_json::from_str(&record).unwrap();
    assert_eq!(record["stdout"]["data"], "1000\n/proc/self/\n", "{record}");
    assert_eq!(record["isolation"]["proc"], "own", "{record}");
    assert_eq!(record["isolation"]["seccomp"], "filter", "{record}");
}

fn documents() -> Vec<(String, Value)> {
    let mut all = Vec::new();
    for (name, text) in files("kubernetes") {
        for part in text.split("\n---\n") {
            let document: Value =
                serde_saphyr::from_str(part).unwrap_or_else(|error| panic!("{name}: {error}"));
            all.push((name.clone(), document));
        }
    }
    all
}

#[test]
fn the_manifests_fit_together_and_the_autoscaler_looks_at_queues_that_there_can_be() {
    let desk = desk!();
    let all = documents();
    let of_kind = |kind: &'static str| all.iter().filter(move |(_, one)| one["kind"] == kind);
    let mut labels = BTreeSet::new();
    for (name, one) in of_kind("Deployment").chain(of_kind("StatefulSet")) {
        assert_eq!(one["apiVersion"], "apps/v1", "{name}");
        let spec = &one["spec"];
        let label = &spec["template"]["metadata"]["labels"];
        assert_eq!(&spec["selector"]["matchLabels"], label, "{name}");
        labels.insert(label.to_string());
        for container in spec["template"]["spec"]["containers"].as_array().unwrap() {
            let args: Vec<&str> = container["args"]
                .as_array()
                .unwrap()
                .iter()
                .map(|arg| arg.as_str().unwrap())
                .collect();
            if container["image"]
                .as_str()
                .unwrap()
                .starts_with("cofferdam")
            {
                check_flags(&desk, &args, name);
            }
            for mount in container["volumeMounts"].as_array().into_iter().flatten() {
                let claims = spec["volumeClaimTemplates"]
                    .as_array()
                    .into_iter()
                    .flatten()
                    .map(|claim| &claim["metadata"]["name"]);
                let volumes = spec["template"]["spec"]["volumes"]
                    .as_array()
                    .into_iter()
                    .flatten()
                    .map(|volume| &volume["name"]);
                assert!(
                    claims.chain(volumes).any(|volume| *volume == mount["name"]),
                    "{name}: {mount}"
                );
            }
        }
    }
    assert_eq!(labels.len(), 4);
    for (name, service) in of_kind("Service") {
        assert!(
            labels.contains(&service["spec"]["selector"].to_string()),
            "{name}"
        );
    }
    let scaled: Vec<_> = of_kind("ScaledObject").collect();
    assert_eq!(scaled.len(), 1);
    let spec = &scaled[0].1["spec"];
    let target = &spec["scaleTargetRef"]["name"];
    assert!(of_kind("Deployment").any(|(_, one)| one["metadata"]["name"] == *target));
    for trigger in spec["triggers"].as_array().unwrap() {
        assert_eq!(trigger["type"], "nats-jetstream");
        let about = &trigger["metadata"];
        assert_eq!(about["stream"], names::WORK_STREAM);
        let consumer = about["consumer"].as_str().unwrap();
        let (class, tenant) = consumer.split_once("__").unwrap();
        let class = class.replace('_', ".");
        assert!(
            cofferdam_fleet::class::Class::read(&class).is_some(),
            "{class}"
        );
        assert_eq!(names::queue_name(&class, tenant), consumer);
        for field in ["natsServerMonitoringEndpoint", "account", "lagThreshold"] {
            assert!(about[field].is_string(), "{field}");
        }
    }
}

#[test]
fn the_image_has_the_binary_and_what_its_workers_advertise() {
    let text = std::fs::read_to_string(deploy().join("container/Dockerfile")).unwrap();
    for word in [
        "FROM ${BASE}",
        "USER 1000:1000",
        "COPY ${BINARY} /usr/local/bin/cofferdam",
        "STOPSIGNAL SIGTERM",
        "ENTRYPOINT [\"/usr/local/bin/cofferdam\"]",
        "COFFERDAM_DATA_DIR",
    ] {
        assert!(text.contains(word), "{word}");
    }
}
