//! What can be set about the Docker backend besides its limits: `sandbox.docker` in a file, two variables, three flags.

use std::collections::BTreeMap;

use cofferdam_contract::mode::{Deed, Mode};
use cofferdam_contract::problem::Problem;
use cofferdam_contract::units::parse_duration;

use super::environment::{Lookup, non_empty};
use super::setting::{Origin, Setting};

/// One key of `sandbox.docker`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum DockerKey {
    Image,
    Host,
    Pull,
    Runtime,
    Init,
    StopGrace,
    Patience,
    PullTimeout,
    /// For the sake of what it cannot be.
    NetworkMode,
    Privileged,
}

/// What was said, each with its origin; what was not is as the backend has it built in.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct DockerSettings(BTreeMap<DockerKey, Setting<String>>);

/// The flags that say something about containers, as text.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct DockerFlags {
    pub(crate) image: Option<String>,
    pub(crate) runtime: Option<String>,
    pub(crate) pull: Option<String>,
}

/// The variables, the later one wins. `DOCKER_HOST` is what every client of Docker reads.
const VARIABLES: [(&str, DockerKey); 3] = [
    ("DOCKER_HOST", DockerKey::Host),
    ("COFFERDAM_DOCKER_HOST", DockerKey::Host),
    ("COFFERDAM_IMAGE", DockerKey::Image),
];

impl DockerKey {
    pub(crate) const ALL: [Self; 10] = [
        Self::Image,
        Self::Host,
        Self::Pull,
        Self::Runtime,
        Self::Init,
        Self::StopGrace,
        Self::Patience,
        Self::PullTimeout,
        Self::NetworkMode,
        Self::Privileged,
    ];

    pub(crate) const fn yaml(self) -> &'static str {
        match self {
            Self::Image => "image",
            Self::Host => "host",
            Self::Pull => "pull",
            Self::Runtime => "runtime",
            Self::Init => "init",
            Self::StopGrace => "stop_grace",
            Self::Patience => "patience",
            Self::PullTimeout => "pull_timeout",
            Self::NetworkMode => "network_mode",
            Self::Privileged => "privileged",
        }
    }

    const fn built_in(self) -> &'static str {
        match self {
            Self::Image => "",
            Self::Host => "unix:///var/run/docker.sock",
            Self::Pull => "missing",
            Self::Runtime => "",
            Self::Init => "true",
            Self::StopGrace => "1s",
            Self::Patience => "30s",
            Self::PullTimeout => "5m",
            Self::NetworkMode => "none",
            Self::Privileged => "false",
        }
    }

    /// Whether the text means something, or what to write instead.
    pub(crate) fn check(self, text: &str) -> Result<(), String> {
        let is_so = match self {
            // What is no image's name is told when one is looked for.
            Self::Image => true,
            Self::Host => is_daemon(text),
            Self::Pull => matches!(text, "missing" | "never"),
            Self::Runtime => is_runtime(text),
            Self::Init => matches!(text, "true" | "false"),
            Self::StopGrace => {
                parse_duration(text).map_err(|bad| bad.to_string())?;
                true
            }
            Self::Patience | Self::PullTimeout => {
                let time = parse_duration(text).map_err(|bad| bad.to_string())?;
                !time.is_zero()
            }
            Self::NetworkMode => text == "none",
            Self::Privileged => text == "false",
        };
        let fix = match self {
            Self::Image => "names an image",
            Self::Host => "is no daemon that can be reached; write unix:///path or tcp://host:port",
            Self::Pull => "is `missing`, or `never` for local images only",
            Self::Runtime => "is not the name of a runtime; write one such as `runsc`",
            Self::Init => "is `true` or `false`",
            Self::StopGrace | Self::Patience | Self::PullTimeout => {
                "is no time at all; write one such as `30s`"
            }
            Self::NetworkMode => "is `none`: a run that needs network is given it with --net",
            Self::Privileged => "is always `false`; privileged containers are never started",
        };
        is_so.then_some(()).ok_or_else(|| fix.to_owned())
    }
}

impl DockerSettings {
    /// Each was checked when it was read.
    pub(crate) fn say(&mut self, key: DockerKey, setting: Setting<String>) {
        self.0.insert(key, setting);
    }

    pub(crate) fn environment(&mut self, lookup: Lookup<'_>, problems: &mut Vec<Problem>) {
        for (name, key) in VARIABLES {
            let Some(text) = non_empty(lookup, name) else {
                continue;
            };
            let text = text.to_string_lossy().into_owned();
            match key.check(&text) {
                Ok(()) => self.say(
                    key,
                    Setting {
                        value: text,
                        origin: Origin::Env { name },
                    },
                ),
                Err(fix) => problems.push(Problem::new(name, text.escape_debug(), fix)),
            }
        }
    }

    pub(crate) fn flags(&mut self, flags: DockerFlags, problems: &mut Vec<Problem>) {
        let said = [
            ("--image", DockerKey::Image, flags.image),
            ("--runtime", DockerKey::Runtime, flags.runtime),
            ("--pull", DockerKey::Pull, flags.pull),
        ];
        for (name, key, text) in said {
            let Some(value) = text else {
                continue;
            };
            match key.check(&value) {
                Ok(()) => self.say(
                    key,
                    Setting {
                        value,
                        origin: Origin::Flag { name },
                    },
                ),
                Err(fix) => problems.push(Problem::new(name, value.escape_debug(), fix)),
            }
        }
    }

    /// What nobody has said is as the mode wants it; what somebody has is checked against it later.
    pub(crate) fn under(&mut self, mode: Mode) {
        let is_open = !self.0.contains_key(&DockerKey::Pull);
        if is_open && mode.check(Deed::Pull).is_err() {
            self.say(
                DockerKey::Pull,
                Setting {
                    value: "never".to_owned(),
                    origin: Origin::Mode { mode },
                },
            );
        }
    }

    /// What was said, or what is built in.
    pub(crate) fn get(&self, key: DockerKey) -> &str {
        self.0.get(&key).map_or(key.built_in(), |said| &said.value)
    }

    /// The same with who said it.
    pub(crate) fn said(&self, key: DockerKey) -> (&str, &Origin) {
        let origin = self.0.get(&key).map(|said| &said.origin);
        (self.get(key), origin.unwrap_or(&Origin::Default))
    }

    pub(crate) fn rows(&self) -> Vec<(String, String, &Origin)> {
        let row = |key: DockerKey| {
            let said = self.0.get(&key);
            let value = self.get(key);
            let shown = if value.is_empty() { "-" } else { value };
            let origin = said.map_or(&Origin::Default, |said| &said.origin);
            (
                format!("sandbox.docker.{}", key.yaml()),
                shown.to_owned(),
                origin,
            )
        };
        DockerKey::ALL.map(row).into()
    }
}

fn is_daemon(text: &str) -> bool {
    let port = |place: &str| place.rsplit_once(':').map(|(_, port)| port.parse::<u16>());
    match (text.strip_prefix("unix://"), text.strip_prefix("tcp://")) {
        (Some(path), _) => path.starts_with('/'),
        (None, Some(place)) => matches!(port(place), Some(Ok(_))),
        (None, None) => false,
    }
}

fn is_runtime(text: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    text.len() <= 64 && text.bytes().all(is_allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_built_in_means_something() {
        for key in DockerKey::ALL {
            assert_eq!(key.check(key.built_in()), Ok(()), "{}", key.yaml());
        }
    }

    #[test]
    fn bad_values_are_refused_with_what_to_write() {
        for (key, bad) in [
            (DockerKey::Host, "ssh://x"),
            (DockerKey::Pull, "always"),
            (DockerKey::Runtime, "a/b"),
            (DockerKey::Init, "yes"),
            (DockerKey::StopGrace, "soon"),
            (DockerKey::Patience, "0s"),
            (DockerKey::NetworkMode, "bridge"),
            (DockerKey::NetworkMode, "host"),
            (DockerKey::Privileged, "true"),
        ] {
            assert!(key.check(bad).is_err(), "{} {bad}", key.yaml());
        }
    }

    #[test]
    fn flags_win_over_variables_and_those_over_files() {
        let mut settings = DockerSettings::default();
        let origin = Origin::Default;
        for key in [DockerKey::Image, DockerKey::Host] {
            let value = match key {
                DockerKey::Image => "of-file",
                _ => "unix:///file",
            };
            settings.say(
                key,
                Setting {
                    value: value.into(),
                    origin: origin.clone(),
                },
            );
        }
        let variables = |name: &str| match name {
            "COFFERDAM_IMAGE" => Some("of-variable".into()),
            "DOCKER_HOST" => Some("unix:///docker".into()),
            "COFFERDAM_DOCKER_HOST" => Some("unix:///ours".into()),
            _ => None,
        };
        let mut problems = Vec::new();
        settings.environment(&variables, &mut problems);
        assert_eq!(settings.get(DockerKey::Image), "of-variable");
        assert_eq!(settings.get(DockerKey::Host), "unix:///ours");
        let flags = DockerFlags {
            image: Some("of-flag".into()),
            pull: Some("sometimes".into()),
            ..DockerFlags::default()
        };
        settings.flags(flags, &mut problems);
        assert_eq!(settings.get(DockerKey::Image), "of-flag");
        assert_eq!(problems.len(), 1);
    }
}
