//! Reads what a SOCKS5 client says, and writes the answers, as bytes. Connections only, and nobody proves who they are: whoever reaches the proxy is inside the one sandbox that it is for.

use std::net::{Ipv4Addr, Ipv6Addr};

use url::Host;

use crate::head;

pub(crate) const VERSION: u8 = 5;

/// Something that is read piece by piece.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Said<T> {
    Partial,
    /// With how many bytes it took.
    Whole(T, usize),
    Malformed,
}

/// Which ways of proving who they are clients offer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Offer {
    Nothing,
    OnlyOthers,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Request {
    Connect {
        host: Host,
        port: u16,
    },
    /// To listen, or to send datagrams.
    Unsupported,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reply {
    Connected,
    NotAllowed,
    Unreachable,
    Unsupported,
}

pub(crate) const NO_PROOF: [u8; 2] = [VERSION, 0];
pub(crate) const NO_OFFER_TAKEN: [u8; 2] = [VERSION, 0xff];

pub(crate) fn greeting(bytes: &[u8]) -> Said<Offer> {
    let &[version, count, ..] = bytes else {
        return Said::Partial;
    };
    if version != VERSION {
        return Said::Malformed;
    }
    let length = 2 + usize::from(count);
    match bytes.get(2..length) {
        None => Said::Partial,
        Some(methods) if methods.contains(&0) => Said::Whole(Offer::Nothing, length),
        Some(_) => Said::Whole(Offer::OnlyOthers, length),
    }
}

pub(crate) fn request(bytes: &[u8]) -> Said<Request> {
    let &[version, command, _, kind, first, ..] = bytes else {
        return Said::Partial;
    };
    if version != VERSION {
        return Said::Malformed;
    }
    let address = match kind {
        1 => 4,
        3 => 1 + usize::from(first),
        4 => 16,
        _ => return Said::Malformed,
    };
    let (Some(host), Some(port)) = (
        bytes.get(4..4 + address),
        bytes.get(4 + address..).and_then(<[u8]>::first_chunk::<2>),
    ) else {
        return Said::Partial;
    };
    let port = u16::from_be_bytes(*port);
    let host = match kind {
        1 => host
            .first_chunk::<4>()
            .map(|octets| Host::Ipv4(Ipv4Addr::from_octets(*octets))),
        4 => host
            .first_chunk::<16>()
            .map(|octets| Host::Ipv6(Ipv6Addr::from_octets(*octets))),
        _ => host.get(1..).and_then(name),
    };
    match (host, command) {
        (None, _) => Said::Malformed,
        (Some(host), 1) if port != 0 => Said::Whole(Request::Connect { host, port }, address + 6),
        _ => Said::Whole(Request::Unsupported, address + 6),
    }
}

fn name(bytes: &[u8]) -> Option<Host> {
    let text = std::str::from_utf8(bytes).ok()?;
    match text.parse::<Ipv6Addr>() {
        Ok(v6) => Some(Host::Ipv6(v6)),
        Err(_) if text.contains(':') => None,
        Err(_) => head::authority(text, 0).map(|(host, _)| host),
    }
}

pub(crate) fn reply(reply: Reply) -> [u8; 10] {
    let code = match reply {
        Reply::Connected => 0,
        Reply::NotAllowed => 2,
        Reply::Unreachable => 4,
        Reply::Unsupported => 7,
    };
    [VERSION, code, 0, 1, 0, 0, 0, 0, 0, 0]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_client_is_understood_piece_by_piece() {
        let hello = [5, 2, 2, 0];
        assert_eq!(greeting(&hello), Said::Whole(Offer::Nothing, 4));
        assert_eq!(greeting(&hello[..3]), Said::Partial);
        assert_eq!(greeting(&[5, 1, 2]), Said::Whole(Offer::OnlyOthers, 3));
        assert_eq!(greeting(&[4, 1]), Said::Malformed);
        let mut wish = vec![5, 1, 0, 3, 9];
        wish.extend(b"A.example");
        wish.extend(443u16.to_be_bytes());
        for end in 0..wish.len() {
            assert_eq!(request(&wish[..end]), Said::Partial, "{end}");
        }
        let host = Host::Domain("a.example".to_owned());
        let connect = Request::Connect { host, port: 443 };
        assert_eq!(request(&wish), Said::Whole(connect, wish.len()));
        let v4 = [5, 1, 0, 1, 192, 0, 2, 7, 0, 80];
        let host = Host::Ipv4(Ipv4Addr::new(192, 0, 2, 7));
        assert_eq!(
            request(&v4),
            Said::Whole(Request::Connect { host, port: 80 }, 10)
        );
        let datagrams = [5, 3, 0, 1, 0, 0, 0, 0, 0, 80];
        assert_eq!(request(&datagrams), Said::Whole(Request::Unsupported, 10));
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = (greeting(&bytes), request(&bytes));
        }
    }
}
