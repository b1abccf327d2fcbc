//! A program that writes without end must cost itself, not us: a gigabyte through `cofferdam run` against the same gigabyte through a
//! plain pipe.

use super::contestant::{Binary, Contestant};
use super::report::Report;
use super::stats::Stats;
use super::{Effort, Options};

/// Of the plain pipe's time, when everything above the limit is read and thrown away.
const PROMISED_RATIO: f64 = 3.0;

pub(super) fn measure(
    binary: &Binary,
    options: Options,
    report: &mut Report,
) -> Result<(), String> {
    let rounds = match options.effort {
        Effort::Quick => 3,
        Effort::Full => 7,
    };
    eprintln!("output flood, {rounds} rounds");
    let flood = ["/usr/bin/head", "-c", "1G", "/dev/zero"];
    let pipe = [
        "/bin/sh",
        "-c",
        "/usr/bin/head -c 1G /dev/zero | /usr/bin/cat > /dev/null",
    ];
    let plain = Contestant::new("pipe", options.privilege, &pipe);
    let discard = ["--output-limit", "100k", "--on-output-limit", "discard"];
    let discards = binary.run("cofferdam", options.privilege, &discard, &flood);
    let stops = binary.run(
        "cofferdam",
        options.privilege,
        &["--output-limit", "100k"],
        &flood,
    );
    plain.try_once()?;
    discards.try_once()?;

    let mut times = [const { Vec::new() }; 3];
    for _ in 0..rounds {
        let [plain_times, discard_times, stop_times] = &mut times;
        plain_times.push(plain.time_success()?);
        discard_times.push(discards.time_success()?);
        let (time, status) = stops.time()?;
        if status.success() {
            return Err("a run that wrote a gigabyte past a limit of 100k ended well; it should have been stopped".to_owned());
        }
        stop_times.push(time);
    }
    let [plain, discards, stops] =
        times.map(|times| Stats::of(times).map_or(f64::NAN, |stats| stats.p50_ms));
    report.figure("1 GiB through a plain pipe, p50", plain, " ms");
    report.figure(
        "1 GiB past an output limit of 100k, discarded, p50",
        discards,
        " ms",
    );
    report.figure("the same, stopped at the limit, p50", stops, " ms");
    report.promise(
        "1 GiB discarded, as a multiple of the plain pipe",
        discards / plain,
        PROMISED_RATIO,
        "",
    );
    Ok(())
}
