//! What building and testing need beyond the contract's defaults. No word of address space: a limit on addresses breaks Node.js, .NET and the JVM without bounding
//! their memory.

use std::time::Duration;

use cofferdam_contract::limits::Limits;
use cofferdam_contract::units::{Bytes, Cap};

/// Compilers and test runners keep every CPU busy, start a thread for each and write much; a person's own limits go on top of this.
pub const PROJECT: Limits = Limits {
    wall_time: Cap::AtMost(Duration::from_secs(10 * 60)),
    cpu_time: Cap::AtMost(Duration::from_secs(30 * 60)),
    memory: Cap::AtMost(Bytes::new(2 << 30)),
    output: Cap::AtMost(Bytes::new(64 << 20)),
    processes: Cap::AtMost(1024),
    disk: Cap::AtMost(Bytes::new(4 << 30)),
    open_files: Cap::AtMost(16_384),
    cpus: Cap::Unlimited,
    disk_io: Cap::Unlimited,
};
