//! How fast secrets are taken out of output: MB/s on one core for several kinds of it, best of several rounds, and what a redactor costs to make.
//!
//! `cargo run --release -p cofferdam-store --example redact_speed`

use std::hint::black_box;
use std::io::{self, Write};
use std::time::{Duration, Instant};

use cofferdam_store::sift::redact::{Redactor, Rules};

const SIZE: usize = 16 << 20;
const PIECE: usize = 64 << 10;
const ROUNDS: usize = 9;

type Generator = fn(&mut Numbers, &mut Vec<u8>);

fn main() -> io::Result<()> {
    let kinds: [(&str, Generator); 18] = [
        ("log lines", log_line),
        ("source code", source_line),
        ("json log", json_line),
        ("english text", prose_line),
        ("binary", binary_block),
        ("base64", base64_line),
        ("secret-rich", secret_line),
        ("private keys", pem_block),
        ("all `=`", |_, text| text.extend_from_slice(&[b'='; 64])),
        ("all `:`", |_, text| text.extend_from_slice(&[b':'; 64])),
        ("all `token `", |_, text| text.extend_from_slice(b"token ")),
        ("all `key=`", |_, text| text.extend_from_slice(b"key=")),
        ("all `token=<`", |_, text| {
            text.extend_from_slice(b"token=<a>")
        }),
        ("all `://a:`", |_, text| text.extend_from_slice(b"://a:")),
        ("all `token:`", |_, text| text.extend_from_slice(b"token:")),
        ("all `password: `", |_, text| {
            text.extend_from_slice(b"password: ")
        }),
        ("all `-eyJ`", |_, text| text.extend_from_slice(b"-eyJ")),
        ("all `eyJ`", |_, text| {
            text.extend_from_slice(b".eyJabcdefgh")
        }),
    ];
    let mut out = io::stdout().lock();
    let rules = Rules::builtin();
    for (name, generator) in kinds {
        let text = generate(generator);
        let (best, count) = measure(&rules, &text);
        writeln!(
            out,
            "{name:<16} {:>6.0} MB/s  {count:>7} secrets",
            speed(&text, best)
        )?;
    }
    let values = [
        "correct-horse-battery",
        "0123456789abcdef0123",
        "s3cr3t-v4lue-number-3",
    ];
    let values = Rules::builtin().with_values(values.map(str::as_bytes));
    let text = generate(log_line);
    let (best, _) = measure(&values, &text);
    writeln!(
        out,
        "{:<16} {:>6.0} MB/s  (log lines)",
        "three values",
        speed(&text, best)
    )?;
    if let Ok(pattern) = Rules::builtin().with_patterns(["internal-[0-9]+"]) {
        let (best, _) = measure(&pattern, &text);
        writeln!(
            out,
            "{:<16} {:>6.0} MB/s  (log lines)",
            "one pattern",
            speed(&text, best)
        )?;
    }
    writeln!(
        out,
        "rules and redactor made in {} ns",
        construction().as_nanos()
    )
}

fn speed(text: &[u8], time: Duration) -> f64 {
    let bytes = u32::try_from(text.len()).unwrap_or(u32::MAX);
    f64::from(bytes) / 1e6 / time.as_secs_f64()
}

fn measure(rules: &Rules, text: &[u8]) -> (Duration, u64) {
    let mut best = Duration::MAX;
    let mut count = 0;
    let mut out = Vec::with_capacity(text.len() + text.len() / 2);
    for _ in 0..ROUNDS {
        out.clear();
        let mut redactor = Redactor::new(rules);
        let begin = Instant::now();
        for piece in text.chunks(PIECE) {
            redactor.push(piece, &mut out);
        }
        redactor.finish(&mut out);
        best = best.min(begin.elapsed());
        count = redactor.count();
        black_box(&out);
    }
    (best, count)
}

fn construction() -> Duration {
    const TIMES: u32 = 10_000;
    let begin = Instant::now();
    for _ in 0..TIMES {
        black_box(Redactor::new(&black_box(Rules::builtin())));
    }
    begin.elapsed() / TIMES
}

fn generate(generator: Generator) -> Vec<u8> {
    let mut numbers = Numbers(0x9e37_79b9_7f4a_7c15);
    let mut text = Vec::with_capacity(SIZE + 4096);
    while text.len() < SIZE {
        generator(&mut numbers, &mut text);
    }
    text
}

/// xorshift64: the same texts in every run.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        let length = u64::try_from(from.len()).unwrap_or(1);
        let at = usize::try_from(self.next() % length).unwrap_or(0);
        from.get(at).copied().unwrap_or_default()
    }
}

fn add(text: &mut Vec<u8>, line: &str) {
    text.extend_from_slice(line.as_bytes());
    text.push(b'\n');
}

fn log_line(numbers: &mut Numbers, text: &mut Vec<u8>) {
    let level = numbers.pick(&["INFO", "DEBUG", "WARN", "ERROR"]);
    let module = numbers.pick(&["server::http", "db.pool", "worker-3", "app/cache"]);
    let what = numbers.pick(&[
        "request finished method=GET path=/api/v1/items status=200 duration=12ms",
        "connection from 10.0.0.17:51422 accepted, peer=client-7 queue=3",
        "cache miss: key=user:4711 region=eu-west-1 size=1832",
        "retrying after timeout; attempt=2 backoff=250ms url=https://example.com/health",
    ]);
    let number = numbers.next() % 1_000_000;
    add(
        text,
        &format!("2026-11-15T13:37:03.{number:06}Z {level} [{module}] {what} id={number:x}"),
    );
}

fn source_line(numbers: &mut Numbers, text: &mut Vec<u8>) {
    let line = numbers.pick(&[
        "    fn next_token(&mut self) -> Option<Token> {",
        "        let length = self.buffer.len().saturating_sub(usize::from(self.offset));",
        "        match self.peek() { Some(Token::Ident(name)) => self.symbols.get(&name), _ => None }",
        "    /// The value that stands there, or none at the end of the stream.",
        "        if key == expected_key && !self.seen.insert(key) { return Err(ParseError::Twice { key }); }",
        "    for (index, entry) in entries.iter().enumerate() {",
        "    pub const MAX_TOKENS: usize = 4096;",
        "}",
        "",
    ]);
    add(text, line);
}

fn json_line(numbers: &mut Numbers, text: &mut Vec<u8>) {
    let id = numbers.next();
    let level = numbers.pick(&["info", "warn", "error"]);
    let message = numbers.pick(&[
        "request finished",
        "user logged in",
        "file not found: \\\"a.txt\\\"",
    ]);
    add(
        text,
        &format!(
            "{{\"timestamp\":\"2026-11-15T13:37:03Z\",\"level\":\"{level}\",\"message\":\"{message}\",\"request_id\":\"{id:016x}\",\"status\":200,\"duration_ms\":12.5,\"tags\":[\"a\",\"b\"],\"path\":\"/v1/items\"}}"
        ),
    );
}

fn prose_line(numbers: &mut Numbers, text: &mut Vec<u8>) {
    let line = numbers.pick(&[
        "The key was then given to the keeper, and when the ten men met the others they went through the gate at night.",
        "Every monkey has its own ways; a turkey less so. They read and heard what the wizard had said.",
        "It is a truth universally acknowledged that software which has not been measured is not fast, whatever is said.",
    ]);
    add(text, line);
}

fn binary_block(numbers: &mut Numbers, text: &mut Vec<u8>) {
    for _ in 0..512 {
        text.extend_from_slice(&numbers.next().to_le_bytes());
    }
}

fn base64_line(numbers: &mut Numbers, text: &mut Vec<u8>) {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for _ in 0..76 {
        let at = usize::try_from(numbers.next() % 64).unwrap_or(0);
        text.extend(ALPHABET.get(at));
    }
    text.push(b'\n');
}

fn secret_line(numbers: &mut Numbers, text: &mut Vec<u8>) {
    let line = numbers.pick(&[
        "API_KEY=0123456789abcdef DB_PASSWORD=hunter2",
        "{\"api_key\": \"abcdef0123456789\", \"password\":\"correct horse\"}",
        "Authorization: Bearer eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.SflKxwRJSMeKKF2QT4fwpMeJf36",
        "remote https://joe:s3cret@github.com/a/b uses ghp_0123456789abcdefghijABCDEFGHIJ012345",
        "AKIAIOSFODNN7EXAMPLE and sk-proj-abcdefghij0123456789ABCD and xoxb-123456789012-abcdef",
    ]);
    add(text, line);
}

fn pem_block(_: &mut Numbers, text: &mut Vec<u8>) {
    add(text, "-----BEGIN RSA PRIVATE KEY-----");
    for _ in 0..24 {
        add(
            text,
            "MIIEpAIBAAKCAQEA7bq0Zk1f3mY2r9v8w7x6y5z4A3B2C1D0E9F8G7H6I5J4K3L2",
        );
    }
    add(text, "-----END RSA PRIVATE KEY-----");
}
