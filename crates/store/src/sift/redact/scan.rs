//! The built-in families over a stream: a filter that passes over ordinary text, the matchers where it stops, and the swallowing of what they find.
//!
//! The filter looks at three bytes at a time. Each of sixteen bits stands for a group of endings or beginnings (`ey=`, `AKI`, `://` …); a byte has a bit in one of three tables if it
//! may stand at that place of that group. Where the three have a bit in common, the matchers are asked.

use memchr::memmem;

use super::bytes::{Body, Flow, MARK, Not, Secret, Until, Verdict, View, is, last};
use super::{assign, tokens};

/// What is kept of what has passed, to read names backwards: a name, `export ` and the byte before.
const LOOK_BACK: usize = assign::LONGEST_NAME + 16;

/// What is always held back: a secret may begin this long before the bytes that give it away.
const HELD: usize = 16;

/// How much is worked on at a time.
const PIECE: usize = 64 * 1024;

const PEM_END: &[u8] = b"-----END ";

/// `-----END `, a label and its dashes.
const PEM_END_LINE: usize = 9 + 48 + 5;

const NAME_GROUPS: u16 = 0b11_1111;

static FILTER: [[u16; 256]; 3] = filter();

const fn filter() -> [[u16; 256]; 3] {
    let after_name = b"=:\"' \t%\\";
    let groups: [[&[u8]; 3]; 16] = [
        [b"eE", b"yYtTnN", after_name], // key, secret, token
        [b"rRwW", b"dD", after_name],   // password, passwd, pwd
        [b"sS", b"sSeE", after_name],   // pass, passphrase
        [b"aAlL", b"lLsS", after_name], // credential, credentials
        [b"tT", b"hH", after_name],     // auth
        [b"oO", b"nN", b"=:\"'%\\"],    // authorization
        [b"KS", b"I", b"A"],            // AKIA, ASIA
        [b"g", b"h", b"pousr"],         // ghp_
        [b"b", b"_", b"p"],             // github_pat_
        [b"-", b"B", b"E"],             // -----BEGIN
        [b"sr", b"k", b"-_"],           // sk-, sk_live_, rk_live_
        [b"x", b"o", b"x"],             // xoxb-
        [b"A", b"I", b"z"],             // AIza
        [b":", b"/", b"/"],             // https://
        [b"e", b"y", b"J"],             // a JSON web token
        [b"rR", b"eE", b"rR"],          // Bearer
    ];
    let mut table = [[0; 256]; 3];
    let mut group = 0;
    while group < groups.len() {
        let mut place = 0;
        while place < 3 {
            let bytes = groups[group][place];
            let mut at = 0;
            while at < bytes.len() {
                table[place][bytes[at] as usize] |= 1 << group;
                at += 1;
            }
            place += 1;
        }
        group += 1;
    }
    table
}

/// The state between two pieces of input.
#[derive(Debug)]
pub(super) struct Scan {
    /// What was looked at last, and what has still to be.
    buffer: Vec<u8>,
    /// What of it has been handed on.
    emitted: usize,
    /// Where the filter goes on.
    next: usize,
    /// Where the last secret ended.
    floor: usize,
    swallowing: Option<Until>,
    count: u64,
}

/// Whether there is something left to do with what has come so far.
enum Step {
    GoOn,
    Wait,
}

impl Scan {
    pub(super) fn new() -> Self {
        Self {
            // The beginning of the stream is the beginning of a line.
            buffer: vec![b'\n'],
            emitted: 1,
            next: 1,
            floor: 0,
            swallowing: None,
            count: 0,
        }
    }

    pub(super) fn count(&self) -> u64 {
        self.count
    }

    #[cfg(test)]
    pub(super) fn held(&self) -> usize {
        self.buffer.len() - self.emitted
    }

    pub(super) fn push(&mut self, input: &[u8], out: &mut Vec<u8>) {
        for piece in input.chunks(PIECE) {
            self.buffer.extend_from_slice(piece);
            self.work(Flow::Open, out);
        }
    }

    pub(super) fn finish(&mut self, out: &mut Vec<u8>) {
        self.work(Flow::Ended, out);
        let count = self.count;
        *self = Self {
            count,
            ..Self::new()
        };
    }

    fn work(&mut self, flow: Flow, out: &mut Vec<u8>) {
        loop {
            let step = match self.swallowing {
                Some(until) => self.swallow(until, flow),
                None => self.search(flow, out),
            };
            if matches!(step, Step::Wait) {
                break;
            }
        }
        if self.swallowing.is_none() {
            let ready = match flow {
                Flow::Open => self.ready(),
                Flow::Ended => self.buffer.len(),
            };
            self.emit(ready, out);
        }
        self.forget();
    }

    /// How much can be handed on while more may come. No secret that is still to be found begins in an earlier line than the bytes that give it away, so whoever follows the output
    /// sees every line as soon as it has ended.
    fn ready(&self) -> usize {
        // What comes after the next place to look at may still be part of something that begins there.
        let seen = if candidate(&self.buffer, self.next).is_some() {
            self.next
        } else {
            self.buffer.len()
        };
        let lines = self.buffer.get(self.emitted..seen).unwrap_or_default();
        let ended = last(b'\n', lines).map_or(0, |at| self.emitted + at + 1);
        ended.max(self.next.saturating_sub(HELD))
    }

    /// Finds the next secret and puts the placeholder in its place.
    fn search(&mut self, flow: Flow, out: &mut Vec<u8>) -> Step {
        loop {
            let Some((at, groups)) = candidate(&self.buffer, self.next) else {
                self.next = self.next.max(self.buffer.len().saturating_sub(2));
                return Step::Wait;
            };
            let view = View {
                bytes: &self.buffer,
                floor: self.floor,
                flow,
            };
            match ask(view, at + 2, groups) {
                Ok(secret) => {
                    self.hide(secret, out);
                    return Step::GoOn;
                }
                Err(Not::Here) => self.next = at + 1,
                Err(Not::Yet) => {
                    self.next = at;
                    return Step::Wait;
                }
            }
        }
    }

    fn hide(&mut self, secret: Secret, out: &mut Vec<u8>) {
        self.emit(secret.from, out);
        out.extend_from_slice(MARK);
        self.count += 1;
        self.resume_at(secret.from);
        self.swallowing = Some(secret.until);
    }

    /// Passes over the secret; what it ends with is ordinary text again.
    fn swallow(&mut self, until: Until, flow: Flow) -> Step {
        let rest = self.buffer.get(self.emitted..).unwrap_or_default();
        let view = View {
            bytes: rest,
            floor: 0,
            flow,
        };
        let (passed, left) = match until {
            Until::Length(length) => {
                let passed = length.min(rest.len());
                let left = length - passed;
                (passed, (left > 0).then_some(Until::Length(left)))
            }
            Until::Class(class) => {
                let end = rest.iter().position(|byte| !is(*byte, class));
                (end.unwrap_or(rest.len()), end.is_none().then_some(until))
            }
            Until::Quote(quote) => through_quoted(view, quote, until),
            Until::EscapedQuote(quote) => through_escaped(view, quote, until),
            Until::PemEnd(body) => through_private_key(view, body),
        };
        self.resume_at(self.emitted + passed);
        self.swallowing = left;
        match left {
            Some(_) => Step::Wait,
            None => Step::GoOn,
        }
    }

    fn resume_at(&mut self, at: usize) {
        self.emitted = at;
        self.next = at;
        self.floor = at;
    }

    fn emit(&mut self, to: usize, out: &mut Vec<u8>) {
        if let Some(ready) = self.buffer.get(self.emitted..to) {
            out.extend_from_slice(ready);
            self.emitted = to;
        }
    }

    fn forget(&mut self) {
        let useless = self.emitted.saturating_sub(LOOK_BACK);
        self.buffer.drain(..useless);
        self.emitted -= useless;
        self.next = self.next.saturating_sub(useless);
        self.floor = self.floor.saturating_sub(useless);
    }
}

/// The next place at which the filter lets something through, with its groups.
fn candidate(buffer: &[u8], from: usize) -> Option<(usize, u16)> {
    let groups = |triple: &[u8]| {
        let &[first, second, third] = triple else {
            return 0;
        };
        FILTER[0][usize::from(first)]
            & FILTER[1][usize::from(second)]
            & FILTER[2][usize::from(third)]
    };
    let rest = buffer.get(from..)?;
    rest.windows(3).enumerate().find_map(|(offset, window)| {
        let found = groups(window);
        (found != 0).then_some((from + offset, found))
    })
}

type Matcher = fn(View<'_>, usize) -> Verdict;

/// Asks the matchers of these groups; `at` is the third byte.
fn ask(view: View<'_>, at: usize, groups: u16) -> Verdict {
    if groups & NAME_GROUPS != 0 {
        match assign::find(view, at) {
            Err(Not::Here) => {}
            found => return found,
        }
    }
    let matchers: [(u16, Matcher); 10] = [
        (6, tokens::aws_access_key),
        (7, tokens::github_token),
        (8, tokens::github_fine_grained),
        (9, tokens::private_key),
        (10, tokens::sk_key),
        (11, tokens::slack_token),
        (12, tokens::google_key),
        (13, tokens::url_password),
        (14, tokens::json_web_token),
        (15, tokens::bearer),
    ];
    for (group, matcher) in matchers {
        if groups & (1 << group) != 0 {
            match matcher(view, at) {
                Err(Not::Here) => {}
                found => return found,
            }
        }
    }
    Err(Not::Here)
}

/// To the closing quote or the end of the line. A backslash takes the next byte with it.
fn through_quoted(view: View<'_>, quote: u8, until: Until) -> (usize, Option<Until>) {
    let mut at = 0;
    while let Some(byte) = view.bytes.get(at) {
        match (*byte, view.bytes.get(at + 1), view.flow) {
            (b'\n', ..) => return (at, None),
            (byte, ..) if byte == quote => return (at, None),
            (b'\\', None, Flow::Open) => return (at, Some(until)),
            (b'\\', Some(next), _) if *next != b'\n' => at += 2,
            _ => at += 1,
        }
    }
    (view.bytes.len(), Some(until))
}

/// To `\"` or `"`, or the end of the line. A quote within the value is written `\\\"` there.
fn through_escaped(view: View<'_>, quote: u8, until: Until) -> (usize, Option<Until>) {
    let mut at = 0;
    while let Some(byte) = view.bytes.get(at) {
        let rest = view.bytes.get(at..).unwrap_or_default();
        match (*byte, rest) {
            (b'\n', _) => return (at, None),
            (byte, _) if byte == quote => return (at, None),
            (b'\\', [_, next, ..]) if *next == quote => return (at, None),
            (b'\\', [_, b'\\', b'\\', inner, ..]) if *inner == quote => at += 4,
            (b'\\', [_, _, _, _, ..]) => at += 1,
            (b'\\', _) if view.flow == Flow::Open => return (at, Some(until)),
            _ => at += 1,
        }
    }
    (view.bytes.len(), Some(until))
}

/// To the end of the line that ends the key, or to where it cannot go on. Only as much is kept as the last line may be long.
fn through_private_key(view: View<'_>, mut body: Body) -> (usize, Option<Until>) {
    let (passed, end) = private_key_end(view);
    let before = view.bytes.get(..passed).unwrap_or_default();
    match (body.pass(before), end) {
        (Some(over), _) => (over, None),
        (None, Some(end)) => (end, None),
        (None, None) => (passed, Some(Until::PemEnd(body))),
    }
}

/// How much lies before the line that ends the key, as far as that is known, and where that line ends.
fn private_key_end(view: View<'_>) -> (usize, Option<usize>) {
    let mut at = 0;
    while let Some(offset) = memmem::find(view.bytes.get(at..).unwrap_or_default(), PEM_END) {
        at += offset;
        match tokens::label_end(view, at + PEM_END.len()) {
            Ok(Some(end)) => return (at, Some(end)),
            Ok(None) => at += PEM_END.len(),
            Err(_) => return (at, None),
        }
    }
    let kept = match view.flow {
        Flow::Open => PEM_END_LINE.min(view.bytes.len() - at),
        Flow::Ended => 0,
    };
    (view.bytes.len() - kept, None)
}
