//! What our own part costs where others build the walls: the bubblewrap backend beside `bwrap` alone, and a container beside the calls that any container takes. In turns, in one run.

use std::fs;
use std::process::{Command, Stdio};

use serde_json::Value;

use super::contestant::{Beside, Binary, Contestant, Privilege};
use super::peers::Docker;
use super::report::Report;
use super::stats::Stats;
use super::{Effort, Options};
use crate::process::read;

/// Of the time of `bwrap` alone.
const PROMISED_OF_BUBBLEWRAP: f64 = 1.3;
/// Over the API's own minimum.
const PROMISED_OF_DOCKER_MS: f64 = 15.0;
const WARM_UP: usize = 5;
/// Measures a container beside the calls of the API.
pub(super) const OVERHEAD: Beside = Beside {
    package: "cofferdam-docker",
    example: "overhead",
};
const IMAGE: &str = "overhead";

pub(super) fn measure(
    binary: &Binary,
    options: Options,
    report: &mut Report,
) -> Result<(), String> {
    bubblewrap(binary, options, report)?;
    // The daemon is root's.
    match options.privilege {
        Privilege::Own => docker(binary, options, report),
        Privilege::Dropped => Ok(()),
    }
}

fn bubblewrap(binary: &Binary, options: Options, report: &mut Report) -> Result<(), String> {
    let rounds = match options.effort {
        Effort::Quick => 100,
        Effort::Full => 400,
    };
    eprintln!("the bubblewrap backend, {rounds} rounds");
    let program = ["/usr/bin/true"];
    let alone = Contestant::bubblewrap(options.privilege, &program);
    let flags = match options.privilege {
        Privilege::Own => &["--backend", "bubblewrap"][..],
        // Nothing holds memory there.
        Privilege::Dropped => &["--backend", "bubblewrap", "--waive", "memory"][..],
    };
    let ours = binary.run("cofferdam", options.privilege, flags, &program);
    let mut times = [const { Vec::new() }; 2];
    for contestant in [&alone, &ours] {
        contestant.try_once()?;
    }
    for round in 0..WARM_UP + rounds {
        if round % 50 == 0 {
            eprintln!("  {round} of {} done", WARM_UP + rounds);
        }
        for (contestant, times) in [&alone, &ours].into_iter().zip(&mut times) {
            let time = contestant.time_success()?;
            if round >= WARM_UP {
                times.push(time);
            }
        }
    }
    let [alone, ours] = times.map(|times| Stats::of(times).map_or(f64::NAN, |all| all.p50_ms));
    report.figure("bwrap alone, /usr/bin/true, p50", alone, " ms");
    report.figure("the bubblewrap backend, the same, p50", ours, " ms");
    report.promise(
        "the bubblewrap backend, p50 as a share of bwrap's alone",
        ours / alone,
        PROMISED_OF_BUBBLEWRAP,
        "",
    );
    Ok(())
}

fn docker(binary: &Binary, options: Options, report: &mut Report) -> Result<(), String> {
    let rounds = match options.effort {
        Effort::Quick => "20",
        Effort::Full => "100",
    };
    eprintln!("containers, {rounds} rounds");
    let dir = binary.directory("containers")?;
    let daemon = Docker::start(&dir)?;
    let image = dir.join("overhead");
    let failed = |error: std::io::Error| format!("{}: {error}", image.display());
    fs::create_dir_all(image.join("bin")).map_err(failed)?;
    fs::create_dir_all(image.join("tmp")).map_err(failed)?;
    fs::copy("/usr/bin/busybox", image.join("bin/true")).map_err(failed)?;
    daemon.import(&image, IMAGE)?;
    let printed = read(
        Command::new(binary.example(OVERHEAD.example))
            .args([IMAGE, rounds])
            .env("DOCKER_HOST", daemon.host())
            // How far it is.
            .stderr(Stdio::inherit()),
    )?;
    let figures: Value =
        serde_json::from_str(&printed).map_err(|error| format!("example overhead: {error}"))?;
    let figure = |name: &str| {
        let value = figures.get(name).and_then(Value::as_f64);
        value.ok_or_else(|| format!("example overhead: no figure `{name}` in {figures}"))
    };
    report.figure(
        "a container by the API alone, p50",
        figure("minimum_p50_ms")?,
        " ms",
    );
    report.figure("a run in a container, p50", figure("run_p50_ms")?, " ms");
    report.promise(
        "what a run adds to the API's minimum, p50 between neighbours",
        figure("paired_p50_ms")?,
        PROMISED_OF_DOCKER_MS,
        " ms",
    );
    Ok(())
}
