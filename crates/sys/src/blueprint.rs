//! The full description of a sandbox, made before anything is cloned: what is built around a program, in order, with every string already in the form that
//! the kernel wants. The program itself comes apart from it, as an [`crate::errand::Errand`]. [`Step`]s are data, so a failure can name its step, and a reviewer can read what will happen.

use std::ffi::CString;
use std::os::fd::OwnedFd;

use crate::doors::Door;
use crate::landlock::Rules;
use crate::seccomp::Listener;

/// Everything that the child needs to become a sandbox.
#[derive(Debug)]
pub struct Blueprint {
    pub isolation: Isolation,
    pub steps: Vec<Step>,
    /// Mounts that only the parent could prepare (id-mapped ones); [`Step::Adopt`] takes them by index. Without isolation: what a program that builds walls itself is given.
    pub trees: Vec<OwnedFd>,
    /// The classic BPF program; empty for none.
    pub filter: Vec<libc::sock_filter>,
    /// Whether refused calls go to a listener, which is then sent to the supervisor.
    pub listener: Listener,
    pub landlock: Option<Rules>,
    /// Whether the supervisor gets the counters of the program's network namespace: it costs a few dozen microseconds.
    pub routes: Routes,
    pub network: NetworkNamespace,
    /// The ways out; none for a program that reaches nothing.
    pub doors: Vec<Door>,
    /// CPUs that programs may run on; empty for all.
    pub cpus: Vec<usize>,
    /// For a run that must give the same each time; `None` for any other.
    pub fixed: Option<Fixed>,
    /// What must last as long as the sandbox.
    pub lease: Option<Box<dyn std::any::Any + Send + Sync>>,
}

/// Whether programs are put behind walls at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Isolation {
    /// User, pid, mount, net, ipc, uts and cgroup namespaces; no capabilities; no new privileges.
    Namespaces(Identity),
    /// None: the `host` backend, which only limits.
    None,
}

/// Who the program is, inside and outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    pub inside_uid: u32,
    pub inside_gid: u32,
    pub outside_uid: u32,
    pub outside_gid: u32,
    /// Only a privileged parent may give up supplementary groups and choose an outside id that is not its own.
    pub privileged: Privileged,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Privileged {
    Yes,
    No,
}

/// Which network namespace a program has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NetworkNamespace {
    /// Its process makes one for itself.
    New,
    /// A [`crate::made_network::MadeNetwork`], known by its device and inode, in which the sandbox is cloned.
    Given([u64; 2]),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Routes {
    Counted,
    Ignored,
}

/// What a program's process gives up that differs from run to run: random addresses, the machine's time since it was started, a number that depends on how it was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fixed {
    /// Nanoseconds by which its clocks since the start of the machine differ from ours: the monotonic one, and the one that goes on while the machine sleeps.
    pub offsets: [i64; 2],
}

/// Where a prepared mount waits between the step that makes it and the step that attaches it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slot(pub u8);

impl Slot {
    /// How many mounts can wait at once.
    pub const COUNT: usize = 96;
}

/// One step of building the sandbox's view of the file system.
///
/// Everything that comes from the host is opened before [`Step::Pivot`]; everything that is named by a path afterwards resolves inside the new root,
/// so a symlink planted in a workspace or a root directory cannot lead out of it.
#[derive(Debug)]
pub enum Step {
    /// No mount event travels between the host and the sandbox.
    MakePrivate,
    NewTmpfs {
        slot: Slot,
        size: CString,
        inodes: CString,
    },
    /// Skipped, and reported, where a container masks its own /proc: the kernel then refuses a fresh one.
    NewProc {
        slot: Slot,
    },
    /// The layers are paths as they resolve at this step.
    NewOverlay {
        slot: Slot,
        lower: CString,
        upper: CString,
        work: CString,
    },
    CloneTree {
        slot: Slot,
        path: CString,
    },
    /// Takes a tree from [`Blueprint::trees`].
    Adopt {
        slot: Slot,
        index: usize,
    },
    Harden {
        slot: Slot,
        access: Access,
    },
    /// An empty slot (a skipped /proc) is passed over.
    Attach {
        slot: Slot,
        target: CString,
    },
    /// Puts a file over one that may not be there; without it there is nothing to hide.
    Cover {
        slot: Slot,
        target: CString,
    },
    Chdir {
        path: CString,
    },
    Mkdir {
        path: CString,
        mode: u32,
    },
    Symlink {
        target: CString,
        path: CString,
    },
    WriteFile {
        path: CString,
        content: Vec<u8>,
    },
    /// A named pipe.
    Fifo {
        path: CString,
    },
    /// Keeps a descriptor of the directory and sends it to the supervisor once the sandbox is ready.
    SendDir {
        path: CString,
    },
    /// The current directory becomes `/`, and the host's tree is gone.
    Pivot,
    /// No file or directory can be made in the root itself any more.
    SealRoot,
    Hostname {
        name: CString,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    ReadOnly,
    ReadWrite,
    /// A device node: usable, not removable.
    Device,
}

impl Step {
    /// The step in words, for a message that says what could not be done.
    pub fn describe(&self) -> String {
        match self {
            Self::MakePrivate => "make mounts private".to_owned(),
            Self::NewTmpfs { .. } => "make a scratch file system".to_owned(),
            Self::NewProc { .. } => "make a /proc".to_owned(),
            Self::NewOverlay { lower, .. } => {
                format!("make a copy-on-write view of {}", lower.to_string_lossy())
            }
            Self::CloneTree { path, .. } => format!("open {}", path.to_string_lossy()),
            Self::Adopt { index, .. } => format!("take prepared mount {index}"),
            Self::Harden { .. } => "restrict a mount".to_owned(),
            Self::Attach { target, .. } => format!("mount {}", target.to_string_lossy()),
            Self::Cover { target, .. } => format!("cover {}", target.to_string_lossy()),
            Self::Chdir { path } => format!("enter {}", path.to_string_lossy()),
            Self::Mkdir { path, .. } => format!("make directory {}", path.to_string_lossy()),
            Self::Symlink { path, .. } => format!("make link {}", path.to_string_lossy()),
            Self::WriteFile { path, .. } => format!("write {}", path.to_string_lossy()),
            Self::Fifo { path } => format!("make pipe {}", path.to_string_lossy()),
            Self::SendDir { path } => format!("open {} for the supervisor", path.to_string_lossy()),
            Self::Pivot => "change the root".to_owned(),
            Self::SealRoot => "make the root read-only".to_owned(),
            Self::Hostname { .. } => "set the host name".to_owned(),
        }
    }
}
