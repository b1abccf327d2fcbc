//! A run of the backend against a daemon: the request with its defaults, what a test changes of it, and the record.

use std::path::Path;
use std::time::Duration;

use cofferdam_contract::limits::Limits;
use cofferdam_contract::record::RunRecord;
use cofferdam_contract::request::{
    BackendName, Gpus, Grant, Network, Request, Root, Workspace, WorkspaceAccess,
};
use cofferdam_contract::units::{Bytes, Cap};
use cofferdam_docker::{Endpoint, Settings};
use cofferdam_engine::error::EngineError;
use cofferdam_engine::host::Host;
use cofferdam_engine::pipeline::{Evidence, Input, OnLimit, Sink, Streams};
use cofferdam_testkit::docker::{Dockerd, IMAGE};

pub(crate) fn settings(daemon: &Dockerd) -> Settings {
    Settings {
        endpoint: Endpoint::Unix(daemon.socket()),
        image: Some(IMAGE.to_owned()),
        ..Settings::default()
    }
}

pub(crate) fn request(argv: &[&str]) -> Request {
    Request {
        argv: argv.iter().map(Into::into).collect(),
        env: Vec::new(),
        cwd: None,
        limits: Limits {
            wall_time: Cap::AtMost(Duration::from_secs(60)),
            output: mib(64),
            ..Limits::DEFAULT
        },
        waived: Vec::new(),
        network: Network::Denied,
        root: Root::HostUsr,
        workspace: None,
        mounts: Vec::new(),
        backend: BackendName::Docker,
        gpus: Gpus::None,
    }
}

/// A request for a shell script.
pub(crate) fn script(text: &str) -> Request {
    request(&["sh", "-c", text])
}

pub(crate) fn with_workspace(mut request: Request, dir: &Path, access: WorkspaceAccess) -> Request {
    request.workspace = Some(Workspace {
        path: dir.to_owned(),
        access,
    });
    request
}

pub(crate) fn streams(stdin: Input) -> Streams<'static> {
    Streams {
        stdin,
        stdout: Sink::Keep { at_most: 32 << 20 },
        stderr: Sink::Keep { at_most: 1 << 20 },
        result: None,
        on_output_limit: OnLimit::Stop,
        evidence: Evidence::Full,
        cancel: None,
        recording: None,
        usage: None,
    }
}

pub(crate) fn try_run(request: Request, settings: &Settings) -> Result<RunRecord, EngineError> {
    let grant = Grant::new(request)?;
    cofferdam_docker::run(grant, streams(Input::Empty), &Host::detect(), settings)
}

/// Runs and checks that the daemon has nothing of it afterwards.
#[track_caller]
pub(crate) fn run(daemon: &Dockerd, request: Request) -> RunRecord {
    let record = try_run(request, &settings(daemon)).unwrap();
    daemon.assert_clean();
    record
}

pub(crate) fn mib(n: u64) -> Cap<Bytes> {
    Cap::AtMost(Bytes::new(n << 20))
}

#[track_caller]
pub(crate) fn exited(record: &RunRecord, code: i32) {
    assert_eq!(record.exit_code, Some(code), "{record:#?}");
}
