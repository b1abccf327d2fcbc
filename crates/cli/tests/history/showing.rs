//! `runs show` and `runs logs`: what is told of a run, byte for byte in a pipe, and harmless on a terminal.

use cofferdam_testkit::{Finished, Host, Way, host};
use rustix::process::Signal;
use serde_json::Value;

use crate::{on_terminal, ran, text, told};

#[test]
fn a_failure_is_shown_with_its_last_words() {
    let host = host!();
    let script = "for i in $(seq 30); do echo line $i >&2; done; exit 3";
    let id = ran(
        &host,
        &["--tag", "branch=main", "--timeout", "9s", "--memory", "64m"],
        script,
    );
    let page = host.run(["runs", "show", "latest"]);
    page.assert_success();
    let page = page.out();
    for part in [
        id.as_str(),
        "status        failure",
        "exited with code 3",
        "branch=main",
        "wall_time     9 s",
        "memory        64 MiB",
        "network = denied",
        "END OF STDERR\n  line 21\n",
        "  line 30\n",
        &format!("cofferdam runs logs {id}\n"),
    ] {
        assert!(page.contains(part), "no {part:?} in {page}");
    }
    assert!(!page.contains("line 20\n"), "{page}");
    ran(&host, &[], "echo harmless >&2");
    let page = host.run(["runs", "show", "latest"]).out();
    assert!(!page.contains("END OF STDERR"), "{page}");
}

#[test]
fn the_record_of_a_run_is_the_one_that_it_printed() {
    let host = host!();
    let dir = host.workspace(Way::Root);
    host.give(&dir, Way::User);
    let workspace = format!("{}:rw", dir.display());
    let script = "echo out; echo err >&2; echo x > file; kill -9 $$";
    let args = [
        "run",
        "--workspace",
        &workspace,
        "--",
        "sh",
        "-c",
        script,
        "it",
    ];
    let printed = host.json(args);
    let printed = printed.record();
    let shown = told(&host, &["runs", "show", "latest", "--json"]);
    for member in [
        "run_id",
        "started_at",
        "ending",
        "exit_code",
        "signal",
        "usage",
        "enforced_by",
        "isolation",
        "denials",
        "backend",
    ] {
        if let Some(value) = printed.get(member) {
            assert_eq!(shown[member], *value, "{member}");
        }
    }
    assert_eq!(shown["schema"], "cofferdam.history/1");
    assert_eq!(shown["signal"], "SIGKILL");
    assert_eq!(shown["command"].as_array().unwrap().len(), 4);
    assert_eq!(shown["artifacts"][0]["path"], "file");
    assert_eq!(shown["log"]["stdout"]["bytes"], 4);
}

/// Every byte that there is, some of them torn over several writes.
const EVERY_BYTE: &str = "for i in 0 1 2 3; do for j in 0 1 2 3 4 5 6 7; do for k in 0 1 2 3 4 5 6 7; do printf \"\\\\$i$j$k\"; done; done; done; \
                          printf 'e\\033[2J\\n' >&2; printf last";

#[test]
fn a_pipe_gets_each_stream_byte_for_byte() {
    let host = host!();
    let run = host.run(["run", "--", "sh", "-c", EVERY_BYTE]);
    run.assert_success();
    let mut expected: Vec<u8> = (0..=255).collect();
    expected.extend(b"last");
    assert_eq!(run.stdout, expected);
    let log = |flags: &[&str]| {
        let mut args = vec!["runs", "logs", "latest"];
        args.extend(flags);
        host.run(args).stdout
    };
    assert_eq!(log(&["--stdout"]), expected);
    assert_eq!(log(&["--stderr"]), b"e\x1b[2J\n");
    assert_eq!(log(&["--stdout", "--follow"]), expected);
    assert_eq!(log(&[]).len(), expected.len() + 6);
    assert_eq!(log(&["--stdout", "--tail", "100"]), expected);
    // As JSON nothing is lost either.
    let json = host.run(["runs", "logs", "latest", "--json"]);
    let mut joined = Vec::new();
    for line in json.out().lines() {
        let piece: Value = serde_json::from_str(line).unwrap();
        assert_eq!(piece["schema"], "cofferdam.log/1");
        if piece["stream"] == "stdout" {
            joined.extend(bytes_of(&piece));
        }
    }
    assert_eq!(joined, expected);
}

fn bytes_of(piece: &Value) -> Vec<u8> {
    let data = text(&piece["data"]);
    match piece["encoding"].as_str() {
        Some("base64") => from_base64(&data),
        _ => data.into_bytes(),
    }
}

fn from_base64(text: &str) -> Vec<u8> {
    const LETTERS: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let (mut bytes, mut held, mut bits) = (Vec::new(), 0_u32, 0);
    for letter in text.chars() {
        let Some(value) = LETTERS.find(letter).and_then(|at| u32::try_from(at).ok()) else {
            continue;
        };
        held = (held << 6) | value;
        bits += 6;
        if bits >= 8 {
            bits -= 8;
            bytes.extend(u8::try_from((held >> bits) & 0xff));
        }
    }
    bytes
}

#[test]
fn lines_can_be_counted_named_and_timed() {
    let host = host!();
    let script = "echo 1; echo 2; echo 3; printf 4; sleep 0.02; echo oops >&2; sleep 0.02; echo 5";
    ran(&host, &[], script);
    let log = |flags: &[&str]| {
        let mut args = vec!["runs", "logs", "latest"];
        args.extend(flags);
        let done = host.run(args);
        done.assert_success();
        done.out()
    };
    assert_eq!(log(&["--head", "2"]), "1\n2\n");
    assert_eq!(log(&["--stdout", "--tail", "1"]), "45\n");
    assert_eq!(log(&["--tail", "0"]), "");
    assert_eq!(log(&["--stdout", "--head", "99"]), "1\n2\n3\n45\n");
    assert_eq!(
        log(&["--prefix", "--tail", "2"]),
        "[stderr] oops\n[stdout] 45\n"
    );
    let shown = told(&host, &["runs", "show", "latest", "--json"]);
    let timed = log(&["--timestamps"]);
    assert_eq!(timed.lines().count(), 5);
    for line in timed.lines() {
        let (at, rest) = line.split_once(' ').unwrap();
        let at: jiff::Timestamp = at.parse().unwrap();
        let moment = |name: &str| -> jiff::Timestamp { text(&shown[name]).parse().unwrap() };
        let millisecond = jiff::SignedDuration::from_millis(1);
        assert!(at >= moment("started_at") - millisecond, "{line}");
        assert!(at <= moment("ended_at") + millisecond, "{line}");
        assert!(!rest.is_empty());
    }
    for flags in [
        &["--head", "1", "--tail", "1"][..],
        &["--stdout", "--stderr"],
        &["--follow", "--head", "1"],
        &["--json", "--tail", "1"],
        &["--tail", "-1"],
    ] {
        let mut args = vec!["runs", "logs", "latest"];
        args.extend(flags);
        host.run(args).assert_refused(125, "input.invalid");
    }
    ran(&host, &[], "true");
    let nothing = host.run(["runs", "logs", "latest"]);
    nothing.assert_success();
    assert_eq!(nothing.out(), "");
    assert!(nothing.err().contains("wrote nothing"));
}

/// A piece of a line may be the beginning of a secret, so it is not there yet; nobody is told that nothing was written.
#[test]
fn no_output_yet_is_not_no_output() {
    let host = host!();
    let mut run = host
        .launch(["run", "--", "sh", "-c", "printf piece; sleep 60"])
        .start();
    run.await_output("piece");
    let said = || {
        let log = host.run(["runs", "logs", "latest"]);
        log.assert_success();
        log
    };
    let log = said();
    assert!(
        log.out() == "piece" || log.err().contains("is there yet"),
        "{log:#?}"
    );
    run.signal(Signal::KILL);
    let _ = run.finish();
    let log = said();
    assert!(
        log.out() == "piece" || log.err().contains("is kept"),
        "{log:#?}"
    );
}

/// A run that waits until it is let go, in a workspace of its own.
struct Waiting {
    workspace: String,
    gate: std::path::PathBuf,
}

impl Waiting {
    fn new(host: &Host) -> Self {
        let dir = host.workspace(Way::Root);
        host.give(&dir, Way::User);
        Self {
            workspace: format!("{}:rw", dir.display()),
            gate: dir.join("go"),
        }
    }

    fn script(&self, before: &str, after: &str) -> [String; 7] {
        let wait = "while [ ! -e go ]; do sleep 0.01; done";
        let script = format!("{before}; {wait}; {after}");
        let workspace = self.workspace.clone();
        ["run", "--workspace", &workspace, "--", "sh", "-c", &script].map(str::to_owned)
    }

    fn let_go(&self) {
        assert!(std::fs::write(&self.gate, "").is_ok());
    }
}

#[test]
fn a_log_is_followed_to_the_end_of_the_run() {
    let host = host!();
    let waiting = Waiting::new(&host);
    let mut run = host
        .launch(waiting.script(
            "echo zero; echo one; echo err >&2",
            "echo two; printf three",
        ))
        .start();
    run.await_output("one");
    let follow = |flags: &[&str]| {
        let mut args = vec!["runs", "logs", "latest", "--follow"];
        args.extend(flags);
        host.launch(args).start()
    };
    let mut plain = follow(&["--stdout"]);
    plain.await_output("one\n");
    let mut named = follow(&["--prefix"]);
    named.await_output("[stdout] one\n");
    let mut late = follow(&["--stdout", "--tail", "1"]);
    late.await_output("one\n");
    let json = follow(&["--json"]);
    assert!(!plain.is_over() && !named.is_over());
    let show = told(&host, &["runs", "show", "latest", "--json"]);
    assert_eq!(show["status"], "running");
    waiting.let_go();
    late.await_output("three");
    run.finish().assert_success();
    let plain = plain.finish();
    plain.assert_success();
    assert_eq!(plain.out(), "zero\none\ntwo\nthree");
    let named = named.finish().out();
    let mut lines: Vec<&str> = named.lines().collect();
    lines.sort_unstable();
    let expected = [
        "[stderr] err",
        "[stdout] one",
        "[stdout] three",
        "[stdout] two",
        "[stdout] zero",
    ];
    assert_eq!(lines, expected);
    assert_eq!(late.finish().out(), "one\ntwo\nthree");
    let json = json.finish();
    let pieces: Vec<Value> = json
        .out()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let stdout = pieces.iter().filter(|piece| piece["stream"] == "stdout");
    let joined: String = stdout.map(|piece| text(&piece["data"])).collect();
    assert_eq!(joined, "zero\none\ntwo\nthree");
}

/// What is cut from the stored log when a run ends was there to be followed before.
#[test]
fn following_gives_everything_even_where_less_is_kept() {
    let host = host!();
    let waiting = Waiting::new(&host);
    let before = "echo first; seq 100000 299999";
    let after = "seq 300000 499999; echo last";
    let run = loop {
        let mut run = host.launch(waiting.script(before, after)).start();
        run.await_output("299999");
        // One run in 256 takes its journal in itself, before anybody has followed it to its end.
        let id = text(&told(&host, &["runs", "show", "latest", "--json"])["run_id"]);
        if !id.ends_with("ff") {
            break run;
        }
    };
    let mut follower = host
        .launch(["runs", "logs", "latest", "--follow", "--stdout"])
        .start();
    follower.await_output("299999");
    waiting.let_go();
    run.finish().assert_success();
    let followed = follower.finish();
    followed.assert_success();
    let out = followed.out();
    let mut expected = "first\n".to_owned();
    for number in 100_000..500_000 {
        expected.push_str(&format!("{number}\n"));
    }
    expected.push_str("last\n");
    assert!(out == expected, "{} bytes of {}", out.len(), expected.len());
    // The stored log is cut, and says so.
    let kept = host.run(["runs", "logs", "latest", "--stdout"]);
    assert!(kept.stdout.len() <= 1 << 20);
    assert!(kept.out().contains("[TRUNCATED: "));
    assert!(kept.err().contains("were not kept"), "{kept:#?}");
}

#[test]
fn following_ends_with_its_reader() {
    let host = host!();
    let waiting = Waiting::new(&host);
    let mut run = host.launch(waiting.script("echo one", "echo two")).start();
    run.await_output("one");
    let (reader, writer) = std::io::pipe().unwrap();
    let follower = host
        .launch(["runs", "logs", "latest", "--follow"])
        .stdout_to(writer)
        .start();
    drop(reader);
    let followed = follower.finish();
    followed.assert_success();
    assert_eq!(followed.err(), "");
    assert!(!run.is_over());
    waiting.let_go();
    run.finish().assert_success();
}

/// Window title, clearing, cursor, alternate screen, bell, device query, backspace, direction of text, a C1 control, a hyperlink.
const HOSTILE: &str = "\\033]0;owned\\007\\033[2J\\033[10A\\033[?1049h\\007\\033[6nabc\\b\\b\\b\\xe2\\x80\\xae\\xc2\\x9b2J\\033]8;;http://x\\033\\\\";

/// Control characters that are neither line ends nor part of a colour.
fn steering(finished: &Finished) -> Vec<String> {
    let shown = String::from_utf8_lossy(&finished.stdout).into_owned();
    let mut found = Vec::new();
    let mut rest = shown.as_str();
    while let Some(at) = rest.find(|c: char| c.is_control() || c == '\u{202e}') {
        rest = rest.get(at..).unwrap_or_default();
        let sequence: String = rest.chars().take(12).collect();
        let colour = sequence
            .strip_prefix("\u{1b}[")
            .map(|rest| rest.trim_start_matches(|c: char| c.is_ascii_digit() || c == ';'));
        let harmless =
            sequence.starts_with(['\n', '\r']) || colour.is_some_and(|rest| rest.starts_with('m'));
        if !harmless {
            found.push(sequence);
        }
        let mut rest_chars = rest.chars();
        rest_chars.next();
        rest = rest_chars.as_str();
    }
    found
}

#[test]
fn nothing_that_a_run_wrote_steers_the_terminal() {
    let host = host!();
    let dir = host.workspace(Way::Root);
    host.give(&dir, Way::User);
    let workspace = format!("{}:rw", dir.display());
    let write = format!("printf '{HOSTILE}\\n'");
    let escape = "$(printf '\\033]0;owned\\007')";
    let script = format!(
        "{write}; {write} >&2; {write} > file; touch \"name-{escape}\"; printf '\\033[31mred\\033[0m\\n'; exit 1"
    );
    let raw = "\u{1b}]0;owned\u{7}\u{202e}";
    let args = [
        "run",
        "--workspace",
        &workspace,
        "--",
        "sh",
        "-c",
        &script,
        raw,
    ];
    assert_eq!(host.run(args).code(), 1);
    assert_eq!(host.run(args).code(), 1);
    ran(&host, &[], "echo other");
    for args in [
        &["runs", "logs", "latest~1"][..],
        &["runs", "logs", "latest~1", "--stderr"],
        &["runs", "logs", "latest~1", "--follow"],
        &["runs", "logs", "latest~1", "--timestamps"],
        &["runs", "show", "latest~1"],
        &["runs", "list"],
        &["runs", "stats"],
        &["runs", "diff", "latest", "latest~1"],
        &["runs", "prune", "--dry-run", "--max-runs", "1"],
        &["artifacts", "list", "latest~1"],
        &["artifacts", "cat", "latest~2", "file"],
        &["audit", "list"],
    ] {
        let shown = on_terminal(&host, args).finish();
        assert!(!shown.out().is_empty(), "{args:?}");
        assert_eq!(
            steering(&shown),
            Vec::<String>::new(),
            "{args:?}: {shown:?}"
        );
    }
    let log = on_terminal(&host, &["runs", "logs", "latest~1"]).finish();
    assert!(log.out().contains("[stderr]"), "{log:?}");
    assert!(log.out().contains("\u{1b}[31mred\u{1b}[0m"), "{log:?}");
    let plain = on_terminal(&host, &["runs", "logs", "latest~1"]).env("NO_COLOR", "1");
    assert!(!plain.finish().out().contains('\u{1b}'));
}

#[test]
fn a_terminal_gets_a_beginning_of_what_is_not_text() {
    let host = host!();
    ran(&host, &[], "head -c 5000 /dev/zero; echo text >&2");
    let shown = on_terminal(&host, &["runs", "logs", "latest"]).finish();
    let out = shown.out();
    assert!(!out.contains('\0'), "{shown:?}");
    assert!(out.contains("--stdout > FILE"), "{shown:?}");
    assert!(out.contains("text"), "{shown:?}");
    assert!(out.len() < 3000, "{shown:?}");
}

#[test]
fn what_is_longer_than_the_terminal_goes_through_a_pager() {
    let host = host!();
    ran(&host, &[], "seq 100");
    let logs = |flags: &[&str]| {
        let mut args = vec!["runs", "logs", "latest", "--stdout"];
        args.extend(flags);
        on_terminal(&host, &args)
            .env("COFFERDAM_PAGER", "sed s/^/paged:/")
            .finish()
            .out()
    };
    assert_eq!(logs(&[]).matches("paged:").count(), 100);
    assert_eq!(logs(&["--no-pager"]).matches("paged:").count(), 0);
    assert_eq!(logs(&["--tail", "3"]).matches("paged:").count(), 0);
    let piped = host
        .launch(["runs", "logs", "latest"])
        .env("COFFERDAM_PAGER", "sed s/^/paged:/")
        .finish();
    assert!(!piped.out().contains("paged:"));
    // A pager that ends early takes nothing with it.
    let quit = on_terminal(&host, &["runs", "logs", "latest"]).env("COFFERDAM_PAGER", "head -n 1");
    quit.finish().assert_success();
}
