//! Answers that are known already: found before a request waits for anything, and kept when a pure run has ended. Each token has its own, unless the operator shares them.

use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;

use axum::http::{HeaderMap, header};
use cofferdam_contract::kept_record::{EndedBy, KeptRecord};
use cofferdam_contract::payload::ExecutionPayload;
use cofferdam_contract::record::RunRecord;
use cofferdam_engine::host::Host;
use cofferdam_store::DataDir;
use cofferdam_store::results::{
    DEFAULT_BYTES, Kept, KeyParts, ResultKey, Results, System, WorkspaceIs,
};
use cofferdam_store::sift::redact::{self, Rules};
use jiff::Timestamp;

use crate::auth::Caller;
use crate::config::ResultSharing;
use crate::language::{self, Languages};
use crate::live::{Ended, Finished, Live, Outcome, Stage};
use crate::submission::{RunRequest, Submission};
use crate::work::{Task, Work, WorkspaceWish};

/// The answers of one daemon.
#[derive(Debug)]
pub(crate) struct KnownAnswers {
    sharing: ResultSharing,
    dir: DataDir,
    /// Opened when first needed; `None` where that failed.
    results: OnceLock<Option<Results>>,
    system: System,
}

/// Whether an answer may be given that another run gave before.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) enum Declared {
    #[default]
    Nothing,
    Pure {
        /// What runs it, with its version, where that is a language.
        language: Option<String>,
        /// Whether nobody waits for a run of its own: no tag, no report, no name that only a run can have.
        replaceable: bool,
    },
}

impl Declared {
    /// Whoever wants a run of its own gets one, and its answer is kept all the same.
    pub(crate) fn of(request: &RunRequest, languages: &Languages) -> Self {
        if !request.pure {
            return Self::Nothing;
        }
        let version = |name: &String| format!("{name} {}", languages.version(name));
        Self::Pure {
            language: request.language.as_ref().map(version),
            replaceable: request.wait
                && !request.has_key
                && request.callback_url.is_none()
                && request.parent.is_none()
                && request.tags.is_empty(),
        }
    }
}

/// How old a look at the host's programs may be.
const SYSTEM_AGE: Duration = Duration::from_secs(1);

impl KnownAnswers {
    pub(crate) fn new(dir: DataDir, sharing: ResultSharing) -> Self {
        Self {
            sharing,
            dir,
            results: OnceLock::new(),
            system: System::default(),
        }
    }

    /// Looks for an answer, and notes for the run what its own is to be kept under. Blocks on the disk.
    pub(crate) fn find(
        &self,
        submission: &mut Submission,
        caller: &Caller,
        headers: &HeaderMap,
        host: &Host,
    ) -> Option<Ended> {
        let Declared::Pure {
            language,
            replaceable,
        } = &submission.work.declared
        else {
            return None;
        };
        if is_refused(headers) {
            return None;
        }
        let results = self.results()?;
        let scope = match self.sharing {
            ResultSharing::Off => return None,
            ResultSharing::PerToken => format!("token {}", caller.id),
            ResultSharing::Shared => "shared".to_owned(),
        };
        let mut parts = KeyParts::new(&scope);
        parts.part("language", language.clone().unwrap_or_default().as_bytes());
        let key = self.key(parts, &submission.work, host)?;
        let replaceable = *replaceable;
        submission.work.known = Some(key);
        let kept = results.get(key).filter(|_| replaceable)?.record;
        (kept.ended_by() == EndedBy::Program).then(|| ended(&submission.work, kept.again()))
    }

    /// Everything that the answer depends on. `None` for what cannot be named.
    fn key(&self, mut parts: KeyParts, work: &Work, host: &Host) -> Option<ResultKey> {
        parts.part("system", &self.system.identity(SYSTEM_AGE));
        let host = format!("{:?} {}", host.privilege, host.cpus.len());
        parts.part("host", host.as_bytes());
        if let Some(sealed) = &work.sealed {
            parts.payload(sealed).ok()?;
        }
        parts.part("kind", work.kind.as_str().as_bytes());
        parts.part("stdin", &work.stdin);
        let told = format!("{:?} {:?}", work.access, work.channel());
        parts.part("told", told.as_bytes());
        parts.part("seed", format!("{:?}", work.seed).as_bytes());
        match &work.workspace {
            WorkspaceWish::None => parts.part("workspace", b"none"),
            WorkspaceWish::Private(files) => {
                parts.part("workspace", b"private");
                for file in files {
                    parts.part("file", file.path.as_bytes());
                    parts.part("mode", &file.executable.mode().to_le_bytes());
                    parts.part("content", &file.content);
                }
            }
        }
        let compile = match &work.task {
            Task::Command(task) => task.compile.as_ref(),
            Task::Payload(_) => None,
            // Several commands, over a tree that may change between them.
            Task::Project(_) => return None,
        };
        if let Some(step) = compile {
            if let Some(compiler) = step.argv.first() {
                parts.program(Path::new(compiler));
            }
            for argument in &step.argv {
                parts.part("compile", argument.as_bytes());
            }
            let rest = format!("{:?} {:?}", step.env, step.limits);
            parts.part("compiled", rest.as_bytes());
        }
        let request = work.request(None).ok()?;
        parts.request(&request, WorkspaceIs::Fresh).ok()?;
        Some(parts.finish())
    }

    /// Keeps what a run came to, if that is the program's own doing. For runs that left no files: those are the run's own, and go with it.
    pub(crate) fn keep(&self, known: Option<(ResultKey, KeptRecord)>, live: &Live, rules: &Rules) {
        let known = known.filter(|(_, record)| record.ended_by() == EndedBy::Program);
        let Some(((key, record), results)) = known.zip(self.results()) else {
            return;
        };
        let rules = live.rules(rules);
        let (command, _) = redact::redact_arguments(&rules, &live.command);
        let about = command.join(" ").chars().take(200).collect();
        if let Err(error) = results.put(key, &Kept { record, about }, &rules) {
            tracing::warn!(run_id = %live.id, %error, "an answer could not be kept");
        }
    }

    fn results(&self) -> Option<&Results> {
        let opened = self.results.get_or_init(|| {
            if self.sharing == ResultSharing::Off {
                return None;
            }
            let opened = Results::open(&self.dir, DEFAULT_BYTES);
            opened
                .inspect_err(|error| tracing::error!(%error, "no answers can be kept"))
                .ok()
        });
        opened.as_ref()
    }
}

/// As if it had been run in no time.
fn ended(work: &Work, mut record: RunRecord) -> Ended {
    let answer = language::answer(work.channel(), &record);
    record.result = None;
    Ended {
        outcome: Outcome::Finished(Box::new(Finished {
            answer,
            ..Finished::without_files(record, Stage::Run)
        })),
        at: Timestamp::now(),
        queued: Duration::ZERO,
        total: Duration::ZERO,
    }
}

/// As clients of HTTP say that they want no known answer.
fn is_refused(headers: &HeaderMap) -> bool {
    let values = headers.get_all(header::CACHE_CONTROL).iter();
    let mut words = values
        .filter_map(|value| value.to_str().ok())
        .flat_map(|text| text.split(','));
    words.any(|word| {
        let word = word.trim();
        word.eq_ignore_ascii_case("no-cache") || word.eq_ignore_ascii_case("no-store")
    })
}

impl From<&ExecutionPayload> for Declared {
    fn from(payload: &ExecutionPayload) -> Self {
        match payload.may_be_answered_again() {
            true => Self::Pure {
                language: None,
                replaceable: true,
            },
            false => Self::Nothing,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_can_refuse_known_answers() {
        for (text, refused) in [
            ("no-cache", true),
            ("max-age=0, No-Store", true),
            ("max-age=0", false),
            ("", false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(header::CACHE_CONTROL, text.parse().unwrap());
            assert_eq!(is_refused(&headers), refused, "{text}");
        }
        assert!(!is_refused(&HeaderMap::new()));
    }
}
