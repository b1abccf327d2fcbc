//! `cargo xtask bench peers`: every sandbox that can be had here, and every way to use ours, with the same programs, in turns, in one run. Writes JSON and a chart.

mod chart;
mod docker;
mod helper;
mod oci;
mod peer;
mod report;
mod turns;

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::contestant::{Binary, Privilege};
use super::daemon::Served;
use crate::{generate, install};
pub(super) use docker::Docker;
use peer::Peer;
use report::{Absent, Program, Report};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Options {
    /// Rounds without a pause; fewer with one.
    rounds: usize,
    slice: Duration,
    clients: usize,
    programs: usize,
    out: Option<PathBuf>,
}

/// The same for everybody, all in /usr, which every contestant can show. The most telling first.
const PROGRAMS: [(&str, &[&str]); 4] = [
    ("/usr/bin/true", &["/usr/bin/true"]),
    (
        "python3 -c 'print(1)'",
        &["/usr/bin/python3", "-c", "print(1)"],
    ),
    ("busybox true (static)", &["/usr/bin/busybox", "true"]),
    ("node -e 1", &["/usr/bin/node", "-e", "1"]),
];
const PAUSES_MS: [u64; 3] = [0, 20, 100];
const HELP: &str = "bench peers has --quick, --rounds N and --out DIR";

/// Known sandboxes that no registry gives for this system.
const NOT_TO_BE_HAD: [(&str, &str); 3] = [
    ("minijail", "Debian 12 has no package of it"),
    ("nsjail", "Debian 12 has no package of it"),
    ("isolate", "Debian 12 has no package of it"),
];

impl Options {
    pub(crate) fn parse(flags: &[&str]) -> Result<Self, String> {
        let mut options = Self {
            rounds: 300,
            slice: Duration::from_secs(3),
            clients: 16,
            programs: PROGRAMS.len(),
            out: None,
        };
        let mut flags = flags.iter();
        while let Some(flag) = flags.next() {
            match *flag {
                "--quick" => {
                    options.rounds = 20;
                    options.slice = Duration::from_millis(300);
                    options.programs = 2;
                }
                "--rounds" => {
                    let rounds = flags.next().and_then(|text| text.parse().ok());
                    options.rounds = rounds
                        .filter(|rounds| *rounds > 0)
                        .ok_or("--rounds: write a number above 0")?;
                }
                "--out" => {
                    let dir = flags.next().ok_or("--out: name a directory")?;
                    options.out = Some(PathBuf::from(dir));
                }
                other => return Err(format!("there is no flag `{other}`; {HELP}")),
            }
        }
        Ok(options)
    }

    /// With pauses a round takes long, and says as much.
    fn rounds_at(&self, pause_ms: u64) -> usize {
        match pause_ms {
            0 => self.rounds,
            1..=50 => self.rounds.div_ceil(4),
            _ => self.rounds.div_ceil(8),
        }
    }
}

/// Measures everything, prints it and writes it down.
pub(crate) fn run(root: &Path, options: &Options) -> Result<(), String> {
    install::peers()?;
    let binary = Binary::build(root, &[])?;
    let helper = helper::build(root)?;
    let served = Served::start(&binary, Privilege::Own, "peers", &["--pool", "auto"])?;
    let dir = binary.directory("peers")?;
    let mut report = Report::new(options.clients);
    let not_to_be_had = NOT_TO_BE_HAD.map(|(name, why)| Absent::new(name, why));
    report.absent.extend(not_to_be_had);
    let docker = match Docker::start(&dir) {
        Ok(docker) => Some(docker),
        Err(why) => {
            report.absent.push(Absent::new("docker", why));
            None
        }
    };
    for (name, argv) in PROGRAMS.into_iter().take(options.programs) {
        let site = peer::Site {
            binary: &binary,
            helper: &helper,
            served: &served,
            docker: docker.as_ref(),
            dir: &dir,
        };
        let mut peers = usable(peer::all(&site, argv)?, &mut report)?;
        eprintln!("{name}: {} contestants", peers.len());
        let mut program = Program::new(name);
        for pause in PAUSES_MS {
            let rounds = options.rounds_at(pause);
            eprintln!("  {rounds} rounds with pauses of {pause} ms");
            program
                .paces
                .push(turns::latency(&mut peers, pause, rounds)?);
        }
        eprintln!("  {} clients", options.clients);
        program.throughput = turns::throughput(&mut peers, options.clients, options.slice)?;
        report.programs.push(program);
    }
    drop(docker);
    served.end()?;
    print!("{report}");
    match &options.out {
        Some(out) => write(out, &report),
        None => {
            write(&root.join("docs/benchmarks"), &report)?;
            // README.md has a table of it.
            generate::run(root, generate::Mode::Write)
        }
    }
}

/// Those that work; why the others do not is part of the result.
fn usable(peers: Vec<Peer>, report: &mut Report) -> Result<Vec<Peer>, String> {
    let mut kept = Vec::new();
    for mut peer in peers {
        match peer.try_once() {
            Ok(()) => kept.push(peer),
            Err(why) if peer.name == peer::BARE => return Err(why),
            Err(why) => {
                eprintln!("  without {}: {why}", peer.name);
                let known = report.absent.iter().any(|absent| absent.name == peer.name);
                if !known {
                    report.absent.push(Absent::new(peer.name, why));
                }
            }
        }
    }
    Ok(kept)
}

fn write(out: &Path, report: &Report) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("{}: {error}", out.display());
    std::fs::create_dir_all(out).map_err(failed)?;
    let json = serde_json::to_string_pretty(report).map_err(|error| error.to_string())?;
    std::fs::write(out.join("peers.json"), json + "\n").map_err(failed)?;
    std::fs::write(out.join("peers.svg"), chart::draw(report)).map_err(failed)?;
    println!("written: peers.json and peers.svg in {}", out.display());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_read_and_unknown_ones_refused() {
        let quick = Options::parse(&["--quick", "--rounds", "7", "--out", "/tmp/x"]).unwrap();
        assert_eq!((quick.rounds, quick.programs), (7, 2));
        assert_eq!(quick.rounds_at(20), 2);
        assert_eq!(quick.out.as_deref(), Some(Path::new("/tmp/x")));
        for bad in [
            &["--fast"][..],
            &["--rounds"],
            &["--rounds", "0"],
            &["--out"],
        ] {
            assert!(Options::parse(bad).is_err(), "{bad:?}");
        }
    }
}
