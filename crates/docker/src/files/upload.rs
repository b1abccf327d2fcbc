//! The way in: a workspace becomes an archive as it is sent. Links are sent as links and never followed; what is neither file, directory nor link stays behind.

use std::ffi::{CStr, OsStr};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use bollard::Docker;
use bollard::query_parameters::UploadToContainerOptionsBuilder;
use bytes::Bytes;
use cofferdam_contract::request::WorkspaceAccess;
use cofferdam_engine::error::EngineError;
use cofferdam_store::beneath;
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags};
use rustix::io::Errno;
use sha2::{Digest as _, Sha256};
use tar::{Builder, EntryType, Header};
use tokio::sync::mpsc;

use super::carried::Carried;
use super::manifest::{Contents, MOST_ENTRIES, Manifest, Sent};
use crate::container::ID;
use crate::daemon::{self, Flavour, Maker};

/// Sends the whole directory and returns what was sent.
pub(crate) async fn send(
    client: &Docker,
    flavour: Flavour,
    container: &str,
    carried: &Carried,
) -> Result<Manifest, EngineError> {
    let what = match carried.is_workspace() {
        true => "workspace: cannot read",
        false => "mount: cannot read as a directory",
    };
    let unreadable = |path: &Path, errno| EngineError::Unreadable {
        what,
        path: path.display().to_string(),
        errno,
    };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = rustix::fs::open(&carried.path, flags, Mode::empty())
        .map_err(|errno| unreadable(&carried.path, errno))?;
    let (to, mut chunks) = mpsc::channel(4);
    let access = carried.access;
    let top = top(flavour, carried);
    let packing = tokio::task::spawn_blocking(move || pack(&root, access, &top, Pieces { to }));
    let body = futures_util::stream::poll_fn(move |context| chunks.poll_recv(context));
    let place = UploadToContainerOptionsBuilder::default()
        .path(&carried.inside)
        .build();
    let sent = client
        .upload_to_container(container, Some(place), bollard::body_stream(body))
        .await;
    let packed = packing.await;
    match packed {
        Ok(Ok(manifest)) => {
            sent.map_err(daemon::refused("send the workspace"))?;
            Ok(manifest)
        }
        // The daemon hung up: its own words say more than that nobody took the rest.
        Ok(Err(Unpacked { errno: None, .. })) | Err(_) => {
            sent.map_err(daemon::refused("send the workspace"))?;
            Err(daemon::unavailable(
                "the daemon did not take the whole workspace".to_owned(),
                "look at its log".to_owned(),
            ))
        }
        Ok(Err(Unpacked {
            path,
            errno: Some(errno),
        })) => Err(unreadable(
            &carried.path.join(OsStr::from_bytes(&path)),
            errno,
        )),
    }
}

/// What stopped the packing.
#[derive(Debug)]
struct Unpacked {
    path: Vec<u8>,
    /// None when it was the receiver.
    errno: Option<Errno>,
}

/// How the program sees what is sent: its own to change, or somebody else's that everybody may read.
#[derive(Debug, Clone, Copy)]
struct Ownership {
    id: u32,
    access: WorkspaceAccess,
}

impl Ownership {
    fn mode(self, mode: u32) -> u32 {
        match self.access {
            WorkspaceAccess::ReadWrite | WorkspaceAccess::CopyOnWrite => mode & 0o777,
            // What the owner may read and execute, everybody may, and nobody may write.
            WorkspaceAccess::ReadOnly => (mode >> 6 & 0o5) * 0o111,
        }
    }
}

/// The name by which the directory itself is in the archive, so that the program owns it. Docker leaves `.` as it is; the same directory by a longer way it does
/// not, and Podman knows no such difference.
fn top(flavour: Flavour, carried: &Carried) -> Vec<u8> {
    let longer = format!("../{}/", carried.name());
    match flavour.maker {
        // A header has room for so much; a directory of a longer name stays as the daemon made it.
        Maker::Docker if longer.len() < 100 => longer.into_bytes(),
        Maker::Docker | Maker::Podman => b"./".to_vec(),
    }
}

fn pack(
    root: &OwnedFd,
    access: WorkspaceAccess,
    top: &[u8],
    to: Pieces,
) -> Result<Manifest, Unpacked> {
    let ownership = Ownership {
        id: match access {
            WorkspaceAccess::ReadWrite | WorkspaceAccess::CopyOnWrite => ID,
            WorkspaceAccess::ReadOnly => 0,
        },
        access,
    };
    let mut packing = Packing {
        builder: Builder::new(to),
        ownership,
        manifest: Manifest::default(),
        next: vec![Vec::new()],
    };
    packing.top(root, top)?;
    while let Some(path) = packing.next.pop() {
        packing.directory(root.as_fd(), &path)?;
    }
    let gone = |_| Unpacked {
        path: Vec::new(),
        errno: None,
    };
    let mut to = packing.builder.into_inner().map_err(gone)?;
    to.flush().map_err(gone)?;
    Ok(packing.manifest)
}

struct Packing {
    builder: Builder<Pieces>,
    ownership: Ownership,
    manifest: Manifest,
    /// Directories that are still to be looked into.
    next: Vec<Vec<u8>>,
}

impl Packing {
    /// The workspace itself, so that the program owns it.
    fn top(&mut self, root: &OwnedFd, name: &[u8]) -> Result<(), Unpacked> {
        let stat = rustix::fs::fstat(root).map_err(|errno| at(b"", errno))?;
        let mut header = self.header(EntryType::Directory, stat.st_mode | 0o700, 0, stat.st_mtime);
        if let Some(room) = header.as_old_mut().name.get_mut(..name.len()) {
            room.copy_from_slice(name);
        }
        header.set_cksum();
        self.builder
            .append(&header, io::empty())
            .map_err(|error| told(b"", &error))
    }

    fn directory(&mut self, root: BorrowedFd<'_>, path: &[u8]) -> Result<(), Unpacked> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = beneath::open(root, path, flags).map_err(|errno| at(path, errno))?;
        let listing = Dir::read_from(&dir).map_err(|errno| at(path, errno))?;
        for entry in listing {
            let entry = entry.map_err(|errno| at(path, errno))?;
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            let mut below = path.to_vec();
            if !below.is_empty() {
                below.push(b'/');
            }
            below.extend_from_slice(name.to_bytes());
            if self.manifest.entries.len() >= MOST_ENTRIES {
                return Err(at(&below, Errno::FBIG));
            }
            self.entry(dir.as_fd(), name, below)?;
        }
        Ok(())
    }

    fn entry(&mut self, dir: BorrowedFd<'_>, name: &CStr, path: Vec<u8>) -> Result<(), Unpacked> {
        let stat = match rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            // It went away while we looked.
            Err(Errno::NOENT) => return Ok(()),
            Err(errno) => return Err(at(&path, errno)),
        };
        let time = stat.st_mtime;
        let shown = Path::new(OsStr::from_bytes(&path));
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => {
                let mode = stat.st_mode | 0o500;
                let mut header = self.header(EntryType::Directory, mode, 0, time);
                self.builder
                    .append_data(&mut header, shown, io::empty())
                    .map_err(|error| told(&path, &error))?;
                self.manifest.entries.insert(path.clone(), Sent::Dir);
                self.next.push(path);
            }
            FileType::Symlink => {
                let target = rustix::fs::readlinkat(dir, name, Vec::new())
                    .map_err(|errno| at(&path, errno))?
                    .into_bytes();
                let mut header = self.header(EntryType::Symlink, 0o777, 0, time);
                self.builder
                    .append_link(&mut header, shown, OsStr::from_bytes(&target))
                    .map_err(|error| told(&path, &error))?;
                self.manifest.entries.insert(path, Sent::Link { target });
            }
            FileType::RegularFile => self.file(dir, name, path)?,
            _ => {}
        }
        Ok(())
    }

    fn file(&mut self, dir: BorrowedFd<'_>, name: &CStr, path: Vec<u8>) -> Result<(), Unpacked> {
        // It may have become something else since it was looked at: a pipe must not hold us up.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = match rustix::fs::openat(dir, name, flags, Mode::empty()) {
            Ok(file) => File::from(file),
            Err(Errno::NOENT | Errno::LOOP) => return Ok(()),
            Err(errno) => return Err(at(&path, errno)),
        };
        let stat = rustix::fs::fstat(&file).map_err(|errno| at(&path, errno))?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Ok(());
        }
        let size = u64::try_from(stat.st_size).unwrap_or(0);
        let mut header = self.header(EntryType::Regular, stat.st_mode, size, stat.st_mtime);
        let mut contents = Exactly {
            file,
            left: size,
            digest: Sha256::new(),
            errno: None,
        };
        let shown = Path::new(OsStr::from_bytes(&path));
        let appended = self.builder.append_data(&mut header, shown, &mut contents);
        if let Some(errno) = contents.errno {
            return Err(at(&path, errno));
        }
        appended.map_err(|error| told(&path, &error))?;
        self.manifest.bytes += size;
        let sent = Sent::File {
            mode: self.ownership.mode(stat.st_mode),
            contents: Contents {
                size,
                digest: contents.digest.finalize().into(),
            },
        };
        self.manifest.entries.insert(path, sent);
        Ok(())
    }

    fn header(&self, kind: EntryType, mode: u32, size: u64, time: i64) -> Header {
        let mut header = Header::new_gnu();
        header.set_entry_type(kind);
        header.set_mode(self.ownership.mode(mode));
        header.set_uid(u64::from(self.ownership.id));
        header.set_gid(u64::from(self.ownership.id));
        header.set_size(size);
        header.set_mtime(u64::try_from(time).unwrap_or(0));
        header
    }
}

fn at(path: &[u8], errno: Errno) -> Unpacked {
    Unpacked {
        path: path.to_vec(),
        errno: Some(errno),
    }
}

/// The archive's own errors are about names that it cannot hold; anything else is the receiver.
fn told(path: &[u8], error: &io::Error) -> Unpacked {
    Unpacked {
        path: path.to_vec(),
        errno: (error.kind() != io::ErrorKind::BrokenPipe).then_some(Errno::INVAL),
    }
}

/// As many bytes of a file as its header promised: one that shrinks meanwhile is filled up, one that grows is cut.
struct Exactly {
    file: File,
    left: u64,
    digest: Sha256,
    errno: Option<Errno>,
}

impl Read for Exactly {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = usize::try_from(self.left).unwrap_or(usize::MAX);
        let most = most.min(buffer.len());
        let Some(room) = buffer.get_mut(..most).filter(|room| !room.is_empty()) else {
            return Ok(0);
        };
        let read = match self.file.read(room) {
            Ok(0) => {
                room.fill(0);
                room.len()
            }
            Ok(read) => read,
            Err(error) => {
                self.errno = Errno::from_io_error(&error);
                return Err(error);
            }
        };
        self.digest.update(room.get(..read).unwrap_or_default());
        self.left -= read as u64;
        Ok(read)
    }
}

/// Hands an archive over in pieces, as fast as they are taken.
struct Pieces {
    to: mpsc::Sender<Bytes>,
}

impl Write for Pieces {
    fn write(&mut self, piece: &[u8]) -> io::Result<usize> {
        let gone = |_| io::Error::from(io::ErrorKind::BrokenPipe);
        self.to
            .blocking_send(Bytes::copy_from_slice(piece))
            .map_err(gone)?;
        Ok(piece.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
