//! What a waiting sandbox is built for: which requests it can be used for, and how it is built.

use std::ffi::OsString;
use std::sync::Arc;
use std::time::Instant;

use cofferdam_contract::request::{
    BackendName, Network, Request, Root, Workspace, WorkspaceAccess,
};
use cofferdam_store::RunId;
use cofferdam_store::private_dir::PrivateDir;
use cofferdam_sys::blueprint::NetworkNamespace;
use cofferdam_sys::cgroup::{Bounds, Hierarchy};
use cofferdam_sys::errand::Errand;
use cofferdam_sys::spare_network::SpareNetwork;
use rustix::io::Errno;
use rustix::process::Resource;

use super::networks::Lent;
use super::{Private, Seat, Shared};
use crate::ahead;
use crate::error::EngineError;
use crate::host::Privilege;
use crate::interpreter::{Interpreter, Way};
use crate::plan::{Evidence, Means};
use crate::program;
use crate::rlimits::rlimits;
use crate::stand::{Site, Stand};
use crate::walls::Walls;
use crate::zygote::Zygote;

/// What a kind of sandbox has in common: its walls but for the path of a workspace, and which bounds its group has. How large those are can still be changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) walls: Walls,
    pub(super) cpu_milli: Option<u32>,
    pub(super) is_memory_bounded: bool,
    pub(super) are_processes_bounded: bool,
    pub(super) private: Private,
    /// Whose copy waits in it.
    pub(super) interpreter: Option<Arc<Interpreter>>,
    /// A file that is in the workspace from the beginning, and its contents.
    pub(super) script: Option<(String, String)>,
    /// What is started in it ahead of its run.
    pub(super) ahead: Option<AheadOf>,
}

/// A command, the directory that it starts in, and the resource limits of the runs that it is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct AheadOf {
    argv: Vec<OsString>,
    rlimits: Vec<(Resource, u64)>,
}

const SCRIPT_MODE: u32 = 0o644;

/// Whether nothing is left that has to be looked for in the processes themselves.
fn holds_all(groups: &Hierarchy) -> bool {
    let controllers = groups.controllers();
    controllers.memory && controllers.pids && groups.counts_cpu_time()
}

impl Shared {
    /// `None` for what is not built ahead: it would be used by nobody else.
    pub(super) fn shape(
        &self,
        request: &Request,
        evidence: Evidence,
        private: Private,
    ) -> Option<(Shape, Bounds)> {
        let is_common = request.backend == BackendName::Native
            && request.root == Root::HostUsr
            && request.mounts.is_empty()
            && request.network == Network::Denied
            && request.workspace.is_none();
        if !is_common {
            return None;
        }
        let means = Means::of(request, &self.host).ok()?;
        // Whoever counts without groups looks at the processes below init, where a copy is not.
        let interpreter = match &self.host.cgroups {
            groups if holds_all(groups) && self.host.privilege == Privilege::Root => {
                self.nursery.choose(request)
            }
            _ => None,
        };
        // One that is started ahead needs its script.
        let interpreter = interpreter
            .filter(|it: &Arc<Interpreter>| it.way == Way::Copy || private == Private::Workspace);
        let script = interpreter.as_ref().and_then(|it| {
            let (path, text) = it
                .script(request)
                .filter(|_| private == Private::Workspace)?;
            let below = path.strip_prefix(Workspace::INSIDE)?.strip_prefix('/')?;
            Some((below.to_owned(), text.clone()))
        });
        let shape = Shape {
            walls: means.walls(request, evidence),
            cpu_milli: means.bounds.cpu_milli,
            is_memory_bounded: means.bounds.memory_bytes.is_some(),
            are_processes_bounded: means.bounds.processes.is_some(),
            private,
            ahead: interpreter.as_ref().and_then(|it| {
                Some(AheadOf {
                    argv: it.start(request)?,
                    rlimits: rlimits(request, &means),
                })
            }),
            interpreter,
            script,
        };
        Some((shape, means.bounds))
    }

    pub(super) fn build(
        self: &Arc<Self>,
        shape: &Shape,
        bounds: Bounds,
    ) -> Result<Seat, EngineError> {
        let id = RunId::new();
        let mut walls = shape.walls.clone();
        let workspace = match shape.private {
            Private::Nothing => None,
            Private::Workspace => {
                let made = PrivateDir::create(&self.dir, id).and_then(|made| {
                    if let Some((path, text)) = &shape.script {
                        made.place(path, text.as_bytes(), SCRIPT_MODE)?;
                    }
                    Ok(made)
                });
                let made = made.map_err(|_| EngineError::system("make a workspace")(Errno::IO))?;
                walls.workspace = Some(Workspace {
                    path: made.path().to_owned(),
                    access: WorkspaceAccess::ReadWrite,
                });
                Some(made)
            }
        };
        let mut blueprint = walls.draw(&self.host)?;
        let lent = self.networks.lend(&self.host);
        let network = lent.as_ref().map(Lent::network);
        if let Some(network) = &network {
            blueprint.network = NetworkNamespace::Given(network.made().identity());
        }
        blueprint.lease = Some(Box::new((blueprint.lease.take(), lent)));
        let family = self.family()?;
        let beginning = family.as_ref().map_or("cofferdam-", |family| family.name());
        let name = format!("{beginning}{id}");
        let site = Site {
            bounds,
            name: &name,
            family: family.as_ref(),
            network: network.as_deref().map(SpareNetwork::made),
            host: &self.host,
        };
        let copied = shape.interpreter.as_ref();
        let copied = copied.filter(|interpreter| interpreter.way == Way::Copy);
        let mut stand = match copied {
            None => Stand::park(blueprint, &site)?,
            Some(interpreter) => {
                let (mut stand, entrances) = Stand::park_open(blueprint, &site)?;
                let invited = |zygote: &Zygote| stand.invite(zygote, &entrances, &site);
                self.nursery.with(interpreter, invited)?;
                drop(entrances);
                let waits = stand.welcome();
                waits.inspect_err(|_| self.nursery.put_off(interpreter))?;
                stand
            }
        };
        let streams = match (&shape.ahead, &shape.interpreter) {
            (Some(ahead), Some(interpreter)) => {
                let request = Request {
                    env: interpreter.env.clone(),
                    workspace: walls.workspace.clone(),
                    ..Request::command(ahead.argv.clone())
                };
                let errand = Errand {
                    program: program::lay_out(&request)?,
                    rlimits: ahead.rlimits.clone(),
                    departure: None,
                };
                Some(ahead::start(&mut stand, errand, walls.variants)?)
            }
            _ => None,
        };
        Ok(Seat {
            pool: Arc::downgrade(self),
            walls,
            bounds,
            stand,
            workspace,
            interpreter: shape.interpreter.clone(),
            script: shape.script.clone(),
            rlimits: shape
                .ahead
                .as_ref()
                .map_or_else(Vec::new, |ahead| ahead.rlimits.clone()),
            streams,
            written: Vec::new(),
            since: Instant::now(),
        })
    }
}
