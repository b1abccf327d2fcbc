//! The threads that wait for a program's clocks, descriptors and files. Their end waits for nobody: a file call may block for as long as somebody else likes, as at a pipe that nobody
//! writes to, and neither a run's wall time nor our own end is held up by that.

use std::sync::OnceLock;

use tokio::runtime::{Builder, Runtime};

/// A runtime, made when it is first needed.
#[derive(Debug, Default)]
pub(crate) struct Waiting(OnceLock<Runtime>);

impl Waiting {
    /// The runtime, made by `make` if there is none yet.
    pub(crate) fn get_or_make(
        &self,
        make: fn() -> std::io::Result<Runtime>,
    ) -> std::io::Result<&Runtime> {
        if let Some(runtime) = self.0.get() {
            return Ok(runtime);
        }
        let made = make()?;
        Ok(self.0.get_or_init(|| made))
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

/// Clocks and descriptors are waited for by one thread for all runs.
pub(crate) fn shared() -> std::io::Result<Runtime> {
    Builder::new_multi_thread()
        .worker_threads(1)
        .thread_name("wasm-wait")
        .enable_all()
        .build()
}
