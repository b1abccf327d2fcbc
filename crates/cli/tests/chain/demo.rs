//! The demonstration goes as it should, and says clearly what it lacks.

use std::path::PathBuf;

use cofferdam_testkit::anvil;
use cofferdam_testkit::desk;
use cofferdam_testkit::desk::{code, stderr};
use cofferdam_testkit::docker::{skip, which};
use serde_json::Value;

fn played(enforcement: &str, anvil: Option<PathBuf>) {
    let desk = desk!();
    if which("nats-server").is_none() {
        skip::<()>("nats-server");
        return;
    }
    let mut command = desk.command();
    command.args(["demo", "--json", "--enforcement", enforcement]);
    // Nobody but the one that is frozen may be silent so long, also on a machine that does much else.
    command.args(["--heartbeat-timeout", "10s"]);
    if let Some(anvil) = anvil {
        command.arg("--anvil").arg(anvil);
    }
    // Other tests look for what lies in the common place.
    command.env("TMPDIR", desk.root());
    let done = command.output().unwrap();
    let told: Value = serde_json::from_slice(&done.stdout).unwrap_or_default();
    assert_eq!(code(&done), 0, "{told:#} {}", stderr(&done));
    assert_eq!(told["enforcement"], enforcement);
    let scenes = told["scenes"].as_array().unwrap();
    let names: Vec<&str> = scenes
        .iter()
        .map(|scene| scene["name"].as_str().unwrap())
        .collect();
    assert_eq!(
        names,
        [
            "sum", "timeout", "oversize", "tampered", "network", "logs", "stall"
        ]
    );
    for scene in scenes {
        assert_eq!(scene["as_expected"], true, "{scene}");
        let is_money = ["oversize", "tampered", "stall"].contains(&scene["name"].as_str().unwrap());
        let slashed = scene["happened"].as_str().unwrap().contains("wei slashed");
        assert_eq!(slashed, is_money && enforcement == "public", "{scene}");
    }
}

#[test]
fn the_demonstration_goes_as_it_should_with_local_enforcement() {
    played("local", None);
}

#[test]
fn the_demonstration_goes_as_it_should_with_public_enforcement() {
    played("public", None);
}

#[test]
fn the_demonstration_goes_as_it_should_on_another_chain() {
    let Some(anvil) = anvil::program() else {
        skip::<()>("anvil");
        return;
    };
    played("public", Some(anvil));
}

#[test]
fn a_demonstration_without_its_servers_says_what_to_install() {
    let desk = desk!();
    let done = desk.run(["demo", "--nats-server", "/no/such/nats-server"]);
    assert_eq!(code(&done), 125);
    assert!(
        stderr(&done).contains("Debian: nats-server"),
        "{}",
        stderr(&done)
    );
    if which("nats-server").is_none() {
        return;
    }
    let done = desk.run([
        "demo",
        "--enforcement",
        "public",
        "--anvil",
        "/no/such/anvil",
    ]);
    assert_eq!(code(&done), 125);
    assert!(
        stderr(&done).contains("npm: @foundry-rs/anvil"),
        "{}",
        stderr(&done)
    );
}
