//! `cofferdam policy`: what is in force, what a file would break, what the history has broken.

use cofferdam_testkit::desk;
use serde_json::json;

use cofferdam_testkit::desk::{code, told};

#[test]
fn the_policy_in_force_is_shown_with_the_origin_of_everything() {
    let desk = desk!();
    let file = desk.write(
        "c.yml",
        "mode: air-gapped\nserve:\n  control_plane: https://plane.example\n",
    );
    let config = file.display();
    let (status, shown) = desk.json(&format!("--config {config} policy show --json"));
    assert_eq!(status, 1, "{shown:#}");
    assert_eq!(shown["mode"], "air-gapped");
    assert_eq!(shown["origin"]["line"], 1);
    let rules = shown["rules"].as_array().unwrap();
    let rule = |name: &str| rules.iter().find(|row| row["rule"] == name).unwrap();
    assert_eq!(rule("network")["allows"], "none");
    assert_eq!(rule("pull")["value"], "never");
    assert_eq!(rule("pull")["origin"]["kind"], "mode");
    assert_eq!(rule("backend")["value"], "native");
    assert_eq!(rule("backend")["violation"], json!(null));
    assert_eq!(rule("callback")["violation"]["rule"], "callback");
    assert_eq!(rule("callback")["origin"]["line"], 3);
    let table = desk.line(&format!("--config {config} policy show"));
    assert!(
        told(&table).starts_with("mode air-gapped ("),
        "{}",
        told(&table)
    );
    let none = desk.line("policy show");
    assert_eq!(code(&none), 0);
    assert!(told(&none).starts_with("no mode:"), "{}", told(&none));
}

#[test]
fn a_configuration_is_held_against_the_rules_and_everything_is_told_at_once() {
    let desk = desk!();
    let file = desk.write(
        "c.yml",
        "sandbox:\n  default_runtime: docker\n  docker: { pull: missing, host: \"tcp://192.0.2.1:2375\" }\n\
         serve:\n  control_plane: https://plane.example\n  otlp: { endpoint: \"http://traces.example\" }\n  \
         callbacks: { allow: [hooks.example, 127.0.0.1] }\n",
    );
    let (status, found) = desk.json(&format!(
        "--mode air-gapped policy validate --json {}",
        file.display()
    ));
    assert_eq!(status, 1);
    let rules: Vec<&str> = found["violations"]
        .as_array()
        .unwrap()
        .iter()
        .map(|violation| violation["rule"].as_str().unwrap())
        .collect();
    assert_eq!(
        rules,
        ["pull", "daemon", "callback", "traces", "callback"],
        "{found:#}"
    );
    assert_eq!(found["valid"], false);
    let good = desk.write("good.yml", "sandbox:\n  limits: { memory: 64m }\n");
    let done = desk.line(&format!("--mode burst policy validate {}", good.display()));
    assert_eq!(code(&done), 0, "{}", told(&done));
    assert!(told(&done).contains("breaks no rule of mode burst"));
    let broken = desk.write("broken.yml", "sandbox: { limts: 1 }\n");
    let done = desk.line(&format!(
        "--mode burst policy validate {}",
        broken.display()
    ));
    assert_eq!(code(&done), 125);
    assert!(
        told(&done).contains("did you mean `limits`"),
        "{}",
        told(&done)
    );
}

#[test]
fn a_draft_is_held_against_the_rules_before_it_is_sealed() {
    let desk = desk!();
    let draft = json!({
        "contract_id": "c", "scope": "s",
        "task": {"kind": "command", "argv": ["true"]},
    });
    let path = desk.write("draft.json", draft.to_string());
    let done = desk.line(&format!(
        "--mode local-only policy validate {}",
        path.display()
    ));
    assert_eq!(code(&done), 0, "{}", told(&done));
    let mut sealed: serde_json::Value =
        serde_json::from_slice(&std::fs::read(desk.seal("payload.json", &draft)).unwrap()).unwrap();
    sealed["scope"] = json!("another");
    let changed = desk.write("changed.json", sealed.to_string());
    let done = desk.line(&format!(
        "--mode local-only policy validate {}",
        changed.display()
    ));
    assert!(
        told(&done).contains("[payload.digest_mismatch]"),
        "{}",
        told(&done)
    );
}

#[test]
fn the_history_is_audited_by_rule() {
    let desk = desk!();
    for line in [
        "run -- true",
        "run --backend host -- true",
        "run --backend host -- echo x",
    ] {
        assert_eq!(code(&desk.line(line)), 0);
    }
    let (status, found) = desk.json("--mode air-gapped policy audit --json --limit 1");
    assert_eq!(status, 1);
    assert_eq!(found["runs"], 3);
    assert_eq!(found["violating"], 2);
    assert_eq!(found["by_rule"], json!({"backend": 2}));
    let listed = found["listed"].as_array().unwrap();
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0]["command"], "echo x");
    let (status, found) = desk.json("--mode docker policy audit --json");
    assert_eq!((status, &found["violating"]), (1, &json!(3)));
    let told_all = desk.line("--mode air-gapped policy audit");
    assert!(
        told(&told_all)
            .ends_with("2 of 3 runs would break a rule of mode air-gapped (backend 2)\n"),
        "{}",
        told(&told_all)
    );
    let later = desk.json("--mode docker policy audit --json --since 2100-01-01");
    assert_eq!((later.0, &later.1["runs"]), (0, &json!(0)));
    assert_eq!(code(&desk.line("policy audit")), 0);
}
