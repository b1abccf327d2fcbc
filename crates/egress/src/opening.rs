//! What a connection says about itself before anything of it is passed on: the name in a TLS hello, the host of an HTTP request. It must be whom the connection is for.

use url::Host;

use crate::{head, hello};

/// What the first bytes of a client are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Opening {
    /// Too few to tell.
    Partial,
    Tls(Named),
    Http(Named),
    /// Something that names nobody.
    Other,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Named {
    Nobody,
    Host(Host),
    /// It cannot be read, or means more than one.
    Unclear,
}

/// What a client speaks, as far as a refusal must know it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tongue {
    Tls,
    Http,
    Other,
}

const HTTP_PORT: u16 = 80;

pub(crate) fn read(bytes: &[u8], port: u16) -> Opening {
    if bytes.is_empty() {
        return Opening::Partial;
    }
    if hello::looks_like(bytes) {
        return match hello::read(bytes) {
            hello::Hello::Partial => Opening::Partial,
            hello::Hello::Whole(None) => Opening::Tls(Named::Nobody),
            hello::Hello::Whole(Some(name)) => Opening::Tls(match head::authority(&name, 0) {
                Some((host, _)) => Named::Host(host),
                None => Named::Unclear,
            }),
            hello::Hello::Malformed => Opening::Tls(Named::Unclear),
        };
    }
    let bytes = head::without_empty_lines(bytes);
    if bytes.is_empty() {
        return Opening::Partial;
    }
    if head::looks_like(bytes) {
        return match head::read(bytes) {
            head::Head::Partial => Opening::Partial,
            head::Head::Whole(request) => Opening::Http(match request.host() {
                Ok(Some(host)) => Named::Host(host),
                Ok(None) => Named::Nobody,
                Err(head::Ambiguous) => Named::Unclear,
            }),
            head::Head::Malformed if head::names_protocol(bytes) => Opening::Http(Named::Unclear),
            // Elsewhere it may be mail.
            head::Head::Malformed if port == HTTP_PORT => Opening::Http(Named::Unclear),
            head::Head::Malformed => Opening::Other,
        };
    }
    Opening::Other
}

impl Opening {
    /// Whether it is for the name that the connection was made for; why not.
    pub(crate) fn check(&self, expected: &str) -> Result<(), String> {
        let (what, named) = match self {
            Self::Tls(named) => ("the TLS hello", named),
            Self::Http(named) => ("the Host header", named),
            Self::Partial => return Err("it broke off before it said whom it is for".to_owned()),
            Self::Other => return Ok(()),
        };
        match named {
            Named::Nobody => Ok(()),
            Named::Host(Host::Domain(name)) if name == expected => Ok(()),
            Named::Host(other) => Err(format!("{what} names {other}")),
            Named::Unclear => Err(format!("{what} cannot be read")),
        }
    }
}

pub(crate) fn tongue(bytes: &[u8]) -> Tongue {
    if hello::looks_like(bytes) {
        Tongue::Tls
    } else if head::looks_like(bytes) {
        Tongue::Http
    } else {
        Tongue::Other
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_names_somebody_else_is_found_out() {
        let tls = |name| hello::records(&hello::sample(name), 100);
        let check = |bytes: &[u8], port| read(bytes, port).check("a.example");
        assert_eq!(check(&tls(Some("a.example")), 443), Ok(()));
        assert_eq!(check(&tls(None), 443), Ok(()));
        assert_eq!(
            check(&tls(Some("b.example")), 443),
            Err("the TLS hello names b.example".to_owned())
        );
        assert_eq!(
            check(b"GET / HTTP/1.1\r\nHost: a.example:80\r\n\r\n", 80),
            Ok(())
        );
        assert_eq!(
            check(b"GET / HTTP/1.1\r\nHost: b.example\r\n\r\n", 80),
            Err("the Host header names b.example".to_owned())
        );
        assert!(check(b"GET / HTTP/1.1\r\nHost: 10.0.0.1\r\n\r\n", 80).is_err());
        assert!(check(b"GET / HTTP/1.1\r\nHost : b\r\n\r\n", 80).is_err());
        // However a server may be talked into reading it.
        for lie in [
            "\r\n\r\nGET / HTTP/1.1\r\nHost: b.example\r\n\r\n",
            "M-SEARCH / HTTP/1.1\r\nHost: b.example\r\n\r\n",
            "get / HTTP/1.1\r\nHost: b.example\r\n\r\n",
            " GET / HTTP/1.1\r\nHost: b.example\r\n\r\n",
            "GET\t/ HTTP/1.1\r\nHost: b.example\r\n\r\n",
            "GET / HTTP/1.2\r\nHost: b.example\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a.example\r\n Host: b.example\r\n\r\n",
        ] {
            for port in [80, 8080] {
                assert!(check(lie.as_bytes(), port).is_err(), "{lie:?} {port}");
            }
        }
        assert_eq!(read(b"\r\n", 80), Opening::Partial);
        assert_eq!(check(b"SSH-2.0-x\r\n", 22), Ok(()));
        assert_eq!(check(b"EHLO me\r\n", 25), Ok(()));
        assert_eq!(read(b"GET / HT", 80), Opening::Partial);
        assert!(check(b"GET / HT", 80).is_err());
    }
}
