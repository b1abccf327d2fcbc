//! Units as types: bytes, durations, CPU shares, and their spellings for people (`512m`, `1.5g`, `30s`, `5m`).
//! There is no sentinel: "no limit" is [`Cap::Unlimited`], never 0 or -1. Spellings are read by integer arithmetic, never through
//! floats; what does not fit is refused, never rounded up or wrapped.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::decimal::{self, Decimal};

/// A number of bytes.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    schemars::JsonSchema,
)]
#[serde(transparent)]
pub struct Bytes(u64);

/// A ceiling, or the deliberate absence of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cap<T> {
    AtMost(T),
    Unlimited,
}

/// A share of the machine's CPUs in thousandths: `1500` is one and a half CPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(into = "f64")]
pub struct CpuShare(u32);

/// A duration as people write it; reads and shows `250ms`, `30s`, `5m`, `1.5h`, `1d`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DurationText(pub Duration);

/// Why a size, duration or share could not be read; the text ends with what would have been accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadUnit {
    #[error("`{text}` is not a size; write a number with k, m, g or t, such as `512m` or `1.5g`")]
    Size { text: String },
    #[error(
        "`{text}` is not a duration; write a number with ms, s, m, h or d, such as `30s` or `5m`"
    )]
    Duration { text: String },
    #[error(
        "`{text}` is not a CPU share; write a number above 0 such as `0.5` or `2`, with at most three decimals"
    )]
    Cpus { text: String },
    #[error("`{text}` is too large to represent; write a smaller number")]
    TooLarge { text: String },
}

const NANOS_PER_SECOND: u64 = 1_000_000_000;

/// Largest first: the unit shown is the first one that the value fills and divides evenly enough.
const SIZE_UNITS: [(u64, &str); 5] = [
    (1 << 40, "TiB"),
    (1 << 30, "GiB"),
    (1 << 20, "MiB"),
    (1 << 10, "KiB"),
    (1, "B"),
];

const LONG_UNITS: [(u64, &str); 4] = [
    (86_400 * NANOS_PER_SECOND, "d"),
    (3_600 * NANOS_PER_SECOND, "h"),
    (60 * NANOS_PER_SECOND, "min"),
    (NANOS_PER_SECOND, "s"),
];

const SHORT_UNITS: [(u64, &str); 3] = [(1_000_000, "ms"), (1_000, "us"), (1, "ns")];

impl Bytes {
    pub const fn new(bytes: u64) -> Self {
        Self(bytes)
    }

    pub const fn from_kib(n: u64) -> Option<Self> {
        match n.checked_mul(1 << 10) {
            Some(b) => Some(Self(b)),
            None => None,
        }
    }

    pub const fn from_mib(n: u64) -> Option<Self> {
        match n.checked_mul(1 << 20) {
            Some(b) => Some(Self(b)),
            None => None,
        }
    }

    pub const fn get(self) -> u64 {
        self.0
    }
}

impl<T: Copy> Cap<T> {
    pub const fn at_most(self) -> Option<T> {
        match self {
            Self::AtMost(t) => Some(t),
            Self::Unlimited => None,
        }
    }

    pub fn map<U>(self, f: impl FnOnce(T) -> U) -> Cap<U> {
        match self {
            Self::AtMost(t) => Cap::AtMost(f(t)),
            Self::Unlimited => Cap::Unlimited,
        }
    }
}

impl<T: Copy + PartialOrd> Cap<T> {
    /// Whether `used` is above the ceiling; nothing is above no ceiling.
    pub fn is_exceeded_by(self, used: T) -> bool {
        self.at_most().is_some_and(|limit| used > limit)
    }
}

impl CpuShare {
    pub const fn from_milli(milli: u32) -> Option<Self> {
        if milli == 0 { None } else { Some(Self(milli)) }
    }

    pub const fn milli(self) -> u32 {
        self.0
    }

    /// How many CPUs a program sees when it may use this share: the next whole number.
    pub const fn visible_cpus(self) -> u32 {
        self.0.div_ceil(1000)
    }
}

impl From<CpuShare> for f64 {
    fn from(share: CpuShare) -> f64 {
        f64::from(share.0) / 1000.0
    }
}

impl FromStr for Bytes {
    type Err = BadUnit;

    /// Powers of 1024 whatever the spelling: `100k`, `100kb` and `100 KiB` are the same. A fraction of a byte is cut off.
    fn from_str(text: &str) -> Result<Self, BadUnit> {
        let bad = || BadUnit::Size { text: shown(text) };
        let (number, unit) = decimal::split_unit(text);
        let multiplier = size_multiplier(unit).ok_or_else(bad)?;
        let number = Decimal::parse(number).map_err(|e| e.into_bad(text, bad()))?;
        let bytes = number
            .times(multiplier)
            .and_then(|scaled| u64::try_from(scaled.floor).ok())
            .ok_or_else(|| BadUnit::TooLarge { text: shown(text) })?;
        // Something asked for must never become nothing.
        if bytes == 0 && !number.is_zero() {
            Err(bad())
        } else {
            Ok(Self(bytes))
        }
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match decimal::in_largest_unit(u128::from(self.0), &SIZE_UNITS) {
            Some(text) => f.write_str(&text),
            None => write!(f, "{} B", self.0),
        }
    }
}

impl FromStr for CpuShare {
    type Err = BadUnit;

    fn from_str(text: &str) -> Result<Self, BadUnit> {
        let bad = || BadUnit::Cpus { text: shown(text) };
        let number = Decimal::parse(text.trim()).map_err(|e| e.into_bad(text, bad()))?;
        let scaled = number
            .times(1000)
            .ok_or_else(|| BadUnit::TooLarge { text: shown(text) })?;
        if !scaled.exact {
            return Err(bad());
        }
        let milli =
            u32::try_from(scaled.floor).map_err(|_| BadUnit::TooLarge { text: shown(text) })?;
        Self::from_milli(milli).ok_or_else(bad)
    }
}

impl fmt::Display for CpuShare {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&decimal::thousandths(u128::from(self.0)))
    }
}

/// Reads `250ms`, `30s`, `5m`, `1.5h`, `1d`; a plain number is seconds. A fraction of a nanosecond is cut off.
pub fn parse_duration(text: &str) -> Result<Duration, BadUnit> {
    let bad = || BadUnit::Duration { text: shown(text) };
    let too_large = || BadUnit::TooLarge { text: shown(text) };
    let (number, unit) = decimal::split_unit(text);
    let multiplier = duration_multiplier(unit).ok_or_else(bad)?;
    let number = Decimal::parse(number).map_err(|e| e.into_bad(text, bad()))?;
    let nanos = number.times(multiplier).ok_or_else(too_large)?.floor;
    if nanos == 0 && !number.is_zero() {
        return Err(bad());
    }
    duration_from_nanos(nanos).ok_or_else(too_large)
}

/// The shortest exact spelling: `2 s`, `1.5 s`, `5 min`, `250 ms`. [`parse_duration`] reads it back.
pub fn format_duration(duration: Duration) -> String {
    let seconds_exactly = || {
        let text = format!("{}.{:09}", duration.as_secs(), duration.subsec_nanos());
        format!("{} s", text.trim_end_matches('0').trim_end_matches('.'))
    };
    let units = if duration.as_secs() == 0 {
        &SHORT_UNITS[..]
    } else {
        &LONG_UNITS[..]
    };
    decimal::in_largest_unit(duration.as_nanos(), units).unwrap_or_else(seconds_exactly)
}

impl FromStr for DurationText {
    type Err = BadUnit;

    fn from_str(text: &str) -> Result<Self, BadUnit> {
        parse_duration(text).map(Self)
    }
}

impl fmt::Display for DurationText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&format_duration(self.0))
    }
}

impl Serialize for DurationText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for DurationText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(serde::de::Error::custom)
    }
}

fn size_multiplier(unit: &str) -> Option<u64> {
    match unit.to_ascii_lowercase().as_str() {
        "" | "b" => Some(1),
        "k" | "kb" | "kib" => Some(1 << 10),
        "m" | "mb" | "mib" => Some(1 << 20),
        "g" | "gb" | "gib" => Some(1 << 30),
        "t" | "tb" | "tib" => Some(1 << 40),
        _ => None,
    }
}

fn duration_multiplier(unit: &str) -> Option<u64> {
    match unit.to_ascii_lowercase().as_str() {
        "ns" => Some(1),
        "us" => Some(1_000),
        "ms" => Some(1_000_000),
        "" | "s" => Some(NANOS_PER_SECOND),
        "m" | "min" => Some(60 * NANOS_PER_SECOND),
        "h" => Some(3_600 * NANOS_PER_SECOND),
        "d" => Some(86_400 * NANOS_PER_SECOND),
        _ => None,
    }
}

fn duration_from_nanos(nanos: u128) -> Option<Duration> {
    let seconds = u64::try_from(nanos / u128::from(NANOS_PER_SECOND)).ok()?;
    let rest = u32::try_from(nanos % u128::from(NANOS_PER_SECOND)).ok()?;
    Some(Duration::new(seconds, rest))
}

/// A hostile text can be megabytes long; an error message is for reading.
fn shown(text: &str) -> String {
    crate::problem::shorten(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bytes(text: &str) -> Result<u64, BadUnit> {
        text.parse::<Bytes>().map(Bytes::get)
    }

    #[test]
    fn sizes_are_powers_of_1024_in_every_spelling() {
        for (text, expected) in [
            ("0", 0),
            ("1", 1),
            ("4096", 4096),
            ("100k", 102_400),
            ("100K", 102_400),
            ("100kb", 102_400),
            ("100KiB", 102_400),
            ("512m", 512 << 20),
            ("512MB", 512 << 20),
            ("64MiB", 64 << 20),
            ("1.5g", 3 << 29),
            ("0.5g", 1 << 29),
            (".5g", 1 << 29),
            ("2TB", 2 << 40),
            ("2tib", 2 << 40),
            (" 64 MiB ", 64 << 20),
            ("1025 B", 1025),
            ("007k", 7168),
            ("1.1g", 1_181_116_006),
            ("0.0009765625k", 1),
            ("16777215.999999999999t", u64::MAX - 1),
            ("18446744073709551615", u64::MAX),
        ] {
            assert_eq!(bytes(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn what_is_not_a_size_is_refused() {
        for text in [
            "", " ", "m", "-1", "-1k", "+1", "nan", "NaN", "inf", "1e3", "1.", "1.k", ".", ".k",
            "1..5g", "1,5g", "1 5g", "5x", "5kk", "5bk", "5ki", "5 k b", "0x10", "١٢", "5µ", "0.1",
            "0.0001k", "1\0k", "5ik", "1_000",
        ] {
            assert_eq!(
                bytes(text),
                Err(BadUnit::Size { text: text.into() }),
                "{text:?}"
            );
        }
        for text in [
            "18446744073709551616",
            "16777216t",
            "99999999999999999999999999999999999999g",
        ] {
            assert_eq!(
                bytes(text),
                Err(BadUnit::TooLarge { text: text.into() }),
                "{text:?}"
            );
        }
    }

    #[test]
    fn sizes_are_shown_in_the_shortest_exact_spelling() {
        for (value, expected) in [
            (0, "0 B"),
            (1, "1 B"),
            (1023, "1023 B"),
            (1024, "1 KiB"),
            (1025, "1025 B"),
            (1536, "1.5 KiB"),
            (102_400, "100 KiB"),
            (512 << 20, "512 MiB"),
            (3 << 29, "1.5 GiB"),
            (1 << 30, "1 GiB"),
            (5 << 28, "1.25 GiB"),
            (1 << 50, "1024 TiB"),
            (u64::MAX, "18446744073709551615 B"),
        ] {
            assert_eq!(Bytes::new(value).to_string(), expected);
        }
    }

    #[test]
    fn durations_are_read_and_shown() {
        for (text, expected) in [
            ("0", Duration::ZERO),
            ("250ms", Duration::from_millis(250)),
            ("30s", Duration::from_secs(30)),
            ("30", Duration::from_secs(30)),
            ("0.1", Duration::from_millis(100)),
            ("5m", Duration::from_secs(300)),
            ("5 min", Duration::from_secs(300)),
            ("1.5h", Duration::from_secs(5400)),
            ("1d", Duration::from_secs(86_400)),
            ("1D", Duration::from_secs(86_400)),
            ("1.000000001s", Duration::new(1, 1)),
        ] {
            assert_eq!(parse_duration(text), Ok(expected), "{text}");
        }
        for (duration, expected) in [
            (Duration::ZERO, "0 s"),
            (Duration::from_secs(2), "2 s"),
            (Duration::from_millis(1500), "1.5 s"),
            (Duration::from_millis(250), "250 ms"),
            (Duration::from_micros(1), "1 us"),
            (Duration::from_nanos(1_234_567_891), "1.234567891 s"),
            (Duration::from_secs(61), "61 s"),
            (Duration::from_secs(300), "5 min"),
            (Duration::from_secs(5400), "1.5 h"),
            (Duration::from_secs(86_400), "1 d"),
        ] {
            assert_eq!(format_duration(duration), expected);
        }
    }

    #[test]
    fn what_is_not_a_duration_is_refused() {
        for text in [
            "",
            "-1s",
            "s",
            "1.s",
            "NaN",
            "inf",
            "1e3",
            "5 parsecs",
            "1w",
            "1h30m",
            "0.1ns",
        ] {
            assert_eq!(
                parse_duration(text),
                Err(BadUnit::Duration { text: text.into() }),
                "{text:?}"
            );
        }
        let text = "18446744073709551616s";
        assert_eq!(
            parse_duration(text),
            Err(BadUnit::TooLarge { text: text.into() })
        );
        let text = "18446744073709551615d";
        assert_eq!(
            parse_duration(text),
            Err(BadUnit::TooLarge { text: text.into() })
        );
    }

    #[test]
    fn cpu_shares_have_at_most_three_decimals() {
        for (text, milli) in [
            ("1", 1000),
            ("0.5", 500),
            ("1.500000", 1500),
            ("0.001", 1),
            ("4096", 4_096_000),
        ] {
            assert_eq!(text.parse(), Ok(CpuShare(milli)), "{text}");
        }
        for text in ["", "0", "0.0", "-1", "0.0001", "1.0005", "1k", "NaN", "1e3"] {
            assert_eq!(
                text.parse::<CpuShare>(),
                Err(BadUnit::Cpus { text: text.into() }),
                "{text:?}"
            );
        }
        assert_eq!(
            "4294968".parse::<CpuShare>(),
            Err(BadUnit::TooLarge {
                text: "4294968".into()
            })
        );
        assert_eq!(CpuShare(1500).to_string(), "1.5");
        assert_eq!(CpuShare(2000).to_string(), "2");
        assert_eq!(CpuShare(1).to_string(), "0.001");
    }

    #[test]
    fn an_error_does_not_carry_a_megabyte() {
        let text = "9".repeat(1 << 20);
        let message = text.parse::<Bytes>().unwrap_err().to_string();
        assert!(message.len() < 300, "{} bytes", message.len());
    }

    #[test]
    fn no_ceiling_is_never_exceeded() {
        assert!(!Cap::Unlimited.is_exceeded_by(u64::MAX));
        assert!(!Cap::AtMost(5).is_exceeded_by(5));
        assert!(Cap::AtMost(5).is_exceeded_by(6));
        assert_eq!(Cap::AtMost(5).map(|n| n * 2), Cap::AtMost(10));
    }

    proptest! {
        #[test]
        fn a_shown_size_reads_back(value: u64) {
            prop_assert_eq!(Bytes::new(value).to_string().parse(), Ok(Bytes::new(value)));
        }

        #[test]
        fn a_round_size_reads_back(count in 0u64..1 << 22, shift in 0u32..5) {
            let value = Bytes::new(count << (shift * 10));
            prop_assert_eq!(value.to_string().parse(), Ok(value));
        }

        #[test]
        fn a_shown_duration_reads_back(seconds: u64, nanos in 0u32..1_000_000_000) {
            let duration = Duration::new(seconds, nanos);
            prop_assert_eq!(parse_duration(&format_duration(duration)), Ok(duration));
        }

        #[test]
        fn a_shown_round_duration_reads_back(millis: u32) {
            let duration = DurationText(Duration::from_millis(u64::from(millis)));
            prop_assert_eq!(duration.to_string().parse(), Ok(duration));
        }

        #[test]
        fn a_shown_share_reads_back(milli in 1u32..) {
            prop_assert_eq!(CpuShare(milli).to_string().parse(), Ok(CpuShare(milli)));
        }

        #[test]
        fn no_text_makes_a_parser_panic(text: String) {
            let _ = text.parse::<Bytes>();
            let _ = text.parse::<CpuShare>();
            let _ = parse_duration(&text);
        }

        #[test]
        fn no_number_like_text_makes_a_parser_panic(text in "[-+ ]?[0-9]{0,40}[.]?[0-9]{0,40} ?[kmgtbisdhnu]{0,3}") {
            let _ = text.parse::<Bytes>();
            let _ = text.parse::<CpuShare>();
            let _ = parse_duration(&text);
        }
    }
}
