//! The beat at which running programs stop to look at the clock: one thread for each engine, which rests while nothing runs.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, Thread};
use std::time::Duration;

use wasmtime::Engine;

/// How long a program runs before it looks again.
const BEAT: Duration = Duration::from_millis(1);

/// Beats for one engine.
#[derive(Debug)]
pub(crate) struct Ticker {
    running: Arc<AtomicUsize>,
    thread: Thread,
}

/// The beat goes on for as long as this is held.
#[derive(Debug)]
pub(crate) struct Beating<'a>(&'a Ticker);

impl Ticker {
    /// The thread ends when nobody but itself uses the engine any more.
    pub(crate) fn start(engine: &Engine) -> std::io::Result<Self> {
        let running = Arc::new(AtomicUsize::new(0));
        let engine = engine.weak();
        let counted = Arc::clone(&running);
        let handle = thread::Builder::new()
            .name("wasm-beat".to_owned())
            .spawn(move || {
                loop {
                    if counted.load(Ordering::Acquire) == 0 {
                        thread::park();
                    }
                    thread::sleep(BEAT);
                    match engine.upgrade() {
                        Some(engine) => engine.increment_epoch(),
                        None => return,
                    }
                }
            })?;
        Ok(Self {
            running,
            thread: handle.thread().clone(),
        })
    }

    pub(crate) fn beat(&self) -> Beating<'_> {
        if self.running.fetch_add(1, Ordering::AcqRel) == 0 {
            self.thread.unpark();
        }
        Beating(self)
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        self.thread.unpark();
    }
}

impl Drop for Beating<'_> {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::AcqRel);
    }
}
