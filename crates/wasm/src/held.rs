//! Which limit is held by what in this backend. One that it cannot hold refuses the run, unless it was waived by name.

use cofferdam_contract::enforcement::{EnforcedBy, Enforcement, Enforcer, LimitName};
use cofferdam_contract::request::{MountAccess, Request, WorkspaceAccess};
use cofferdam_contract::units::{Cap, CpuShare};
use cofferdam_engine::error::EngineError;

use crate::settings::Determinism;

/// A program here is one thread.
const ONE_CPU: u32 = 1000;

pub(crate) fn enforcement(
    request: &Request,
    determinism: Determinism,
) -> Result<Enforcement, EngineError> {
    let limits = &request.limits;
    let cpu_time = match determinism {
        Determinism::Off => Enforcer::WasmEpoch,
        Determinism::Exact { .. } => Enforcer::WasmFuel,
    };
    let disk = if can_write(request) {
        Enforcer::Poll
    } else {
        Enforcer::WasmAbsent
    };
    let held = [
        (
            LimitName::WallTime,
            by(limits.wall_time, Enforcer::WasmEpoch),
        ),
        (LimitName::CpuTime, by(limits.cpu_time, cpu_time)),
        (LimitName::Memory, by(limits.memory, Enforcer::WasmMemory)),
        (LimitName::Output, by(limits.output, Enforcer::Supervisor)),
        (
            LimitName::Processes,
            by(limits.processes, Enforcer::WasmAbsent),
        ),
        (LimitName::Disk, by(limits.disk, disk)),
        (
            LimitName::OpenFiles,
            by(limits.open_files, Enforcer::WasmTable),
        ),
        (LimitName::Cpus, cpus(request)?),
        (LimitName::DiskIo, disk_io(request)?),
    ];
    Ok(held
        .into_iter()
        .map(|(limit, by)| (limit, EnforcedBy(vec![by])))
        .collect())
}

fn by<T: Copy>(cap: Cap<T>, enforcer: Enforcer) -> Enforcer {
    match cap {
        Cap::AtMost(_) => enforcer,
        Cap::Unlimited => Enforcer::Unlimited,
    }
}

fn cpus(request: &Request) -> Result<Enforcer, EngineError> {
    match request.limits.cpus.map(CpuShare::milli) {
        Cap::Unlimited => Ok(Enforcer::Unlimited),
        Cap::AtMost(milli) if milli >= ONE_CPU => Ok(Enforcer::WasmAbsent),
        Cap::AtMost(_) if request.waived.contains(&LimitName::Cpus) => Ok(Enforcer::Waived),
        Cap::AtMost(_) => Err(EngineError::Unenforceable {
            limit: LimitName::Cpus,
            why: "the wasm backend gives a program one CPU and cannot give it a part of one"
                .to_owned(),
            fix: "ask for 1 or more, or use --backend native".to_owned(),
        }),
    }
}

fn disk_io(request: &Request) -> Result<Enforcer, EngineError> {
    match request.limits.disk_io {
        Cap::Unlimited => Ok(Enforcer::Unlimited),
        Cap::AtMost(_) if request.waived.contains(&LimitName::DiskIo) => Ok(Enforcer::Waived),
        Cap::AtMost(_) => Err(EngineError::Unenforceable {
            limit: LimitName::DiskIo,
            why: "the wasm backend runs in this process, whose own use of disks is not bounded"
                .to_owned(),
            fix: "use --backend native".to_owned(),
        }),
    }
}

fn can_write(request: &Request) -> bool {
    let workspace = request.workspace.as_ref();
    workspace.is_some_and(|workspace| workspace.access != WorkspaceAccess::ReadOnly)
        || request
            .mounts
            .iter()
            .any(|mount| mount.access == MountAccess::ReadWrite)
}
