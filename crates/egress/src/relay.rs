//! Carries bytes between a program and whom it may reach. Nothing of the program's is passed on before it has said whom it is for, where that matters; the other direction flows from the first moment, since some
//! servers speak first.

use std::cell::Cell;
use std::io;
use std::time::Instant;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::time::{sleep, timeout};

use crate::bounds;
use crate::ledger::Entry;
use crate::opening::{self, Opening};
use crate::world::World;

/// Two ends, and what is known of them.
#[derive(Debug)]
pub(crate) struct Relay<'a> {
    pub(crate) world: &'a World,
    pub(crate) entry: Entry,
    /// What the connection itself must name, if it names anybody.
    pub(crate) expected: Option<&'a str>,
    pub(crate) port: u16,
}

/// The connection is for somebody else.
#[derive(Debug)]
pub(crate) struct Lie {
    pub(crate) why: String,
    /// What the client said, if nothing has been said to it.
    pub(crate) said: Option<Vec<u8>>,
}

struct Pulse {
    last: Cell<Instant>,
    is_half: Cell<bool>,
    received: Cell<u64>,
}

impl Relay<'_> {
    /// Until both are done, or nobody says anything any more. `said` has been read from the client already.
    pub(crate) async fn run(
        &self,
        client: &mut TcpStream,
        server: &mut TcpStream,
        said: Vec<u8>,
    ) -> Result<(), Lie> {
        let pulse = Pulse {
            last: Cell::new(Instant::now()),
            is_half: Cell::new(false),
            received: Cell::new(0),
        };
        let (mut from_client, mut to_client) = client.split();
        let (mut from_server, mut to_server) = server.split();
        let mut lie = None;
        let out = async {
            match self.opening(&mut from_client, said).await {
                Err(found) => lie = Some(found),
                Ok(opening) => {
                    if to_server.write_all(&opening).await.is_ok() {
                        self.count(&pulse, opening.len(), 0);
                        self.pump_out(&mut from_client, &mut to_server, &pulse)
                            .await;
                    }
                }
            }
            lie.is_none()
        };
        let back = self.pump_back(&mut from_server, &mut to_client, &pulse);
        let both = async {
            tokio::pin!(out, back);
            tokio::select! {
                is_true = &mut out => {
                    pulse.is_half.set(true);
                    if is_true {
                        back.await;
                    }
                }
                () = &mut back => {
                    pulse.is_half.set(true);
                    out.await;
                }
            }
        };
        tokio::select! {
            () = both => {}
            () = silence(&pulse) => {}
        }
        match lie {
            None => Ok(()),
            Some((why, said)) => Err(Lie {
                why,
                said: (pulse.received.get() == 0).then_some(said),
            }),
        }
    }

    /// Reads until it is known whom the client names, and returns what was read.
    async fn opening(
        &self,
        client: &mut ReadHalf<'_>,
        mut said: Vec<u8>,
    ) -> Result<Vec<u8>, (String, Vec<u8>)> {
        let Some(expected) = self.expected else {
            return Ok(said);
        };
        let mut buffer = [0u8; 4096];
        loop {
            let opening = opening::read(&said, self.port);
            if opening != Opening::Partial {
                return match opening.check(expected) {
                    Ok(()) => Ok(said),
                    Err(why) => Err((why, said)),
                };
            }
            if said.len() >= bounds::HEAD_BYTES {
                return Err(("its beginning is too long to be read".to_owned(), said));
            }
            // A client may wait as long as it likes for the server to speak first; once it has begun it must go on.
            let read = client.read(&mut buffer);
            let count = match said.is_empty() {
                true => read.await.unwrap_or(0),
                false => match timeout(bounds::HEAD_TIME, read).await {
                    Ok(count) => count.unwrap_or(0),
                    Err(_) => {
                        return Err(("it took too long to say whom it is for".to_owned(), said));
                    }
                },
            };
            if count == 0 {
                return match said.is_empty() {
                    true => Ok(said),
                    false => Err((
                        "it broke off before it said whom it is for".to_owned(),
                        said,
                    )),
                };
            }
            said.extend(buffer.get(..count).unwrap_or_default());
        }
    }

    async fn pump_out(&self, client: &mut ReadHalf<'_>, server: &mut WriteHalf<'_>, pulse: &Pulse) {
        let _: io::Result<()> = async {
            let mut buffer = vec![0u8; bounds::BUFFER];
            loop {
                let count = client.read(&mut buffer).await?;
                if count == 0 {
                    return server.shutdown().await;
                }
                server
                    .write_all(buffer.get(..count).unwrap_or_default())
                    .await?;
                self.count(pulse, count, 0);
            }
        }
        .await;
    }

    async fn pump_back(
        &self,
        server: &mut ReadHalf<'_>,
        client: &mut WriteHalf<'_>,
        pulse: &Pulse,
    ) {
        let _: io::Result<()> = async {
            let mut buffer = vec![0u8; bounds::BUFFER];
            loop {
                let count = server.read(&mut buffer).await?;
                if count == 0 {
                    return client.shutdown().await;
                }
                client
                    .write_all(buffer.get(..count).unwrap_or_default())
                    .await?;
                self.count(pulse, 0, count);
            }
        }
        .await;
    }

    fn count(&self, pulse: &Pulse, sent: usize, received: usize) {
        pulse.last.set(Instant::now());
        let (sent, received) = (sent as u64, received as u64);
        pulse.received.set(pulse.received.get() + received);
        self.world
            .ledger
            .borrow_mut()
            .carried(self.entry, sent, received);
    }
}

/// Returns when nothing has been said for too long.
async fn silence(pulse: &Pulse) {
    loop {
        let most = match pulse.is_half.get() {
            true => bounds::HALF_OPEN_TIME,
            false => bounds::IDLE_TIME,
        };
        let quiet = pulse.last.get().elapsed();
        if quiet >= most {
            return;
        }
        // Looked at again before long, since it may have become half.
        sleep((most - quiet).min(bounds::HALF_OPEN_TIME)).await;
    }
}
