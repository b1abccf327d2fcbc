//! What goes wrong while the daemon is under load: programs that break every limit, callers that leave, helpers that somebody kills; and runs of other backends beside it, in its data
//! directory. None of it may leave anything behind, and every answer must be right.

use std::fs;
use std::path::Path;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::super::contestant::{Binary, Contestant, Privilege};
use super::http::Client;
use super::served::Served;

/// Kinds of trouble, in turn.
const KINDS: usize = 4;
/// A helper takes a moment to be there again; killed each time, it would never be.
const SPARED: usize = 50;

/// What each kind needs.
#[derive(Debug)]
pub(super) struct Trouble {
    /// One-shot runs of other backends.
    others: Vec<Contestant>,
}

impl Trouble {
    pub(super) fn new(
        binary: &Binary,
        privilege: Privilege,
        served: &Served,
    ) -> Result<Self, String> {
        let module = binary.directory("soak")?.join("nothing.wat");
        fs::write(&module, r#"(module (func (export "_start")))"#)
            .map_err(|error| format!("{}: {error}", module.display()))?;
        let (data, module) = (served.data().to_string_lossy(), module.to_string_lossy());
        let run = |words: &[&str]| {
            binary.verb(privilege, &[&["--data-dir", &*data, "run"], words].concat())
        };
        let mut others = vec![
            run(&["--backend", "wasm", &*module]),
            run(&["--", "/usr/bin/true"]),
        ];
        // For an ordinary user nothing holds its memory.
        if privilege == Privilege::Own {
            others.push(run(&["--backend", "bubblewrap", "--", "/usr/bin/true"]));
        }
        Ok(Self { others })
    }

    /// The trouble of one turn.
    pub(super) fn make(
        &self,
        turn: usize,
        client: &mut Client,
        served: &Served,
    ) -> Result<(), String> {
        match turn % KINDS {
            0 => stopped(turn / KINDS, client),
            1 => left_alone(client, served),
            2 => match turn / KINDS % SPARED {
                0 => kill_a_helper(served.pid(), "python3"),
                1 => kill_a_helper(served.pid(), "cofferdam-sweep"),
                _ => python(client),
            },
            _ => {
                let other = self.others.get(turn / KINDS % self.others.len().max(1));
                other.map_or(Ok(()), |other| other.time_success().map(drop))
            }
        }
    }
}

/// A program that breaks a limit is stopped for that, and no other reason.
fn stopped(turn: usize, client: &mut Client) -> Result<(), String> {
    let python = |code: &str| json!(["python3", "-c", code]);
    let (cause, work) = match turn % 4 {
        0 => (
            "wall_time",
            json!({ "command": ["sleep", "100"], "limits": { "wall_time_ms": 50 } }),
        ),
        1 => (
            "memory",
            json!({ "command": python("x = b'x' * (1 << 28)"), "limits": { "memory_bytes": 64 << 20 } }),
        ),
        2 => (
            "output",
            json!({ "command": ["yes"], "limits": { "output_bytes": 10_000 } }),
        ),
        _ => (
            "cpu_time",
            json!({ "command": ["sh", "-c", "while :; do :; done"], "limits": { "cpu_time_ms": 50 } }),
        ),
    };
    let (status, run) = client.ask("POST", "/v1/runs", Some(&work))?;
    let told = run.pointer("/ending/cause").and_then(Value::as_str);
    match (status, told) {
        (200, Some(told)) if told == cause => Ok(()),
        _ => Err(format!("{work} was answered with {status} {run}")),
    }
}

/// Somebody asks for something long and goes away; somebody else asks for it and thinks better of it.
fn left_alone(client: &mut Client, served: &Served) -> Result<(), String> {
    let long = |wait: bool| json!({ "command": ["sleep", "1"], "wait": wait });
    let mut gone = Client::connect(served.address())?;
    gone.send("POST", "/v1/runs", Some(&long(true)))?;
    drop(gone);
    let (status, run) = client.ask("POST", "/v1/runs", Some(&long(false)))?;
    let id = run.get("run_id").and_then(Value::as_str);
    let id = id.ok_or_else(|| format!("a long run was answered with {status} {run}"))?;
    let (status, answer) = client.ask("POST", &format!("/v1/runs/{id}/cancel"), None)?;
    match status {
        200 | 202 => Ok(()),
        _ => Err(format!("cancelling was answered with {status} {answer}")),
    }
}

fn python(client: &mut Client) -> Result<(), String> {
    let run = client.run(&json!({ "language": "python", "code": "print(6 * 7)" }))?;
    match run.pointer("/stdout/data").and_then(Value::as_str) {
        Some("42\n") => Ok(()),
        _ => Err(format!("Python printed something else: {run}")),
    }
}

/// One of the daemon's own: those of a run are in another pid namespace.
fn kill_a_helper(daemon: u32, name: &str) -> Result<(), String> {
    let tasks = fs::read_dir(format!("/proc/{daemon}/task"));
    let tasks = tasks.map_err(|error| format!("the daemon's threads: {error}"))?;
    let children = tasks
        .flatten()
        .filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    let children: Vec<String> = children.collect();
    let pids = children.iter().flat_map(|list| list.split_whitespace());
    for pid in pids.filter(|pid| is_helper(pid, name)) {
        if let Some(pid) = pid.parse().ok().and_then(Pid::from_raw) {
            // Gone meanwhile is as good.
            let _ = kill_process(pid, Signal::KILL);
        }
    }
    Ok(())
}

fn is_helper(pid: &str, name: &str) -> bool {
    let place = Path::new("/proc").join(pid);
    let comm = fs::read_to_string(place.join("comm")).unwrap_or_default();
    let status = fs::read_to_string(place.join("status")).unwrap_or_default();
    let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
    let is_outside = numbers.is_some_and(|numbers| numbers.split_whitespace().count() == 1);
    comm.trim_end() == name && is_outside
}
