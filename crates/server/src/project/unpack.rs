//! Laying a project out. An archive is a stranger's: it is unpacked by `tar` or `git` inside a sandbox, within the limits of the run, where the workspace is all that can be written to. A bundle's
//! hooks and configuration do not travel with it, and those of the host are not looked at.

use std::ffi::OsString;
use std::os::fd::AsFd as _;
use std::path::Path;
use std::sync::Arc;

use cofferdam_contract::codes::ErrorCode;
use cofferdam_contract::ending::Ending;
use cofferdam_contract::record::RunRecord;
use cofferdam_contract::request::{
    BackendName, Gpus, Grant, Mount, MountAccess, Network, Request, Root, Workspace,
    WorkspaceAccess,
};
use cofferdam_engine::pipeline::{self, Input};
use cofferdam_store::RunId;
use cofferdam_store::model::RunKind;
use cofferdam_store::private_dir::PrivateDir;

use super::desk::Desk;
use super::{Form, Source};
use crate::fault::Fault;
use crate::live::Live;
use crate::work::{Place, Work, streams, within};

const INSIDE: &str = "/input";
const NAME: &str = "project";
/// How much of what the tool said is repeated.
const SAID: usize = 1000;

/// Whether the project lies there now.
#[derive(Debug)]
pub(super) enum Unpacked {
    Whole,
    /// A limit or a person ended it.
    Stopped(Box<RunRecord>),
}

pub(super) fn unpack(
    source: &Source,
    work: &Work,
    root: &Path,
    desk: &Desk,
    live: &Live,
    place: Place<'_>,
) -> Result<Unpacked, Fault> {
    let Source::Archive {
        form,
        bytes,
        git_ref,
    } = source
    else {
        return Ok(Unpacked::Whole);
    };
    let input = PrivateDir::create(place.dir, RunId::new())?;
    input.place(NAME, bytes, 0o644)?;
    let mut limits = work.limits.clone();
    limits.wall_time = within(limits.wall_time, live.deadline);
    let request = Request {
        argv: argv(*form, git_ref.as_deref()),
        env: env(),
        cwd: Some(Workspace::INSIDE.into()),
        limits,
        waived: Vec::new(),
        network: Network::Denied,
        root: Root::HostUsr,
        workspace: Some(Workspace {
            path: root.to_owned(),
            access: WorkspaceAccess::ReadWrite,
        }),
        mounts: vec![Mount {
            source: input.path().to_owned(),
            target: INSIDE.into(),
            access: MountAccess::ReadOnly,
        }],
        backend: BackendName::Native,
        gpus: Gpus::None,
    };
    let mut recording = desk.part();
    recording.kind = RunKind::Build;
    let cancel = live.cancel.descriptor()?;
    let cancel = cancel.as_ref().map(|cancel| cancel.as_fd());
    let usage = Arc::clone(&live.usage);
    let streams = streams(&request, Input::Empty, recording, cancel, usage);
    let record = pipeline::run(Grant::new(request)?, streams, place.host)?;
    match &record.ending {
        Ending::Exited { code: 0 } => {}
        Ending::Stopped(_) => return Ok(Unpacked::Stopped(Box::new(record))),
        Ending::Exited { .. } | Ending::Signaled { .. } => return Err(bad(*form, &record)),
        Ending::NeverStarted(failure) => {
            return Err(Fault::coded(failure.code(), failure.message.clone()));
        }
    }
    if *form == Form::GitBundle && !has_files(root)? {
        let fix = "names no HEAD that can be checked out; make it with `git bundle create FILE HEAD BRANCH`, or name a branch in project.ref";
        return Err(Fault::invalid("project", "", fix));
    }
    Ok(Unpacked::Whole)
}

fn argv(form: Form, git_ref: Option<&str>) -> Vec<OsString> {
    let archive = format!("{INSIDE}/{NAME}");
    let words: Vec<&str> = match form {
        Form::Tar | Form::TarGz => {
            let mut words = vec![
                "/usr/bin/tar",
                "--extract",
                "--no-same-owner",
                "--no-same-permissions",
            ];
            if form == Form::TarGz {
                words.push("--gzip");
            }
            words.extend(["--file", &archive, "--directory", Workspace::INSIDE]);
            words
        }
        Form::GitBundle => {
            let mut words = vec!["/usr/bin/git", "clone", "--quiet", "--template="];
            words.extend(["--config", "core.hooksPath=/dev/null"]);
            words.extend(git_ref.iter().flat_map(|name| ["--branch", *name]));
            words.extend(["--", &archive, Workspace::INSIDE]);
            words
        }
    };
    words.into_iter().map(Into::into).collect()
}

fn env() -> Vec<(OsString, OsString)> {
    let pairs = [
        ("GIT_CONFIG_NOSYSTEM", "1"),
        ("GIT_CONFIG_GLOBAL", "/dev/null"),
        ("GIT_ALLOW_PROTOCOL", "file"),
        ("GIT_TERMINAL_PROMPT", "0"),
        ("LC_ALL", "C.UTF-8"),
    ];
    let pairs = pairs.into_iter();
    pairs
        .map(|(name, value)| (name.into(), value.into()))
        .collect()
}

/// Besides what git itself lays there.
fn has_files(root: &Path) -> Result<bool, Fault> {
    let entries = std::fs::read_dir(root)
        .map_err(|error| Fault::internal(format!("cannot look at a workspace: {error}")))?;
    let mut names = entries.flatten().map(|entry| entry.file_name());
    Ok(names.any(|name| name != ".git"))
}

fn bad(form: Form, record: &RunRecord) -> Fault {
    let said = record.stderr.bytes().unwrap_or_default();
    let said = String::from_utf8_lossy(&said);
    let from = said.ceil_char_boundary(said.len().saturating_sub(SAID));
    let said = said.get(from..).unwrap_or_default().trim();
    let tool = match form {
        Form::Tar | Form::TarGz => "tar",
        Form::GitBundle => "git",
    };
    let detail = format!("project: cannot be unpacked; {tool} says: {said}");
    Fault::coded(ErrorCode::InputInvalid, detail)
}
