//! Decimal numbers by integer arithmetic, for the units: `1.5` is 15/10, exactly. Knows nothing of what the number counts.

use crate::units::BadUnit;

/// A non-negative decimal number: `whole + fraction / 10^scale`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Decimal {
    whole: u64,
    fraction: u128,
    scale: u32,
}

/// A decimal times a whole number: what is left after cutting the fraction off, and whether there was none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Scaled {
    pub(crate) floor: u128,
    pub(crate) exact: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BadDecimal {
    NotANumber,
    TooLarge,
}

/// 10^24 times a day in nanoseconds still fits 128 bits, so everything below is exact.
const MAX_FRACTION_DIGITS: usize = 24;

impl Decimal {
    /// Digits, at most one dot, at least one digit after a dot. No sign, no exponent, no NaN.
    pub(crate) fn parse(text: &str) -> Result<Self, BadDecimal> {
        let (whole, fraction) = match text.split_once('.') {
            Some((_, "")) => return Err(BadDecimal::NotANumber),
            Some((whole, fraction)) => (whole, fraction),
            None if text.is_empty() => return Err(BadDecimal::NotANumber),
            None => (text, ""),
        };
        let is_digits = |part: &str| part.bytes().all(|b| b.is_ascii_digit());
        if !is_digits(whole) || !is_digits(fraction) {
            return Err(BadDecimal::NotANumber);
        }
        let fraction = fraction.trim_end_matches('0');
        if fraction.len() > MAX_FRACTION_DIGITS {
            return Err(BadDecimal::NotANumber);
        }
        Ok(Self {
            whole: parse_digits(whole)
                .and_then(|n| u64::try_from(n).ok())
                .ok_or(BadDecimal::TooLarge)?,
            fraction: parse_digits(fraction).ok_or(BadDecimal::TooLarge)?,
            scale: u32::try_from(fraction.len()).map_err(|_| BadDecimal::TooLarge)?,
        })
    }

    pub(crate) const fn is_zero(&self) -> bool {
        self.whole == 0 && self.fraction == 0
    }

    pub(crate) fn times(&self, multiplier: u64) -> Option<Scaled> {
        let multiplier = u128::from(multiplier);
        let divisor = 10u128.checked_pow(self.scale)?;
        let fraction = self.fraction.checked_mul(multiplier)?;
        let floor = u128::from(self.whole)
            .checked_mul(multiplier)?
            .checked_add(fraction / divisor)?;
        Some(Scaled {
            floor,
            exact: fraction.is_multiple_of(divisor),
        })
    }
}

impl BadDecimal {
    pub(crate) fn into_bad(self, text: &str, not_a_number: BadUnit) -> BadUnit {
        match self {
            Self::NotANumber => not_a_number,
            Self::TooLarge => BadUnit::TooLarge {
                text: crate::problem::shorten(text),
            },
        }
    }
}

/// `" 1.5 GiB "` is `1.5` and `GiB`.
pub(crate) fn split_unit(text: &str) -> (&str, &str) {
    let text = text.trim();
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    (number, unit.trim_start())
}

/// The value in the largest unit that it fills and divides with at most three decimals.
pub(crate) fn in_largest_unit(value: u128, units: &[(u64, &str)]) -> Option<String> {
    units.iter().find_map(|&(size, name)| {
        let size = u128::from(size);
        let in_thousandths = value.checked_mul(1000)?;
        let fits = value >= size && in_thousandths.is_multiple_of(size);
        fits.then(|| format!("{} {name}", thousandths(in_thousandths / size)))
    })
}

/// `1500` is `1.5`.
pub(crate) fn thousandths(value: u128) -> String {
    let text = format!("{}.{:03}", value / 1000, value % 1000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn parse_digits(digits: &str) -> Option<u128> {
    digits.bytes().try_fold(0u128, |sum, digit| {
        sum.checked_mul(10)?
            .checked_add(u128::from(digit.wrapping_sub(b'0')))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_is_exact_at_the_borders_of_a_double() {
        // 0.1 * 3 through doubles is 0.30000000000000004.
        let tenth = Decimal::parse("0.1").unwrap();
        assert_eq!(
            tenth.times(30),
            Some(Scaled {
                floor: 3,
                exact: true
            })
        );
        assert_eq!(
            tenth.times(3),
            Some(Scaled {
                floor: 0,
                exact: false
            })
        );
        let almost = Decimal::parse("0.999999999999999999999999").unwrap();
        assert_eq!(
            almost.times(1 << 40),
            Some(Scaled {
                floor: (1 << 40) - 1,
                exact: false
            })
        );
    }

    #[test]
    fn the_largest_fraction_and_the_largest_unit_do_not_overflow() {
        let text = format!("{}.{}", u64::MAX, "9".repeat(MAX_FRACTION_DIGITS));
        let number = Decimal::parse(&text).unwrap();
        assert!(number.times(86_400_000_000_000).is_some());
    }

    #[test]
    fn too_many_decimals_are_refused_and_trailing_zeros_are_not_decimals() {
        let long = format!("0.{}1", "0".repeat(MAX_FRACTION_DIGITS));
        assert_eq!(Decimal::parse(&long), Err(BadDecimal::NotANumber));
        let zeros = format!("0.5{}", "0".repeat(1000));
        assert_eq!(Decimal::parse(&zeros), Decimal::parse("0.5"));
    }
}
