//! A sign of life while something is waited for that does not say how far it has come. Nothing is drawn for what takes less than half a second.

use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::colour::Colour;
use super::foot::{self, Foot, PATIENCE};

const EVERY: Duration = Duration::from_millis(100);
const FRAMES: [char; 4] = ['|', '/', '-', '\\'];

/// Waits as long as it lives.
#[derive(Debug)]
pub(crate) struct Waiting {
    stop: Option<Sender<()>>,
    drawer: Option<JoinHandle<()>>,
}

impl Waiting {
    /// Says what for. Nothing may be written to standard error meanwhile.
    pub(crate) fn on(what: &'static str) -> Self {
        if !foot::is_seen() {
            return Self {
                stop: None,
                drawer: None,
            };
        }
        let since = Instant::now();
        let (stop, stopped) = mpsc::channel();
        let draw = move || {
            // Whoever ends this process means the work, which listens for it elsewhere; a thread that took the signal would end it before that has cleared up.
            let _blocked = cofferdam_engine::cancel_on_signals();
            let mut foot = Foot::default();
            let mut frames = FRAMES.iter().cycle();
            while let Err(RecvTimeoutError::Timeout) = stopped.recv_timeout(EVERY) {
                let elapsed = since.elapsed();
                if let Some(frame) = frames.next().filter(|_| elapsed >= PATIENCE) {
                    foot.draw(&line(*frame, what, elapsed), Some(Colour::Dim));
                }
            }
        };
        let drawer = std::thread::Builder::new()
            .name("waiting".to_owned())
            .spawn(draw);
        Self {
            stop: Some(stop),
            drawer: drawer.ok(),
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(drawer) = self.drawer.take() {
            let _ = drawer.join();
        }
    }
}

fn line(frame: char, what: &str, elapsed: Duration) -> String {
    match elapsed.as_secs() {
        0 => format!("{frame} {what}"),
        seconds => format!("{frame} {what}, {seconds} s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_told_from_the_first_on() {
        let half = Duration::from_millis(500);
        assert_eq!(line('|', "asking", half), "| asking");
        assert_eq!(line('/', "asking", half * 5), "/ asking, 2 s");
    }
}
