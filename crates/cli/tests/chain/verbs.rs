//! The verbs of `cofferdam chain`, against a real chain.

use cofferdam_chain::Address;
use cofferdam_testkit::anvil::Anvil;
use cofferdam_testkit::desk;
use cofferdam_testkit::desk::{code, stderr};
use serde_json::{Value, json};

use crate::world::{Town, key};

#[test]
fn every_verb_does_what_it_says_and_says_what_is_wrong() {
    let desk = desk!();
    let Some(anvil) = Anvil::start() else { return };
    let url = anvil.url();
    // A key of one's own, readable by nobody else.
    let file = desk.path("own.key");
    let account = desk.ok(&["chain", "key", file.to_str().unwrap()]);
    assert!(
        account.starts_with("0x") && account.trim().len() == 42,
        "{account}"
    );
    let account = account.trim();
    anvil.ask("anvil_setBalance", &json!([account, "0xde0b6b3a7640000"]));
    let own = ["chain", "--rpc", &url, "--key-file", file.to_str().unwrap()];
    let settler = key(1).address().to_string();
    let made = desk.run(
        [
            &own[..],
            &[
                "deploy",
                "--settler",
                &settler,
                "--withdrawal-delay",
                "10s",
                "--json",
            ],
        ]
        .concat(),
    );
    assert_eq!(code(&made), 0, "{}", stderr(&made));
    let made: Value = serde_json::from_slice(&made.stdout).unwrap();
    assert_eq!(
        made["owner"].as_str().unwrap().to_lowercase(),
        account.to_lowercase()
    );
    let contract: Address = made["contract"].as_str().unwrap().parse().unwrap();
    let town = Town::around(desk, anvil, contract);
    // The worker's identity is its public key.
    town.desk.ok(&["keys", "generate", "worker-w1"]);
    let staked = town.told(2, &["stake", "0.5ether", "--worker", "w1"]);
    assert_eq!(staked["account"]["stake_wei"], "500000000000000000");
    assert_eq!(staked["account"]["reputation"], 50);
    let status = town.told(1, &["status"]);
    assert_eq!(
        (&status["paused"], &status["may_settle"]),
        (&json!(false), &json!(true))
    );
    assert_eq!(
        status["settlements"],
        json!({"open": 0, "settled": 0, "refused": 0})
    );
    let draft = json!({
        "payload_id": "P", "contract_id": "C", "scope": "a test", "deadline": "2099-01-01T00:00:00Z",
        "task": {"kind": "command", "argv": ["/bin/true"]},
    });
    let payload = town.desk.seal("p.json", &draft);
    let payload = payload.to_str().unwrap();
    let worker = town.worker.to_string();
    town.told(1, &["permit", payload, "--for", "1h"]);
    town.told(1, &["permit", payload, "--revoke"]);
    town.told(1, &["lock", payload, &worker, "0.2ether"]);
    let locked = town.told(2, &["status", &worker]);
    assert_eq!(locked["locked_wei"], "200000000000000000");
    town.told(1, &["release", payload, &worker]);
    town.told(2, &["withdraw", "0.1ether"]);
    town.told(2, &["withdraw", "--cancel"]);
    town.told(2, &["withdraw", "0.1ether"]);
    town.anvil.ask("evm_increaseTime", &json!([20]));
    town.anvil.mine(1);
    let left = town.told(2, &["withdraw", "--take"]);
    assert_eq!(left["account"]["stake_wei"], "400000000000000000");
    let plain = town.desk.ok(&[
        "chain",
        "--rpc",
        &town.anvil.url(),
        "--contract",
        &town.contract.to_string(),
        "status",
        &worker,
    ]);
    assert!(
        plain.contains("0.4 ether") && plain.contains("reputation  50"),
        "{plain}"
    );
    for (key, args, word) in [
        (2, vec!["stake", "1wei", "--worker", "nobody"], "public key"),
        (2, vec!["stake", "1", "--worker", "w1"], "0.5ether"),
        (2, vec!["withdraw", "9ether"], "are free"),
        (2, vec!["withdraw", "--take"], "nothing to do"),
        (2, vec!["claim"], "nothing to do"),
        (2, vec!["pause"], "not the owner"),
        (2, vec!["permit", payload], "may not settle"),
        (1, vec!["permit", "/no/such/file"], "/no/such/file"),
        (1, vec!["settlements", "--retry", "0x11"], "--retry"),
        (1, vec!["status", "--max-fee", "soon"], "gwei"),
    ] {
        let done = town.chain(key, &args);
        assert!(
            code(&done) == 125 && stderr(&done).contains(word),
            "{args:?}: {}",
            stderr(&done)
        );
    }
    let away = town.desk.run([
        "chain",
        "--rpc",
        "http://127.0.0.1:1",
        "--contract",
        &worker,
        "status",
    ]);
    assert!(
        stderr(&away).contains("no chain answers at http://127.0.0.1:1"),
        "{}",
        stderr(&away)
    );
    let none = town.desk.run([
        "chain",
        "--rpc",
        &town.anvil.url(),
        "--contract",
        &worker,
        "status",
    ]);
    assert!(
        stderr(&none).contains("there is no contract at"),
        "{}",
        stderr(&none)
    );
    let unsigned = town.desk.run([
        "chain",
        "--rpc",
        &town.anvil.url(),
        "--contract",
        &contract.to_string(),
        "claim",
    ]);
    assert!(
        stderr(&unsigned).contains("COFFERDAM_CHAIN_KEY"),
        "{}",
        stderr(&unsigned)
    );
    let gapped = town.desk.run([
        "--mode",
        "air-gapped",
        "chain",
        "--rpc",
        "http://chain.example.org",
        "status",
    ]);
    assert!(
        stderr(&gapped).contains("[policy.refused]"),
        "{}",
        stderr(&gapped)
    );
    let own = [
        "chain",
        "--rpc",
        &town.anvil.url(),
        "--contract",
        &contract.to_string(),
        "--key-file",
        town.desk.path("own.key").to_str().unwrap(),
        "pause",
    ]
    .map(str::to_owned);
    assert_eq!(code(&town.desk.run(own)), 0);
    assert_eq!(town.told(1, &["status"])["paused"], true);
}
