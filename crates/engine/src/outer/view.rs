//! What a program sees behind walls that a tool builds: the same as in a native sandbox, as a list that says nothing about how it is put up.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use cofferdam_contract::request::{
    ImageRoot, MountAccess, Request, Root, Workspace, WorkspaceAccess,
};
use cofferdam_sys::attendant;
use rustix::io::Errno;

use crate::error::EngineError;
use crate::native::view::{ETC_FILES, ETC_FROM_HOST};
use crate::native::{DEVICES, LINKS, USR_FRIENDS};
use crate::program::HOME;

/// One thing that is seen inside. A later one may lie on an earlier one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Entry {
    Dir(PathBuf),
    Link {
        target: PathBuf,
        path: PathBuf,
    },
    File {
        path: PathBuf,
        content: Vec<u8>,
    },
    Bind {
        source: PathBuf,
        path: PathBuf,
        mode: Mode,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    ReadOnly,
    ReadWrite,
    Device,
}

/// Put up by the sandbox, whatever a root directory holds there.
const OWN: [&str; 7] = ["dev", "proc", "sys", "tmp", "etc", "home", "work"];

/// Everything but /proc and the scratch space in /tmp.
pub(crate) fn view(request: &Request) -> Result<Vec<Entry>, EngineError> {
    let mut entries = Vec::new();
    match &request.root {
        Root::HostUsr => host_root(&mut entries),
        Root::Dir(dir) | Root::Image(ImageRoot { dir, .. }) => {
            check_is_dir("the root is not a directory:", dir)?;
            spread(dir, Path::new("/"), &OWN, &mut entries)?;
            spread(
                &dir.join("home"),
                Path::new("/home"),
                &["sandbox"],
                &mut entries,
            )?;
        }
    }
    etc(&request.root, &mut entries)?;
    entries.push(Entry::Dir("/home".into()));
    entries.push(Entry::Dir("/dev".into()));
    for device in DEVICES {
        entries.push(Entry::Bind {
            source: device.into(),
            path: device.into(),
            mode: Mode::Device,
        });
    }
    let scratch = [
        (attendant::HOME_IN_SCRATCH, HOME),
        (attendant::SHM_IN_SCRATCH, "/dev/shm"),
    ];
    for (target, path) in LINKS.into_iter().chain(scratch) {
        entries.push(Entry::Link {
            target: target.into(),
            path: path.into(),
        });
    }
    for mount in &request.mounts {
        entries.push(Entry::Bind {
            source: absolute(&mount.source)?,
            path: mount.target.clone(),
            mode: match mount.access {
                MountAccess::ReadOnly => Mode::ReadOnly,
                MountAccess::ReadWrite => Mode::ReadWrite,
            },
        });
    }
    if let Some(workspace) = &request.workspace {
        check_is_dir("the workspace is not a directory:", &workspace.path)?;
        entries.push(Entry::Bind {
            source: absolute(&workspace.path)?,
            path: Workspace::INSIDE.into(),
            mode: match workspace.access {
                // The grant has refused copy-on-write; nothing would be written through.
                WorkspaceAccess::ReadOnly | WorkspaceAccess::CopyOnWrite => Mode::ReadOnly,
                WorkspaceAccess::ReadWrite => Mode::ReadWrite,
            },
        });
    }
    Ok(entries)
}

fn host_root(entries: &mut Vec<Entry>) {
    entries.push(bind("/usr"));
    for friend in USR_FRIENDS {
        match std::fs::read_link(friend) {
            Ok(target) => entries.push(Entry::Link {
                target,
                path: friend.into(),
            }),
            Err(_) if Path::new(friend).is_dir() => entries.push(bind(friend)),
            Err(_) => {}
        }
    }
}

fn etc(root: &Root, entries: &mut Vec<Entry>) -> Result<(), EngineError> {
    entries.push(Entry::Dir("/etc".into()));
    if let Some(dir) = root.dir() {
        let ours = ETC_FILES.iter().map(|(path, _)| *path);
        let ours = ours.chain(LINKS.iter().map(|(_, path)| *path));
        let ours: Vec<&str> = ours.filter_map(|path| path.strip_prefix("/etc/")).collect();
        spread(&dir.join("etc"), Path::new("/etc"), &ours, entries)?;
    }
    for (path, content) in ETC_FILES {
        entries.push(Entry::File {
            path: path.into(),
            content: content.as_bytes().to_vec(),
        });
    }
    if *root == Root::HostUsr {
        if let Ok(target) = std::fs::read_link("/etc/localtime") {
            entries.push(Entry::Link {
                target,
                path: "/etc/localtime".into(),
            });
        }
        let there = ETC_FROM_HOST
            .into_iter()
            .filter(|path| Path::new(path).exists());
        entries.extend(there.map(bind));
    }
    Ok(())
}

/// What a directory holds, piece by piece, so that something else can be put beside it without writing to it. A link stays a link: it leads to what is inside.
fn spread(
    dir: &Path,
    at: &Path,
    but: &[&str],
    entries: &mut Vec<Entry>,
) -> Result<(), EngineError> {
    let listing = match std::fs::read_dir(dir) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        other => other.map_err(|error| unreadable(dir, &error))?,
    };
    for found in listing {
        let found = found.map_err(|error| unreadable(dir, &error))?;
        let name = found.file_name();
        if but.iter().any(|other| name == OsStr::new(other)) {
            continue;
        }
        let (source, path) = (found.path(), at.join(&name));
        match std::fs::read_link(&source) {
            Ok(target) => entries.push(Entry::Link { target, path }),
            Err(_) => entries.push(Entry::Bind {
                source: absolute(&source)?,
                path,
                mode: Mode::ReadOnly,
            }),
        }
    }
    Ok(())
}

fn bind(path: &str) -> Entry {
    Entry::Bind {
        source: path.into(),
        path: path.into(),
        mode: Mode::ReadOnly,
    }
}

fn check_is_dir(otherwise: &'static str, path: &Path) -> Result<(), EngineError> {
    let found = std::fs::metadata(path).map_err(|error| unreadable(path, &error))?;
    if found.is_dir() {
        return Ok(());
    }
    Err(EngineError::Unreadable {
        what: otherwise,
        path: path.display().to_string(),
        errno: Errno::NOTDIR,
    })
}

fn absolute(path: &Path) -> Result<PathBuf, EngineError> {
    std::path::absolute(path).map_err(|error| unreadable(path, &error))
}

fn unreadable(path: &Path, error: &std::io::Error) -> EngineError {
    EngineError::Unreadable {
        what: "cannot open",
        path: path.display().to_string(),
        errno: error
            .raw_os_error()
            .map_or(Errno::IO, Errno::from_raw_os_error),
    }
}
