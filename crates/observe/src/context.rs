//! The W3C trace context: what `traceparent` and `tracestate` say, read strictly and written in version 00. What is malformed was never said.

use std::fmt;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use data_encoding::HEXLOWER;
use rustix::rand::GetRandomFlags;

use crate::state;

/// Names a trace; never all zero.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TraceId([u8; 16]);

/// Names a span within a trace; never all zero.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct SpanId([u8; 8]);

/// Whether the spans of a trace are told to a collector.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sampled {
    Yes,
    No,
}

/// One span's place in a trace, as it is passed on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceContext {
    pub trace: TraceId,
    pub span: SpanId,
    pub sampled: Sampled,
    /// What other systems want passed on, as they wrote it.
    state: Option<Arc<str>>,
}

pub const TRACEPARENT: &str = "traceparent";
pub const TRACESTATE: &str = "tracestate";
const SAMPLED: u8 = 1;

impl TraceContext {
    /// The beginning of a trace.
    pub fn root(sampled: Sampled) -> Self {
        Self::with_trace(TraceId::new(), sampled)
    }

    pub(crate) fn with_trace(trace: TraceId, sampled: Sampled) -> Self {
        Self {
            trace,
            span: SpanId::new(),
            sampled,
            state: None,
        }
    }

    /// What a caller said, or `None` when it said nothing that can be used. All values of each header, in their order.
    pub fn from_headers<'a>(
        parents: impl IntoIterator<Item = &'a [u8]>,
        states: impl IntoIterator<Item = &'a [u8]>,
    ) -> Option<Self> {
        let mut parents = parents.into_iter();
        let parent = parents.next()?;
        // Two of them: nobody can say which one is meant.
        if parents.next().is_some() {
            return None;
        }
        let (trace, span, sampled) = parse_parent(parent)?;
        Some(Self {
            trace,
            span,
            sampled,
            state: state::read(states).map(Arc::from),
        })
    }

    /// The place of a span below this one.
    #[must_use]
    pub fn child(&self) -> Self {
        Self {
            span: SpanId::new(),
            ..self.clone()
        }
    }

    /// The value of the header of that name.
    pub fn traceparent(&self) -> String {
        let flags = match self.sampled {
            Sampled::Yes => SAMPLED,
            Sampled::No => 0,
        };
        format!("00-{}-{}-{flags:02x}", self.trace, self.span)
    }

    pub fn tracestate(&self) -> Option<&str> {
        self.state.as_deref()
    }

    /// What a request of ours to somebody else carries.
    pub fn headers(&self) -> Vec<(&'static str, String)> {
        let state = self
            .tracestate()
            .map(|state| (TRACESTATE, state.to_owned()));
        std::iter::once((TRACEPARENT, self.traceparent()))
            .chain(state)
            .collect()
    }
}

/// Later versions may be longer; their beginning means the same.
fn parse_parent(text: &[u8]) -> Option<(TraceId, SpanId, Sampled)> {
    const LENGTH: usize = 55;
    let (known, rest) = text.split_at_checked(LENGTH)?;
    let mut parts = known.split(|byte| *byte == b'-');
    let mut part = |length| parts.next().filter(|part| part.len() == length);
    let version = hex::<1>(part(2)?)?;
    let trace = TraceId::from_bytes(hex(part(32)?)?)?;
    let span = SpanId::from_bytes(hex(part(16)?)?)?;
    let [flags] = hex::<1>(part(2)?)?;
    let is_whole = match version {
        [0] => rest.is_empty(),
        [0xff] => false,
        _ => rest.first().is_none_or(|byte| *byte == b'-'),
    };
    let sampled = if flags & SAMPLED == 0 {
        Sampled::No
    } else {
        Sampled::Yes
    };
    (is_whole && parts.next().is_none()).then_some((trace, span, sampled))
}

/// Lower case alone, as the recommendation wants it.
fn hex<const N: usize>(text: &[u8]) -> Option<[u8; N]> {
    HEXLOWER.decode(text).ok()?.try_into().ok()
}

impl TraceId {
    fn new() -> Self {
        loop {
            if let Some(id) = Self::from_bytes(random()) {
                return id;
            }
        }
    }

    pub fn from_bytes(bytes: [u8; 16]) -> Option<Self> {
        (bytes != [0; 16]).then_some(Self(bytes))
    }

    /// Evenly spread over all values where the id is random, and the same for everybody who looks at the trace.
    pub(crate) fn lot(self) -> u64 {
        let [.., a, b, c, d, e, f, g, h] = self.0;
        u64::from_be_bytes([a, b, c, d, e, f, g, h])
    }
}

impl SpanId {
    fn new() -> Self {
        loop {
            if let Some(id) = Self::from_bytes(random()) {
                return id;
            }
        }
    }

    pub fn from_bytes(bytes: [u8; 8]) -> Option<Self> {
        (bytes != [0; 8]).then_some(Self(bytes))
    }
}

/// From the kernel. Not for secrets: what cannot be had is filled with the time.
fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    match rustix::rand::getrandom(&mut bytes[..], GetRandomFlags::empty()) {
        Ok(got) if got == N => {}
        Ok(_) | Err(_) => {
            let time = SystemTime::now().duration_since(UNIX_EPOCH);
            let time = time.unwrap_or_default().as_nanos().to_le_bytes();
            for (byte, time) in bytes.iter_mut().zip(time) {
                *byte ^= time;
            }
        }
    }
    bytes
}

impl fmt::Display for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&HEXLOWER.encode(&self.0))
    }
}

impl fmt::Display for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&HEXLOWER.encode(&self.0))
    }
}

impl fmt::Debug for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Debug for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    fn read(parent: &str) -> Option<TraceContext> {
        TraceContext::from_headers([parent.as_bytes()], [])
    }

    #[test]
    fn a_trace_is_taken_over_only_when_it_is_one() {
        let read_back = read(GOOD).unwrap();
        assert_eq!(read_back.traceparent(), GOOD);
        for bad in [
            "",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-1",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-0g",
            "0-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-011",
            "00-0af7651916cd43dd8448eb211c80319-cb7ad6b7169203331-01",
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
            "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-x",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-",
            "01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01.x",
            " 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00_0af7651916cd43dd8448eb211c80319c_b7ad6b7169203331_01",
        ] {
            assert_eq!(read(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_later_version_is_read_by_its_beginning_and_answered_in_ours() {
        for later in [
            "01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-ff",
            "cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-what-comes",
        ] {
            assert_eq!(read(later).unwrap().traceparent(), GOOD, "{later}");
        }
    }

    #[test]
    fn two_parents_are_none() {
        let twice = TraceContext::from_headers([GOOD.as_bytes(), GOOD.as_bytes()], []);
        assert_eq!(twice, None);
    }

    #[test]
    fn a_bad_state_does_not_cost_the_trace_and_a_child_keeps_a_good_one() {
        let with = |state: &'static str| {
            TraceContext::from_headers([GOOD.as_bytes()], [state.as_bytes()]).unwrap()
        };
        assert_eq!(with("a=1,a=2").tracestate(), None);
        let good = with("rojo=00f067aa0ba902b7,congo=t61rcWkgMzE");
        let child = good.child();
        assert_ne!(child.span, good.span);
        assert_eq!((child.trace, child.sampled), (good.trace, good.sampled));
        let state = "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE".to_owned();
        let expected = vec![(TRACEPARENT, child.traceparent()), (TRACESTATE, state)];
        assert_eq!(child.headers(), expected);
    }

    proptest::proptest! {
        #[test]
        fn whatever_is_read_is_written_as_something_that_is_read(text in "[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}(-.{0,8})?") {
            if let Some(context) = read(&text) {
                assert_eq!(read(&context.traceparent()), Some(context));
            }
        }

        #[test]
        fn no_bytes_make_it_panic(parent in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..80), state in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..80)) {
            let _ = TraceContext::from_headers([parent.as_slice()], [state.as_slice()]);
            let _ = TraceContext::from_headers([GOOD.as_bytes()], [state.as_slice()]);
        }
    }
}
