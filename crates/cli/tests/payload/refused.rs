//! What is not a payload, or not one for this version, is refused clearly.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use cofferdam_testkit::desk;
use cofferdam_testkit::desk::{code, stderr};
use serde_json::{Value, json};

use crate::exchange::{Exchange as _, assert_refused, cofferdam, cofferdam_fed, shell, sum, with};

#[test]
fn all_problems_of_a_draft_are_named_at_once() {
    let draft = json!({ "scope": " ", "task": { "kind": "command", "argv": [] }, "max_memory_mb": 0, "max_cpus": 1e300, "colour": "red" });
    let done = cofferdam_fed(&["seal", "-"], draft.to_string().as_bytes());
    assert_refused(&done, "payload.invalid");
    let said = stderr(&done);
    for field in [
        "contract_id",
        "scope",
        "task.argv",
        "max_memory_mb",
        "max_cpus",
        "colour",
    ] {
        assert!(said.contains(&format!("cofferdam: {field}")), "{said}");
    }
}

#[test]
fn json_that_two_readers_could_read_differently_is_refused_with_its_place() {
    let deep = format!("{}{}", "[".repeat(200_000), "]".repeat(200_000));
    for (text, place) in [
        (
            "{\n  \"scope\": \"a\",\n  \"scope\": \"b\"\n}",
            "line 3, column",
        ),
        ("{\"max_memory_mb\": 9007199254740993}", "line 1, column"),
        (
            "{\"max_memory_mb\": 123456789012345678901234567890}",
            "line 1, column",
        ),
        ("{\"scope\": \"\\ud800\"}", "line 1, column"),
        ("{} {}", "line 1, column 4"),
        ("{\"a\": NaN}", "line 1, column"),
        ("{\"a\": 1,}", "line 1, column"),
        ("", "line 1, column 1"),
        (&deep, "more than 64 deep"),
    ] {
        for verb in ["seal", "execute"] {
            let done = cofferdam_fed(&[verb, "-"], text.as_bytes());
            assert_refused(&done, "input.malformed_json");
            assert!(stderr(&done).contains(place), "{}", stderr(&done));
        }
    }
    let done = cofferdam_fed(&["seal", "-"], b"{\"scope\": \"\xff\"}");
    assert_refused(&done, "input.malformed_json");
}

#[test]
fn what_cannot_be_read_is_said_and_never_waited_for() {
    let desk = desk!();
    let large = desk.path("large.json");
    fs::File::create(&large).unwrap().set_len(20 << 20).unwrap();
    let seal = |path: &Path| {
        let begun = Instant::now();
        let done = cofferdam(&["seal".as_ref(), path.as_ref()]);
        assert!(begun.elapsed() < Duration::from_secs(60));
        done
    };
    assert_refused(&seal(&large), "input.malformed_json");
    assert_refused(&seal(Path::new("/dev/zero")), "input.malformed_json");
    assert_refused(&seal(desk.root()), "input.unreadable");
    assert_refused(&seal(&desk.path("absent")), "input.unreadable");
    let fifo = desk.path("fifo");
    rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, 0o600.into()).unwrap();
    assert_refused(&seal(&fifo), "input.unreadable");
    let done = cofferdam_fed(&["seal", "-"], &vec![b' '; 17 << 20]);
    assert_refused(&done, "input.malformed_json");
}

#[test]
fn a_pipe_with_a_writer_is_read() {
    let desk = desk!();
    let fifo = desk.path("fifo");
    rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, 0o600.into()).unwrap();
    let (path, text) = (fifo.clone(), sum().to_string());
    let writer = std::thread::spawn(move || fs::write(path, text).unwrap());
    let done = cofferdam(&["seal".as_ref(), fifo.as_ref()]);
    writer.join().unwrap();
    assert_eq!(code(&done), 0, "{}", stderr(&done));
}

#[test]
fn what_this_version_cannot_do_is_refused_and_not_tried() {
    let desk = desk!();
    let execute = |draft: &Value| {
        let payload = desk.sealed(draft);
        cofferdam(&["execute".as_ref(), payload.as_ref()])
    };
    let cobol = json!({ "kind": "source", "language": "cobol", "code": "1" });
    let draft = with(shell(""), "task", cobol);
    assert_refused(&execute(&draft), "backend.unsupported_task");
    assert_refused(
        &execute(&with(shell("true"), "network_allowed", true)),
        "payload.invalid",
    );
    assert_refused(
        &execute(&with(shell("true"), "max_output_size_kb", 1 << 20)),
        "limit.unenforceable",
    );
    let payload = desk.sealed(&shell("true"));
    let done = cofferdam(&[
        "execute".as_ref(),
        payload.as_ref(),
        "--backend".as_ref(),
        "wasm".as_ref(),
    ]);
    assert_refused(&done, "backend.unsupported_task");
    let done = cofferdam(&[
        "execute".as_ref(),
        payload.as_ref(),
        "--worker".as_ref(),
        "not a name".as_ref(),
    ]);
    assert_eq!(code(&done), 125);
}

#[test]
fn garbage_of_every_kind_is_refused_without_a_panic() {
    let desk = desk!();
    let good = fs::read(desk.sealed(&sum())).unwrap();
    let mut inputs: Vec<Vec<u8>> = [0, 1, 17, good.len() / 2, good.len() - 3]
        .map(|cut| good[..cut].to_vec())
        .into();
    for at in (0..good.len()).step_by(good.len() / 12) {
        let mut broken = good.clone();
        broken[at] ^= 0x55;
        inputs.push(broken);
    }
    inputs.extend(
        ["null", "0", "\"\"", "{\"digest\":1}", "[]", "1e999", "-"].map(|t| t.as_bytes().to_vec()),
    );
    for input in inputs {
        let done = cofferdam_fed(&["execute", "-"], &input);
        assert_eq!(code(&done), 125, "{}", String::from_utf8_lossy(&input));
        assert!(!stderr(&done).contains("panicked"), "{}", stderr(&done));
        assert!(!stderr(&done).is_empty());
    }
}
