//! Reads `run …` by hand. The whole grammar costs more to build than everything else that happens before a sandbox is made, so it is left to whatever is not plain: an
//! abbreviation, a mistake, a request for help. What is read here is read as the grammar would; a test compares the two.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

use clap::ValueEnum as _;
use cofferdam_contract::mode::Mode;
use cofferdam_contract::units::Bytes;

use super::keys::CacheArgs;
use super::network::NetworkArgs;
use super::{Cli, ContainerArgs, HistoryArgs, LimitArgs, OnOutputLimit, RunArgs, Verb};
use crate::config::spelling;

/// What `--capture` is when nothing is said.
const CAPTURE: Bytes = Bytes::new(1 << 20);

/// The command line, without the program's own name. `None` when the grammar must look at it.
pub(super) fn run(args: &[OsString]) -> Option<Cli> {
    let (verb, rest) = args.split_first()?;
    if verb != "run" {
        return None;
    }
    let end = rest.iter().position(|arg| arg == "--")?;
    let (flags, command) = rest.split_at_checked(end)?;
    let command = command.get(1..).filter(|command| !command.is_empty())?;
    let mut reading = Reading::new();
    let mut flags = flags.iter();
    while let Some(flag) = flags.next() {
        let (name, value) = split(flag)?;
        if reading.switch(name, value)? == Taken::Yes {
            continue;
        }
        let value = match value {
            Some(value) => value,
            None => flags.next().filter(|next| !is_flag(next))?,
        };
        reading.option(name, value)?;
    }
    reading.finish(command)
}

#[derive(PartialEq, Eq)]
enum Taken {
    Yes,
    No,
}

struct Reading {
    config: Option<PathBuf>,
    data_dir: Option<PathBuf>,
    mode: Option<Mode>,
    run: RunArgs,
    capture: Option<Bytes>,
    on_output_limit: Option<OnOutputLimit>,
}

impl Reading {
    fn new() -> Self {
        Self {
            config: None,
            data_dir: None,
            mode: None,
            run: RunArgs {
                command: Vec::new(),
                language: None,
                code: None,
                file: None,
                event: None,
                inputs: None,
                limits: LimitArgs::default(),
                workspace: None,
                mount: Vec::new(),
                volumes: Vec::new(),
                cache_dir: None,
                root: None,
                cwd: None,
                env: Vec::new(),
                stdin: None,
                json: false,
                capture: CAPTURE,
                on_output_limit: OnOutputLimit::Stop,
                backend: None,
                network: NetworkArgs::default(),
                container: ContainerArgs::default(),
                gpu: None,
                deterministic: false,
                seed: None,
                waive: Vec::new(),
                pure: false,
                cache: CacheArgs::default(),
                history: HistoryArgs::default(),
            },
            capture: None,
            on_output_limit: None,
        }
    }

    /// A flag without a value. Given twice, or with one, it is a mistake.
    fn switch(&mut self, name: &str, value: Option<&OsStr>) -> Option<Taken> {
        let switch = match name {
            "--json" => &mut self.run.json,
            "--deterministic" => &mut self.run.deterministic,
            "--pure" => &mut self.run.pure,
            "--no-cache" => &mut self.run.cache.no_cache,
            "--cache-limits" => &mut self.run.cache.cache_limits,
            "--no-history" => &mut self.run.history.no_history,
            "--no-artifacts" => &mut self.run.history.no_artifacts,
            _ => return Some(Taken::No),
        };
        if *switch || value.is_some() {
            return None;
        }
        *switch = true;
        Some(Taken::Yes)
    }

    fn option(&mut self, name: &str, value: &OsStr) -> Option<()> {
        let run = &mut self.run;
        let limits = &mut run.limits;
        match name {
            "--timeout" => once(&mut limits.timeout, spelling::duration(text(value)?).ok()?),
            "--cpu-time" => once(&mut limits.cpu_time, spelling::duration(text(value)?).ok()?),
            "--memory" => once(&mut limits.memory, spelling::bytes(text(value)?).ok()?),
            "--pids" => once(&mut limits.pids, spelling::count(text(value)?).ok()?),
            "--disk" => once(&mut limits.disk, spelling::bytes(text(value)?).ok()?),
            "--output-limit" => once(
                &mut limits.output_limit,
                spelling::bytes(text(value)?).ok()?,
            ),
            "--open-files" => once(&mut limits.open_files, spelling::count(text(value)?).ok()?),
            "--cpus" => once(&mut limits.cpus, spelling::cpus(text(value)?).ok()?),
            "--workspace" => once(&mut run.workspace, value.to_owned()),
            "--root" => once(&mut run.root, value.into()),
            "--cwd" => once(&mut run.cwd, value.into()),
            "--stdin" => once(&mut run.stdin, value.into()),
            "--backend" => once(&mut run.backend, spelling::backend(text(value)?).ok()?),
            "--image" => once(&mut run.container.image, text(value)?.to_owned()),
            "--runtime" => once(&mut run.container.runtime, text(value)?.to_owned()),
            "--pull" => once(&mut run.container.pull, text(value)?.to_owned()),
            "--seed" => once(&mut run.seed, text(value)?.parse().ok()?),
            "--capture" => once(&mut self.capture, text(value)?.parse().ok()?),
            "--on-output-limit" => once(
                &mut self.on_output_limit,
                OnOutputLimit::from_str(text(value)?, false).ok()?,
            ),
            "--parent" => once(&mut run.history.parent, text(value)?.to_owned()),
            "--config" => once(&mut self.config, value.into()),
            "--data-dir" => once(&mut self.data_dir, value.into()),
            "--mode" => once(&mut self.mode, spelling::mode(text(value)?).ok()?),
            "--mount" => {
                run.mount.push(value.to_owned());
                Some(())
            }
            "--env" | "-e" => {
                run.env.push(value.to_owned());
                Some(())
            }
            "--waive" => {
                run.waive.push(text(value)?.to_owned());
                Some(())
            }
            "--tag" => {
                run.history.tag.push(text(value)?.to_owned());
                Some(())
            }
            _ => None,
        }
    }

    fn finish(self, command: &[OsString]) -> Option<Cli> {
        let history = &self.run.history;
        if self.run.seed.is_some() && !self.run.deterministic {
            return None;
        }
        if history.no_history && (!history.tag.is_empty() || history.parent.is_some()) {
            return None;
        }
        let run = RunArgs {
            command: command.to_vec(),
            capture: self.capture.unwrap_or(CAPTURE),
            on_output_limit: self.on_output_limit.unwrap_or(OnOutputLimit::Stop),
            ..self.run
        };
        Some(Cli {
            config: self.config,
            data_dir: self.data_dir,
            mode: self.mode,
            verb: Verb::Run(Box::new(run)),
        })
    }
}

/// `--name`, `--name=value` or `-e`.
fn split(flag: &OsStr) -> Option<(&str, Option<&OsStr>)> {
    let bytes = flag.as_bytes();
    let Some(at) = bytes
        .iter()
        .position(|&byte| byte == b'=')
        .filter(|_| bytes.starts_with(b"--"))
    else {
        return Some((text(flag)?, None));
    };
    let value = OsStr::from_bytes(bytes.get(at + 1..)?);
    let name = std::str::from_utf8(bytes.get(..at)?).ok()?;
    // What an empty value means is for the grammar to say.
    (!value.is_empty()).then_some((name, Some(value)))
}

/// What begins with a dash is a flag, unless it is one dash alone. An empty word is left to the grammar, too.
fn is_flag(word: &OsStr) -> bool {
    word.is_empty() || (word.as_bytes().starts_with(b"-") && word != "-")
}

fn text(value: &OsStr) -> Option<&str> {
    value.to_str()
}

/// Given twice, it is a mistake.
fn once<T>(slot: &mut Option<T>, value: T) -> Option<()> {
    slot.is_none().then(|| *slot = Some(value))
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use proptest::prelude::*;

    use super::*;

    const FLAGS: [&str; 36] = [
        "--timeout",
        "--cpu-time",
        "--memory",
        "--pids",
        "--disk",
        "--output-limit",
        "--open-files",
        "--cpus",
        "--workspace",
        "--mount",
        "--root",
        "--cwd",
        "--env",
        "-e",
        "--stdin",
        "--json",
        "--capture",
        "--on-output-limit",
        "--backend",
        "--image",
        "--runtime",
        "--pull",
        "--waive",
        "--tag",
        "--parent",
        "--no-history",
        "--no-artifacts",
        "--config",
        "--data-dir",
        "--mode",
        "--timeo",
        "--deterministic",
        "--seed",
        "--pure",
        "--no-cache",
        "--cache-limits",
    ];
    const VALUES: [&str; 17] = [
        "2s",
        "64m",
        "20",
        "0.5",
        "unlimited",
        "./job:rw",
        "/data:/data:ro",
        "KEY=VALUE",
        "-",
        "",
        "-1",
        "discard",
        "native",
        "memory",
        "--json",
        "host",
        "docker",
    ];

    fn words(line: &str) -> Vec<OsString> {
        line.split(' ').map(OsString::from).collect()
    }

    type Parts = (Option<PathBuf>, Option<PathBuf>, Option<Mode>, RunArgs);

    fn parts(cli: Cli) -> Option<Parts> {
        match cli.verb {
            Verb::Run(run) => Some((cli.config, cli.data_dir, cli.mode, *run)),
            _ => None,
        }
    }

    #[track_caller]
    fn assert_same(args: &[OsString]) {
        let whole = [OsString::from("cofferdam")]
            .into_iter()
            .chain(args.to_vec());
        let grammar = Cli::try_parse_from(whole).ok().and_then(parts);
        if let Some(quick) = run(args).and_then(parts) {
            assert_eq!(Some(quick), grammar, "{args:?}");
        }
    }

    #[test]
    fn what_people_write_is_read_here() {
        for line in [
            "run -- true",
            "run --json -- sh -c x",
            "run --timeout 2s --memory=64m --cpu-time 1s --pids 20 --disk 50m --output-limit 100k --cpus 0.5 --workspace ./job:rw --mount /data:/data:ro --env KEY=VALUE -e A --stdin input.txt -- ./solve -x -- y",
            "run --stdin - --on-output-limit discard --capture 2m --backend host --waive disk --open-files 64 --cwd /tmp --root /r -- true",
            "run --tag a=b --tag c --parent 019a --no-artifacts --config c.yml --data-dir d -- true",
            "run --no-history -- true",
            "run --mode air-gapped -- true",
            "run --backend wasm --deterministic --seed 7 -- prog.wasm",
            "run --backend docker --image x:1 --runtime runsc --pull never -- true",
        ] {
            let args = words(line);
            assert!(run(&args).is_some(), "{line}");
            assert_same(&args);
        }
    }

    #[test]
    fn what_is_not_plain_is_left_to_the_grammar() {
        for line in [
            "",
            "runs list",
            "run true",
            "run --",
            "run --help -- true",
            "run --timeo 2s -- true",
            "run --timeout -- true",
            "run --timeout -1 -- true",
            "run --timeout 0 -- true",
            "run --timeout 1s --timeout 2s -- true",
            "run --json --json -- true",
            "run --json=true -- true",
            "run --no-history --tag x -- true",
            "run --env= -- true",
            "run -eA=b -- true",
            "run x -- true",
            "run --seed 7 -- true",
        ] {
            assert!(run(&words(line)).is_none(), "{line}");
        }
    }

    proptest! {
        #[test]
        fn both_readers_agree(
            flags in prop::collection::vec((prop::sample::select(&FLAGS[..]), prop::option::of(prop::sample::select(&VALUES[..])), any::<bool>()), 0..5)
        ) {
            let mut args = words("run");
            for (flag, value, joined) in flags {
                match value {
                    Some(value) if joined => args.push(format!("{flag}={value}").into()),
                    Some(value) => args.extend([flag.into(), value.into()]),
                    None => args.push(flag.into()),
                }
            }
            args.extend(words("-- true"));
            assert_same(&args);
        }
    }
}
