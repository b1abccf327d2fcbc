//! Where spans go and how many of them, as an operator says it.

use std::fmt;
use std::str::FromStr;

use url::Url;

use crate::context::{Sampled, TraceId};

/// A collector that takes OTLP over HTTP.
#[derive(Clone, PartialEq, Eq)]
pub struct Endpoint {
    traces: Url,
    /// May hold secrets.
    pub(crate) headers: Vec<(String, String)>,
}

/// Which part of the traces that begin here is told, in millionths.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ratio(u32);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadEndpoint {
    #[error("is not the URL of a collector; write one such as `http://127.0.0.1:4318`")]
    NotAUrl,
    #[error("must not carry a name or a password; put it into OTEL_EXPORTER_OTLP_HEADERS")]
    Credentials,
    #[error("is not a list of headers; write `name=value,name=value`, percent-encoded")]
    Headers,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("is not a part of the traces; write a number from 0 to 1 such as `0.1`")]
pub struct BadRatio;

const MILLION: u32 = 1_000_000;

impl Endpoint {
    /// The base of a collector's addresses; the one for traces is below it.
    pub fn parse(base: &str) -> Result<Self, BadEndpoint> {
        let mut traces = Url::parse(base).map_err(|_| BadEndpoint::NotAUrl)?;
        if !matches!(traces.scheme(), "http" | "https") || traces.host().is_none() {
            return Err(BadEndpoint::NotAUrl);
        }
        if !traces.username().is_empty() || traces.password().is_some() {
            return Err(BadEndpoint::Credentials);
        }
        if traces.query().is_some() || traces.fragment().is_some() {
            return Err(BadEndpoint::NotAUrl);
        }
        let path = format!("{}/v1/traces", traces.path().trim_end_matches('/'));
        traces.set_path(&path);
        Ok(Self {
            traces,
            headers: Vec::new(),
        })
    }

    /// Adds headers written as `OTEL_EXPORTER_OTLP_HEADERS` has them.
    pub fn with_headers(mut self, text: &str) -> Result<Self, BadEndpoint> {
        for pair in text.split(',').filter(|pair| !pair.trim().is_empty()) {
            let (name, value) = pair.split_once('=').ok_or(BadEndpoint::Headers)?;
            let name = name.trim();
            let value = decode(value.trim()).ok_or(BadEndpoint::Headers)?;
            let may_stand = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
            let is_name = !name.is_empty() && name.bytes().all(may_stand);
            if !is_name || !value.bytes().all(|byte| (0x20..=0x7e).contains(&byte)) {
                return Err(BadEndpoint::Headers);
            }
            self.headers.push((name.to_owned(), value));
        }
        Ok(self)
    }

    pub(crate) fn url(&self) -> &str {
        self.traces.as_str()
    }

    pub(crate) fn is_encrypted(&self) -> bool {
        self.traces.scheme() == "https"
    }
}

fn decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let pair = [rest.next()?, rest.next()?];
                let pair = data_encoding::HEXLOWER_PERMISSIVE.decode(&pair).ok()?;
                *pair.first()?
            }
            other => other,
        });
    }
    String::from_utf8(bytes).ok()
}

impl Ratio {
    pub const ALL: Self = Self(MILLION);

    /// The same trace gets the same answer everywhere.
    pub(crate) fn decide(self, trace: TraceId) -> Sampled {
        let bound = u128::from(u64::MAX) * u128::from(self.0) / u128::from(MILLION);
        if self == Self::ALL || u128::from(trace.lot()) < bound {
            Sampled::Yes
        } else {
            Sampled::No
        }
    }
}

impl FromStr for Ratio {
    type Err = BadRatio;

    fn from_str(text: &str) -> Result<Self, BadRatio> {
        let (whole, part) = text.split_once('.').unwrap_or((text, ""));
        let is_number = |digits: &str| digits.bytes().all(|byte| byte.is_ascii_digit());
        if !matches!(whole, "0" | "1") || !is_number(part) || part.len() > 6 {
            return Err(BadRatio);
        }
        let millionths: u32 = format!("{part:0<6}").parse().map_err(|_| BadRatio)?;
        match (whole, millionths) {
            ("1", 0) => Ok(Self::ALL),
            ("1", _) => Err(BadRatio),
            (_, millionths) => Ok(Self(millionths)),
        }
    }
}

impl fmt::Display for Ratio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            MILLION => f.write_str("1"),
            0 => f.write_str("0"),
            part => f.write_str(format!("0.{part:06}").trim_end_matches('0')),
        }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let base = self.url().strip_suffix("/v1/traces");
        f.write_str(base.unwrap_or_default())
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.headers.iter().map(|(name, _)| name).collect();
        f.debug_struct("Endpoint")
            .field("traces", &self.url())
            .field("headers", &names)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::TraceContext;

    #[test]
    fn an_endpoint_is_a_base_and_shows_no_secret() {
        for (base, traces) in [
            ("http://127.0.0.1:4318", "http://127.0.0.1:4318/v1/traces"),
            (
                "https://otel.example/a/",
                "https://otel.example/a/v1/traces",
            ),
        ] {
            assert_eq!(Endpoint::parse(base).unwrap().url(), traces);
        }
        for bad in [
            "",
            "collector:4318",
            "file:///x",
            "http://a?k=v",
            "http://u:p@a",
        ] {
            assert!(Endpoint::parse(bad).is_err(), "{bad}");
        }
        let endpoint = Endpoint::parse("http://a").unwrap();
        let endpoint = endpoint.with_headers("api-key=top%20secret, x=1").unwrap();
        assert_eq!(endpoint.headers[0].1, "top secret");
        assert!(!format!("{endpoint:?} {endpoint}").contains("secret"));
        for bad in ["x", "a b=1", "a=%zz", "a=%0a"] {
            let endpoint = Endpoint::parse("http://a").unwrap();
            assert_eq!(
                endpoint.with_headers(bad),
                Err(BadEndpoint::Headers),
                "{bad}"
            );
        }
    }

    #[test]
    fn a_ratio_is_read_shown_and_kept_to() {
        for text in ["0", "0.1", "0.000001", "0.25", "1"] {
            assert_eq!(text.parse::<Ratio>().unwrap().to_string(), text);
        }
        for bad in ["", "2", "1.1", "-1", "0.0000001", "half", "1e-3", "0.1.2"] {
            assert_eq!(bad.parse::<Ratio>(), Err(BadRatio), "{bad}");
        }
        let sampled = |ratio: &str| {
            let ratio: Ratio = ratio.parse().unwrap();
            let traces = (0..4000).map(|_| TraceContext::root(Sampled::No).trace);
            traces
                .filter(|trace| ratio.decide(*trace) == Sampled::Yes)
                .count()
        };
        assert_eq!((sampled("0"), sampled("1")), (0, 4000));
        // Fifteen standard deviations.
        assert!((600..1400).contains(&sampled("0.25")));
    }
}
