//! `cofferdam submit` and `cofferdam watch`: work for a daemon elsewhere, and what becomes of it.

mod events;
mod project;

use std::io::{BufReader, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use cofferdam_contract::codes::{self, ErrorCode};
use cofferdam_contract::mode::Deed;
use cofferdam_contract::record::CapturedStream;
use rustix::event::{PollFd, PollFlags};
use rustix::pipe::PipeFlags;
use serde_json::{Value, json};
use ureq::Agent;
use ureq::http::Response;

use crate::arguments::Places;
use crate::arguments::remote::{ServerArgs, SubmitArgs, WatchArgs};
use crate::failure::{self, Failure};
use crate::fleet;
use crate::policy;
use crate::seal::document::Document;
use crate::seal::{open, pretty};
use crate::terminal::output::{self, Reader};
use crate::terminal::waiting::Waiting;
use events::Events;

/// Longer than any answer of ours.
const LONGEST: u64 = 64 << 20;
const CONNECTING: Duration = Duration::from_secs(10);

/// A sealed payload is executed there, and its envelope printed; any other document is a run as `POST /v1/runs` takes it.
pub(crate) fn submit(args: &SubmitArgs, places: Places) -> Result<ExitCode, Failure> {
    if let Some(url) = &args.to_fleet.fleet {
        return fleet::submit(args, url, &places);
    }
    policy::refuse(
        policy::in_force(&places)?,
        [Deed::Daemon(&args.server.server)],
    )?;
    if let Some(dir) = &args.project.project {
        return project::submit(&args.server, dir, &args.project);
    }
    let work = args.work.as_deref().unwrap_or(Path::new("-"));
    let document = Document::read(work)?;
    let value: Value = cofferdam_contract::strict_json::parse(&document.bytes)
        .map_err(|bad| Failure::new(ErrorCode::InputMalformedJson, bad.to_string()))?;
    let server = Server::new(&args.server)?;
    if value.get("digest").is_some() {
        // Nothing is sent that would be refused there.
        open(&document)?;
        let waiting = Waiting::on("waiting for the daemon");
        let envelope = server.post("/v1/payloads", &value)?;
        drop(waiting);
        failure::print(&pretty(&envelope)?)?;
        return Ok(match envelope["status"].as_str() {
            Some("SUCCESS") => ExitCode::SUCCESS,
            _ => ExitCode::FAILURE,
        });
    }
    let mut work = value;
    if let Some(members) = work.as_object_mut() {
        members.insert("wait".to_owned(), json!(args.wait));
    }
    let waiting = Waiting::on("waiting for the daemon");
    let run = server.post("/v1/runs", &work)?;
    drop(waiting);
    failure::print(&pretty(&run)?)?;
    Ok(ExitCode::SUCCESS)
}

/// Prints what a run writes as it comes, and ends with it: exit code 0 for a run that succeeded, 1 for any other.
pub(crate) fn watch(args: &WatchArgs, places: Places) -> Result<ExitCode, Failure> {
    policy::refuse(
        policy::in_force(&places)?,
        [Deed::Daemon(&args.server.server)],
    )?;
    let server = Server::new(&args.server)?;
    let events = server.get(&format!("/v1/runs/{}/events", checked(&args.run)?))?;
    let mut status = String::new();
    for event in Events::new(BufReader::new(events.into_body().into_reader())) {
        let event = event?;
        if args.json {
            let line =
                json!({ "schema": "cofferdam.event/1", "event": event.name, "data": event.data });
            if output::write_stdout(format!("{line}\n").as_bytes())? == Reader::Gone {
                return Ok(ExitCode::from(codes::EXIT_CANCELED));
            }
        }
        match event.name.as_str() {
            "output" if !args.json => show(&event.data),
            "end" => {
                let said = event.data["status"].as_str();
                said.unwrap_or_default().clone_into(&mut status);
                break;
            }
            _ => {}
        }
    }
    Ok(if status == "success" {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// A run whose output is shown as it comes; it is ended when this process is told to end. Returns it as it ended.
///
/// `server.unreachable` only where nothing was sent yet: what may have been taken on must not be run once more.
pub(crate) fn command(
    args: &ServerArgs,
    request: &Value,
    cancel: &OwnedFd,
) -> Result<Value, Failure> {
    let server = Server::new(args)?;
    server.is_there()?;
    let run = server.post("/v1/runs", request).map_err(sent)?;
    let id = run["run_id"].as_str().unwrap_or_default().to_owned();
    ended_with_us(&server, &id, cancel, || {
        let events = server.get(&format!("/v1/runs/{}/events", checked(&id)?));
        let events = events.map_err(|_| lost(&id))?;
        for event in Events::new(BufReader::new(events.into_body().into_reader())) {
            let event = event.map_err(|_| lost(&id))?;
            match event.name.as_str() {
                "output" => show(&event.data),
                "end" => return Ok(event.data),
                "error" => return Err(refused(&event.data)),
                _ => {}
            }
        }
        Err(lost(&id))
    })
}

/// Nobody knows whether it was taken on.
fn sent(failure: Failure) -> Failure {
    match failure.code() {
        ErrorCode::ServerUnreachable => {
            let message = "the daemon went away while it was given the run; look at `cofferdam runs list` there before you try again";
            Failure::new(ErrorCode::ServerRefused, message)
        }
        _ => failure,
    }
}

/// It was taken on: whoever ran it again would run it twice.
fn lost(id: &str) -> Failure {
    let message = format!("run {id}: the daemon went away before the run had ended");
    Failure::new(ErrorCode::ServerRefused, message)
}

/// Whoever ends this verb means the run, which would go on without it.
fn ended_with_us<T>(
    server: &Server<'_>,
    id: &str,
    cancel: &OwnedFd,
    follow: impl FnOnce() -> Result<T, Failure>,
) -> Result<T, Failure> {
    std::thread::scope(|scope| {
        let (is_done, done) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC).map_err(|errno| {
            Failure::io(ErrorCode::Internal, "cannot make a pipe", &errno.into())
        })?;
        let path = format!("/v1/runs/{id}/cancel");
        scope.spawn(move || {
            let mut both = [
                PollFd::new(cancel, PollFlags::IN),
                PollFd::new(&is_done, PollFlags::IN),
            ];
            let _ = rustix::event::poll(&mut both, None);
            if both[0].revents().contains(PollFlags::IN) {
                let _ = server.post(&path, &json!({}));
            }
        });
        let followed = follow();
        drop(done);
        followed
    })
}

/// Ids go into a path.
fn checked(run: &str) -> Result<&str, Failure> {
    let is_plain = !run.is_empty() && run.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
    if is_plain {
        Ok(run)
    } else {
        Err(Failure::problem("RUN", run, "is not the id of a run"))
    }
}

fn show(data: &Value) {
    let Some(bytes) = said(data) else {
        return;
    };
    // A reader that has gone is noticed by nobody else.
    let _ = match data["stream"].as_str() {
        Some("stderr") => std::io::stderr().write_all(&bytes),
        _ => std::io::stdout()
            .write_all(&bytes)
            .and_then(|()| std::io::stdout().flush()),
    };
}

/// The bytes of an `output` event.
fn said(data: &Value) -> Option<Vec<u8>> {
    let captured = serde_json::from_value::<CapturedStream>(json!({
        "data": data["data"],
        "encoding": data["encoding"],
        "truncated": false,
        "original_bytes": 0,
    }));
    captured.ok()?.bytes()
}

struct Server<'a> {
    agent: Agent,
    args: &'a ServerArgs,
    token: Option<String>,
}

impl<'a> Server<'a> {
    fn new(args: &'a ServerArgs) -> Result<Self, Failure> {
        let is_http = args.server.starts_with("http://") || args.server.starts_with("https://");
        if !is_http {
            return Err(Failure::problem(
                "--server",
                &args.server,
                "is not an address; write one such as http://127.0.0.1:8080",
            ));
        }
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .timeout_connect(Some(CONNECTING))
            .max_redirects(0)
            .build();
        Ok(Self {
            agent: config.into(),
            args,
            token: std::env::var("COFFERDAM_TOKEN")
                .ok()
                .filter(|token| !token.is_empty()),
        })
    }

    /// Nobody answers there.
    fn is_away(&self, error: &ureq::Error) -> Failure {
        let why = error.to_string();
        let message = format!(
            "no daemon answers at {}: {}; start one with `cofferdam serve`, or name another with --server",
            self.args.server,
            why.strip_prefix("io: ").unwrap_or(&why)
        );
        Failure::new(ErrorCode::ServerUnreachable, message)
    }

    fn address(&self, path: &str) -> String {
        format!("{}{path}", self.args.server.trim_end_matches('/'))
    }

    fn get(&self, path: &str) -> Result<Response<ureq::Body>, Failure> {
        let mut request = self.agent.get(self.address(path));
        if let Some(token) = &self.token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        let response = request.call().map_err(|error| self.is_away(&error))?;
        if response.status().is_success() {
            Ok(response)
        } else {
            Err(refused(&body(response)?))
        }
    }

    /// Whether a daemon of ours answers, well or not: one that is busy starting is there too, and says itself what it does not take.
    fn is_there(&self) -> Result<(), Failure> {
        let asked = self.agent.get(self.address("/health")).call();
        let answer = asked.map_err(|error| self.is_away(&error))?;
        match body(answer)?["status"].as_str() {
            Some(_) => Ok(()),
            None => Err(unreachable("somebody else answers there")),
        }
    }

    fn post(&self, path: &str, value: &Value) -> Result<Value, Failure> {
        self.send(path, "application/json", value.to_string().into_bytes())
    }

    fn send(&self, path: &str, kind: &str, bytes: Vec<u8>) -> Result<Value, Failure> {
        let mut request = self
            .agent
            .post(self.address(path))
            .header("content-type", kind);
        if let Some(token) = &self.token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        let response = request.send(bytes).map_err(|error| self.is_away(&error))?;
        let is_good = response.status().is_success();
        let answer = body(response)?;
        if is_good {
            Ok(answer)
        } else {
            Err(refused(&answer))
        }
    }
}

fn body(response: Response<ureq::Body>) -> Result<Value, Failure> {
    let mut text = String::new();
    let read = response
        .into_body()
        .into_reader()
        .take(LONGEST)
        .read_to_string(&mut text);
    read.map_err(|error| unreachable(&error.to_string()))?;
    serde_json::from_str(&text).map_err(|_| unreachable("it did not answer with JSON"))
}

fn unreachable(why: &str) -> Failure {
    Failure::new(
        ErrorCode::ServerUnreachable,
        format!("the daemon cannot be reached: {why}"),
    )
}

/// In the daemon's own words.
pub(crate) fn refused(answer: &Value) -> Failure {
    let part = |name: &str| answer[name].as_str().unwrap_or_default().to_owned();
    let message = format!(
        "the daemon refused: {} {} {} ({})",
        part("description"),
        part("error_detail"),
        part("solution"),
        part("error_code")
    );
    Failure::new(ErrorCode::ServerRefused, message)
}
