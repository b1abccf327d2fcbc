//! A chain of one's own, by the command line: it begins by itself, is served to others, loses nothing when it is killed, and a whole fleet settles on it without a node.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Stdio};

use cofferdam_chain::{Address, Embedded, Node, Transaction, U256};
use cofferdam_store::DataDir;
use cofferdam_testkit::desk::{code, json as read, stderr};
use cofferdam_testkit::nats::Nats;
use cofferdam_testkit::{Desk, desk};
use serde_json::{Value, json};

use crate::world::until;

struct Guest(Child);

impl Drop for Guest {
    fn drop(&mut self) {
        // SIGKILL.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn started(desk: &Desk, args: &[&str]) -> Guest {
    let mut command = desk.command();
    command.args(args).stderr(Stdio::null());
    Guest(command.stdout(Stdio::piped()).spawn().unwrap())
}

/// The chain of the desk, served; and where.
fn served(desk: &Desk) -> (Guest, String) {
    let mut guest = started(
        desk,
        &["chain", "node", "--listen", "127.0.0.1:0", "--json"],
    );
    let mut line = String::new();
    let stdout = guest.0.stdout.take().unwrap();
    BufReader::new(stdout).read_line(&mut line).unwrap();
    let told: Value = serde_json::from_str(&line).unwrap();
    let url = told["url"].as_str().unwrap().to_owned();
    (guest, url)
}

/// An address is the same in capitals.
fn lower(value: &Value) -> String {
    value.to_string().to_lowercase()
}

fn told(desk: &Desk, args: &[&str]) -> Value {
    let done = desk.run([&["chain", "--json"], args].concat());
    assert_eq!(code(&done), 0, "{args:?}: {}", stderr(&done));
    serde_json::from_slice(&done.stdout).unwrap()
}

#[test]
fn a_chain_of_ones_own_begins_by_itself_and_its_owner_signs_where_nobody_is_named() {
    let desk = desk!();
    let none = desk.run(["chain", "status"]);
    assert!(
        code(&none) == 125 && stderr(&none).contains("there is no chain in"),
        "{}",
        stderr(&none)
    );
    // Nobody is spoken to, so that it may be had in every mode.
    let made = desk.run(["--mode", "air-gapped", "chain", "deploy", "--json"]);
    assert_eq!(code(&made), 0, "{}", stderr(&made));
    let made: Value = serde_json::from_slice(&made.stdout).unwrap();
    assert_eq!(made["settlers"], json!([made["owner"]]), "{made}");
    let status = told(&desk, &["status"]);
    assert_eq!(
        (&status["contract"], &status["may_settle"]),
        (&made["contract"], &json!(true)),
        "{status}"
    );
    let file = desk.path("w1.key");
    let account = told(&desk, &["key", file.to_str().unwrap()])["account"].clone();
    let account = account.as_str().unwrap();
    desk.ok(&["keys", "generate", "worker-w1"]);
    let own = ["--key-file", file.to_str().unwrap()];
    let stake = ["stake", "1ether", "--worker", "w1"];
    let poor = desk.run([&["chain"], &own[..], &stake].concat());
    assert!(
        code(&poor) == 125 && stderr(&poor).contains("chain give"),
        "{}",
        stderr(&poor)
    );
    // Gas costs nothing: what was given can be staked whole.
    told(&desk, &["give", account, "1ether"]);
    let staked = told(&desk, &[&own[..], &stake].concat());
    assert_eq!(staked["account"]["stake_wei"], "1000000000000000000");
    let open = desk.run(["chain", "node", "--listen", "0.0.0.0:0"]);
    assert!(
        code(&open) == 125 && stderr(&open).contains("can be reached by others"),
        "{}",
        stderr(&open)
    );
    // The same chain for whoever asks by HTTP.
    let (_node, url) = served(&desk);
    let contract = made["contract"].as_str().unwrap();
    let there = told(
        &desk,
        &["--rpc", &url, "--contract", contract, "status", account],
    );
    assert_eq!(there["stake_wei"], "1000000000000000000");
    let twice = desk.run(["chain", "--rpc", &url, "node"]);
    assert!(
        stderr(&twice).contains("is a node already"),
        "{}",
        stderr(&twice)
    );
}

/// Gives a wei again and again until nobody answers; how often that was acknowledged.
fn sent(data: &DataDir, url: &str, to: Address) -> u64 {
    let chain = Embedded::existing(data).unwrap().unwrap();
    let owner = Embedded::owner(data).unwrap();
    let mut count = 0;
    // The first transactions of the owner are these.
    let first: u64 = Node::here(chain.into()).balance(to).unwrap().to();
    let chain = Embedded::existing(data).unwrap().unwrap().chain_id();
    loop {
        let transaction = Transaction {
            chain,
            nonce: first + count,
            priority_fee: 1,
            max_fee: 1,
            gas: 21_000,
            to: Some(to),
            value: U256::from(1),
            data: Vec::<u8>::new().into(),
        };
        let raw = transaction.sign(&owner).unwrap().raw_hex();
        let question = json!({"id": 1, "method": "eth_sendRawTransaction", "params": [raw]});
        let answer = ureq::post(url)
            .header("Content-Type", "application/json")
            .send(question.to_string());
        let text = answer.and_then(|mut answer| answer.body_mut().read_to_string());
        let Ok(text) = text else { return count };
        let answer: Value = serde_json::from_str(&text).unwrap();
        assert!(answer["result"].is_string(), "{answer}");
        count += 1;
    }
}

#[test]
fn a_chain_that_is_killed_at_any_moment_has_everything_that_was_acknowledged() {
    let desk = desk!();
    let data = DataDir::at(desk.path("data"));
    let to = Address::repeat_byte(0x42);
    let mut acknowledged = 0_u64;
    for round in 0..4_u64 {
        let (node, url) = served(&desk);
        let data_of_sender = data.clone();
        let sender = std::thread::spawn(move || sent(&data_of_sender, &url, to));
        // At another place of its work in each round.
        let some = acknowledged + 2 + round;
        let own = || {
            Node::here(std::sync::Arc::new(
                Embedded::existing(&data).unwrap().unwrap(),
            ))
        };
        until("some are there", || {
            own().balance(to).unwrap() >= U256::from(some)
        });
        drop(node);
        acknowledged += sender.join().unwrap();
        let there: u64 = own().balance(to).unwrap().to();
        // The last one may have been made without anybody's having heard of it.
        assert!(
            there == acknowledged || there == acknowledged + 1,
            "round {round}: {there} of {acknowledged}"
        );
        acknowledged = there;
    }
    let head = told(&desk, &["deploy"])["block"].as_u64().unwrap();
    assert_eq!(head, acknowledged + 1, "a block for each, and no other");
}

fn shell(id: &str, script: &str) -> Value {
    json!({
        "payload_id": id, "contract_id": "C", "scope": "a test", "deadline": "2099-01-01T00:00:00Z",
        "task": {"kind": "command", "argv": ["/bin/sh", "-c", script]},
    })
}

#[test]
fn a_fleet_with_public_enforcement_needs_no_node() {
    let desk = desk!();
    let Some(nats) = Nats::start() else { return };
    let url = nats.url();
    let half = ["--enforcement", "public", "--chain-id", "1"];
    let half = desk.run([&["fleet", "--nats", &url, "init"], &half[..]].concat());
    assert!(
        code(&half) == 125 && stderr(&half).contains("--contract"),
        "{}",
        stderr(&half)
    );
    let init = [
        "init",
        "--enforcement",
        "public",
        "--heartbeat-timeout",
        "10s",
        "--minimum-bond",
        "400wei",
        "--json",
    ];
    let settings = desk.ok(&[&["fleet", "--nats", &url], &init[..]].concat());
    let settings: Value = serde_json::from_str(&settings).unwrap();
    let public = &settings["enforcement"]["public"];
    let status = told(&desk, &["status"]);
    assert_eq!(
        lower(&json!([public["contract"], public["chain_id"]])),
        lower(&json!([status["contract"], status["chain"]]))
    );
    // Said again it is the same one.
    let again = desk.ok(&[&["fleet", "--nats", &url], &init[..]].concat());
    assert_eq!(serde_json::from_str::<Value>(&again).unwrap(), settings);
    let more = desk.run(
        [
            &["fleet", "--nats", &url],
            &init[..],
            &["--job-bond", "401wei"],
        ]
        .concat(),
    );
    assert!(
        code(&more) == 125 && stderr(&more).contains("--minimum-bond"),
        "{}",
        stderr(&more)
    );
    let _coordinator = started(&desk, &["fleet", "--nats", &url, "coordinate"]);
    let file = desk.path("w1.key");
    let account = told(&desk, &["key", file.to_str().unwrap()])["account"].clone();
    let account = account.as_str().unwrap();
    told(&desk, &["give", account, "1000wei"]);
    desk.ok(&["keys", "generate", "worker-w1"]);
    let own = ["--key-file", file.to_str().unwrap()];
    told(
        &desk,
        &[&own[..], &["stake", "1000wei", "--worker", "w1"]].concat(),
    );
    let worker = [
        "worker", "--nats", &url, "--name", "w1", "--slots", "1", "--bond", account,
    ];
    let _worker = started(&desk, &worker);
    let payload = desk.seal("p.json", &shell("SUM", "echo $((6 * 7))"));
    let mut command = desk.command();
    command.arg("submit").arg(payload);
    command.args(["--fleet", &url, "--json", "--wait"]);
    let (exit, answer) = read(&command.output().unwrap());
    assert_eq!(
        (exit, &answer["end"]["workers"]),
        (0, &json!(["w1"])),
        "{answer}"
    );
    until("the chain knows", || {
        told(&desk, &["status", account])["reputation"] == 55
    });
    until("it is certain, though no block follows", || {
        told(&desk, &["status"])["settlements"]["open"] == 0
    });
    // As long as a worker has a job, something of its bond is bound to it.
    let long = desk.seal("l.json", &shell("LONG", "sleep 600"));
    desk.ok(&["submit", long.to_str().unwrap(), "--fleet", &url]);
    until("it is locked", || {
        told(&desk, &["status", account])["locked_wei"] == "400"
    });
    let own = ["chain", "--key-file", file.to_str().unwrap()];
    let out = desk.run([&own[..], &["withdraw", "601wei"]].concat());
    assert!(stderr(&out).contains("600 are free"), "{}", stderr(&out));
    desk.ok(&["fleet", "--nats", &url, "cancel", "LONG"]);
    until("it is let go", || {
        told(&desk, &["status", account])["locked_wei"] == "0"
    });
    until("everything is settled", || {
        told(&desk, &["status"])["settlements"]["open"] == 0
    });
    let settlements = told(&desk, &["settlements"])["settlements"].clone();
    let count = |kind: &str| {
        let all = settlements.as_array().unwrap().iter();
        all.filter(|one| one["body"][kind]["name"] == "w1").count()
    };
    // The first job may have been over before anybody looked.
    assert_eq!(count("lock"), count("release"), "{settlements:#}");
    assert_eq!(
        (count("confirm"), count("slash")),
        (1, 0),
        "{settlements:#}"
    );
    assert!(
        settlements
            .as_array()
            .unwrap()
            .iter()
            .all(|one| one["state"] == "settled"),
        "{settlements:#}"
    );
}
