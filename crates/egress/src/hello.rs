//! Finds the name in the first message of a TLS client. Reads as much as there is, believes no length, and knows nothing else of TLS.

/// What the bytes so far are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Hello {
    /// The beginning of one.
    Partial,
    /// Whole; with the name that the client wants, lower case, if it names one.
    Whole(Option<String>),
    Malformed,
}

const HANDSHAKE_RECORD: u8 = 22;
const CLIENT_HELLO: u8 = 1;
const RECORD_HEADER: usize = 5;
const SERVER_NAME: u16 = 0;
const HOST_NAME: u8 = 0;

/// Whether bytes can be the beginning of a TLS connection.
pub(crate) fn looks_like(bytes: &[u8]) -> bool {
    match bytes {
        [first] => *first == HANDSHAKE_RECORD,
        [HANDSHAKE_RECORD, 3, ..] => true,
        _ => false,
    }
}

pub(crate) fn read(bytes: &[u8]) -> Hello {
    let handshake = match joined_records(bytes) {
        Ok(handshake) => handshake,
        Err(partial_or_bad) => return partial_or_bad,
    };
    let Some(&[kind, a, b, c]) = handshake.first_chunk::<4>() else {
        return Hello::Partial;
    };
    if kind != CLIENT_HELLO {
        return Hello::Malformed;
    }
    let length = usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c);
    match handshake.get(4..4 + length) {
        Some(body) => server_name(body).map_or(Hello::Malformed, Hello::Whole),
        None => Hello::Partial,
    }
}

/// The contents of the records, which may cut a message anywhere.
fn joined_records(mut bytes: &[u8]) -> Result<Vec<u8>, Hello> {
    let mut joined = Vec::new();
    while let Some((header, rest)) = bytes.split_first_chunk::<RECORD_HEADER>() {
        let &[kind, version, _, high, low] = header;
        let length = usize::from(u16::from_be_bytes([high, low]));
        if kind != HANDSHAKE_RECORD || version != 3 || length == 0 {
            return match joined.is_empty() {
                true => Err(Hello::Malformed),
                // What comes after the message is not looked at.
                false => Ok(joined),
            };
        }
        joined.extend_from_slice(rest.get(..length).unwrap_or(rest));
        bytes = rest.get(length..).unwrap_or_default();
    }
    Ok(joined)
}

/// The outer `Option` is whether the message can be read, the inner whether it names a host.
#[expect(
    clippy::option_option,
    reason = "malformed and nameless are two things"
)]
fn server_name(body: &[u8]) -> Option<Option<String>> {
    let mut rest = Rest(body);
    rest.take(2 + 32)?;
    let session = rest.byte()?;
    rest.take(session.into())?;
    let ciphers = rest.number()?;
    rest.take(ciphers.into())?;
    let compressions = rest.byte()?;
    rest.take(compressions.into())?;
    if rest.0.is_empty() {
        return Some(None);
    }
    let length = rest.number()?;
    let mut extensions = Rest(rest.take(length.into())?);
    let mut found = None;
    while !extensions.0.is_empty() {
        let (kind, length) = (extensions.number()?, extensions.number()?);
        let content = extensions.take(length.into())?;
        if kind != SERVER_NAME {
            continue;
        }
        // Two of them are two meanings.
        if found.is_some() {
            return None;
        }
        found = Some(host_name(content)?);
    }
    Some(found)
}

fn host_name(content: &[u8]) -> Option<String> {
    let mut rest = Rest(content);
    let length = rest.number()?;
    let mut list = Rest(rest.take(length.into())?);
    let kind = list.byte()?;
    let length = list.number()?;
    let name = list.take(length.into())?;
    if kind != HOST_NAME || !list.0.is_empty() || !rest.0.is_empty() {
        return None;
    }
    let name = std::str::from_utf8(name).ok()?;
    let is_plain = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_graphic());
    is_plain.then(|| name.to_ascii_lowercase())
}

struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn byte(&mut self) -> Option<u8> {
        self.take(1)?.first().copied()
    }

    fn number(&mut self) -> Option<u16> {
        self.take(2)?.first_chunk().copied().map(u16::from_be_bytes)
    }
}

/// A message as a client would send it.
#[cfg(test)]
pub(crate) fn sample(name: Option<&str>) -> Vec<u8> {
    let mut extensions = vec![0, 23, 0, 0];
    if let Some(name) = name {
        let length = u16::try_from(name.len()).unwrap();
        extensions.extend([0, 0]);
        extensions.extend((length + 5).to_be_bytes());
        extensions.extend((length + 3).to_be_bytes());
        extensions.push(0);
        extensions.extend(length.to_be_bytes());
        extensions.extend(name.as_bytes());
    }
    let mut body = vec![3, 3];
    body.extend([7; 32]);
    body.extend([1, 9, 0, 2, 0x13, 1, 1, 0]);
    body.extend(u16::try_from(extensions.len()).unwrap().to_be_bytes());
    body.extend(extensions);
    let mut handshake = vec![1, 0];
    handshake.extend(u16::try_from(body.len()).unwrap().to_be_bytes());
    handshake.extend(body);
    handshake
}

#[cfg(test)]
pub(crate) fn records(handshake: &[u8], each: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    for part in handshake.chunks(each) {
        bytes.extend([22, 3, 1]);
        bytes.extend(u16::try_from(part.len()).unwrap().to_be_bytes());
        bytes.extend(part);
    }
    bytes
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_name_is_found_however_the_message_is_cut() {
        let whole = Hello::Whole(Some("www.example.org".to_owned()));
        let handshake = sample(Some("WWW.example.org"));
        for each in [1, 2, 7, 50, 4000] {
            let bytes = records(&handshake, each);
            assert!(looks_like(&bytes));
            assert_eq!(read(&bytes), whole, "{each}");
            for end in 0..bytes.len() {
                assert_eq!(read(&bytes[..end]), Hello::Partial, "{each} {end}");
            }
            let with_more = [&bytes[..], &[20, 3, 3, 0, 1, 1]].concat();
            assert_eq!(read(&with_more), whole);
        }
        assert_eq!(read(&records(&sample(None), 99)), Hello::Whole(None));
    }

    #[test]
    fn what_has_two_meanings_has_none() {
        let mut twice = sample(Some("a.example"));
        // Writes the same extension once more.
        let extension = twice[twice.len() - 18..].to_vec();
        assert_eq!(extension[..2], [0, 0]);
        twice.extend(&extension);
        let grow = |at: usize, bytes: &mut Vec<u8>| {
            let old = u16::from_be_bytes([bytes[at], bytes[at + 1]]);
            let new = (old + 18).to_be_bytes();
            bytes[at..at + 2].copy_from_slice(&new);
        };
        grow(2, &mut twice);
        let extensions_at = 4 + 2 + 32 + 8;
        grow(extensions_at, &mut twice);
        assert_eq!(read(&records(&twice, 999)), Hello::Malformed);
        for bad in ["", "a b", "a\0b"] {
            assert_eq!(
                read(&records(&sample(Some(bad)), 999)),
                Hello::Malformed,
                "{bad:?}"
            );
        }
        assert_eq!(read(&[22, 3, 1, 0, 1, 2, 0, 0, 0, 0]), Hello::Partial);
        assert_eq!(read(&[22, 3, 1, 0, 4, 2, 0, 0, 0]), Hello::Malformed);
        assert_eq!(read(b"GET / HTTP/1.1\r\n"), Hello::Malformed);
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300), at in 0usize..80, value: u8) {
            let _ = read(&bytes);
            let mut broken = records(&sample(Some("a.example")), 30);
            if let Some(byte) = broken.get_mut(at) {
                *byte = value;
            }
            let _ = read(&broken);
        }
    }
}
