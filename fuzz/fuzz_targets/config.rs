//! The reader of configuration files, from text to settings. It belongs to the binary, so its files come in by path.
#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;

#[allow(
    dead_code,
    reason = "only a part of the configuration is reached from here"
)]
#[path = "../../crates/cli/src/config"]
mod config {
    pub(crate) mod setting;
    pub(crate) mod shape;
    pub(crate) mod spelling;
    pub(crate) mod suggest;
    #[path = "../../../project/src/yaml.rs"]
    pub(crate) mod yaml;
}

fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    let mut problems = Vec::new();
    let _ = config::shape::read(Path::new("fuzz.yml"), text, &mut problems);
    for problem in &problems {
        let line = problem.to_string();
        assert!(line.len() < 4096, "a message is for reading: {} bytes", line.len());
    }
});
