//! The kernel's resource limits of a run: what every process of it inherits. Never more than the caller's own.

use std::time::Duration;

use cofferdam_contract::enforcement::{Enforcer, LimitName};
use cofferdam_contract::request::{BackendName, Request};
use cofferdam_contract::units::Cap;
use rustix::process::Resource;

use crate::bubblewrap;
use crate::plan::Means;

/// A process that escapes the supervisor's attention still meets this, one second after the limit.
const CPU_BACKSTOP: Duration = Duration::from_secs(1);

pub(crate) fn rlimits(request: &Request, means: &Means) -> Vec<(Resource, u64)> {
    let count_processes = means.hold(LimitName::Processes, Enforcer::Rlimit);
    let limits = &request.limits;
    let mut set = vec![(Resource::Core, 0)];
    let mut lower = |resource: Resource, value: u64| set.push(lowered(resource, value));
    if let Cap::AtMost(files) = limits.open_files {
        lower(Resource::Nofile, files);
    }
    if let Cap::AtMost(disk) = limits.disk {
        lower(Resource::Fsize, disk.get());
    }
    if let Cap::AtMost(cpu) = limits.cpu_time {
        let seconds = (cpu + CPU_BACKSTOP).as_secs() + u64::from(cpu.subsec_nanos() > 0);
        lower(Resource::Cpu, seconds);
    }
    if let (Cap::AtMost(processes), true) = (limits.processes, count_processes) {
        // Init is the namespace's first process; of bwrap's, one is outside.
        let others = match request.backend {
            BackendName::Bubblewrap => bubblewrap::TOOL_PROCESSES.saturating_sub(1),
            BackendName::Native
            | BackendName::Gvisor
            | BackendName::Host
            | BackendName::Wasm
            | BackendName::Docker => 1,
        };
        lower(Resource::Nproc, processes.saturating_add(others));
    }
    set
}

/// The caller's would shape a program's memory, or be told to it.
pub(crate) const FIXED_RLIMITS: [(Resource, u64); 4] = [
    (Resource::Stack, 8 << 20),
    (Resource::Memlock, 64 << 10),
    (Resource::Sigpending, 1024),
    (Resource::Msgqueue, 819_200),
];

/// No more than the caller itself has.
pub(crate) fn lowered(resource: Resource, value: u64) -> (Resource, u64) {
    let ceiling = rustix::process::getrlimit(resource).maximum;
    (
        resource,
        ceiling.map_or(value, |ceiling| value.min(ceiling)),
    )
}
