//! The commands that a stranger's project names in YAML, which is read in the same way as configuration files: no message is longer than a person reads.
#![no_main]

use cofferdam_project::commands::{self, Variables};
use cofferdam_project::yaml;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    let _ = yaml::parse(text);
    let variables = Variables::from([("project_root", "/workspace".to_owned())]);
    if let Err(problems) = commands::parse(text, &variables) {
        assert!(!problems.is_empty(), "what is refused has a reason");
        for line in problems {
            assert!(line.len() < 4096, "a message is for reading: {} bytes", line.len());
        }
    }
});
