//! What arrives on the wire when somebody means harm: heads that two readers read differently, bodies with two lengths, endless heads, and many who never finish.

use std::io::{BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use cofferdam_testkit::{Way, host};
use serde_json::json;

use crate::client::{Reply, connect, read_all};
use crate::daemon::Daemon;

const BODY: &str = r#"{"command":["true"]}"#;
/// A second request in the same bytes: what a smuggler wants to have answered.
const HIDDEN: &str = "GET /v1/languages HTTP/1.1\r\nHost: localhost\r\n\r\n";

/// The statuses of all answers to these bytes; the connection must end by itself.
fn answers(daemon: &Daemon<'_>, bytes: &[u8]) -> Vec<u16> {
    let mut stream = connect(daemon.address);
    // A peer that answers and closes before it has read all is right to do so.
    let _ = stream.write_all(bytes);
    let replies = read_all(stream);
    replies.iter().map(|reply| reply.status).collect()
}

fn post(headers: &str, body: &str) -> String {
    format!(
        "POST /v1/runs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n{headers}\r\n{body}"
    )
}

#[test]
fn a_message_with_two_meanings_is_refused_and_nothing_after_it_is_read() {
    let host = host!();
    let daemon = Daemon::start(&host, Way::all()[0], &[]);
    let length = BODY.len();
    let chunks = format!("{length:x}\r\n{BODY}\r\n0\r\n\r\n");
    let refused_framing = [
        "Content-Length: 20\r\nContent-Length: 21",
        "Content-Length: 20, 21",
        "Content-Length: +20",
        "Content-Length: -1",
        "Content-Length: 0x14",
        "Content-Length: 20 20",
        "Content-Length:",
        "Content-Length: 184467440737095516160",
        "Content-Length : 20",
        "Transfer-Encoding: xchunked",
        "Transfer-Encoding: identity",
        "Transfer-Encoding: chunked, identity",
        "Transfer-Encoding: identity, chunked",
        "Transfer-Encoding: gzip, chunked",
        "Transfer-Encoding: chunked, chunked",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity",
        "Transfer-Encoding: \u{b}chunked",
        "Transfer-Encoding:\r\n chunked",
    ];
    for headers in refused_framing {
        let body = if headers.starts_with("Content") {
            BODY
        } else {
            &chunks
        };
        let bytes = post(&format!("{headers}\r\n"), &format!("{body}{HIDDEN}"));
        assert_eq!(answers(&daemon, bytes.as_bytes()), [400], "{headers:?}");
    }
    // Both lengths: the chunks count, and what comes after them is not trusted.
    for headers in [
        "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
    ] {
        let bytes = post(headers, &format!("{chunks}{HIDDEN}"));
        let got = answers(&daemon, bytes.as_bytes());
        assert!(got == [200] || got == [400], "{headers:?} {got:?}");
    }
    let old = format!(
        "POST /v1/runs HTTP/1.0\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n{chunks}{HIDDEN}"
    );
    assert_eq!(answers(&daemon, old.as_bytes()), [400]);

    let huge = "x".repeat(100_000);
    for chunk in [
        format!("ffffffffffffffff1\r\n{BODY}\r\n"),
        format!("-14\r\n{BODY}\r\n"),
        format!("0x14\r\n{BODY}\r\n"),
        format!("14\n{BODY}\r\n"),
        format!("14\r\n{BODY}XX"),
        format!("14;x={huge}\r\n{BODY}\r\n"),
        format!("14\r\n{BODY}\r\n0\r\nX: {huge}\r\n\r\n"),
    ] {
        let bytes = post(
            "Transfer-Encoding: chunked\r\n",
            &format!("{chunk}0\r\n\r\n{HIDDEN}"),
        );
        let got = answers(&daemon, bytes.as_bytes());
        assert_eq!(got, [400], "{:.40}", chunk);
    }
    daemon.end();
}

#[test]
fn a_head_that_is_none_is_refused_and_the_daemon_goes_on() {
    let host = host!();
    let daemon = Daemon::start(&host, Way::all()[0], &[]);
    let many: String = (0..101).map(|n| format!("X{n}: a\r\n")).collect();
    let cases: [(String, &[u16]); 16] = [
        ("GET /health HTTP/1.1\r\n\r\n".into(), &[400]),
        (
            "GET /health HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n".into(),
            &[400],
        ),
        (
            "GET http://evil.example/v1/runs HTTP/1.1\r\nHost: localhost\r\n\r\n".into(),
            &[400],
        ),
        (
            "GET /health HTTP/1.1\r\nHost: localhost\r\nX: a\r\n b\r\n\r\n".into(),
            &[400],
        ),
        (
            "GET /health HTTP/1.1\r\nHost: localhost\r\nX: a\rb\r\n\r\n".into(),
            &[400],
        ),
        (
            "GET /health HTTP/1.1\r\nHost: localhost\r\nX: a\0b\r\n\r\n".into(),
            &[400],
        ),
        (
            "GET /health HTTP/1.1\r\nHost: localhost\r\nX y: a\r\n\r\n".into(),
            &[400],
        ),
        ("GET /health\r\n\r\n".into(), &[400]),
        (
            "GET /health HTTP/2.0\r\nHost: localhost\r\n\r\n".into(),
            &[400],
        ),
        (
            "G<T /health HTTP/1.1\r\nHost: localhost\r\n\r\n".into(),
            &[400],
        ),
        ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".into(), &[]),
        ("\u{16}\u{3}\u{1}\u{2}\0\u{1}\0".into(), &[400]),
        ("\0".repeat(500), &[400]),
        (
            format!("GET /health HTTP/1.1\r\nHost: localhost\r\n{many}\r\n"),
            &[431],
        ),
        (
            format!(
                "GET /health HTTP/1.1\r\nHost: localhost\r\nX: {}\r\n\r\n",
                "a".repeat(40_000)
            ),
            &[431],
        ),
        (
            format!(
                "GET /{} HTTP/1.1\r\nHost: localhost\r\n\r\n",
                "a".repeat(70_000)
            ),
            &[431],
        ),
    ];
    for (bytes, expected) in cases {
        assert_eq!(answers(&daemon, bytes.as_bytes()), expected, "{bytes:.60}");
    }
    assert_eq!(daemon.get("/health").json()["status"], "healthy");
    daemon.end();
}

#[test]
fn requests_behind_each_other_are_answered_in_their_order() {
    let host = host!();
    let daemon = Daemon::start(&host, Way::all()[0], &[]);
    let mut bytes = String::new();
    for number in 0..20 {
        let body = json!({"command": ["echo", number.to_string()]}).to_string();
        bytes.push_str(&post(&format!("Content-Length: {}\r\n", body.len()), &body));
        bytes.push_str("HEAD /health HTTP/1.1\r\nHost: localhost\r\n\r\n");
        // Unread bodies belong to their own request too.
        bytes.push_str("POST /nothing HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\nabc");
    }
    let mut stream = connect(daemon.address);
    stream.write_all(bytes.as_bytes()).unwrap();
    let mut stream = BufReader::new(stream);
    for number in 0..20 {
        let run = Reply::read(&mut stream).unwrap();
        assert_eq!(run.json()["stdout"]["data"], format!("{number}\n"));
        let head = Reply::read_without_body(&mut stream).unwrap();
        assert_eq!(head.status, 200);
        assert_eq!(Reply::read(&mut stream).unwrap().status, 404);
    }
    daemon.end();
}

/// Each sends a byte now and then, and never an end. The time for a head counts from its beginning, not from its last byte.
#[test]
fn those_who_never_finish_are_cut_off_and_hold_up_nobody() {
    const MANY: usize = 300;
    let host = host!();
    let daemon = Daemon::start(&host, Way::all()[0], &[]);
    let mut slow: Vec<TcpStream> = (0..MANY).map(|_| connect(daemon.address)).collect();
    for stream in &mut slow {
        stream
            .write_all(b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: ")
            .unwrap();
        stream.set_nonblocking(true).unwrap();
    }
    let began = Instant::now();
    let mut slowest = Duration::ZERO;
    while !slow.is_empty() {
        assert!(
            began.elapsed() < Duration::from_secs(90),
            "{} are left",
            slow.len()
        );
        let asked = Instant::now();
        assert_eq!(daemon.get("/health").status, 200);
        slowest = slowest.max(asked.elapsed());
        slow.retain_mut(|stream| stream.write_all(b"x").is_ok() && is_open(stream));
        std::thread::sleep(Duration::from_millis(200));
    }
    assert!(slowest < Duration::from_secs(8), "/health took {slowest:?}");
    daemon.end();
}

fn is_open(stream: &mut TcpStream) -> bool {
    let mut answer = [0; 512];
    matches!(stream.read(&mut answer), Err(error) if error.kind() == std::io::ErrorKind::WouldBlock)
}
