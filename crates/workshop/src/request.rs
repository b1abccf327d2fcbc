//! From a step to what is asked of the engine: its variables, its limits, and what of the host it sees.

use std::ffi::OsString;
use std::path::Path;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use cofferdam_contract::limits::Limits;
use cofferdam_contract::record::RunRecord;
use cofferdam_contract::request::{Gpus, Mount, MountAccess, Network, Request, Root, Workspace};
use cofferdam_contract::units::{Bytes, Cap};
use cofferdam_project::{Action, Cache, Step};

use crate::cache::{Side, Use};
use crate::shelf::Shelf;
use crate::step::{Bench, INSIDE_CACHES, INSIDE_REPORTS};
use crate::tools::Tools;

/// What tools learn of a network from whoever starts them: proxies, and certificates of one's own.
const NETWORK: [&str; 14] = [
    "http_proxy",
    "https_proxy",
    "all_proxy",
    "no_proxy",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
    "NO_PROXY",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "NODE_EXTRA_CA_CERTS",
    "REQUESTS_CA_BUNDLE",
    "PIP_CERT",
    "CARGO_HTTP_CAINFO",
];

impl Bench<'_> {
    pub(crate) fn request(&self, step: &Step, tools: &Tools, reports: &Path) -> Request {
        let mut env: Vec<(OsString, OsString)> = Vec::new();
        if let Some(path) = &tools.path
            && !self.is_host()
        {
            set(
                &mut env,
                "PATH".into(),
                format!("{path}:/usr/local/bin:/usr/bin:/bin").into(),
            );
        }
        if self.is_host() {
            // The way to the caller's network, and whom it is trusted to be.
            for name in NETWORK {
                if let Some(value) = std::env::var_os(name) {
                    set(&mut env, name.into(), value);
                }
            }
        }
        for (name, value) in &step.env {
            set(&mut env, name.into(), value.into());
        }
        for (name, value) in &self.env {
            set(&mut env, name.clone(), value.clone());
        }
        Request {
            argv: step.argv.iter().map(Into::into).collect(),
            env,
            cwd: Some(step.cwd.clone().into()),
            limits: self.limits(step),
            waived: self.waived.clone(),
            network: Network::Denied,
            root: Root::HostUsr,
            workspace: Some(Workspace {
                path: self.root.clone(),
                access: self.access,
            }),
            mounts: self.mounts(step, tools, reports),
            backend: self.backend,
            gpus: Gpus::None,
        }
    }

    /// What the project says of itself can only be shorter, and so can the time that is left.
    fn limits(&self, step: &Step) -> Limits {
        let mut limits = self.limits.clone();
        let left = self.until.map(|until| {
            until
                .saturating_duration_since(Instant::now())
                .max(Limits::WALL_TIME.min)
        });
        for own in [step.at_most, left].into_iter().flatten() {
            limits.wall_time = match limits.wall_time {
                Cap::AtMost(allowed) => Cap::AtMost(allowed.min(own)),
                Cap::Unlimited => Cap::AtMost(own),
            };
        }
        if let Some(spent) = &self.together {
            let spent = *spent.lock().unwrap_or_else(PoisonError::into_inner);
            let cpu = |limit: Duration| limit.saturating_sub(spent.cpu).max(Limits::CPU_TIME.min);
            limits.cpu_time = limits
                .cpu_time
                .at_most()
                .map_or(Cap::Unlimited, |limit| Cap::AtMost(cpu(limit)));
            let output = |limit: Bytes| {
                Bytes::new(limit.get().saturating_sub(spent.output)).max(Limits::OUTPUT.min)
            };
            limits.output = limits
                .output
                .at_most()
                .map_or(Cap::Unlimited, |limit| Cap::AtMost(output(limit)));
        }
        limits
    }

    pub(crate) fn spend(&self, record: &RunRecord) {
        if let Some(spent) = &self.together {
            let mut spent = spent.lock().unwrap_or_else(PoisonError::into_inner);
            let cpu = Duration::try_from_secs_f64(record.usage.cpu_ms / 1000.0);
            spent.cpu += cpu.unwrap_or_default();
            spent.output += record.usage.output_bytes;
        }
    }

    /// Caches can be written to only where something is fetched or installed: what one build leaves there, another must not find.
    pub(crate) fn use_of(&self, cache: Cache) -> Use {
        let access = match self.action {
            _ if self.shelf == Shelf::Shared => MountAccess::ReadOnly,
            Action::Restore => MountAccess::ReadWrite,
            _ if cache.is_written_by_builds() => MountAccess::ReadWrite,
            Action::Build | Action::Test | Action::Lint | Action::Format | Action::Run => {
                MountAccess::ReadOnly
            }
        };
        let side = match self.is_host() {
            true => Side::Outside,
            false => Side::Inside,
        };
        Use {
            cache,
            access,
            side,
        }
    }

    fn mounts(&self, step: &Step, tools: &Tools, reports: &Path) -> Vec<Mount> {
        let mut mounts = self.mounts.clone();
        if self.is_host() {
            return mounts;
        }
        mounts.extend(tools.mounts.iter().cloned());
        // Of a shared shelf only what somebody has put there.
        let is_there =
            |cache: &&Cache| self.shelf == Shelf::Own || self.cache.join(cache.as_str()).is_dir();
        let caches = step.caches.iter().filter(is_there).map(|cache| Mount {
            source: self.cache.join(cache.as_str()),
            target: Path::new(INSIDE_CACHES).join(cache.as_str()),
            access: self.use_of(*cache).access,
        });
        mounts.extend(caches);
        mounts.push(Mount {
            source: reports.to_owned(),
            target: INSIDE_REPORTS.into(),
            access: MountAccess::ReadWrite,
        });
        mounts
    }
}

fn set(env: &mut Vec<(OsString, OsString)>, name: OsString, value: OsString) {
    env.retain(|(present, _)| *present != name);
    env.push((name, value));
}
