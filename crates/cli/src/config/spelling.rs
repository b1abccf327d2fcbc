//! How a single value is written: `512m`, `30s`, `1.5`, `100`, `native`, and `unlimited` for each limit. The same functions serve
//! files, the environment and the command line, so a value means the same wherever it stands.
//!
//! Every function returns what is wrong and what to write instead, ready for a person.

use std::str::FromStr;
use std::time::Duration;

use cofferdam_contract::io_rates::IoRates;
use cofferdam_contract::mode::Mode;
use cofferdam_contract::request::BackendName;
use cofferdam_contract::units::{Bytes, Cap, CpuShare, parse_duration};

use super::suggest::nearest;

/// The word for "no limit". There is no number for it.
pub(crate) const UNLIMITED: &str = "unlimited";

const BACKENDS: [BackendName; 6] = [
    BackendName::Native,
    BackendName::Bubblewrap,
    BackendName::Gvisor,
    BackendName::Docker,
    BackendName::Wasm,
    BackendName::Host,
];

/// Nothing that a value can mean is longer.
const MAX_LEN: usize = 64;

/// What is above all other settings.
pub(crate) fn mode(text: &str) -> Result<Mode, String> {
    text.parse()
        .map_err(|unknown: cofferdam_contract::mode::UnknownMode| unknown.to_string())
}

/// A size limit: `512m`, `1.5g`, `unlimited`.
pub(crate) fn bytes(text: &str) -> Result<Cap<Bytes>, String> {
    cap(text, |text| {
        let size = Bytes::from_str(text).map_err(|bad| bad.to_string())?;
        above_zero(size, Bytes::new(0))
    })
}

/// A time limit: `30s`, `5m`, `unlimited`.
pub(crate) fn duration(text: &str) -> Result<Cap<Duration>, String> {
    cap(text, |text| {
        above_zero(
            parse_duration(text).map_err(|bad| bad.to_string())?,
            Duration::ZERO,
        )
    })
}

/// A share of the CPUs: `0.5`, `2`, `unlimited`.
pub(crate) fn cpus(text: &str) -> Result<Cap<CpuShare>, String> {
    cap(text, |text| {
        CpuShare::from_str(text).map_err(|bad| bad.to_string())
    })
}

/// Rates of disks: `read_bps=10m,write_iops=100`, `unlimited`.
pub(crate) fn io_rates(text: &str) -> Result<Cap<IoRates>, String> {
    if text == UNLIMITED {
        return Ok(Cap::Unlimited);
    }
    text.parse()
        .map(Cap::AtMost)
        .map_err(|bad: cofferdam_contract::io_rates::BadRates| bad.to_string())
}

/// A number of things: `100`, `unlimited`.
pub(crate) fn count(text: &str) -> Result<Cap<u64>, String> {
    cap(text, |text| {
        // `u64::from_str` would also take `+5`.
        if text.is_empty() || !text.bytes().all(|b| b.is_ascii_digit()) {
            return Err(format!(
                "`{text}` is not a whole number; write one such as `100`"
            ));
        }
        above_zero(
            text.parse().map_err(|_| {
                format!("`{text}` is too large; write a smaller number or `{UNLIMITED}`")
            })?,
            0,
        )
    })
}

/// A backend by name.
pub(crate) fn backend(text: &str) -> Result<BackendName, String> {
    let text = presentable(text)?;
    if let Some(here) = BACKENDS.into_iter().find(|name| name.as_str() == text) {
        return Ok(here);
    }
    let known = BACKENDS.map(BackendName::as_str);
    Err(match nearest(text, &known) {
        Some(name) => format!("there is no backend `{text}`; did you mean `{name}`?"),
        None => format!(
            "there is no backend `{text}`; write one of {}",
            known.join(", ")
        ),
    })
}

fn cap<T>(text: &str, parse: impl FnOnce(&str) -> Result<T, String>) -> Result<Cap<T>, String> {
    let text = presentable(text)?;
    if text == UNLIMITED {
        return Ok(Cap::Unlimited);
    }
    parse(text).map(Cap::AtMost)
}

/// Zero means "none at all" to some programs and "no limit" to others, so here it means neither.
fn above_zero<T: PartialEq>(value: T, zero: T) -> Result<T, String> {
    if value == zero {
        return Err(format!(
            "0 is not a limit; write a number above 0, or `{UNLIMITED}` for none"
        ));
    }
    Ok(value)
}

/// Messages repeat the value, and a terminal must not obey it: what is long or holds control characters goes no further.
fn presentable(text: &str) -> Result<&str, String> {
    if text.len() > MAX_LEN {
        return Err(format!(
            "the value has {} bytes; no value needs more than {MAX_LEN}",
            text.len()
        ));
    }
    if text.chars().any(char::is_control) {
        return Err("the value holds control characters; remove them".to_owned());
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unlimited_is_a_value_for_each_limit() {
        assert_eq!(bytes("unlimited"), Ok(Cap::Unlimited));
        assert_eq!(duration("unlimited"), Ok(Cap::Unlimited));
        assert_eq!(cpus("unlimited"), Ok(Cap::Unlimited));
        assert_eq!(count("unlimited"), Ok(Cap::Unlimited));
    }

    #[test]
    fn values_are_read_in_their_units() {
        assert_eq!(bytes("512m"), Ok(Cap::AtMost(Bytes::new(512 << 20))));
        assert_eq!(duration("5m"), Ok(Cap::AtMost(Duration::from_secs(300))));
        assert_eq!(
            cpus("1.5").map(|c| c.at_most().map(CpuShare::milli)),
            Ok(Some(1500))
        );
        assert_eq!(count("100"), Ok(Cap::AtMost(100)));
        assert_eq!(backend("host"), Ok(BackendName::Host));
        assert_eq!(backend("docker"), Ok(BackendName::Docker));
    }

    #[test]
    fn zero_is_neither_nothing_nor_everything() {
        for refused in [bytes("0").err(), duration("0s").err(), count("0").err()] {
            assert!(refused.is_some_and(|fix| fix.contains("unlimited")));
        }
        assert!(cpus("0").is_err());
    }

    #[test]
    fn hostile_values_are_refused_without_being_repeated() {
        let long = "9".repeat(1 << 20);
        for parse in [
            |t: &str| bytes(t).err(),
            |t: &str| count(t).err(),
            |t: &str| backend(t).err(),
        ] {
            let fix = parse(&long).expect("too long");
            assert!(fix.len() < 100, "{fix}");
            let fix = parse("\u{1b}[2J").expect("control characters");
            assert!(!fix.contains('\u{1b}'), "{fix:?}");
        }
        assert!(count("+5").is_err());
        assert!(count("-1").is_err());
        assert!(count("18446744073709551616").is_err());
        assert!(count("").is_err());
    }

    #[test]
    fn a_mistyped_backend_gets_a_suggestion() {
        assert_eq!(
            backend("naitve"),
            Err("there is no backend `naitve`; did you mean `native`?".to_owned())
        );
    }
}
