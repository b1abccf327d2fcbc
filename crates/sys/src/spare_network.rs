//! Network namespaces that are made ahead and used by one sandbox after the other. Making one takes the kernel longer than everything else around a program, and ending one takes it longer
//! still; nothing has to be made where nothing was changed. One is used again only if whatever the kernel tells of it is as it was when it was new: not a packet was sent, not an address was
//! looked for, not a socket is left.
//!
//! They belong to the caller's user namespace, in which no program of a sandbox has any right, so none can change how they are set up.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space};

use crate::{network, proc};

/// One with loopback up and nothing else.
#[derive(Debug)]
pub struct SpareNetwork {
    fd: OwnedFd,
    identity: [u64; 2],
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

const TRIES: u32 = 100;
const BETWEEN_TRIES: Duration = Duration::from_millis(10);

impl SpareNetwork {
    /// Takes the right to make namespaces in the caller's user namespace.
    pub fn make() -> Result<Self, Errno> {
        let home = open("ns/net")?;
        // SAFETY: concerns this thread alone, which comes back.
        unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) }?;
        let made = Self::of_this_thread();
        come_back_to(&home);
        made
    }

    fn of_this_thread() -> Result<Self, Errno> {
        network::loopback_up()?;
        let fd = open("ns/net")?;
        let tables = TABLES.iter().filter_map(|table| {
            // A kernel without IPv6 has fewer of them.
            let file = open(&format!("net/{table}")).ok()?;
            Some(told(&file).map(|fresh| (file, fresh)))
        });
        let tables: Vec<_> = tables.collect::<Result<_, _>>()?;
        if tables.len() < 3 {
            return Err(Errno::NOENT);
        }
        Ok(Self {
            identity: network::identity_of(&fd)?,
            fd,
            tables,
        })
    }

    /// By which a process knows that it is in it.
    pub fn identity(&self) -> [u64; 2] {
        self.identity
    }

    /// Whether nothing tells it from a new one.
    pub fn is_untouched(&self) -> bool {
        let mut tables = self.tables.iter();
        tables.all(|(file, fresh)| told(file).as_ref() == Ok(fresh))
    }

    /// Does the work in a thread that is in it meanwhile: what is cloned there is born in it.
    pub fn within<T>(&self, work: impl FnOnce() -> T) -> Result<T, Errno> {
        let home = open("ns/net")?;
        enter(self.fd.as_fd())?;
        let done = work();
        come_back_to(&home);
        Ok(done)
    }
}

/// A thread that cannot come back would go on in a sandbox's network, on the daemon's behalf: better to have none. The kernel refuses it for want of memory only.
fn come_back_to(home: &OwnedFd) {
    for _ in 0..TRIES {
        if enter(home.as_fd()).is_ok() {
            return;
        }
        std::thread::sleep(BETWEEN_TRIES);
    }
    std::process::abort();
}

impl AsFd for SpareNetwork {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
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

fn enter(namespace: BorrowedFd<'_>) -> Result<(), Errno> {
    move_into_link_name_space(namespace, Some(LinkNameSpaceType::Network))
}

fn open(of_this_thread: &str) -> Result<OwnedFd, Errno> {
    let path = format!("/proc/thread-self/{of_this_thread}");
    rustix::fs::openat(CWD, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
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
