//! Which limit is held by what in a container, and the refusal of one that the daemon says it cannot hold.

use bollard::models::{SystemInfo, SystemInfoCgroupVersionEnum};
use cofferdam_contract::enforcement::{EnforcedBy, Enforcement, Enforcer, LimitName};
use cofferdam_contract::request::Request;
use cofferdam_contract::units::Cap;
use cofferdam_engine::error::EngineError;

use crate::files::Carried;

/// Whether somebody can look at how much a writable workspace holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Watched {
    Yes,
    No,
}

/// Decides for every limit, from what the daemon warned of when it made the container.
pub(crate) fn enforcement(
    request: &Request,
    warnings: &[String],
    workspace: Watched,
) -> Result<Enforcement, EngineError> {
    let limits = &request.limits;
    let mut held = Enforcement::new();
    let mut hold = |limit: LimitName, asked: bool, by: Vec<Enforcer>| {
        let by = if asked { by } else { vec![Enforcer::Unlimited] };
        held.insert(limit, EnforcedBy(by));
    };
    let docker = || vec![Enforcer::Docker];
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
        LimitName::CpuTime,
        is_limited(&limits.cpu_time),
        vec![Enforcer::Poll],
    );
    hold(LimitName::Memory, is_limited(&limits.memory), docker());
    hold(
        LimitName::Processes,
        is_limited(&limits.processes),
        docker(),
    );
    hold(
        LimitName::OpenFiles,
        is_limited(&limits.open_files),
        docker(),
    );
    hold(LimitName::Cpus, is_limited(&limits.cpus), docker());
    let disk = match writable(request) {
        true => vec![Enforcer::Docker, Enforcer::Poll],
        false => docker(),
    };
    hold(LimitName::Disk, is_limited(&limits.disk), disk);
    hold(LimitName::DiskIo, is_limited(&limits.disk_io), docker());
    let mut unheld: Vec<(LimitName, String)> = warnings
        .iter()
        .filter_map(|warning| Some((about(warning)?, warning.clone())))
        .collect();
    if is_limited(&limits.disk_io) {
        let why = "which disks the daemon uses is not known from here";
        unheld.push((LimitName::DiskIo, why.to_owned()));
    }
    if writable(request) && workspace == Watched::No {
        let why =
            "the workspace is a volume of the daemon's, and its size cannot be looked at from here";
        unheld.push((LimitName::Disk, why.to_owned()));
    }
    for (limit, why) in unheld {
        let is_asked = held
            .get(&limit)
            .is_some_and(|by| by.0 != [Enforcer::Unlimited]);
        if !is_asked {
            continue;
        }
        if !request.waived.contains(&limit) {
            let fix = match limit {
                LimitName::Disk => "run as root beside the daemon, or show the workspace read-only",
                _ => "enable the controller for the daemon",
            };
            return Err(EngineError::Unenforceable {
                limit,
                why,
                fix: fix.to_owned(),
            });
        }
        held.insert(limit, EnforcedBy(vec![Enforcer::Waived]));
    }
    Ok(held)
}

/// What Podman says about itself, in the words of Docker's warnings: it drops a limit that it cannot hold without a word. Of one that belongs to no root it is known that it holds none
/// on control groups of version 1.
pub(crate) fn confessed(info: &SystemInfo) -> Vec<String> {
    let security = info.security_options.iter().flatten();
    let is_rootless = security.clone().any(|option| option.contains("rootless"));
    let is_old = info.cgroup_version == Some(SystemInfoCgroupVersionEnum::_1);
    let holds_none = is_rootless && is_old;
    let has = [
        (info.memory_limit, "memory"),
        (info.pids_limit, "pids"),
        (info.cpu_cfs_quota, "cpu"),
    ];
    let lacks = has
        .into_iter()
        .filter(|(has, _)| holds_none || *has == Some(false));
    lacks
        .map(|(_, what)| format!("Podman does not support {what} limits here and ignores them"))
        .collect()
}

/// Whether the program can write to anything of the caller's.
pub(crate) fn writable(request: &Request) -> bool {
    Carried::all(request).iter().any(Carried::is_writable)
}

/// The limit that a daemon's warning is about. Docker drops a limit that its kernel does not have and only warns; `Limitation discarded` is how that reads.
fn about(warning: &str) -> Option<LimitName> {
    let warning = warning.to_lowercase();
    let names = [
        ("pids", LimitName::Processes),
        ("cpu", LimitName::Cpus),
        ("cfs", LimitName::Cpus),
        ("swap", LimitName::Memory),
        ("memory", LimitName::Memory),
    ];
    let is_loss = warning.contains("discarded") || warning.contains("not support");
    names
        .into_iter()
        .find(|(word, _)| is_loss && warning.contains(word))
        .map(|(_, limit)| limit)
}

fn is_limited<T: Copy>(cap: &Cap<T>) -> bool {
    cap.at_most().is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::container::tests::request;

    fn by(held: &Enforcement, limit: LimitName) -> String {
        held[&limit].to_string()
    }

    #[test]
    fn every_limit_has_somebody_who_holds_it() {
        let mut request = request(&["true"]);
        let held = enforcement(&request, &[], Watched::No).unwrap();
        assert_eq!(held.len(), LimitName::ALL.len());
        assert_eq!(by(&held, LimitName::Memory), "docker");
        assert_eq!(by(&held, LimitName::CpuTime), "poll");
        assert_eq!(by(&held, LimitName::Cpus), "unlimited");
        request.limits.memory = Cap::Unlimited;
        let held = enforcement(&request, &[], Watched::No).unwrap();
        assert_eq!(by(&held, LimitName::Memory), "unlimited");
    }

    #[test]
    fn a_limit_that_the_daemon_drops_is_refused_unless_it_was_waived() {
        let warnings = [
            (
                "Your kernel does not support memory limit capabilities or the cgroup is not mounted. Limitation discarded.",
                LimitName::Memory,
            ),
            (
                "Your kernel does not support swap limit capabilities or the cgroup is not mounted. Memory limited without swap.",
                LimitName::Memory,
            ),
            (
                "Your kernel does not support PIDs limit capabilities or the cgroup is not mounted. PIDs limit discarded.",
                LimitName::Processes,
            ),
        ];
        for (warning, limit) in warnings {
            let mut request = request(&["true"]);
            let said = [warning.to_owned()];
            let error = enforcement(&request, &said, Watched::No).unwrap_err();
            let is_named = matches!(&error, EngineError::Unenforceable { limit: named, .. } if *named == limit);
            assert!(is_named, "{error}");
            request.waived = vec![limit];
            let held = enforcement(&request, &said, Watched::No).unwrap();
            assert_eq!(by(&held, limit), "waived");
        }
        let request = request(&["true"]);
        let harmless = ["Published ports are discarded when using host network mode".to_owned()];
        assert!(enforcement(&request, &harmless, Watched::No).is_ok());
    }

    #[test]
    fn what_podman_does_not_hold_is_not_said_to_be_held() {
        let whole = SystemInfo {
            memory_limit: Some(true),
            pids_limit: Some(true),
            cpu_cfs_quota: Some(true),
            cgroup_version: Some(SystemInfoCgroupVersionEnum::_1),
            ..SystemInfo::default()
        };
        assert_eq!(confessed(&whole), Vec::<String>::new());
        let rootless = SystemInfo {
            security_options: Some(vec!["name=seccomp".into(), "name=rootless".into()]),
            ..whole.clone()
        };
        let without_pids = SystemInfo {
            pids_limit: Some(false),
            ..whole
        };
        for (info, limits) in [
            (rootless, &[LimitName::Memory, LimitName::Processes][..]),
            (without_pids, &[LimitName::Processes]),
        ] {
            let said = confessed(&info);
            let mut request = request(&["true"]);
            for limit in limits {
                let error = enforcement(&request, &said, Watched::No).unwrap_err();
                let is_named = matches!(&error, EngineError::Unenforceable { limit: named, .. } if named == limit);
                assert!(is_named, "{error}");
                request.waived.push(*limit);
            }
            assert!(enforcement(&request, &said, Watched::No).is_ok());
        }
    }

    #[test]
    fn a_writable_workspace_needs_somebody_who_looks() {
        let mut request = request(&["true"]);
        request.workspace = Some(cofferdam_contract::request::Workspace {
            path: "/x".into(),
            access: cofferdam_contract::request::WorkspaceAccess::ReadWrite,
        });
        assert!(enforcement(&request, &[], Watched::No).is_err());
        let held = enforcement(&request, &[], Watched::Yes).unwrap();
        assert_eq!(by(&held, LimitName::Disk), "docker+poll");
    }
}
