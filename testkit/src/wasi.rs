//! C programs for both worlds: one source, compiled to a native program and to WebAssembly, once for the whole suite.

use std::path::{Path, PathBuf};
use std::process::Command;

use sha2::{Digest as _, Sha256};

/// One program, twice.
#[derive(Debug, Clone)]
pub struct Both {
    /// Holds `program` and `program.wasm`.
    pub dir: PathBuf,
}

impl Both {
    /// Compiles `source`, unless it has been compiled before.
    pub fn compile(source: &str) -> Self {
        let dir = cache().join(digest(source));
        let both = Self { dir };
        if both.wasm().exists() && both.native().exists() {
            return both;
        }
        let scratch = tempfile::tempdir_in(cache()).expect("a directory to compile in");
        let text = scratch.path().join("program.c");
        std::fs::write(&text, source).expect("write the source");
        let made = |name: &str| scratch.path().join(name);
        compile(
            Command::new("clang").args(["--target=wasm32-wasi", "-O1"]),
            &text,
            &made("program.wasm"),
        );
        compile(
            Command::new("gcc").args(["-O1", "-static"]),
            &text,
            &made("program"),
        );
        std::fs::create_dir_all(&both.dir).expect("a directory for the program");
        // Whoever compiles it at the same time puts the same bytes there.
        for name in ["program", "program.wasm"] {
            std::fs::rename(made(name), both.dir.join(name)).expect("put the program in its place");
        }
        both
    }

    pub fn wasm(&self) -> PathBuf {
        self.dir.join("program.wasm")
    }

    pub fn native(&self) -> PathBuf {
        self.dir.join("program")
    }
}

fn compile(compiler: &mut Command, source: &Path, made: &Path) {
    let done = compiler
        .arg("-o")
        .args([made, source])
        .arg("-lm")
        .output()
        .expect("a compiler");
    assert!(
        done.status.success(),
        "{compiler:?}: {}",
        String::from_utf8_lossy(&done.stderr)
    );
}

/// Below target/, where `cargo clean` finds it and every user can read it.
fn cache() -> PathBuf {
    let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/wasi");
    std::fs::create_dir_all(&target).expect("target/wasi");
    target.canonicalize().expect("target/wasi")
}

fn digest(source: &str) -> String {
    let digest = Sha256::digest(source);
    let bytes = digest.iter().take(8);
    bytes.map(|byte| format!("{byte:02x}")).collect()
}
