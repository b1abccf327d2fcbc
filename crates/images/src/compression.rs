//! Layers come as they are, with gzip or with zstd. What they are is seen by how they begin, not by what somebody says they are.

use std::io::{self, BufRead, BufReader, Read};

use flate2::bufread::MultiGzDecoder;
use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

const GZIP: [u8; 2] = [0x1f, 0x8b];
const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
/// How a frame goes on that holds nothing to be decoded; of its first byte four bits are free.
const SKIPPED: [u8; 3] = [0x2a, 0x4d, 0x18];
/// What a decoder may be made to keep in memory: what `zstd --long` uses.
const WINDOW: u64 = 128 << 20;

/// The plain bytes of a layer.
pub(crate) fn plain<'a>(mut source: impl Read + 'a) -> io::Result<Box<dyn Read + 'a>> {
    let mut first = Vec::new();
    source.by_ref().take(4).read_to_end(&mut first)?;
    let is_gzip = first.starts_with(&GZIP);
    let is_zstd = first == ZSTD || first.get(1..) == Some(&SKIPPED);
    let whole = BufReader::with_capacity(64 << 10, io::Cursor::new(first).chain(source));
    if is_gzip {
        return Ok(Box::new(MultiGzDecoder::new(whole)));
    }
    if is_zstd {
        let mut decoder = FrameDecoder::new();
        decoder.set_max_window_size(WINDOW);
        return Ok(Box::new(Frames {
            source: whole,
            decoder,
            is_inside: false,
        }));
    }
    Ok(Box::new(whole))
}

/// One frame of zstd after the other.
struct Frames<R> {
    source: R,
    decoder: FrameDecoder,
    is_inside: bool,
}

impl<R: BufRead> Frames<R> {
    /// Begins the next frame; `false` at the end.
    fn begin(&mut self) -> io::Result<bool> {
        loop {
            if self.source.fill_buf()?.is_empty() {
                return Ok(false);
            }
            match self.decoder.reset(&mut self.source) {
                Ok(()) => {
                    self.is_inside = true;
                    return Ok(true);
                }
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                    length,
                    ..
                })) => {
                    let length = u64::from(length);
                    let skipped = self.source.by_ref().take(length);
                    if io::copy(&mut { skipped }, &mut io::sink())? != length {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                }
                Err(error) => return Err(io::Error::other(error)),
            }
        }
    }
}

impl<R: BufRead> Read for Frames<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        loop {
            if !self.is_inside && !self.begin()? {
                return Ok(0);
            }
            while self.decoder.can_collect() == 0 && !self.decoder.is_finished() {
                self.decoder
                    .decode_blocks(&mut self.source, BlockDecodingStrategy::UptoBlocks(1))
                    .map_err(io::Error::other)?;
            }
            let read = Read::read(&mut self.decoder, buffer)?;
            if read > 0 {
                return Ok(read);
            }
            self.is_inside = !self.decoder.is_finished();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn read(bytes: &[u8]) -> io::Result<Vec<u8>> {
        let mut all = Vec::new();
        plain(bytes)?.read_to_end(&mut all)?;
        Ok(all)
    }

    fn zstd(bytes: &[u8]) -> Vec<u8> {
        let level = ruzstd::encoding::CompressionLevel::Fastest;
        ruzstd::encoding::compress_to_vec(bytes, level)
    }

    #[test]
    fn every_kind_is_known_by_how_it_begins() {
        let text = b"hello ".repeat(50_000);
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(&text).unwrap();
        let gzip = gzip.finish().unwrap();
        assert_eq!(read(&gzip).unwrap(), text);
        // Some builders write several members, one after the other.
        assert_eq!(
            read(&[&*gzip, &gzip].concat()).unwrap().len(),
            2 * text.len()
        );
        let zstd = zstd(&text);
        assert_eq!(read(&zstd).unwrap(), text);
        let skipped = [0x51, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 1, 2, 3];
        let several = [&skipped[..], &zstd, &skipped, &zstd].concat();
        assert_eq!(read(&several).unwrap().len(), 2 * text.len());
        assert_eq!(read(b"plain").unwrap(), b"plain");
        assert_eq!(read(b"x").unwrap(), b"x");
        assert_eq!(read(b"").unwrap(), b"");
    }

    #[test]
    fn what_breaks_off_is_an_error_and_not_a_short_layer() {
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(&b"hello ".repeat(1000)).unwrap();
        let gzip = gzip.finish().unwrap();
        assert!(read(&gzip[..gzip.len() / 2]).is_err());
        let zstd = zstd(&b"hello ".repeat(1000));
        assert!(read(&zstd[..zstd.len() / 2]).is_err());
        assert!(read(&[&zstd[..], b"rubbish"].concat()).is_err());
    }
}
