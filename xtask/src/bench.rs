//! `cargo xtask bench`: our figures beside those of a bare process and of bubblewrap, measured in one interleaved run, and the
//! promises they must keep. Noise of the machine hits every contestant alike; a figure alone means little, a ratio does.

mod contestant;
mod flood;
mod history;
mod latency;
mod memory;
mod report;
mod stats;
mod throughput;

use std::path::Path;

use contestant::{Binary, Privilege};
use report::Report;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Options {
    effort: Effort,
    format: Format,
    privilege: Privilege,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Effort {
    Quick,
    Full,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    Table,
    Json,
}

impl Options {
    pub(crate) fn parse(flags: &[&str]) -> Result<Self, String> {
        let mut options = Self {
            effort: Effort::Full,
            format: Format::Table,
            privilege: Privilege::Own,
        };
        for flag in flags {
            match *flag {
                "--quick" => options.effort = Effort::Quick,
                "--json" => options.format = Format::Json,
                "--unprivileged" => options.privilege = Privilege::Dropped,
                other => {
                    return Err(format!(
                        "bench has no flag `{other}`; it has --quick, --json and --unprivileged"
                    ));
                }
            }
        }
        Ok(options)
    }
}

/// Measures everything and prints it; fails when a promise is broken.
pub(crate) fn run(root: &Path, options: Options) -> Result<(), String> {
    let binary = Binary::build(root)?;
    let mut report = Report::new(options.privilege);
    latency::measure(&binary, options, &mut report)?;
    memory::measure(&binary, options, &mut report)?;
    history::measure(&binary, options, &mut report)?;
    flood::measure(&binary, options, &mut report)?;
    throughput::measure(&binary, options, &mut report)?;
    match options.format {
        Format::Table => print!("{report}"),
        Format::Json => println!("{:#}", report.to_json()),
    }
    match report.broken().as_slice() {
        [] => Ok(()),
        broken => Err(format!(
            "{} promise(s) broken: {}",
            broken.len(),
            broken.join("; ")
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_read_and_unknown_ones_refused() {
        let options = Options::parse(&["--quick", "--json", "--unprivileged"]);
        let expected = Options {
            effort: Effort::Quick,
            format: Format::Json,
            privilege: Privilege::Dropped,
        };
        assert_eq!(options, Ok(expected));
        assert!(Options::parse(&["--fast"]).is_err());
    }
}
