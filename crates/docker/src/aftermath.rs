//! What is done when a container has ended and is still there: its state asked for, its program's last word found out, its files brought back.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use bollard::models::ContainerState;
use bollard::query_parameters::InspectContainerOptions;
use cofferdam_contract::ending::{DiskPlace, StopCause};
use cofferdam_contract::enforcement::Enforcement;
use cofferdam_contract::record::Change;
use cofferdam_contract::request::{Request, WorkspaceAccess};
use cofferdam_contract::units::{Bytes, Cap};
use cofferdam_contract::usage::Usage;
use cofferdam_engine::error::EngineError;
use jiff::Timestamp;

use crate::course::{Failed, Finished, Place};
use crate::files::{self, Carried, Manifest, Trouble};
use crate::ready::Cancel;
use crate::scratch::Scratch;
use crate::watch::Seen;
use crate::{daemon, last_word};

/// The exit code of a program that was killed.
const KILLED: i64 = 137;
/// How often a container that was killed by nobody known is looked at again; more often where memory is likely to be the reason.
const LOOKS_FOR_A_REASON: usize = 10;
const LOOKS_FOR_A_LIKELY_REASON: usize = 150;
const BETWEEN_LOOKS: Duration = Duration::from_millis(20);

impl Place<'_> {
    pub(crate) async fn finish(
        &self,
        request: &Request,
        id: &str,
        seen: Seen,
        sent: Vec<(Carried, Manifest)>,
        enforced_by: Enforcement,
        cancel: Option<BorrowedFd<'_>>,
    ) -> Result<Finished, Failed> {
        let mut state = self.state(id).await?;
        // The daemon hears of a want of memory and of the end in no order.
        let is_unexplained = |state: &ContainerState| {
            let is_killed = state.exit_code.unwrap_or(seen.code) == KILLED;
            is_killed && seen.cause.is_none() && state.oom_killed != Some(true)
        };
        let has_counted = seen.counted.memory_kills > 0;
        let limit = request.limits.memory.at_most();
        // Not seen to have stayed far below: it may have been too fast to be looked at.
        let is_likely = limit.is_some_and(|limit| {
            let peak = seen.counted.memory_peak;
            peak.is_none_or(|peak| peak >= limit.get() / 2)
        });
        let looks = match is_likely {
            true => LOOKS_FOR_A_LIKELY_REASON,
            false => LOOKS_FOR_A_REASON,
        };
        for _ in 0..looks {
            if has_counted || limit.is_none() || !is_unexplained(&state) {
                break;
            }
            tokio::time::sleep(BETWEEN_LOOKS).await;
            state = self.state(id).await?;
        }
        let code = state.exit_code.unwrap_or(seen.code);
        let out_of_memory = state.oom_killed == Some(true) || seen.counted.memory_kills > 0;
        let limits = &request.limits;
        let refused = match (out_of_memory, limits.memory) {
            (true, Cap::AtMost(limit)) => Some(StopCause::Memory { limit }),
            _ => seen.counted.refused(limits),
        };
        let is_full = || seen.scratch.as_ref().is_some_and(Scratch::is_full);
        let refused = match (refused, limits.disk) {
            (None, Cap::AtMost(limit)) if is_full() => {
                let place = DiskPlace::Scratch;
                Some(StopCause::Disk { limit, place })
            }
            (refused, _) => refused,
        };
        let ended = last_word::Ended {
            id,
            code,
            has_printed: seen.has_printed,
            sent: sent
                .iter()
                .find(|(carried, _)| carried.is_workspace())
                .map(|(_, manifest)| manifest),
        };
        let report = self.last_word(&ended, request).await;
        let (brought, trouble) = self.bring(request, id, sent, &seen, cancel).await;
        let mut end = self.end(
            Usage {
                wall: lasted(&state).unwrap_or(seen.wall),
                cpu: seen.counted.cpu,
                memory_peak: seen.counted.memory_peak.map(Bytes::new),
                processes_peak: seen.counted.processes_peak,
                output: Bytes::new(0),
                disk: None,
            },
            enforced_by,
            report,
        );
        end.cause = seen.cause;
        end.refused = refused;
        if let Some(Brought { changes, is_over }) = brought {
            end.changes = changes;
            if let (true, Cap::AtMost(limit), None) = (is_over, limits.disk, &end.cause) {
                let place = DiskPlace::Workspace;
                end.cause = Some(StopCause::Disk { limit, place });
            }
        }
        Ok(Finished { end, trouble })
    }

    async fn state(&self, id: &str) -> Result<ContainerState, Failed> {
        let found = self
            .client
            .inspect_container(id, None::<InspectContainerOptions>)
            .await
            .map_err(|error| Failed::Lost(daemon::lost(&error)))?;
        Ok(found.state.unwrap_or_default())
    }

    /// What the program left, where it could leave anything.
    async fn bring(
        &self,
        request: &Request,
        id: &str,
        sent: Vec<(Carried, Manifest)>,
        seen: &Seen,
        cancel: Option<BorrowedFd<'_>>,
    ) -> (Option<Brought>, Option<EngineError>) {
        let client = daemon::patient(self.client, self.settings.pull_patience);
        let most = request.limits.disk.at_most().map(Bytes::get);
        // Whoever ended the program wants what it left, but not to wait for long; it cannot be said twice.
        let (limit, given_up) = match seen.cause {
            Some(StopCause::Canceled) => (self.settings.patience, Cancel::new(None)),
            _ => (self.settings.pull_patience, Cancel::new(cancel)),
        };
        let mut all = None;
        for (carried, sent) in sent.into_iter().filter(|(each, _)| each.is_writable()) {
            let bringing = files::bring(&client, id, &carried, sent, most);
            let brought = tokio::select! {
                brought = tokio::time::timeout(limit, bringing) => brought.unwrap_or(Err(Trouble::TooLong(limit))),
                () = given_up.wished() => Err(Trouble::GivenUp),
            };
            let brought = match brought {
                Ok(brought) => brought,
                Err(trouble) => return (all, Some(trouble.into_error())),
            };
            let known = all.get_or_insert(Brought {
                changes: None,
                is_over: false,
            });
            known.is_over |= brought.is_over;
            if carried.access == WorkspaceAccess::CopyOnWrite {
                known.changes = Some(brought.changes);
            }
        }
        (all, None)
    }
}

/// From the start to the end, by the daemon's clock.
fn lasted(state: &ContainerState) -> Option<Duration> {
    let time = |text: &Option<String>| text.as_ref()?.parse::<Timestamp>().ok();
    let lasted = time(&state.finished_at)?.duration_since(time(&state.started_at)?);
    lasted.try_into().ok()
}

/// What came back of a workspace.
struct Brought {
    changes: Option<Vec<Change>>,
    is_over: bool,
}
