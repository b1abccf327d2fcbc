//! Network namespaces that are made ahead and used by one sandbox after the other. Ending one takes the kernel longer still than making one; nothing has to be made where nothing was
//! changed. One is used again only if whatever the kernel tells of it is as it was when it was new: not a packet was sent, not an address was looked for, not a socket is left.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;

use crate::made_network::{self, MadeNetwork};
use crate::proc;

/// One with loopback up and nothing else.
#[derive(Debug)]
pub struct SpareNetwork {
    made: MadeNetwork,
    /// What the kernel tells of it, and told when it was new.
    tables: Vec<(OwnedFd, Vec<u8>)>,
}

/// Where every packet and every attempt to send one leaves a trace, every open socket, and the one thing that outlives its socket without a packet.
const TABLES: [&str; 6] = [
    "dev",
    "snmp",
    "snmp6",
    "sockstat",
    "sockstat6",
    "ip6_flowlabel",
];

impl SpareNetwork {
    /// Takes the right to make namespaces in the caller's user namespace.
    pub fn make() -> Result<Self, Errno> {
        let (made, tables) = MadeNetwork::make_and(tables)?;
        let tables = tables?;
        Ok(Self { made, tables })
    }

    /// What a sandbox is cloned in.
    pub fn made(&self) -> &MadeNetwork {
        &self.made
    }

    /// Whether nothing tells it from a new one.
    pub fn is_untouched(&self) -> bool {
        let mut tables = self.tables.iter();
        tables.all(|(file, fresh)| told(file).as_ref() == Ok(fresh))
    }
}

/// Those of this thread's network.
fn tables() -> Result<Vec<(OwnedFd, Vec<u8>)>, Errno> {
    let tables = TABLES.iter().filter_map(|table| {
        // A kernel without IPv6 has fewer of them.
        let file = made_network::open(&format!("net/{table}")).ok()?;
        Some(told(&file).map(|fresh| (file, fresh)))
    });
    let tables: Vec<_> = tables.collect::<Result<_, _>>()?;
    if tables.len() < 3 {
        return Err(Errno::NOENT);
    }
    Ok(tables)
}

impl AsFd for SpareNetwork {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.made.as_fd()
    }
}

/// What a table says of this namespace; some say more.
fn told(table: &OwnedFd) -> Result<Vec<u8>, Errno> {
    proc::whole(table.as_fd()).map(|text| without_the_machines(&text))
}

/// In `sockstat` three figures are of the whole machine.
fn without_the_machines(text: &[u8]) -> Vec<u8> {
    let mut kept = Vec::with_capacity(text.len());
    let mut words = text.split(|byte| byte.is_ascii_whitespace());
    while let Some(word) = words.next() {
        match word {
            b"orphan" | b"alloc" | b"mem" => drop(words.next()),
            _ => {
                kept.extend_from_slice(word);
                kept.push(b' ');
            }
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_other_namespaces_do_is_not_looked_at() {
        let told = |text: &str| String::from_utf8(without_the_machines(text.as_bytes())).unwrap();
        let quiet =
            "sockets: used 0\nTCP: inuse 0 orphan 0 tw 0 alloc 1 mem 154\nFRAG: inuse 0 memory 0\n";
        let busy =
            "sockets: used 0\nTCP: inuse 0 orphan 7 tw 0 alloc 3 mem 9\nFRAG: inuse 0 memory 0\n";
        assert_eq!(told(quiet), told(busy));
        assert_ne!(told(quiet), told(&quiet.replace("tw 0", "tw 1")));
        assert_ne!(told(quiet), told(&quiet.replace("memory 0", "memory 1")));
    }
}
