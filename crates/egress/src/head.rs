//! Reads the head of an HTTP request: whom it is for, as a server and as a proxy would understand it. A head with two meanings has none.

use url::{Host, Url};

/// What the bytes so far are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Head {
    Partial,
    Whole(Request),
    Malformed,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Request {
    method: String,
    target: String,
    version: u8,
    headers: Vec<(String, Vec<u8>)>,
    /// How long the head is; what comes after it is the body.
    pub(crate) length: usize,
}

/// What a client wants of a proxy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Errand {
    /// A connection; what goes over it is nobody's business yet.
    Connect { host: Host, port: u16 },
    /// One request, with the head that the server gets.
    Forward {
        host: Host,
        port: u16,
        head: Vec<u8>,
    },
}

const MOST_HEADERS: usize = 100;
const LONGEST_NAME: usize = 254;

/// Without the empty lines that a server passes over before a request.
pub(crate) fn without_empty_lines(bytes: &[u8]) -> &[u8] {
    let empty = bytes
        .iter()
        .take_while(|byte| matches!(byte, b'\r' | b'\n'));
    bytes.get(empty.count()..).unwrap_or_default()
}

/// Whether bytes can be the beginning of a request to any server, however generous: a line of text that names the protocol, or that begins with a method in capitals. A line that has not come to
/// its end may name it yet.
pub(crate) fn looks_like(bytes: &[u8]) -> bool {
    let (line, is_whole) = first_line(bytes);
    let is_text = |byte: &u8| matches!(byte, b'\t' | b'\r') || !byte.is_ascii_control();
    if line.is_empty() || !line.iter().all(is_text) {
        return false;
    }
    let capitals = line.iter().take_while(|byte| byte.is_ascii_uppercase());
    let count = capitals.count();
    let has_method = (1..20).contains(&count) && line.get(count) == Some(&b' ');
    !is_whole || has_method || names_protocol(bytes)
}

/// Whether the first line says that this is HTTP, in whichever version but one that tells the host elsewhere.
pub(crate) fn names_protocol(bytes: &[u8]) -> bool {
    const SECOND_VERSION: &[u8] = b"PRI * HTTP/2.0";
    let (line, _) = first_line(bytes);
    let mut words = line.windows(5);
    !line.starts_with(SECOND_VERSION) && words.any(|word| word.eq_ignore_ascii_case(b"HTTP/"))
}

/// And whether its end has come.
fn first_line(bytes: &[u8]) -> (&[u8], bool) {
    match bytes.iter().position(|byte| *byte == b'\n') {
        Some(end) => (bytes.get(..end).unwrap_or_default(), true),
        None => (bytes, false),
    }
}

pub(crate) fn read(bytes: &[u8]) -> Head {
    let mut headers = [httparse::EMPTY_HEADER; MOST_HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    match request.parse(bytes) {
        Ok(httparse::Status::Partial) => Head::Partial,
        Err(_) => Head::Malformed,
        Ok(httparse::Status::Complete(length)) => {
            let (Some(method), Some(target), Some(version)) =
                (request.method, request.path, request.version)
            else {
                return Head::Malformed;
            };
            let headers = request.headers.iter();
            Head::Whole(Request {
                method: method.to_owned(),
                target: target.to_owned(),
                version,
                headers: headers
                    .map(|header| (header.name.to_owned(), header.value.to_vec()))
                    .collect(),
                length,
            })
        }
    }
}

impl Request {
    /// The host that a server would take the request to be for, lower case; `None` where it names none.
    pub(crate) fn host(&self) -> Result<Option<Host>, Ambiguous> {
        let mut named = self
            .headers
            .iter()
            .filter(|(name, _)| name.eq_ignore_ascii_case("host"));
        let header = match (named.next(), named.next()) {
            (_, Some(_)) => return Err(Ambiguous),
            (Some((_, value)), None) => {
                let text = std::str::from_utf8(value).map_err(|_| Ambiguous)?;
                Some(authority(text.trim(), 0).ok_or(Ambiguous)?.0)
            }
            (None, None) => None,
        };
        let names_no_host =
            self.target.starts_with('/') || self.target == "*" || self.method == "CONNECT";
        let target = if names_no_host {
            None
        } else {
            // What we cannot read, a generous server may take for a host all the same.
            let url = Url::parse(&self.target).map_err(|_| Ambiguous)?;
            Some(url.host().ok_or(Ambiguous)?.to_owned())
        };
        match (header, target) {
            (Some(header), Some(target)) if header != target => Err(Ambiguous),
            (header, target) => Ok(target.or(header)),
        }
    }

    /// What is wanted of a proxy; why it cannot be had.
    pub(crate) fn errand(&self) -> Result<Errand, &'static str> {
        if self.method == "CONNECT" {
            let (host, port) = authority(&self.target, 0)
                .filter(|(_, port)| *port != 0)
                .ok_or("CONNECT takes HOST:PORT")?;
            return Ok(Errand::Connect { host, port });
        }
        let url = Url::parse(&self.target).map_err(|_| "a proxy takes a whole URL")?;
        let host = url.host().ok_or("the URL names no host")?.to_owned();
        if url.scheme() != "http" {
            return Err("only http:// is forwarded; use CONNECT for everything else");
        }
        // Otherwise the server might take it for somebody else's.
        self.host()
            .map_err(|Ambiguous| "the Host header contradicts the URL")?;
        let port = url.port().unwrap_or(80);
        let path = origin_form(&self.target).ok_or("a proxy takes a whole URL")?;
        let head = self.for_server(&url, &path);
        Ok(Errand::Forward { host, port, head })
    }

    /// The head without what was for the proxy. The connection is for this one request.
    fn for_server(&self, url: &Url, path: &str) -> Vec<u8> {
        let host = url.host_str().unwrap_or_default();
        let port = url
            .port()
            .map(|port| format!(":{port}"))
            .unwrap_or_default();
        let mut head = format!(
            "{} {path} HTTP/1.{}\r\nHost: {host}{port}\r\nConnection: close\r\n",
            self.method, self.version,
        )
        .into_bytes();
        for (name, value) in &self.headers {
            let lower = name.to_ascii_lowercase();
            let is_ours = matches!(lower.as_str(), "host" | "connection" | "keep-alive")
                || lower.starts_with("proxy-");
            if !is_ours {
                head.extend(name.as_bytes());
                head.extend(b": ");
                head.extend(value);
                head.extend(b"\r\n");
            }
        }
        head.extend(b"\r\n");
        head
    }
}

/// What follows the host, as it stands: whoever signed it, or reads it, means these bytes.
fn origin_form(target: &str) -> Option<String> {
    let (_, rest) = target.split_once("://")?;
    let rest = rest.split('#').next()?;
    let Some(end) = rest.find(['/', '?', '\\']) else {
        return Some("/".to_owned());
    };
    match rest.get(end..)? {
        // Some take it for the end of the host and some do not.
        path if path.starts_with('\\') => None,
        query if query.starts_with('?') => Some(format!("/{query}")),
        path => Some(path.to_owned()),
    }
}

/// The request could be for more than one host, or for none that can be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ambiguous;

/// `HOST[:PORT]`, in the form in which names are compared.
pub(crate) fn authority(text: &str, default: u16) -> Option<(Host, u16)> {
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, port.parse().ok()?),
        _ => (text, default),
    };
    let host = match Host::parse(host).ok()? {
        Host::Domain(name) if name.len() > LONGEST_NAME => return None,
        Host::Domain(name) => Host::Domain(name.strip_suffix('.').unwrap_or(&name).to_owned()),
        address => address,
    };
    Some((host, port))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn whole(text: &str) -> Request {
        match read(text.as_bytes()) {
            Head::Whole(request) => request,
            other => panic!("{text:?}: {other:?}"),
        }
    }

    fn name(text: &str) -> Host {
        Host::Domain(text.to_owned())
    }

    #[test]
    fn the_host_is_what_a_server_would_take_it_for() {
        let of = |text: &str| whole(text).host();
        assert_eq!(
            of("GET / HTTP/1.1\r\nHost: A.Example:8080\r\n\r\n"),
            Ok(Some(name("a.example")))
        );
        assert_eq!(of("GET / HTTP/1.0\r\n\r\n"), Ok(None));
        assert_eq!(
            of("GET http://a.example/ HTTP/1.1\r\nhost: a.example\r\n\r\n"),
            Ok(Some(name("a.example")))
        );
        for lie in [
            "GET / HTTP/1.1\r\nHost: a.example\r\nHost: b.example\r\n\r\n",
            "GET http://a.example/ HTTP/1.1\r\nHost: b.example\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a.example b.example\r\n\r\n",
            "GET / HTTP/1.1\r\nHost:\r\n\r\n",
            "GET http://b.example:99999/ HTTP/1.1\r\nHost: a.example\r\n\r\n",
            "GET http://b.example:x/ HTTP/1.1\r\nHost: a.example\r\n\r\n",
            "GET http:b.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n",
            "GET b.example HTTP/1.1\r\nHost: a.example\r\n\r\n",
        ] {
            assert_eq!(of(lie), Err(Ambiguous), "{lie:?}");
        }
        for partial in ["G", "GET / HT", "GET / HTTP/1.1\r\nHost: a"] {
            assert_eq!(read(partial.as_bytes()), Head::Partial);
        }
        for bad in [
            "GET / HTTP/1.1\r\nHost : a\r\n\r\n",
            "EHLO me\r\n",
            "\x16\x03",
        ] {
            assert_eq!(read(bad.as_bytes()), Head::Malformed, "{bad:?}");
        }
        // What may still become one, and what no server takes for anything else.
        for text in [
            "GET /",
            "PO",
            "SSH-2.0",
            "get / HTTP/1.1\r\n",
            "M-SEARCH * HTTP/1.1\r\n",
            " GET / HTTP/1.1\r\n",
            "GET\t/ HTTP/1.1\r\n",
            "GET / http/1.2\r\n",
            "GET /\u{e9} HTTP/1.1\r\n",
            "EHLO me\r\n",
        ] {
            assert!(looks_like(text.as_bytes()), "{text:?}");
        }
        for text in [
            "",
            "\n",
            "SSH-2.0-x\r\n",
            "SSH-2.0-x Debian\r\n",
            "*1\r\n",
            "AMQP\0\0",
            "0033git-upload-pack /x\0host=a",
        ] {
            assert!(!looks_like(text.as_bytes()), "{text:?}");
        }
        assert!(!names_protocol(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"));
    }

    #[test]
    fn a_proxy_forwards_a_request_without_what_was_for_itself() {
        let request = whole(
            "GET http://A.example:8080/x?y=1#z HTTP/1.1\r\nHost: a.example:8080\r\nProxy-Authorization: secret\r\nProxy-Connection: keep-alive\r\nAccept: */*\r\n\r\n",
        );
        let Ok(Errand::Forward { host, port, head }) = request.errand() else {
            panic!("{request:?}");
        };
        assert_eq!((host, port), (name("a.example"), 8080));
        assert_eq!(
            String::from_utf8(head).unwrap(),
            "GET /x?y=1 HTTP/1.1\r\nHost: a.example:8080\r\nConnection: close\r\nAccept: */*\r\n\r\n"
        );
        for (target, path) in [
            ("http://a.example", "/"),
            ("http://a.example?q", "/?q"),
            ("http://a.example/a/../b/./c", "/a/../b/./c"),
            ("http://a.example/a/%2e%2e/b?x=%7e", "/a/%2e%2e/b?x=%7e"),
            ("http://a.example/a\\b//c", "/a\\b//c"),
        ] {
            let request = whole(&format!("GET {target} HTTP/1.1\r\n\r\n"));
            let Ok(Errand::Forward { head, .. }) = request.errand() else {
                panic!("{request:?}");
            };
            let line = format!("GET {path} HTTP/1.1\r\nHost: a.example\r\n");
            assert!(head.starts_with(line.as_bytes()), "{target}");
        }
        let tunnel = whole("CONNECT a.example:443 HTTP/1.1\r\nHost: whatever\r\n\r\n");
        let wanted = Errand::Connect {
            host: name("a.example"),
            port: 443,
        };
        assert_eq!(tunnel.errand(), Ok(wanted));
        for bad in [
            "CONNECT a.example HTTP/1.1\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a.example\r\n\r\n",
            "GET https://a.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n",
            "GET http://a.example/ HTTP/1.1\r\nHost: b.example\r\n\r\n",
            "GET ftp://a.example/ HTTP/1.1\r\n\r\n",
            "GET http:a.example/ HTTP/1.1\r\n\r\n",
            "GET http://a.example\\@b.example/ HTTP/1.1\r\n\r\n",
        ] {
            assert!(whole(bad).errand().is_err(), "{bad:?}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200), target in "[\\PC&&[^ ]]{1,30}") {
            let _ = read(&bytes);
            if let Head::Whole(request) = read(format!("GET {target} HTTP/1.1\r\nHost: {target}\r\n\r\n").as_bytes()) {
                let _ = (request.host(), request.errand());
            }
        }
    }
}
