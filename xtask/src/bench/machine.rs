//! Which machine the figures are of, and when they were taken.

use std::fmt;

use serde::Serialize;

#[derive(Debug, Serialize)]
pub(super) struct Machine {
    kernel: String,
    cpus: usize,
    measured_at: String,
}

impl Machine {
    pub(super) fn this() -> Self {
        let system = rustix::system::uname();
        Self {
            kernel: system.release().to_string_lossy().into_owned(),
            cpus: std::thread::available_parallelism().map_or(1, Into::into),
            measured_at: jiff::Timestamp::now().to_string(),
        }
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Linux {}, {} CPUs, {}",
            self.kernel, self.cpus, self.measured_at
        )
    }
}
