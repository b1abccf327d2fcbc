//! Waiting until a program that was started says that it is ready. What it says afterwards is read, too, so that it can go on.

use std::io::{BufRead as _, BufReader, Read};
use std::sync::mpsc::channel;
use std::time::Instant;

use crate::started::SOON;

/// The line that says so; an error is everything that was said until it ended, or until nobody would wait any longer.
pub(crate) fn await_line(
    from: impl Read + Send + 'static,
    says_so: impl Fn(&str) -> bool,
) -> Result<String, String> {
    let (sender, lines) = channel();
    std::thread::spawn(move || {
        let mut from = BufReader::new(from);
        let mut line = Vec::new();
        while let Ok(1..) = from.read_until(b'\n', &mut line) {
            let _ = sender.send(String::from_utf8_lossy(&line).into_owned());
            line.clear();
        }
    });
    let until = Instant::now() + SOON;
    let mut said = String::new();
    loop {
        let left = until.saturating_duration_since(Instant::now());
        match lines.recv_timeout(left) {
            Ok(line) if says_so(&line) => return Ok(line),
            Ok(line) => said.push_str(&line),
            Err(why) => return Err(format!("{why}: {said}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_is_found_and_an_end_before_it_is_told_with_all_that_was_said() {
        let text = "one\ntwo ready\nthree\n";
        let found = await_line(text.as_bytes(), |line| line.contains("ready"));
        assert_eq!(found.unwrap(), "two ready\n");
        let missing = await_line(text.as_bytes(), |line| line.contains("four")).unwrap_err();
        assert!(missing.ends_with(text), "{missing}");
    }
}
