//! From a grant to a plan: what will be built, which limit is held by what, and the refusal of a limit that nothing here can hold.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::time::Duration;

use cofferdam_contract::enforcement::{EnforcedBy, Enforcement, Enforcer, LimitName};
use cofferdam_contract::request::{
    BackendName, Grant, MountAccess, Request, Workspace, WorkspaceAccess,
};
use cofferdam_contract::units::{Bytes, Cap};
use cofferdam_sys::blueprint::{Blueprint, Isolation, Routes};
use cofferdam_sys::cgroup::{Bounds, Hierarchy};
use cofferdam_sys::landlock::Rules;
use cofferdam_sys::program::Program;
use cofferdam_sys::protocol::RESULT_FD;
use cofferdam_sys::seccomp::{Denied, Filter, Listener, Variant, Variants};
use rustix::process::Resource;

use crate::error::EngineError;
use crate::host::Host;
use crate::native::{self, Scratch};
use crate::program::{self, HOME};

/// Everything that is decided before anything is started.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) blueprint: Blueprint,
    pub(crate) bounds: Bounds,
    pub(crate) terms: Terms,
}

/// How much is found out about a run beyond how it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Evidence {
    /// Also whether it tried to reach the network.
    Full,
    /// For a caller who only wants the ending: a little faster.
    Ending,
}

/// Whether the program has a way to answer apart from what it prints.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Channel {
    Open,
    None,
}

/// Tells the program the number of its result channel.
pub const RESULT_VARIABLE: &str = "COFFERDAM_RESULT_FD";

/// What stays true of the run from its start to its record.
#[derive(Debug)]
pub(crate) struct Terms {
    pub(crate) request: Request,
    pub(crate) enforced_by: Enforcement,
    pub(crate) isolation: BTreeMap<String, String>,
    /// Which calls are refused, for naming them when they are.
    pub(crate) variants: Variants,
    /// How many CPUs the tree can burn at once: how fast CPU time can run out.
    pub(crate) parallelism: u32,
}

/// Scratch space that the root itself takes: a few small files.
const ROOT_PAGES: u64 = 64 * 4096;
/// A process that escapes the supervisor's attention still meets this, one second after the limit.
const CPU_BACKSTOP: Duration = Duration::from_secs(1);

/// Makes the plan, or says which limit cannot be held here and what would change that.
pub(crate) fn plan(
    grant: Grant,
    host: &Host,
    evidence: Evidence,
    channel: Channel,
) -> Result<Plan, EngineError> {
    let mut request = grant.into_request();
    if channel == Channel::Open {
        let number = RESULT_FD.to_string();
        request.env.push((RESULT_VARIABLE.into(), number.into()));
    }
    let enforced_by = Choice {
        request: &request,
        host,
    }
    .enforcement()?;
    let by = |limit: LimitName, enforcer: Enforcer| {
        enforced_by
            .get(&limit)
            .is_some_and(|held: &EnforcedBy| held.0.contains(&enforcer))
    };
    let in_group = |limit| by(limit, Enforcer::Cgroup1) || by(limit, Enforcer::Cgroup2);
    let limits = &request.limits;
    let bounds = Bounds {
        memory_bytes: limits
            .memory
            .at_most()
            .filter(|_| in_group(LimitName::Memory))
            .map(Bytes::get),
        processes: limits
            .processes
            .at_most()
            .filter(|_| in_group(LimitName::Processes)),
        cpu_milli: limits
            .cpus
            .at_most()
            .filter(|_| in_group(LimitName::Cpus))
            .map(|share| share.milli()),
    };
    let cpus = visible_cpus(&request, host);
    let parallelism = u32::try_from(cpus.as_ref().map_or(host.cpus.len(), Vec::len))
        .unwrap_or(u32::MAX)
        .max(1);
    let mut variants = Variants::NONE;
    if by(LimitName::Cpus, Enforcer::Affinity) {
        variants = variants.with(Variant::PinCpus);
    }
    if by(LimitName::Memory, Enforcer::Poll) {
        variants = variants.with(Variant::NoShm);
    }
    let program = program::lay_out(&request)?;
    let rlimits = rlimits(&request, by(LimitName::Processes, Enforcer::Rlimit));
    let (blueprint, isolation) = match request.backend {
        BackendName::Native => native_blueprint(
            &request,
            host,
            Given {
                program,
                rlimits,
                cpus,
                variants,
                evidence,
            },
        )?,
        BackendName::Host => (host_blueprint(program, rlimits, cpus), BTreeMap::new()),
    };
    let terms = Terms {
        request,
        enforced_by,
        isolation,
        variants,
        parallelism,
    };
    Ok(Plan {
        blueprint,
        bounds,
        terms,
    })
}

/// What the blueprint takes from the rest of the plan.
struct Given {
    program: Program,
    rlimits: Vec<(Resource, u64)>,
    cpus: Option<Vec<usize>>,
    variants: Variants,
    evidence: Evidence,
}

fn native_blueprint(
    request: &Request,
    host: &Host,
    given: Given,
) -> Result<(Blueprint, BTreeMap<String, String>), EngineError> {
    let Given {
        program,
        rlimits,
        cpus,
        variants,
        evidence,
    } = given;
    let (identity, trees) = native::identify(request, host)?;
    let steps = native::steps(
        request,
        &trees,
        scratch(request),
        cpus.as_ref().map(Vec::len),
        host,
    )?;
    let landlock = host.landlock_abi.map(|abi| landlock_rules(request, abi));
    let isolation = [
        ("namespaces", "user,pid,mount,net,ipc,uts,cgroup".to_owned()),
        ("root", "read-only".to_owned()),
        ("seccomp", "filter".to_owned()),
        (
            "landlock",
            host.landlock_abi
                .map_or_else(|| "absent".to_owned(), |abi| format!("abi {abi}")),
        ),
        (
            "uid",
            format!("{} (outside {})", identity.inside_uid, identity.outside_uid),
        ),
    ];
    let blueprint = Blueprint {
        isolation: Isolation::Namespaces(identity),
        program,
        steps,
        trees: trees.prepared,
        rlimits,
        filter: Filter::build(variants, Denied::Notify).program().to_vec(),
        listener: Listener::Wanted,
        landlock,
        routes: match evidence {
            Evidence::Full => Routes::Counted,
            Evidence::Ending => Routes::Ignored,
        },
        cpus: cpus.unwrap_or_default(),
    };
    Ok((
        blueprint,
        isolation
            .into_iter()
            .map(|(part, by)| (part.to_owned(), by))
            .collect(),
    ))
}

fn host_blueprint(
    program: Program,
    rlimits: Vec<(Resource, u64)>,
    cpus: Option<Vec<usize>>,
) -> Blueprint {
    Blueprint {
        isolation: Isolation::None,
        program,
        steps: Vec::new(),
        trees: Vec::new(),
        rlimits,
        filter: Vec::new(),
        listener: Listener::Absent,
        landlock: None,
        routes: Routes::Ignored,
        cpus: cpus.unwrap_or_default(),
    }
}

/// Which mechanism holds which limit.
struct Choice<'a> {
    request: &'a Request,
    host: &'a Host,
}

impl Choice<'_> {
    fn enforcement(&self) -> Result<Enforcement, EngineError> {
        let limits = &self.request.limits;
        let group = match self.host.cgroups {
            Hierarchy::V1(_) => Some(Enforcer::Cgroup1),
            Hierarchy::V2(_) => Some(Enforcer::Cgroup2),
            Hierarchy::None { .. } => None,
        };
        let controllers = self.host.cgroups.controllers();
        let grouped = |has: bool| group.filter(|_| has);
        let mut held = Enforcement::new();
        let mut hold = |limit, asked: bool, by: Vec<Enforcer>| {
            let by = if asked { by } else { vec![Enforcer::Unlimited] };
            held.insert(limit, EnforcedBy(by));
        };
        hold(
            LimitName::WallTime,
            is_limited(&limits.wall_time),
            vec![Enforcer::Supervisor],
        );
        hold(
            LimitName::Output,
            is_limited(&limits.output),
            vec![Enforcer::Supervisor],
        );
        hold(
            LimitName::OpenFiles,
            is_limited(&limits.open_files),
            vec![Enforcer::Rlimit],
        );
        let cpu_time = grouped(self.host.cgroups.counts_cpu_time()).unwrap_or(Enforcer::Poll);
        hold(
            LimitName::CpuTime,
            is_limited(&limits.cpu_time),
            vec![cpu_time],
        );
        hold(
            LimitName::Memory,
            is_limited(&limits.memory),
            vec![grouped(controllers.memory).unwrap_or(Enforcer::Poll)],
        );
        hold(
            LimitName::Processes,
            is_limited(&limits.processes),
            vec![self.processes(grouped(controllers.pids))?],
        );
        hold(LimitName::Disk, is_limited(&limits.disk), self.disk());
        hold(
            LimitName::Cpus,
            is_limited(&limits.cpus),
            vec![self.cpus(grouped(controllers.cpu))?],
        );
        Ok(held)
    }

    /// Inside a user namespace the kernel counts processes per namespace, so a resource limit bounds the tree; without one it would count all
    /// processes of the caller.
    fn processes(&self, group: Option<Enforcer>) -> Result<Enforcer, EngineError> {
        match (group, self.request.backend) {
            (Some(group), _) => Ok(group),
            (None, BackendName::Native) => Ok(Enforcer::Rlimit),
            (None, BackendName::Host) => self.unheld(
                LimitName::Processes,
                is_limited(&self.request.limits.processes),
                "there is no control group, and without a user namespace the kernel counts all processes of the user",
            ),
        }
    }

    fn disk(&self) -> Vec<Enforcer> {
        let workspace = self
            .request
            .workspace
            .as_ref()
            .map(|workspace| workspace.access);
        match (self.request.backend, workspace) {
            (BackendName::Native, Some(WorkspaceAccess::ReadWrite)) => {
                vec![Enforcer::Tmpfs, Enforcer::Rlimit, Enforcer::Poll]
            }
            (BackendName::Native, _) if self.writable_mount() => {
                vec![Enforcer::Tmpfs, Enforcer::Rlimit, Enforcer::Poll]
            }
            (BackendName::Native, _) => vec![Enforcer::Tmpfs, Enforcer::Rlimit],
            (BackendName::Host, Some(_)) => vec![Enforcer::Rlimit, Enforcer::Poll],
            (BackendName::Host, None) => vec![Enforcer::Rlimit],
        }
    }

    fn writable_mount(&self) -> bool {
        self.request
            .mounts
            .iter()
            .any(|mount| mount.access == MountAccess::ReadWrite)
    }

    fn cpus(&self, group: Option<Enforcer>) -> Result<Enforcer, EngineError> {
        let Cap::AtMost(share) = self.request.limits.cpus else {
            return Ok(Enforcer::Unlimited);
        };
        match (group, self.request.backend) {
            (Some(group), _) => Ok(group),
            // Whole CPUs can be given by affinity, which the filter keeps the program from widening.
            (None, BackendName::Native) if share.milli().is_multiple_of(1000) => {
                Ok(Enforcer::Affinity)
            }
            (None, _) => self.unheld(
                LimitName::Cpus,
                true,
                "a fraction of a CPU takes a control group, and there is none",
            ),
        }
    }

    fn unheld(&self, limit: LimitName, asked: bool, why: &str) -> Result<Enforcer, EngineError> {
        if !asked || self.request.waived.contains(&limit) {
            return Ok(Enforcer::Waived);
        }
        let fix = "run `cofferdam doctor` for what would enable it".to_owned();
        Err(EngineError::Unenforceable {
            limit,
            why: why.to_owned(),
            fix,
        })
    }
}

/// The CPUs that a share is shown as: a whole number of them, starting at a different one for each process so that runs spread over the machine.
fn visible_cpus(request: &Request, host: &Host) -> Option<Vec<usize>> {
    let share = request.limits.cpus.at_most()?;
    let count = usize::try_from(share.visible_cpus())
        .unwrap_or(usize::MAX)
        .min(host.cpus.len());
    let start = usize::try_from(std::process::id()).unwrap_or(0) % host.cpus.len().max(1);
    Some(
        host.cpus
            .iter()
            .copied()
            .cycle()
            .skip(start)
            .take(count)
            .collect(),
    )
}

fn rlimits(request: &Request, count_processes: bool) -> Vec<(Resource, u64)> {
    let limits = &request.limits;
    let mut set = vec![(Resource::Core, 0)];
    let mut lower = |resource: Resource, value: u64| {
        let ceiling = rustix::process::getrlimit(resource).maximum;
        set.push((
            resource,
            ceiling.map_or(value, |ceiling| value.min(ceiling)),
        ));
    };
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
        // Init is the namespace's first process.
        lower(Resource::Nproc, processes.saturating_add(1));
    }
    set
}

fn scratch(request: &Request) -> Scratch {
    let bytes = request
        .limits
        .disk
        .at_most()
        .map_or(u64::MAX >> 12, Bytes::get);
    let inodes = (bytes / 4096).clamp(16_384, 1 << 20);
    Scratch {
        bytes: bytes.saturating_add(ROOT_PAGES),
        inodes,
    }
}

/// Everything may be read; only scratch, devices, /proc and what the caller made writable may be written.
fn landlock_rules(request: &Request, abi: u32) -> Rules {
    let mut writable: Vec<CString> = ["/tmp", "/dev", "/proc", HOME]
        .into_iter()
        .filter_map(|path| CString::new(path).ok())
        .collect();
    let workspace_writable = request
        .workspace
        .as_ref()
        .is_some_and(|workspace| workspace.access != WorkspaceAccess::ReadOnly);
    if workspace_writable {
        writable.extend(CString::new(Workspace::INSIDE));
    }
    for mount in request
        .mounts
        .iter()
        .filter(|mount| mount.access == MountAccess::ReadWrite)
    {
        writable.extend(CString::new(mount.target.as_os_str().as_encoded_bytes()));
    }
    Rules {
        abi,
        readable: CString::new("/").into_iter().collect(),
        writable,
    }
}

fn is_limited<T: Copy>(cap: &Cap<T>) -> bool {
    cap.at_most().is_some()
}
