//! Programs that attack: C that is compiled once for the whole suite, and scripts. Each does what its name says until it is stopped, and says so if it is not.

use std::path::{Path, PathBuf};
use std::process::Command;

use sha2::{Digest as _, Sha256};

/// An attacker written in C. The first argument chooses the attack; the sources list them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hostile {
    /// Eats memory in every way the kernel offers: `memory WAY MIB`.
    Memory,
    /// Multiplies: forks, threads, zombies, burners, daemons.
    Tree,
    /// Makes system calls that no sandboxed program should, and prints each answer.
    Calls,
    /// Fills disks: `disk WAY DIR MIB`.
    Disk,
    /// Tries to get out: `reach tcp|udp ADDRESS PORT`.
    Reach,
    /// Holds up forks all over the machine: `migrate PROCS PROCS THREADS`. For the host, not for a sandbox.
    Migrate,
}

/// A compiled attacker, and how to show it to a sandbox.
#[derive(Debug, Clone)]
pub struct Compiled {
    dir: PathBuf,
    name: &'static str,
}

impl Hostile {
    fn source(self) -> (&'static str, &'static str) {
        match self {
            Self::Memory => ("memory", include_str!("hostile/memory.c")),
            Self::Tree => ("tree", include_str!("hostile/tree.c")),
            Self::Calls => ("calls", include_str!("hostile/calls.c")),
            Self::Disk => ("disk", include_str!("hostile/disk.c")),
            Self::Reach => ("reach", include_str!("hostile/reach.c")),
            Self::Migrate => ("migrate", include_str!("hostile/migrate.c")),
        }
    }

    /// Compiles it, unless this very source has been compiled before.
    pub fn compile(self) -> Compiled {
        let (name, source) = self.source();
        let dir = cache().join(digest(source));
        let compiled = Compiled { dir, name };
        if compiled.on_host().exists() {
            return compiled;
        }
        let scratch = tempfile::tempdir_in(cache()).expect("a directory to compile in");
        let (text, made) = (scratch.path().join("source.c"), scratch.path().join(name));
        std::fs::write(&text, source).expect("write the source");
        let done = Command::new("gcc")
            .args(["-O1", "-Wall", "-Werror", "-static", "-pthread", "-o"])
            .args([&made, &text])
            .output()
            .expect("gcc");
        assert!(
            done.status.success(),
            "{name}.c: {}",
            String::from_utf8_lossy(&done.stderr)
        );
        std::fs::create_dir_all(&compiled.dir).expect("a directory for the program");
        // Whoever compiles it at the same time puts the same bytes there.
        std::fs::rename(&made, compiled.on_host()).expect("put the program in its place");
        compiled
    }
}

impl Compiled {
    /// The value of `--mount` that shows it inside.
    pub fn mount(&self) -> String {
        format!("{}:/hostile:ro", self.dir.display())
    }

    pub fn inside(&self) -> String {
        format!("/hostile/{}", self.name)
    }

    /// The value of `--workspace` that shows it inside.
    pub fn workspace(&self) -> String {
        format!("{}:ro", self.dir.display())
    }

    pub fn in_workspace(&self) -> String {
        format!("/work/{}", self.name)
    }

    pub fn on_host(&self) -> PathBuf {
        self.dir.join(self.name)
    }
}

/// Below target/, where `cargo clean` finds it and every user can read it.
fn cache() -> PathBuf {
    let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/hostile");
    std::fs::create_dir_all(&target).expect("target/hostile");
    target.canonicalize().expect("target/hostile")
}

fn digest(source: &str) -> String {
    Sha256::digest(source)
        .iter()
        .take(8)
        .map(|byte| format!("{byte:02x}"))
        .collect()
}
