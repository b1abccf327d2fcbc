//! A worker whose network goes away and comes back: it lives in a network namespace of its own, with one wire to the server.

use std::process::{Command, Stdio};

use cofferdam_testkit::desk;
use cofferdam_testkit::docker::{skip, which};
use cofferdam_testkit::nats::Nats;
use serde_json::json;

use crate::field::{Field, Guest, SILENCE, shell};

/// A namespace with a wire to here. Both go with it.
struct Wire {
    namespace: String,
    here: String,
    address: String,
}

impl Wire {
    fn new() -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            return skip("root, for a network namespace");
        }
        if which("ip").is_none() {
            return skip("iproute2");
        }
        let number = std::process::id();
        // Below 169.254.169: clouds answer questions about themselves there.
        let (high, low) = (1 + (number >> 6) % 168, (number % 64) * 4);
        let wire = Self {
            namespace: format!("cofferdam-{number}"),
            here: format!("cfd{number}a"),
            address: format!("169.254.{high}.{}", low + 1),
        };
        let there = format!("cfd{number}b");
        let other = format!("169.254.{high}.{}/30", low + 2);
        let own = format!("{}/30", wire.address);
        let (namespace, here) = (wire.namespace.as_str(), wire.here.as_str());
        for args in [
            &["netns", "add", namespace][..],
            &["link", "add", here, "type", "veth", "peer", "name", &there],
            &["link", "set", &there, "netns", namespace],
            &["addr", "add", &own, "dev", here],
            &["link", "set", here, "up"],
            &["-n", namespace, "addr", "add", &other, "dev", &there],
            &["-n", namespace, "link", "set", &there, "up"],
            &["-n", namespace, "link", "set", "lo", "up"],
        ] {
            assert!(ip(args), "ip {args:?}");
        }
        Some(wire)
    }

    fn cut(&self) {
        assert!(ip(&["link", "set", &self.here, "down"]));
    }

    fn mend(&self) {
        assert!(ip(&["link", "set", &self.here, "up"]));
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        ip(&["link", "del", &self.here]);
        ip(&["netns", "del", &self.namespace]);
    }
}

fn ip(args: &[&str]) -> bool {
    let Some(ip) = which("ip") else { return false };
    let mut command = Command::new(ip);
    command.args(args).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

#[test]
fn a_worker_whose_network_went_away_finds_that_its_work_was_done_by_another() {
    let Some(wire) = Wire::new() else { return };
    let Some(nats) = Nats::start_at(&wire.address, "") else {
        return;
    };
    let field = Field::with(desk!(), nats, SILENCE, &[]);
    // `ip netns exec` would hide the control groups behind another /sys.
    let inside = format!("--net=/var/run/netns/{}", wire.namespace);
    let far = field.worker_by("far", Command::new("nsenter").args([&inside, "--"]));
    field.ready(1);
    let payload = field
        .desk
        .seal("p.json", &shell("PARTED", "sleep 15; echo done"));
    let done = field.submit(&payload, &[]).output().unwrap();
    assert!(done.status.success());
    field.until("it runs far away", || {
        field.holder("PARTED").as_deref() == Some("far")
    });
    wire.cut();
    let _near: Guest = field.worker("near");
    let (exit, told) = field.wait_for(&payload);
    assert_eq!(
        (exit, &told["end"]["outcome"], &told["end"]["workers"]),
        (0, &json!("agreed"), &json!(["near"])),
        "{told:#}"
    );
    wire.mend();
    let is_late = || {
        let about = field.fleet(&["jobs", "PARTED", "--json"]);
        let events = about["events"].as_array().cloned().unwrap_or_default();
        events.iter().any(|event| {
            event["worker"] == "far" && (event["what"] == "late" || event["what"] == "revoked")
        })
    };
    field.until("its answer is recognised as late", is_late);
    let status = field.fleet(&["status", "--json"]);
    assert_eq!(
        (&status["results"], &status["jobs_open"]),
        (&json!(1), &json!(0)),
        "{status}"
    );
    drop(far);
}
