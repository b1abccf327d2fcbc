//! What kind of place an address is. Pure; knows nothing of names.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A kind of place, as far as it matters to who may be spoken to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    Public,
    /// Of this machine.
    Loopback,
    /// Of this organisation: RFC 1918, shared address space, unique local.
    Private,
    /// Never to be spoken to on a client's word, whatever the policy says.
    Never(&'static str),
}

/// Which addresses that are not public may be spoken to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Nearby {
    /// Of this machine.
    pub loopback: bool,
    /// Of this organisation.
    pub private: bool,
}

/// Whether an address may be spoken to; the place it is when not. `listed` says whether somebody named it, which is enough for a private one.
pub fn admit(address: IpAddr, nearby: Nearby, listed: impl FnOnce() -> bool) -> Result<(), Place> {
    match place(address) {
        Place::Public => Ok(()),
        Place::Loopback if nearby.loopback => Ok(()),
        Place::Private if nearby.private || listed() => Ok(()),
        refused => Err(refused),
    }
}

/// An IPv4 address in the clothes of IPv6 is what it would be without them.
pub fn place(address: IpAddr) -> Place {
    match address {
        IpAddr::V4(v4) => place_v4(v4),
        IpAddr::V6(v6) => embedded(v6).map_or_else(|| place_v6(v6), place_v4),
    }
}

/// The form in which addresses are compared.
pub fn plain(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V6(v6) => v6.to_ipv4_mapped().map_or(address, IpAddr::V4),
        IpAddr::V4(_) => address,
    }
}

/// Cloud services that give out credentials and do not stand in the link-local range.
const METADATA_V4: [Ipv4Addr; 3] = [
    Ipv4Addr::new(168, 63, 129, 16),
    Ipv4Addr::new(100, 100, 100, 200),
    Ipv4Addr::new(192, 0, 0, 192),
];
const METADATA_V6: [Ipv6Addr; 2] = [
    Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254),
    Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254),
];

fn place_v4(address: Ipv4Addr) -> Place {
    if METADATA_V4.contains(&address) {
        return Place::Never("a cloud's metadata service");
    }
    match address.octets() {
        [0, ..] => Place::Never("an unspecified address"),
        [127, ..] => Place::Loopback,
        [169, 254, ..] => Place::Never("a link-local address"),
        [10, ..]
        | [192, 168, ..]
        | [172, 16..=31, ..]
        | [100, 64..=127, ..]
        | [198, 18..=19, ..] => Place::Private,
        [192, 0, 0, _] | [192, 0, 2, _] | [198, 51, 100, _] | [203, 0, 113, _] => {
            Place::Never("an address for special purposes")
        }
        [224..=239, ..] => Place::Never("a multicast address"),
        [240..=255, ..] => Place::Never("a reserved address"),
        _ => Place::Public,
    }
}

fn place_v6(address: Ipv6Addr) -> Place {
    if METADATA_V6.contains(&address) {
        return Place::Never("a cloud's metadata service");
    }
    if address.is_unspecified() {
        return Place::Never("an unspecified address");
    }
    if address.is_loopback() {
        return Place::Loopback;
    }
    match address.segments() {
        [0xfe80..=0xfebf, ..] => Place::Never("a link-local address"),
        [0xfc00..=0xfdff, ..] | [0xfec0..=0xfeff, ..] => Place::Private,
        [0xff00..=0xffff, ..] => Place::Never("a multicast address"),
        // Teredo, ORCHID, documentation: 2001::/23 holds what is for special purposes.
        [0x2001, 0..=0x1ff, ..] | [0x2001, 0xdb8, ..] | [0x3fff, 0..=0xfff, ..] => {
            Place::Never("an address for special purposes")
        }
        [0x2000..=0x3fff, ..] => Place::Public,
        _ => Place::Never("an address that is not given out"),
    }
}

/// The IPv4 address that a router or the kernel would find in it: mapped, compatible, NAT64, 6to4.
fn embedded(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let [a, b, c, d, e, f, g, h] = address.segments();
    let from = |high: u16, low: u16| {
        let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
        Ipv4Addr::new(a, b, c, d)
    };
    match (a, b, c, d, e, f) {
        (0, 0, 0, 0, 0, 0xffff) | (0, 0, 0, 0, 0xffff, 0) | (0x64, 0xff9b, 0, 0, 0, 0) => {
            Some(from(g, h))
        }
        (0, 0, 0, 0, 0, 0) if g != 0 => Some(from(g, h)),
        (0x2002, ..) => Some(from(b, c)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Place {
        place(text.parse().unwrap())
    }

    #[test]
    fn only_public_addresses_are_public() {
        for text in [
            "1.1.1.1",
            "8.8.8.8",
            "172.32.0.1",
            "2606:4700::1111",
            "::ffff:1.1.1.1",
        ] {
            assert_eq!(of(text), Place::Public, "{text}");
        }
        for text in [
            "127.0.0.1",
            "127.255.1.2",
            "::1",
            "::ffff:127.0.0.1",
            "64:ff9b::7f00:1",
            "::127.0.0.1",
            "2002:7f00:1::",
        ] {
            assert_eq!(of(text), Place::Loopback, "{text}");
        }
        for text in [
            "10.0.0.1",
            "172.16.0.1",
            "172.31.255.255",
            "192.168.1.1",
            "100.64.0.1",
            "fd12::1",
            "::ffff:10.1.2.3",
            "fec0::1",
        ] {
            assert_eq!(of(text), Place::Private, "{text}");
        }
        for text in [
            "0.0.0.0",
            "0.1.2.3",
            "169.254.169.254",
            "169.254.0.1",
            "::ffff:169.254.169.254",
            "64:ff9b::a9fe:a9fe",
            "2002:a9fe:a9fe::",
            "fe80::1",
            "febf::1",
            "fd00:ec2::254",
            "100.100.100.200",
            "168.63.129.16",
            "192.0.0.192",
            "224.0.0.1",
            "255.255.255.255",
            "240.0.0.1",
            "ff02::1",
            "::",
            "2001::1",
            "2001:db8::1",
            "64:ff9b:1::1",
            "100::1",
            "4000::1",
        ] {
            assert!(
                matches!(of(text), Place::Never(_)),
                "{text}: {:?}",
                of(text)
            );
        }
    }
}
