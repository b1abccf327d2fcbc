//! The repo contract: commands that a project names itself.

use cofferdam_testkit::{Need, Way, host};

use crate::fixture::{UNITTEST, act, project};

const CONTRACT: &str = "commands:\n  build: echo built in ${project_root} > built\n  lint: null\n  check:\n    command: test \"$MODE\" = strict && pwd\n    working_directory: sub\n    environment: {MODE: strict}\n  slow:\n    command: sleep 60\n    timeout: 1s\n  two: ['true', exit 3, touch never]\n";

#[test]
fn commands_of_the_project_take_the_place_of_ours_and_run_inside() {
    let host = host!();
    let files = [
        (".agent/config.yml", CONTRACT),
        ("setup.py", ""),
        ("sub/x", ""),
    ];
    let dir = project(&host, Way::Root, &files);
    let ran = act(&host, Way::Root, "build", &dir, &["--json"]);
    assert_eq!(ran.code(), 0, "{ran:#?}");
    assert_eq!(
        std::fs::read_to_string(dir.join("built")).unwrap(),
        "built in /work\n"
    );
    let ran = act(&host, Way::Root, "lint", &dir, &["--json"]);
    assert_eq!(
        (ran.code(), &ran.told()["verdict"]),
        (0, &"nothing".into()),
        "{ran:#?}"
    );
    let ran = act(&host, Way::Root, "task check", &dir, &[]);
    assert!(
        ran.code() == 0 && ran.err().contains("/work/sub\n"),
        "{ran:#?}"
    );
    let ran = act(&host, Way::Root, "task two", &dir, &["--json"]);
    assert_eq!(ran.code(), 1, "{ran:#?}");
    assert!(!dir.join("never").exists());
    let ran = act(&host, Way::Root, "task lint", &dir, &[]);
    assert!(
        ran.code() == 125 && ran.err().contains("disabled"),
        "{ran:#?}"
    );
}

#[test]
fn a_time_limit_of_the_project_can_only_be_shorter() {
    let host = host!();
    let dir = project(&host, Way::Root, &[(".agent/config.yml", CONTRACT)]);
    let ran = act(&host, Way::Root, "task slow", &dir, &["--json"]);
    assert_eq!(ran.code(), 124, "{ran:#?}");
    let longer = CONTRACT.replace("timeout: 1s", "timeout: 1h");
    let dir = project(&host, Way::Root, &[(".agent/config.yml", &longer)]);
    let ran = act(
        &host,
        Way::Root,
        "task slow",
        &dir,
        &["--json", "--timeout", "1s"],
    );
    assert_eq!(ran.code(), 124, "{ran:#?}");
}

#[test]
fn a_contract_is_listed_and_its_mistakes_are_told_with_their_lines() {
    let host = host!(Need::Python);
    let dir = project(&host, Way::Root, &[(".agent/config.yml", CONTRACT)]);
    let place = dir.to_str().unwrap();
    let both = host.run(["task", "--list", "build", place]);
    assert!(
        both.code() == 125 && both.err().contains("leave the name out"),
        "{both:#?}"
    );
    let list = host
        .launch(["task", "--list", place, "--json"])
        .env("XDG_CACHE_HOME", host.dir())
        .finish();
    assert_eq!(
        list.told()["commands"]["two"],
        serde_json::json!(["true", "exit 3", "touch never"]),
        "{list:#?}"
    );
    assert_eq!(list.told()["commands"]["lint"], serde_json::Value::Null);
    let bad = "commands:\n  build: make ${nope}\n  test: ''\n";
    let mut files = vec![(".agent/config.yml", bad)];
    files.extend(UNITTEST);
    let dir = project(&host, Way::Root, &files);
    let ran = act(&host, Way::Root, "test", &dir, &[]);
    assert_eq!(ran.code(), 125);
    assert!(
        ran.err()
            .contains(".agent/config.yml:2: commands.build: there is no variable `${nope}`"),
        "{ran:#?}"
    );
    assert!(
        ran.err()
            .contains(".agent/config.yml:3: commands.test: is empty"),
        "{ran:#?}"
    );
}

#[test]
fn a_command_of_the_project_never_runs_without_walls() {
    let host = host!();
    let contract = "commands:\n  restore: touch ${project_root}/owned\n  check: touch owned\n";
    let files = [(".agent/config.yml", contract), ("setup.py", "")];
    let dir = project(&host, Way::Root, &files);
    for verb in ["restore", "task check"] {
        let ran = act(&host, Way::Root, verb, &dir, &["--backend", "host"]);
        assert!(
            ran.code() == 125 && ran.err().contains("runs only inside"),
            "{ran:#?}"
        );
        assert!(!dir.join("owned").exists(), "{verb}");
        let inside = act(&host, Way::Root, verb, &dir, &[]);
        assert_eq!(inside.code(), 0, "{inside:#?}");
        std::fs::remove_file(dir.join("owned")).unwrap();
    }
}
