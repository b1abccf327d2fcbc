//! What another party can check: keys, signatures and receipts, running again, classes of outputs, and answers that are given again.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test file: what fails here fails the test"
)]

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use cofferdam_testkit::desk::{code, json as read, stderr, stdout};
use cofferdam_testkit::{Desk, desk};
use serde_json::{Value, json};

trait Exchange {
    /// Runs a payload into an envelope file.
    fn execute(&self, payload: &str, envelope: &str, more: &[&str]) -> Value;

    fn verify(&self, payload: &str, envelope: &str, more: &[&str]) -> (i32, Value);
}

impl Exchange for Desk {
    fn execute(&self, payload: &str, envelope: &str, more: &[&str]) -> Value {
        let done = self.run([&["execute", payload], more].concat());
        let (_, found) = read(&done);
        self.write(envelope, &done.stdout);
        found
    }

    fn verify(&self, payload: &str, envelope: &str, more: &[&str]) -> (i32, Value) {
        read(&self.run([&["verify", payload, envelope, "--json"], more].concat()))
    }
}

fn shell(script: &str) -> Value {
    json!({
        "contract_id": "CONTRACT-1", "scope": "a test", "deadline": "2099-01-01T00:00:00Z",
        "task": {"kind": "command", "argv": ["/bin/sh", "-c", script]},
    })
}

fn with(mut draft: Value, name: &str, value: Value) -> Value {
    draft[name] = value;
    draft
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn keys_are_made_listed_shown_exported_imported_and_removed_and_never_printed() {
    let desk = desk!();
    assert_eq!(desk.ok(&["keys", "list"]), "");
    let public = desk.ok(&["keys", "generate", "work"]);
    assert_eq!(public.trim().len(), 44);
    let file = desk.path("data/keys/work.key");
    assert_eq!(mode(&file), 0o600);
    let secret = fs::read_to_string(&file).unwrap();
    let secret = secret.lines().nth(1).unwrap();
    let listed: Value = serde_json::from_str(&desk.ok(&["keys", "list", "--json"])).unwrap();
    let listed = &listed["keys"];
    assert_eq!(listed[0]["name"], "work");
    assert_eq!(listed[0]["holds"], "secret");
    assert_eq!(listed[0]["public_key"], public.trim());
    assert_eq!(desk.ok(&["keys", "show", "work"]), public);
    let pem = desk.ok(&["keys", "export", "work"]);
    assert!(pem.starts_with("-----BEGIN PUBLIC KEY-----"), "{pem}");
    assert_eq!(desk.ok(&["keys", "show", "work", "--pem"]), pem);
    desk.write("work.pub", &pem);
    desk.ok(&["keys", "import", "again", "work.pub"]);
    let list = desk.ok(&["keys", "list"]);
    assert!(
        list.contains("again") && list.contains("trusted") && list.contains("signs"),
        "{list}"
    );
    desk.ok(&["keys", "export", "work", "--secret", "--output", "out.key"]);
    assert_eq!(mode(&desk.path("out.key")), 0o600);
    for said in [pem, list, desk.ok(&["keys", "list", "--json"])] {
        assert!(!said.contains(&secret[24..]), "a secret is printed: {said}");
    }
    for refused in [
        &["keys", "generate", "work"][..],
        &["keys", "generate", "../x"],
        &["keys", "export", "work", "--secret"],
        &["keys", "export", "work", "--secret", "--output", "out.key"],
        &["keys", "show", "nobody"],
        &["keys", "import", "other", "missing"],
    ] {
        let done = desk.run(refused);
        assert_eq!(code(&done), 125, "{refused:?}");
        assert!(
            stderr(&done).starts_with("cofferdam: "),
            "{}",
            stderr(&done)
        );
    }
    desk.ok(&["keys", "remove", "work"]);
    assert!(!file.exists());
    desk.ok(&["keys", "import", "work", "out.key"]);
    assert_eq!(desk.ok(&["keys", "show", "work"]), public);
}

/// A signed envelope in the files `payload.json` and `envelope.json`.
fn signed(desk: &Desk) -> Value {
    desk.ok(&["keys", "generate", "work"]);
    desk.seal("payload.json", &shell("echo hi; echo log >&2"));
    desk.execute("payload.json", "envelope.json", &["--sign", "work"])
}

#[test]
fn a_signed_envelope_holds_and_its_receipt_stands_alone() {
    let desk = desk!();
    let envelope = signed(&desk);
    let (exit, findings) = desk.verify("payload.json", "envelope.json", &["--key", "work"]);
    assert_eq!(
        (exit, &findings["holds"]),
        (0, &json!(true)),
        "{findings:#}"
    );
    assert_eq!(findings["signature"]["signer"]["name"], "work");
    assert_eq!(findings["signature"]["signer"]["trusted"], true);
    let line = desk.ok(&["receipt", "make", "payload.json", "envelope.json"]);
    assert_eq!(Some(line.trim()), envelope["receipt"].as_str());
    assert!(line.len() < 1024, "{} bytes", line.len());
    assert_eq!(line.lines().count(), 1);
    let said = desk.fed(
        [
            "receipt",
            "check",
            "-",
            "--payload",
            "payload.json",
            "--envelope",
            "envelope.json",
            "--key",
            "work",
            "--json",
        ],
        line.as_bytes(),
    );
    assert_eq!(code(&said), 0, "{}", stdout(&said));
    let said: Value = serde_json::from_slice(&said.stdout).unwrap();
    assert_eq!(said["fits"], true);
    assert_eq!(said["statement"]["ending"], "exited:0");
    assert_eq!(said["statement"]["backend"], "native");
    assert_eq!(said["statement"]["engine"], env!("CARGO_PKG_VERSION"));
    let payload: Value =
        serde_json::from_slice(&fs::read(desk.path("payload.json")).unwrap()).unwrap();
    assert_eq!(said["statement"]["payload"], payload["digest"]);
    let text = desk.ok(&["receipt", "check", line.trim()]);
    assert!(
        text.contains("signed by work") && text.ends_with("fits\n"),
        "{text}"
    );
}

#[test]
fn a_change_of_any_field_of_a_signed_envelope_is_found() {
    let desk = desk!();
    let envelope = signed(&desk);
    let other = |value: &Value| match value {
        Value::String(text) => json!(format!("{text}x")),
        Value::Number(number) => json!(number.as_f64().unwrap() + 1.0),
        Value::Null => json!("x"),
        Value::Array(_) => json!([]),
        _ => json!({}),
    };
    let mut tried = 0;
    for (name, value) in envelope.as_object().unwrap() {
        let mut changed = envelope.clone();
        changed[name] = other(value);
        desk.write("changed.json", changed.to_string());
        let (exit, findings) = desk.verify("payload.json", "changed.json", &[]);
        assert_eq!(
            (exit, &findings["holds"]),
            (1, &json!(false)),
            "{name}: {findings:#}"
        );
        tried += 1;
    }
    for (name, value) in envelope["produced_by"].as_object().unwrap() {
        let mut changed = envelope.clone();
        changed["produced_by"][name] = other(value);
        desk.write("changed.json", changed.to_string());
        let (exit, findings) = desk.verify("payload.json", "changed.json", &[]);
        assert_eq!(exit, 1, "produced_by.{name}: {findings:#}");
        tried += 1;
    }
    assert!(tried > 20, "{tried}");
    let mut bare = envelope;
    bare.as_object_mut().unwrap().shift_remove("receipt");
    desk.write("changed.json", bare.to_string());
    assert_eq!(
        desk.verify("payload.json", "changed.json", &[]).0,
        0,
        "unsigned is no lie"
    );
    let (exit, findings) = desk.verify("payload.json", "changed.json", &["--require-signature"]);
    assert_eq!(exit, 1, "but is refused where a signature counts");
    assert_eq!(findings["problems"][0]["field"], "receipt");
}

#[test]
fn another_key_and_another_payload_are_refused() {
    let desk = desk!();
    signed(&desk);
    desk.ok(&["keys", "generate", "other"]);
    let (exit, findings) = desk.verify("payload.json", "envelope.json", &["--key", "other"]);
    assert_eq!(
        (exit, &findings["problems"][0]["field"]),
        (1, &json!("receipt.key"))
    );
    let key = desk.ok(&["keys", "show", "work"]);
    desk.write("trusted", format!("# ours\nalice {key}"));
    desk.ok(&["keys", "remove", "work"]);
    assert_eq!(
        desk.verify("payload.json", "envelope.json", &["--require-signature"])
            .0,
        1
    );
    let (exit, findings) = desk.verify("payload.json", "envelope.json", &["--trusted", "trusted"]);
    assert_eq!(
        (exit, &findings["signature"]["signer"]["name"]),
        (0, &json!("alice"))
    );
    let (exit, findings) = desk.verify("payload.json", "envelope.json", &[]);
    assert_eq!(
        (exit, &findings["signature"]["signer"]["trusted"]),
        (0, &json!(false))
    );
    // The same work under another name: neither its envelope nor its receipt passes.
    desk.seal("other.json", &shell("echo hi; echo log >&2"));
    let (exit, _) = desk.verify("other.json", "envelope.json", &["--key", key.trim()]);
    assert_eq!(exit, 1);
    let line = desk.ok(&["receipt", "make", "payload.json", "envelope.json"]);
    let replayed = desk.run([
        "receipt",
        "check",
        line.trim(),
        "--payload",
        "other.json",
        "--json",
    ]);
    let findings: Value = serde_json::from_slice(&replayed.stdout).unwrap();
    assert_eq!(
        (code(&replayed), &findings["problems"][0]["field"]),
        (1, &json!("receipt.payload"))
    );
    assert_eq!(
        code(&desk.run([
            "receipt",
            "make",
            "other.json",
            "envelope.json",
            "--sign",
            "other"
        ])),
        125
    );
    assert_eq!(code(&desk.run(["receipt", "check", "cdr1.x.y"])), 1);
    assert_eq!(
        code(&desk.run(["execute", "payload.json", "--sign", "nobody"])),
        125
    );
}

#[test]
fn bundles_are_signed_by_the_name_of_a_key() {
    let desk = desk!();
    let public = desk.ok(&["keys", "generate", "work"]);
    desk.ok(&["run", "--", "true"]);
    desk.ok(&[
        "export",
        "latest",
        "--sign",
        "work",
        "-o",
        "b.cofferdam.zip",
    ]);
    desk.ok(&[
        "import",
        "b.cofferdam.zip",
        "--dry-run",
        "--trust",
        public.trim(),
    ]);
    let other = desk.ok(&["keys", "generate", "other"]);
    let refused = desk.run([
        "import",
        "b.cofferdam.zip",
        "--dry-run",
        "--trust",
        other.trim(),
    ]);
    assert_eq!(code(&refused), 125);
}

#[test]
fn a_rerun_is_the_same_another_or_not_comparable() {
    let desk = desk!();
    desk.seal("payload.json", &shell("date +%s%N"));
    desk.execute("payload.json", "envelope.json", &[]);
    let (exit, findings) = desk.verify("payload.json", "envelope.json", &["--rerun"]);
    assert_eq!(
        (exit, &findings["rerun"]["outcome"]),
        (1, &json!("different"))
    );
    assert_eq!(
        findings["rerun"]["first_difference"]["pointer"],
        "/output/stdout"
    );
    desk.seal(
        "payload.json",
        &with(shell("date +%s%N"), "pure", json!(false)),
    );
    desk.execute("payload.json", "envelope.json", &[]);
    let (exit, findings) = desk.verify("payload.json", "envelope.json", &["--rerun"]);
    assert_eq!(
        (exit, &findings["rerun"]["outcome"]),
        (2, &json!("not_comparable"))
    );
    assert_eq!(findings["rerun"]["why"], "declared_varying");
    assert_eq!(findings["holds"], false);
    desk.seal("payload.json", &shell("echo same"));
    let mut envelope = desk.execute("payload.json", "envelope.json", &[]);
    let (exit, findings) = desk.verify("payload.json", "envelope.json", &["--rerun"]);
    assert_eq!((exit, &findings["rerun"]["outcome"]), (0, &json!("same")));
    // A worker that says that memory was not enough; here it is.
    envelope["status"] = json!("ERROR");
    envelope["output"] = Value::Null;
    envelope["error_message"] = json!("stopped");
    envelope["verdict"] =
        json!({"violation": "MEMORY_LIMIT_EXCEEDED", "limit": null, "evidence": "x"});
    envelope["produced_by"]["ending"] = json!("stopped:memory");
    envelope["output_size_kb"] = json!(4.0 / 1024.0);
    let proof = cofferdam_contract::envelope::proof_of_work(
        envelope["payload_id"].as_str().unwrap(),
        b"null",
    );
    envelope["proof_of_work"] = json!(proof);
    desk.write("stopped.json", envelope.to_string());
    let (exit, findings) = desk.verify("payload.json", "stopped.json", &["--rerun"]);
    assert_eq!(
        (exit, &findings["rerun"]["why"]),
        (2, &json!("limit")),
        "{findings:#}"
    );
    let words = desk.run(["verify", "payload.json", "stopped.json", "--rerun"]);
    assert!(
        stdout(&words).contains("not comparable"),
        "{}",
        stdout(&words)
    );
}

#[test]
fn what_the_payload_declares_unimportant_is_no_difference() {
    let desk = desk!();
    // Each time another order, and numbers that are a little apart.
    let script = "n=$(date +%N | sed 's/^0*//'); echo \"{\\\"rows\\\": [$((n % 2)), $((1 - n % 2))], \\\"mean\\\": 1.00000000$((n % 9))}\"";
    let draft = with(
        shell(script),
        "expected_output_format",
        json!({"type": "object"}),
    );
    let outcomes = |class: Value| -> Vec<String> {
        desk.seal("payload.json", &with(draft.clone(), "output_class", class));
        desk.execute("payload.json", "envelope.json", &[]);
        let each = (0..4).map(|_| {
            let (_, findings) = desk.verify("payload.json", "envelope.json", &["--rerun"]);
            findings["rerun"]["outcome"].as_str().unwrap().to_owned()
        });
        each.collect()
    };
    let loose = outcomes(json!({"relative_tolerance": 1e-6, "unordered_arrays": ["/rows"]}));
    assert_eq!(loose, ["same"; 4]);
    let strict = outcomes(json!("canonical_json"));
    assert!(strict.contains(&"different".to_owned()), "{strict:?}");
    let exact = outcomes(json!("exact"));
    assert!(exact.contains(&"different".to_owned()), "{exact:?}");
}

#[test]
fn a_pure_payload_is_answered_again_and_a_rerun_never_is() {
    let desk = desk!();
    let draft = with(shell("date +%s%N"), "pure", json!(true));
    desk.seal("one.json", &draft);
    desk.seal("two.json", &draft);
    let first = desk.execute("one.json", "one.envelope.json", &[]);
    let again = desk.execute("two.json", "two.envelope.json", &["--worker", "other"]);
    assert_eq!(again["output"], first["output"]);
    assert_eq!(
        again["cached"],
        json!({"run_id": first["produced_by"]["run_id"]})
    );
    assert_eq!(first["cached"], Value::Null);
    assert_eq!(
        desk.verify("two.json", "two.envelope.json", &[]).0,
        0,
        "with a proof of its own"
    );
    let (exit, findings) = desk.verify("two.json", "two.envelope.json", &["--rerun"]);
    assert_eq!(
        (exit, &findings["rerun"]["outcome"]),
        (1, &json!("different")),
        "{findings:#}"
    );
    let fresh = desk.execute("two.json", "x.json", &["--no-cache"]);
    assert_ne!(fresh["output"], first["output"]);
    assert_eq!(
        desk.execute("two.json", "x.json", &[])["output"],
        first["output"]
    );
    let other = desk.execute("two.json", "x.json", &["--backend", "host"]);
    assert_ne!(other["output"], first["output"], "another backend");
    // What it reads is part of the question.
    fs::create_dir(desk.path("job")).unwrap();
    desk.write("job/input", "1");
    let read = with(shell("cat /work/input; date +%s%N"), "pure", json!(true));
    desk.seal("read.json", &read);
    let ask = || desk.execute("read.json", "x.json", &["--workspace", "job"])["output"].clone();
    let one = ask();
    assert_eq!(ask(), one);
    desk.write("job/input", "2");
    assert_ne!(ask(), one);
    desk.write("job/input", "1");
    assert_eq!(ask(), one);
}

#[test]
fn a_pure_command_is_run_once_and_told_alike() {
    let desk = desk!();
    let clock = ["--", "sh", "-c", "cat; date +%s%N; echo warn >&2; exit 3"];
    let ask = |flags: &[&str], input: &str| {
        let args = [&["run"], flags, &clock[..]].concat();
        let done = desk.fed(&args, input.as_bytes());
        assert_eq!(code(&done), 3, "{}", stderr(&done));
        (stdout(&done), stderr(&done))
    };
    let (first, warned) = ask(&["--pure"], "in\n");
    assert_eq!(warned, "warn\n");
    let (again, told) = ask(&["--pure"], "in\n");
    assert_eq!(again, first);
    assert!(
        told.starts_with("warn\ncofferdam: a known answer, of run "),
        "{told}"
    );
    for (flags, input) in [
        (&["--pure"][..], "other\n"),
        (&[], "in\n"),
        (&["--pure", "--no-cache"], "in\n"),
        (&["--pure", "--no-history"], "in\n"),
        (&["--pure", "--memory", "100m"], "in\n"),
        (&["--pure", "--env", "A=b"], "in\n"),
    ] {
        assert_ne!(ask(flags, input).0, first, "{flags:?}");
    }
    let json = |flags: &[&str]| -> Value {
        let args = [
            &["run", "--json", "--stdin", "none"],
            flags,
            &["--", "date", "+%s%N"],
        ]
        .concat();
        serde_json::from_str(&desk.ok(&args)).unwrap()
    };
    let (one, other) = (json(&["--pure"]), json(&["--pure"]));
    assert_eq!(one.get("cached"), None);
    assert_eq!(other["cached"], json!({"run_id": one["run_id"]}));
    assert_eq!(other["stdout"], one["stdout"]);
    for contradiction in [
        &["--workspace", ".:rw"][..],
        &["--mount", "/tmp:/data:rw"],
        &["--backend", "host"],
        &["--output-limit", "unlimited"],
    ] {
        let done = desk.run([&["run", "--pure"], contradiction, &["--", "true"]].concat());
        assert_eq!(code(&done), 125, "{contradiction:?}: {}", stderr(&done));
    }
}

#[test]
fn an_answer_of_a_limit_is_given_again_only_where_that_is_asked() {
    let desk = desk!();
    let ask = |flags: &[&str]| -> Value {
        let args = [
            &[
                "run",
                "--json",
                "--pure",
                "--stdin",
                "none",
                "--timeout",
                "4s",
            ],
            flags,
            &["--", "sh", "-c", "date +%s%N; sleep 60"],
        ]
        .concat();
        let done = desk.run(&args);
        assert_eq!(code(&done), 124, "{}", stderr(&done));
        serde_json::from_slice(&done.stdout).unwrap()
    };
    let first = ask(&[]);
    assert_ne!(ask(&[])["stdout"], first["stdout"]);
    let kept = ask(&["--cache-limits"]);
    let again = ask(&["--cache-limits"]);
    assert_eq!(
        (&again["stdout"], &again["ending"]),
        (&kept["stdout"], &kept["ending"])
    );
    assert_eq!(again["cached"], json!({"run_id": kept["run_id"]}));
    assert_eq!(ask(&[]).get("cached"), None, "and not without");
}

#[test]
fn source_code_is_neither_compiled_nor_run_again() {
    let desk = desk!();
    let code = "#include <stdio.h>\n#include <time.h>\nint main(void){struct timespec t;clock_gettime(CLOCK_REALTIME,&t);printf(\"%ld%09ld\\n\",t.tv_sec,t.tv_nsec);}";
    let ask = |more: &str| {
        let code = format!("{code}{more}");
        desk.ok(&[
            "run",
            "--pure",
            "--stdin",
            "none",
            "--language",
            "c",
            "--code",
            &code,
        ])
    };
    let first = ask("");
    assert_eq!(ask(""), first);
    assert_ne!(ask("\n// other\n"), first);
}

#[test]
fn known_answers_are_listed_counted_and_cleared() {
    let desk = desk!();
    let ask = || desk.ok(&["run", "--pure", "--stdin", "none", "--", "date", "+%s%N"]);
    let first = ask();
    let listed: Value = serde_json::from_str(&desk.ok(&["results", "list", "--json"])).unwrap();
    let listed = &listed["answers"];
    assert_eq!(listed.as_array().unwrap().len(), 1);
    assert_eq!(listed[0]["about"], "date +%s%N");
    assert!(desk.ok(&["results", "list"]).contains("date +%s%N"));
    let stats: Value = serde_json::from_str(&desk.ok(&["results", "stats", "--json"])).unwrap();
    assert_eq!(
        (&stats["entries"], &stats["damaged"]),
        (&json!(1), &json!(0))
    );
    assert!(desk.ok(&["results", "stats"]).starts_with("1 answer, "));
    assert_eq!(desk.ok(&["results", "clear"]), "removed 1 answer\n");
    assert_ne!(ask(), first);
}
