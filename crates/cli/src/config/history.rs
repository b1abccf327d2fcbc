//! The settings below `history`: whether runs are kept, how much of them, and for how long.
//!
//! ```yaml
//! history:
//!   stdout: 1m
//!   truncation: smart
//!   redact: ["corp-[0-9a-f]{32}"]     # added to the built-in patterns
//!   max_age: 30d
//! ```

use std::str::FromStr;
use std::time::Duration;

use cofferdam_contract::units::{Bytes, Cap, format_duration};
use cofferdam_store::adopt::Keeping;
use cofferdam_store::collect::ArtifactLimits;
use cofferdam_store::database::Retention;
use cofferdam_store::sift::redact::Rules;
use cofferdam_store::sift::truncate::Strategy;

use super::setting::{Origin, Setting};
use super::spelling::{self, UNLIMITED};

/// One setting of history.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HistoryKey {
    Enabled,
    Stdout,
    Stderr,
    Truncation,
    Artifacts,
    ArtifactSize,
    ArtifactsPerRun,
    ArtifactsTotal,
    ArtifactCount,
    MaxAge,
    MaxAgeOfFailures,
    MaxRuns,
    MaxSize,
}

/// A setting that is on or off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Switch {
    On,
    Off,
}

/// Everything that is set about history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HistorySettings {
    pub(crate) enabled: Setting<Switch>,
    stdout: Setting<Cap<Bytes>>,
    stderr: Setting<Cap<Bytes>>,
    truncation: Setting<Strategy>,
    pub(crate) artifacts: Setting<Switch>,
    artifact_size: Setting<Cap<Bytes>>,
    artifacts_per_run: Setting<Cap<Bytes>>,
    artifacts_total: Setting<Cap<Bytes>>,
    artifact_count: Setting<Cap<u64>>,
    max_age: Setting<Cap<Duration>>,
    max_age_of_failures: Setting<Cap<Duration>>,
    max_runs: Setting<Cap<u64>>,
    max_size: Setting<Cap<Bytes>>,
    /// Patterns of the user's own. Every source adds to them.
    pub(crate) redact: Vec<Setting<String>>,
}

/// The list of patterns; the one key that takes a list.
pub(crate) const REDACT: &str = "redact";
/// The variable that switches history off, or on again.
pub(crate) const VARIABLE: &str = "COFFERDAM_HISTORY";

impl HistoryKey {
    pub(crate) const ALL: [Self; 13] = [
        Self::Enabled,
        Self::Stdout,
        Self::Stderr,
        Self::Truncation,
        Self::Artifacts,
        Self::ArtifactSize,
        Self::ArtifactsPerRun,
        Self::ArtifactsTotal,
        Self::ArtifactCount,
        Self::MaxAge,
        Self::MaxAgeOfFailures,
        Self::MaxRuns,
        Self::MaxSize,
    ];

    pub(crate) const fn yaml(self) -> &'static str {
        match self {
            Self::Enabled => "enabled",
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
            Self::Truncation => "truncation",
            Self::Artifacts => "artifacts",
            Self::ArtifactSize => "artifact_size",
            Self::ArtifactsPerRun => "artifacts_per_run",
            Self::ArtifactsTotal => "artifacts_total",
            Self::ArtifactCount => "artifact_count",
            Self::MaxAge => "max_age",
            Self::MaxAgeOfFailures => "max_age_of_failures",
            Self::MaxRuns => "max_runs",
            Self::MaxSize => "max_size",
        }
    }
}

impl FromStr for Switch {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "true" | "on" | "yes" | "1" => Ok(Self::On),
            "false" | "off" | "no" | "0" => Ok(Self::Off),
            _ => Err("is neither on nor off; write `true` or `false`".to_owned()),
        }
    }
}

impl HistorySettings {
    pub(crate) fn built_in() -> Self {
        let keeping = Keeping::default();
        let artifacts = ArtifactLimits::default();
        let retention = Retention::default();
        Self {
            enabled: Setting::built_in(Switch::On),
            stdout: Setting::built_in(Cap::AtMost(keeping.stdout)),
            stderr: Setting::built_in(Cap::AtMost(keeping.stderr)),
            truncation: Setting::built_in(keeping.strategy),
            artifacts: Setting::built_in(Switch::On),
            artifact_size: Setting::built_in(Cap::AtMost(artifacts.per_file)),
            artifacts_per_run: Setting::built_in(Cap::AtMost(artifacts.per_run)),
            artifacts_total: Setting::built_in(Cap::AtMost(artifacts.total)),
            artifact_count: Setting::built_in(Cap::AtMost(artifacts.files)),
            max_age: Setting::built_in(retention.max_age),
            max_age_of_failures: Setting::built_in(retention.max_age_of_failures),
            max_runs: Setting::built_in(retention.max_runs),
            max_size: Setting::built_in(retention.max_bytes),
            redact: Vec::new(),
        }
    }

    /// Reads the text of one setting.
    pub(crate) fn set(
        &mut self,
        key: HistoryKey,
        text: &str,
        origin: Origin,
    ) -> Result<(), String> {
        match key {
            HistoryKey::Enabled => self.enabled.say(text.parse()?, origin),
            HistoryKey::Stdout => self.stdout.say(spelling::bytes(text)?, origin),
            HistoryKey::Stderr => self.stderr.say(spelling::bytes(text)?, origin),
            HistoryKey::Truncation => {
                let strategy = Strategy::from_str(text).map_err(|bad| bad.to_string())?;
                self.truncation.say(strategy, origin);
            }
            HistoryKey::Artifacts => self.artifacts.say(text.parse()?, origin),
            HistoryKey::ArtifactSize => self.artifact_size.say(spelling::bytes(text)?, origin),
            HistoryKey::ArtifactsPerRun => {
                self.artifacts_per_run.say(spelling::bytes(text)?, origin);
            }
            HistoryKey::ArtifactsTotal => self.artifacts_total.say(spelling::bytes(text)?, origin),
            HistoryKey::ArtifactCount => self.artifact_count.say(spelling::count(text)?, origin),
            HistoryKey::MaxAge => self.max_age.say(spelling::duration(text)?, origin),
            HistoryKey::MaxAgeOfFailures => {
                self.max_age_of_failures
                    .say(spelling::duration(text)?, origin);
            }
            HistoryKey::MaxRuns => self.max_runs.say(spelling::count(text)?, origin),
            HistoryKey::MaxSize => self.max_size.say(spelling::bytes(text)?, origin),
        }
        Ok(())
    }

    /// Adds a pattern; what is wrong with it is said at once.
    pub(crate) fn add_pattern(&mut self, text: &str, origin: Origin) -> Result<(), String> {
        Rules::default()
            .with_patterns([text])
            .map_err(|bad| bad.to_string())?;
        self.redact.push(Setting {
            value: text.to_owned(),
            origin,
        });
        Ok(())
    }

    pub(crate) fn keeping(&self) -> Keeping {
        Keeping {
            stdout: or_all(self.stdout.value),
            stderr: or_all(self.stderr.value),
            strategy: self.truncation.value,
        }
    }

    pub(crate) fn artifact_limits(&self) -> ArtifactLimits {
        ArtifactLimits {
            per_file: or_all(self.artifact_size.value),
            per_run: or_all(self.artifacts_per_run.value),
            files: self.artifact_count.value.at_most().unwrap_or(u64::MAX),
            total: or_all(self.artifacts_total.value),
        }
    }

    pub(crate) fn retention(&self) -> Retention {
        Retention {
            max_age: self.max_age.value,
            max_age_of_failures: self.max_age_of_failures.value,
            max_runs: self.max_runs.value,
            max_bytes: self.max_size.value,
        }
    }

    /// Setting, value and origin, in the order of the keys.
    pub(crate) fn rows(&self) -> Vec<(String, String, &Origin)> {
        let name = |key: HistoryKey| format!("history.{}", key.yaml());
        let patterns = self.redact.iter().map(|pattern| {
            (
                format!("history.{REDACT}"),
                pattern.value.clone(),
                &pattern.origin,
            )
        });
        HistoryKey::ALL
            .into_iter()
            .map(|key| {
                let (value, origin) = self.spelled(key);
                (name(key), value, origin)
            })
            .chain(patterns)
            .collect()
    }

    fn spelled(&self, key: HistoryKey) -> (String, &Origin) {
        let size = |setting: &Setting<Cap<Bytes>>| spell(setting.value, |size| size.to_string());
        let count = |setting: &Setting<Cap<u64>>| spell(setting.value, |count| count.to_string());
        let time = |setting: &Setting<Cap<Duration>>| spell(setting.value, format_duration);
        let switch = |setting: &Setting<Switch>| match setting.value {
            Switch::On => "true".to_owned(),
            Switch::Off => "false".to_owned(),
        };
        match key {
            HistoryKey::Enabled => (switch(&self.enabled), &self.enabled.origin),
            HistoryKey::Stdout => (size(&self.stdout), &self.stdout.origin),
            HistoryKey::Stderr => (size(&self.stderr), &self.stderr.origin),
            HistoryKey::Truncation => (self.truncation.value.to_string(), &self.truncation.origin),
            HistoryKey::Artifacts => (switch(&self.artifacts), &self.artifacts.origin),
            HistoryKey::ArtifactSize => (size(&self.artifact_size), &self.artifact_size.origin),
            HistoryKey::ArtifactsPerRun => (
                size(&self.artifacts_per_run),
                &self.artifacts_per_run.origin,
            ),
            HistoryKey::ArtifactsTotal => {
                (size(&self.artifacts_total), &self.artifacts_total.origin)
            }
            HistoryKey::ArtifactCount => (count(&self.artifact_count), &self.artifact_count.origin),
            HistoryKey::MaxAge => (time(&self.max_age), &self.max_age.origin),
            HistoryKey::MaxAgeOfFailures => (
                time(&self.max_age_of_failures),
                &self.max_age_of_failures.origin,
            ),
            HistoryKey::MaxRuns => (count(&self.max_runs), &self.max_runs.origin),
            HistoryKey::MaxSize => (size(&self.max_size), &self.max_size.origin),
        }
    }
}

fn spell<T>(cap: Cap<T>, with: fn(T) -> String) -> String {
    match cap {
        Cap::AtMost(value) => with(value),
        Cap::Unlimited => UNLIMITED.to_owned(),
    }
}

fn or_all(cap: Cap<Bytes>) -> Bytes {
    match cap {
        Cap::AtMost(bytes) => bytes,
        Cap::Unlimited => Bytes::new(u64::MAX),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_can_be_set_and_is_shown_as_it_was_written() {
        let mut settings = HistorySettings::built_in();
        for key in HistoryKey::ALL {
            let text = match key {
                HistoryKey::Enabled | HistoryKey::Artifacts => "false",
                HistoryKey::Truncation => "tail",
                HistoryKey::ArtifactCount | HistoryKey::MaxRuns => "7",
                HistoryKey::MaxAge | HistoryKey::MaxAgeOfFailures => "3 d",
                _ => "5 KiB",
            };
            let origin = Origin::Flag { name: "--test" };
            let plain = text.replace(' ', "");
            settings.set(key, &plain, origin).unwrap();
            assert_eq!(settings.spelled(key).0, text, "{key:?}");
            assert!(settings.set(key, "nonsense!", Origin::Default).is_err());
        }
        assert_eq!(settings.rows().len(), HistoryKey::ALL.len());
    }

    #[test]
    fn patterns_add_up_and_a_bad_one_is_refused() {
        let mut settings = HistorySettings::built_in();
        settings
            .add_pattern("corp-[0-9]+", Origin::Default)
            .unwrap();
        settings.add_pattern("x{3}", Origin::Default).unwrap();
        assert!(settings.add_pattern("(", Origin::Default).is_err());
        assert_eq!(settings.redact.len(), 2);
    }
}
