//! Runs in words: how one ended, which colour that has, and its command as one would type it.

use cofferdam_contract::ending::{EndingRecord, Stream};
use cofferdam_store::model::{Closing, Outcome, Status, StoredRun};

use crate::terminal::colour::Colour;
use crate::terminal::text::safe;

pub(crate) const fn colour(status: Status) -> Colour {
    match status {
        Status::Success => Colour::Green,
        Status::Running => Colour::Blue,
        Status::Timeout | Status::Limit | Status::Canceled => Colour::Yellow,
        Status::Failure | Status::NeverStarted | Status::Interrupted => Colour::Red,
    }
}

/// The status, with the limit where the status does not say it.
pub(crate) fn status(status: Status, cause: Option<&str>) -> String {
    match (status, cause) {
        (Status::Limit, Some(cause)) => format!("{status} ({})", safe(cause)),
        (Status::Timeout, Some("cpu_time")) => format!("{status} (cpu_time)"),
        _ => status.to_string(),
    }
}

/// A sentence without its full stop; not yet safe to show.
pub(crate) fn ending(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Running => "still running".to_owned(),
        Outcome::Interrupted { .. } => {
            "interrupted: whoever ran it was killed, or the machine was; how the program ended is not known".to_owned()
        }
        Outcome::Ended(closing) => ended(closing),
    }
}

fn ended(closing: &Closing) -> String {
    match &closing.ending {
        EndingRecord::Exited => match closing.exit_code {
            Some(code) => format!("exited with code {code}"),
            None => "exited".to_owned(),
        },
        EndingRecord::Signaled => {
            let signal = closing.signal.as_deref().unwrap_or("a signal");
            format!("ended by {signal}, which no limit sent")
        }
        // Says the limit, its value and the flag that raises it.
        EndingRecord::Stopped { detail, .. } => detail.clone(),
        EndingRecord::NeverStarted { code, message, .. } => {
            format!("never started: {message} [{code}]")
        }
    }
}

/// How many bytes of a stream were written and are not there any more.
pub(crate) fn not_kept(run: &StoredRun, stream: Stream) -> u64 {
    let closing = match &run.outcome {
        Outcome::Ended(closing) => Some(closing),
        Outcome::Running | Outcome::Interrupted { .. } => None,
    };
    let (kept, seen) = match stream {
        Stream::Stdout => (run.log.stdout, closing.map(|closing| closing.stdout)),
        Stream::Stderr => (run.log.stderr, closing.map(|closing| closing.stderr)),
    };
    let lost = seen.map_or(0, |seen| seen.lost);
    kept.removed.saturating_add(lost)
}

/// What the column EXIT shows.
pub(crate) fn exit(code: Option<i32>, signal: Option<&str>) -> String {
    match (code, signal) {
        (Some(code), _) => code.to_string(),
        (None, Some(signal)) => safe(signal),
        (None, None) => "-".to_owned(),
    }
}

/// A command as one would type it into a shell; not yet safe to show.
pub(crate) fn command(words: &[String]) -> String {
    let quoted: Vec<String> = words.iter().map(|word| quote(word)).collect();
    quoted.join(" ")
}

fn quote(word: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "%+,-./:=@_".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runs::sample;

    #[test]
    fn endings_are_said_in_words() {
        assert_eq!(ending(&sample::exited(3).outcome), "exited with code 3");
        assert_eq!(
            ending(&sample::out_of_memory().outcome),
            "stopped: memory limit of 64 MiB reached; raise it with --memory"
        );
        assert_eq!(
            ending(&sample::never_started().outcome),
            "never started: `nope` is not found [program.not_found]"
        );
        assert_eq!(ending(&sample::running().outcome), "still running");
        assert!(ending(&sample::interrupted().outcome).contains("not known"));
        assert_eq!(
            ending(&sample::signaled().outcome),
            "ended by SIGSEGV, which no limit sent"
        );
    }

    #[test]
    fn a_status_says_the_limit_where_it_would_not_be_known() {
        assert_eq!(status(Status::Limit, Some("memory")), "limit (memory)");
        assert_eq!(status(Status::Timeout, Some("wall_time")), "timeout");
        assert_eq!(
            status(Status::Timeout, Some("cpu_time")),
            "timeout (cpu_time)"
        );
        assert_eq!(status(Status::Success, None), "success");
        assert_eq!(exit(Some(3), None), "3");
        assert_eq!(exit(None, Some("SIGKILL")), "SIGKILL");
        assert_eq!(exit(None, None), "-");
    }

    #[test]
    fn commands_can_be_typed_again() {
        let words = ["sh", "-c", "echo 'it'; ls", "", "a=b", "é"].map(str::to_owned);
        assert_eq!(command(&words), "sh -c 'echo '\\''it'\\''; ls' '' a=b é");
    }
}
