//! What verbs print with `--json`, as docs/json.md says. Verbs that need somebody at the other end are held against the page where they are tested.

use std::path::Path;
use std::time::Duration;

use cofferdam_testkit::{Host, Need, Way, host, shape};
use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(120);

/// One document, or one on each line.
#[track_caller]
fn told(host: &Host, dir: &Path, line: &str) -> Vec<Value> {
    let args: Vec<&str> = line.split(' ').collect();
    let script = format!("cd '{}' && exec \"$@\"", dir.display());
    let launch = host.launch(&args).from_shell(&script);
    let done = launch.env("HOME", dir).start().finish_within(PATIENCE);
    let text = String::from_utf8_lossy(&done.stdout).into_owned();
    let parts: Vec<&str> = match serde_json::from_str::<Value>(&text) {
        Ok(_) => vec![&text],
        Err(_) => text.lines().collect(),
    };
    assert!(!parts.is_empty(), "{line}: {done:#?}");
    parts
        .iter()
        .map(|part| match shape::read(&args, part.as_bytes()) {
            Some(told) => told,
            None => panic!("{line}: no JSON: {done:#?}"),
        })
        .collect()
}

#[test]
fn what_is_kept_is_told_as_the_page_says() {
    let host = host!();
    let dir = host.workspace(Way::all()[0]);
    std::fs::create_dir(dir.join("job")).unwrap();
    host.give(&dir.join("job"), Way::all()[0]);
    for line in [
        "run --json --workspace job:rw -- cp /usr/bin/true made",
        "runs list --json",
        "runs list --count --json",
        "runs show latest --json",
        "runs diff latest latest --json",
        "runs stats --json",
        "runs save latest -o saved --json",
        "runs prune --dry-run --json",
        "artifacts list latest --json",
        "artifacts get latest made -o made --json",
        "export --last 1 -o bundle.zip --json",
        "import bundle.zip --dry-run --json",
        "audit list --json",
        "audit verify --json",
        "results list --json",
        "results stats --json",
        "results clear --json",
        "policy audit --json",
    ] {
        told(&host, &dir, line);
    }
    host.run(["run", "--", "echo", "a line"]);
    let pieces = told(&host, &dir, "runs logs latest --json");
    assert_eq!(pieces[0]["data"], "a line\n", "{pieces:?}");
}

#[test]
fn settings_keys_and_codes_are_told_as_the_page_says() {
    let host = host!();
    let dir = host.workspace(Way::all()[0]);
    std::fs::write(dir.join("some.yml"), "{}\n").unwrap();
    for line in [
        "config show --json",
        "policy show --json",
        "policy validate some.yml --json",
        "token create ci --json",
        "token list --json",
        "token revoke ci --json",
        "key new own.key --json",
        "key show own.key --json",
        "keys generate work --json",
        "keys show work --json",
        "keys import again own.key --json",
        "keys list --json",
        "keys remove again --json",
        "chain key account.key --json",
        "explain --json",
        "explain queue.full --json",
        "explain 137 --json",
        "doctor --json",
        "cache list --cache-dir . --json",
        "cache stats --cache-dir . --json",
        "cache clear --cache-dir . --json",
        "images list --json",
    ] {
        told(&host, &dir, line);
    }
}

#[test]
fn payloads_are_told_as_the_page_says() {
    let host = host!();
    let dir = host.workspace(Way::all()[0]);
    let draft = r#"{"contract_id": "C-1", "scope": "a test", "task": {"kind": "command", "argv": ["true"]}}"#;
    let write = |name: &str, bytes: &[u8]| std::fs::write(dir.join(name), bytes).unwrap();
    write("draft.json", draft.as_bytes());
    for (line, name) in [
        ("seal draft.json", "payload.json"),
        ("execute payload.json", "envelope.json"),
    ] {
        let document = told(&host, &dir, line).remove(0);
        write(name, document.to_string().as_bytes());
    }
    told(&host, &dir, "verify payload.json envelope.json --json");
    told(
        &host,
        &dir,
        "verify payload.json envelope.json --rerun --json",
    );
    told(&host, &dir, "receipt check nonsense --json");
}

#[test]
fn projects_are_told_as_the_page_says() {
    let host = host!(Need::Python);
    let dir = host.workspace(Way::all()[0]);
    let write = |name: &str, text: &str| {
        let path = dir.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    write("project/setup.cfg", "");
    write("project/main.py", "print('hello')\n");
    write(
        "project/test_x.py",
        "import unittest\nclass T(unittest.TestCase):\n    def test_a(self): pass\n",
    );
    write(
        "project/.agent/config.yml",
        "commands:\n  check: echo checked\n",
    );
    write("cases/one/command", "echo hello\n");
    write("inputs/1", "one\n");
    write("inputs/2", "two\n");
    for line in [
        "detect project --json",
        "build project --cache-dir cache --json",
        "test project --cache-dir cache --json",
        "start project --cache-dir cache --json",
        "task --list project --json",
        "task check project --cache-dir cache --json",
        "golden bless cases --json",
        "golden run cases --json",
    ] {
        told(&host, &dir, line);
    }
    let lines = told(
        &host,
        &dir,
        "run --language python --inputs inputs --code print(input())",
    );
    assert_eq!(lines.len(), 2, "{lines:?}");
}
