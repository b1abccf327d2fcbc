//! `cofferdam doctor`: shows what the engine found out about this host. It finds out nothing itself.

use std::fmt::Write as _;
use std::os::fd::{AsFd, OwnedFd};
use std::process::ExitCode;

use cofferdam_contract::codes;
use cofferdam_contract::request::BackendName;
use cofferdam_engine::doctor::{self, Exactness, Finding, LimitFinding, Mark, NotGiven, Report};
use cofferdam_engine::host::Host;
use rustix::event::{PollFd, PollFlags, Timespec};
use serde::Serialize;

use crate::arguments::{ContainerArgs, DoctorArgs, Places};
use crate::containers;
use crate::failure::{self, Failure};
use crate::seal::pretty;
use crate::terminal::colour::{Colour, Paint, When};
use crate::terminal::size::Target;
use crate::terminal::waiting::Waiting;

pub(crate) fn doctor(args: &DoctorArgs, places: Places) -> Result<ExitCode, Failure> {
    // Ctrl-C ends the trial at hand and not us, so that nothing of it stays behind.
    let cancel = cofferdam_engine::cancel_on_signals()?;
    let waiting = Waiting::on("trying what works here");
    let docker = daemon(places);
    let report = doctor::examine(&Host::detect(), Some(cancel.as_fd()));
    drop(waiting);
    if is_readable(&cancel) {
        // What was cut short says nothing about the host.
        return Ok(ExitCode::from(codes::EXIT_CANCELED));
    }
    let text = if args.json {
        pretty(&Whole {
            report: &report,
            docker: &docker,
        })?
    } else {
        table(&report, &docker, Paint::of(When::Auto, Target::of_stdout()))
    };
    failure::print(&text)?;
    Ok(if report.works {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// What is printed as JSON.
#[derive(Serialize)]
struct Whole<'a> {
    #[serde(flatten)]
    report: &'a Report,
    docker: &'a Finding,
}

/// Whether a container daemon answers. Nothing here needs one, so that none is no defect.
fn daemon(places: Places) -> Finding {
    let args = ContainerArgs::default();
    match containers::load(&places, BackendName::Docker, &args) {
        Ok((settings, _)) => containers::examine(&settings),
        Err(_) => containers::missing(
            "what the configuration or DOCKER_HOST says about it cannot be used".to_owned(),
            "`cofferdam images list` tells what is wrong".to_owned(),
        ),
    }
}

fn is_readable(cancel: &OwnedFd) -> bool {
    let mut fds = [PollFd::new(cancel, PollFlags::IN)];
    let now = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    rustix::event::poll(&mut fds, Some(&now)).is_ok_and(|ready| ready > 0)
}

/// Padded first: the codes have no width.
fn marked(mark: Mark, paint: Paint) -> String {
    let (word, colour) = match mark {
        Mark::Ok => ("ok", Colour::Green),
        Mark::Weaker => ("weaker", Colour::Yellow),
        Mark::Missing => ("missing", Colour::Red),
    };
    paint.paint(colour, &format!("{word:7}"))
}

/// A line of the table, and what stands below it when something is lacking.
struct Row {
    mark: Mark,
    columns: Vec<String>,
    why: Option<String>,
    fix: Option<String>,
}

fn table(report: &Report, docker: &Finding, paint: Paint) -> String {
    let host = &report.host;
    let mut text = format!(
        "Linux {} on {}, {} CPUs, uid {} ({})",
        host.kernel, host.machine, host.cpus, host.uid, host.privilege
    );
    if let Some(container) = host.container {
        let _ = write!(text, ", in a container ({container})");
    }
    text.push_str("\n\n");
    let mut rows: Vec<Row> = std::iter::once(&report.run)
        .chain(&report.layers)
        .map(layer_row)
        .collect();
    section(&mut text, "ISOLATION", &mut rows, paint);
    text.push('\n');
    let mut rows: Vec<Row> = report.limits.iter().map(limit_row).collect();
    section(&mut text, "LIMITS", &mut rows, paint);
    text.push('\n');
    let backends = report.backends.iter().chain([docker]);
    let mut rows: Vec<Row> = backends.map(layer_row).collect();
    section(&mut text, "OTHER BACKENDS", &mut rows, paint);
    if !report.not_given.is_empty() {
        text.push_str("\nNOT PROMISED\n");
    }
    for NotGiven {
        backend,
        promise,
        why,
    } in &report.not_given
    {
        let _ = writeln!(text, "  {backend:10}  {promise}: {why}");
    }
    let sum = if report.works {
        "`cofferdam run` works here with its defaults."
    } else {
        "`cofferdam run` does not work here."
    };
    let _ = writeln!(text, "\n{sum}");
    text
}

fn layer_row(finding: &Finding) -> Row {
    Row {
        mark: finding.mark,
        columns: vec![finding.name.to_owned(), finding.found.clone()],
        why: finding.why.clone(),
        fix: finding.fix.clone(),
    }
}

fn limit_row(finding: &LimitFinding) -> Row {
    let name = match finding.case {
        Some(case) => format!("{} ({case})", finding.limit),
        None => finding.limit.to_string(),
    };
    let by = finding
        .enforced_by
        .as_ref()
        .map_or_else(|| "-".to_owned(), ToString::to_string);
    let exactness = match finding.exactness {
        Exactness::Kernel => "exact, by the kernel",
        Exactness::Counted => "counted",
        Exactness::Sampled => "sampled",
        Exactness::Unheld => "not held",
    };
    Row {
        mark: finding.mark,
        columns: vec![name, by, exactness.to_owned(), finding.found.clone()],
        why: finding.why.clone(),
        fix: finding.fix.clone(),
    }
}

/// Aligned columns; the reason and the fix stand below the line that they are about.
fn section(text: &mut String, title: &str, rows: &mut [Row], paint: Paint) {
    let _ = writeln!(text, "{title}");
    let columns = rows.first().map_or(0, |row| row.columns.len());
    // The last column ends the line and needs no padding.
    for column in 0..columns.saturating_sub(1) {
        let width = rows
            .iter()
            .map(|row| row.columns[column].chars().count())
            .max()
            .unwrap_or(0);
        for row in rows.iter_mut() {
            let cell = &mut row.columns[column];
            *cell = format!("{cell:width$}");
        }
    }
    for row in rows {
        let mark = marked(row.mark, paint);
        let _ = writeln!(text, "  {mark}  {}", row.columns.join("  ").trim_end());
        for (label, note) in [("why", &row.why), ("fix", &row.fix)] {
            if let Some(note) = note {
                let _ = writeln!(text, "           {label}: {note}");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use cofferdam_contract::enforcement::LimitName;
    use cofferdam_engine::doctor::About;

    use super::*;

    fn sample() -> Report {
        let run = Finding {
            name: "cofferdam run",
            mark: Mark::Ok,
            found: "works".to_owned(),
            why: None,
            fix: None,
        };
        let proc = Finding {
            name: "own /proc",
            mark: Mark::Weaker,
            found: "absent".to_owned(),
            why: Some("covered".to_owned()),
            fix: Some("docker run …".to_owned()),
        };
        let memory = LimitFinding {
            limit: LimitName::Memory,
            case: None,
            mark: Mark::Ok,
            enforced_by: "cgroup2".parse().ok(),
            exactness: Exactness::Kernel,
            found: "stopped".to_owned(),
            why: None,
            fix: None,
        };
        let cpus = LimitFinding {
            limit: LimitName::Cpus,
            case: Some("fractional"),
            mark: Mark::Missing,
            enforced_by: None,
            exactness: Exactness::Unheld,
            ..memory.clone()
        };
        Report {
            schema: Report::SCHEMA,
            works: true,
            host: About {
                kernel: "6.1.0".to_owned(),
                machine: "x86_64".to_owned(),
                uid: 1000,
                privilege: "user",
                container: None,
                cpus: 4,
            },
            run,
            layers: vec![proc],
            limits: vec![memory, cpus],
            backends: vec![Finding {
                name: "bubblewrap",
                mark: Mark::Missing,
                found: "-".to_owned(),
                why: Some("there is no `bwrap`".to_owned()),
                fix: None,
            }],
            not_given: vec![NotGiven {
                backend: "docker",
                promise: "refusals are recorded",
                why: "nobody listens",
            }],
            took_ms: 1.0,
        }
    }

    fn docker() -> Finding {
        Finding {
            name: "docker",
            mark: Mark::Ok,
            found: "20.10".to_owned(),
            why: None,
            fix: None,
        }
    }

    #[test]
    fn the_table_is_aligned_and_says_why_below_the_line() {
        let expected = "\
Linux 6.1.0 on x86_64, 4 CPUs, uid 1000 (user)

ISOLATION
  ok       cofferdam run  works
  weaker   own /proc      absent
           why: covered
           fix: docker run …

LIMITS
  ok       memory             cgroup2  exact, by the kernel  stopped
  missing  cpus (fractional)  -        not held              stopped

OTHER BACKENDS
  missing  bubblewrap  -
           why: there is no `bwrap`
  ok       docker      20.10

NOT PROMISED
  docker      refusals are recorded: nobody listens

`cofferdam run` works here with its defaults.
";
        assert_eq!(table(&sample(), &docker(), Paint::Plain), expected);
    }

    #[test]
    fn colour_changes_nothing_but_the_marks() {
        let plain = table(&sample(), &docker(), Paint::Plain);
        let mut coloured = table(&sample(), &docker(), Paint::Colour);
        for code in ["\u{1b}[31m", "\u{1b}[32m", "\u{1b}[33m", "\u{1b}[0m"] {
            assert!(coloured.contains(code));
            coloured = coloured.replace(code, "");
        }
        assert_eq!(coloured, plain);
    }
}
