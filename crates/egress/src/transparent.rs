//! Connections of programs that know nothing of proxies. The address that a program connected to is the accepted socket's own: every address leads here.

use cofferdam_contract::network_record::NetworkWay;
use tokio::net::TcpStream;

use crate::dial::{self, Undialled};
use crate::refusal::{self, Refusal};
use crate::relay::Relay;
use crate::world::{Target, World};

pub(crate) async fn serve(world: &World, client: TcpStream) {
    let Ok(meant) = client.local_addr() else {
        return;
    };
    let _ = client.set_nodelay(true);
    let target = world.target_of(meant.ip());
    let visit = Visit {
        world,
        way: NetworkWay::Direct,
        target,
        port: meant.port(),
    };
    match visit.admitted() {
        Ok(()) => visit.pass(client, Vec::new()).await,
        Err(why) => {
            let peer = visit.target.peer(visit.port);
            refusal::refuse(client, Vec::new(), &why, &peer, Refusal::NotAllowed).await;
        }
    }
}

/// One connection that a program wants, by whichever way.
#[derive(Debug)]
pub(crate) struct Visit<'a> {
    pub(crate) world: &'a World,
    pub(crate) way: NetworkWay,
    pub(crate) target: Target,
    pub(crate) port: u16,
}

impl Visit<'_> {
    /// Whether it may be tried; a denial is written down.
    pub(crate) fn admitted(&self) -> Result<(), String> {
        self.world.admit(&self.target, self.port).map_err(|why| {
            let peer = self.target.peer(self.port);
            self.world.ledger.borrow_mut().denied(self.way, &peer, why);
            why.to_owned()
        })
    }

    /// Connects; a denial or a failure is written down.
    pub(crate) async fn dial(&self) -> Result<dial::Dialled, (Refusal, String)> {
        let peer = self.target.peer(self.port);
        match dial::dial(self.world, &self.target, self.port).await {
            Ok(dialled) => Ok(dialled),
            Err(Undialled::Denied(why)) => {
                self.world.ledger.borrow_mut().denied(self.way, &peer, &why);
                Err((Refusal::NotAllowed, why))
            }
            Err(Undialled::Failed(why)) => {
                self.world.ledger.borrow_mut().failed(self.way, &peer, &why);
                Err((Refusal::NotReached, why))
            }
        }
    }

    /// Connects and carries everything, for a client that expects the server at once.
    async fn pass(&self, client: TcpStream, said: Vec<u8>) {
        match self.dial().await {
            Ok(dialled) => self.carry(client, dialled, said).await,
            Err((how, why)) => {
                let peer = self.target.peer(self.port);
                refusal::refuse(client, said, &why, &peer, how).await;
            }
        }
    }

    /// Carries everything between the two.
    pub(crate) async fn carry(
        &self,
        mut client: TcpStream,
        mut dialled: dial::Dialled,
        said: Vec<u8>,
    ) {
        let peer = self.target.peer(self.port);
        let address = std::mem::take(&mut dialled.address);
        let entry = self
            .world
            .ledger
            .borrow_mut()
            .connected(self.way, &peer, address);
        let relay = Relay {
            world: self.world,
            entry,
            expected: self.world.expected(&self.target),
            port: self.port,
        };
        let Err(lie) = relay.run(&mut client, &mut dialled.stream, said).await else {
            return;
        };
        self.world
            .ledger
            .borrow_mut()
            .turned_down(entry, &peer, &lie.why);
        drop(dialled);
        match lie.said {
            Some(said) => refusal::refuse(client, said, &lie.why, &peer, Refusal::NotAllowed).await,
            None => refusal::say(client, &[]).await,
        }
    }
}
