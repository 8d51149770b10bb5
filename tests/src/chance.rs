//! Chance that can be repeated: the same seed gives the same numbers.

use std::{
    ops::RangeInclusive,
    time::{Duration, SystemTime},
};

/// Numbers by chance (SplitMix64).
#[derive(Clone, Debug)]
pub struct Chance(u64);

impl Chance {
    /// The numbers of this seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The seed in the variable `NUNCIO_SEED`, or one that nobody has chosen.
    ///
    /// # Panics
    /// When the variable is no number.
    #[must_use]
    pub fn seed() -> u64 {
        match std::env::var("NUNCIO_SEED") {
            Ok(seed) => seed.parse().expect("NUNCIO_SEED is a number"),
            Err(_) => {
                let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
                u64::from(since.subsec_nanos()) ^ (since.as_secs() << 20)
            }
        }
    }

    /// The next number.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number from this range.
    pub fn of(&mut self, range: RangeInclusive<u64>) -> u64 {
        range.start() + self.number() % (range.end() - range.start() + 1)
    }

    /// True once in so many times.
    pub fn once_in(&mut self, times: u64) -> bool {
        self.number().is_multiple_of(times)
    }

    /// A time of so many milliseconds.
    pub fn millis(&mut self, range: RangeInclusive<u64>) -> Duration {
        Duration::from_millis(self.of(range))
    }
}
