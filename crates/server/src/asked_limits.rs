//! The limits that a client asks for, on top of the defaults, and which of them this daemon does not give.

use std::time::Duration;

use cofferdam_contract::limits::Limits;
use cofferdam_contract::problem::Problem;
use cofferdam_contract::units::{Bytes, Cap, CpuShare};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::ceilings::{Named, lowered};
use crate::config::RunBounds;

/// Limits that differ from the daemon's defaults.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct LimitsRequest {
    pub(crate) wall_time_ms: Option<u64>,
    pub(crate) cpu_time_ms: Option<u64>,
    pub(crate) memory_bytes: Option<u64>,
    /// Of stdout and stderr together.
    pub(crate) output_bytes: Option<u64>,
    pub(crate) processes: Option<u64>,
    pub(crate) disk_bytes: Option<u64>,
    pub(crate) open_files: Option<u64>,
    /// Thousandths of a CPU.
    pub(crate) cpus_milli: Option<u32>,
}

impl LimitsRequest {
    fn named(&self) -> Named<'static> {
        Named {
            disk: ("limits.disk_bytes", self.disk_bytes),
            processes: ("limits.processes", self.processes),
            open_files: ("limits.open_files", self.open_files),
        }
    }

    /// Lowers what is above; what is not named stays.
    pub(crate) fn lower(&self, limits: &mut Limits) {
        fn lower<T: Copy + Ord>(limit: &mut Cap<T>, most: Option<T>) {
            *limit = most.map_or(*limit, |most| lowered(*limit, most));
        }
        lower(
            &mut limits.wall_time,
            self.wall_time_ms.map(Duration::from_millis),
        );
        lower(
            &mut limits.cpu_time,
            self.cpu_time_ms.map(Duration::from_millis),
        );
        lower(&mut limits.memory, self.memory_bytes.map(Bytes::new));
        lower(&mut limits.output, self.output_bytes.map(Bytes::new));
        lower(&mut limits.processes, self.processes);
        lower(&mut limits.disk, self.disk_bytes.map(Bytes::new));
        lower(&mut limits.open_files, self.open_files);
        lower(
            &mut limits.cpus,
            self.cpus_milli.and_then(CpuShare::from_milli),
        );
    }

    pub(crate) fn merged(
        &self,
        defaults: &Limits,
        bounds: &RunBounds,
        problems: &mut Vec<Problem>,
    ) -> Limits {
        let mut limits = defaults.clone();
        bounds.ceilings.lower(&mut limits);
        problems.extend(bounds.ceilings.problems(&self.named()));
        let bytes =
            |given: Option<u64>, default| given.map_or(default, |n| Cap::AtMost(Bytes::new(n)));
        let time = |given: Option<u64>, default| {
            given.map_or(default, |ms| Cap::AtMost(Duration::from_millis(ms)))
        };
        limits.wall_time = time(self.wall_time_ms, lowered(limits.wall_time, bounds.longest));
        limits.cpu_time = time(self.cpu_time_ms, limits.cpu_time);
        limits.memory = bytes(self.memory_bytes, limits.memory);
        limits.output = bytes(
            self.output_bytes,
            lowered(limits.output, bounds.largest_output),
        );
        limits.disk = bytes(self.disk_bytes, limits.disk);
        limits.processes = self.processes.map_or(limits.processes, Cap::AtMost);
        limits.open_files = self.open_files.map_or(limits.open_files, Cap::AtMost);
        if let Some(milli) = self.cpus_milli {
            match CpuShare::from_milli(milli) {
                Some(share) => limits.cpus = Cap::AtMost(share),
                None => {
                    let fix = "is too small; ask for at least 1, a thousandth of a CPU";
                    problems.push(Problem::new("limits.cpus_milli", milli, fix));
                }
            }
        }
        if limits
            .wall_time
            .at_most()
            .is_none_or(|time| time > bounds.longest)
        {
            let most = bounds.longest.as_millis();
            let fix = format!("is more than this daemon allows; ask for at most {most}");
            let asked = self.wall_time_ms.unwrap_or_default();
            problems.push(Problem::new("limits.wall_time_ms", asked, fix));
        }
        if limits
            .output
            .at_most()
            .is_none_or(|size| size > bounds.largest_output)
        {
            let most = bounds.largest_output.get();
            let fix = format!(
                "is more than this daemon keeps; ask for at most {most}, and leave larger results in the workspace"
            );
            let asked = self.output_bytes.unwrap_or_default();
            problems.push(Problem::new("limits.output_bytes", asked, fix));
        }
        problems.extend(limits.problems().into_iter().map(|problem| Problem {
            field: format!("limits.{}", problem.field),
            ..problem
        }));
        limits
    }
}
