//! What is fixed for a deterministic run: a clock that only the program itself moves, and randomness that is the same each time.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rand_core::TryRng;
use tokio::runtime::{Builder, Runtime};
use wasmtime_wasi::{HostMonotonicClock, HostWallClock, WasiCtxBuilder};

use crate::settings::Determinism;

/// 2000-01-01T00:00:00Z: no program is older, and none takes it for an unset clock.
pub(crate) const EPOCH: Duration = Duration::from_secs(946_684_800);
/// Time goes by this much whenever somebody looks, so that whoever waits for it to pass is not waiting for ever.
const STEP: u64 = 1_000;

/// What a record says about a run that had to be deterministic.
pub(crate) fn account(
    determinism: Determinism,
    instructions: Option<u64>,
) -> Option<BTreeMap<String, String>> {
    let Determinism::Exact { seed } = determinism else {
        return None;
    };
    let mut fixed: BTreeMap<String, String> = [
        ("clock", "virtual, from 2000-01-01T00:00:00Z".to_owned()),
        (
            "cpu_time",
            "instructions, 1,000,000,000 for a second".to_owned(),
        ),
        (
            "directories",
            "in the order of names; times and inode numbers are fixed".to_owned(),
        ),
        ("nan", "canonical".to_owned()),
        ("random", format!("from seed {seed}")),
        ("stdin", "read whole before the start".to_owned()),
        ("threads", "none".to_owned()),
    ]
    .into_iter()
    .map(|(item, how)| (item.to_owned(), how))
    .collect();
    if let Some(count) = instructions {
        fixed.insert("instructions".to_owned(), count.to_string());
    }
    Some(fixed)
}

/// A runtime whose clock stands still, but for what the program sleeps.
pub(crate) fn runtime() -> std::io::Result<Runtime> {
    Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
}

/// Sets everything.
pub(crate) fn fix(wasi: &mut WasiCtxBuilder, seed: u64) {
    let clock = VirtualClock::new();
    wasi.wall_clock(clock.clone()).monotonic_clock(clock);
    wasi.secure_random(Stream::new(seed, 0))
        .insecure_random(Stream::new(seed, 1))
        .insecure_random_seed(u128::from(seed));
}

/// Both clocks of a program: they begin together and go together. Sleeping moves the runtime's clock, which is paused otherwise; looking moves this one.
#[derive(Debug, Clone)]
struct VirtualClock {
    began: tokio::time::Instant,
    looks: Arc<AtomicU64>,
}

impl VirtualClock {
    fn new() -> Self {
        Self {
            began: tokio::time::Instant::now(),
            looks: Arc::new(AtomicU64::new(0)),
        }
    }

    fn nanoseconds(&self) -> u64 {
        let slept = u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let looks = self.looks.fetch_add(1, Ordering::Relaxed);
        slept.saturating_add(looks.saturating_mul(STEP))
    }
}

impl HostMonotonicClock for VirtualClock {
    fn resolution(&self) -> u64 {
        STEP
    }

    fn now(&self) -> u64 {
        self.nanoseconds()
    }
}

impl HostWallClock for VirtualClock {
    fn resolution(&self) -> Duration {
        Duration::from_nanos(STEP)
    }

    fn now(&self) -> Duration {
        EPOCH + Duration::from_nanos(self.nanoseconds())
    }
}

/// Numbers that look random and follow from the seed: SplitMix64.
#[derive(Debug)]
struct Stream(u64);

impl Stream {
    fn new(seed: u64, which: u64) -> Self {
        Self(seed ^ which.wrapping_mul(0xd1b5_4a32_d192_ed03))
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

impl TryRng for Stream {
    type Error = Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        let [a, b, c, d, ..] = self.next().to_le_bytes();
        Ok(u32::from_le_bytes([a, b, c, d]))
    }

    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        Ok(self.next())
    }

    fn try_fill_bytes(&mut self, buffer: &mut [u8]) -> Result<(), Infallible> {
        for piece in buffer.chunks_mut(8) {
            for (to, from) in piece.iter_mut().zip(self.next().to_le_bytes()) {
                *to = from;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_bytes_and_another_gives_others() {
        let bytes = |seed, which| {
            let mut bytes = [0; 32];
            let Ok(()) = Stream::new(seed, which).try_fill_bytes(&mut bytes);
            bytes
        };
        assert_eq!(bytes(7, 0), bytes(7, 0));
        assert_ne!(bytes(7, 0), bytes(8, 0));
        assert_ne!(bytes(7, 0), bytes(7, 1));
    }
}
