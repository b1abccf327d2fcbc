//! The steps that build a sandbox's root: read-only, made of the host's /usr and friends or of a directory of the caller's, with scratch space,
//! devices, /proc and the workspace put on it.
//!
//! Everything of the host is opened first. Then the root is changed, and only then are mount points made and mounts attached, so that no path of
//! this second half can lead out of the sandbox, whatever a root directory or a workspace contains.

use std::path::{Path, PathBuf};

use cofferdam_contract::request::{MountAccess, Root, Workspace, WorkspaceAccess};
use cofferdam_sys::blueprint::{Access, Slot, Step};

use super::identity::Trees;
use super::names::{c_path, c_text, unreadable};
use super::view;
use crate::error::EngineError;
use crate::fixed::view::RANDOM_PIPE;
use crate::host::{Host, Privilege};
use crate::outlet;
use crate::program::HOME;
use crate::walls::Walls;

/// Where the scratch file system is put while the root is being built; it exists on every Linux, and the mount is ours alone.
const BASE: &str = "/tmp";
pub(crate) const DEVICES: [&str; 4] = ["/dev/null", "/dev/zero", "/dev/full", "/dev/urandom"];
pub(crate) const LINKS: [(&str, &str); 7] = [
    // One and the same since Linux 5.6.
    ("urandom", "/dev/random"),
    ("/proc/self/fd", "/dev/fd"),
    ("/proc/self/fd/0", "/dev/stdin"),
    ("/proc/self/fd/1", "/dev/stdout"),
    ("/proc/self/fd/2", "/dev/stderr"),
    ("/proc/self/mounts", "/etc/mtab"),
    ("../usr/lib/os-release", "/etc/os-release"),
];
/// Beside /usr: links into it on a merged system, directories of their own elsewhere.
pub(crate) const USR_FRIENDS: [&str; 6] = ["/bin", "/sbin", "/lib", "/lib32", "/lib64", "/nix"];

/// The bounds of the scratch file system.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scratch {
    pub(crate) bytes: u64,
    pub(crate) inodes: u64,
}

/// All steps, in order.
pub(crate) fn steps(
    walls: &Walls,
    trees: &Trees,
    scratch: Scratch,
    visible_cpus: Option<usize>,
    host: &Host,
) -> Result<Vec<Step>, EngineError> {
    let mut builder = Builder {
        host: Vec::with_capacity(64),
        base: Vec::with_capacity(64),
        attach: Vec::with_capacity(96),
        next: 0,
    };
    builder.base(scratch)?;
    match &walls.root {
        Root::HostUsr => builder.host_root()?,
        Root::Dir(dir) => builder.given_root(dir, trees.root)?,
        Root::Image(image) => builder.given_root(&image.dir, trees.root)?,
    }
    builder.scratch_places()?;
    builder.devices(walls)?;
    builder.proc(walls, visible_cpus, host)?;
    builder.etc(walls)?;
    builder.mounts(walls, trees)?;
    builder.workspace(walls, trees)?;
    builder.finish()
}

struct Builder {
    /// First, while every path is still the host's: what comes from there.
    host: Vec<Step>,
    /// Then, in the scratch file system, which covers some directory of the host's: what comes from it.
    base: Vec<Step>,
    /// Last, in the new root, where every path is the sandbox's.
    attach: Vec<Step>,
    next: u8,
}

impl Builder {
    /// One sized file system holds the root, all scratch space and all copy-on-write changes, so that one limit bounds them together.
    fn base(&mut self, scratch: Scratch) -> Result<(), EngineError> {
        let slot = self.slot();
        let (size, inodes) = (
            c_text(scratch.bytes.to_string())?,
            c_text(scratch.inodes.to_string())?,
        );
        self.host.push(Step::MakePrivate);
        self.base.push(Step::NewTmpfs { slot, size, inodes });
        self.base.push(Step::Attach {
            slot,
            target: c_text(BASE)?,
        });
        self.base.push(Step::Chdir {
            path: c_text(BASE)?,
        });
        for (dir, mode) in [
            ("root", 0o755),
            ("tmp", 0o1777),
            ("shm", 0o1777),
            ("home", 0o755),
        ] {
            self.base.push(Step::Mkdir {
                path: c_text(dir)?,
                mode,
            });
        }
        self.base.push(Step::SendDir { path: c_text(".")? });
        Ok(())
    }

    fn host_root(&mut self) -> Result<(), EngineError> {
        // A directory becomes a mount, which is what a root must be, by being mounted on itself.
        let root = self.clone_own("root")?;
        self.base.push(Step::Attach {
            slot: root,
            target: c_text("root")?,
        });
        self.bind("/usr", "/usr", Access::ReadOnly)?;
        for friend in USR_FRIENDS {
            match std::fs::read_link(friend) {
                Ok(target) => {
                    let target = c_path(&target)?;
                    self.attach.push(Step::Symlink {
                        target,
                        path: c_text(friend)?,
                    });
                }
                Err(_) if Path::new(friend).is_dir() => {
                    self.bind(friend, friend, Access::ReadOnly)?
                }
                Err(_) => {}
            }
        }
        Ok(())
    }

    /// The caller's directory below, an empty layer above: mount points and /etc can be made without writing to it.
    fn given_root(&mut self, dir: &Path, tree: Option<usize>) -> Result<(), EngineError> {
        for layer in ["root-lower", "root-upper", "root-work"] {
            self.base.push(Step::Mkdir {
                path: c_text(layer)?,
                mode: 0o755,
            });
        }
        let lower = self.take(dir, tree, Access::ReadOnly)?;
        self.base.push(Step::Attach {
            slot: lower,
            target: c_text("root-lower")?,
        });
        let slot = self.slot();
        let layers = (
            c_text("root-lower")?,
            c_text("root-upper")?,
            c_text("root-work")?,
        );
        self.base.push(Step::NewOverlay {
            slot,
            lower: layers.0,
            upper: layers.1,
            work: layers.2,
        });
        self.base.push(Step::Attach {
            slot,
            target: c_text("root")?,
        });
        Ok(())
    }

    fn scratch_places(&mut self) -> Result<(), EngineError> {
        self.make_dir("/dev", 0o755)?;
        self.make_dir("/home", 0o755)?;
        for (from, target, mode) in [
            ("tmp", "/tmp", 0o1777),
            ("shm", "/dev/shm", 0o1777),
            ("home", HOME, 0o755),
        ] {
            let slot = self.clone_own(from)?;
            self.make_dir(target, mode)?;
            self.attach.push(Step::Attach {
                slot,
                target: c_text(target)?,
            });
        }
        Ok(())
    }

    fn devices(&mut self, walls: &Walls) -> Result<(), EngineError> {
        let own = DEVICES.iter().map(Path::new);
        for device in own.chain(walls.devices.iter().map(PathBuf::as_path)) {
            let slot = match walls.seed {
                Some(_) if device == "/dev/urandom" => {
                    let path = c_text(RANDOM_PIPE)?;
                    self.base.push(Step::Fifo { path });
                    self.clone_own(RANDOM_PIPE)?
                }
                _ => self.clone_host(device, Access::Device)?,
            };
            if device.starts_with("/dev/dri") {
                self.make_parents(device)?;
            }
            let (target, content) = (c_path(device)?, Vec::new());
            let path = target.clone();
            self.attach.push(Step::WriteFile { path, content });
            self.attach.push(Step::Attach { slot, target });
        }
        Ok(())
    }

    fn proc(
        &mut self,
        walls: &Walls,
        visible_cpus: Option<usize>,
        host: &Host,
    ) -> Result<(), EngineError> {
        let slot = self.slot();
        self.host.push(Step::NewProc { slot });
        self.make_dir("/proc", 0o555)?;
        self.attach.push(Step::Attach {
            slot,
            target: c_text("/proc")?,
        });
        if let Privilege::User { .. } = host.privilege {
            // Outside we are the caller, whose keys this file would name.
            let null = self.clone_host(Path::new("/dev/null"), Access::Device)?;
            self.attach.push(Step::Cover {
                slot: null,
                target: c_text("/proc/keys")?,
            });
        }
        let Some(count) = visible_cpus else {
            return Ok(());
        };
        for (path, content) in view::proc_files(walls, count) {
            let name = path.trim_start_matches("/proc/").replace('/', "-");
            self.base.push(Step::WriteFile {
                path: c_text(name.as_str())?,
                content: content.into_bytes(),
            });
            let slot = self.clone_own(&name)?;
            self.base.push(Step::Harden {
                slot,
                access: Access::ReadOnly,
            });
            self.attach.push(Step::Cover {
                slot,
                target: c_text(path)?,
            });
        }
        let cpu = "/sys/devices/system/cpu";
        for dir in ["/sys", "/sys/devices", "/sys/devices/system", cpu] {
            self.make_dir(dir, 0o755)?;
        }
        for file in ["online", "possible", "present"] {
            let content = view::cpu_range(count).into_bytes();
            self.attach.push(Step::WriteFile {
                path: c_text(format!("{cpu}/{file}"))?,
                content,
            });
        }
        for number in 0..count {
            self.make_dir(&format!("{cpu}/cpu{number}"), 0o755)?;
        }
        Ok(())
    }

    fn etc(&mut self, walls: &Walls) -> Result<(), EngineError> {
        self.make_dir("/etc", 0o755)?;
        for (path, content) in view::etc_files(walls) {
            self.attach.push(Step::WriteFile {
                path: c_text(path)?,
                content: outlet::etc_file(path, &walls.doors).unwrap_or_else(|| content.into()),
            });
        }
        for (target, path) in LINKS {
            self.attach.push(Step::Symlink {
                target: c_text(target)?,
                path: c_text(path)?,
            });
        }
        if walls.root != Root::HostUsr {
            return Ok(());
        }
        let zone = std::fs::read_link("/etc/localtime");
        if let (Ok(zone), None) = (zone, walls.seed) {
            self.attach.push(Step::Symlink {
                target: c_path(&zone)?,
                path: c_text("/etc/localtime")?,
            });
        }
        self.make_dir("/etc/ssl", 0o755)?;
        for path in view::ETC_FROM_HOST {
            match std::fs::metadata(path) {
                Ok(found) if found.is_dir() => self.bind(path, path, Access::ReadOnly)?,
                Ok(_) => self.bind_file(path)?,
                Err(_) => {}
            }
        }
        Ok(())
    }

    fn mounts(&mut self, walls: &Walls, trees: &Trees) -> Result<(), EngineError> {
        for (mount, tree) in walls.mounts.iter().zip(&trees.mounts) {
            let access = match mount.access {
                MountAccess::ReadOnly => Access::ReadOnly,
                MountAccess::ReadWrite => Access::ReadWrite,
            };
            let found = std::fs::metadata(&mount.source)
                .map_err(|error| unreadable(&mount.source, &error))?;
            let slot = self.take(&mount.source, *tree, access)?;
            self.make_parents(&mount.target)?;
            let target = c_path(&mount.target)?;
            if found.is_dir() {
                self.attach.push(Step::Mkdir {
                    path: target.clone(),
                    mode: 0o755,
                });
            } else {
                self.attach.push(Step::WriteFile {
                    path: target.clone(),
                    content: Vec::new(),
                });
            }
            self.attach.push(Step::Attach { slot, target });
        }
        Ok(())
    }

    fn workspace(&mut self, walls: &Walls, trees: &Trees) -> Result<(), EngineError> {
        let Some(workspace) = &walls.workspace else {
            return Ok(());
        };
        let slot = match workspace.access {
            WorkspaceAccess::ReadWrite => {
                self.take(&workspace.path, trees.workspace, Access::ReadWrite)?
            }
            WorkspaceAccess::ReadOnly => {
                self.take(&workspace.path, trees.workspace, Access::ReadOnly)?
            }
            WorkspaceAccess::CopyOnWrite => self.copy_on_write(workspace, trees)?,
        };
        self.make_dir(Workspace::INSIDE, 0o755)?;
        self.attach.push(Step::Attach {
            slot,
            target: c_text(Workspace::INSIDE)?,
        });
        Ok(())
    }

    fn copy_on_write(&mut self, workspace: &Workspace, trees: &Trees) -> Result<Slot, EngineError> {
        for (layer, mode) in [("lower", 0o755), ("upper", 0o755), ("overlay", 0o755)] {
            self.base.push(Step::Mkdir {
                path: c_text(layer)?,
                mode,
            });
        }
        let lower = self.take(&workspace.path, trees.workspace, Access::ReadOnly)?;
        self.base.push(Step::Attach {
            slot: lower,
            target: c_text("lower")?,
        });
        self.base.push(Step::SendDir {
            path: c_text("upper")?,
        });
        let slot = self.slot();
        let layers = (c_text("lower")?, c_text("upper")?, c_text("overlay")?);
        self.base.push(Step::NewOverlay {
            slot,
            lower: layers.0,
            upper: layers.1,
            work: layers.2,
        });
        Ok(slot)
    }

    fn finish(self) -> Result<Vec<Step>, EngineError> {
        let mut steps = self.host;
        steps.extend(self.base);
        steps.push(Step::Chdir {
            path: c_text("root")?,
        });
        steps.push(Step::Pivot);
        steps.extend(self.attach);
        steps.push(Step::SealRoot);
        steps.push(Step::Hostname {
            name: c_text("sandbox")?,
        });
        Ok(steps)
    }

    fn bind(&mut self, source: &str, target: &str, access: Access) -> Result<(), EngineError> {
        let slot = self.clone_host(Path::new(source), access)?;
        self.make_dir(target, 0o755)?;
        self.attach.push(Step::Attach {
            slot,
            target: c_text(target)?,
        });
        Ok(())
    }

    fn bind_file(&mut self, path: &str) -> Result<(), EngineError> {
        let slot = self.clone_host(Path::new(path), Access::ReadOnly)?;
        self.attach.push(Step::WriteFile {
            path: c_text(path)?,
            content: Vec::new(),
        });
        self.attach.push(Step::Attach {
            slot,
            target: c_text(path)?,
        });
        Ok(())
    }

    /// The source of a mount: a tree that was prepared with privilege, or the path itself.
    fn take(
        &mut self,
        path: &Path,
        tree: Option<usize>,
        access: Access,
    ) -> Result<Slot, EngineError> {
        let Some(index) = tree else {
            return self.clone_host(path, access);
        };
        let slot = self.slot();
        self.host.push(Step::Adopt { slot, index });
        self.host.push(Step::Harden { slot, access });
        Ok(slot)
    }

    /// A place in the scratch file system, which is the current directory while the root is built.
    fn clone_own(&mut self, name: &str) -> Result<Slot, EngineError> {
        let slot = self.slot();
        self.base.push(Step::CloneTree {
            slot,
            path: c_text(name)?,
        });
        Ok(slot)
    }

    /// A place on the host.
    fn clone_host(&mut self, path: &Path, access: Access) -> Result<Slot, EngineError> {
        let slot = self.slot();
        let absolute = std::path::absolute(path).map_err(|error| unreadable(path, &error))?;
        self.host.push(Step::CloneTree {
            slot,
            path: c_path(&absolute)?,
        });
        self.host.push(Step::Harden { slot, access });
        Ok(slot)
    }

    fn make_dir(&mut self, path: &str, mode: u32) -> Result<(), EngineError> {
        self.attach.push(Step::Mkdir {
            path: c_text(path)?,
            mode,
        });
        Ok(())
    }

    fn make_parents(&mut self, target: &Path) -> Result<(), EngineError> {
        let mut parents: Vec<&Path> = target
            .ancestors()
            .skip(1)
            .filter(|parent| parent.parent().is_some())
            .collect();
        parents.reverse();
        for parent in parents {
            self.attach.push(Step::Mkdir {
                path: c_path(parent)?,
                mode: 0o755,
            });
        }
        Ok(())
    }

    fn slot(&mut self) -> Slot {
        let slot = Slot(self.next);
        self.next = self.next.saturating_add(1);
        slot
    }
}
