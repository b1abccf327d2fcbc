//! One backend in one way, against every promise; what came of it is compared with what was declared.

use std::path::Path;

use cofferdam_testkit::{Finished, Host, Way};
use serde_json::json;

use crate::backends::{Attackers, Backend};
use crate::promises::{Attack, PROMISES, Promise};

/// Set by `cargo xtask conformance`: the directory for the findings.
const FINDINGS: &str = "COFFERDAM_CONFORMANCE_FINDINGS";

/// A backend that is tried.
pub(crate) struct Trial<'a> {
    pub(crate) host: &'a Host,
    pub(crate) backend: &'a Backend,
    pub(crate) way: Way,
    /// What every run of this backend needs to be told.
    pub(crate) flags: Vec<String>,
    pub(crate) env: Vec<(&'static str, String)>,
    /// By the name of a promise: why it is not given, as the doctor says.
    pub(crate) not_given: Vec<(String, String)>,
}

/// Every promise of a backend that needs to be told nothing.
pub(crate) fn conform(host: &Host, backend: &Backend, way: Way) {
    Trial::new(host, backend, way).conform(|| {});
}

/// What came of a promise.
struct Tried {
    found: String,
    is_kept: bool,
}

fn not_given(host: &Host, backend: &Backend) -> Vec<(String, String)> {
    let said = host.run(["doctor", "--json"]).told_list("not_given");
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    let of_backend = said.iter().filter(|one| one["backend"] == backend.name);
    let found: Vec<_> = of_backend
        .map(|one| (text(&one["promise"]), text(&one["why"])))
        .collect();
    for (name, _) in &found {
        let is_known = PROMISES.iter().any(|promise| promise.name == name);
        assert!(
            is_known,
            "the doctor speaks of `{name}`, which nobody promises"
        );
    }
    found
}

impl<'a> Trial<'a> {
    pub(crate) fn new(host: &'a Host, backend: &'a Backend, way: Way) -> Self {
        Self {
            host,
            backend,
            way,
            flags: Vec::new(),
            env: Vec::new(),
            not_given: not_given(host, backend),
        }
    }

    /// Every promise. `assert_clean` looks where the host's own fixture does not.
    pub(crate) fn conform(&self, assert_clean: impl Fn()) {
        let mut findings = Vec::new();
        let mut broken = Vec::new();
        for promise in PROMISES {
            let Tried { found, is_kept } = self.try_one(promise);
            self.host.assert_clean();
            assert_clean();
            findings.push(json!({ "promise": promise.name, "found": found }));
            if !is_kept {
                broken.push(format!("{}: {found}", promise.name));
            }
        }
        let (name, way) = (self.backend.name, self.way);
        if let Some(dir) = std::env::var_os(FINDINGS) {
            let who = match way {
                Way::Root | Way::RootWithoutCgroups => "root, control groups",
                Way::User => "ordinary user",
            };
            let file = format!("{name}-{way:?}.json");
            let text = json!({ "backend": name, "way": who, "findings": findings });
            let written = std::fs::write(Path::new(&dir).join(file), text.to_string());
            assert!(written.is_ok(), "{written:?}");
        }
        assert!(broken.is_empty(), "{name} {way:?}: {broken:#?}");
    }

    fn try_one(&self, promise: &Promise) -> Tried {
        let mut declared = self.not_given.iter();
        if let Some((_, why)) = declared.find(|(name, _)| name == promise.name) {
            return Tried {
                found: format!("no: {why}"),
                is_kept: true,
            };
        }
        let refused = promise
            .limit
            .filter(|limit| self.backend.refuses(self.way).contains(limit));
        let (run, keeps) = self.run(promise);
        let (found, is_kept) = match (refused, promise.limit) {
            (Some(_), _) if run.code() == 125 && run.record.is_none() => {
                ("refused unless waived".to_owned(), true)
            }
            (Some(_), _) => ("not refused".to_owned(), false),
            _ if !keeps(&run) => (format!("broken: {run:#?}"), false),
            (None, Some(limit)) => (run.enforced_by(limit).to_owned(), true),
            (None, None) => ("yes".to_owned(), true),
        };
        Tried { found, is_kept }
    }

    /// The attack, and how it is seen that it was in vain.
    fn run(&self, promise: &Promise) -> (Finished, fn(&Finished) -> bool) {
        let backend = self.backend;
        let mut args: Vec<String> = ["run", "--backend", backend.name]
            .map(str::to_owned)
            .to_vec();
        args.extend(self.flags.iter().cloned());
        let waived = backend.refuses(self.way).iter();
        for limit in waived.filter(|limit| promise.limit != Some(limit)) {
            args.extend(["--waive".to_owned(), (*limit).to_owned()]);
        }
        args.extend(promise.flags.iter().map(|flag| (*flag).to_owned()));
        if promise.limit == Some("processes") {
            args.extend(["--timeout".to_owned(), backend.bomb_time.to_owned()]);
        }
        let (command, keeps) = match backend.attackers {
            Attackers::Modules => self.module(promise, &mut args),
            Attackers::Mounted | Attackers::OnHost | Attackers::InWorkspace => {
                (self.command(promise, &mut args), promise.is_kept)
            }
        };
        args.push("--".to_owned());
        args.extend(command);
        let mut launch = self.host.launch(args).way(self.way);
        launch = launch.env("OF_THE_SUPERVISOR", "x");
        for (name, value) in &self.env {
            launch = launch.env(name, value);
        }
        (launch.json().finish(), keeps)
    }

    fn command(&self, promise: &Promise, args: &mut Vec<String>) -> Vec<String> {
        let (program, words) = match &promise.attack {
            Attack::Shell(script) => return ["sh", "-c", script].map(str::to_owned).to_vec(),
            Attack::Command(words) => return words.iter().map(|word| (*word).to_owned()).collect(),
            Attack::Program(program, words) => (program.compile(), words),
        };
        let path = match self.backend.attackers {
            Attackers::Mounted => {
                args.extend(["--mount".to_owned(), program.mount()]);
                program.inside()
            }
            Attackers::InWorkspace => {
                args.extend(["--workspace".to_owned(), program.workspace()]);
                program.in_workspace()
            }
            Attackers::OnHost | Attackers::Modules => program.on_host().display().to_string(),
        };
        let words = words.iter().map(|word| (*word).to_owned());
        std::iter::once(path).chain(words).collect()
    }

    #[cfg(feature = "wasm")]
    fn module(
        &self,
        promise: &Promise,
        args: &mut Vec<String>,
    ) -> (Vec<String>, fn(&Finished) -> bool) {
        let mut modules = crate::modules::MODULES.iter();
        let module = modules.find(|module| module.promise == promise.name);
        let Some(module) = module else {
            panic!(
                "{}: neither attacked by a module nor declared",
                promise.name
            );
        };
        if promise.limit == Some("open_files") {
            let shown = self.host.workspace(self.way).display().to_string();
            args.extend(["--workspace".to_owned(), shown]);
        }
        let (path, words) = module.command(self.host);
        let command = std::iter::once(path.display().to_string()).chain(words);
        (command.collect(), module.is_kept)
    }

    #[cfg(not(feature = "wasm"))]
    fn module(
        &self,
        promise: &Promise,
        _: &mut Vec<String>,
    ) -> (Vec<String>, fn(&Finished) -> bool) {
        (Vec::new(), promise.is_kept)
    }
}
