//! The layers of isolation, each with how it was seen to be there.

use std::ffi::CString;
use std::path::PathBuf;

use cofferdam_contract::limits::Limits;
use cofferdam_contract::request::{Workspace, WorkspaceAccess};
use cofferdam_sys::blueprint::{Blueprint, Isolation, NetworkNamespace};
use cofferdam_sys::cgroup::Hierarchy;
use cofferdam_sys::idmap::{self, Owner};
use cofferdam_sys::launch::{self, LaunchError, Sandbox};
use cofferdam_sys::protocol::{Event, Stage};
use cofferdam_sys::seccomp::Listener;
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;

use super::facts::{self, Facts};
use super::inside::Inside;
use super::reasons;
use super::report::{Finding, Mark, Reason};
use super::scratch::Scratch;
use super::trial::{self, Bench, Tried};
use crate::host::{Host, Privilege};
use crate::native;
use crate::walls;

/// Whether the namespaces alone can be made, without a root and without a program in them.
#[derive(Debug)]
pub(super) enum Walls {
    Stand,
    /// The namespaces of the first clone: user, pid, mount, ipc, uts.
    NotCloned(Errno),
    NotBuilt {
        stage: Stage,
        errno: Errno,
    },
    /// Init went, or could not be asked.
    Unknown(String),
}

impl Walls {
    pub(super) fn try_alone(host: &Host) -> Self {
        let identity = match native::identify(&walls::Walls::bare(), host) {
            Ok((identity, _)) => identity,
            Err(error) => return Self::Unknown(error.to_string()),
        };
        let blueprint = Blueprint {
            isolation: Isolation::Namespaces(identity),
            steps: Vec::new(),
            trees: Vec::new(),
            filter: Vec::new(),
            listener: Listener::Absent,
            routes: cofferdam_sys::blueprint::Routes::Ignored,
            landlock: None,
            network: NetworkNamespace::New,
            doors: Vec::new(),
            cpus: Vec::new(),
            fixed: None,
            lease: None,
        };
        match launch::park(blueprint, None) {
            Ok(sandbox) => first_word(&sandbox),
            Err(LaunchError::Clone(errno) | LaunchError::Map { errno, .. }) => {
                Self::NotCloned(errno)
            }
            Err(error @ LaunchError::Socket(_)) => Self::Unknown(error.to_string()),
        }
    }

    /// Why no sandbox can be built; `None` when neither the walls nor the settings explain it.
    pub(super) fn reason(&self, facts: &Facts) -> Option<Reason> {
        if let Some(off) = NAMESPACES.iter().find_map(Namespace::switched_off) {
            return Some(off);
        }
        match self {
            Self::Stand => None,
            Self::NotCloned(errno) => Some(reasons::user_namespace(*errno, facts)),
            // A namespace whose owner has no rights in it is how AppArmor refuses one.
            Self::NotBuilt { errno, .. } if matches!(*errno, Errno::PERM | Errno::ACCESS) => {
                Some(reasons::user_namespace(*errno, facts))
            }
            Self::NotBuilt { stage, errno } => Some(Reason::without_fix(format!(
                "could not {}: {errno}",
                stage.describe()
            ))),
            Self::Unknown(said) => Some(Reason::without_fix(said.clone())),
        }
    }
}

/// Waits for init to say that it is ready or what failed; it always says one of them, or goes.
fn first_word(sandbox: &Sandbox) -> Walls {
    let gone = || Walls::Unknown("the sandbox's init ended without a word".to_owned());
    loop {
        let mut fds = [PollFd::from_borrowed_fd(sandbox.control(), PollFlags::IN)];
        match rustix::event::poll(&mut fds, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Walls::Unknown(errno.to_string()),
        }
        match sandbox.receive() {
            Ok(Some(Event::Ready { .. })) => return Walls::Stand,
            Ok(Some(Event::SetupFailed { stage, errno })) => {
                let errno = Errno::from_raw_os_error(errno);
                return Walls::NotBuilt { stage, errno };
            }
            Ok(Some(_)) | Err(Errno::AGAIN | Errno::INTR) => {}
            Ok(None) | Err(_) => return gone(),
        }
    }
}

/// One kind of namespace.
struct Namespace {
    name: &'static str,
    /// In /proc/self/ns.
    file: &'static str,
    /// In /proc/sys/user.
    sysctl: &'static str,
}

const NAMESPACES: [Namespace; 7] = [
    Namespace {
        name: "user namespace",
        file: "user",
        sysctl: "max_user_namespaces",
    },
    Namespace {
        name: "pid namespace",
        file: "pid",
        sysctl: "max_pid_namespaces",
    },
    Namespace {
        name: "mount namespace",
        file: "mnt",
        sysctl: "max_mnt_namespaces",
    },
    Namespace {
        name: "network namespace",
        file: "net",
        sysctl: "max_net_namespaces",
    },
    Namespace {
        name: "ipc namespace",
        file: "ipc",
        sysctl: "max_ipc_namespaces",
    },
    Namespace {
        name: "uts namespace",
        file: "uts",
        sysctl: "max_uts_namespaces",
    },
    Namespace {
        name: "cgroup namespace",
        file: "cgroup",
        sysctl: "max_cgroup_namespaces",
    },
];

impl Namespace {
    fn switched_off(&self) -> Option<Reason> {
        let sysctl = self.sysctl;
        (facts::max_namespaces(sysctl) == Some(0)).then(|| {
            Reason::new(
                format!("user.{sysctl} is 0"),
                format!("sudo sysctl -w user.{sysctl}=15000"),
            )
        })
    }

    fn find(&self, facts: &Facts, walls: &Walls, inside: Option<&Inside>) -> Finding {
        let link = format!("/proc/self/ns/{}", self.file);
        let ours = std::fs::read_link(&link).ok();
        if ours.is_none() {
            let reason = Reason::without_fix(format!("this kernel has no {}", self.name));
            return Finding::lacking(self.name, Mark::Missing, "absent", reason);
        }
        let Some(inside) = inside else {
            return self.find_without_a_run(facts, walls);
        };
        match inside.namespace(self.file).map(PathBuf::from) {
            Some(seen) if Some(&seen) == ours.as_ref() => {
                let reason = Reason::without_fix(
                    "the program is in the same one as we are; please report this",
                );
                Finding::lacking(self.name, Mark::Missing, "shared with the host", reason)
            }
            Some(_) if self.file == "net" => Finding::ok(
                self.name,
                format!("its own, with {}", inside.devices.join(", ")),
            ),
            Some(_) => Finding::ok(self.name, "its own"),
            None => Finding::ok(self.name, "made; not looked at from inside"),
        }
    }

    fn find_without_a_run(&self, facts: &Facts, walls: &Walls) -> Finding {
        let reason = match (self.switched_off(), walls) {
            (Some(off), _) => Some(off),
            (None, Walls::Stand) => None,
            (
                None,
                Walls::NotBuilt {
                    stage: Stage::NetworkNamespace | Stage::Loopback,
                    ..
                },
            ) if self.file != "net" => None,
            (None, Walls::NotCloned(_)) if self.file != "user" => Some(Reason::without_fix(
                "nothing can be tried before user namespaces work",
            )),
            (None, _) => walls.reason(facts),
        };
        match reason {
            Some(reason) => Finding::lacking(self.name, Mark::Missing, "refused", reason),
            None => Finding::ok(self.name, "can be made"),
        }
    }
}

/// All layers. `built` is the run with the defaults and what its program saw, if a sandbox could be built.
pub(super) fn find(
    bench: &Bench<'_>,
    facts: &Facts,
    walls: &Walls,
    built: Option<(&Tried, &Inside)>,
) -> Vec<Finding> {
    let inside = built.map(|(_, inside)| inside);
    let mut found: Vec<Finding> = NAMESPACES
        .iter()
        .map(|space| space.find(facts, walls, inside))
        .collect();
    if let Some((tried, inside)) = built {
        found.push(proc(facts, tried));
        found.push(root(inside));
        found.push(rights(inside));
        found.extend(filter(tried, inside));
    }
    found.push(landlock(bench.host, facts));
    if built.is_some() {
        found.push(copy_on_write(bench));
    }
    found.push(id_mapped_mounts(bench.host));
    found.push(control_groups(bench.host, facts));
    found
}

fn proc(facts: &Facts, tried: &Tried) -> Finding {
    match tried.record.isolation.get("proc").map(String::as_str) {
        Some("own") => Finding::ok("own /proc", "mounted: other processes are not seen"),
        _ => Finding::lacking(
            "own /proc",
            Mark::Weaker,
            "absent inside",
            reasons::proc(facts),
        ),
    }
}

fn root(inside: &Inside) -> Finding {
    match inside.root_is_read_only {
        Some(true) => Finding::ok("read-only root", "a file in / was refused"),
        Some(false) => {
            let reason = Reason::without_fix("a file could be made in /; please report this");
            Finding::lacking("read-only root", Mark::Missing, "writable", reason)
        }
        None => Finding::ok("read-only root", "made; not looked at from inside"),
    }
}

fn rights(inside: &Inside) -> Finding {
    const NAME: &str = "no privileges";
    let (Some(capabilities), Some(no_new)) = (inside.status("CapEff"), inside.status("NoNewPrivs"))
    else {
        return Finding::ok(NAME, "given up; not looked at from inside");
    };
    let uid = inside
        .status("Uid")
        .and_then(|ids| ids.split_whitespace().next())
        .unwrap_or("?");
    let found = format!("uid {uid}, capabilities {capabilities}, no_new_privs {no_new}");
    if capabilities.bytes().all(|digit| digit == b'0') && no_new == "1" && uid != "0" {
        return Finding::ok(NAME, found);
    }
    let reason =
        Reason::without_fix("the program kept rights that it should not have; please report this");
    Finding::lacking(NAME, Mark::Missing, found, reason)
}

/// The filter is seen from inside; the notifier by a refused call that reached the record.
fn filter(tried: &Tried, inside: &Inside) -> [Finding; 2] {
    let filter = match inside.status("Seccomp") {
        Some("2") | None => Finding::ok("seccomp filter", "installed"),
        Some(mode) => {
            let reason =
                Reason::without_fix("the program runs without the filter; please report this");
            Finding::lacking(
                "seccomp filter",
                Mark::Missing,
                format!("mode {mode}"),
                reason,
            )
        }
    };
    let refused = tried
        .record
        .denials
        .iter()
        .map(|denial| denial.what.as_str())
        .next();
    let notifier = match refused {
        Some(call) => Finding::ok("seccomp notifier", format!("a refused {call} was reported")),
        None => Finding::ok("seccomp notifier", "installed; nothing was refused"),
    };
    [filter, notifier]
}

fn landlock(host: &Host, facts: &Facts) -> Finding {
    const FULL: u32 = 6;
    match host.landlock_abi {
        Some(abi) if abi >= FULL => Finding::ok("landlock", format!("abi {abi}")),
        Some(abi) => {
            let reason = Reason::new(
                "signals and abstract sockets are kept inside by namespaces alone",
                "boot Linux 6.12 or later for abi 6",
            );
            Finding::lacking("landlock", Mark::Weaker, format!("abi {abi}"), reason)
        }
        None => Finding::lacking("landlock", Mark::Weaker, "absent", reasons::landlock(facts)),
    }
}

/// A run that changes a directory copy-on-write, and the change in its record.
fn copy_on_write(bench: &Bench<'_>) -> Finding {
    const NAME: &str = "overlay (:cow)";
    let lacking = |said: String| {
        let reason = Reason::new(
            said,
            "boot Linux 5.11 or later with CONFIG_OVERLAY_FS, load it with `sudo modprobe overlay`, or use :ro and :rw",
        );
        Finding::lacking(NAME, Mark::Missing, "refused", reason)
    };
    let dir = match Scratch::make(&std::env::temp_dir()) {
        Ok(dir) => dir,
        Err(error) => {
            let reason = Reason::new(
                format!("no directory to try it with: {error}"),
                "set TMPDIR to a directory you can write to",
            );
            return Finding::lacking(NAME, Mark::Weaker, "not tried", reason);
        }
    };
    let mut request = trial::request("echo changed > /work/probe", Limits::DEFAULT);
    request.workspace = Some(Workspace {
        path: dir.path.clone(),
        access: WorkspaceAccess::CopyOnWrite,
    });
    match bench.run(request) {
        Err(error) => lacking(error.to_string()),
        Ok(tried) if !tried.was_built() => lacking(tried.ending_in_words()),
        Ok(tried) if !tried.has_run() => Finding::ok(NAME, "mounted; not tried from inside"),
        Ok(tried)
            if tried
                .record
                .changes
                .as_ref()
                .is_some_and(|changes| changes.len() == 1) =>
        {
            Finding::ok(NAME, "a change was seen inside and left the original alone")
        }
        Ok(tried) => lacking(format!(
            "the change is not in the record: {}",
            tried.ending_in_words()
        )),
    }
}

fn id_mapped_mounts(host: &Host) -> Finding {
    const NAME: &str = "id-mapped mounts";
    const NOBODY: u32 = 65_534;
    if let Privilege::User { .. } = host.privilege {
        return Finding::ok(NAME, "not needed: your files are yours inside too");
    }
    // Where a workspace is likely to be; not the root, below which all kinds of file systems are mounted.
    let here = std::env::current_dir()
        .ok()
        .filter(|dir| dir.parent().is_some())
        .unwrap_or_else(std::env::temp_dir);
    let shown = here.display().to_string();
    let owner = Owner {
        disk_uid: 0,
        disk_gid: 0,
        seen_uid: NOBODY,
        seen_gid: NOBODY,
    };
    let mapped = CString::new(shown.clone()).map(|path| idmap::mapped_tree(&path, &owner));
    match mapped {
        Ok(Ok(_detached)) => Finding::ok(NAME, format!("work for {shown}")),
        Ok(Err(error)) => {
            let reason = Reason::new(
                error.to_string(),
                "keep writable workspaces on ext4, xfs, btrfs or tmpfs, or give them to an ordinary user with chown",
            );
            Finding::lacking(NAME, Mark::Weaker, format!("refused for {shown}"), reason)
        }
        Err(_) => Finding::ok(NAME, "not tried"),
    }
}

fn control_groups(host: &Host, facts: &Facts) -> Finding {
    const NAME: &str = "control groups";
    let has = host.cgroups.controllers();
    let controllers = [
        ("memory", has.memory),
        ("pids", has.pids),
        ("cpu", has.cpu),
        ("cpu time", host.cgroups.counts_cpu_time()),
    ];
    let listed = |wanted: bool| -> Vec<&str> {
        controllers
            .iter()
            .filter(|(_, there)| *there == wanted)
            .map(|(name, _)| *name)
            .collect()
    };
    let version = match &host.cgroups {
        Hierarchy::V1(_) => "version 1",
        Hierarchy::V2(_) => "version 2",
        Hierarchy::None { why } => {
            let reason = reasons::control_group(why.clone(), facts);
            return Finding::lacking(NAME, Mark::Weaker, "none", reason);
        }
    };
    let found = format!("{version}: {}", listed(true).join(", "));
    match listed(false).as_slice() {
        [] => Finding::ok(NAME, found),
        ["cpu"] => Finding::lacking(NAME, Mark::Weaker, found, reasons::cpu_controller(facts)),
        missing => {
            let why = format!("no group can be made here for {}", missing.join(", "));
            Finding::lacking(
                NAME,
                Mark::Weaker,
                found,
                reasons::control_group(why, facts),
            )
        }
    }
}
