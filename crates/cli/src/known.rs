//! Answers that are known already: whether one may be given instead of a run, and keeping one afterwards. Off unless the work was declared pure, or is a payload that must give the same each time.

use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use cofferdam_contract::kept_record::{EndedBy, KeptRecord};
use cofferdam_contract::payload::FilesystemWrite;
use cofferdam_contract::record::RunRecord;
use cofferdam_contract::request::{BackendName, Request, Workspace, WorkspaceAccess};
use cofferdam_contract::seal::{RunPlace, Sealed};
use cofferdam_contract::task::Task;
use cofferdam_engine::host::Host;
use cofferdam_images::Rootfs;
use cofferdam_store::DataDir;
use cofferdam_store::results::{
    DEFAULT_BYTES, Kept, KeyParts, ResultKey, Results, System, Unkeyable, WorkspaceIs,
};
use cofferdam_store::sift::redact::{self, Rules};

use crate::arguments::keys::CacheArgs;
use crate::failure::{self, Failure};
use crate::language;

/// Where the answer to one question is kept.
pub(crate) struct Known {
    results: Results,
    key: ResultKey,
    question: Question,
    limits: Limits,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Limits {
    Given,
    Left,
}

/// Everything that an answer depends on.
#[derive(Debug, Clone)]
pub(crate) struct Question {
    pub(crate) request: Request,
    pub(crate) workspace: WorkspaceIs,
    /// What the request does not say: its input, code that is brought along, how it is told about.
    pub(crate) parts: Vec<(&'static str, Vec<u8>)>,
    pub(crate) sealed: Option<Sealed>,
    /// What compiles or interprets it, where the request does not name that.
    pub(crate) programs: Vec<String>,
    /// Of the host, as far as programs see it.
    host: String,
}

impl Question {
    pub(crate) fn new(request: Request, workspace: WorkspaceIs, host: &Host) -> Self {
        Self {
            request,
            workspace,
            parts: Vec::new(),
            sealed: None,
            programs: Vec::new(),
            host: format!("{:?} {}", host.privilege, host.cpus.len()),
        }
    }

    /// A payload at its place. Source code needs no place: it brings what it is.
    pub(crate) fn of_payload(
        sealed: &Sealed,
        place: &RunPlace,
        image: Option<&Rootfs>,
        host: &Host,
    ) -> Self {
        let access = match sealed.payload().filesystem_write {
            FilesystemWrite::Allowed => WorkspaceAccess::ReadWrite,
            FilesystemWrite::Denied => WorkspaceAccess::ReadOnly,
        };
        let argv = match &sealed.payload().task {
            Task::Command(task) => task.argv.clone(),
            Task::Source(_) | Task::Wasm(_) | Task::Project(_) => Vec::new(),
        };
        let mut request = Request {
            limits: sealed.payload().limits.clone(),
            waived: place.waived.clone(),
            network: sealed.payload().network.clone(),
            root: place.root.clone(),
            workspace: place
                .workspace
                .clone()
                .map(|path| Workspace { path, access }),
            backend: place.backend,
            ..Request::command(argv)
        };
        if let Some(image) = image {
            image.furnish(&mut request);
        }
        let programs = match &sealed.payload().task {
            Task::Source(task) => language::programs(&task.language),
            Task::Command(_) | Task::Wasm(_) | Task::Project(_) => Vec::new(),
        };
        Self {
            programs,
            sealed: Some(sealed.clone()),
            ..Self::new(request, WorkspaceIs::Callers, host)
        }
    }

    /// What must not be kept: also the values of variables whose names say that they are secrets.
    fn rules(&self) -> Rules {
        let secrets = self.request.env.iter().filter(|(name, _)| {
            let name = name.to_str();
            name.is_some_and(redact::is_sensitive_name)
        });
        Rules::default().with_values(secrets.map(|(_, value)| value.as_encoded_bytes()))
    }

    fn key(&self) -> Result<ResultKey, Unkeyable> {
        if self.request.backend == BackendName::Docker {
            return Err(Unkeyable::Impure {
                what: "which image a name stands for is for the container daemon to say",
            });
        }
        let mut parts = KeyParts::new("local");
        parts.part("system", &System::default().identity(Duration::ZERO));
        parts.part("host", self.host.as_bytes());
        if let Some(sealed) = &self.sealed {
            parts.payload(sealed)?;
        }
        for (name, bytes) in &self.parts {
            parts.part(name, bytes);
        }
        for program in &self.programs {
            parts.program(Path::new(program));
        }
        parts.request(&self.request, self.workspace)?;
        Ok(parts.finish())
    }
}

impl Known {
    /// `None` where no answer is given or kept; why not is said once, since somebody said that it gives the same each time.
    pub(crate) fn of(question: Question, args: &CacheArgs, dir: Option<&DataDir>) -> Option<Self> {
        let dir = dir.filter(|_| !args.no_cache)?;
        let opened = question
            .key()
            .map_err(|why| why.to_string())
            .and_then(|key| {
                let results = Results::open(dir, DEFAULT_BYTES);
                results
                    .map(|results| (key, results))
                    .map_err(|why| why.to_string())
            });
        match opened {
            Ok((key, results)) => Some(Self {
                results,
                key,
                question,
                limits: match args.cache_limits {
                    true => Limits::Given,
                    false => Limits::Left,
                },
            }),
            Err(why) => {
                tell(&why);
                None
            }
        }
    }

    /// Of a payload, if it says that it is pure, or must give the same each time.
    pub(crate) fn of_payload(
        sealed: &Sealed,
        question: Question,
        args: &CacheArgs,
        dir: Option<&DataDir>,
    ) -> Option<Self> {
        match sealed.payload().may_be_answered_again() {
            true => Self::of(question, args, dir),
            false => None,
        }
    }

    pub(crate) fn answer(&self) -> Option<RunRecord> {
        let kept = self.results.get(self.key)?;
        self.may_be_given(&kept.record).then(|| kept.record.again())
    }

    /// Keeps what was found out, unless it is no answer, or what was asked has changed meanwhile.
    pub(crate) fn keep(&self, record: &RunRecord, about: &str) {
        let Some(kept) = KeptRecord::of(record).filter(|kept| self.may_be_given(kept)) else {
            return;
        };
        // What is made for one run is nobody else's to change, and the program has.
        let is_as_before = match self.question.workspace {
            WorkspaceIs::Callers => self.question.key().is_ok_and(|key| key == self.key),
            WorkspaceIs::Fresh => true,
        };
        if !is_as_before {
            tell("what the program was given changed while it ran");
            return;
        }
        let kept = Kept {
            record: kept,
            about: failure::without_secrets(about).chars().take(200).collect(),
        };
        if let Err(error) = self.results.put(self.key, &kept, &self.question.rules()) {
            tell(&error.to_string());
        }
    }

    fn may_be_given(&self, kept: &KeptRecord) -> bool {
        match kept.ended_by() {
            EndedBy::Program => true,
            EndedBy::Limit => self.limits == Limits::Given,
        }
    }
}

/// What contradicts `--pure` is a mistake; what merely cannot be kept is not.
pub(crate) fn check_pure(request: &Request, workspace: WorkspaceIs) -> Result<(), Failure> {
    use cofferdam_contract::request::{MountAccess, Network};
    let refused = |fix| Err(Failure::problem("--pure", "", fix));
    let is_written = request
        .workspace
        .as_ref()
        .is_some_and(|workspace| workspace.access == WorkspaceAccess::ReadWrite);
    if is_written && workspace == WorkspaceIs::Callers {
        return refused("contradicts a workspace that can be written to; use `:ro` or `:cow`");
    }
    if request
        .mounts
        .iter()
        .any(|mount| mount.access == MountAccess::ReadWrite)
    {
        return refused("contradicts a mount that can be written to; use `:ro`");
    }
    if request.network != Network::Denied {
        return refused("contradicts --net: what comes over a network may differ; leave one out");
    }
    if request.backend == BackendName::Host {
        return refused(
            "contradicts the host backend, which shows a program everything; use another",
        );
    }
    Ok(())
}

fn tell(why: &str) {
    let line = failure::visible(&failure::without_secrets(why));
    let _ = writeln!(
        std::io::stderr(),
        "cofferdam: no known answer is used or kept: {line}"
    );
}
