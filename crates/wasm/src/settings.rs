//! What whoever uses this backend decides once: where compiled code is kept, what compiles it, and how much of everything there may be.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use cofferdam_contract::units::Bytes;

/// The settings of one backend, for as long as it lives.
#[derive(Debug, Clone)]
pub struct Settings {
    /// A directory of our own where compiled code is kept, readable by us alone; `None` keeps none.
    pub cache: Option<PathBuf>,
    /// The cache removes what was not used for longest when it holds more than this.
    pub cache_bytes: Bytes,
    pub compiler: Compiler,
    pub compile: CompileBounds,
    pub instances: Instances,
    /// Stack of the program's own calls.
    pub stack: Bytes,
}

/// The program that compiles, inside the sandbox. It is called with the name of a [`crate::Flavour`], reads code and writes what [`crate::compile::compile_stream`] makes of it.
#[derive(Debug, Clone)]
pub struct Compiler {
    /// One file that needs no other.
    pub program: PathBuf,
    pub args: Vec<OsString>,
}

/// What compiling a stranger's code may take.
#[derive(Debug, Clone, Copy)]
pub struct CompileBounds {
    /// The code itself.
    pub code: Bytes,
    /// Of the largest code; see [`CompileBounds::memory_for`].
    pub memory: Bytes,
    pub cpu_time: Duration,
    pub wall_time: Duration,
    /// What comes out.
    pub result: Bytes,
}

/// Where the memory of programs comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Instances {
    /// Made for each run: for a process that makes one.
    OnDemand,
    /// Reserved once, for so many at a time, and used again: for a process that makes many.
    Pooled(u32),
}

/// Whether a run must give the same result each time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Determinism {
    Off,
    /// Time, randomness and the order of directories are fixed, and CPU time is counted in instructions.
    Exact {
        seed: u64,
    },
}

impl Settings {
    pub const CACHE_BYTES: Bytes = Bytes::new(1 << 30);
    pub const STACK: Bytes = Bytes::new(1 << 20);

    pub fn new(compiler: Compiler, cache: Option<PathBuf>) -> Self {
        Self {
            cache,
            cache_bytes: Self::CACHE_BYTES,
            compiler,
            compile: CompileBounds::default(),
            instances: Instances::OnDemand,
            stack: Self::STACK,
        }
    }
}

impl CompileBounds {
    /// Little code needs little, and gets little: a compiler that takes gigabytes over it was led to.
    pub fn memory_for(&self, code: usize) -> Bytes {
        const LEAST: u64 = 256 << 20;
        const FOR_EACH_BYTE: u64 = 128;
        let code = u64::try_from(code).unwrap_or(u64::MAX);
        let needs = LEAST.saturating_add(code.saturating_mul(FOR_EACH_BYTE));
        self.memory.min(Bytes::new(needs))
    }
}

impl Default for CompileBounds {
    fn default() -> Self {
        Self {
            code: Bytes::new(64 << 20),
            memory: Bytes::new(1 << 30),
            cpu_time: Duration::from_secs(60),
            wall_time: Duration::from_secs(90),
            result: Bytes::new(512 << 20),
        }
    }
}
