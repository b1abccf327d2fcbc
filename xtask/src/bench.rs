//! `cargo xtask bench`: our figures beside those of a bare process and of bubblewrap, measured in one interleaved run, and the
//! promises they must keep. Noise of the machine hits every contestant alike; a figure alone means little, a ratio does.

mod backends;
mod contestant;
mod daemon;
mod fleet;
mod flood;
mod history;
mod latency;
mod machine;
mod memory;
pub(crate) mod peers;
mod report;
pub(crate) mod scale;
mod stats;
mod throughput;
mod wasm;

use std::path::Path;
use std::time::Duration;

use contestant::{Binary, Privilege};
use report::Report;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Options {
    effort: Effort,
    format: Format,
    privilege: Privilege,
    subject: Subject,
    /// How long the daemon is loaded; as the effort says unless given.
    soak: Option<Duration>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Effort {
    Quick,
    Full,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Subject {
    Everything,
    /// A long soak needs none of the rest.
    Daemon,
    /// Programs in WebAssembly, which need no other binary.
    Wasm,
    /// Walls that others build.
    Backends,
    /// Many workers on one queue.
    Fleet,
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
            subject: Subject::Everything,
            soak: None,
        };
        let mut flags = flags.iter();
        while let Some(flag) = flags.next() {
            match *flag {
                "--quick" => options.effort = Effort::Quick,
                "--json" => options.format = Format::Json,
                "--unprivileged" => options.privilege = Privilege::Dropped,
                "--daemon" => options.subject = Subject::Daemon,
                "--wasm" => options.subject = Subject::Wasm,
                "--backends" => options.subject = Subject::Backends,
                "--fleet" => options.subject = Subject::Fleet,
                "--soak" => options.soak = Some(time(flags.next().copied().unwrap_or_default())?),
                other => {
                    return Err(format!(
                        "bench has no flag `{other}`; it has --quick, --json, --unprivileged, --daemon, --wasm, --backends, --fleet and --soak TIME"
                    ));
                }
            }
        }
        Ok(options)
    }

    fn soak(self) -> Duration {
        let usual = match self.effort {
            Effort::Quick => 20,
            Effort::Full => 120,
        };
        self.soak.unwrap_or(Duration::from_secs(usual))
    }
}

/// `90s` or `10m`.
fn time(text: &str) -> Result<Duration, String> {
    let units = [("s", 1), ("m", 60)];
    let seconds = units.into_iter().find_map(|(unit, seconds)| {
        let number: u64 = text.strip_suffix(unit)?.parse().ok()?;
        number.checked_mul(seconds).filter(|seconds| *seconds > 0)
    });
    let seconds =
        seconds.ok_or_else(|| format!("--soak: `{text}` is no time; write 90s or 10m"))?;
    Ok(Duration::from_secs(seconds))
}

/// Measures everything and prints it; fails when a promise is broken.
pub(crate) fn run(root: &Path, options: Options) -> Result<(), String> {
    let mut report = Report::new(options.privilege);
    if options.subject == Subject::Wasm {
        wasm::measure(root, options, &mut report)?;
    } else {
        measure_binary(root, options, &mut report)?;
    }
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

fn measure_binary(root: &Path, options: Options, report: &mut Report) -> Result<(), String> {
    let beside = match (options.subject, options.privilege) {
        (Subject::Everything | Subject::Backends, Privilege::Own) => &[backends::OVERHEAD][..],
        _ => &[],
    };
    let binary = Binary::build(root, beside)?;
    if options.subject == Subject::Backends {
        return backends::measure(&binary, options, report);
    }
    if options.subject == Subject::Fleet {
        return fleet::measure(&binary, options, report);
    }
    if options.subject == Subject::Everything {
        latency::measure(&binary, options, report)?;
        memory::measure(&binary, options, report)?;
        history::measure(&binary, options, report)?;
        flood::measure(&binary, options, report)?;
        throughput::measure(&binary, options, report)?;
        wasm::measure(root, options, report)?;
        backends::measure(&binary, options, report)?;
    }
    daemon::measure(root, &binary, options, report)
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
            subject: Subject::Everything,
            soak: None,
        };
        assert_eq!(options, Ok(expected));
        assert!(Options::parse(&["--fast"]).is_err());
        let long = Options::parse(&["--daemon", "--soak", "10m"]).map(Options::soak);
        assert_eq!(long, Ok(Duration::from_secs(600)));
        for bad in [&["--soak"][..], &["--soak", "10"], &["--soak", "0s"]] {
            assert!(Options::parse(bad).is_err());
        }
    }
}
