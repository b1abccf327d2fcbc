//! The examination: one run with the defaults first, since everything else depends on it, then layer by layer and limit by limit.

use std::os::fd::BorrowedFd;
use std::time::Instant;

use super::backends;
use super::facts::Facts;
use super::inside::{self, Inside};
use super::layers::{self, Walls};
use super::limits;
use super::not_given;
use super::report::{About, Finding, Mark, Reason, Report};
use super::trial::{Bench, Tried};
use crate::error::EngineError;
use crate::host::{Host, Privilege};

/// Examines this host, in well under a second where everything works. Readable `cancel` ends the trial that is being made and makes all others short.
pub fn examine(host: &Host, cancel: Option<BorrowedFd<'_>>) -> Report {
    let begun = Instant::now();
    let bench = Bench { host, cancel };
    let facts = Facts::read(host);
    let first = bench.with_defaults(inside::SCRIPT);
    let walls = Walls::try_alone(host);
    let run = run_finding(&first, &walls, &facts);
    let works = run.mark != Mark::Missing;
    let built = first.as_ref().ok().filter(|tried| tried.was_built());
    let inside = built.map(|tried| Inside::read(&tried.record.stdout.data));
    let layers = layers::find(&bench, &facts, &walls, built.zip(inside.as_ref()));
    let limits = limits::find(&bench, &facts, built.is_some_and(Tried::has_run));
    let backends = backends::find(&bench);
    Report {
        schema: Report::SCHEMA,
        works,
        host: about(host, &facts),
        run,
        layers,
        limits,
        backends,
        not_given: not_given::all(),
        took_ms: begun.elapsed().as_secs_f64() * 1000.0,
    }
}

fn run_finding(first: &Result<Tried, EngineError>, walls: &Walls, facts: &Facts) -> Finding {
    const NAME: &str = "cofferdam run";
    let broken = |said: String| {
        // The wall that does not stand explains more than the step at which that was noticed.
        let reason = walls
            .reason(facts)
            .unwrap_or_else(|| Reason::without_fix(said.clone()));
        Finding::lacking(NAME, Mark::Missing, said, reason)
    };
    match first {
        // Its advice is to ask us.
        Err(EngineError::Unavailable { why, .. }) => broken(why.clone()),
        Err(error) => broken(error.to_string()),
        Ok(tried) if !tried.was_built() => broken(tried.ending_in_words()),
        Ok(tried) if !tried.has_run() => Finding::lacking(
            NAME,
            Mark::Weaker,
            "the sandbox is built, and there is no /bin/sh to look around inside",
            Reason::new(
                tried.ending_in_words(),
                "use --root with a directory that holds a root file system",
            ),
        ),
        Ok(tried) => {
            let ms = tried.took.as_secs_f64() * 1000.0;
            Finding::ok(NAME, format!("works with its defaults ({ms:.0} ms)"))
        }
    }
}

fn about(host: &Host, facts: &Facts) -> About {
    let system = rustix::system::uname();
    About {
        kernel: system.release().to_string_lossy().into_owned(),
        machine: system.machine().to_string_lossy().into_owned(),
        uid: rustix::process::geteuid().as_raw(),
        privilege: match host.privilege {
            Privilege::Root => "root",
            Privilege::User { .. } => "user",
        },
        container: facts.container,
        cpus: host.cpus.len(),
    }
}
