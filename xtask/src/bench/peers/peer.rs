//! Who takes part: each knows how to do one run and how to do many at once.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;

use super::docker::Docker;
use super::helper::Helper;
use super::oci;
use crate::bench::contestant::{BUBBLEWRAP, Binary};
use crate::bench::daemon::{Client, Served};
use crate::bench::throughput;

pub(super) const BARE: &str = "bare posix_spawn";

/// One contestant with one program.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) name: &'static str,
    way: Way,
}

#[derive(Debug)]
enum Way {
    /// A process for each run. [`ID`] in a word becomes a name that no other run has.
    Command {
        words: Vec<String>,
        history: Option<String>,
    },
    Library(Helper),
    Http {
        client: Box<Client>,
        served: std::net::SocketAddr,
        work: serde_json::Value,
    },
}

const ID: &str = "{id}";

/// What contestants are made of.
#[derive(Debug)]
pub(super) struct Site<'a> {
    pub(super) binary: &'a Binary,
    pub(super) helper: &'a Path,
    pub(super) served: &'a Served,
    pub(super) docker: Option<&'a Docker>,
    pub(super) dir: &'a Path,
}

/// All of them, for this program; whether they work is found out later.
pub(super) fn all(site: &Site<'_>, program: &[&str]) -> Result<Vec<Peer>, String> {
    static BUNDLES: AtomicU64 = AtomicU64::new(0);
    let name = format!("bundle-{}", BUNDLES.fetch_add(1, Ordering::Relaxed));
    let bundle = oci::bundle(site.dir, &name, program)?.display().to_string();
    let state = |runtime: &str| format!("{}/{runtime}-{name}", site.dir.display());
    let tool = |name, words: &[&str]| Peer::command(name, words, program);
    let oci = |name, words: &[&str]| Peer::command(name, words, &["run", "--bundle", &bundle, ID]);
    let binary = site.binary.path().display().to_string();
    let own = |name, words: &[&str]| {
        let mut peer = Peer::command(
            name,
            &[&[&*binary, "run"], words, &["--"]].concat(),
            program,
        );
        if let Way::Command { history, .. } = &mut peer.way {
            *history = Some(site.binary.history().display().to_string());
        }
        peer
    };
    let mut peers = vec![
        tool(BARE, &[]),
        Peer {
            name: "cofferdam library, warm",
            way: Way::Library(Helper::start(site.helper, "warm", program)?),
        },
        Peer {
            name: "cofferdam library, cold",
            way: Way::Library(Helper::start(site.helper, "cold", program)?),
        },
        Peer {
            name: "cofferdam HTTP, pool",
            way: Way::Http {
                client: Box::new(site.served.client()?),
                served: site.served.address(),
                work: json!({ "command": program }),
            },
        },
        own("cofferdam run", &[]),
        own(
            "cofferdam run --backend bubblewrap",
            &["--backend", "bubblewrap"],
        ),
        tool("bubblewrap", BUBBLEWRAP),
        tool(
            "firejail",
            &[
                "firejail",
                "--quiet",
                "--noprofile",
                "--net=none",
                "--caps.drop=all",
                "--",
            ],
        ),
        oci("crun", &["crun", "--root", &state("crun")]),
        oci("runc", &["runc", "--root", &state("runc")]),
        oci(
            "runsc (gVisor, ptrace)",
            &[
                "runsc",
                "--root",
                &state("runsc"),
                "--network=none",
                "--platform=ptrace",
                "--ignore-cgroups",
            ],
        ),
        own("cofferdam run --backend gvisor", &["--backend", "gvisor"]),
    ];
    // As who has source code asks for it: then an interpreter waits already.
    if let [.., "-c", code] = program {
        peers.push(Peer {
            name: "cofferdam HTTP, source code",
            way: Way::Http {
                client: Box::new(site.served.client()?),
                served: site.served.address(),
                work: json!({ "language": "python", "code": code }),
            },
        });
    }
    if let Some(docker) = site.docker {
        let words = |words: &[String]| -> Vec<String> { words.to_vec() };
        for (name, prefix) in [("docker exec", docker.exec()), ("docker run", docker.run())] {
            let prefix = words(&prefix);
            let prefix: Vec<&str> = prefix.iter().map(String::as_str).collect();
            peers.push(Peer::command(name, &prefix, program));
        }
    }
    Ok(peers)
}

impl Peer {
    fn command(name: &'static str, prefix: &[&str], rest: &[&str]) -> Self {
        let words = prefix.iter().chain(rest).map(|word| (*word).to_owned());
        Self {
            name,
            way: Way::Command {
                words: words.collect(),
                history: None,
            },
        }
    }

    /// One run before measuring, whose words are shown when it fails.
    pub(super) fn try_once(&mut self) -> Result<(), String> {
        let Way::Command { words, history } = &self.way else {
            return self.time().map(drop);
        };
        let output = command(words, history.as_deref())
            .stderr(Stdio::piped())
            .output();
        let output = output.map_err(|error| error.to_string())?;
        if output.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stderr);
        let last = said.lines().last().unwrap_or_default();
        Err(format!("{}: {last}", output.status))
    }

    /// One run that must end well: a contestant that fails fast would win.
    pub(super) fn time(&mut self) -> Result<Duration, String> {
        match &mut self.way {
            Way::Command { words, history } => {
                let mut command = command(words, history.as_deref());
                let start = Instant::now();
                let status = command.status();
                let time = start.elapsed();
                let status = status.map_err(|error| format!("{}: {error}", self.name))?;
                if status.success() {
                    return Ok(time);
                }
                Err(format!(
                    "{} ended with {status} while it was measured",
                    self.name
                ))
            }
            Way::Library(helper) => helper.run(),
            Way::Http { client, work, .. } => {
                let start = Instant::now();
                client.run(work)?;
                Ok(start.elapsed())
            }
        }
    }

    /// So many clients, each with one run after the other until the slice is over; runs that were started are waited for and counted.
    pub(super) fn flood(&mut self, clients: usize, slice: Duration) -> Result<u64, String> {
        match &mut self.way {
            Way::Library(helper) => helper.flood(clients, slice),
            Way::Command { words, history } => {
                let (words, history, name) = (&*words, history.as_deref(), self.name);
                throughput::flood(clients, slice, || {
                    let status = command(words, history).status();
                    let status = status.map_err(|error| format!("{name}: {error}"))?;
                    if status.success() {
                        return Ok(());
                    }
                    Err(format!("{name} ended with {status} under load"))
                })
            }
            Way::Http { served, work, .. } => {
                let (served, work) = (*served, &*work);
                thread_local! {
                    static CLIENT: std::cell::RefCell<Option<Client>> = const { std::cell::RefCell::new(None) };
                }
                throughput::flood(clients, slice, || {
                    CLIENT.with_borrow_mut(|client| {
                        let client = match client {
                            Some(client) => client,
                            None => client.insert(Client::connect(served)?),
                        };
                        client.run(work).map(drop)
                    })
                })
            }
        }
    }
}

/// The environment is small and the same for all.
fn command(words: &[String], history: Option<&str>) -> Command {
    static RUNS: AtomicU64 = AtomicU64::new(0);
    let number = RUNS.fetch_add(1, Ordering::Relaxed);
    let id = format!("peer-{}-{number}", std::process::id());
    let mut words = words.iter().map(|word| {
        if word == ID {
            id.as_str()
        } else {
            word.as_str()
        }
    });
    let mut command = Command::new(words.next().unwrap_or_default());
    command
        .args(words)
        .env_clear()
        .env("PATH", "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin")
        .env("HOME", "/root")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    if let Some(history) = history {
        command.env("COFFERDAM_DATA_DIR", history);
    }
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_that_fails_is_neither_timed_nor_counted() {
        let mut bad = Peer::command("bad", &["/bin/sh", "-c"], &["echo why >&2; exit 3"]);
        assert!(bad.try_once().unwrap_err().contains("why"));
        assert!(bad.time().is_err());
        assert!(bad.flood(2, Duration::from_secs(60)).is_err());
        let mut good = Peer::command("good", &["/bin/true"], &[]);
        assert!(good.time().is_ok());
        assert!(good.flood(3, Duration::from_millis(20)).unwrap() >= 3);
    }

    #[test]
    fn every_run_has_a_name_of_its_own() {
        let words = ["/bin/echo".to_owned(), ID.to_owned()];
        let name = || {
            command(&words, None)
                .get_args()
                .next()
                .map(ToOwned::to_owned)
        };
        assert_ne!(name(), name());
    }
}
