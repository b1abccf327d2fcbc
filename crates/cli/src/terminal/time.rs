//! Moments: as people ask for them (`1h`, `2026-11-15`), and as they are shown (`3 min ago`).

use std::time::Duration;

use cofferdam_contract::units::parse_duration;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp, Unit};

/// A moment as somebody wrote it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Moment {
    Ago(Duration),
    At(Timestamp),
}

const DAY: u64 = 86_400;
/// Older than this, a date says more than a number of days.
const DAYS_IN_WORDS: i64 = 30;
/// The values are repeated in messages.
const LONGEST: usize = 64;

impl Moment {
    pub(crate) fn resolve(self, now: Timestamp) -> Timestamp {
        match self {
            Self::At(at) => at,
            Self::Ago(ago) => SignedDuration::try_from(ago)
                .ok()
                .and_then(|ago| now.checked_sub(ago).ok())
                .unwrap_or(Timestamp::UNIX_EPOCH),
        }
    }
}

/// `90s`, `30m`, `1h`, `2d`, `1w` ago, or a date or time.
pub(crate) fn moment(text: &str) -> Result<Moment, String> {
    let fix = "write how long ago (`90s`, `30m`, `1h`, `2d`, `1w`), a date (`2026-11-15`) or a time (`2026-11-15T10:00`, UTC unless it names an offset)";
    if text.len() > LONGEST || text.chars().any(char::is_control) {
        return Err(format!("this is not a time; {fix}"));
    }
    // A plain number could be seconds or a year.
    let is_number = text.bytes().all(|b| b.is_ascii_digit());
    if !is_number && let Ok(ago) = age(text) {
        return Ok(Moment::Ago(ago));
    }
    let at = text.parse::<Timestamp>().ok().or_else(|| civil(text));
    at.map(Moment::At)
        .ok_or_else(|| format!("`{text}` is not a time; {fix}"))
}

fn civil(text: &str) -> Option<Timestamp> {
    let is_number = text.bytes().all(|b| b.is_ascii_digit());
    let civil: DateTime = text.parse().ok().filter(|_| !is_number)?;
    let zoned = civil.to_zoned(TimeZone::UTC).ok()?;
    Some(zoned.timestamp())
}

/// A length of time, with weeks beside the usual units.
pub(crate) fn age(text: &str) -> Result<Duration, String> {
    let weeks = text.trim().strip_suffix(['w', 'W']);
    let Some(weeks) = weeks else {
        return parse_duration(text).map_err(|bad| bad.to_string());
    };
    let bad = || {
        "this is not a number of weeks; write one such as `1w`, or days such as `10d`".to_owned()
    };
    let days = parse_duration(&format!("{}d", weeks.trim())).map_err(|_| bad())?;
    days.checked_mul(7).ok_or_else(bad)
}

/// `just now`, `12 s ago`, `3 min ago`, `2 h ago`, `4 d ago`; then the date.
pub(crate) fn ago(at: Timestamp, now: Timestamp) -> String {
    let seconds = now.duration_since(at).as_secs();
    let day = i64::try_from(DAY).unwrap_or(i64::MAX);
    match seconds {
        // Clocks of two machines, or one that was set back.
        ..-60 => short(at),
        -60..2 => "just now".to_owned(),
        2..60 => format!("{seconds} s ago"),
        60..3600 => format!("{} min ago", seconds / 60),
        _ if seconds < day => format!("{} h ago", seconds / 3600),
        _ if seconds < DAYS_IN_WORDS * day => format!("{} d ago", seconds / day),
        _ => at.to_zoned(TimeZone::UTC).date().to_string(),
    }
}

/// To the millisecond, always with three decimals, so that lines stay aligned.
pub(crate) fn exact(at: Timestamp) -> String {
    format!("{at:.3}")
}

/// To the second.
pub(crate) fn short(at: Timestamp) -> String {
    let round = jiff::TimestampRound::new()
        .smallest(Unit::Second)
        .mode(jiff::RoundMode::Trunc);
    at.round(round).unwrap_or(at).to_string()
}

/// The moment a number of microseconds after another.
pub(crate) fn after(start: Timestamp, micros: u64) -> Timestamp {
    let offset = SignedDuration::from_micros(i64::try_from(micros).unwrap_or(i64::MAX));
    start.checked_add(offset).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::constant(1_763_200_000, 0);

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap_or(Timestamp::MIN)
    }

    #[test]
    fn moments_are_read() {
        for (text, expected) in [
            ("90s", "2025-11-15T09:45:10Z"),
            ("30m", "2025-11-15T09:16:40Z"),
            ("1h", "2025-11-15T08:46:40Z"),
            ("2d", "2025-11-13T09:46:40Z"),
            ("1w", "2025-11-08T09:46:40Z"),
            ("1.5h", "2025-11-15T08:16:40Z"),
            ("2025-11-15", "2025-11-15T00:00:00Z"),
            ("2025-11-15T10:00", "2025-11-15T10:00:00Z"),
            ("2025-11-15 10:00:05", "2025-11-15T10:00:05Z"),
            ("2025-11-15T10:00:00+02:00", "2025-11-15T08:00:00Z"),
            ("2025-11-15T10:00:00.25Z", "2025-11-15T10:00:00.25Z"),
        ] {
            let found = moment(text).map(|moment| moment.resolve(NOW));
            assert_eq!(found, Ok(at(expected)), "{text}");
        }
    }

    #[test]
    fn what_is_no_moment_is_refused_with_the_fix() {
        for text in [
            "",
            "yesterday",
            "-1h",
            "1",
            "2025",
            "20251115",
            "1x",
            "w",
            "2025-13-01",
            "2025-02-30",
            "1h ago",
            "\u{1b}[2J",
            "25:00",
        ] {
            let refused = moment(text).unwrap_err();
            assert!(refused.contains("`2026-11-15`"), "{text}: {refused}");
            assert!(!refused.contains('\u{1b}'));
        }
        assert!(moment(&"9".repeat(1000)).unwrap_err().len() < 300);
        assert!(age("99999999999999999999w").is_err());
    }

    #[test]
    fn longer_ago_than_time_itself_is_the_beginning() {
        let moment = Moment::Ago(Duration::from_secs(u64::MAX));
        assert_eq!(moment.resolve(NOW), Timestamp::UNIX_EPOCH);
    }

    #[test]
    fn times_are_said_in_words() {
        for (seconds, text) in [
            (0, "just now"),
            (-30, "just now"),
            (12, "12 s ago"),
            (59, "59 s ago"),
            (180, "3 min ago"),
            (7300, "2 h ago"),
            (4 * 86_400, "4 d ago"),
            (31 * 86_400, "2025-10-15"),
            (-3600, "2025-11-15T10:46:40Z"),
        ] {
            let past = NOW.checked_sub(SignedDuration::from_secs(seconds)).unwrap();
            assert_eq!(ago(past, NOW), text, "{seconds}");
        }
    }

    #[test]
    fn exact_times_have_milliseconds() {
        assert_eq!(exact(NOW), "2025-11-15T09:46:40.000Z");
        assert_eq!(exact(after(NOW, 1_234_567)), "2025-11-15T09:46:41.234Z");
        assert_eq!(short(after(NOW, 1_234_567)), "2025-11-15T09:46:41Z");
        assert_eq!(after(NOW, u64::MAX), Timestamp::MAX);
    }
}
