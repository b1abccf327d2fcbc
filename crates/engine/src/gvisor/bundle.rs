//! An OCI bundle: the root that the view asks for, and the `config.json` that says the rest.

use std::ffi::{OsStr, OsString};
use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Component, Path, PathBuf};

use serde_json::{Value, json};

use crate::outer::{Entry, Mode};

pub(super) const ATTENDANT: &str = "/.attendant";
/// Where the attendant tells, inside.
pub(super) const TELL: &str = "/.told";

/// What the bundle is made for.
#[derive(Debug)]
pub(super) struct Asked<'a> {
    pub(super) view: &'a [Entry],
    pub(super) args: &'a [OsString],
    pub(super) env: &'a [(OsString, OsString)],
    /// The file on the host that the attendant tells into.
    pub(super) told: &'a Path,
    /// Of /tmp and /dev/shm together; `None` for no limit.
    pub(super) scratch_bytes: Option<u64>,
    pub(super) attendant: &'a [u8],
}

/// Writes everything below `dir`, which exists and is private.
pub(super) fn write(dir: &Path, asked: &Asked<'_>) -> io::Result<()> {
    let root = dir.join("rootfs");
    DirBuilder::new().mode(0o755).create(&root)?;
    let mut mounts = Vec::new();
    for own in ["/proc", "/tmp", "/dev", "/sys"] {
        make_dir(&root, Path::new(own))?;
    }
    // runsc has devices of its own.
    let ours = asked
        .view
        .iter()
        .filter(|entry| !path_of(entry).starts_with("/dev"));
    for entry in ours {
        put(&root, entry, &mut mounts)?;
    }
    write_file(&root, Path::new(ATTENDANT), asked.attendant, 0o555)?;
    write_file(&root, Path::new(TELL), b"", 0o600)?;
    mounts.push(mount(Path::new(TELL), asked.told, "rw"));
    let config = serde_json::to_vec(&config(asked, mounts))?;
    std::fs::write(dir.join("config.json"), config)
}

fn path_of(entry: &Entry) -> &Path {
    match entry {
        Entry::Dir(path)
        | Entry::Link { path, .. }
        | Entry::File { path, .. }
        | Entry::Bind { path, .. } => path,
    }
}

fn put(root: &Path, entry: &Entry, mounts: &mut Vec<Value>) -> io::Result<()> {
    match entry {
        Entry::Dir(path) => make_dir(root, path),
        Entry::Link { target, path } => {
            let place = place(root, path)?;
            match std::os::unix::fs::symlink(target, place) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
                other => other,
            }
        }
        Entry::File { path, content } => write_file(root, path, content, 0o644),
        Entry::Bind { source, path, mode } => {
            if std::fs::metadata(source)?.is_dir() {
                make_dir(root, path)?;
            } else {
                write_file(root, path, b"", 0o644)?;
            }
            let access = match mode {
                Mode::ReadOnly | Mode::Device => "ro",
                Mode::ReadWrite => "rw",
            };
            mounts.push(mount(path, source, access));
            Ok(())
        }
    }
}

fn mount(at: &Path, source: &Path, access: &str) -> Value {
    json!({
        "destination": text(at.as_os_str()),
        "type": "bind",
        "source": text(source.as_os_str()),
        "options": ["rbind", access, "nosuid", "nodev"],
    })
}

fn scratch(at: &str, mode: &str, bytes: Option<u64>) -> Value {
    let mut options = vec![
        format!("mode={mode}"),
        "nosuid".to_owned(),
        "nodev".to_owned(),
    ];
    options.extend(bytes.map(|bytes| format!("size={bytes}")));
    json!({ "destination": at, "type": "tmpfs", "source": "tmpfs", "options": options })
}

/// Shared memory gets an eighth of the scratch space, since runsc gives each file system a size of its own.
fn config(asked: &Asked<'_>, binds: Vec<Value>) -> Value {
    let shm = asked.scratch_bytes.map(|bytes| (bytes / 8).max(4096));
    let tmp = asked.scratch_bytes.zip(shm);
    let tmp = tmp.map(|(all, shm)| all.saturating_sub(shm).max(4096));
    let mut mounts = vec![
        json!({ "destination": "/proc", "type": "proc", "source": "proc" }),
        scratch("/tmp", "1777", tmp),
        scratch("/dev/shm", "1777", shm),
    ];
    mounts.extend(binds);
    let env: Vec<Value> = asked
        .env
        .iter()
        .map(|(name, value)| {
            Value::from(format!(
                "{}={}",
                name.to_string_lossy(),
                value.to_string_lossy()
            ))
        })
        .collect();
    // The attendant is root of this kernel and lets go of it before the program begins: what it tells is out of the program's reach.
    let own = ["CAP_SETUID", "CAP_SETGID", "CAP_SETPCAP"];
    let namespaces = ["pid", "ipc", "uts", "mount", "network"].map(|kind| json!({ "type": kind }));
    json!({
        "ociVersion": "1.0.2",
        "process": {
            "terminal": false,
            "user": { "uid": 0, "gid": 0 },
            "args": asked.args.iter().map(|arg| text(arg)).collect::<Vec<_>>(),
            "env": env,
            "cwd": "/",
            "capabilities": {
                "bounding": own, "effective": own, "permitted": own, "inheritable": [], "ambient": [],
            },
            "noNewPrivileges": true,
        },
        "root": { "path": "rootfs", "readonly": true },
        "hostname": "sandbox",
        "mounts": mounts,
        "linux": { "namespaces": namespaces },
    })
}

/// JSON has no other strings; the caller has refused what is not UTF-8.
fn text(word: &OsStr) -> Value {
    Value::from(word.to_string_lossy())
}

/// Where a path of the sandbox lies below the root that is being made. No link is followed on the way: it could have come from a root directory and lead anywhere on the host.
fn place(root: &Path, path: &Path) -> io::Result<PathBuf> {
    let mut place = root.to_owned();
    let mut parts = path.components().peekable();
    while let Some(part) = parts.next() {
        match part {
            Component::Normal(name) => place.push(name),
            Component::RootDir | Component::CurDir => continue,
            Component::ParentDir | Component::Prefix(_) => return Err(outside(path)),
        }
        if parts.peek().is_none() {
            break;
        }
        match std::fs::symlink_metadata(&place) {
            Ok(found) if found.is_dir() => {}
            Ok(_) => return Err(outside(path)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                DirBuilder::new().mode(0o755).create(&place)?;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(place)
}

fn outside(path: &Path) -> io::Error {
    let said = format!(
        "`{}` leads through a link or a file of the root",
        path.display()
    );
    io::Error::new(io::ErrorKind::InvalidInput, said)
}

fn make_dir(root: &Path, path: &Path) -> io::Result<()> {
    let place = place(root, path)?;
    match DirBuilder::new().mode(0o755).create(&place) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            if std::fs::symlink_metadata(&place)?.is_dir() {
                return Ok(());
            }
            Err(outside(path))
        }
        other => other,
    }
}

fn write_file(root: &Path, path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    use std::io::Write as _;
    let mut file = std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(place(root, path)?)?;
    file.write_all(content)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked<'a>(view: &'a [Entry], told: &'a Path) -> Asked<'a> {
        Asked {
            view,
            args: &[],
            env: &[],
            told,
            scratch_bytes: Some(8 << 20),
            attendant: b"program",
        }
    }

    fn read(dir: &Path) -> Value {
        serde_json::from_slice(&std::fs::read(dir.join("config.json")).unwrap()).unwrap()
    }

    #[test]
    fn a_bundle_has_a_read_only_root_sized_scratch_and_no_network_of_the_hosts() {
        let top = tempfile::tempdir().unwrap();
        let told = top.path().join("told");
        std::fs::write(&told, "").unwrap();
        let view = [
            Entry::File {
                path: "/etc/passwd".into(),
                content: b"who".to_vec(),
            },
            Entry::Bind {
                source: "/usr".into(),
                path: "/usr".into(),
                mode: Mode::ReadOnly,
            },
            Entry::Bind {
                source: "/dev/null".into(),
                path: "/dev/null".into(),
                mode: Mode::Device,
            },
            Entry::Link {
                target: "usr/bin".into(),
                path: "/bin".into(),
            },
        ];
        write(top.path(), &asked(&view, &told)).unwrap();
        let config = read(top.path());
        assert_eq!(
            config["root"],
            json!({ "path": "rootfs", "readonly": true })
        );
        assert_eq!(config["process"]["noNewPrivileges"], true);
        let mounts: Vec<(&str, &str)> = config["mounts"]
            .as_array()
            .unwrap()
            .iter()
            .map(|mount| {
                let at = mount["destination"].as_str().unwrap();
                let options = mount["options"].as_array();
                let last = options.and_then(|all| {
                    all.iter()
                        .filter_map(Value::as_str)
                        .find(|o| o.starts_with("size=") || *o == "ro" || *o == "rw")
                });
                (at, last.unwrap_or_default())
            })
            .collect();
        let expected = [
            ("/proc", ""),
            ("/tmp", "size=7340032"),
            ("/dev/shm", "size=1048576"),
            ("/usr", "ro"),
            (TELL, "rw"),
        ];
        assert_eq!(mounts, expected);
        let namespaces = config["linux"]["namespaces"].as_array().unwrap();
        assert!(namespaces.contains(&json!({ "type": "network" })));
        let root = top.path().join("rootfs");
        assert_eq!(std::fs::read(root.join("etc/passwd")).unwrap(), b"who");
        assert_eq!(
            std::fs::read_link(root.join("bin")).unwrap(),
            Path::new("usr/bin")
        );
    }

    #[test]
    fn a_link_of_a_root_directory_leads_no_write_to_the_host() {
        let top = tempfile::tempdir().unwrap();
        let (outside, bundle) = (top.path().join("outside"), top.path().join("bundle"));
        for dir in [&outside, &bundle] {
            std::fs::create_dir(dir).unwrap();
        }
        let told = top.path().join("told");
        std::fs::write(&told, "").unwrap();
        let link = Entry::Link {
            target: outside.clone(),
            path: "/opt".into(),
        };
        let through = Entry::Bind {
            source: "/usr".into(),
            path: "/opt/usr".into(),
            mode: Mode::ReadOnly,
        };
        assert!(write(&bundle, &asked(&[link, through], &told)).is_err());
        assert_eq!(std::fs::read_dir(&outside).unwrap().count(), 0);
    }
}
