//! The settings below `serve`: what the daemon is told. Each is read into the daemon's own configuration, whose defaults are the defaults here, so that there is one list of them.
//!
//! ```yaml
//! serve:
//!   listen: 127.0.0.1:8080
//!   memory_budget: 8g
//!   otlp: { endpoint: "http://127.0.0.1:4318", sampling: 0.1 }
//!   callbacks: { allow: ["*.example.com:443"] }
//! ```

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use cofferdam_callback::ControlPlane;
use cofferdam_callback::message::check_id;
use cofferdam_callback::policy::{BadPattern, Pattern};
use cofferdam_contract::limits::Limits;
use cofferdam_contract::problem::Problem;
use cofferdam_contract::units::{Bytes, Cap, format_duration, parse_duration};
use cofferdam_observe::Endpoint;
use cofferdam_server::Config;
use cofferdam_server::config::{Copies, ImagePlace, MemoryBudget, ResultSharing, TokenSource};
use cofferdam_server::log;
use cofferdam_store::DataDir;

use super::environment::{Lookup, non_empty};
use super::history::Switch;
use super::serve_key::{Many, ServeKey};
use super::setting::{Origin, Setting};
use super::spelling::{self, UNLIMITED};

/// Lets the memory limits of running work add up to more than there is.
pub(crate) const OVERCOMMIT: &str = "overcommit";
/// As many runs at once as there are CPUs.
const AUTO: &str = "auto";
/// For a setting that is not made.
const NONE: &str = "none";
/// Who gets the answers of pure runs again.
const OFF: &str = "off";
const PER_TOKEN: &str = "per-token";
const SHARED: &str = "shared";
/// Where images run.
const NATIVE: &str = "native";
const DOCKER: &str = "docker";
/// Holds secrets, so that it is no setting of a file and never shown.
const OTLP_HEADERS: &str = "OTEL_EXPORTER_OTLP_HEADERS";

/// Everything that is said about the daemon. What is not said is as the daemon has it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ServeSettings {
    said: BTreeMap<ServeKey, Vec<Setting<String>>>,
}

/// What is neither of the daemon's configuration nor read by it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Rest {
    pub(crate) log: String,
}

impl ServeSettings {
    /// A later source says this. Several values are one list; they replace what earlier sources said.
    pub(crate) fn say(&mut self, key: ServeKey, values: Vec<Setting<String>>) {
        self.said.insert(key, values);
    }

    pub(crate) fn flag(&mut self, key: ServeKey, texts: &[String]) {
        let origin = Origin::Flag {
            name: key.flag().unwrap_or_default(),
        };
        let values = texts.iter().map(|text| Setting {
            value: text.clone(),
            origin: origin.clone(),
        });
        self.say(key, values.collect());
    }

    /// What the environment says.
    pub(crate) fn environment(&mut self, lookup: Lookup<'_>, problems: &mut Vec<Problem>) {
        for key in ServeKey::ALL {
            let Some(name) = key.env() else {
                continue;
            };
            // The argument of another sampler is not ours to judge.
            let sampler = non_empty(lookup, "OTEL_TRACES_SAMPLER");
            let is_ratio = sampler.is_some_and(|name| name.to_string_lossy().contains("ratio"));
            if key == ServeKey::OtlpSampling && !is_ratio {
                continue;
            }
            let Some(text) = non_empty(lookup, name) else {
                continue;
            };
            let text = text.to_string_lossy().into_owned();
            match check(key, &text) {
                Ok(()) => self.say(
                    key,
                    vec![Setting {
                        value: text,
                        origin: Origin::Env { name },
                    }],
                ),
                Err(fix) => problems.push(Problem::new(name, text.escape_debug(), fix)),
            }
        }
    }

    /// The one value of a key, where something was said.
    pub(crate) fn text(&self, key: ServeKey) -> Option<&str> {
        self.texts(key).next()
    }

    /// The same, where it names something: `none` switches off.
    pub(crate) fn named(&self, key: ServeKey) -> Option<&str> {
        self.text(key).filter(|text| *text != NONE)
    }

    /// Who set the first value of a key.
    pub(crate) fn origin(&self, key: ServeKey) -> &Origin {
        let first = self.said.get(&key).and_then(|values| values.first());
        first.map_or(&Origin::Default, |setting| &setting.origin)
    }

    /// All values of a key.
    pub(crate) fn texts(&self, key: ServeKey) -> impl Iterator<Item = &str> {
        let values = self.said.get(&key).into_iter().flatten();
        values.map(|setting| setting.value.as_str())
    }

    /// Tells the daemon. Each value was checked when it was read.
    pub(crate) fn apply(&self, config: &mut Config) -> Result<Rest, String> {
        for (key, values) in &self.said {
            for setting in values {
                put(*key, &setting.value, config)
                    .map_err(|fix| format!("serve.{}: {fix}", key.yaml()))?;
            }
        }
        let log = self.text(ServeKey::Log).unwrap_or(log::DEFAULT).to_owned();
        Ok(Rest { log })
    }

    /// Setting, value and origin, in the order of the keys.
    pub(crate) fn rows(&self) -> Vec<(String, String, &Origin)> {
        let mut config = scratch();
        for (key, values) in &self.said {
            for setting in values {
                let _ = put(*key, &setting.value, &mut config);
            }
        }
        let name = |key: ServeKey| format!("serve.{}", key.yaml());
        let row = |key: ServeKey| match self.said.get(&key).map(Vec::as_slice) {
            // A list without anything in it has nothing to show.
            None | Some([]) if key.many() == Many::Yes => Vec::new(),
            None | Some([]) => vec![(name(key), shown(key, &config, None), &Origin::Default)],
            Some(values) => values
                .iter()
                .map(|setting| {
                    let shown = match key.many() {
                        Many::No => shown(key, &config, Some(&setting.value)),
                        Many::Yes => setting.value.clone(),
                    };
                    (name(key), shown, &setting.origin)
                })
                .collect(),
        };
        ServeKey::ALL.into_iter().flat_map(row).collect()
    }
}

/// Whether the text can be the value, or what to write instead.
pub(crate) fn check(key: ServeKey, text: &str) -> Result<(), String> {
    const LONGEST: usize = 4096;
    if text.len() > LONGEST || text.chars().any(char::is_control) {
        return Err("is too long or holds control characters".to_owned());
    }
    put(key, text, &mut scratch())
}

/// Adds what the environment holds for the collector alone.
pub(crate) fn with_otlp_headers(config: &mut Config, lookup: Lookup<'_>) -> Result<(), String> {
    let headers = non_empty(lookup, OTLP_HEADERS);
    if let Some(endpoint) = config.otlp.endpoint.take() {
        let headers = headers.unwrap_or_default();
        let endpoint = endpoint.with_headers(&headers.to_string_lossy());
        config.otlp.endpoint = Some(endpoint.map_err(|bad| format!("{OTLP_HEADERS}: {bad}"))?);
    }
    Ok(())
}

fn scratch() -> Config {
    Config::new(DataDir::at(PathBuf::new()))
}

fn put(key: ServeKey, text: &str, config: &mut Config) -> Result<(), String> {
    let (http, runs) = (&mut config.http, &mut config.runs);
    match key {
        ServeKey::Listen => {
            let fix = "is not an address with a port; write one such as `127.0.0.1:8080`";
            config.listen = text.parse().map_err(|_| fix.to_owned())?;
        }
        ServeKey::Concurrency => {
            runs.at_once = match text {
                AUTO => None,
                _ => Some(some(text)?),
            };
        }
        ServeKey::Queue => runs.queue = count(text)?,
        ServeKey::PatienceExecute => runs.patience.execute = patience(text)?,
        ServeKey::PatienceRuns => runs.patience.runs = patience(text)?,
        ServeKey::Pool => {
            runs.pool = match text {
                AUTO => None,
                _ => Some(count(text)?),
            };
        }
        ServeKey::Copies => {
            runs.copies = match text.parse::<Switch>()? {
                Switch::On => Copies::Used,
                Switch::Off => Copies::Never,
            };
        }
        ServeKey::Results => {
            config.history.results = match text {
                OFF => ResultSharing::Off,
                PER_TOKEN => ResultSharing::PerToken,
                SHARED => ResultSharing::Shared,
                _ => return Err(format!("write `{OFF}`, `{PER_TOKEN}` or `{SHARED}`")),
            };
        }
        ServeKey::MemoryBudget => runs.memory = memory(text)?,
        ServeKey::MaxTimeout => {
            runs.longest = time(text)?;
            runs.longest_deadline = runs.longest.saturating_mul(2);
        }
        ServeKey::MaxOutput => runs.largest_output = size(text)?,
        ServeKey::MaxDisk => runs.ceilings.disk = size(text)?,
        ServeKey::MaxProcesses => runs.ceilings.processes = some(text)?,
        ServeKey::MaxOpenFiles => {
            let (files, least) = (some(text)?, Limits::OPEN_FILES.min);
            if files < least {
                return Err(format!(
                    "is too few to start anything; write at least {least}"
                ));
            }
            runs.ceilings.open_files = files;
        }
        ServeKey::MaxBody => http.body = size(text)?,
        ServeKey::MaxBodies => http.bodies = size(text)?,
        ServeKey::MaxAnswers => http.answers = size(text)?,
        ServeKey::MaxHead => http.head = size(text)?,
        ServeKey::MaxConnections => http.connections = some(text)?,
        ServeKey::HeadTimeout => http.head_timeout = time(text)?,
        ServeKey::BodyTimeout => http.body_timeout = time(text)?,
        ServeKey::RequestTimeout => http.request_timeout = time(text)?,
        ServeKey::RememberFor => runs.remembered_for = time(text)?,
        ServeKey::RememberRuns => runs.remembered = some(text)?,
        ServeKey::RememberSize => runs.remembered_bytes = size(text)?,
        ServeKey::Grace => {
            config.grace = parse_duration(text).map_err(|bad| bad.to_string())?;
        }
        ServeKey::Languages => config.languages.push(directory(text)?),
        ServeKey::ControlPlane if text == NONE => config.callbacks.control_plane = None,
        ServeKey::ControlPlane => {
            let plane = ControlPlane::new(text, ControlPlane::PREFIX, None);
            config.callbacks.control_plane = Some(plane.map_err(|bad| bad.to_string())?);
        }
        ServeKey::ControlPlaneTokenFile => {
            config.callbacks.token = Some(TokenSource::File(directory(text)?));
        }
        ServeKey::SessionId => {
            check_id("session_id", text).map_err(|bad| bad.to_string())?;
            config.callbacks.session = Some(text.to_owned());
        }
        ServeKey::CallbacksAllow => {
            let pattern: Pattern = text.parse().map_err(|bad: BadPattern| bad.to_string())?;
            config.callbacks.policy.allow.push(pattern);
        }
        ServeKey::CallbacksAllowLoopback => {
            config.callbacks.policy.allow_loopback = text.parse::<Switch>()? == Switch::On;
        }
        ServeKey::CallbacksAllowPrivate => {
            config.callbacks.policy.allow_private = text.parse::<Switch>()? == Switch::On;
        }
        ServeKey::Net | ServeKey::NetPrivate | ServeKey::NetProxy => {
            super::network::put(key, text, &mut runs.network)?;
        }
        ServeKey::Images => runs.images.allow.push(text.parse()?),
        ServeKey::ImagePlace => {
            runs.images.place = match text {
                NATIVE => ImagePlace::Native,
                DOCKER => ImagePlace::Docker,
                _ => return Err(format!("write `{NATIVE}` or `{DOCKER}`")),
            };
        }
        ServeKey::OtlpEndpoint if text == NONE => config.otlp.endpoint = None,
        ServeKey::OtlpEndpoint => {
            let endpoint = Endpoint::parse(text).map_err(|bad| bad.to_string())?;
            config.otlp.endpoint = Some(endpoint);
        }
        ServeKey::OtlpServiceName => {
            if text.trim().is_empty() || text.len() > 255 {
                return Err("is not a name; write one of at most 255 bytes".to_owned());
            }
            text.clone_into(&mut config.otlp.service_name);
        }
        ServeKey::OtlpSampling => {
            config.otlp.ratio = text
                .parse()
                .map_err(|bad: cofferdam_observe::endpoint::BadRatio| bad.to_string())?;
        }
        ServeKey::Log => log::check(text).map_err(|bad| bad.to_string())?,
    }
    Ok(())
}

/// The value that is in force, the way a file takes it.
fn shown(key: ServeKey, config: &Config, said: Option<&str>) -> String {
    let (http, runs) = (&config.http, &config.runs);
    match key {
        ServeKey::Listen => config.listen.to_string(),
        ServeKey::Concurrency => runs
            .at_once
            .map_or_else(|| AUTO.to_owned(), |count| count.to_string()),
        ServeKey::Queue => runs.queue.to_string(),
        ServeKey::PatienceExecute => format_duration(runs.patience.execute),
        ServeKey::PatienceRuns => format_duration(runs.patience.runs),
        ServeKey::Pool => runs
            .pool
            .map_or_else(|| AUTO.to_owned(), |count| count.to_string()),
        ServeKey::Copies => match runs.copies {
            Copies::Used => "true".to_owned(),
            Copies::Never => "false".to_owned(),
        },
        ServeKey::Results => match config.history.results {
            ResultSharing::Off => OFF.to_owned(),
            ResultSharing::PerToken => PER_TOKEN.to_owned(),
            ResultSharing::Shared => SHARED.to_owned(),
        },
        ServeKey::MemoryBudget => match runs.memory {
            MemoryBudget::OfAvailable { percent } => format!("{percent}%"),
            MemoryBudget::AtMost(bytes) => bytes.to_string(),
            MemoryBudget::Overcommit => OVERCOMMIT.to_owned(),
        },
        ServeKey::MaxTimeout => format_duration(runs.longest),
        ServeKey::MaxOutput => runs.largest_output.to_string(),
        ServeKey::MaxDisk => runs.ceilings.disk.to_string(),
        ServeKey::MaxProcesses => runs.ceilings.processes.to_string(),
        ServeKey::MaxOpenFiles => runs.ceilings.open_files.to_string(),
        ServeKey::MaxBody => http.body.to_string(),
        ServeKey::MaxBodies => http.bodies.to_string(),
        ServeKey::MaxAnswers => http.answers.to_string(),
        ServeKey::MaxHead => http.head.to_string(),
        ServeKey::MaxConnections => http.connections.to_string(),
        ServeKey::HeadTimeout => format_duration(http.head_timeout),
        ServeKey::BodyTimeout => format_duration(http.body_timeout),
        ServeKey::RequestTimeout => format_duration(http.request_timeout),
        ServeKey::RememberFor => format_duration(runs.remembered_for),
        ServeKey::RememberRuns => runs.remembered.to_string(),
        ServeKey::RememberSize => runs.remembered_bytes.to_string(),
        ServeKey::Grace => format_duration(config.grace),
        ServeKey::Net => runs.network.to_string(),
        ServeKey::NetPrivate => said.unwrap_or("refuse").to_owned(),
        ServeKey::ImagePlace => said.unwrap_or(NATIVE).to_owned(),
        ServeKey::OtlpServiceName => config.otlp.service_name.clone(),
        ServeKey::OtlpSampling => config.otlp.ratio.to_string(),
        ServeKey::Log => said.unwrap_or(log::DEFAULT).to_owned(),
        ServeKey::CallbacksAllowLoopback | ServeKey::CallbacksAllowPrivate => {
            said.unwrap_or("false").to_owned()
        }
        ServeKey::OtlpEndpoint
        | ServeKey::NetProxy
        | ServeKey::Languages
        | ServeKey::Images
        | ServeKey::ControlPlane
        | ServeKey::ControlPlaneTokenFile
        | ServeKey::SessionId
        | ServeKey::CallbacksAllow => said.unwrap_or(NONE).to_owned(),
    }
}

/// Which may be none. Not longer than a client keeps a silent connection.
fn patience(text: &str) -> Result<Duration, String> {
    const LONGEST: Duration = Duration::from_secs(3600);
    if matches!(text, "0" | "0s") {
        return Ok(Duration::ZERO);
    }
    let asked = time(text)?;
    match asked <= LONGEST {
        true => Ok(asked),
        false => Err("is too long to wait; write at most 1h".to_owned()),
    }
}

fn time(text: &str) -> Result<Duration, String> {
    bounded(spelling::duration(text)?)
}

fn size(text: &str) -> Result<Bytes, String> {
    bounded(spelling::bytes(text)?)
}

fn bounded<T: Copy>(cap: Cap<T>) -> Result<T, String> {
    cap.at_most()
        .ok_or_else(|| format!("cannot be `{UNLIMITED}`; the daemon bounds everything"))
}

/// A number of things, which may be none.
fn count<T: std::str::FromStr>(text: &str) -> Result<T, String> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let number = digits.then(|| text.parse().ok()).flatten();
    number.ok_or_else(|| "is not a whole number; write one such as `100`".to_owned())
}

fn some<T: std::str::FromStr + PartialEq + Default>(text: &str) -> Result<T, String> {
    let number = count(text)?;
    if number == T::default() {
        return Err("is none; write a number from 1 on".to_owned());
    }
    Ok(number)
}

fn memory(text: &str) -> Result<MemoryBudget, String> {
    if text == OVERCOMMIT {
        return Ok(MemoryBudget::Overcommit);
    }
    if let Some(percent) = text.strip_suffix('%') {
        let percent = count::<u8>(percent.trim_end())?;
        return match percent {
            1..=100 => Ok(MemoryBudget::OfAvailable { percent }),
            _ => Err("is no part of what is available; write 1% to 100%".to_owned()),
        };
    }
    match spelling::bytes(text)? {
        Cap::AtMost(bytes) => Ok(MemoryBudget::AtMost(bytes)),
        Cap::Unlimited => Err(format!("write `{OVERCOMMIT}` for no budget")),
    }
}

/// A relative one would mean another directory for each place that the daemon is started from.
fn directory(text: &str) -> Result<PathBuf, String> {
    let path = Path::new(text);
    if path.is_absolute() {
        Ok(path.to_owned())
    } else {
        Err("is not an absolute path; write one that begins with `/`".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(key: ServeKey, text: &str) -> ServeSettings {
        let mut settings = ServeSettings::default();
        check(key, text).unwrap();
        settings.flag(key, &[text.to_owned()]);
        settings
    }

    fn sample(key: ServeKey) -> &'static str {
        match key {
            ServeKey::Listen => "127.0.0.1:9",
            ServeKey::MemoryBudget
            | ServeKey::MaxOutput
            | ServeKey::MaxDisk
            | ServeKey::MaxBody
            | ServeKey::MaxBodies
            | ServeKey::MaxAnswers
            | ServeKey::MaxHead
            | ServeKey::RememberSize => "7 MiB",
            ServeKey::MaxTimeout
            | ServeKey::HeadTimeout
            | ServeKey::BodyTimeout
            | ServeKey::RequestTimeout
            | ServeKey::RememberFor
            | ServeKey::PatienceExecute
            | ServeKey::PatienceRuns
            | ServeKey::Grace => "7 s",
            ServeKey::Concurrency
            | ServeKey::Queue
            | ServeKey::Pool
            | ServeKey::MaxProcesses
            | ServeKey::MaxConnections
            | ServeKey::RememberRuns => "7",
            ServeKey::Languages | ServeKey::ControlPlaneTokenFile => "/etc/languages",
            ServeKey::SessionId => "s-1",
            ServeKey::Copies => "false",
            ServeKey::Results => "shared",
            ServeKey::MaxOpenFiles => "70",
            ServeKey::ControlPlane | ServeKey::OtlpEndpoint => "http://127.0.0.1:7",
            ServeKey::CallbacksAllow => "*.example.com",
            ServeKey::CallbacksAllowLoopback | ServeKey::CallbacksAllowPrivate => "true",
            ServeKey::Net => "allow=*.example.com:443",
            ServeKey::NetPrivate => "allow",
            ServeKey::NetProxy => "http://127.0.0.1:7",
            ServeKey::OtlpServiceName => "dam",
            ServeKey::OtlpSampling => "0.25",
            ServeKey::Images => "python:*",
            ServeKey::ImagePlace => "docker",
            ServeKey::Log => "debug",
        }
    }

    #[test]
    fn every_key_can_be_set_and_is_shown_as_it_was_written() {
        for key in ServeKey::ALL {
            let settings = said(key, sample(key));
            let rows = settings.rows();
            let name = format!("serve.{}", key.yaml());
            let (_, value, origin) = rows.iter().find(|(row, _, _)| *row == name).unwrap();
            assert_eq!(value, sample(key), "{key:?}");
            assert!(matches!(origin, Origin::Flag { .. }), "{key:?}");
            let others = rows.iter().filter(|(row, _, _)| *row != name);
            for (row, _, origin) in others {
                assert_eq!(**origin, Origin::Default, "{row} while {key:?} is set");
            }
        }
    }

    #[test]
    fn nonsense_is_refused_for_every_key_with_a_form() {
        for key in ServeKey::ALL {
            let nonsense = match key {
                ServeKey::OtlpServiceName => " ",
                ServeKey::CallbacksAllow => "a b",
                _ => "nonsense!",
            };
            assert!(check(key, nonsense).is_err(), "{key:?}");
            assert!(check(key, "\u{1b}[2J").is_err(), "{key:?}");
        }
        for (key, text) in [
            (ServeKey::MaxBody, "unlimited"),
            (ServeKey::Concurrency, "0"),
            (ServeKey::MaxOpenFiles, "7"),
            (ServeKey::MemoryBudget, "101%"),
            (ServeKey::Languages, "here"),
            (ServeKey::HeadTimeout, "0s"),
        ] {
            assert!(check(key, text).is_err(), "{key:?} {text}");
        }
        for (key, text) in [
            (ServeKey::Queue, "0"),
            (ServeKey::Grace, "0s"),
            (ServeKey::Concurrency, AUTO),
            (ServeKey::OtlpEndpoint, NONE),
            (ServeKey::ControlPlane, NONE),
            (ServeKey::MemoryBudget, "50%"),
            (ServeKey::MemoryBudget, OVERCOMMIT),
        ] {
            assert_eq!(check(key, text), Ok(()), "{key:?} {text}");
        }
    }

    #[test]
    fn what_is_switched_off_is_no_place_that_anything_is_sent_to() {
        let mut settings = ServeSettings::default();
        settings.flag(ServeKey::OtlpEndpoint, &[NONE.to_owned()]);
        assert_eq!(settings.text(ServeKey::OtlpEndpoint), Some(NONE));
        assert_eq!(settings.named(ServeKey::OtlpEndpoint), None);
        settings.flag(ServeKey::ControlPlane, &["http://plane".to_owned()]);
        let plane = settings.named(ServeKey::ControlPlane);
        assert_eq!(plane, Some("http://plane"));
    }

    #[test]
    fn what_is_said_reaches_the_daemon() {
        let mut settings = ServeSettings::default();
        for key in ServeKey::ALL {
            settings.flag(key, &[sample(key).to_owned()]);
        }
        let mut config = scratch();
        let rest = settings.apply(&mut config).unwrap();
        assert_eq!(rest.log, "debug");
        assert_eq!(config.listen.port(), 9);
        assert_eq!(config.runs.at_once, Some(7));
        assert_eq!(config.runs.longest_deadline, Duration::from_secs(14));
        assert_eq!(config.http.body, Bytes::new(7 << 20));
        assert_eq!(config.languages, [PathBuf::from("/etc/languages")]);
        let callbacks = config.callbacks;
        assert!(callbacks.control_plane.is_some() && callbacks.token.is_some());
        assert_eq!(callbacks.session.as_deref(), Some("s-1"));
        assert_eq!(callbacks.policy.allow.len(), 1);
        assert!(callbacks.policy.allow_loopback && callbacks.policy.allow_private);
        let otlp = config.otlp;
        assert_eq!(otlp.endpoint.unwrap().to_string(), "http://127.0.0.1:7");
        assert_eq!(
            (otlp.service_name.as_str(), otlp.ratio.to_string()),
            ("dam", "0.25".into())
        );
        assert_eq!(
            settings.text(ServeKey::ControlPlane),
            Some("http://127.0.0.1:7")
        );
        assert_eq!(settings.texts(ServeKey::CallbacksAllow).count(), 1);
    }

    #[test]
    fn the_environment_is_read_and_the_argument_of_a_foreign_sampler_is_not() {
        let read = |table: &[(&str, &str)]| {
            let lookup = |name: &str| {
                let found = table.iter().find(|(known, _)| *known == name);
                found.map(|(_, value)| (*value).into())
            };
            let (mut settings, mut problems) = (ServeSettings::default(), Vec::new());
            settings.environment(&lookup, &mut problems);
            (settings, problems)
        };
        let sampler = ("OTEL_TRACES_SAMPLER", "parentbased_traceidratio");
        let (settings, problems) = read(&[
            ("COFFERDAM_LISTEN", "127.0.0.1:1"),
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://a:4318"),
            ("OTEL_SERVICE_NAME", "x"),
            ("OTEL_TRACES_SAMPLER_ARG", "0.5"),
            sampler,
        ]);
        assert_eq!(problems.len(), 0);
        assert_eq!(settings.text(ServeKey::OtlpSampling), Some("0.5"));
        assert_eq!(settings.text(ServeKey::Listen), Some("127.0.0.1:1"));
        let (_, problems) = read(&[("OTEL_TRACES_SAMPLER_ARG", "endpoint=http://x")]);
        assert_eq!(problems.len(), 0);
        let (_, problems) = read(&[("OTEL_TRACES_SAMPLER_ARG", "much"), sampler]);
        assert_eq!(problems.len(), 1);
    }
}
