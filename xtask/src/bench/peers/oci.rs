//! A bundle for OCI runtimes: the host's /usr read-only, a private /tmp, its own /proc, no network, no capabilities, and the program to run.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use serde_json::json;

/// The links of a merged /usr.
pub(super) const LINKS: [(&str, &str); 4] = [
    ("usr/bin", "bin"),
    ("usr/sbin", "sbin"),
    ("usr/lib", "lib"),
    ("usr/lib64", "lib64"),
];

/// Writes it into a new directory.
pub(super) fn bundle(dir: &Path, name: &str, program: &[&str]) -> Result<PathBuf, String> {
    let place = dir.join(name);
    let made = make(&place, program);
    made.map_err(|error| format!("{}: {error}", place.display()))?;
    Ok(place)
}

fn make(place: &Path, program: &[&str]) -> std::io::Result<()> {
    let root = place.join("rootfs");
    for dir in ["usr", "proc", "tmp", "dev"] {
        fs::create_dir_all(root.join(dir))?;
    }
    for (target, link) in LINKS {
        symlink(target, root.join(link))?;
    }
    let config = json!({
        "ociVersion": "1.0.2",
        "process": {
            "terminal": false,
            "user": { "uid": 1000, "gid": 1000 },
            "args": program,
            "env": ["PATH=/usr/bin:/bin"],
            "cwd": "/",
            "noNewPrivileges": true,
        },
        "root": { "path": "rootfs", "readonly": true },
        "hostname": "peer",
        "mounts": [
            { "destination": "/proc", "type": "proc", "source": "proc" },
            { "destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755", "size=65536k"] },
            { "destination": "/tmp", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "nodev", "size=65536k"] },
            { "destination": "/usr", "type": "bind", "source": "/usr", "options": ["rbind", "ro"] },
        ],
        "linux": { "namespaces": [
            { "type": "pid" }, { "type": "network" }, { "type": "ipc" }, { "type": "uts" }, { "type": "mount" },
        ] },
    });
    fs::write(place.join("config.json"), config.to_string())
}
