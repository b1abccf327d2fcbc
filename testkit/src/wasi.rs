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

    /// The same program as a component: its calls of preview 1 are those of preview 2, by the adapter that toolchains use.
    pub fn component(&self) -> PathBuf {
        let path = self.dir.join("component.wasm");
        if path.exists() {
            return path;
        }
        let module = std::fs::read(self.wasm()).expect("the module");
        let adapter =
            wasi_preview1_component_adapter_provider::WASI_SNAPSHOT_PREVIEW1_COMMAND_ADAPTER;
        let component = wit_component::ComponentEncoder::default()
            .module(&module)
            .and_then(|encoder| encoder.adapter("wasi_snapshot_preview1", adapter))
            .and_then(|mut encoder| encoder.encode())
            .expect("a component");
        let mut made = tempfile::NamedTempFile::new_in(&self.dir).expect("a file");
        std::io::Write::write_all(&mut made, &component).expect("write the component");
        let everybody = std::os::unix::fs::PermissionsExt::from_mode(0o644);
        let shown = made.as_file().set_permissions(everybody);
        shown.expect("let everybody read it");
        // Whoever makes it at the same time puts the same bytes there.
        made.persist(&path).expect("put the component in its place");
        path
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
