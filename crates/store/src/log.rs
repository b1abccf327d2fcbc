//! A run's output as it came: pieces of one stream or the other, each with the time at which it was read. The form in which it is kept.
//!
//! One piece is `stream: u8 (1 stdout, 2 stderr) · at: u64 (microseconds since the start) · length: u32 · bytes`, numbers little-endian.

use cofferdam_contract::ending::Stream;

/// Some output of one stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chunk {
    pub stream: Stream,
    /// Microseconds since the run began.
    pub at_micros: u64,
    pub bytes: Vec<u8>,
}

/// Output that was kept and cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the output ends in the middle of a piece, at byte {at}")]
pub struct BrokenLog {
    pub at: usize,
}

const HEAD: usize = 1 + 8 + 4;

pub fn encode(chunks: &[Chunk]) -> Vec<u8> {
    let size = chunks.iter().map(|chunk| HEAD + chunk.bytes.len()).sum();
    let mut encoded = Vec::with_capacity(size);
    for chunk in chunks {
        encode_into(&mut encoded, chunk.stream, chunk.at_micros, &chunk.bytes);
    }
    encoded
}

/// Appends one piece, or several where one would be too long for its length to be written; nothing where there is nothing.
pub(crate) fn encode_into(encoded: &mut Vec<u8>, stream: Stream, at_micros: u64, bytes: &[u8]) {
    const LONGEST: usize = 1 << 30;
    for piece in bytes.chunks(LONGEST) {
        encoded.push(match stream {
            Stream::Stdout => 1,
            Stream::Stderr => 2,
        });
        encoded.extend_from_slice(&at_micros.to_le_bytes());
        let length = u32::try_from(piece.len()).unwrap_or(u32::MAX);
        encoded.extend_from_slice(&length.to_le_bytes());
        encoded.extend_from_slice(piece);
    }
}

pub fn decode(encoded: &[u8]) -> Result<Vec<Chunk>, BrokenLog> {
    let mut chunks = Vec::new();
    let mut rest = encoded;
    while !rest.is_empty() {
        let at = encoded.len() - rest.len();
        let (chunk, after) = decode_one(rest).ok_or(BrokenLog { at })?;
        chunks.push(chunk);
        rest = after;
    }
    Ok(chunks)
}

fn decode_one(from: &[u8]) -> Option<(Chunk, &[u8])> {
    let (stream, from) = from.split_first()?;
    let stream = match stream {
        1 => Stream::Stdout,
        2 => Stream::Stderr,
        _ => return None,
    };
    let (at, from) = from.split_first_chunk::<8>()?;
    let (length, from) = from.split_first_chunk::<4>()?;
    let length = usize::try_from(u32::from_le_bytes(*length)).ok()?;
    let (bytes, after) = from.split_at_checked(length)?;
    let chunk = Chunk {
        stream,
        at_micros: u64::from_le_bytes(*at),
        bytes: bytes.to_vec(),
    };
    Some((chunk, after))
}

/// One stream's bytes, in order.
pub fn stream(chunks: &[Chunk], wanted: Stream) -> Vec<u8> {
    let of_it = chunks.iter().filter(|chunk| chunk.stream == wanted);
    of_it.flat_map(|chunk| &chunk.bytes).copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn chunk() -> impl Strategy<Value = Chunk> {
        let bytes = proptest::collection::vec(any::<u8>(), 1..64);
        (any::<bool>(), any::<u64>(), bytes).prop_map(|(out, at_micros, bytes)| Chunk {
            stream: if out { Stream::Stdout } else { Stream::Stderr },
            at_micros,
            bytes,
        })
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(chunks in proptest::collection::vec(chunk(), 0..8)) {
            prop_assert_eq!(decode(&encode(&chunks)).unwrap(), chunks);
        }

        #[test]
        fn nothing_that_is_read_panics(bytes in any::<Vec<u8>>()) {
            let _ = decode(&bytes);
        }
    }

    #[test]
    fn a_torn_end_is_found() {
        let whole = encode(&[Chunk {
            stream: Stream::Stderr,
            at_micros: 7,
            bytes: b"abc".to_vec(),
        }]);
        for length in 1..whole.len() {
            assert_eq!(decode(&whole[..length]), Err(BrokenLog { at: 0 }));
        }
        assert_eq!(stream(&decode(&whole).unwrap(), Stream::Stderr), b"abc");
    }
}
