//! Where a worker of a fleet carries out requests of a daemon: by the same path as a daemon here would, with a history of its own.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use cofferdam_contract::codes::ErrorCode;
use cofferdam_contract::envelope::ResultEnvelope;
use cofferdam_contract::network::Network;
use cofferdam_contract::record::RunRecord;
use cofferdam_contract::seal::Sealed;
use cofferdam_engine::host::Host;
use cofferdam_store::model::Digest;
use cofferdam_store::objects::Objects;
use cofferdam_store::{DataDir, RunId};
use jiff::Timestamp;
use rustix::event::{PollFd, PollFlags};

use super::brought::Brought;
use super::errand::Errand;
use crate::archive::Archive;
use crate::backends::Backends;
use crate::config::{MemoryBudget, Remembrance, RunBounds};
use crate::fault::Fault;
use crate::language::Languages;
use crate::live::{Arrival, Live};
use crate::payload;
use crate::work::{Left, Place};

/// What requests are carried out with.
#[derive(Debug)]
pub struct Workplace {
    bounds: RunBounds,
    languages: Languages,
    host: Host,
    archive: Arc<Archive>,
    backends: Backends,
}

/// What came of a request.
#[derive(Debug)]
pub struct CarriedOut {
    /// Not signed yet.
    pub envelope: ResultEnvelope,
    /// For the daemon that asked.
    pub document: String,
    /// The digests of what the run left.
    pub files: Vec<String>,
}

/// Why nothing was run.
#[derive(Debug, thiserror::Error)]
#[error("{detail}")]
pub struct Refused {
    pub code: &'static str,
    pub detail: String,
}

impl From<Fault> for Refused {
    fn from(fault: Fault) -> Self {
        Self {
            code: fault.code,
            detail: fault.detail,
        }
    }
}

impl Workplace {
    /// `network` is what a request that asks for it gets at most.
    pub fn new(
        dir: &DataDir,
        slots: u32,
        network: Network,
        kept: Remembrance,
    ) -> Result<Self, Refused> {
        let languages = Languages::new(&[]).map_err(|bad| Refused {
            code: ErrorCode::Internal.as_str(),
            detail: bad.to_string(),
        })?;
        let archive = Arc::new(Archive::new(dir.clone(), kept));
        // Takes journals in for as long as this process lives.
        archive.start().map_err(|error| Refused {
            code: ErrorCode::Internal.as_str(),
            detail: error.to_string(),
        })?;
        Ok(Self {
            bounds: RunBounds {
                network,
                memory: MemoryBudget::Overcommit,
                ..RunBounds::default()
            },
            languages,
            host: Host::detect(),
            archive,
            backends: Backends::of_daemon(dir, slots.max(1)),
        })
    }

    /// Blocks. Ends early when `cancel` becomes readable.
    pub fn carry_out(
        &self,
        sealed: &Sealed,
        request: &[u8],
        worker: &str,
        cancel: &OwnedFd,
    ) -> Result<CarriedOut, Refused> {
        let unread = |error: serde_json::Error| Refused {
            code: ErrorCode::InputInvalid.as_str(),
            detail: format!("the request cannot be read: {error}"),
        };
        let errand: Errand = serde_json::from_slice(request).map_err(unread)?;
        let Errand::Run(errand) = errand else {
            return Err(Refused {
                code: ErrorCode::InputInvalid.as_str(),
                detail: "the request is a payload, and stands for another".to_owned(),
            });
        };
        let mut request = errand.into_request();
        // Of the daemon that asked; nobody has it here.
        request.parent = None;
        let submission = request.check(&self.bounds, &self.languages, &self.host)?;
        let left = sealed.payload().deadline.duration_since(Timestamp::now());
        let live = Arc::new(Live::new(Arrival {
            id: RunId::new(),
            submitted_at: Timestamp::now(),
            waited: Duration::ZERO,
            tenant: "fleet".to_owned(),
            deadline: Duration::try_from(left).unwrap_or_default(),
            share: 0,
            execution_id: submission.origin.execution_id,
            callback_url: None,
            promised: false,
            taken_up: false,
            work: submission.work,
        }));
        let finished = self.watched(&live, cancel)?;
        let mut envelope = payload::envelope(sealed, &finished.record)?;
        worker.clone_into(&mut envelope.worker_id);
        let brought = Brought::of(&finished);
        Ok(CarriedOut {
            envelope,
            document: brought.text(),
            files: brought.digests(),
        })
    }

    /// The contents of a file that a run left here.
    pub fn contents(&self, sha256: &str) -> Option<Vec<u8>> {
        let digest: Digest = sha256.parse().ok()?;
        Objects::open(self.archive.dir()).get(&digest).ok()
    }

    /// With somebody who waits for the word to end it.
    fn watched(
        &self,
        live: &Arc<Live>,
        cancel: &OwnedFd,
    ) -> Result<crate::live::Finished, Refused> {
        let flags = rustix::pipe::PipeFlags::CLOEXEC;
        let trouble = |errno: rustix::io::Errno| Fault::internal(errno.to_string());
        let (done, tell_done) = rustix::pipe::pipe_with(flags).map_err(trouble)?;
        std::thread::scope(|scope| {
            let watch = || {
                let mut fds = [
                    PollFd::new(cancel, PollFlags::IN),
                    PollFd::new(&done, PollFlags::IN),
                ];
                while rustix::event::poll(&mut fds, None) == Err(rustix::io::Errno::INTR) {}
                let is_asked = fds.first().is_some_and(|fd| !fd.revents().is_empty());
                if is_asked {
                    live.cancel.ask();
                }
            };
            std::thread::Builder::new()
                .name("cancel".to_owned())
                .spawn_scoped(scope, watch)
                .map_err(|error| Fault::internal(format!("no thread can be started: {error}")))?;
            let place = Place {
                dir: self.archive.dir(),
                kept: self.archive.kept(),
                known: self.archive.known(),
                host: &self.host,
                pool: None,
                backends: &self.backends,
            };
            let mut left = Left::default();
            let carried_out = match live.take_work() {
                Some(work) => work.carry_out(live, place, &mut left),
                None => Err(Fault::internal("the work was taken already")),
            };
            drop(tell_done);
            self.archive.ended();
            Ok(carried_out?)
        })
    }
}

/// The document for a payload that was run by itself.
pub fn document_of(record: &RunRecord) -> String {
    Brought::of_record(record).text()
}
