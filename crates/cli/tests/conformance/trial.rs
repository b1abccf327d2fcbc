//! One backend in one way, against every promise; what came of it is compared with what was declared.

use std::path::Path;

use cofferdam_testkit::{Finished, Host, Way};
use serde_json::json;

use crate::backends::{Backend, Mounts};
use crate::promises::{Attack, PROMISES, Promise};

/// Set by `cargo xtask conformance`: the directory for the findings.
const FINDINGS: &str = "COFFERDAM_CONFORMANCE_FINDINGS";

/// Every promise of this backend.
pub(crate) fn conform(host: &Host, backend: &Backend, way: Way) {
    let mut findings = Vec::new();
    let mut broken = Vec::new();
    for promise in PROMISES {
        let (found, is_kept) = try_one(host, backend, way, promise);
        host.assert_clean();
        findings.push(json!({ "promise": promise.name, "found": found }));
        if !is_kept {
            broken.push(format!("{}: {found}", promise.name));
        }
    }
    if let Some(dir) = std::env::var_os(FINDINGS) {
        let who = match way {
            Way::Root | Way::RootWithoutCgroups => "root, control groups",
            Way::User => "ordinary user",
        };
        let file = format!("{}-{way:?}.json", backend.name);
        let text = json!({ "backend": backend.name, "way": who, "findings": findings });
        let written = std::fs::write(Path::new(&dir).join(file), text.to_string());
        assert!(written.is_ok(), "{written:?}");
    }
    assert!(broken.is_empty(), "{} {way:?}: {broken:#?}", backend.name);
}

fn try_one(host: &Host, backend: &Backend, way: Way, promise: &Promise) -> (String, bool) {
    let declared = backend.not_promised.iter();
    if let Some((_, why)) = declared.clone().find(|(name, _)| *name == promise.name) {
        return (format!("no: {why}"), true);
    }
    let refused = promise
        .limit
        .filter(|limit| backend.refuses(way).contains(limit));
    let run = run(host, backend, way, promise);
    match (refused, promise.limit) {
        (Some(_), _) => {
            let is_refused = run.code() == 125 && run.record.is_none();
            let found = if is_refused {
                "refused unless waived"
            } else {
                "not refused"
            };
            (found.to_owned(), is_refused)
        }
        _ if !(promise.is_kept)(&run) => (format!("broken: {run:#?}"), false),
        (None, Some(limit)) => (run.enforced_by(limit).to_owned(), true),
        (None, None) => ("yes".to_owned(), true),
    }
}

fn run(host: &Host, backend: &Backend, way: Way, promise: &Promise) -> Finished {
    let mut args: Vec<String> = ["run", "--backend", backend.name]
        .map(str::to_owned)
        .to_vec();
    let waived = backend.refuses(way).iter();
    for limit in waived.filter(|limit| promise.limit != Some(limit)) {
        args.extend(["--waive".to_owned(), (*limit).to_owned()]);
    }
    args.extend(promise.flags.iter().map(|flag| (*flag).to_owned()));
    if promise.limit == Some("processes") {
        args.extend(["--timeout".to_owned(), backend.bomb_time.to_owned()]);
    }
    let command = match &promise.attack {
        Attack::Shell(script) => ["sh", "-c", script].map(str::to_owned).to_vec(),
        Attack::Command(words) => words.iter().map(|word| (*word).to_owned()).collect(),
        Attack::Program(program, words) => {
            let compiled = program.compile();
            let path = match backend.mounts {
                Mounts::Yes => {
                    args.extend(["--mount".to_owned(), compiled.mount()]);
                    compiled.inside()
                }
                Mounts::No => compiled.on_host().display().to_string(),
            };
            let words = words.iter().map(|word| (*word).to_owned());
            std::iter::once(path).chain(words).collect()
        }
    };
    args.push("--".to_owned());
    args.extend(command);
    let launch = host.launch(args).way(way).env("OF_THE_SUPERVISOR", "x");
    launch.json().finish()
}
