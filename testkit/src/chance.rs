//! Rounds of chance that can be repeated: each says its seed.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Numbers from a seed.
#[derive(Debug)]
pub struct Chance(u64);

impl Chance {
    /// One for each round. `COFFERDAM_FLEET_ROUNDS` makes more than one of them, `COFFERDAM_FLEET_SEED` repeats one.
    pub fn rounds() -> impl Iterator<Item = Self> {
        let number = |name: &str| std::env::var(name).ok()?.parse::<u64>().ok();
        let clock = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let first = number("COFFERDAM_FLEET_SEED").unwrap_or(clock.subsec_nanos().into());
        (0..number("COFFERDAM_FLEET_ROUNDS").unwrap_or(1)).map(move |round| {
            let seed = first.wrapping_add(round);
            eprintln!("round {round}: COFFERDAM_FLEET_SEED={seed}");
            Self(seed)
        })
    }

    pub fn below(&mut self, most: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % most
    }

    /// A time below this many milliseconds.
    pub fn moment(&mut self, most: u64) -> Duration {
        Duration::from_millis(self.below(most))
    }
}
