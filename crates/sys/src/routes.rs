//! How often something in a network namespace tried to reach an address that nothing leads to: the kernel counts it, so an attempt to get out is evidence
//! and not a guess.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;

use crate::{proc, protocol};

/// The counters of one network namespace, readable for as long as they are held, wherever the reader is.
#[derive(Debug)]
pub struct Counters {
    v4: OwnedFd,
    v6: OwnedFd,
}

impl Counters {
    pub(crate) fn from_fds(fds: Vec<OwnedFd>) -> Option<Self> {
        let mut fds = fds.into_iter();
        Some(Self {
            v4: fds.next()?,
            v6: fds.next()?,
        })
    }

    /// Attempts so far, over IPv4 and IPv6.
    pub fn attempts_without_route(&self) -> u64 {
        let v4 = read(self.v4.as_fd()).as_deref().and_then(count_v4);
        let v6 = read(self.v6.as_fd()).as_deref().and_then(count_v6);
        v4.unwrap_or(0) + v6.unwrap_or(0)
    }
}

/// Sends the counters of the calling process's network namespace to the supervisor. Where there is no /proc there is nothing to send. Allocates nothing.
pub(crate) fn send(control: BorrowedFd<'_>) -> Result<(), Errno> {
    let open =
        |path| rustix::fs::openat(CWD, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
    match (open(c"/proc/self/net/snmp"), open(c"/proc/self/net/snmp6")) {
        (Ok(v4), Ok(v6)) => protocol::send(control, &protocol::routes(), &[v4.as_fd(), v6.as_fd()]),
        _ => Ok(()),
    }
}

fn read(file: BorrowedFd<'_>) -> Option<Vec<u8>> {
    proc::whole(file).ok()
}

/// Two lines that start with `Ip:`, names and then values, in the same order.
fn count_v4(text: &[u8]) -> Option<u64> {
    let mut lines = text
        .split(|&byte| byte == b'\n')
        .filter(|line| line.starts_with(b"Ip: "));
    let names = lines.next()?;
    let values = lines.next()?;
    let at = names
        .split(|&byte| byte == b' ')
        .position(|name| name == b"OutNoRoutes")?;
    number(values.split(|&byte| byte == b' ').nth(at)?)
}

/// One `name value` line for each counter.
fn count_v6(text: &[u8]) -> Option<u64> {
    let mut lines = text.split(|&byte| byte == b'\n');
    let value = lines.find_map(|line| line.strip_prefix(b"Ip6OutNoRoutes"))?;
    number(value.trim_ascii())
}

fn number(digits: &[u8]) -> Option<u64> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counters_are_found_by_name() {
        let v4 = b"Ip: Forwarding DefaultTTL OutNoRoutes X\nIp: 2 64 7 1\nIcmp: a\nIcmp: 1\n";
        assert_eq!(count_v4(v4), Some(7));
        assert_eq!(count_v4(b"Ip: Forwarding\nIp: 2\n"), None);
        assert_eq!(
            count_v6(b"Ip6InReceives  \t3\nIp6OutNoRoutes                  \t5\n"),
            Some(5)
        );
    }

    #[test]
    fn this_kernel_has_them() {
        let file = |path: &str| OwnedFd::from(std::fs::File::open(path).unwrap());
        let files = vec![file("/proc/self/net/snmp"), file("/proc/self/net/snmp6")];
        let counters = Counters::from_fds(files).unwrap();
        let (v4, v6) = (
            read(counters.v4.as_fd()).unwrap(),
            read(counters.v6.as_fd()).unwrap(),
        );
        assert!(count_v4(&v4).is_some() && count_v6(&v6).is_some());
    }
}
