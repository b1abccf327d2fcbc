//! Source code instead of a command: `cofferdam run --language`.

use cofferdam_testkit::{Need, Way, host};

#[test]
fn a_script_runs_in_a_directory_of_its_own() {
    let host = host!(Need::Python);
    for way in Way::all() {
        let run = |args: &[&str]| {
            let all = [&["run", "--language", "python"], args].concat();
            host.launch(all).way(way).finish()
        };
        let ran = run(&[
            "--code",
            "import sys; print(sys.argv[1:], open('main.py').read()[:10])",
            "--",
            "a b",
        ]);
        assert_eq!(
            (ran.code(), ran.out().as_str()),
            (0, "['a b'] import sys\n"),
            "{ran:#?}"
        );
        assert_eq!(run(&["--code", "raise SystemExit(3)"]).code(), 3);
        let work = host.history(way).join("work");
        assert_eq!(std::fs::read_dir(work).unwrap().count(), 0);
    }
}

#[test]
fn a_handlers_answer_cannot_be_forged_by_printing() {
    let host = host!(Need::Python);
    let code = "def handler(event):\n  print('{\"ok\": true, \"value\": 666}')\n  return {'sum': sum(event['xs'])}";
    let args = [
        "run",
        "--language",
        "python",
        "--code",
        code,
        "--event",
        "{\"xs\": [1, 2, 3]}",
    ];
    let ran = host.run(args);
    assert_eq!(ran.out(), "{\"ok\": true, \"value\": 666}\n{\"sum\":6}\n");
    let record = host.json(args);
    assert_eq!(
        record.record()["result"]["data"],
        "{\"ok\":true,\"value\":{\"sum\":6}}",
        "{record:#?}"
    );
}

#[test]
fn a_handler_that_fails_says_why_and_so_does_one_that_does_not_answer() {
    let host = host!(Need::Python);
    let run = |code: &str| {
        host.run([
            "run",
            "--language",
            "python",
            "--event",
            "{}",
            "--code",
            code,
        ])
    };
    let raised = run("def handler(event):\n  raise ValueError('no')");
    assert_eq!(raised.code(), 1);
    assert!(raised.err().contains("ValueError: no"), "{raised:#?}");
    let missing = run("x = 1");
    assert_eq!(missing.code(), 1);
    assert!(missing.err().contains("handler"), "{missing:#?}");
    let silent = run("import os\nos._exit(0)");
    assert_eq!(silent.code(), 1);
    assert!(silent.err().contains("without an answer"), "{silent:#?}");
    let nonsense = run("def handler(event):\n  return float('nan')");
    assert_eq!(nonsense.code(), 1);
    assert!(
        nonsense.err().contains("the value is not JSON"),
        "{nonsense:#?}"
    );
}

#[test]
fn what_is_compiled_is_compiled_inside() {
    let host = host!(Need::Gcc);
    let code = "#include <stdio.h>\nint main(int c, char **v) { puts(v[1]); return 4; }";
    let ran = host.run(["run", "--language", "c", "--code", code, "--", "hello"]);
    assert_eq!((ran.code(), ran.out().as_str()), (4, "hello\n"), "{ran:#?}");
    // The compiler sees what the program would see, and no more.
    let prying = host.run([
        "run",
        "--language",
        "c",
        "--code",
        "#include \"/etc/shadow\"\nint main(){}",
    ]);
    assert_eq!(prying.code(), 1);
    assert!(prying.err().contains("No such file"), "{prying:#?}");
    // Whoever asked for JSON gets it, also of a compiler.
    let wrong = host.json(["run", "--language", "c", "--code", "int main() { return }"]);
    assert_eq!(wrong.code(), 1, "{wrong:#?}");
    assert_eq!(wrong.record()["exit_code"], 1, "{wrong:#?}");
    assert!(wrong.err().contains("error:"), "{wrong:#?}");
}

#[test]
fn code_and_inputs_from_a_pipe_are_not_waited_for_for_ever() {
    let host = host!(Need::Python);
    let pipe = host.dir().join("pipe");
    let (kind, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR);
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, kind, mode, 0).unwrap();
    let pipe = pipe.to_str().unwrap();
    for args in [&[pipe][..], &["--code", "1", "--inputs", pipe]] {
        let ran = host.run([&["run", "--language", "python"], args].concat());
        assert_eq!(ran.code(), 125, "{args:?}: {ran:#?}");
        assert!(ran.err().contains("nobody writes to"), "{args:?}: {ran:#?}");
    }
    // Nothing has run yet, so that whoever ends it ends it as any program.
    let (reader, writer) = std::io::pipe().unwrap();
    let waiting = host
        .launch(["run", "--language", "python", "-"])
        .stdin_from(reader)
        .start();
    waiting.signal(rustix::process::Signal::TERM);
    let ended = waiting.finish_within(std::time::Duration::from_secs(60));
    drop(writer);
    assert_ne!(ended.status.code(), Some(0), "{ended:#?}");
}

#[test]
fn what_cannot_be_run_is_said() {
    let host = host!();
    for (args, said) in [
        (
            &["--language", "pyhton", "--code", "1"][..],
            "did you mean `python`",
        ),
        (&["--language", "python"], "needs source code"),
        (&["--language", "python", "/no/such/file"], "cannot read"),
        (
            &["--language", "python", "--code", "1", "--event", "{"],
            "--event",
        ),
        (
            &["--language", "c", "--code", "1", "--event", "{}"],
            "handler",
        ),
        (&["--code", "1", "--", "true"], "--language"),
    ] {
        let ran = host.run([&["run"], args].concat());
        assert_eq!(ran.code(), 125, "{args:?}: {ran:#?}");
        assert!(ran.err().contains(said), "{args:?}: {ran:#?}");
    }
}

#[test]
fn code_is_compiled_once_and_run_for_every_input() {
    let host = host!(Need::Gcc);
    let dir = tempfile::tempdir().unwrap();
    for (name, text) in [("1.txt", "1"), ("2.txt", "x"), ("3.txt", "30")] {
        std::fs::write(dir.path().join(name), text).unwrap();
    }
    let code = "#include <stdio.h>\nint main(void) { int n; if (scanf(\"%d\", &n) != 1) return 3; printf(\"%d\", n + 1); return 0; }";
    let path = dir.path().to_str().unwrap();
    let ran = host.run(["run", "--language", "c", "--code", code, "--inputs", path]);
    let lines: Vec<serde_json::Value> = ran
        .out()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let told: Vec<_> = lines
        .iter()
        .map(|line| {
            (
                line["input"].as_str(),
                line["stdout"]["data"].as_str(),
                line["exit_code"].as_i64(),
            )
        })
        .collect();
    assert_eq!(
        told,
        [
            (Some("1.txt"), Some("2"), Some(0)),
            (Some("2.txt"), Some(""), Some(3)),
            (Some("3.txt"), Some("31"), Some(0)),
        ],
        "{ran:#?}"
    );
    assert_eq!(ran.code(), 3);
    let list = dir.path().join("list.json");
    std::fs::write(&list, r#"[{"event": 1}, {"event": [2]}]"#).unwrap();
    let ran = host.run([
        "run",
        "--language",
        "python",
        "--code",
        "def handler(event):\n    return {'got': event}",
        "--inputs",
        list.to_str().unwrap(),
    ]);
    let values: Vec<String> = ran
        .out()
        .lines()
        .map(|line| {
            serde_json::from_str::<serde_json::Value>(line).unwrap()["return_value"].to_string()
        })
        .collect();
    assert_eq!(values, [r#"{"got":1}"#, r#"{"got":[2]}"#], "{ran:#?}");
    let ended = |code: &str| {
        let list = list.to_str().unwrap();
        let args = [
            "run",
            "--language",
            "python",
            "--code",
            code,
            "--inputs",
            list,
        ];
        host.run(args).code()
    };
    assert_eq!(ended("def handler(event):\n    return 1"), 0);
    assert_eq!(
        ended("import os\nos._exit(0)"),
        1,
        "no answer is no success"
    );
    std::fs::write(&list, r#"[{"event": 1}, {"stdin": "x"}]"#).unwrap();
    let mixed = host.run([
        "run",
        "--language",
        "python",
        "--code",
        "1",
        "--inputs",
        list.to_str().unwrap(),
    ]);
    assert_eq!(mixed.code(), 125, "{mixed:#?}");
}
