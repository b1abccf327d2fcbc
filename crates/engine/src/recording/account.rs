//! What is written about a run: before it starts and after it has ended, without its secrets.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::time::Duration;

use cofferdam_contract::limits::Limits;
use cofferdam_contract::record::{Change, RunRecord};
use cofferdam_contract::request::{Gpus, MountAccess, Network, Request, Root, WorkspaceAccess};
use cofferdam_contract::units::{Bytes, Cap, CpuShare};
use cofferdam_store::RunId;
use cofferdam_store::collect::Collected;
use cofferdam_store::model::{Artifact, Closing, HostFacts, LeftOut, Opening, RunKind, StreamSeen};
use cofferdam_store::sift::redact::{self, Rules};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::changes::readable;
use crate::pipeline::Birth;
use crate::reach;

/// What the caller says about a run.
pub(super) struct About {
    pub(super) kind: RunKind,
    pub(super) tags: BTreeMap<String, String>,
    pub(super) parent: Option<RunId>,
    pub(super) sender: Option<String>,
    pub(super) execution_id: Option<String>,
    pub(super) payload: Option<Value>,
}

/// Everything that is known before the start, without its secrets, and how many there were.
pub(super) fn opening(
    request: &Request,
    birth: Birth,
    about: About,
    rules: &Rules,
) -> (Opening, u64) {
    let argv: Vec<String> = request
        .argv
        .iter()
        .map(|argument| readable(argument.as_bytes()))
        .collect();
    let (command, mut redactions) = redact::redact_arguments(rules, &argv);
    let mut payload = about.payload;
    if let Some(payload) = &mut payload {
        redactions += redact::redact_json(rules, payload);
    }
    let mut clean = |text: &str| {
        let (text, count) = redact::redact_text(rules, text);
        redactions += count;
        text
    };
    let policy = policy(request, &mut clean);
    // A name can say that its value is a secret.
    let tags = about.tags.iter().map(|(key, value)| {
        let joined = clean(&format!("{key}={value}"));
        let (key, value) = joined.split_once('=').unwrap_or((&joined, ""));
        (key.to_owned(), value.to_owned())
    });
    let tags = tags.collect();
    let cwd = request.cwd.as_ref().map(|cwd| clean(&reach::shown(cwd)));
    let environment = request.env.iter();
    let environment = environment
        .map(|(name, _)| clean(&readable(name.as_bytes())))
        .collect();
    let system = rustix::system::uname();
    let opening = Opening {
        run_id: birth.run_id,
        started_at: birth.started_at,
        command,
        cwd,
        environment,
        kind: about.kind,
        backend: request.backend.as_str().to_owned(),
        tags,
        parent: about.parent,
        sender: about.sender,
        execution_id: about.execution_id,
        policy,
        payload,
        host: HostFacts {
            name: system.nodename().to_string_lossy().into_owned(),
            kernel: system.release().to_string_lossy().into_owned(),
            uid: rustix::process::getuid().as_raw(),
        },
        version: env!("CARGO_PKG_VERSION").to_owned(),
    };
    (opening, redactions)
}

pub(super) fn closing(record: &RunRecord, mut collected: Collected) -> Closing {
    let changes = record.changes.as_deref().map(bounded);
    let listed = changes.as_ref().map_or(0, Vec::len);
    let all = record.changes.as_ref().map_or(0, Vec::len);
    if listed < all {
        collected.left_out.push(LeftOut {
            path: ".".to_owned(),
            why: format!("{} more changes are not listed", all - listed),
        });
    }
    Closing {
        ended_at: record.ended_at.parse().unwrap_or_else(|_| Timestamp::now()),
        ending: (&record.ending).into(),
        exit_code: record.exit_code,
        signal: record.signal.clone(),
        usage: record.usage,
        enforced_by: record.enforced_by.clone(),
        isolation: record.isolation.clone(),
        denials: record.denials.clone(),
        changes,
        redactions: 0,
        stdout: StreamSeen::default(),
        stderr: StreamSeen::default(),
        artifacts: collected.artifacts,
        left_out: collected.left_out,
        results: None,
        network: record.network.clone(),
        determinism: record.determinism.clone(),
    }
}

/// As many as a record can hold: the program chose how long the names are, and which characters take six bytes each there.
fn bounded(changes: &[Change]) -> Vec<Change> {
    const MOST_BYTES: usize = 4 << 20;
    let mut bytes: usize = 0;
    let fits = |change: &&Change| {
        let written = serde_json::to_string(change).map_or(MOST_BYTES, |text| text.len());
        bytes = bytes.saturating_add(written);
        bytes <= MOST_BYTES
    };
    changes.iter().take_while(fits).cloned().collect()
}

/// The texts in a closing that the program had a say in: messages with its paths, names of its files.
pub(super) fn redact_closing(closing: &mut Closing, rules: &Rules) -> u64 {
    use cofferdam_contract::ending::EndingRecord;
    let mut count = 0;
    let mut clean = |text: &mut String| {
        let (clean, found) = redact::redact_text(rules, text);
        if found > 0 {
            *text = clean;
            count += found;
        }
    };
    match &mut closing.ending {
        EndingRecord::NeverStarted { step, message, .. } => {
            clean(step);
            clean(message);
        }
        EndingRecord::Stopped { .. } | EndingRecord::Exited | EndingRecord::Signaled => {}
    }
    for denial in &mut closing.denials {
        clean(&mut denial.what);
    }
    for event in closing.network.iter_mut().flat_map(|told| &mut told.events) {
        clean(&mut event.host);
        event.why.iter_mut().for_each(&mut clean);
    }
    for change in closing.changes.iter_mut().flatten() {
        clean(&mut change.path);
    }
    for artifact in &mut closing.artifacts {
        clean(&mut artifact.path);
    }
    for left_out in &mut closing.left_out {
        clean(&mut left_out.path);
        clean(&mut left_out.why);
    }
    tell_apart(&mut closing.artifacts);
    let results = closing.results.as_mut();
    count + results.map_or(0, |results| redact::redact_json(rules, results))
}

/// Names that have become equal are numbered, so that each still names one file.
fn tell_apart(artifacts: &mut [Artifact]) {
    let mut taken = BTreeSet::new();
    for artifact in artifacts {
        let mut name = artifact.path.clone();
        let mut number = 1;
        while !taken.insert(name.clone()) {
            number += 1;
            name = format!("{}~{number}", artifact.path);
        }
        artifact.path = name;
    }
}

/// What was allowed, in the units that the names say; null is no limit. Of all this, only paths can hold a secret.
fn policy(request: &Request, clean: &mut impl FnMut(&str) -> String) -> Value {
    let mut path = |path: &Path| clean(&reach::shown(path));
    json!({
        "limits": limits(&request.limits),
        "network": match &request.network {
            Network::Denied => "denied".to_owned(),
            Network::Allowed(_) => request.network.to_string(),
        },
        "root": match &request.root {
            Root::HostUsr => "host".to_owned(),
            Root::Dir(dir) => path(dir),
            Root::Image(image) => format!("image {} {}", image.name, image.digest),
        },
        "workspace": request.workspace.as_ref().map(|workspace| json!({
            "path": path(&workspace.path),
            "access": match workspace.access {
                WorkspaceAccess::ReadWrite => "rw",
                WorkspaceAccess::ReadOnly => "ro",
                WorkspaceAccess::CopyOnWrite => "cow",
            },
        })),
        "mounts": request.mounts.iter().map(|mount| json!({
            "source": path(&mount.source),
            "target": path(&mount.target),
            "access": match mount.access {
                MountAccess::ReadWrite => "rw",
                MountAccess::ReadOnly => "ro",
            },
        })).collect::<Vec<_>>(),
        "waived": request.waived,
        "gpus": match &request.gpus {
            Gpus::None => Value::Null,
            Gpus::All => json!("all"),
            Gpus::Numbered(numbers) => json!(numbers),
        },
    })
}

fn limits(limits: &Limits) -> Value {
    let milliseconds = |cap: Cap<Duration>| {
        cap.at_most()
            .map(|limit| u64::try_from(limit.as_millis()).unwrap_or(u64::MAX))
    };
    let bytes = |cap: Cap<Bytes>| cap.at_most().map(Bytes::get);
    json!({
        "wall_time_ms": milliseconds(limits.wall_time),
        "cpu_time_ms": milliseconds(limits.cpu_time),
        "memory_bytes": bytes(limits.memory),
        "output_bytes": bytes(limits.output),
        "processes": limits.processes.at_most(),
        "disk_bytes": bytes(limits.disk),
        "open_files": limits.open_files.at_most(),
        "cpus_milli": limits.cpus.at_most().map(CpuShare::milli),
        "disk_io": limits.disk_io.at_most().map(|rates| rates.to_string()),
    })
}
