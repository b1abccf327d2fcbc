//! The events of a run, read from the daemon line by line.

use std::io::{BufRead, Read as _};

use serde_json::Value;

use super::unreachable;
use crate::failure::Failure;

/// Longer than any event of ours.
const LONGEST: u64 = 64 << 20;

#[derive(Debug)]
pub(super) struct Event {
    pub(super) name: String,
    pub(super) data: Value,
}

/// Ends where the daemon ends it.
#[derive(Debug)]
pub(super) struct Events<R> {
    from: R,
    name: String,
}

impl<R: BufRead> Events<R> {
    pub(super) fn new(from: R) -> Self {
        Self {
            from,
            name: String::new(),
        }
    }

    fn line(&mut self) -> std::io::Result<Option<String>> {
        let mut line = String::new();
        match self.from.by_ref().take(LONGEST).read_line(&mut line)? {
            0 => Ok(None),
            _ => Ok(Some(line)),
        }
    }
}

impl<R: BufRead> Iterator for Events<R> {
    type Item = Result<Event, Failure>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let line = match self.line() {
                Ok(line) => line?,
                Err(error) => return Some(Err(unreachable(&error.to_string()))),
            };
            let line = line.trim_end_matches(['\r', '\n']);
            if let Some(name) = line.strip_prefix("event: ") {
                name.clone_into(&mut self.name);
            } else if let Some(data) = line.strip_prefix("data: ") {
                return Some(Ok(Event {
                    name: std::mem::take(&mut self.name),
                    data: serde_json::from_str(data).unwrap_or_default(),
                }));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_read_one_by_one_and_breaths_are_passed_by() {
        let text = ": still here\n\nid: 1.0.0\nevent: state\ndata: {\"state\":\"queued\"}\n\nevent: end\ndata: {}\n\n";
        let read: Vec<Event> = Events::new(text.as_bytes()).map(Result::unwrap).collect();
        let names: Vec<&str> = read.iter().map(|event| event.name.as_str()).collect();
        assert_eq!(names, ["state", "end"]);
        assert_eq!(read[0].data["state"], "queued");
    }
}
