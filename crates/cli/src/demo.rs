//! `cofferdam demo`: plays what can happen in a fleet, with servers, workers and a chain of its own, and tells what happened. Everything is real: sandboxes, signatures, blocks.

mod liar;
mod scenes;
mod stage;
mod town;

use std::os::fd::OwnedFd;
use std::process::ExitCode;
use std::time::Instant;

use cofferdam_contract::codes::{self, ErrorCode};
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use serde::Serialize;
use serde_json::json;

use crate::arguments::Places;
use crate::arguments::chain::{DemoArgs, EnforcementArg};
use crate::failure::{self, Failure, visible};
use crate::fleet::runtime;
use crate::terminal::output::document;
use crate::terminal::waiting::Waiting;
use scenes::SCENES;
use stage::Stage;

/// What came of a scene.
#[derive(Debug, Serialize)]
struct Played {
    name: &'static str,
    /// What it is about.
    about: &'static str,
    /// In words, what was seen; where it is not what should be, what should have been.
    happened: String,
    as_expected: bool,
    seconds: f64,
}

pub(crate) fn demo(args: &DemoArgs, places: &Places) -> Result<ExitCode, Failure> {
    let is_public = args.enforcement == EnforcementArg::Public;
    // Whoever ends it ends what it started: servers, workers, and their directory.
    let signals = cofferdam_engine::cancel_on_signals()?;
    let played = runtime()?.block_on(async {
        tokio::select! {
            played = played(args, places) => played.map(Some),
            told = told_to_end(signals) => told.map(|()| None),
        }
    })?;
    let Some(played) = played else {
        return Ok(ExitCode::from(codes::EXIT_CANCELED));
    };
    let all = played.iter().all(|one| one.as_expected);
    let enforcement = if is_public { "public" } else { "local" };
    let wrong = played.iter().filter(|one| !one.as_expected).count();
    failure::print(&match args.json {
        true => {
            let told = json!({"enforcement": enforcement, "as_expected": all, "scenes": played});
            document("cofferdam.demo/1", &told)?
        }
        false if all => {
            format!("\nEverything went as it should, with {enforcement} enforcement.\n")
        }
        false => format!("\n{wrong} of {} did not go as they should.\n", played.len()),
    })?;
    Ok(match all {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

async fn played(args: &DemoArgs, places: &Places) -> Result<Vec<Played>, Failure> {
    let waiting = Waiting::on("setting the stage");
    let mut stage = Stage::set(args, places).await?;
    drop(waiting);
    let mut played = Vec::new();
    for (number, scene) in SCENES.iter().enumerate() {
        let began = Instant::now();
        let waiting = Waiting::on(scene.about);
        let seen = scenes::play(scene.name, &mut stage).await;
        drop(waiting);
        let (happened, as_expected) = match seen {
            Ok(seen) => (seen, true),
            Err(wrong) => (wrong, false),
        };
        let one = Played {
            name: scene.name,
            about: scene.about,
            happened,
            as_expected,
            seconds: began.elapsed().as_secs_f64(),
        };
        if !args.json {
            tell(number + 1, &one)?;
        }
        played.push(one);
    }
    Ok(played)
}

/// Comes back when a signal has.
async fn told_to_end(signals: OwnedFd) -> Result<(), Failure> {
    let (tell, told) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        let mut fds = [PollFd::new(&signals, PollFlags::IN)];
        while let Err(Errno::INTR) = rustix::event::poll(&mut fds, None) {}
        let _ = tell.send(());
    });
    let heard = told.await;
    heard.map_err(|_| Failure::new(ErrorCode::Internal, "nobody listens for signals any more"))
}

fn tell(number: usize, one: &Played) -> Result<(), Failure> {
    let mark = if one.as_expected { "ok  " } else { "BAD " };
    let happened = visible(&one.happened);
    let about = one.about;
    failure::print(&format!(
        "{number}  {mark} {about}\n        {happened} ({:.1} s)\n",
        one.seconds
    ))
}
