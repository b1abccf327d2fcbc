//! The limits, each made to fire: what holds it, how exactly, and how the trial ended.

use std::time::Duration;

use cofferdam_contract::ending::{Ending, StopCause};
use cofferdam_contract::enforcement::{EnforcedBy, Enforcement, Enforcer, LimitName};
use cofferdam_contract::io_rates::IoRates;
use cofferdam_contract::limits::Limits;
use cofferdam_contract::request::Grant;
use cofferdam_contract::units::{Bytes, Cap, CpuShare};
use cofferdam_sys::cgroup::Hierarchy;

use super::facts::Facts;
use super::reasons;
use super::report::{Exactness, LimitFinding, Mark, Reason};
use super::trial::{self, Bench, Tried};
use crate::error::EngineError;
use crate::host::Host;
use crate::plan;

/// A limit that does not hold is given up on after the last of these. On a busy machine the first can be over before a program has come as far as its limit.
const PATIENCE: [Duration; 3] = [
    Duration::from_millis(250),
    Duration::from_secs(2),
    Duration::from_secs(8),
];
const SHORT: Duration = Duration::from_millis(30);
const SMALL_MEMORY: Bytes = Bytes::new(16 << 20);
const SMALL_OUTPUT: Bytes = Bytes::new(4 << 10);
const SMALL_DISK: Bytes = Bytes::new(1 << 20);
const FEW_PROCESSES: u64 = 4;
const FEW_FILES: u64 = 16;
/// The kernel hands out a share in periods of 100 ms, and the first and the last are cut.
const TWO_PERIODS: Duration = Duration::from_millis(200);
/// Half a CPU in three periods that two of them overlap is three quarters at most.
const NOT_A_WHOLE_CPU: f64 = 0.85;

/// One limit, set so low that the script runs into it.
struct Probe {
    limit: LimitName,
    case: Option<&'static str>,
    script: &'static str,
    set: fn(&mut Limits),
    /// How the trial shows that the limit held, in words; `None` when it did not.
    held: fn(&Tried) -> Option<String>,
}

const BUSY: &str = "while :; do :; done";

const PROBES: [Probe; 10] = [
    Probe {
        limit: LimitName::WallTime,
        case: None,
        script: BUSY,
        set: |limits| limits.wall_time = Cap::AtMost(SHORT),
        held: |tried| stopped(tried, |cause| matches!(cause, StopCause::WallTime { .. })),
    },
    Probe {
        limit: LimitName::CpuTime,
        case: None,
        script: BUSY,
        set: |limits| limits.cpu_time = Cap::AtMost(SHORT),
        held: |tried| stopped(tried, |cause| matches!(cause, StopCause::CpuTime { .. })),
    },
    Probe {
        limit: LimitName::Memory,
        case: None,
        script: "x=0123456789abcdef; while :; do x=$x$x; done",
        set: |limits| limits.memory = Cap::AtMost(SMALL_MEMORY),
        held: |tried| stopped(tried, |cause| matches!(cause, StopCause::Memory { .. })),
    },
    Probe {
        limit: LimitName::Output,
        case: None,
        script: "while :; do echo 0123456789abcdef; done",
        set: |limits| limits.output = Cap::AtMost(SMALL_OUTPUT),
        held: |tried| stopped(tried, |cause| matches!(cause, StopCause::Output { .. })),
    },
    Probe {
        limit: LimitName::Processes,
        case: None,
        script: "i=0; while [ $i -lt 8 ]; do (while :; do :; done) & i=$((i+1)); echo $i; done",
        set: |limits| limits.processes = Cap::AtMost(FEW_PROCESSES),
        // The shell itself is one of them.
        held: |tried| {
            let started = tried.record.stdout.data.lines().count() as u64;
            (started < FEW_PROCESSES).then(|| format!("process {} was refused", started + 2))
        },
    },
    Probe {
        limit: LimitName::Disk,
        case: None,
        script: "x=0123456789abcdef; x=$x$x$x$x; x=$x$x$x$x; x=$x$x$x$x; while echo $x; do :; done > /tmp/probe",
        set: |limits| limits.disk = Cap::AtMost(SMALL_DISK),
        held: |tried| stopped(tried, |cause| matches!(cause, StopCause::Disk { .. })),
    },
    Probe {
        limit: LimitName::OpenFiles,
        case: None,
        script: "ulimit -n",
        set: |limits| limits.open_files = Cap::AtMost(FEW_FILES),
        held: |tried| {
            let seen = tried.record.stdout.data.trim();
            (seen == FEW_FILES.to_string()).then(|| format!("{seen} inside"))
        },
    },
    Probe {
        limit: LimitName::Cpus,
        case: Some("whole"),
        script: SEE_CPUS,
        set: |limits| limits.cpus = CpuShare::from_milli(1000).map_or(Cap::Unlimited, Cap::AtMost),
        held: one_cpu_seen,
    },
    Probe {
        limit: LimitName::Cpus,
        case: Some("fractional"),
        script: BUSY,
        set: |limits| {
            limits.cpus = CpuShare::from_milli(500).map_or(Cap::Unlimited, Cap::AtMost);
            limits.wall_time = Cap::AtMost(TWO_PERIODS);
        },
        held: |tried| {
            let usage = &tried.record.usage;
            let share = usage.cpu_ms / usage.wall_ms;
            (share < NOT_A_WHOLE_CPU)
                .then(|| format!("a busy loop got {:.0} % of a CPU", share * 100.0))
        },
    },
    Probe {
        limit: LimitName::DiskIo,
        case: None,
        script: ":",
        set: |limits| {
            limits.disk_io = Cap::AtMost(IoRates {
                read_bps: Some(SLOW),
                ..IoRates::EMPTY
            });
        },
        // How fast a disk is would take too long to try; that the kernel took the rate is what is known.
        held: |tried| {
            let by = tried.record.enforced_by.get(&LimitName::DiskIo);
            by.map(|by| match by.0.as_slice() {
                [Enforcer::Cgroup1] => {
                    "reads and direct writes; what is written through the page cache is not held"
                        .to_owned()
                }
                _ => "reads and writes".to_owned(),
            })
        },
    },
];

const SLOW: u64 = 1 << 30;

const SEE_CPUS: &str = "read -r cpus < /sys/devices/system/cpu/online; echo $cpus";

fn one_cpu_seen(tried: &Tried) -> Option<String> {
    (tried.record.stdout.data.trim() == "0").then(|| "1 CPU seen inside".to_owned())
}

fn stopped(tried: &Tried, by: impl Fn(&StopCause) -> bool) -> Option<String> {
    match &tried.record.ending {
        Ending::Stopped(cause) if by(cause) => {
            let after = format!("{:.0} ms", tried.record.usage.wall_ms);
            Some(format!("{} after {after}", cause.reason()))
        }
        _ => None,
    }
}

/// All limits. Without a shell that could run into them, what the plan says has to do.
pub(super) fn find(bench: &Bench<'_>, facts: &Facts, can_try: bool) -> Vec<LimitFinding> {
    PROBES
        .iter()
        .map(|probe| probe.find(bench, facts, can_try))
        .collect()
}

impl Probe {
    fn find(&self, bench: &Bench<'_>, facts: &Facts, can_try: bool) -> LimitFinding {
        if !can_try {
            return match self.planned(bench.host) {
                Ok(enforcement) => self.untried(enforcement),
                Err(error) => self.refused(&error, bench.host, facts),
            };
        }
        let mut patience = PATIENCE.into_iter();
        loop {
            let time = patience.next().unwrap_or_default();
            match bench.with_limits(self.script, self.set, time) {
                Ok(tried) if self.came_too_late(&tried) && patience.len() > 0 => {}
                Ok(tried) => return self.judge(&tried, bench.host, facts),
                Err(error) => return self.refused(&error, bench.host, facts),
            }
        }
    }

    /// Whether it was over before the limit was met, which says nothing of the limit.
    fn came_too_late(&self, tried: &Tried) -> bool {
        let is_over = |cause: &StopCause| matches!(cause, StopCause::WallTime { .. });
        (self.held)(tried).is_none() && stopped(tried, is_over).is_some()
    }

    fn planned(&self, host: &Host) -> Result<Enforcement, EngineError> {
        let mut limits = Limits::STREAMING;
        (self.set)(&mut limits);
        let plan = plan::plan(
            Grant::new(trial::request("", limits))?,
            host,
            plan::Evidence::Ending,
            plan::Channel::None,
        )?;
        Ok(plan.terms.enforced_by)
    }

    fn judge(&self, tried: &Tried, host: &Host, facts: &Facts) -> LimitFinding {
        let by = tried.record.enforced_by.get(&self.limit).cloned();
        let exactness = exactness(self.limit, by.as_ref());
        let held = (self.held)(tried);
        let mark = match (&held, exactness) {
            (None, _) | (_, Exactness::Unheld) => Mark::Missing,
            (Some(_), Exactness::Sampled) => Mark::Weaker,
            (Some(_), Exactness::Kernel | Exactness::Counted) => Mark::Ok,
        };
        let reason = match (&held, mark) {
            (_, Mark::Ok) => None,
            (Some(_), _) => Some(improve(host, facts)),
            (None, _) => Some(Reason::without_fix(format!(
                "the trial did not run into it: {}",
                tried.ending_in_words()
            ))),
        };
        let found = held.unwrap_or_else(|| "did not hold".to_owned());
        self.finding(mark, by, exactness, found, reason)
    }

    fn untried(&self, mut enforcement: Enforcement) -> LimitFinding {
        let by = enforcement.remove(&self.limit);
        let exactness = exactness(self.limit, by.as_ref());
        let reason = Reason::without_fix("no program could be run to try it");
        self.finding(
            Mark::Missing,
            by,
            exactness,
            "not tried".to_owned(),
            Some(reason),
        )
    }

    /// A limit that cannot be held refuses the run, so nothing runs without it.
    fn refused(&self, error: &EngineError, host: &Host, facts: &Facts) -> LimitFinding {
        let reason = match error {
            EngineError::Unenforceable { why, .. } => Reason {
                why: why.clone(),
                ..improve(host, facts)
            },
            other => Reason::without_fix(other.to_string()),
        };
        self.finding(
            Mark::Missing,
            None,
            Exactness::Unheld,
            "a run that asks for it is refused".to_owned(),
            Some(reason),
        )
    }

    fn finding(
        &self,
        mark: Mark,
        enforced_by: Option<EnforcedBy>,
        exactness: Exactness,
        found: String,
        reason: Option<Reason>,
    ) -> LimitFinding {
        let (why, fix) = reason.map_or((None, None), |reason| (Some(reason.why), reason.fix));
        LimitFinding {
            limit: self.limit,
            case: self.case,
            mark,
            enforced_by,
            exactness,
            found,
            why,
            fix,
        }
    }
}

/// What a control group would be needed for.
fn improve(host: &Host, facts: &Facts) -> Reason {
    let why = "without a control group it is looked at every 10 ms and can be overshot in between";
    match &host.cgroups {
        Hierarchy::None { .. } => reasons::control_group(why.to_owned(), facts),
        Hierarchy::V1(_) | Hierarchy::V2(_) if !host.cgroups.controllers().cpu => {
            reasons::cpu_controller(facts)
        }
        Hierarchy::V1(_) | Hierarchy::V2(_) => reasons::control_group(why.to_owned(), facts),
    }
}

/// The weakest of what holds a limit says how exactly it is held.
fn exactness(limit: LimitName, by: Option<&EnforcedBy>) -> Exactness {
    let Some(EnforcedBy(by)) = by else {
        return Exactness::Unheld;
    };
    let one = |enforcer: &Enforcer| match (enforcer, limit) {
        (Enforcer::Waived | Enforcer::Unlimited, _) => Exactness::Unheld,
        (Enforcer::Poll, _) => Exactness::Sampled,
        // The kernel counts CPU time for the group and stops nobody for it.
        (Enforcer::Supervisor, _) | (Enforcer::Cgroup1 | Enforcer::Cgroup2, LimitName::CpuTime) => {
            Exactness::Counted
        }
        (Enforcer::WasmEpoch, _) => Exactness::Sampled,
        (
            Enforcer::WasmFuel | Enforcer::WasmMemory | Enforcer::WasmTable | Enforcer::WasmAbsent,
            _,
        ) => Exactness::Counted,
        (
            Enforcer::Cgroup1
            | Enforcer::Cgroup1Direct
            | Enforcer::Cgroup2
            | Enforcer::Rlimit
            | Enforcer::Tmpfs
            | Enforcer::Docker
            | Enforcer::Affinity,
            _,
        ) => Exactness::Kernel,
    };
    let weakness = |exactness: &Exactness| match exactness {
        Exactness::Kernel => 0,
        Exactness::Counted => 1,
        Exactness::Sampled => 2,
        Exactness::Unheld => 3,
    };
    by.iter()
        .map(one)
        .max_by_key(weakness)
        .unwrap_or(Exactness::Unheld)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_weakest_part_decides_how_exactly_a_limit_is_held() {
        let of = |limit, text: &str| exactness(limit, Some(&text.parse().unwrap()));
        assert_eq!(of(LimitName::Memory, "cgroup2"), Exactness::Kernel);
        assert_eq!(of(LimitName::CpuTime, "cgroup2"), Exactness::Counted);
        assert_eq!(of(LimitName::Disk, "tmpfs+rlimit+poll"), Exactness::Sampled);
        assert_eq!(of(LimitName::Disk, "tmpfs+rlimit"), Exactness::Kernel);
        assert_eq!(of(LimitName::Cpus, "waived"), Exactness::Unheld);
        assert_eq!(exactness(LimitName::Cpus, None), Exactness::Unheld);
    }

    #[test]
    fn every_limit_is_tried() {
        for limit in LimitName::ALL {
            assert!(PROBES.iter().any(|probe| probe.limit == limit), "{limit}");
        }
    }
}
