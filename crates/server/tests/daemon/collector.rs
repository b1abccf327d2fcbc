//! A collector of traces: a real HTTP server that keeps what it is told, or misbehaves as it is asked to.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::Outcome;

pub(crate) struct Collector {
    pub(crate) address: SocketAddr,
    told: Arc<Mutex<Told>>,
}

#[derive(Debug, Default)]
pub(crate) struct Told {
    /// Of requests that were taken.
    pub(crate) spans: Vec<Value>,
    pub(crate) resources: Vec<Value>,
    /// Request line and headers, of every request.
    pub(crate) heads: Vec<String>,
}

/// What a request gets; by its number, from 0 on.
pub(crate) type Behaviour = fn(usize) -> Manner;

#[derive(Debug, Clone, Copy)]
pub(crate) enum Manner {
    Takes,
    Answers(&'static str),
    /// Reads, and says nothing.
    Hangs,
}

impl Collector {
    pub(crate) fn start(behaviour: Behaviour) -> Outcome<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0))?;
        let address = listener.local_addr()?;
        let told = Arc::new(Mutex::new(Told::default()));
        let of_thread = Arc::clone(&told);
        std::thread::spawn(move || {
            let mut silent = Vec::new();
            for stream in listener.incoming().flatten() {
                if let Ok(Some(stream)) = serve(stream, behaviour, &of_thread) {
                    silent.push(stream);
                }
            }
        });
        Ok(Self { address, told })
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Waits until what was told is enough.
    pub(crate) fn until<T>(&self, enough: impl Fn(&Told) -> Option<T>) -> Outcome<T> {
        let began = Instant::now();
        loop {
            let told = self.told.lock().map_err(|_| "poisoned")?;
            if let Some(found) = enough(&told) {
                return Ok(found);
            }
            if began.elapsed() > crate::support::PATIENCE {
                return Err(format!("never told enough: {told:#?}").into());
            }
            drop(told);
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// One connection, one request after the other. Gives the connection back to be held open in silence.
fn serve(
    stream: TcpStream,
    behaviour: Behaviour,
    told: &Mutex<Told>,
) -> Outcome<Option<BufReader<TcpStream>>> {
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    let mut stream = BufReader::new(stream);
    loop {
        let Some((head, body)) = read_request(&mut stream)? else {
            return Ok(None);
        };
        let mut told = told.lock().map_err(|_| "poisoned")?;
        let manner = behaviour(told.heads.len());
        told.heads.push(head);
        let answer = match manner {
            Manner::Hangs => return Ok(Some(stream)),
            Manner::Answers(answer) => answer,
            Manner::Takes => {
                let body: Value = serde_json::from_slice(&body)?;
                for resource in list(&body["resourceSpans"]) {
                    told.resources.push(resource["resource"].clone());
                    for scope in list(&resource["scopeSpans"]) {
                        told.spans.extend(list(&scope["spans"]).iter().cloned());
                    }
                }
                "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
            }
        };
        drop(told);
        stream.get_mut().write_all(answer.as_bytes())?;
    }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn read_request(stream: &mut BufReader<TcpStream>) -> Outcome<Option<(String, Vec<u8>)>> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if stream.read_line(&mut head)? == 0 {
            return Ok(None);
        }
    }
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(": ")?;
        name.eq_ignore_ascii_case("content-length")
            .then(|| value.parse().ok())?
    });
    let mut body = vec![0; length.ok_or("no length")?];
    stream.read_exact(&mut body)?;
    Ok(Some((head, body)))
}
