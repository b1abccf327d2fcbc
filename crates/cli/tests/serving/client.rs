//! Plain HTTP/1.1 over a socket, so that what is tested is what is on the wire.

use std::io::{self, BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::Value;

#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    /// Names in small letters.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

/// Every answer comes sooner than this, or not at all.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_nodelay(true).unwrap();
    stream
}

/// One request on a connection of its own.
pub(crate) fn ask(
    address: SocketAddr,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: Option<&Value>,
) -> io::Result<Reply> {
    let mut head = format!("{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n");
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    let body = body.map(Value::to_string).unwrap_or_default();
    if !body.is_empty() {
        let length = body.len();
        head.push_str(&format!(
            "Content-Type: application/json\r\nContent-Length: {length}\r\n"
        ));
    }
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(format!("{head}\r\n{body}").as_bytes())?;
    Reply::read(&mut BufReader::new(stream))
}

impl Reply {
    /// The next answer on a connection; an error when there is none.
    pub(crate) fn read(stream: &mut impl BufRead) -> io::Result<Self> {
        let mut reply = Self::read_without_body(stream)?;
        reply.body = reply.read_body(stream)?;
        Ok(reply)
    }

    /// An answer to HEAD says how long the body would be.
    pub(crate) fn read_without_body(stream: &mut impl BufRead) -> io::Result<Self> {
        let nonsense = |line: &str| io::Error::other(format!("not an answer: {line:?}"));
        let first = read_line(stream)?;
        let status = first.strip_prefix("HTTP/1.1 ").and_then(|rest| {
            let (status, _) = rest.split_once(' ')?;
            status.parse().ok()
        });
        let status = status.ok_or_else(|| nonsense(&first))?;
        let mut headers = Vec::new();
        loop {
            let line = read_line(stream)?;
            if line.is_empty() {
                break;
            }
            let (name, value) = line.split_once(": ").ok_or_else(|| nonsense(&line))?;
            headers.push((name.to_ascii_lowercase(), value.to_owned()));
        }
        Ok(Self {
            status,
            headers,
            body: Vec::new(),
        })
    }

    fn read_body(&self, stream: &mut impl BufRead) -> io::Result<Vec<u8>> {
        let mut body = Vec::new();
        if self.header("transfer-encoding") != Some("chunked") {
            let length = self.header("content-length").unwrap_or("0");
            body.resize(length.parse().map_err(io::Error::other)?, 0);
            stream.read_exact(&mut body)?;
            return Ok(body);
        }
        loop {
            let line = read_line(stream)?;
            let length = usize::from_str_radix(&line, 16).map_err(io::Error::other)?;
            let start = body.len();
            body.resize(start + length, 0);
            stream.read_exact(&mut body[start..])?;
            read_line(stream)?;
            if length == 0 {
                return Ok(body);
            }
        }
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or(Value::Null)
    }
}

fn read_line(stream: &mut impl BufRead) -> io::Result<String> {
    let mut line = String::new();
    if stream.read_line(&mut line)? == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(line.trim_end().to_owned())
}

/// All answers until the connection is closed.
pub(crate) fn read_all(stream: TcpStream) -> Vec<Reply> {
    let mut stream = BufReader::new(stream);
    let mut replies = Vec::new();
    loop {
        match Reply::read(&mut stream) {
            Ok(reply) => replies.push(reply),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                panic!("the connection stays open after {replies:?}")
            }
            Err(_) => return replies,
        }
    }
}
