//! From a grant to a plan: what will be built, which limit is held by what, and the refusal of a limit that nothing here can hold.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use cofferdam_contract::enforcement::{EnforcedBy, Enforcement, Enforcer, LimitName};
use cofferdam_contract::request::{BackendName, Grant, MountAccess, Request, WorkspaceAccess};
use cofferdam_contract::units::{Bytes, Cap, CpuShare};
use cofferdam_sys::blueprint::{Blueprint, Isolation, NetworkNamespace, Routes};
use cofferdam_sys::cgroup::{Bounds, Hierarchy};
use cofferdam_sys::errand::Errand;
use cofferdam_sys::protocol::RESULT_FD;
use cofferdam_sys::seccomp::{Listener, Variant, Variants};
use rustix::process::Resource;

use crate::block_device;
use crate::bubblewrap;
use crate::error::EngineError;
use crate::fixed;
use crate::gpu;
use crate::gvisor;
use crate::host::Host;
use crate::outer::Attended;
use crate::outlet;
use crate::program;
use crate::rlimits::{FIXED_RLIMITS, lowered, rlimits};
use crate::walls::Walls;

/// Everything that is decided before anything is started.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) enclosure: Enclosure,
    pub(crate) errand: Errand,
    pub(crate) bounds: Bounds,
    pub(crate) terms: Terms,
    /// Where a tool builds the walls: what is kept to hear how it went.
    pub(crate) attended: Option<Attended>,
}

/// What is put around the program.
#[derive(Debug)]
pub(crate) enum Enclosure {
    Walls(Walls),
    /// Limits only: the `host` backend, and tools that build walls themselves.
    None(Blueprint),
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

/// Makes the plan, or says which limit cannot be held here and what would change that.
pub(crate) fn plan(
    grant: Grant,
    host: &Host,
    evidence: Evidence,
    channel: Channel,
) -> Result<Plan, EngineError> {
    let seed = grant.seed();
    let mut request = grant.into_request();
    if let Some(seed) = seed {
        let is_set = |name: &OsString| request.env.iter().any(|(set, _)| set == name);
        let mut added = fixed::variables(seed);
        added.retain(|(name, _)| !is_set(name));
        request.env.extend(added);
    }
    if channel == Channel::Open {
        let number = RESULT_FD.to_string();
        request.env.push((RESULT_VARIABLE.into(), number.into()));
    }
    if let BackendName::Wasm | BackendName::Docker = request.backend {
        return Err(EngineError::Unavailable {
            backend: request.backend.as_str(),
            why: "it is no process of ours, and the caller did not ask the backend itself"
                .to_owned(),
            fix: "use --backend native".to_owned(),
        });
    }
    outlet::tell_program(&mut request);
    let mut means = Means::of(&request, host)?;
    let mut rlimits = rlimits(&request, &means);
    if seed.is_some() {
        means.cpus = Some(1);
        means.variants = means.variants.with(Variant::Fixed);
        rlimits.extend(FIXED_RLIMITS.map(|(resource, value)| lowered(resource, value)));
    }
    let outer = match request.backend {
        BackendName::Native | BackendName::Host | BackendName::Wasm | BackendName::Docker => None,
        BackendName::Bubblewrap => {
            let (cpus, variants) = (means.cpus, means.variants);
            Some(bubblewrap::draw(&request, &rlimits, cpus, variants, host)?)
        }
        BackendName::Gvisor => Some(gvisor::draw(&request, &rlimits, means.cpus, channel, host)?),
    };
    let (enclosure, errand, attended, isolation) = match outer {
        Some(outer) => {
            let errand = Errand {
                program: outer.program,
                rlimits: vec![(Resource::Core, 0)],
                departure: Some(outer.departure),
            };
            let enclosure = Enclosure::None(outer.blueprint);
            (enclosure, errand, Some(outer.attended), outer.isolation)
        }
        None => {
            let errand = Errand {
                program: program::lay_out(&request)?,
                rlimits,
                departure: None,
            };
            let enclosure = match request.backend {
                BackendName::Host | BackendName::Wasm | BackendName::Docker => {
                    Enclosure::None(host_blueprint(means.cpus, host))
                }
                BackendName::Native | BackendName::Bubblewrap | BackendName::Gvisor => {
                    Enclosure::Walls(Walls {
                        seed,
                        ..means.walls(&request, evidence)
                    })
                }
            };
            (enclosure, errand, None, BTreeMap::new())
        }
    };
    Ok(Plan {
        enclosure,
        errand,
        attended,
        bounds: means.bounds,
        terms: Terms {
            request,
            parallelism: means.parallelism(host),
            enforced_by: means.enforced_by,
            isolation,
            variants: means.variants,
        },
    })
}

/// With which means the limits of a request are held here.
pub(crate) struct Means {
    enforced_by: Enforcement,
    pub(crate) bounds: Bounds,
    /// How many are shown, where that is limited.
    cpus: Option<usize>,
    variants: Variants,
    /// Of GPUs.
    devices: Vec<PathBuf>,
}

impl Means {
    pub(crate) fn of(request: &Request, host: &Host) -> Result<Self, EngineError> {
        let mut means = Self {
            enforced_by: Choice { request, host }.enforcement()?,
            bounds: Bounds::default(),
            cpus: visible_cpus(request, host),
            variants: Variants::NONE,
            devices: gpu::nodes(&request.gpus, Path::new("/dev"))?,
        };
        let limits = &request.limits;
        if means.hold_in_group(LimitName::Memory) {
            means.bounds.memory_bytes = limits.memory.at_most().map(Bytes::get);
        }
        if means.hold_in_group(LimitName::Processes) {
            let processes = limits.processes.at_most();
            means.bounds.processes =
                processes.map(|processes| tasks_in_group(request.backend, processes));
        }
        if means.hold_in_group(LimitName::Cpus) {
            means.bounds.cpu_milli = limits.cpus.at_most().map(CpuShare::milli);
        }
        if means.holds_disk_io() {
            means.bounds.io = block_device::bounds(request);
        }
        if means.hold(LimitName::Cpus, Enforcer::Affinity) {
            means.variants = means.variants.with(Variant::PinCpus);
        }
        if means.hold(LimitName::Memory, Enforcer::Poll) {
            means.variants = means.variants.with(Variant::NoShm);
        }
        Ok(means)
    }

    pub(crate) fn walls(&self, request: &Request, evidence: Evidence) -> Walls {
        Walls {
            root: request.root.clone(),
            workspace: request.workspace.clone(),
            mounts: request.mounts.clone(),
            disk: request.limits.disk,
            cpus: self.cpus,
            variants: self.variants,
            devices: self.devices.clone(),
            evidence,
            doors: outlet::doors(&request.network),
            seed: None,
        }
    }

    pub(crate) fn hold(&self, limit: LimitName, enforcer: Enforcer) -> bool {
        let held = self.enforced_by.get(&limit);
        held.is_some_and(|held: &EnforcedBy| held.0.contains(&enforcer))
    }

    fn hold_in_group(&self, limit: LimitName) -> bool {
        self.hold(limit, Enforcer::Cgroup1) || self.hold(limit, Enforcer::Cgroup2)
    }

    fn holds_disk_io(&self) -> bool {
        let limit = LimitName::DiskIo;
        self.hold_in_group(limit) || self.hold(limit, Enforcer::Cgroup1Direct)
    }

    fn parallelism(&self, host: &Host) -> u32 {
        let cpus = self.cpus.unwrap_or(host.cpus.len());
        u32::try_from(cpus).unwrap_or(u32::MAX).max(1)
    }
}

fn host_blueprint(cpus: Option<usize>, host: &Host) -> Blueprint {
    Blueprint {
        isolation: Isolation::None,
        steps: Vec::new(),
        trees: Vec::new(),
        filter: Vec::new(),
        listener: Listener::Absent,
        landlock: None,
        routes: Routes::Ignored,
        network: NetworkNamespace::New,
        doors: Vec::new(),
        cpus: cpus.map(|count| choose(count, host)).unwrap_or_default(),
        fixed: None,
        lease: None,
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
        let cpu_time = match grouped(self.host.cgroups.counts_cpu_time()) {
            Some(group) => group,
            None => self.looked_at(LimitName::CpuTime, is_limited(&limits.cpu_time))?,
        };
        hold(
            LimitName::CpuTime,
            is_limited(&limits.cpu_time),
            vec![cpu_time],
        );
        hold(
            LimitName::Memory,
            is_limited(&limits.memory),
            vec![self.memory(grouped(controllers.memory))?],
        );
        hold(
            LimitName::Processes,
            is_limited(&limits.processes),
            self.processes(grouped(controllers.pids))?,
        );
        hold(LimitName::Disk, is_limited(&limits.disk), self.disk());
        hold(
            LimitName::Cpus,
            is_limited(&limits.cpus),
            vec![self.cpus(grouped(controllers.cpu))?],
        );
        hold(
            LimitName::DiskIo,
            is_limited(&limits.disk_io),
            vec![self.disk_io(grouped(controllers.io))?],
        );
        Ok(held)
    }

    /// Inside a user namespace the kernel counts processes per namespace, so a resource limit bounds the tree; without one it would count all
    /// processes of the caller.
    fn processes(&self, group: Option<Enforcer>) -> Result<Vec<Enforcer>, EngineError> {
        let one = match (group, self.request.backend) {
            // Its kernel knows how many there are, and the attendant asks it; the group keeps the host safe.
            (group, BackendName::Gvisor) => {
                return Ok([Some(Enforcer::Poll), group].into_iter().flatten().collect());
            }
            (Some(group), _) => group,
            (None, BackendName::Native | BackendName::Bubblewrap) => Enforcer::Rlimit,
            (None, BackendName::Host | BackendName::Wasm | BackendName::Docker) => self.unheld(
                LimitName::Processes,
                is_limited(&self.request.limits.processes),
                "there is no control group, and without a user namespace the kernel counts all processes of the user",
            )?,
        };
        Ok(vec![one])
    }

    /// The supervisor's looks do not see memory behind a tool's walls that nobody maps.
    fn memory(&self, group: Option<Enforcer>) -> Result<Enforcer, EngineError> {
        match (group, self.request.backend) {
            (Some(group), _) => Ok(group),
            (None, BackendName::Native | BackendName::Host | BackendName::Wasm | BackendName::Docker) => {
                self.looked_at(LimitName::Memory, is_limited(&self.request.limits.memory))
            }
            (None, BackendName::Bubblewrap | BackendName::Gvisor) => self.unheld(
                LimitName::Memory,
                is_limited(&self.request.limits.memory),
                "there is no control group, and memory behind these walls cannot be counted from outside",
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
            (BackendName::Host | BackendName::Wasm | BackendName::Docker, Some(_)) => {
                vec![Enforcer::Rlimit, Enforcer::Poll]
            }
            (BackendName::Host | BackendName::Wasm | BackendName::Docker, None) => {
                vec![Enforcer::Rlimit]
            }
            (
                BackendName::Native | BackendName::Bubblewrap | BackendName::Gvisor,
                Some(WorkspaceAccess::ReadWrite),
            ) => vec![Enforcer::Tmpfs, Enforcer::Rlimit, Enforcer::Poll],
            (BackendName::Native | BackendName::Bubblewrap | BackendName::Gvisor, _) => {
                let mut by = vec![Enforcer::Tmpfs, Enforcer::Rlimit];
                by.extend(self.writable_mount().then_some(Enforcer::Poll));
                by
            }
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
            (None, BackendName::Native | BackendName::Bubblewrap | BackendName::Gvisor)
                if share.milli().is_multiple_of(1000) =>
            {
                Ok(Enforcer::Affinity)
            }
            (None, _) => self.unheld(
                LimitName::Cpus,
                true,
                "a fraction of a CPU takes a control group, and there is none",
            ),
        }
    }

    /// On version 1 what is written through the page cache is written back by the kernel, for nobody.
    fn disk_io(&self, group: Option<Enforcer>) -> Result<Enforcer, EngineError> {
        let Cap::AtMost(rates) = self.request.limits.disk_io else {
            return Ok(Enforcer::Unlimited);
        };
        let unheld = |why: &str| self.unheld(LimitName::DiskIo, true, why);
        let Some(group) = group else {
            return unheld("there is no control group that bounds how fast disks are used");
        };
        if let Err(why) = block_device::of(self.request) {
            return unheld(&why);
        }
        Ok(match group {
            Enforcer::Cgroup1 if rates.bounds_writes() => Enforcer::Cgroup1Direct,
            other => other,
        })
    }

    /// By the supervisor, again and again, at every process of the run.
    fn looked_at(&self, limit: LimitName, asked: bool) -> Result<Enforcer, EngineError> {
        if self.host.lists_children {
            return Ok(Enforcer::Poll);
        }
        let why = "there is no control group, and this kernel does not tell which processes a process has started (CONFIG_PROC_CHILDREN)";
        self.unheld(limit, asked, why)
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

/// How many CPUs a share is shown as: a whole number.
fn visible_cpus(request: &Request, host: &Host) -> Option<usize> {
    let share = request.limits.cpus.at_most()?;
    let count = usize::try_from(share.visible_cpus()).unwrap_or(usize::MAX);
    Some(count.min(host.cpus.len()))
}

/// So many CPUs, starting at a different one for each process and each sandbox of it, so that runs spread over the machine.
pub fn choose(count: usize, host: &Host) -> Vec<usize> {
    static CHOSEN: AtomicUsize = AtomicUsize::new(0);
    let own = usize::try_from(std::process::id()).unwrap_or(0);
    let start = own.wrapping_add(CHOSEN.fetch_add(count.max(1), Ordering::Relaxed));
    let cpus = host.cpus.iter().copied().cycle();
    cpus.skip(start % host.cpus.len().max(1))
        .take(count)
        .collect()
}

/// How many tasks the control group may hold for so many of the program's: a tool has some of its own.
const fn tasks_in_group(backend: BackendName, processes: u64) -> u64 {
    match backend {
        BackendName::Native | BackendName::Host | BackendName::Wasm | BackendName::Docker => {
            processes
        }
        BackendName::Bubblewrap => processes.saturating_add(bubblewrap::TOOL_PROCESSES),
        BackendName::Gvisor => gvisor::tasks_on_host(processes),
    }
}

fn is_limited<T: Copy>(cap: &Cap<T>) -> bool {
    cap.at_most().is_some()
}
