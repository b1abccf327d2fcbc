//! A daemon on a port of its own with a data directory of its own, and a client that speaks plain HTTP/1.1 over a socket, so that what is tested is what is on the wire.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use cofferdam_server::{Config, Running, Server};
use cofferdam_store::DataDir;
use serde_json::Value;

pub(crate) struct Daemon {
    pub(crate) dir: tempfile::TempDir,
    pub(crate) running: Option<Running>,
    pub(crate) address: SocketAddr,
}

/// For what must come: only a daemon that never gets there meets it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
/// Between two looks: whoever looks all the time keeps the one he waits for from its work.
pub(crate) const AGAIN: Duration = Duration::from_millis(5);

pub(crate) type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Daemon {
    pub(crate) fn start(change: impl FnOnce(&mut Config)) -> Outcome<Self> {
        Self::start_in(tempfile::tempdir()?, change)
    }

    pub(crate) fn start_in(
        dir: tempfile::TempDir,
        change: impl FnOnce(&mut Config),
    ) -> Outcome<Self> {
        let mut config = Config::new(DataDir::at(dir.path().join("data")));
        config.listen = SocketAddr::from(([127, 0, 0, 1], 0));
        config.grace = Duration::from_secs(2);
        change(&mut config);
        let running = Server::start(config)?;
        let address = running.address();
        Ok(Self {
            dir,
            running: Some(running),
            address,
        })
    }

    /// Ends it, and starts another in its place.
    pub(crate) fn restart(&mut self) -> Outcome<()> {
        if let Some(running) = self.running.take() {
            running.stop();
        }
        let mut config = Config::new(DataDir::at(self.dir.path().join("data")));
        config.listen = SocketAddr::from(([127, 0, 0, 1], 0));
        let running = Server::start(config)?;
        self.address = running.address();
        self.running = Some(running);
        Ok(())
    }

    pub(crate) fn get(&self, path: &str) -> Outcome<Reply> {
        self.send("GET", path, &[], b"")
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> Outcome<Reply> {
        self.send("POST", path, &[JSON], body.to_string().as_bytes())
    }

    pub(crate) fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Outcome<Reply> {
        let mut stream = self.open(method, path, headers, body)?;
        read_reply(&mut stream)
    }

    /// The request is on its way; nothing has been read.
    pub(crate) fn open(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Outcome<BufReader<TcpStream>> {
        let mut stream = TcpStream::connect(self.address)?;
        stream.set_read_timeout(Some(Duration::from_secs(120)))?;
        let mut head = format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n",
            self.address
        );
        if !body.is_empty() || method == "POST" {
            head.push_str(&format!("Content-Length: {}\r\n", body.len()));
        }
        for (name, value) in headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str("\r\n");
        stream.write_all(head.as_bytes())?;
        stream.write_all(body)?;
        Ok(BufReader::new(stream))
    }

    /// Asks until `done` says so; the bound is for a daemon that never gets there.
    pub(crate) fn until(&self, path: &str, done: impl Fn(&Value) -> bool) -> Outcome<Value> {
        let began = Instant::now();
        loop {
            let found = self.get(path)?.json();
            if done(&found) {
                return Ok(found);
            }
            if began.elapsed() > PATIENCE {
                return Err(format!("{path} never got there: {found}").into());
            }
            std::thread::sleep(AGAIN);
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if let Some(running) = self.running.take() {
            running.stop();
        }
    }
}

pub(crate) const JSON: (&str, &str) = ("Content-Type", "application/json");

impl Reply {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or(Value::Null)
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let found = self
            .headers
            .iter()
            .find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }

    /// Status and error code.
    pub(crate) fn error(&self) -> (u16, String) {
        let code = self.json()["error_code"].as_str().map(str::to_owned);
        (self.status, code.unwrap_or_default())
    }
}

/// A machine without a C compiler says so. In CI that is a failure.
#[allow(clippy::print_stderr, reason = "a skip is counted by its line")]
pub(crate) fn skipped_without_a_compiler(reply: &Reply) -> bool {
    if reply.error() != (501, "language.unavailable".to_owned()) {
        return false;
    }
    assert!(std::env::var_os("CI").is_none(), "{}", reply.text());
    eprintln!("SKIPPED (1): needs a C compiler");
    true
}

pub(crate) fn read_head(stream: &mut BufReader<TcpStream>) -> Outcome<Reply> {
    let mut line = String::new();
    stream.read_line(&mut line)?;
    let status = line.split(' ').nth(1).ok_or("no status")?.parse()?;
    let mut headers = Vec::new();
    loop {
        let mut line = String::new();
        stream.read_line(&mut line)?;
        match line.trim_end().split_once(": ") {
            Some((name, value)) => headers.push((name.to_owned(), value.to_owned())),
            None => break,
        }
    }
    Ok(Reply {
        status,
        headers,
        body: Vec::new(),
    })
}

pub(crate) fn read_reply(stream: &mut BufReader<TcpStream>) -> Outcome<Reply> {
    let mut reply = read_head(stream)?;
    if reply.header("transfer-encoding") == Some("chunked") {
        while let Some(chunk) = read_chunk(stream)? {
            reply.body.extend(chunk);
        }
    } else if let Some(length) = reply.header("content-length") {
        let mut body = vec![0; length.parse()?];
        stream.read_exact(&mut body)?;
        reply.body = body;
    }
    Ok(reply)
}

pub(crate) fn read_chunk(stream: &mut BufReader<TcpStream>) -> io::Result<Option<Vec<u8>>> {
    let mut line = String::new();
    stream.read_line(&mut line)?;
    let length = usize::from_str_radix(line.trim(), 16).map_err(io::Error::other)?;
    let mut chunk = vec![0; length];
    stream.read_exact(&mut chunk)?;
    stream.read_line(&mut String::new())?;
    Ok((length > 0).then_some(chunk))
}

/// One server-sent event: id, name, data. `None` at the end.
pub(crate) fn read_event(
    stream: &mut BufReader<TcpStream>,
) -> Outcome<Option<(String, String, Value)>> {
    while let Some(chunk) = read_chunk(stream)? {
        let text = String::from_utf8(chunk)?;
        let field = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name));
            line.map(str::to_owned)
        };
        if let (Some(id), Some(event), Some(data)) =
            (field("id: "), field("event: "), field("data: "))
        {
            return Ok(Some((id, event, serde_json::from_str(&data)?)));
        }
    }
    Ok(None)
}
