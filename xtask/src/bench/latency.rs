//! How long one run takes, back to back and with pauses. The pauses matter: some kernel paths are fast only while they are busy, and
//! a tight loop hides it.

use std::thread::sleep;
use std::time::Duration;

use super::contestant::{Binary, Contestant};
use super::report::{Latency, Report};
use super::stats::Stats;
use super::{Effort, Options};

/// Of bubblewrap's time, at every pace.
const PROMISED_RATIO: f64 = 0.6;
const WARM_UP: usize = 5;

pub(super) fn measure(
    binary: &Binary,
    options: Options,
    report: &mut Report,
) -> Result<(), String> {
    let paces: &[(u64, usize)] = match options.effort {
        Effort::Quick => &[(0, 100), (50, 30)],
        Effort::Full => &[(0, 400), (1, 200), (20, 100), (50, 100), (100, 50)],
    };
    for &(pause_ms, rounds) in paces {
        eprintln!("/usr/bin/true, {rounds} rounds with pauses of {pause_ms} ms");
        let contestants = binary.contestants(&["/usr/bin/true"], options.privilege);
        let row = row("/usr/bin/true", pause_ms, rounds, &contestants)?;
        let what =
            format!("/usr/bin/true with pauses of {pause_ms} ms, p50 as a share of bubblewrap's");
        report.promise(what, row.to_bubblewrap(), PROMISED_RATIO, "");
        report.latency.push(row);
    }
    let rounds = match options.effort {
        Effort::Quick => 20,
        Effort::Full => 60,
    };
    eprintln!("python3 -c 'print(1)', {rounds} rounds");
    let contestants =
        binary.contestants(&["/usr/bin/python3", "-c", "print(1)"], options.privilege);
    report
        .latency
        .push(row("python3 -c 'print(1)'", 0, rounds, &contestants)?);
    Ok(())
}

fn row(
    program: &'static str,
    pause_ms: u64,
    rounds: usize,
    contestants: &[Contestant; 3],
) -> Result<Latency, String> {
    for contestant in contestants {
        contestant.try_once()?;
    }
    let [bare, bubblewrap, cofferdam] =
        interleaved(contestants, rounds, Duration::from_millis(pause_ms))?;
    Ok(Latency {
        program,
        pause_ms,
        bare,
        bubblewrap,
        cofferdam,
    })
}

/// Round-robin, so that whatever else the machine does hits every contestant alike.
fn interleaved(
    contestants: &[Contestant; 3],
    rounds: usize,
    pause: Duration,
) -> Result<[Stats; 3], String> {
    let mut times = [const { Vec::new() }; 3];
    for round in 0..WARM_UP + rounds {
        for (contestant, times) in contestants.iter().zip(&mut times) {
            sleep(pause);
            let time = contestant.time_success()?;
            if round >= WARM_UP {
                times.push(time);
            }
        }
    }
    let [bare, bubblewrap, cofferdam] =
        times.map(|times| Stats::of(times).ok_or_else(|| "no round was measured".to_owned()));
    Ok([bare?, bubblewrap?, cofferdam?])
}
