//! Finds the sources and lays them over each other. With no file present this costs two failed opens and no YAML.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use cofferdam_contract::limits::Limits;
use cofferdam_contract::problem::{Problem, Problems};
use cofferdam_contract::request::BackendName;

use super::environment::{self, Lookup, non_empty};
use super::file::{self, Why};
use super::mode;
use super::setting::{Flags, Layer, Merged, Origin, Setting};
use super::shape::{self, FileLayer};

const SYSTEM_FILE: &str = "/etc/cofferdam/config.yml";
const USER_FILE: &str = "cofferdam/config.yml";
const NAMED_BY: &str = "COFFERDAM_CONFIG";

/// Where to look. [`Sources::of_process`] is what the binary uses; tests build their own.
#[derive(Debug)]
pub(crate) struct Sources {
    /// `--config`; `COFFERDAM_CONFIG` is asked when absent.
    pub(crate) named: Option<PathBuf>,
    pub(crate) flags: Flags,
    /// The values before any source has spoken: a payload and a streamed run have different ones.
    pub(crate) built_in: Limits,
    system: PathBuf,
    lookup: fn(&str) -> Option<OsString>,
}

impl Sources {
    pub(crate) fn of_process(named: Option<PathBuf>, flags: Flags, built_in: Limits) -> Self {
        Self {
            named,
            flags,
            built_in,
            system: SYSTEM_FILE.into(),
            lookup: |name| std::env::var_os(name),
        }
    }
}

/// The merged configuration, or everything that is wrong with any of its sources.
pub(crate) fn load(sources: Sources) -> Result<Merged, Problems> {
    let lookup = sources.lookup;
    merge(sources, &lookup)
}

fn merge(sources: Sources, lookup: Lookup<'_>) -> Result<Merged, Problems> {
    let mut problems = Vec::new();
    let mut files = Vec::new();
    let mut of_system = None;
    let user = user_file(lookup).map(|path| (path, Why::User));
    let named = sources
        .named
        .or_else(|| non_empty(lookup, NAMED_BY).map(PathBuf::from))
        .map(|path| (path, Why::Named));
    for (path, why) in [Some((sources.system, Why::System)), user, named]
        .into_iter()
        .flatten()
    {
        let layer = file_layer(&path, why, &mut problems);
        if why == Why::System {
            of_system = layer.as_ref().and_then(|layer| layer.general.mode.clone());
        }
        files.extend(layer);
    }
    let environment = environment::layer(lookup, &mut problems);
    let said_of_docker = sources.flags.docker.clone();
    let flags = Layer::from(sources.flags);

    let said = files.iter().map(|file| &file.general);
    let said = said.chain([&environment, &flags]);
    let mode = mode::choose(
        of_system,
        said.filter_map(|layer| layer.mode.clone()),
        &mut problems,
    );
    let mut backend = choose_backend(&files, &environment, &flags);
    if let (Some(mode), Origin::Default) = (mode.value, &backend.origin) {
        backend.say(mode.default_backend(), Origin::Mode { mode });
    }
    Problems::check(problems)?;

    let mut merged = Merged::built_in(sources.built_in);
    let mut problems = Vec::new();
    for mut file in files {
        for said in std::mem::take(&mut file.history) {
            // Each was checked when it was read.
            let _ = said.apply(&mut merged.history);
        }
        for (key, values) in std::mem::take(&mut file.serve) {
            merged.serve.say(key, values);
        }
        for (key, setting) in std::mem::take(&mut file.docker_keys) {
            merged.docker.say(key, setting);
        }
        let (general, section) = file.into_layers(backend.value);
        merged.overlay_limits(general);
        merged.overlay_limits(section);
    }
    merged.overlay_limits(environment);
    merged.overlay_limits(flags);
    merged.backend = backend;
    merged.mode = mode;
    environment::history(lookup, &mut merged.history, &mut problems);
    let mut about_docker = Vec::new();
    merged.docker.environment(lookup, &mut about_docker);
    merged.docker.flags(said_of_docker, &mut about_docker);
    if let Some(mode) = merged.mode.value {
        merged.docker.under(mode);
    }
    // A variable that another program needs as it is must not be in the way of whoever does not use it here.
    if merged.backend.value == BackendName::Docker {
        problems.append(&mut about_docker);
    }
    Problems::check(problems)?;
    Ok(merged)
}

fn file_layer(path: &Path, why: Why, problems: &mut Vec<Problem>) -> Option<FileLayer> {
    match file::read(path, why) {
        Ok(text) => text.map(|text| shape::read(path, &text, problems)),
        Err(problem) => {
            problems.push(problem);
            None
        }
    }
}

/// `$XDG_CONFIG_HOME` or `~/.config`. A relative one would mean the current directory, which is never a source.
fn user_file(lookup: Lookup<'_>) -> Option<PathBuf> {
    let absolute = |name| {
        non_empty(lookup, name)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    let base = absolute("XDG_CONFIG_HOME")
        .or_else(|| absolute("HOME").map(|home| home.join(".config")))?;
    Some(base.join(USER_FILE))
}

fn choose_backend(files: &[FileLayer], env: &Layer, flags: &Layer) -> Setting<BackendName> {
    let chosen = files
        .iter()
        .map(|file| &file.general)
        .chain([env, flags])
        .filter_map(|layer| layer.backend.as_ref())
        .next_back();
    chosen
        .cloned()
        .unwrap_or_else(|| Setting::built_in(BackendName::Native))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use cofferdam_contract::units::{Bytes, Cap};

    use super::super::setting::Origin;
    use super::*;

    /// A host with a system file, a home and an environment of its own.
    struct Host {
        dir: tempfile::TempDir,
        env: Vec<(&'static str, OsString)>,
    }

    impl Host {
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            let home = dir.path().join("home");
            std::fs::create_dir_all(home.join(".config/cofferdam")).unwrap();
            Self {
                env: vec![("HOME", home.into_os_string())],
                dir,
            }
        }

        fn system(self, text: &str) -> Self {
            std::fs::write(self.dir.path().join("system.yml"), text).unwrap();
            self
        }

        fn user(self, text: &str) -> Self {
            std::fs::write(self.user_path(), text).unwrap();
            self
        }

        fn user_path(&self) -> PathBuf {
            self.dir.path().join("home/.config/cofferdam/config.yml")
        }

        fn env(mut self, name: &'static str, value: impl Into<OsString>) -> Self {
            self.env.push((name, value.into()));
            self
        }

        fn load(&self, named: Option<PathBuf>, flags: Flags) -> Result<Merged, Vec<String>> {
            let system = self.dir.path().join("system.yml");
            let sources = Sources {
                system,
                ..Sources::of_process(named, flags, Limits::DEFAULT)
            };
            let lookup = |name: &str| {
                self.env
                    .iter()
                    .find(|(n, _)| *n == name)
                    .map(|(_, v)| v.clone())
            };
            merge(sources, &lookup)
                .map_err(|problems| problems.iter().map(ToString::to_string).collect())
        }
    }

    fn mib(n: u64) -> Cap<Bytes> {
        Cap::AtMost(Bytes::new(n << 20))
    }

    #[test]
    fn with_no_source_everything_is_a_default() {
        let merged = Host::new().load(None, Flags::default()).unwrap();
        assert_eq!(merged, Merged::built_in(Limits::DEFAULT));
        assert_eq!(merged.limits(), Limits::DEFAULT);
    }

    #[test]
    fn the_later_source_wins_and_each_value_knows_its_origin() {
        let host = Host::new()
            .system("sandbox:\n  limits: { memory: 1m, timeout: 1s, disk: 1m, processes: 1, cpus: 0.5 }\n")
            .user("sandbox:\n  limits:\n    memory: 2m\n    timeout: 2s\n    disk: 2m\n    processes: 2\n")
            .env("COFFERDAM_MEMORY", "4m")
            .env("COFFERDAM_TIMEOUT", "4s");
        let named = host.dir.path().join("named.yml");
        std::fs::write(
            &named,
            "sandbox:\n  limits:\n    memory: 3m\n    timeout: 3s\n    disk: unlimited\n",
        )
        .unwrap();
        let flags = Flags {
            memory: Some(mib(5)),
            ..Flags::default()
        };
        let merged = host.load(Some(named.clone()), flags).unwrap();

        let line = |path: PathBuf, line| Origin::File {
            path,
            line: Some(line),
        };
        assert_eq!(
            merged.memory,
            Setting {
                value: mib(5),
                origin: Origin::Flag { name: "--memory" }
            }
        );
        let four = Cap::AtMost(Duration::from_secs(4));
        assert_eq!(
            merged.wall_time,
            Setting {
                value: four,
                origin: Origin::Env {
                    name: "COFFERDAM_TIMEOUT"
                }
            }
        );
        assert_eq!(
            merged.disk,
            Setting {
                value: Cap::Unlimited,
                origin: line(named, 5)
            }
        );
        assert_eq!(
            merged.processes,
            Setting {
                value: Cap::AtMost(2),
                origin: line(host.user_path(), 6)
            }
        );
        assert_eq!(
            merged.cpus.origin,
            line(host.dir.path().join("system.yml"), 2)
        );
        assert_eq!(merged.output.origin, Origin::Default);
    }

    #[test]
    fn a_backend_section_beats_the_general_limits_of_its_own_file_only() {
        let host = Host::new()
            .system("sandbox: { limits: { memory: 1m, timeout: 1s }, native: { memory_limit: 2m, timeout: 2s }, host: { memory: 9m } }")
            .user("sandbox: { limits: { timeout: 3s } }");
        let merged = host.load(None, Flags::default()).unwrap();
        assert_eq!(merged.memory.value, mib(2));
        assert_eq!(merged.wall_time.value, Cap::AtMost(Duration::from_secs(3)));
        let flags = Flags {
            backend: Some(BackendName::Host),
            ..Flags::default()
        };
        assert_eq!(host.load(None, flags).unwrap().memory.value, mib(9));
    }

    #[test]
    fn a_backend_that_a_file_names_gives_way_to_the_environment() {
        let host = Host::new().user("sandbox:\n  default_runtime: wasm\n");
        let merged = host.load(None, Flags::default()).unwrap();
        assert_eq!(merged.backend.value, BackendName::Wasm);
        let host = host.env("COFFERDAM_BACKEND", "native");
        let merged = host.load(None, Flags::default()).unwrap();
        assert_eq!(
            merged.backend,
            Setting {
                value: BackendName::Native,
                origin: Origin::Env {
                    name: "COFFERDAM_BACKEND"
                }
            }
        );
    }

    #[test]
    fn problems_of_all_sources_come_together() {
        let host = Host::new()
            .system("sandbox: { limits: { memory: x } }")
            .user("nonsense: 1")
            .env("COFFERDAM_PIDS", "many")
            .env("COFFERDAM_CPUS", "")
            .env("COFFERDAM_BACKEND", "naitve")
            .env("COFFERDAM_CONFIG", "/does/not/exist.yml");
        let found = host.load(None, Flags::default()).unwrap_err();
        assert_eq!(found.len(), 5, "{found:#?}");
    }

    #[test]
    fn the_current_directory_is_never_a_source() {
        let host = Host {
            env: Vec::new(),
            ..Host::new()
        }
        .env("HOME", "home")
        .env("XDG_CONFIG_HOME", ".");
        let lookup = |name: &str| {
            host.env
                .iter()
                .find(|(n, _)| *n == name)
                .map(|(_, v)| v.clone())
        };
        assert_eq!(user_file(&lookup), None);
        assert_eq!(user_file(&|_| None), None);
        let host = host.env("XDG_CONFIG_HOME", "");
        assert!(host.load(None, Flags::default()).is_ok());
    }

    #[test]
    fn variables_that_are_no_text_are_problems_not_panics() {
        use std::os::unix::ffi::OsStringExt;
        let host = Host::new().env("COFFERDAM_MEMORY", OsString::from_vec(vec![0xff, 0x1b]));
        let found = host.load(None, Flags::default()).unwrap_err();
        assert_eq!(found.len(), 1);
        assert!(!found[0].contains('\u{1b}'), "{found:?}");
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_in_a_file_make_it_panic(bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..400)) {
            let host = Host::new();
            std::fs::write(host.user_path(), bytes).unwrap();
            let _ = host.load(None, Flags::default());
        }
    }
}
