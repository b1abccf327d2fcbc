//! A sealed payload becomes work, and its record an envelope. The digest and the deadline are checked before anything waits.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use cofferdam_contract::codes::ErrorCode;
use cofferdam_contract::ending::{Ending, SetupFailureKind};
use cofferdam_contract::envelope::{Answerer, PartialOutput, ResultEnvelope};
use cofferdam_contract::ids::{self, Entropy};
use cofferdam_contract::limits::Limits;
use cofferdam_contract::network::Network;
use cofferdam_contract::payload::FilesystemWrite;
use cofferdam_contract::problem::Problem;
use cofferdam_contract::record::{CapturedStream, RunRecord};
use cofferdam_contract::request::{BackendName, Gpus, Root, WorkspaceAccess};
use cofferdam_contract::seal::{RunPlace, Sealed};
use cofferdam_contract::strict_json::MAX_BYTES;
use cofferdam_contract::task::{SourceTask, Task as ContractTask};
use cofferdam_contract::units::Bytes;
use cofferdam_engine::host::Host;
use cofferdam_store::model::RunKind;
use cofferdam_toolchain::Mode;
use jiff::Timestamp;

use crate::asked_image::RootWish;
use crate::asked_network;
use crate::away::Errand;
use crate::config::{Carrier, RunBounds};
use crate::fault::Fault;
use crate::language::{Languages, Wish};
use crate::random;
use crate::submission::{self, Submission};
use crate::work::{CommandTask, Task, Work, WorkspaceWish};
use crate::workspace::PlacedFile;

/// What an envelope can carry: with its quoting it must stay within what a reader of JSON accepts.
const MAX_OUTPUT: Bytes = Bytes::new(8 << 20);

/// WebAssembly has only one place to run.
pub(crate) fn place(sealed: &Sealed, workspace: Option<PathBuf>) -> RunPlace {
    let backend = match &sealed.payload().task {
        ContractTask::Wasm(_) => BackendName::Wasm,
        ContractTask::Command(_) | ContractTask::Source(_) | ContractTask::Project(_) => {
            BackendName::Native
        }
    };
    RunPlace {
        backend,
        root: Root::HostUsr,
        workspace,
        waived: Vec::new(),
    }
}

/// Blocks where a language is asked for that has not been probed yet.
pub(crate) fn check(
    bytes: &[u8],
    bounds: &RunBounds,
    languages: &Languages,
    host: &Host,
) -> Result<(Arc<Sealed>, Submission), Fault> {
    let sealed =
        Sealed::open(bytes).map_err(|error| Fault::coded(error.code(), error.to_string()))?;
    let sealed = Arc::new(sealed);
    sealed
        .check_deadline(Timestamp::now())
        .map_err(|expired| Fault::coded(ErrorCode::PayloadExpired, expired.to_string()))?;
    let submission = check_opened(&sealed, bounds, languages, host)?;
    Ok((sealed, submission))
}

/// One that was accepted before: its deadline holds for whoever runs it, and an answer that was given in time counts.
pub(crate) fn check_again(
    sealed: &[u8],
    bounds: &RunBounds,
    languages: &Languages,
    host: &Host,
) -> Result<Submission, Fault> {
    let sealed =
        Sealed::open(sealed).map_err(|error| Fault::coded(error.code(), error.to_string()))?;
    check_opened(&Arc::new(sealed), bounds, languages, host)
}

fn check_opened(
    sealed: &Arc<Sealed>,
    bounds: &RunBounds,
    languages: &Languages,
    host: &Host,
) -> Result<Submission, Fault> {
    let limits = sealed.payload().limits.clone();
    check_limits(&limits, bounds)?;
    if sealed.payload().gpus != Gpus::None && bounds.carrier == Carrier::Here {
        let fix = "is not given by this daemon; send it to a fleet whose workers give GPUs (`cofferdam worker --gpu`), or run it with `cofferdam execute --gpu`";
        let problem = Problem::new("gpus", "asked for", fix);
        return Err(Fault::coded(ErrorCode::PayloadInvalid, problem.to_string()));
    }
    let left = sealed.payload().deadline.duration_since(Timestamp::now());
    let deadline = Duration::try_from(left).unwrap_or_default();
    let (task, workspace) = match &sealed.payload().task {
        ContractTask::Source(source) => {
            let (task, files) = source_task(source, &limits, bounds, languages, host)?;
            (Task::Command(task), WorkspaceWish::Private(files))
        }
        ContractTask::Command(_) | ContractTask::Wasm(_) | ContractTask::Project(_) => {
            (Task::Payload(Arc::clone(sealed)), WorkspaceWish::None)
        }
    };
    asked_network::check_mode(&sealed.payload().network, bounds)?;
    // A payload asks; the operator says how much it gets.
    let network = sealed.payload().network.within(&bounds.network);
    let network =
        network.map_err(|problem| Fault::coded(ErrorCode::PayloadInvalid, problem.to_string()))?;
    if bounds.carrier == Carrier::Fleet {
        check_sealed_network(&sealed.payload().network, &network)?;
    }
    let work = Work {
        kind: RunKind::Payload,
        limits,
        stdin: sealed.input(),
        tags: BTreeMap::new(),
        parent: None,
        workspace,
        access: match sealed.payload().filesystem_write {
            FilesystemWrite::Allowed => WorkspaceAccess::ReadWrite,
            FilesystemWrite::Denied => WorkspaceAccess::ReadOnly,
        },
        network,
        root: RootWish::Hosts,
        seed: sealed.payload().seed,
        sealed: Some(Arc::clone(sealed)),
        room: None,
        declared: sealed.payload().into(),
        known: None,
        errand: None,
        task,
    };
    submission::check_grant(&work)?;
    let mut origin = submission::Origin::default();
    if bounds.carrier == Carrier::Fleet {
        let errand = Errand::Payload(sealed.json().clone());
        origin.request = Some(errand.text().into_bytes());
    }
    Ok(Submission {
        work,
        priority: 0,
        deadline,
        origin,
    })
}

/// A worker reads what was sealed and knows nothing of this daemon's bounds: what would have to be narrowed is refused.
fn check_sealed_network(sealed: &Network, given: &Network) -> Result<(), Fault> {
    // As it is written, which is the hosts alone.
    let (asked, given) = (sealed.to_string(), given.to_string());
    if asked == given {
        return Ok(());
    }
    let fix = format!(
        "means `{asked}`, and `{given}` is given here, which a payload cannot say; leave it out, or ask /v1/runs for hosts by name"
    );
    let problem = Problem::new("network_allowed", true, fix);
    Err(Fault::coded(ErrorCode::PayloadInvalid, problem.to_string()))
}

/// Source code is a script: a payload has no event. The sealed limits hold for the program; compiling has what its language needs.
fn source_task(
    source: &SourceTask,
    limits: &Limits,
    bounds: &RunBounds,
    languages: &Languages,
    host: &Host,
) -> Result<(CommandTask, Vec<PlacedFile>), Fault> {
    let wish = Wish {
        code: source.code.clone(),
        mode: Mode::Script,
        args: Vec::new(),
        files: Vec::new(),
        env: Vec::new(),
        stdin: Vec::new(),
        inputs: Vec::new(),
    };
    let planned = languages.plan(&source.language, wish, limits, host, None);
    let mut planned = planned.map_err(|fault| match fault.code {
        // What a client of this endpoint can do about it is to send another payload.
        code if code == ErrorCode::InputInvalid.as_str() => Fault::coded(
            ErrorCode::BackendUnsupportedTask,
            format!("task.{}", fault.detail),
        ),
        _ => fault,
    })?;
    if let Some(step) = &mut planned.task.compile {
        let needed = step.limits.clone();
        bounds.ceilings.lower(&mut step.limits);
        if bounds.carrier == Carrier::Fleet && step.limits != needed {
            let detail = "compiling needs more than this daemon allows, and a sealed payload cannot tell a worker so; compile it beforehand, or send the code to /v1/runs";
            return Err(Fault::coded(ErrorCode::LimitUnenforceable, detail));
        }
    }
    Ok((planned.task, planned.files))
}

/// A payload's limits are part of what was sealed: they are held as they are, or the payload is refused.
fn check_limits(limits: &Limits, bounds: &RunBounds) -> Result<(), Fault> {
    let most_output = MAX_OUTPUT.min(bounds.largest_output);
    let ceilings = &bounds.ceilings;
    let pairs = [
        (
            "max_output_size_kb",
            limits
                .output
                .at_most()
                .is_none_or(|most| most > most_output),
            most_output.get() >> 10,
        ),
        (
            "max_runtime_seconds",
            limits
                .wall_time
                .at_most()
                .is_none_or(|most| most > bounds.longest),
            bounds.longest.as_secs(),
        ),
        (
            "max_disk_mb",
            limits
                .disk
                .at_most()
                .is_none_or(|most| most > ceilings.disk),
            ceilings.disk.get() >> 20,
        ),
        (
            "max_processes",
            limits
                .processes
                .at_most()
                .is_none_or(|most| most > ceilings.processes),
            ceilings.processes,
        ),
        (
            "max_open_files",
            limits
                .open_files
                .at_most()
                .is_none_or(|most| most > ceilings.open_files),
            ceilings.open_files,
        ),
    ];
    let over: Vec<String> = pairs
        .into_iter()
        .filter(|(_, is_over, _)| *is_over)
        .map(|(field, _, most)| format!("{field}: ask for at most {most}"))
        .collect();
    if over.is_empty() {
        return Ok(());
    }
    Err(Fault::coded(ErrorCode::LimitUnenforceable, over.join("\n")))
}

/// A program that is missing or cannot be executed is an answer too; a sandbox that could not be built is none.
pub(crate) fn envelope(sealed: &Sealed, record: &RunRecord) -> Result<ResultEnvelope, Fault> {
    if let Ending::NeverStarted(failure) = &record.ending
        && failure.kind == SetupFailureKind::Sandbox
    {
        return Err(Fault::coded(failure.code(), failure.message.clone()));
    }
    let by = Answerer {
        result_id: ids::result_id(Timestamp::now(), Entropy(random::bytes())),
        worker_id: "local".to_owned(),
    };
    let mut envelope = ResultEnvelope::new(sealed, record, by)
        .map_err(|error| Fault::internal(error.to_string()))?;
    while serde_json::to_vec(&envelope).map_or(0, |text| text.len()) > MAX_BYTES {
        let Some(partial) = &mut envelope.partial_output else {
            break;
        };
        shorten(partial);
    }
    Ok(envelope)
}

/// Control characters and base64 take more room in JSON than they did in the stream. What is cut off counts as truncated.
fn shorten(partial: &mut PartialOutput) {
    for stream in [&mut partial.stdout, &mut partial.stderr] {
        let bytes = stream.bytes().unwrap_or_default();
        let half = bytes.get(..bytes.len() / 2).unwrap_or_default();
        *stream = CapturedStream::new(half, stream.original_bytes);
    }
}

/// The program, where it was not named.
pub(crate) fn brought_along(task: Task) -> Option<Vec<u8>> {
    match task {
        Task::Payload(sealed) => match &sealed.payload().task {
            ContractTask::Wasm(task) => Some(task.module()),
            ContractTask::Command(_) | ContractTask::Source(_) | ContractTask::Project(_) => None,
        },
        Task::Command(_) | Task::Project(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cofferdam_contract::seal::Draft;
    use serde_json::json;

    #[test]
    fn a_payload_that_was_accepted_is_taken_up_past_its_deadline() {
        let early = Timestamp::UNIX_EPOCH;
        let draft = json!({
            "contract_id": "c", "scope": "s", "task": {"kind": "command", "argv": ["true"]},
            "deadline": "1970-01-02T00:00:00Z",
        });
        let sealed = Draft::from_value(draft).unwrap();
        let sealed = sealed.seal(early, Entropy([7; 16])).unwrap();
        let text = sealed.json().to_string();
        let (bounds, host) = (RunBounds::default(), Host::detect());
        let languages = Languages::new(&[]).unwrap();
        let refused = check(text.as_bytes(), &bounds, &languages, &host).unwrap_err();
        assert_eq!(refused.code, ErrorCode::PayloadExpired.as_str());
        let again = check_again(text.as_bytes(), &bounds, &languages, &host).unwrap();
        assert_eq!(again.deadline, Duration::ZERO);
    }

    #[test]
    fn a_payload_whose_network_a_front_door_would_narrow_is_refused() {
        let draft = json!({
            "contract_id": "c", "scope": "s", "task": {"kind": "command", "argv": ["true"]},
            "deadline": "2099-01-01T00:00:00Z", "network_allowed": true,
        });
        let sealed = Draft::from_value(draft).unwrap();
        let sealed = sealed.seal(Timestamp::now(), Entropy([7; 16])).unwrap();
        let text = sealed.json().to_string();
        let languages = Languages::new(&[]).unwrap();
        let check = |carrier, network: &str| {
            let bounds = RunBounds {
                carrier,
                network: network.parse().unwrap(),
                ..RunBounds::default()
            };
            check(text.as_bytes(), &bounds, &languages, &Host::detect()).map(|_| ())
        };
        let refused = check(Carrier::Fleet, "allow=example.org:443").unwrap_err();
        assert_eq!(refused.code, ErrorCode::PayloadInvalid.as_str());
        assert!(refused.detail.contains("allow=example.org:443"));
        check(Carrier::Fleet, "full").unwrap();
        check(Carrier::Here, "allow=example.org:443").unwrap();
    }
}
