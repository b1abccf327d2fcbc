//! How often something in this network namespace tried to reach an address that nothing leads to: the kernel counts it, so an attempt to get out is evidence
//! and not a guess. Allocates nothing.

use std::ffi::CStr;

use rustix::fs::{CWD, Mode, OFlags};

/// Attempts so far, over IPv4 and IPv6. `None` where /proc does not say.
pub(crate) fn attempts_without_route() -> Option<u64> {
    let mut buffer = [0u8; 8192];
    let v4 = read(c"/proc/self/net/snmp", &mut buffer).and_then(count_v4);
    let v6 = read(c"/proc/self/net/snmp6", &mut buffer).and_then(count_v6);
    match (v4, v6) {
        (None, None) => None,
        (v4, v6) => Some(v4.unwrap_or(0) + v6.unwrap_or(0)),
    }
}

fn read<'a>(path: &CStr, buffer: &'a mut [u8]) -> Option<&'a [u8]> {
    let file =
        rustix::fs::openat(CWD, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let mut length = 0;
    while let Ok(more @ 1..) = rustix::io::read(&file, buffer.get_mut(length..)?) {
        length += more;
    }
    buffer.get(..length)
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
        assert!(attempts_without_route().is_some());
    }
}
