//! Amounts in words: `1.4 MiB`, `12 ms`, `+4.2 %`. Rounded for reading; JSON has the exact figures.

/// Three digits and a unit.
pub(crate) fn bytes(bytes: u64) -> String {
    bytes_of(bytes as f64)
}

/// Of a figure that may be an average.
pub(crate) fn bytes_of(bytes: f64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if bytes < 1024.0 {
        return format!("{} B", digits(bytes));
    }
    let mut value = bytes / 1024.0;
    let mut unit = UNITS[0];
    for next in &UNITS[1..] {
        // What would be rounded to 1024 is 1 of the next.
        if value < 1023.5 {
            break;
        }
        value /= 1024.0;
        unit = next;
    }
    format!("{} {unit}", digits(value))
}

/// A length of time.
pub(crate) fn milliseconds(ms: f64) -> String {
    if !ms.is_finite() || ms < 0.0 {
        return "-".to_owned();
    }
    if ms < 999.5 {
        return format!("{} ms", digits(ms));
    }
    if ms < 59_995.0 {
        return format!("{} s", digits(ms / 1000.0));
    }
    let seconds = (ms / 1000.0).round();
    let (days, hours) = (seconds / 86_400.0, seconds / 3600.0);
    let part = |value: f64, of: f64| (value % of).floor();
    if days >= 1.0 {
        format!("{} d {} h", days.floor(), part(hours, 24.0))
    } else if hours >= 1.0 {
        format!("{} h {} min", hours.floor(), part(seconds / 60.0, 60.0))
    } else {
        format!("{} min {} s", (seconds / 60.0).floor(), part(seconds, 60.0))
    }
}

/// How much `b` is more than `a`, in percent; nothing where that has no meaning.
pub(crate) fn change(a: f64, b: f64) -> Option<f64> {
    let percent = (b - a) / a * 100.0;
    (a > 0.0 && percent.is_finite()).then_some((percent * 10.0).round() / 10.0)
}

pub(crate) fn percent(change: f64) -> String {
    if change == 0.0 {
        "same".to_owned()
    } else if change.abs() >= 100.0 {
        format!("{change:+.0} %")
    } else {
        format!("{change:+.1} %")
    }
}

/// `1 run`, `2 runs`.
pub(crate) fn count(n: u64, what: &str) -> String {
    let s = if n == 1 { "" } else { "s" };
    format!("{n} {what}{s}")
}

/// As many decimals as make three digits.
fn digits(value: f64) -> String {
    let text = if value < 9.995 {
        format!("{value:.2}")
    } else if value < 99.95 {
        format!("{value:.1}")
    } else {
        return format!("{value:.0}");
    };
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_have_three_digits() {
        for (n, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1 KiB"),
            (1536, "1.5 KiB"),
            (12_902, "12.6 KiB"),
            (1_048_575, "1 MiB"),
            (512 << 20, "512 MiB"),
            (u64::MAX, "16 EiB"),
        ] {
            assert_eq!(bytes(n), text);
        }
    }

    #[test]
    fn times_are_short() {
        for (ms, text) in [
            (0.0, "0 ms"),
            (0.123, "0.12 ms"),
            (4.2, "4.2 ms"),
            (123.4, "123 ms"),
            (999.7, "1 s"),
            (1234.0, "1.23 s"),
            (59_999.0, "1 min 0 s"),
            (125_000.0, "2 min 5 s"),
            (3_600_000.0, "1 h 0 min"),
            (90_061_000.0, "1 d 1 h"),
            (f64::NAN, "-"),
            (-1.0, "-"),
        ] {
            assert_eq!(milliseconds(ms), text, "{ms}");
        }
    }

    #[test]
    fn a_change_without_meaning_is_none() {
        assert_eq!(change(100.0, 150.0), Some(50.0));
        assert_eq!(change(100.0, 100.0), Some(0.0));
        assert_eq!(change(0.0, 5.0), None);
        assert_eq!(percent(50.0), "+50.0 %");
        assert_eq!(percent(-12.34), "-12.3 %");
        assert_eq!(percent(1234.0), "+1234 %");
        assert_eq!(percent(0.0), "same");
        assert_eq!(count(1, "run"), "1 run");
        assert_eq!(count(0, "run"), "0 runs");
    }
}
