//! The supervisor's peak memory, from the kernel's own account of a reaped process.
//!
//! The kernel reports the largest of: the supervisor, the descendants that it reaped, and this program at the moment it started the
//! supervisor. So the figure is an upper bound, which is what a promise needs; the floor is measured with a bare process and shown.

use wait4::Wait4;

use super::Options;
use super::contestant::{Binary, Contestant};
use super::report::Report;

const PROMISED_MB: f64 = 12.0;
const RUNS: usize = 5;

pub(super) fn measure(
    binary: &Binary,
    options: Options,
    report: &mut Report,
) -> Result<(), String> {
    eprintln!("peak memory");
    let floor = Contestant::new("bare", options.privilege, &["/usr/bin/true"]);
    report.figure(
        "peak memory, floor of the measurement",
        peak_mb(&floor)?,
        " MB",
    );
    let short = binary.run("cofferdam", options.privilege, &[], &["/usr/bin/true"]);
    report.promise(
        "peak memory of a run of /usr/bin/true",
        peak_mb(&short)?,
        PROMISED_MB,
        " MB",
    );
    let flags = ["--output-limit", "100m"];
    let loud = binary.run(
        "cofferdam",
        options.privilege,
        &flags,
        &["/usr/bin/head", "-c", "64M", "/dev/zero"],
    );
    report.promise(
        "peak memory of a run that writes 64 MiB",
        peak_mb(&loud)?,
        PROMISED_MB,
        " MB",
    );
    Ok(())
}

fn peak_mb(contestant: &Contestant) -> Result<f64, String> {
    contestant.try_once()?;
    let mut peak = 0.0_f64;
    for _ in 0..RUNS {
        let failed = |error: std::io::Error| format!("{}: {error}", contestant.name);
        let used = contestant
            .command()
            .spawn()
            .map_err(failed)?
            .wait4()
            .map_err(failed)?;
        if !used.status.success() {
            return Err(format!(
                "{} ended with {} while it was measured",
                contestant.name, used.status
            ));
        }
        peak = peak.max(megabytes(used.rusage.maxrss));
    }
    Ok(peak)
}

#[allow(
    clippy::cast_precision_loss,
    reason = "a size in MB for reading; a double holds it far beyond any real size"
)]
fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}
