//! Finds where this process may make control groups. Looks at the host and changes nothing but, on version 2, which controllers children may use.

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags};

use super::attributes;

/// Where groups can be made.
#[derive(Debug)]
pub enum Hierarchy {
    V1(V1Places),
    V2(V2Place),
    /// Nowhere; in words for `doctor`.
    None {
        why: String,
    },
}

/// Version 1: one directory for each controller, each the caller's own group.
#[derive(Debug)]
pub struct V1Places {
    pub(super) memory: Option<OwnedFd>,
    pub(super) pids: Option<OwnedFd>,
    pub(super) cpu: Option<OwnedFd>,
    pub(super) cpuacct: Option<OwnedFd>,
    pub(super) blkio: Option<OwnedFd>,
}

/// Version 2: the directory in which a run's group becomes a child.
#[derive(Debug)]
pub struct V2Place {
    pub(super) parent: OwnedFd,
    pub(super) path: PathBuf,
    pub(super) controllers: Controllers,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Controllers {
    pub memory: bool,
    pub pids: bool,
    pub cpu: bool,
    /// How fast disks are used.
    pub io: bool,
}

impl Hierarchy {
    /// What a group made here could bound.
    pub fn controllers(&self) -> Controllers {
        match self {
            Self::V1(places) => Controllers {
                memory: places.memory.is_some(),
                pids: places.pids.is_some(),
                cpu: places.cpu.is_some(),
                io: places.blkio.is_some(),
            },
            Self::V2(place) => place.controllers,
            Self::None { .. } => Controllers {
                memory: false,
                pids: false,
                cpu: false,
                io: false,
            },
        }
    }

    /// The directories in which a group may be made.
    pub(crate) fn places(&self) -> Vec<&OwnedFd> {
        match self {
            Self::V1(places) => [
                &places.memory,
                &places.pids,
                &places.cpu,
                &places.cpuacct,
                &places.blkio,
            ]
            .into_iter()
            .flatten()
            .collect(),
            Self::V2(place) => vec![&place.parent],
            Self::None { .. } => Vec::new(),
        }
    }

    /// Whether a process is born in its group, which must then be made first.
    pub fn is_cloned_into(&self) -> bool {
        matches!(self, Self::V2(_))
    }

    /// Whether CPU time of a whole group is counted here.
    pub fn counts_cpu_time(&self) -> bool {
        match self {
            Self::V1(places) => places.cpuacct.is_some(),
            Self::V2(_) => true,
            Self::None { .. } => false,
        }
    }
}

/// Looks below `mount` (normally /sys/fs/cgroup) for the group that `own` (the content of /proc/self/cgroup) names.
pub fn find(mount: &Path, own: &str) -> Hierarchy {
    if mount.join("cgroup.controllers").exists() {
        return find_v2(mount, own);
    }
    let place = |controller: &str| {
        let dir = mount.join(controller);
        let inside = own_path(own, controller)?;
        // Inside a container the mount may start at our own group, whose path from the host's root then leads nowhere.
        let candidates = [dir.join(inside.trim_start_matches('/')), dir];
        candidates
            .iter()
            .find_map(|candidate| writable_dir(candidate))
    };
    let places = V1Places {
        memory: place("memory"),
        pids: place("pids"),
        cpu: place("cpu"),
        cpuacct: place("cpuacct"),
        blkio: place("blkio"),
    };
    if places.memory.is_none()
        && places.pids.is_none()
        && places.cpu.is_none()
        && places.cpuacct.is_none()
    {
        let why = format!(
            "no control group below {} is writable by this user",
            mount.display()
        );
        return Hierarchy::None { why };
    }
    Hierarchy::V1(places)
}

/// A child of our own group is possible only in the root group, since a group that holds processes cannot hand controllers to children; a sibling of our own
/// group is possible wherever its parent already hands them out and we may write there. Both stay below the caller's bounds, or beside them under the
/// same parent.
fn find_v2(mount: &Path, own: &str) -> Hierarchy {
    let Some(inside) = own.lines().find_map(|line| line.strip_prefix("0::")) else {
        return Hierarchy::None {
            why: "this process is in no version 2 control group".to_owned(),
        };
    };
    let own_dir = mount.join(inside.trim_start_matches('/'));
    let parent = if inside == "/" {
        None
    } else {
        own_dir.parent().map(Path::to_path_buf)
    };
    for candidate in std::iter::once(own_dir.clone()).chain(parent) {
        let Some(dir) = writable_dir(&candidate) else {
            continue;
        };
        let controllers = hand_down(&dir);
        if controllers.memory && controllers.pids {
            return Hierarchy::V2(V2Place {
                parent: dir,
                path: candidate,
                controllers,
            });
        }
    }
    let why = format!(
        "neither {} nor its parent lets this user make groups with the memory and pids controllers",
        own_dir.display()
    );
    Hierarchy::None { why }
}

/// Which controllers children of `dir` get, after asking for those that are missing.
fn hand_down(dir: &OwnedFd) -> Controllers {
    let read = |file| {
        let text = attributes::open(dir.as_fd(), file).and_then(|file| attributes::read(file).ok());
        Controllers::named_in(&text.unwrap_or_default())
    };
    let before = read("cgroup.subtree_control");
    let offered = read("cgroup.controllers");
    if before == offered || !offered.memory {
        return before;
    }
    // All or nothing. A group that holds processes refuses memory, but would take pids and cpu alone: that makes it the root of a threaded subtree, and
    // keeps its owner from ever taking those controllers back.
    let _ = attributes::write(dir.as_fd(), "cgroup.subtree_control", &offered.request());
    if offered.io {
        // Nothing else depends on it, so that it is asked for by itself.
        let _ = attributes::write(dir.as_fd(), "cgroup.subtree_control", "+io");
    }
    read("cgroup.subtree_control")
}

impl Controllers {
    fn named_in(text: &str) -> Self {
        let has = |name: &str| text.split_whitespace().any(|word| word == name);
        Self {
            memory: has("memory"),
            pids: has("pids"),
            cpu: has("cpu"),
            io: has("io"),
        }
    }

    /// As `cgroup.subtree_control` wants it.
    fn request(self) -> String {
        let wanted = [
            (self.memory, "+memory"),
            (self.pids, "+pids"),
            (self.cpu, "+cpu"),
        ];
        let words = wanted
            .iter()
            .filter_map(|&(wanted, word)| wanted.then_some(word));
        words.collect::<Vec<_>>().join(" ")
    }
}

fn own_path<'a>(own: &'a str, controller: &str) -> Option<&'a str> {
    own.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let controllers = fields.next()?;
        controllers
            .split(',')
            .any(|name| name == controller)
            .then(|| fields.next())
            .flatten()
    })
}

fn writable_dir(path: &Path) -> Option<OwnedFd> {
    let dir = rustix::fs::openat(
        CWD,
        path,
        OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    )
    .ok()?;
    let writable = rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK;
    rustix::fs::accessat(&dir, c".", writable, rustix::fs::AtFlags::EACCESS).ok()?;
    Some(dir)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_group_is_found_per_controller() {
        let own = "8:pids:/a\n4:memory:/b/c\n2:cpuacct,cpu:/d:e\n0::/u\n";
        assert_eq!(own_path(own, "memory"), Some("/b/c"));
        assert_eq!(own_path(own, "cpu"), Some("/d:e"));
        assert_eq!(own_path(own, "cpuset"), None);
    }

    #[test]
    fn a_version_2_sibling_is_used_where_the_parent_hands_down_controllers() {
        let tree = tempfile::tempdir().unwrap();
        let parent = tree.path().join("slice");
        std::fs::create_dir_all(parent.join("scope")).unwrap();
        std::fs::write(tree.path().join("cgroup.controllers"), "cpu memory pids").unwrap();
        std::fs::write(parent.join("cgroup.subtree_control"), "cpu memory pids\n").unwrap();
        let Hierarchy::V2(place) = find(tree.path(), "0::/slice/scope\n") else {
            panic!("no place found")
        };
        assert_eq!(place.path, parent);
    }

    #[test]
    fn controllers_are_asked_for_together_and_only_those_that_exist() {
        let tree = tempfile::tempdir().unwrap();
        let asked = |offered: &str| {
            std::fs::write(tree.path().join("cgroup.controllers"), offered).unwrap();
            std::fs::write(tree.path().join("cgroup.subtree_control"), "").unwrap();
            hand_down(&writable_dir(tree.path()).unwrap());
            std::fs::read_to_string(tree.path().join("cgroup.subtree_control")).unwrap()
        };
        assert_eq!(asked("cpuset cpu memory pids\n"), "+memory +pids +cpu");
        // By itself, and last.
        assert!(asked("cpuset cpu io memory pids\n").starts_with("+io"));
        assert_eq!(asked("memory pids\n"), "+memory +pids");
        assert_eq!(asked("cpu pids\n"), "");
    }

    #[test]
    fn nothing_writable_is_said_in_words() {
        let tree = tempfile::tempdir().unwrap();
        let Hierarchy::None { why } = find(tree.path(), "4:memory:/\n") else {
            panic!("found a place in an empty tree")
        };
        assert!(why.contains("writable"), "{why}");
    }
}
