//! The API against its own description: schemathesis makes requests out of /openapi.json, good ones and bad ones, and checks every answer.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use cofferdam_testkit::{Host, Way, host};
use serde_json::{Value, json};

use crate::daemon::Daemon;

/// A request can be as described and still ask for what is not there or not possible here: such refusals are right answers. So are a full queue, a language that
/// this host does not have, and a deadline that has passed.
const SETTINGS: &str = r#"
[checks.not_a_server_error]
expected-statuses = ["2xx", "3xx", "4xx", "501", "503", "504"]

[checks.positive_data_acceptance]
expected-statuses = ["2xx", "400", "403", "404", "409", "413", "422", "429", "501", "503", "504"]

[warnings]
fail-on = ["missing_auth", "unresolvable_reference", "unsupported_regex", "method_not_allowed", "missing_deserializer"]
"#;

#[test]
fn every_answer_is_as_the_description_says() {
    let tester = tester();
    let host = host!();
    let (daemon, secret) = Daemon::start_with_token(
        &host,
        way(),
        &["--max-timeout", "2s", "--concurrency", "2", "--grace", "1s"],
    );
    // From a file: a description that it fetches itself is not among what it asks for.
    let document = daemon.get("/openapi.json").json();
    std::fs::write(host.dir().join("openapi.json"), document.to_string()).unwrap();
    let told = test(&tester, &host, &daemon, &secret, SETTINGS, &[]);
    let all = operations(&document, |_| true);
    assert!(
        all > 10 && told.contains(&format!("Tested: {all}\n")),
        "{told}"
    );

    // What only a run that is there can be asked for.
    let work = json!({"language": "shell", "code": "echo hello | tee made.txt"});
    let run = daemon.post("/v1/runs", &work).json();
    let id = run["run_id"].as_str().unwrap();
    let settings = format!(
        "{SETTINGS}\n[parameters]\n\"path.id\" = \"{id}\"\n\"path.other\" = \"{id}\"\n\"path.path\" = \"made.txt\"\n"
    );
    let only = ["--include-path-regex", r"^/v1/runs/\{id\}"];
    let told = test(&tester, &host, &daemon, &secret, &settings, &only);
    let of_runs = operations(&document, |path| path.starts_with("/v1/runs/{id}"));
    assert!(
        of_runs > 5 && told.contains(&format!("Tested: {of_runs}\n")),
        "{told}"
    );
    assert!(!told.contains("Missing test data"), "{told}");

    daemon.until("/health", |health| {
        health["status"] == "healthy" && health["active_executions"] == 0
    });
    assert!(!daemon.log().contains(&secret), "the log holds a secret");
    daemon.end();
}

/// Its report; fails when it has found anything.
fn test(
    tester: &Path,
    host: &Host,
    daemon: &Daemon<'_>,
    secret: &str,
    settings: &str,
    more: &[&str],
) -> String {
    let file = host.dir().join("schemathesis.toml");
    std::fs::write(&file, settings).unwrap();
    let server = format!("http://{}", daemon.address);
    let output = Command::new(tester)
        .arg("--config-file")
        .arg(&file)
        .args(["--no-color", "run"])
        .arg(host.dir().join("openapi.json"))
        .args(["--url", &server, "--checks", "all", "--continue-on-failure"])
        // To delete a run is to cancel it. What it did stays history.
        .args(["--exclude-checks", "use_after_free"])
        .args(["--header", &format!("Authorization: Bearer {secret}")])
        .args(["--max-examples", "25", "--seed", "4", "--no-shrink"])
        .args(["--generation-database", "none", "--request-timeout", "30"])
        .args(more)
        .current_dir(host.dir())
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    let wrong = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{told}\n{wrong}");
    told
}

fn operations(document: &Value, is_meant: impl Fn(&str) -> bool) -> usize {
    let paths = document["paths"].as_object().unwrap().iter();
    paths
        .filter(|(path, _)| is_meant(path))
        .map(|(_, methods)| methods.as_object().unwrap().len())
        .sum()
}

fn way() -> Way {
    Way::all()[0]
}

/// Not skipped anywhere: an API that nobody has tried is not known to be as described.
fn tester() -> PathBuf {
    let place = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../target/schemathesis/bin/schemathesis"
    );
    assert!(
        Path::new(place).exists(),
        "there is no schemathesis at {place}: `cargo xtask test` installs it there and says what is missing where it cannot"
    );
    place.into()
}
