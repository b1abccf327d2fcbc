//! What a daemon is sent to build an image from: a directory as an archive in memory. No link is followed, what `.dockerignore` names stays here, and there is a bound on all of it.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use cofferdam_store::beneath;
use ignore::gitignore::{Gitignore, GitignoreBuilder};
use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use tar::{Builder, EntryType, Header};

use crate::error::ImageError;

/// All of it together: it is held in memory.
pub const MOST_BYTES: u64 = 256 << 20;
pub const MOST_FILES: usize = 20_000;
const IGNORE_FILE: &[u8] = b".dockerignore";
const DOCKERFILE: &[u8] = b"Dockerfile";

/// The archive of a directory that has a Dockerfile.
pub fn of_directory(dir: &Path) -> Result<Vec<u8>, ImageError> {
    let unreadable = ImageError::unreadable(dir);
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = rustix::fs::open(dir, flags, Mode::empty());
    let root = root.map_err(|errno| unreadable(errno.into()))?;
    let packing = Packing {
        ignored: ignored(&root, dir)?,
        dir,
        builder: Builder::new(Vec::new()),
        files: 0,
        bytes: 0,
    };
    packing.pack(&root)
}

/// The archive of a Dockerfile alone.
pub fn of_dockerfile(text: &str) -> Result<Vec<u8>, ImageError> {
    let mut builder = Builder::new(Vec::new());
    let mut header = header(EntryType::Regular, 0o644, text.len() as u64);
    let failed = |error: io::Error| ImageError::refused("the Dockerfile", error.to_string());
    builder
        .append_data(&mut header, "Dockerfile", text.as_bytes())
        .map_err(failed)?;
    builder.into_inner().map_err(failed)
}

struct Packing<'a> {
    ignored: Gitignore,
    dir: &'a Path,
    builder: Builder<Vec<u8>>,
    files: usize,
    bytes: u64,
}

impl Packing<'_> {
    fn pack(mut self, root: &OwnedFd) -> Result<Vec<u8>, ImageError> {
        let mut has_dockerfile = false;
        let mut next = vec![Vec::new()];
        while let Some(way) = next.pop() {
            let unreadable = self.unreadable(&way);
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let dir = beneath::open(root, &way, flags).map_err(|errno| unreadable(errno.into()))?;
            let mut names = beneath::names(&dir).map_err(&unreadable)?;
            names.sort();
            for name in names {
                let name = name.into_bytes();
                let path = match way.is_empty() {
                    true => name.clone(),
                    false => [&way[..], &name].join(&b'/'),
                };
                has_dockerfile |= path == DOCKERFILE;
                self.entry(&dir, &name, path, &mut next)?;
            }
        }
        if !has_dockerfile {
            let what = format!("`{}`", self.dir.display());
            return Err(ImageError::refused(what, "it has no Dockerfile in it"));
        }
        let failed = |error: io::Error| ImageError::refused("the context", error.to_string());
        self.builder.into_inner().map_err(failed)
    }

    fn entry(
        &mut self,
        dir: &OwnedFd,
        name: &[u8],
        path: Vec<u8>,
        next: &mut Vec<Vec<u8>>,
    ) -> Result<(), ImageError> {
        let unreadable = self.unreadable(&path);
        let found = rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW);
        let found = found.map_err(|errno| unreadable(errno.into()))?;
        let kind = FileType::from_raw_mode(found.st_mode);
        let shown = Path::new(OsStr::from_bytes(&path));
        let is_dir = kind == FileType::Directory;
        // The daemon needs these two, whatever the list says.
        let is_needed = path == DOCKERFILE || path == IGNORE_FILE;
        let is_ignored = self
            .ignored
            .matched_path_or_any_parents(shown, is_dir)
            .is_ignore();
        if is_ignored && !is_needed {
            // Something below may be wanted again, which a directory alone does not show.
            if is_dir && self.ignored.num_whitelists() > 0 {
                next.push(path);
            }
            return Ok(());
        }
        self.files += 1;
        if self.files > MOST_FILES {
            return Err(too_large(format!(
                "has more than {MOST_FILES} files in its context"
            )));
        }
        let mode = found.st_mode & 0o777;
        let failed = |error: io::Error| unreadable(error);
        match kind {
            FileType::Directory => {
                let mut header = header(EntryType::Directory, mode, 0);
                let appended = self.builder.append_data(&mut header, shown, io::empty());
                appended.map_err(failed)?;
                next.push(path);
            }
            FileType::Symlink => {
                let target = rustix::fs::readlinkat(dir, name, Vec::new());
                let target = target.map_err(|errno| unreadable(errno.into()))?;
                let target = OsStr::from_bytes(target.as_bytes());
                let mut header = header(EntryType::Symlink, 0o777, 0);
                let appended = self.builder.append_link(&mut header, shown, target);
                appended.map_err(failed)?;
            }
            FileType::RegularFile => self.file(dir, name, &path, mode)?,
            // Pipes, sockets and devices are nothing that an image is built from.
            _ => {}
        }
        Ok(())
    }

    fn file(
        &mut self,
        dir: &OwnedFd,
        name: &[u8],
        path: &[u8],
        mode: u32,
    ) -> Result<(), ImageError> {
        let unreadable = self.unreadable(path);
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = rustix::fs::openat(dir, name, flags, Mode::empty());
        let file = File::from(file.map_err(|errno| unreadable(errno.into()))?);
        let left = MOST_BYTES.saturating_sub(self.bytes);
        let mut bytes = Vec::new();
        let read = file.take(left + 1).read_to_end(&mut bytes);
        self.bytes += read.map_err(&unreadable)? as u64;
        if self.bytes > MOST_BYTES {
            let most = MOST_BYTES >> 20;
            return Err(too_large(format!("has a context of more than {most} MiB")));
        }
        let mut header = header(EntryType::Regular, mode, bytes.len() as u64);
        let shown = Path::new(OsStr::from_bytes(path));
        let appended = self
            .builder
            .append_data(&mut header, shown, bytes.as_slice());
        appended.map_err(&unreadable)
    }

    fn unreadable(&self, path: &[u8]) -> impl Fn(io::Error) -> ImageError + use<> {
        let path = self.dir.join(OsStr::from_bytes(path));
        move |source| ImageError::Unreadable {
            path: path.clone(),
            source,
        }
    }
}

fn too_large(bound: String) -> ImageError {
    ImageError::TooLarge {
        bound,
        fix: "name what is not needed in .dockerignore",
    }
}

/// Nobody's files of no time: the same directory gives the same archive.
fn header(kind: EntryType, mode: u32, size: u64) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_size(size);
    header
}

/// The patterns of `.dockerignore`, which are about paths from the top, whether they begin with `/` or not.
fn ignored(root: &OwnedFd, dir: &Path) -> Result<Gitignore, ImageError> {
    let path = dir.join(".dockerignore");
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let mut text = String::new();
    match beneath::open(root, IGNORE_FILE, flags) {
        Ok(file) => {
            let read = File::from(file).take(1 << 20).read_to_string(&mut text);
            read.map_err(ImageError::unreadable(&path))?;
        }
        Err(rustix::io::Errno::NOENT) => {}
        Err(errno) => return Err(ImageError::unreadable(&path)(errno.into())),
    }
    let mut builder = GitignoreBuilder::new("");
    for line in text.lines() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (not, pattern) = match line.strip_prefix('!') {
            Some(pattern) => ("!", pattern.trim()),
            None => ("", line),
        };
        let pattern = pattern.trim_start_matches("./").trim_start_matches('/');
        let pattern = pattern.trim_end_matches('/');
        let added = builder.add_line(None, &format!("{not}/{pattern}"));
        added.map_err(|error| {
            let what = format!("`{}`", path.display());
            ImageError::refused(what, error.to_string())
        })?;
    }
    let built = builder.build();
    built.map_err(|error| ImageError::refused(format!("`{}`", path.display()), error.to_string()))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    fn names(archive: &[u8]) -> Vec<String> {
        let mut archive = tar::Archive::new(archive);
        let entries = archive.entries().unwrap();
        let name = |entry: io::Result<tar::Entry<'_, _>>| {
            String::from_utf8(entry.unwrap().path_bytes().into_owned()).unwrap()
        };
        let mut names: Vec<String> = entries.map(name).collect();
        names.sort();
        names
    }

    #[test]
    fn a_context_is_the_directory_without_what_is_ignored_and_without_what_links_lead_to() {
        let top = tempfile::tempdir().unwrap();
        let dir = top.path().join("context");
        fs::create_dir_all(dir.join("src/deep")).unwrap();
        fs::create_dir_all(dir.join("node_modules/x")).unwrap();
        fs::create_dir_all(dir.join("out")).unwrap();
        fs::write(top.path().join("secret"), "secret").unwrap();
        for file in [
            "Dockerfile",
            "src/main.py",
            "src/deep/key.pem",
            "node_modules/x/a",
            "out/a",
            "out/keep",
            "key.pem",
        ] {
            fs::write(dir.join(file), "x").unwrap();
        }
        fs::write(
            dir.join(".dockerignore"),
            "# no\nnode_modules\n/out/*\n!out/keep\n**/*.pem\nDockerfile\n",
        )
        .unwrap();
        symlink(top.path().join("secret"), dir.join("link")).unwrap();
        let archive = of_directory(&dir).unwrap();
        assert_eq!(
            names(&archive),
            [
                ".dockerignore",
                "Dockerfile",
                "link",
                "out",
                "out/keep",
                "src",
                "src/deep",
                "src/main.py"
            ]
        );
        let text = String::from_utf8_lossy(&archive);
        assert_eq!(
            text.matches("secret").count(),
            1,
            "the link's target and nothing else"
        );
        assert_eq!(
            of_directory(&dir).unwrap(),
            archive,
            "same directory, same archive"
        );
        fs::remove_file(dir.join("Dockerfile")).unwrap();
        let error = of_directory(&dir).unwrap_err();
        assert!(error.to_string().contains("no Dockerfile"), "{error}");
        assert_eq!(names(&of_dockerfile("FROM x").unwrap()), ["Dockerfile"]);
    }

    #[test]
    fn a_context_is_bounded() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("Dockerfile"), "FROM x").unwrap();
        let large = File::create(dir.path().join("large")).unwrap();
        large.set_len(MOST_BYTES + 1).unwrap();
        let error = of_directory(dir.path()).unwrap_err();
        assert!(error.to_string().contains(".dockerignore"), "{error}");
    }
}
