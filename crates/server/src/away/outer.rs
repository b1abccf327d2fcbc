//! What a run may use in all, whichever of its parts its record is about: the bounds that are sealed for the fleet.

use std::time::Duration;

use cofferdam_contract::limits::Limits;

use crate::work::{CommandTask, Task, Work};

/// The most that the record of a run can say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OuterLimits {
    pub(crate) wall_time: Duration,
    pub(crate) cpu_time: Duration,
    pub(crate) memory_bytes: u64,
    pub(crate) output_bytes: u64,
}

/// For what has no limit, and for projects, whose steps add up.
const LONG: Duration = Duration::from_secs(24 * 3600);
const LONG_CPU: Duration = Duration::from_secs(256 * 24 * 3600);
const MUCH_MEMORY: u64 = 1 << 40;
const MUCH_OUTPUT: u64 = 1 << 30;

impl Task {
    /// Of the step before the run, where there is one.
    pub(crate) fn compile_limits(&self) -> Option<&Limits> {
        match self {
            Self::Command(task) => task.compile.as_ref().map(|step| &step.limits),
            Self::Payload(_) | Self::Project(_) => None,
        }
    }
}

impl Work {
    pub(crate) fn outer_limits(&self) -> OuterLimits {
        let own = of(&self.limits);
        match &self.task {
            Task::Payload(_) => own,
            Task::Project(_) => OuterLimits {
                wall_time: LONG,
                cpu_time: LONG_CPU,
                ..own
            },
            Task::Command(task) => with_parts(own, task),
        }
    }
}

fn with_parts(own: OuterLimits, task: &CommandTask) -> OuterLimits {
    let mut most = own;
    if let Some(inputs) = &task.inputs {
        let each = inputs.each.iter().map(|input| of(&input.limits));
        most = each.fold(
            OuterLimits {
                wall_time: Duration::ZERO,
                cpu_time: Duration::ZERO,
                memory_bytes: 0,
                output_bytes: inputs.output.get(),
            },
            |sum, one| OuterLimits {
                wall_time: sum.wall_time.saturating_add(one.wall_time),
                cpu_time: sum.cpu_time.saturating_add(one.cpu_time),
                memory_bytes: sum.memory_bytes.max(one.memory_bytes),
                ..sum
            },
        );
    }
    // What did not compile has the record of its compile step.
    if let Some(step) = &task.compile {
        let step = of(&step.limits);
        most = OuterLimits {
            wall_time: most.wall_time.max(step.wall_time),
            cpu_time: most.cpu_time.max(step.cpu_time),
            memory_bytes: most.memory_bytes.max(step.memory_bytes),
            output_bytes: most.output_bytes.max(step.output_bytes),
        };
    }
    OuterLimits {
        wall_time: most.wall_time.min(LONG),
        cpu_time: most.cpu_time.min(LONG_CPU),
        ..most
    }
}

fn of(limits: &Limits) -> OuterLimits {
    OuterLimits {
        wall_time: limits.wall_time.at_most().unwrap_or(LONG),
        cpu_time: limits.cpu_time.at_most().unwrap_or(LONG_CPU),
        memory_bytes: limits
            .memory
            .at_most()
            .map_or(MUCH_MEMORY, |most| most.get()),
        output_bytes: limits
            .output
            .at_most()
            .map_or(MUCH_OUTPUT, |most| most.get()),
    }
}
