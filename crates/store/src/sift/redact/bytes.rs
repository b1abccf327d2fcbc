//! What the matchers look at: classes of bytes, and a window on the stream that knows whether more may come.

/// What stands in the place of a secret.
pub const PLACEHOLDER: &str = "[REDACTED]";

pub(super) const MARK: &[u8] = PLACEHOLDER.as_bytes();

/// Letters and digits.
pub(super) const ALNUM: u8 = 1;
/// Letters, digits, `_`, `-`: what base64url and most issued keys consist of.
pub(super) const KEYLIKE: u8 = 2;
/// A value without quotes: ends at white space, quotes and what separates values.
pub(super) const VALUE: u8 = 4;
/// Anything but white space.
pub(super) const WORD: u8 = 8;
/// The value in a connection string: ends at `;`, quotes and line ends.
pub(super) const FIELD: u8 = 16;
/// What may stand in a bearer token (RFC 6750).
pub(super) const BEARER: u8 = 32;
/// Anything but a line end.
pub(super) const LINE: u8 = 64;
/// Anything but a line end or a quote.
pub(super) const HEADER: u8 = 128;

static CLASSES: [u8; 256] = classes();

const fn classes() -> [u8; 256] {
    let mut table = [0; 256];
    let mut byte: u8 = 0;
    loop {
        table[byte as usize] = class_of(byte);
        if byte == u8::MAX {
            return table;
        }
        byte += 1;
    }
}

const fn class_of(byte: u8) -> u8 {
    let alnum = byte.is_ascii_alphanumeric();
    let keylike = alnum || matches!(byte, b'_' | b'-');
    let end = matches!(byte, b'\n' | b'\r');
    let quote = matches!(byte, b'"' | b'\'' | b'`');
    let space = end || matches!(byte, b' ' | b'\t' | 0);
    let separator = matches!(
        byte,
        b'&' | b';' | b',' | b')' | b']' | b'}' | b'<' | b'>' | b'|' | b'\\'
    );
    let mut class = 0;
    if alnum {
        class |= ALNUM;
    }
    if keylike {
        class |= KEYLIKE;
    }
    if !space && !quote && !separator {
        class |= VALUE;
    }
    if !space {
        class |= WORD;
    }
    if !end && !quote && byte != b';' {
        class |= FIELD;
    }
    if keylike || matches!(byte, b'.' | b'~' | b'+' | b'/' | b'=') {
        class |= BEARER;
    }
    if !end {
        class |= LINE;
    }
    if !end && !quote {
        class |= HEADER;
    }
    class
}

pub(super) fn is(byte: u8, class: u8) -> bool {
    CLASSES
        .get(usize::from(byte))
        .is_some_and(|of| of & class != 0)
}

/// Why a matcher did not find a secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Not {
    /// There is none here.
    Here,
    /// It depends on bytes that have not come yet.
    Yet,
}

/// Whether more input may follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Flow {
    Open,
    Ended,
}

/// The stream around one place. What lies before `floor` was replaced by the placeholder and is not looked at again.
#[derive(Clone, Copy)]
pub(super) struct View<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) floor: usize,
    pub(super) flow: Flow,
}

impl<'a> View<'a> {
    /// The byte there, or none at the end of the stream.
    pub(super) fn at(&self, index: usize) -> Result<Option<u8>, Not> {
        match (self.bytes.get(index), self.flow) {
            (Some(byte), _) => Ok(Some(*byte)),
            (None, Flow::Ended) => Ok(None),
            (None, Flow::Open) => Err(Not::Yet),
        }
    }

    /// The byte before, as it stands in the output.
    pub(super) fn before(&self, index: usize) -> u8 {
        match index.checked_sub(1) {
            Some(at) if at >= self.floor => self.bytes.get(at).copied().unwrap_or(b'\n'),
            _ => b']',
        }
    }

    pub(super) fn slice(&self, from: usize, to: usize) -> &'a [u8] {
        let to = to.min(self.bytes.len());
        self.bytes.get(from.max(self.floor)..to).unwrap_or_default()
    }

    /// Where the run of bytes of this class ends; at most `most` bytes are looked at.
    pub(super) fn run(&self, from: usize, class: u8, most: usize) -> Result<usize, Not> {
        self.run_while(from, most, |byte| is(byte, class))
    }

    pub(super) fn run_while(
        &self,
        from: usize,
        most: usize,
        belongs: impl Fn(u8) -> bool,
    ) -> Result<usize, Not> {
        let mut end = from;
        while end - from < most {
            match self.at(end)? {
                Some(byte) if belongs(byte) => end += 1,
                _ => break,
            }
        }
        Ok(end)
    }

    /// Whether the stream goes on with `text`, in this case of letters.
    pub(super) fn has(&self, from: usize, text: &[u8]) -> Result<bool, Not> {
        self.has_as(from, text, |a, b| a == b)
    }

    /// Whether the stream goes on with `text`, in any case of letters.
    pub(super) fn has_any_case(&self, from: usize, text: &[u8]) -> Result<bool, Not> {
        self.has_as(from, text, |a, b| a.eq_ignore_ascii_case(&b))
    }

    fn has_as(&self, from: usize, text: &[u8], same: impl Fn(u8, u8) -> bool) -> Result<bool, Not> {
        for (offset, wanted) in text.iter().enumerate() {
            match self.at(from + offset)? {
                Some(byte) if same(byte, *wanted) => {}
                _ => return Ok(false),
            }
        }
        Ok(true)
    }
}

/// How far a secret reaches, once it is known to be one. Found out while it passes, so that its length needs no bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Until {
    /// For so many bytes.
    Length(usize),
    /// As long as the bytes are of this class.
    Class(u8),
    /// To the quote that closes it, or the end of the line.
    Quote(u8),
    /// To `\"`, in JSON within a string.
    EscapedQuote(u8),
    /// To the end of the line that ends a private key, or until what comes is no key.
    PemEnd(Body),
}

/// What the lines after the first one of a private key look like, so that a key without an end does not take all that follows with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Body {
    /// Characters of base64 at the end of what has passed.
    run: usize,
    /// The line so far has 32 of them in a row.
    long: bool,
    /// The line so far has something else.
    mixed: bool,
    /// Lines in a row, up to this one, that cannot belong to a key.
    foreign: usize,
}

/// After so many lines in a row that cannot belong to a private key, the key is over. A key may have headers and an empty line at its beginning.
const MOST_FOREIGN_LINES: usize = 8;

impl Body {
    /// Passes over the bytes; where the key is over, says so.
    pub(super) fn pass(&mut self, bytes: &[u8]) -> Option<usize> {
        for (at, byte) in bytes.iter().enumerate() {
            match byte {
                b'\n' => {
                    let belongs = self.long || (self.run > 0 && !self.mixed);
                    let foreign = if belongs { 0 } else { self.foreign + 1 };
                    if foreign > MOST_FOREIGN_LINES {
                        return Some(at);
                    }
                    *self = Self {
                        foreign,
                        ..Self::default()
                    };
                }
                b'+' | b'/' | b'=' | b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' => {
                    self.run += 1;
                    self.long |= self.run >= 32;
                }
                b'\r' => {}
                _ => {
                    self.run = 0;
                    self.mixed = true;
                }
            }
        }
        None
    }
}

/// A secret that begins at `from`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Secret {
    pub(super) from: usize,
    pub(super) until: Until,
}

pub(super) type Verdict = Result<Secret, Not>;

/// Where a byte is last. A short text is searched by hand: asking the processor, once, which way is fastest takes tens of microseconds in a virtual machine, and most runs have only short ones.
pub(super) fn last(byte: u8, text: &[u8]) -> Option<usize> {
    const SHORT: usize = 512;
    if text.len() <= SHORT {
        return text.iter().rposition(|found| *found == byte);
    }
    memchr::memrchr(byte, text)
}
