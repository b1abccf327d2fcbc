//! A fleet whose rules are enforced on a chain, with real processes for everybody.

use std::process::{Child, Stdio};

use cofferdam_chain::Key;
use cofferdam_testkit::anvil::KEYS;
use cofferdam_testkit::desk::{json as read, stderr};
use cofferdam_testkit::nats::Nats;
use cofferdam_testkit::shape;
use cofferdam_testkit::{Desk, desk};
use serde_json::{Value, json};

use crate::world::{Town, key, until};

struct Guest(Child);

impl Drop for Guest {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

struct Field {
    town: Town,
    nats: Nats,
}

impl Field {
    /// Where a chain and a server can be had.
    fn new(desk: Desk) -> Option<Self> {
        Some(Self {
            town: Town::new(desk)?,
            nats: Nats::start()?,
        })
    }

    fn fleet(&self, args: &[&str]) -> Value {
        let done = self
            .town
            .desk
            .run([&["fleet", "--nats", &self.nats.url()], args].concat());
        shape::read(&[&["fleet"], args].concat(), &done.stdout).unwrap_or(Value::Null)
    }

    fn start(&self, args: &[&str]) -> Guest {
        let mut command = self.town.desk.command();
        command.env("COFFERDAM_CHAIN_KEY", KEYS[1]);
        command
            .args(args)
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        Guest(command.spawn().unwrap())
    }

    fn worker(&self, name: &str, bond: Option<&Key>) -> Guest {
        let (url, rpc) = (self.nats.url(), self.town.anvil.url());
        let mut args = vec![
            "worker",
            "--nats",
            &url,
            "--name",
            name,
            "--slots",
            "1",
            "--chain-rpc",
            &rpc,
        ];
        let bond = bond.map(|key| key.address().to_string());
        if let Some(bond) = &bond {
            args.extend(["--bond", bond]);
        }
        self.start(&args)
    }

    fn submit(&self, payload: &std::path::Path, more: &[&str]) -> (i32, Value) {
        let mut command = self.town.desk.command();
        command.arg("submit").arg(payload);
        command
            .args(["--fleet", &self.nats.url(), "--json"])
            .args(more);
        read(&command.output().unwrap())
    }
}

fn shell(id: &str, script: &str) -> Value {
    json!({
        "payload_id": id, "contract_id": "C", "scope": "a test", "deadline": "2099-01-01T00:00:00Z",
        "task": {"kind": "command", "argv": ["/bin/sh", "-c", script]},
    })
}

#[test]
fn nobody_can_put_the_bond_of_another_at_stake() {
    let Some(field) = Field::new(desk!()) else {
        return;
    };
    let (url, rpc) = (field.nats.url(), field.town.anvil.url());
    let contract = field.town.contract.to_string();
    let init = ["fleet", "--nats", &url, "init", "--grace", "1s"];
    let times = ["--heartbeat-timeout", "8s", "--max-starts", "1"];
    let public = ["--enforcement", "public", "--contract", &contract];
    let chain = ["--chain-id", "31337", "--minimum-bond", "100wei"];
    field
        .town
        .desk
        .ok(&[&init[..], &times, &public, &chain].concat());
    field.town.desk.ok(&["keys", "generate", "worker-owner"]);
    field
        .town
        .told(3, &["stake", "200wei", "--worker", "owner"]);
    let coordinate = ["fleet", "--nats", &url, "coordinate", "--chain-rpc", &rpc];
    let _coordinator = field.start(&[&coordinate[..], &["--confirmations", "1"]].concat());
    // It names the account of another, takes work and falls silent.
    let bond = key(3);
    let thief = field.worker("thief", Some(&bond));
    let payload = field.town.desk.seal("p.json", &shell("STOLEN", "sleep 30"));
    assert_eq!(field.submit(&payload, &[]).0, 0);
    until("it has given signs of life", || {
        let about = field.fleet(&["jobs", "STOLEN", "--json"]);
        about["claims"][0][1]["state"]["held"]["beats"].as_u64() >= Some(2)
    });
    drop(thief);
    until("it is held to account", || {
        field.fleet(&["jobs", "STOLEN", "--json"])["job"]["settled"] == true
    });
    let (_, ledger) = field
        .town
        .desk
        .json(&format!("ledger --nats {url} show --json"));
    assert_eq!(
        ledger["workers"]["thief"]["offences"]["STALL"], 1,
        "{ledger}"
    );
    let settlements = field.town.told(1, &["settlements"]);
    assert_eq!(settlements["settlements"], json!([]), "{settlements}");
    let account = field.town.ledger().account(bond.address()).unwrap();
    assert_eq!((account.stake_wei, account.locked_wei), (200, 0));
}

#[test]
fn on_a_public_fleet_only_a_bond_counts_reputation_is_on_the_chain_and_network_takes_the_contracts_word()
 {
    let Some(field) = Field::new(desk!()) else {
        return;
    };
    let (url, rpc) = (field.nats.url(), field.town.anvil.url());
    let contract = field.town.contract.to_string();
    let init = [
        "fleet",
        "--nats",
        &url,
        "init",
        "--heartbeat-timeout",
        "10s",
        "--enforcement",
        "public",
    ];
    let more = [
        "--contract",
        &contract,
        "--chain-id",
        "31337",
        "--minimum-bond",
        "100wei",
        "--json",
    ];
    let settings = field.town.desk.ok(&[&init[..], &more].concat());
    assert!(settings.contains("minimum_bond"), "{settings}");
    // A coordinator that cannot settle says so instead of deciding.
    let bare = field.town.desk.run(["fleet", "--nats", &url, "coordinate"]);
    assert!(stderr(&bare).contains("--chain-rpc"), "{}", stderr(&bare));
    let _coordinator = field.start(&[
        "fleet",
        "--nats",
        &url,
        "coordinate",
        "--chain-rpc",
        &rpc,
        "--confirmations",
        "1",
    ]);
    // One without a bond answers, and it does not count.
    let free = field.worker("free", None);
    until("it is ready", || {
        field.fleet(&["status", "--json"])["workers_ready"] == 1
    });
    let payload = field
        .town
        .desk
        .seal("p.json", &shell("SUM", "echo $((6 * 7))"));
    assert_eq!(field.submit(&payload, &[]).0, 0);
    until("its answer is not taken", || {
        field.fleet(&["jobs", "SUM", "--json"])["events"]
            .to_string()
            .contains("names no bond")
    });
    drop(free);
    // The key of the worker is that of its bond.
    field.town.desk.ok(&["keys", "generate", "worker-bonded"]);
    let staked = field
        .town
        .told(3, &["stake", "200wei", "--worker", "bonded"]);
    assert_eq!(staked["account"]["stake_wei"], "200");
    let bonded = key(3);
    let _bonded = field.worker("bonded", Some(&bonded));
    let (exit, told) = field.submit(&payload, &["--wait"]);
    assert_eq!(
        (exit, &told["end"]["workers"]),
        (0, &json!(["bonded"])),
        "{told}"
    );
    until("the chain knows", || {
        field
            .town
            .ledger()
            .account(bonded.address())
            .unwrap()
            .reputation
            == 55
    });
    let workers = field.fleet(&["workers", "--json"]);
    let about = workers["workers"]
        .as_array()
        .unwrap()
        .iter()
        .find(|one| one["name"] == "bonded")
        .unwrap();
    assert_eq!(about["reputation"], 55, "{about}");
    assert_eq!(
        about["bond"].as_str().unwrap(),
        bonded.address().to_string()
    );
    let settlements = field.town.told(1, &["settlements"]);
    assert_eq!(
        settlements["settlements"][0]["body"]["confirm"]["name"], "bonded",
        "{settlements}"
    );
    // Network takes the contract's word.
    let mut draft = shell("NET", "echo reached");
    draft["network_allowed"] = json!(true);
    let payload = field.town.desk.seal("n.json", &draft);
    let (exit, told) = field.submit(&payload, &["--wait"]);
    let reason = told["end"]["reason"].as_str().unwrap_or_default();
    assert!(
        exit == 1 && reason.contains("does not permit network"),
        "{told}"
    );
    // What it permits is refused by this worker for another reason: it gives no network itself.
    field.town.told(1, &["permit", payload.to_str().unwrap()]);
    until("it is settled", || {
        field.fleet(&["jobs", "NET", "--json"])["job"]["settled"] == true
    });
    field
        .town
        .desk
        .ok(&["fleet", "--nats", &url, "requeue", "NET"]);
    until("it was asked again", || {
        let about = field.fleet(&["jobs", "NET", "--json"]);
        let events = about["events"].as_array().cloned().unwrap_or_default();
        let requeued = events.iter().position(|event| event["what"] == "requeued");
        requeued.is_some_and(|place| {
            events[place..].iter().any(|event| {
                let is_answer = event["what"] == "answered" || event["what"] == "refused";
                is_answer
                    && !event["detail"]
                        .as_str()
                        .unwrap_or_default()
                        .contains("the contract")
            })
        })
    });
}
