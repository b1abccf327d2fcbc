//! As much of an HTTP/1.1 client as measuring needs: one connection that stays open, JSON out, bytes in.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::Value;

#[derive(Debug)]
pub(in crate::bench) struct Client {
    stream: BufReader<TcpStream>,
    address: SocketAddr,
}

/// Longer than anything that is asked for here.
const PATIENCE: Duration = Duration::from_secs(120);

impl Client {
    pub(in crate::bench) fn connect(address: SocketAddr) -> Result<Self, String> {
        let open = || {
            let stream = TcpStream::connect(address)?;
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(PATIENCE))?;
            Ok(stream)
        };
        let stream = open().map_err(|error: std::io::Error| format!("{address}: {error}"))?;
        Ok(Self {
            stream: BufReader::new(stream),
            address,
        })
    }

    /// A run that must end well; what the daemon says of it.
    pub(in crate::bench) fn run(&mut self, work: &Value) -> Result<Value, String> {
        let (status, run) = self.ask("POST", "/v1/runs", Some(work))?;
        if status == 200 && run.get("status").is_some_and(|status| status == "success") {
            return Ok(run);
        }
        Err(format!("a run of {work} was answered with {status} {run}"))
    }

    pub(in crate::bench) fn ask(
        &mut self,
        method: &str,
        path: &str,
        body: Option<&Value>,
    ) -> Result<(u16, Value), String> {
        self.send(method, path, body)?;
        let (status, body) = self.receive()?;
        Ok((status, serde_json::from_slice(&body).unwrap_or(Value::Null)))
    }

    /// The request alone.
    pub(super) fn send(
        &mut self,
        method: &str,
        path: &str,
        body: Option<&Value>,
    ) -> Result<(), String> {
        let body = body.map(Value::to_string).unwrap_or_default();
        let text = format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            self.address,
            body.len()
        );
        let sent = self.stream.get_mut().write_all(text.as_bytes());
        sent.map_err(|error| format!("{method} {path}: {error}"))
    }

    /// The answer alone, whole.
    pub(super) fn receive(&mut self) -> Result<(u16, Vec<u8>), String> {
        let (status, framing) = self.head()?;
        let mut body = Vec::new();
        match framing {
            Framing::Length(length) => self.take(length, &mut body)?,
            Framing::Chunks => loop {
                let line = self.line()?;
                let length = usize::from_str_radix(&line, 16)
                    .map_err(|_| format!("`{line}` is no length of a chunk"))?;
                self.take(length, &mut body)?;
                self.line()?;
                if length == 0 {
                    break;
                }
            },
        }
        Ok((status, body))
    }

    /// The head of an answer; its body comes in time, or never.
    pub(super) fn head(&mut self) -> Result<(u16, Framing), String> {
        let first = self.line()?;
        let status = first.split(' ').nth(1).and_then(|word| word.parse().ok());
        let status = status.ok_or_else(|| format!("`{first}` is no answer"))?;
        let mut framing = Framing::Length(0);
        loop {
            let line = self.line()?.to_ascii_lowercase();
            if line.is_empty() {
                return Ok((status, framing));
            }
            if line == "transfer-encoding: chunked" {
                framing = Framing::Chunks;
            } else if let Some(length) = line.strip_prefix("content-length: ") {
                let length = length.parse().map_err(|_| format!("`{line}`"))?;
                framing = Framing::Length(length);
            }
        }
    }

    fn take(&mut self, length: usize, body: &mut Vec<u8>) -> Result<(), String> {
        let length = u64::try_from(length).unwrap_or(u64::MAX);
        let read = self.stream.by_ref().take(length).read_to_end(body);
        read.map(drop).map_err(|error| format!("a body: {error}"))
    }

    fn line(&mut self) -> Result<String, String> {
        let mut line = String::new();
        match self.stream.read_line(&mut line) {
            Ok(0) => Err("the daemon closed the connection".to_owned()),
            Ok(_) => Ok(line.trim_end().to_owned()),
            Err(error) => Err(format!("an answer: {error}")),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Framing {
    Length(usize),
    Chunks,
}
