//! Whether an output log can be read, found out piece by piece: a log may be too long for memory. Keeps nothing of it.

/// `stream: u8 · at: u64 · length: u32`, as `log` writes it.
const HEAD: usize = 1 + 8 + 4;

/// Follows a log from its first byte.
#[derive(Debug, Default)]
pub(super) struct LogCheck {
    head: Vec<u8>,
    /// What is still to come of the piece whose head was read.
    body: usize,
    broken: bool,
}

impl LogCheck {
    pub(super) fn feed(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() && !self.broken {
            bytes = self.step(bytes);
        }
    }

    /// Whether all of it was whole pieces.
    pub(super) fn is_whole(&self) -> bool {
        !self.broken && self.head.is_empty() && self.body == 0
    }

    fn step<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        if self.body > 0 {
            let (taken, rest) = bytes.split_at(self.body.min(bytes.len()));
            self.body -= taken.len();
            return rest;
        }
        let (taken, rest) = bytes.split_at((HEAD - self.head.len()).min(bytes.len()));
        self.head.extend_from_slice(taken);
        if self.head.len() == HEAD {
            self.read_head();
        }
        rest
    }

    fn read_head(&mut self) {
        let stream = self.head.first().copied();
        let length = self.head.last_chunk::<4>().copied().map(u32::from_le_bytes);
        self.head.clear();
        match (
            stream,
            length.and_then(|length| usize::try_from(length).ok()),
        ) {
            (Some(1 | 2), Some(length)) => self.body = length,
            _ => self.broken = true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn it_agrees_with_the_decoder(
            pieces in proptest::collection::vec((1_u8..4, any::<u64>(), any::<Vec<u8>>()), 0..5),
            cut in any::<prop::sample::Index>(),
            step in 1_usize..40,
        ) {
            let mut encoded = Vec::new();
            for (stream, at, bytes) in pieces {
                encoded.push(stream);
                encoded.extend(at.to_le_bytes());
                encoded.extend(u32::try_from(bytes.len()).unwrap().to_le_bytes());
                encoded.extend(bytes);
            }
            for encoded in [&encoded[..], &encoded[..cut.index(encoded.len() + 1)]] {
                let mut check = LogCheck::default();
                encoded.chunks(step).for_each(|chunk| check.feed(chunk));
                prop_assert_eq!(check.is_whole(), log::decode(encoded).is_ok());
            }
        }
    }
}
