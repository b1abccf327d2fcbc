//! Reads questions for names and writes the answers, as bytes. Knows nothing of who may ask for what.

use std::net::Ipv4Addr;

/// A question as far as it is answered here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Query<'a> {
    id: [u8; 2],
    recursion_desired: bool,
    /// The question as it was asked, to be repeated in the answer.
    question: &'a [u8],
    /// Lower case, without the dot at the end.
    pub(crate) name: String,
    pub(crate) kind: Kind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// An IPv4 address.
    A,
    /// Anything else, of which there is nothing.
    Other,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    Address(Ipv4Addr),
    /// The name is there, and there is nothing of the kind.
    Nothing,
    NoSuchName,
    /// Not now.
    Failed,
}

const HEADER: usize = 12;
/// Short: a name that is asked for again is answered again.
const SECONDS_TO_LIVE: u32 = 60;
const LONGEST_NAME: usize = 253;

/// `None` for what is no question in the one form that resolvers send.
pub(crate) fn read(message: &[u8]) -> Option<Query<'_>> {
    let header = message.first_chunk::<HEADER>()?;
    let is_plain_query = header[2] & 0b1111_1010 == 0 && header[4..6] == [0, 1];
    if !is_plain_query {
        return None;
    }
    let rest = message.get(HEADER..)?;
    let mut name = String::new();
    let mut at = 0;
    loop {
        let length = usize::from(*rest.get(at)?);
        at += 1;
        if length == 0 {
            break;
        }
        // Anything longer is a pointer, and a question has nothing to point to.
        if length > 63 {
            return None;
        }
        let label = rest.get(at..at + length)?;
        at += length;
        if !name.is_empty() {
            name.push('.');
        }
        for byte in label {
            let is_plain = byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
            name.push(is_plain.then(|| char::from(byte.to_ascii_lowercase()))?);
        }
        if name.len() > LONGEST_NAME {
            return None;
        }
    }
    let &[kind_high, kind_low, class_high, class_low] = rest.get(at..at + 4)?.first_chunk::<4>()?;
    if [class_high, class_low] != [0, 1] {
        return None;
    }
    let kind = match u16::from_be_bytes([kind_high, kind_low]) {
        1 => Kind::A,
        _ => Kind::Other,
    };
    Some(Query {
        id: [header[0], header[1]],
        recursion_desired: header[2] & 1 == 1,
        question: rest.get(..at + 4)?,
        name,
        kind,
    })
}

pub(crate) fn write(query: &Query<'_>, answer: Answer) -> Vec<u8> {
    let (code, address) = match answer {
        Answer::Address(address) => (0, Some(address)),
        Answer::Nothing => (0, None),
        Answer::NoSuchName => (3, None),
        Answer::Failed => (2, None),
    };
    let mut message = Vec::with_capacity(HEADER + query.question.len() + 16);
    message.extend(query.id);
    // An answer, of whom one can ask for more; recursion is available.
    message.extend([0x80 | u8::from(query.recursion_desired), 0x80 | code]);
    message.extend([0, 1, 0, u8::from(address.is_some()), 0, 0, 0, 0]);
    message.extend(query.question);
    if let Some(address) = address {
        // The name of the question, an IPv4 address of the Internet.
        message.extend([0xc0, 0x0c, 0, 1, 0, 1]);
        message.extend(SECONDS_TO_LIVE.to_be_bytes());
        message.extend([0, 4]);
        message.extend(address.octets());
    }
    message
}

#[cfg(test)]
pub(crate) fn question(name: &str, kind: u16) -> Vec<u8> {
    let mut message = vec![0xab, 0xcd, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in name.split('.') {
        message.push(u8::try_from(label.len()).unwrap());
        message.extend(label.as_bytes());
    }
    message.push(0);
    message.extend(kind.to_be_bytes());
    message.extend([0, 1]);
    message
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_question_is_read_and_answered() {
        let message = question("WWW.Example.org", 1);
        let query = read(&message).unwrap();
        assert_eq!(
            (query.name.as_str(), query.kind),
            ("www.example.org", Kind::A)
        );
        let answer = write(&query, Answer::Address(Ipv4Addr::new(198, 18, 1, 7)));
        assert_eq!(
            &answer[..12],
            [0xab, 0xcd, 0x81, 0x80, 0, 1, 0, 1, 0, 0, 0, 0]
        );
        assert_eq!(&answer[12..message.len()], &message[12..]);
        assert!(answer.ends_with(&[0, 0, 0, 60, 0, 4, 198, 18, 1, 7]));
        let refused = write(&query, Answer::NoSuchName);
        assert_eq!(&refused[2..8], [0x81, 0x83, 0, 1, 0, 0]);
        assert_eq!(refused.len(), message.len());
        let other = question("a.example", 28);
        assert_eq!(read(&other).unwrap().kind, Kind::Other);
    }

    #[test]
    fn what_is_no_plain_question_is_not_answered() {
        let good = question("a.example", 1);
        for (at, value) in [(2, 0x80), (2, 0x10), (5, 2), (12, 0xc0), (14, b' ')] {
            let mut bad = good.clone();
            bad[at] = value;
            assert_eq!(read(&bad), None, "{at}");
        }
        for end in 0..good.len() {
            assert_eq!(read(&good[..end]), None, "{end}");
        }
        let long = vec!["abcdefghij"; 40].join(".");
        assert_eq!(read(&question(&long, 1)), None);
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            if let Some(query) = read(&bytes) {
                prop_assert!(query.name.len() <= LONGEST_NAME);
                prop_assert!(write(&query, Answer::Nothing).len() <= bytes.len());
            }
        }
    }
}
