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
use rustix::event::{PollFd, PollFlags, Timespec};
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
/// How long nothing may come where an answer waits for nothing but the daemon itself.
const ANSWERING: Duration = Duration::from_secs(10);
/// The same where it has work before it answers, such as unpacking a project, or where it draws a breath every fifteen seconds.
const BREATHING: Duration = Duration::from_secs(60);
/// How long a run that was told to end is waited for.
const ENDING: Duration = Duration::from_secs(30);

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
        let envelope = server.post("/v1/payloads", &value, Patience::UntilItEnds)?;
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
    let run = server.post("/v1/runs", &work, Patience::UntilItEnds)?;
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
            "output" if !args.json && show(&event.data)? == Reader::Gone => {
                return Ok(ExitCode::from(codes::EXIT_CANCELED));
            }
            "end" => {
                return Ok(match event.data["status"].as_str() {
                    Some("success") => ExitCode::SUCCESS,
                    _ => ExitCode::FAILURE,
                });
            }
            "error" => return Err(refused(&event.data)),
            _ => {}
        }
    }
    Err(unreachable("it ended before the run did"))
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
    let run = server.post("/v1/runs", request, Patience::Quiet(BREATHING));
    let run = run.map_err(sent)?;
    let id = run["run_id"].as_str().unwrap_or_default().to_owned();
    ended_with_us(&server, &id, cancel, || {
        let events = server.get(&format!("/v1/runs/{}/events", checked(&id)?));
        let events = events.map_err(|_| lost(&id))?;
        for event in Events::new(BufReader::new(events.into_body().into_reader())) {
            let event = event.map_err(|_| lost(&id))?;
            match event.name.as_str() {
                // A reader that has gone is noticed by nobody else.
                "output" => drop(show(&event.data)),
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
                let _ = server.post(&path, &json!({}), Patience::Quiet(ANSWERING));
                // What it writes while it ends is still shown. Signals are ours by now: a daemon that is gone must not keep us.
                let mut rest = [PollFd::new(&is_done, PollFlags::IN)];
                let limit = Timespec::try_from(ENDING).ok();
                if let Ok(0) = rustix::event::poll(&mut rest, limit.as_ref()) {
                    output::note(&format!("cofferdam: {}", lost(id).words()));
                    std::process::exit(codes::EXIT_CANCELED.into());
                }
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

fn show(data: &Value) -> Result<Reader, Failure> {
    let Some(bytes) = said(data) else {
        return Ok(Reader::There);
    };
    match data["stream"].as_str() {
        Some("stderr") => {
            let _ = std::io::stderr().write_all(&bytes);
            Ok(Reader::There)
        }
        _ => output::write_stdout(&bytes),
    }
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

/// How long an answer may take.
#[derive(Debug, Clone, Copy)]
enum Patience {
    /// As long as the run that it waits for.
    UntilItEnds,
    /// Nothing may come for so long.
    Quiet(Duration),
}

impl Patience {
    const fn limit(self) -> Option<Duration> {
        match self {
            Self::UntilItEnds => None,
            Self::Quiet(limit) => Some(limit),
        }
    }
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
            .timeout_per_write(Some(BREATHING))
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
        let request = self.agent.get(self.address(path)).config();
        let mut request = request.timeout_per_read(Some(BREATHING)).build();
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
        let asked = self.agent.get(self.address("/health")).config();
        let asked = asked.timeout_global(Some(ANSWERING)).build().call();
        let answer = asked.map_err(|error| self.is_away(&error))?;
        match body(answer)?["status"].as_str() {
            Some(_) => Ok(()),
            None => Err(unreachable("somebody else answers there")),
        }
    }

    fn post(&self, path: &str, value: &Value, patience: Patience) -> Result<Value, Failure> {
        let bytes = value.to_string().into_bytes();
        self.send(path, "application/json", bytes, patience)
    }

    fn send(
        &self,
        path: &str,
        kind: &str,
        bytes: Vec<u8>,
        patience: Patience,
    ) -> Result<Value, Failure> {
        let request = self.agent.post(self.address(path)).config();
        let request = request.timeout_per_read(patience.limit()).build();
        let mut request = request.header("content-type", kind);
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

#[cfg(test)]
mod tests {
    use super::*;

    /// In a terminal such a daemon is one that was stopped; signals are ours by then, so that nobody could end the verb.
    #[test]
    fn somebody_who_listens_and_says_nothing_is_nobody() {
        let deaf = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let args = ServerArgs {
            server: format!("http://{}", deaf.local_addr().unwrap()),
        };
        let server = Server::new(&args).unwrap();
        let asked = server.is_there().map_err(|failure| failure.code());
        assert_eq!(asked, Err(ErrorCode::ServerUnreachable));
    }
}
