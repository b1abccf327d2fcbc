//! Cofferdam without its command line: three programs, each in a sandbox with limits of its own, and how they ended.
//!
//! ```sh
//! cargo run --release -p cofferdam-engine --example library
//! ```
//!
//! What decides what to do with an ending is a `match` on a type, not on text: there is no ending that the compiler does not ask about.
#![allow(clippy::print_stdout, reason = "a program that prints what it found")]

use std::error::Error;
use std::time::Duration;

use cofferdam_contract::ending::{Ending, StopCause};
use cofferdam_contract::limits::Limits;
use cofferdam_contract::record::RunRecord;
use cofferdam_contract::request::{Grant, Request};
use cofferdam_contract::units::{Bytes, Cap};
use cofferdam_engine::host::Host;
use cofferdam_engine::pipeline::{self, Evidence, Input, Streams};

const LIMITS: Limits = Limits {
    cpu_time: Cap::AtMost(Duration::from_secs(1)),
    memory: Cap::AtMost(Bytes::new(64 << 20)),
    ..Limits::DEFAULT
};

/// What a program is called here, and what a shell is told to do.
const PROGRAMS: [(&str, &str); 3] = [
    ("adder", "read a b; echo $((a + b))"),
    ("spinner", "while :; do :; done"),
    ("glutton", "head -c 256M /dev/zero | tail"),
];

fn main() -> Result<(), Box<dyn Error>> {
    // What this machine can enforce is found out once.
    let host = Host::detect();
    for (name, script) in PROGRAMS {
        let record = run(script, b"2 3\n", &host)?;
        println!("{name}: {}", said_of(&record));
    }
    Ok(())
}

fn run(script: &str, stdin: &[u8], host: &Host) -> Result<RunRecord, Box<dyn Error>> {
    let request = Request {
        limits: LIMITS,
        ..Request::command(["sh", "-c", script])
    };
    let streams = Streams {
        stdin: Input::Bytes(stdin.to_vec()),
        evidence: Evidence::Full,
        ..Streams::kept(1 << 20)
    };
    // A grant is made by checking a request, every problem at once, and only a grant can be run.
    Ok(pipeline::run(Grant::new(request)?, streams, host)?)
}

fn said_of(record: &RunRecord) -> String {
    match &record.ending {
        Ending::Exited { code: 0 } => format!("answered {}", record.stdout.data.trim_end()),
        Ending::Exited { code } => format!("gave up with {code}"),
        Ending::Signaled { .. } => {
            format!("crashed: {}", record.signal.as_deref().unwrap_or_default())
        }
        Ending::Stopped(StopCause::WallTime { .. } | StopCause::CpuTime { .. }) => {
            "took too long".to_owned()
        }
        Ending::Stopped(StopCause::Memory { limit }) => format!("wanted more than {limit}"),
        Ending::Stopped(StopCause::Canceled) => "was called back".to_owned(),
        Ending::Stopped(other) => other.reason(),
        Ending::NeverStarted(failure) => format!("could not be started: {}", failure.message),
    }
}
