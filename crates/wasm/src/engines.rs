//! How code is compiled and run: the settings of the two kinds of engine. Code that one of them compiled is of no use to the other.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use cofferdam_contract::units::Bytes;
use wasmtime::{Config, Enabled, Engine, InstanceAllocationStrategy, PoolingAllocationConfig};

use crate::settings::Instances;

/// The engine behind this backend.
pub const VERSION: &str = "wasmtime 48";

/// What the code does besides its own work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Flavour {
    /// It looks at a clock: fast, and stopped by time.
    Timed,
    /// It also counts its instructions, and every NaN looks alike: slower, and the same on every machine.
    Counted,
}

/// A program may have this much in one memory; more than its limit it never gets.
const LARGEST_MEMORY: usize = 1 << 32;
/// What is cleared by writing zeros and not by asking the kernel.
const KEPT_RESIDENT: usize = 128 << 10;
const TABLE_ELEMENTS: usize = 100_000;
/// What the pool has for each program: as much as components have that were made of one module.
const CORE_INSTANCES: u32 = 4;
const MEMORIES: u32 = 2;
const TABLES: u32 = 4;

impl Flavour {
    pub const ALL: [Self; 2] = [Self::Timed, Self::Counted];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Timed => "timed",
            Self::Counted => "counted",
        }
    }

    pub fn named(name: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|flavour| flavour.as_str() == name)
    }
}

/// Makes an engine. What compiles and what runs must agree on everything but where memory comes from.
pub(crate) fn engine(
    flavour: Flavour,
    instances: Instances,
    stack: Bytes,
) -> wasmtime::Result<Engine> {
    let mut config = Config::new();
    let stack = usize::try_from(stack.get()).unwrap_or(usize::MAX);
    config
        .epoch_interruption(true)
        .max_wasm_stack(stack)
        // What we are called for needs stack as well.
        .async_stack_size(stack.saturating_add(1 << 20))
        // Nobody walks these frames but the engine itself.
        .native_unwind_info(false)
        .wasm_backtrace_max_frames(None);
    if flavour == Flavour::Counted {
        config
            .consume_fuel(true)
            .cranelift_nan_canonicalization(true)
            .relaxed_simd_deterministic(true);
    }
    if let Instances::Pooled(count) = instances {
        config.allocation_strategy(InstanceAllocationStrategy::Pooling(pool(count)));
    }
    Engine::new(&config)
}

fn pool(count: u32) -> PoolingAllocationConfig {
    let mut pool = PoolingAllocationConfig::new();
    pool.total_core_instances(count.saturating_mul(CORE_INSTANCES))
        .total_component_instances(count)
        .total_memories(count.saturating_mul(MEMORIES))
        .total_tables(count.saturating_mul(TABLES))
        // A component that needs more is not loaded here, and takes nothing from the others.
        .max_core_instances_per_component(CORE_INSTANCES)
        .max_memories_per_component(MEMORIES)
        .max_tables_per_component(TABLES)
        .total_stacks(count)
        .max_memory_size(LARGEST_MEMORY)
        .table_elements(TABLE_ELEMENTS)
        .max_unused_warm_slots(count)
        .linear_memory_keep_resident(KEPT_RESIDENT)
        .table_keep_resident(KEPT_RESIDENT)
        .async_stack_keep_resident(KEPT_RESIDENT)
        // The kernel tells which pages were touched, where it can.
        .pagemap_scan(Enabled::Auto);
    pool
}

/// What code must have been compiled for to be of use to this engine.
pub(crate) fn fingerprint(engine: &Engine) -> u64 {
    let mut hasher = DefaultHasher::new();
    engine.precompile_compatibility_hash().hash(&mut hasher);
    hasher.finish()
}
