//! Sizes, durations and CPU shares: what is understood is spelled so that it is understood as the same value again.
#![no_main]

use cofferdam_contract::enforcement::{EnforcedBy, LimitName};
use cofferdam_contract::units::{Bytes, CpuShare, format_duration, parse_duration};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Ok(size) = text.parse::<Bytes>() {
        assert_eq!(size.to_string().parse(), Ok(size));
    }
    if let Ok(time) = parse_duration(text) {
        assert_eq!(parse_duration(&format_duration(time)), Ok(time));
    }
    if let Ok(share) = text.parse::<CpuShare>() {
        assert_eq!(share.to_string().parse(), Ok(share));
    }
    if let Ok(limit) = text.parse::<LimitName>() {
        assert_eq!(limit.as_str().parse(), Ok(limit));
    }
    if let Ok(held) = text.parse::<EnforcedBy>() {
        assert_eq!(held.to_string(), text);
    }
});
