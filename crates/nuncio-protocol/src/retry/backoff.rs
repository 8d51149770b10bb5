//! Pauses that grow by a factor up to a cap.

use std::{ops::RangeInclusive, time::Duration};

/// Maximum exponent: every cap is reached by then, and no number overflows.
const MAX_EXPONENT: u32 = 64;

/// Pauses between attempts: the first one, the growth factor, and the maximum.
///
/// ```
/// use std::time::Duration;
/// use nuncio_protocol::retry::Backoff;
///
/// const PAUSES: Backoff = Backoff::doubling(Duration::from_millis(250), Duration::from_secs(1));
/// let millis = [0, 1, 2, 3].map(|failures| PAUSES.pause(failures).as_millis());
/// assert_eq!(millis, [250, 500, 1000, 1000]);
/// ```
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Backoff {
    /// The first pause.
    pub base: Duration,
    /// The factor from one pause to the next.
    pub factor: f64,
    /// The maximum pause.
    pub cap: Duration,
}

impl Backoff {
    /// Pauses that double each time.
    #[must_use]
    pub const fn doubling(base: Duration, cap: Duration) -> Self {
        Self { base, factor: 2.0, cap }
    }

    /// The pause after this number of pauses; 0 is the first.
    #[must_use]
    pub fn pause(&self, pauses: u32) -> Duration {
        // The exponent is at most 64.
        self.capped(self.base, self.factor.powi(pauses.min(MAX_EXPONENT) as i32))
    }

    /// The pause after `pauses`, times a factor in the range `jitter` that `chance` (from 0 to 1) selects:
    /// clients that failed together do not return together. The cap applies before the jitter.
    #[must_use]
    pub fn jittered(&self, pauses: u32, jitter: RangeInclusive<f64>, chance: f64) -> Duration {
        let (low, high) = jitter.into_inner();
        self.pause(pauses).mul_f64(low + (high - low) * chance.clamp(0.0, 1.0))
    }

    /// The pause after one of this length.
    #[must_use]
    pub fn after(&self, pause: Duration) -> Duration {
        self.capped(pause, self.factor)
    }

    fn capped(&self, pause: Duration, factor: f64) -> Duration {
        let grown = Duration::try_from_secs_f64(pause.as_secs_f64() * factor);
        grown.map_or(self.cap, |grown| grown.min(self.cap))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BACKOFF: Backoff = Backoff::doubling(Duration::from_millis(20), Duration::from_secs(1));

    #[test]
    fn pauses_grow_by_the_factor_up_to_the_cap() {
        let expected = [20, 40, 80, 160, 320, 640, 1000, 1000];
        assert_eq!([0, 1, 2, 3, 4, 5, 6, 7].map(|pauses| BACKOFF.pause(pauses).as_millis()), expected);
        let mut pause = BACKOFF.base;
        for millis in expected {
            assert_eq!(pause.as_millis(), millis);
            pause = BACKOFF.after(pause);
        }
        let slow = Backoff { factor: 1.5, ..BACKOFF };
        assert_eq!([0, 1, 2].map(|pauses| slow.pause(pauses).as_millis()), [20, 30, 45]);
    }

    #[test]
    fn nothing_overflows() {
        assert_eq!(BACKOFF.pause(u32::MAX), BACKOFF.cap);
        assert_eq!(BACKOFF.after(Duration::MAX), BACKOFF.cap);
        let endless = Backoff::doubling(Duration::from_secs(1), Duration::MAX);
        assert!(endless.pause(u32::MAX) >= Duration::from_secs(u64::MAX));
        let none = Backoff::doubling(Duration::ZERO, BACKOFF.cap);
        assert_eq!(none.pause(u32::MAX), Duration::ZERO);
    }

    #[test]
    fn jitter_spreads_a_pause_over_its_range() {
        let millis = |chance| BACKOFF.jittered(0, 0.5..=1.5, chance).as_millis();
        assert_eq!([0.0, 0.5, 1.0, 7.0].map(millis), [10, 20, 30, 30]);
        assert_eq!(BACKOFF.jittered(9, 0.8..=1.2, 1.0), Duration::from_millis(1200), "also of the cap");
    }
}
