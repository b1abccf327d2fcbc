//! From what the kernel answered and what is set here to a reason and the command that fixes it. Pure: every case can be tested anywhere.

use rustix::io::Errno;

use super::facts::Facts;
use super::report::Reason;

/// Why no user namespace could be made, or why one that was made gives no rights.
pub(super) fn user_namespace(errno: Errno, facts: &Facts) -> Reason {
    if !facts.userns_in_kernel {
        return Reason::new(
            "this kernel is built without user namespaces",
            "boot a kernel with CONFIG_USER_NS=y",
        );
    }
    if facts.max_user_namespaces == Some(0) {
        return Reason::new(
            "user.max_user_namespaces is 0",
            "sudo sysctl -w user.max_user_namespaces=15000",
        );
    }
    if matches!(errno, Errno::NOSPC | Errno::USERS) {
        let most = facts
            .max_user_namespaces
            .map_or_else(|| "unknown".to_owned(), |most| most.to_string());
        return Reason::new(
            format!(
                "all user namespaces are in use (user.max_user_namespaces is {most}), or too many lie inside one another"
            ),
            "sudo sysctl -w user.max_user_namespaces=15000",
        );
    }
    if facts.unprivileged_userns_clone == Some(0) && !facts.is_root_user {
        return Reason::new(
            "kernel.unprivileged_userns_clone is 0: only root may make user namespaces",
            "sudo sysctl -w kernel.unprivileged_userns_clone=1",
        );
    }
    if facts.apparmor_restricts_userns == Some(1) && !facts.is_root_user {
        return Reason::new(
            "kernel.apparmor_restrict_unprivileged_userns is 1: AppArmor takes all rights from user namespaces of programs without a profile",
            "sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0",
        );
    }
    refused_by_filter(errno, facts)
}

fn refused_by_filter(errno: Errno, facts: &Facts) -> Reason {
    match (facts.container, facts.seccomp_on_us) {
        (Some("kubernetes"), _) => Reason::new(
            "the pod's seccomp profile or AppArmor forbids user namespaces",
            "in the pod: securityContext: { seccompProfile: { type: Unconfined }, appArmorProfile: { type: Unconfined } }",
        ),
        (Some("podman"), _) => Reason::new(
            "the container's seccomp profile forbids user namespaces",
            "podman run --security-opt seccomp=unconfined …",
        ),
        (Some(_), true) => Reason::new(
            "the container's seccomp profile forbids user namespaces",
            "docker run --security-opt seccomp=unconfined --security-opt apparmor=unconfined …",
        ),
        (Some(_), false) => Reason::new(
            format!("the container forbids user namespaces ({errno})"),
            "docker run --security-opt apparmor=unconfined …",
        ),
        (None, true) => Reason::new(
            "a system call filter on this process forbids user namespaces: a service with RestrictNamespaces=, or another sandbox around us",
            "run it outside of that sandbox, or remove RestrictNamespaces= from the service",
        ),
        (None, false) => Reason::new(
            format!("the kernel refused ({errno}); in a chroot no user namespace can be made"),
            "run it outside of a chroot",
        ),
    }
}

/// Why a fresh /proc could not be mounted.
pub(super) fn proc(facts: &Facts) -> Reason {
    let fix = match facts.container {
        Some("podman") => "podman run --security-opt unmask=ALL …",
        Some("kubernetes") => "in the pod: securityContext: { procMount: Unmasked }",
        _ => "docker run --security-opt systempaths=unconfined …",
    };
    Reason::new(
        "parts of this /proc are covered, as containers do it, and the kernel gives nobody a /proc that shows more; programs inside see none",
        fix,
    )
}

/// Why there is no control group, or only a part of one. `why` is what was found when looking for it.
pub(super) fn control_group(why: String, facts: &Facts) -> Reason {
    if facts.cgroups_switched_off {
        let variable = crate::host::NO_CGROUPS_VARIABLE;
        return Reason::new(why, format!("unset {variable}"));
    }
    let fix = match (facts.container, facts.is_root_user) {
        (Some("kubernetes"), _) => "in the pod: securityContext: { privileged: true }",
        (Some("podman"), _) => "podman run --security-opt unmask=/sys/fs/cgroup …",
        (Some("docker" | "unknown"), true) => {
            "docker run --security-opt writable-cgroups=true … (Docker 28), or docker run --privileged …"
        }
        (_, true) => "mount -t cgroup2 cgroup2 /sys/fs/cgroup",
        (_, false) if facts.unified_cgroups && facts.systemd => {
            "systemd-run --user --scope -p Delegate=yes cofferdam …"
        }
        (_, false) => "sudo cofferdam …",
    };
    Reason::new(why, fix)
}

/// Why the CPU controller is not there although others are: systemd hands users memory and pids only.
pub(super) fn cpu_controller(facts: &Facts) -> Reason {
    let why = "the control groups here have no cpu controller";
    if facts.unified_cgroups && facts.systemd && !facts.is_root_user {
        return Reason::new(
            why,
            "sudo systemctl set-property user@$(id -u).service Delegate='cpu cpuset io memory pids'",
        );
    }
    control_group(why.to_owned(), facts)
}

pub(super) fn landlock(facts: &Facts) -> Reason {
    match &facts.lsm {
        Some(modules) if !modules.contains("landlock") => Reason::new(
            format!(
                "Landlock is not among the security modules in force ({})",
                modules.trim()
            ),
            format!(
                "add lsm=landlock,{} to the kernel's command line",
                modules.trim()
            ),
        ),
        _ => Reason::new(
            "this kernel has no Landlock, or it is switched off",
            "boot Linux 5.13 or later with CONFIG_SECURITY_LANDLOCK=y and landlock in lsm=",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn a_user() -> Facts {
        Facts {
            userns_in_kernel: true,
            max_user_namespaces: Some(15_000),
            ..Facts::default()
        }
    }

    fn fix(errno: Errno, facts: Facts) -> String {
        user_namespace(errno, &facts).fix.unwrap()
    }

    #[test]
    fn each_switch_against_user_namespaces_has_its_own_fix() {
        let none = Facts {
            max_user_namespaces: Some(0),
            ..a_user()
        };
        assert_eq!(
            fix(Errno::NOSPC, none),
            "sudo sysctl -w user.max_user_namespaces=15000"
        );
        let debian = Facts {
            unprivileged_userns_clone: Some(0),
            ..a_user()
        };
        assert_eq!(
            fix(Errno::PERM, debian),
            "sudo sysctl -w kernel.unprivileged_userns_clone=1"
        );
        let ubuntu = Facts {
            apparmor_restricts_userns: Some(1),
            ..a_user()
        };
        assert_eq!(
            fix(Errno::ACCESS, ubuntu),
            "sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0"
        );
        let docker = Facts {
            container: Some("docker"),
            seccomp_on_us: true,
            ..a_user()
        };
        assert!(fix(Errno::PERM, docker).contains("seccomp=unconfined"));
        let service = Facts {
            seccomp_on_us: true,
            ..a_user()
        };
        assert!(fix(Errno::PERM, service).contains("RestrictNamespaces="));
        assert!(fix(Errno::PERM, a_user()).contains("chroot"));
        let ancient = Facts {
            userns_in_kernel: false,
            ..a_user()
        };
        assert!(fix(Errno::INVAL, ancient).contains("CONFIG_USER_NS"));
    }

    #[test]
    fn switches_for_the_unprivileged_do_not_explain_what_root_is_refused() {
        let root = Facts {
            is_root_user: true,
            unprivileged_userns_clone: Some(0),
            apparmor_restricts_userns: Some(1),
            ..a_user()
        };
        assert!(fix(Errno::PERM, root).contains("chroot"));
    }

    #[test]
    fn control_groups_are_fixed_by_whoever_manages_them() {
        let fix = |facts: &Facts| control_group("x".to_owned(), facts).fix.unwrap();
        let laptop = Facts {
            systemd: true,
            unified_cgroups: true,
            ..a_user()
        };
        assert_eq!(
            fix(&laptop),
            "systemd-run --user --scope -p Delegate=yes cofferdam …"
        );
        assert_eq!(fix(&a_user()), "sudo cofferdam …");
        let off = Facts {
            cgroups_switched_off: true,
            ..laptop
        };
        assert_eq!(fix(&off), "unset COFFERDAM_NO_CGROUPS");
    }

    #[test]
    fn a_masked_proc_is_unmasked_by_the_container_engine() {
        let fix = |container| {
            proc(&Facts {
                container,
                ..a_user()
            })
            .fix
            .unwrap()
        };
        assert_eq!(
            fix(Some("docker")),
            "docker run --security-opt systempaths=unconfined …"
        );
        assert_eq!(
            fix(Some("podman")),
            "podman run --security-opt unmask=ALL …"
        );
    }
}
