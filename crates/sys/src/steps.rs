//! Executes the [`Step`]s of a blueprint inside the cloned child. Allocates nothing.

use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountPropagationFlags, UnmountFlags,
};

use crate::blueprint::{Access, Slot, Step};
use crate::child::Building;
use crate::mount::{self, MountAttr};
use crate::protocol::ProcView;

/// How many directories a blueprint may send to the supervisor.
pub(crate) const MAX_DIRS: usize = 4;

/// What the steps leave behind for the stages after them.
pub(crate) struct Built {
    pub(crate) dirs: [Option<OwnedFd>; MAX_DIRS],
    pub(crate) proc: ProcView,
    old_root: OldRoot,
}

enum OldRoot {
    /// The root was not changed.
    Ours,
    /// The host's tree is mounted over ours.
    OnTop,
}

/// Executes all steps; on failure returns the index of the one that failed. Nothing may be started before [`leave_old_root`] has been called.
pub(crate) fn execute(
    steps: &[Step],
    trees: &[OwnedFd],
    before_pivot: Option<&Building>,
) -> Result<Built, (usize, Errno)> {
    let mut slots: [Option<OwnedFd>; Slot::COUNT] = [const { None }; Slot::COUNT];
    let mut built = Built {
        dirs: [const { None }; MAX_DIRS],
        proc: ProcView::Absent,
        old_root: OldRoot::Ours,
    };
    for (index, step) in steps.iter().enumerate() {
        if let (Step::Pivot, Some(building)) = (step, before_pivot) {
            building.await_birth();
        }
        execute_one(step, trees, &mut slots, &mut built).map_err(|errno| (index, errno))?;
    }
    Ok(built)
}

/// Lets go of the host's tree, if the root was changed. Waits for every CPU to pass through the scheduler, so it comes last, when others have work for this
/// CPU.
pub(crate) fn leave_old_root(built: &Built) -> Result<(), Errno> {
    match built.old_root {
        OldRoot::Ours => Ok(()),
        OldRoot::OnTop => rustix::mount::unmount(c".", UnmountFlags::DETACH),
    }
}

fn execute_one(
    step: &Step,
    trees: &[OwnedFd],
    slots: &mut [Option<OwnedFd>; Slot::COUNT],
    built: &mut Built,
) -> Result<(), Errno> {
    match step {
        Step::MakePrivate => {
            let recursively = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
            rustix::mount::mount_change(c"/", recursively)
        }
        Step::NewTmpfs { slot, size, inodes } => {
            let made = new_file_system(
                c"tmpfs",
                &[(c"size", size), (c"nr_inodes", inodes), (c"mode", c"755")],
            )?;
            put(slots, *slot, made)
        }
        Step::NewProc { slot } => match new_file_system(c"proc", &[(c"hidepid", c"2")]) {
            Ok(made) => {
                built.proc = ProcView::Own;
                put(slots, *slot, made)
            }
            Err(Errno::PERM) => Ok(()),
            Err(errno) => Err(errno),
        },
        Step::NewOverlay {
            slot,
            lower,
            upper,
            work,
        } => {
            let options: [(&CStr, &CStr); 4] = [
                (c"lowerdir", lower),
                (c"upperdir", upper),
                (c"workdir", work),
                (c"userxattr", c""),
            ];
            put(slots, *slot, new_file_system(c"overlay", &options)?)
        }
        Step::CloneTree { slot, path } => put(slots, *slot, mount::clone_tree(path)?),
        Step::Adopt { slot, index } => {
            let tree = trees.get(*index).ok_or(Errno::BADF)?;
            put(slots, *slot, rustix::io::fcntl_dupfd_cloexec(tree, 3)?)
        }
        Step::Harden { slot, access } => match get(slots, *slot) {
            Some(mount) => harden(mount.as_fd(), *access),
            None => Ok(()),
        },
        Step::Attach { slot, target } => {
            match slots.get_mut(usize::from(slot.0)).and_then(Option::take) {
                Some(mount) => mount::attach(mount.as_fd(), target),
                None => Ok(()),
            }
        }
        Step::Cover { slot, target } => {
            match slots.get_mut(usize::from(slot.0)).and_then(Option::take) {
                Some(mount) => match mount::attach(mount.as_fd(), target) {
                    Err(Errno::NOENT) => Ok(()),
                    other => other,
                },
                None => Ok(()),
            }
        }
        Step::Chdir { path } => rustix::process::chdir(path),
        Step::Mkdir { path, mode } => make_dir(path, *mode),
        Step::Symlink { target, path } => match rustix::fs::symlinkat(target, CWD, path) {
            Err(Errno::EXIST) => Ok(()),
            other => other,
        },
        Step::WriteFile { path, content } => write_file(path, content),
        Step::Fifo { path } => {
            rustix::fs::mknodat(CWD, path, FileType::Fifo, Mode::from_raw_mode(0o644), 0)
        }
        Step::SendDir { path } => {
            let dir = rustix::fs::openat(
                CWD,
                path,
                OFlags::DIRECTORY | OFlags::CLOEXEC,
                Mode::empty(),
            )?;
            let free = built
                .dirs
                .iter_mut()
                .find(|place| place.is_none())
                .ok_or(Errno::MFILE)?;
            *free = Some(dir);
            Ok(())
        }
        Step::Pivot => pivot(built),
        Step::SealRoot => {
            let root =
                rustix::fs::openat(CWD, c"/", OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
            mount::set_attributes_of_one(root.as_fd(), mount::READ_ONLY)
        }
        Step::Hostname { name } => rustix::system::sethostname(name.to_bytes()),
    }
}

/// `fsopen`, the options, `fsmount`. Nothing on it is a device, nothing gains privileges by being executed.
fn new_file_system(kind: &CStr, options: &[(&CStr, &CStr)]) -> Result<OwnedFd, Errno> {
    let context = rustix::mount::fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC)?;
    for (key, value) in options {
        if value.is_empty() {
            rustix::mount::fsconfig_set_flag(context.as_fd(), *key)?;
        } else {
            rustix::mount::fsconfig_set_string(context.as_fd(), *key, *value)?;
        }
    }
    rustix::mount::fsconfig_create(context.as_fd())?;
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    rustix::mount::fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, attributes)
}

fn harden(tree: BorrowedFd<'_>, access: Access) -> Result<(), Errno> {
    let set = match access {
        Access::ReadOnly => mount::READ_ONLY | mount::NO_SUID | mount::NO_DEV,
        Access::ReadWrite => mount::NO_SUID | mount::NO_DEV,
        Access::Device => mount::NO_SUID | mount::NO_EXEC,
    };
    mount::set_attributes(
        tree,
        &MountAttr {
            set,
            ..MountAttr::default()
        },
    )
}

/// A directory that is already there is fine: a root directory of the caller's brings its own.
fn make_dir(path: &CStr, mode: u32) -> Result<(), Errno> {
    match rustix::fs::mkdirat(CWD, path, Mode::from_raw_mode(mode)) {
        Err(Errno::EXIST) => Ok(()),
        other => other,
    }
}

/// Replaces whatever is there, without following it: in a root directory of the caller's, /etc/passwd may be a link to anywhere.
fn write_file(path: &CStr, content: &[u8]) -> Result<(), Errno> {
    let file = match create(path) {
        Err(Errno::EXIST) => {
            rustix::fs::unlinkat(CWD, path, AtFlags::empty())?;
            create(path)?
        }
        other => other?,
    };
    let mut rest = content;
    while !rest.is_empty() {
        let written = rustix::io::write(&file, rest)?;
        rest = rest.get(written..).unwrap_or_default();
    }
    Ok(())
}

fn create(path: &CStr) -> Result<OwnedFd, Errno> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    rustix::fs::openat(CWD, path, flags, Mode::from_raw_mode(0o644))
}

/// Makes the current directory, which is a mount, the root. The old root lands on top of it, where it needs no directory of its own, and stays until
/// [`leave_old_root`]. No step in between can see it: paths start at the new root.
fn pivot(built: &mut Built) -> Result<(), Errno> {
    rustix::process::pivot_root(c".", c".")?;
    built.old_root = OldRoot::OnTop;
    rustix::process::chdir(c"/")
}

fn put(
    slots: &mut [Option<OwnedFd>; Slot::COUNT],
    slot: Slot,
    mount: OwnedFd,
) -> Result<(), Errno> {
    *slots.get_mut(usize::from(slot.0)).ok_or(Errno::MFILE)? = Some(mount);
    Ok(())
}

fn get(slots: &[Option<OwnedFd>; Slot::COUNT], slot: Slot) -> Option<&OwnedFd> {
    slots.get(usize::from(slot.0)).and_then(Option::as_ref)
}
