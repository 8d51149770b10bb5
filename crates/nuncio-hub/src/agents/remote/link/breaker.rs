//! An agent that cannot be reached is left alone for a while: callers are told at once, instead of waiting for one
//! more attempt that comes to nothing. Pure: the time is given.

use std::time::Duration;

use tokio::time::Instant;

/// So many attempts in a row that reached nobody open the circuit.
const FAILURES: u32 = 5;

/// How long it stays open, at first and at most.
const FIRST_PAUSE: Duration = Duration::from_secs(2);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// How long the others wait for what becomes of the one that tries.
const PROBE: Duration = Duration::from_secs(10);

/// Whether calls go out.
#[derive(Debug, Default)]
pub(crate) struct Breaker {
    /// In a row.
    failures: u32,
    /// None goes out before.
    until: Option<Instant>,
}

impl Breaker {
    /// May a call go out? After a pause one may, and the others wait for what becomes of it.
    ///
    /// # Errors
    /// Not now, but after this time.
    pub(crate) fn check(&mut self, now: Instant) -> Result<(), Duration> {
        match self.until {
            Some(until) if now < until => Err(until - now),
            Some(_) => {
                self.until = Some(now + PROBE);
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Somebody was reached.
    pub(crate) fn well(&mut self) {
        *self = Self::default();
    }

    /// Nobody was reached.
    pub(crate) fn failed(&mut self, now: Instant) {
        self.failures = self.failures.saturating_add(1);
        let Some(beyond) = self.failures.checked_sub(FAILURES) else { return };
        let pause = FIRST_PAUSE.saturating_mul(2_u32.saturating_pow(beyond)).min(LONGEST_PAUSE);
        self.until = Some(now + pause);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_in_a_row_open_it_one_call_tries_and_success_closes_it() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut breaker = Breaker::default();
        for _ in 1..FAILURES {
            breaker.failed(at(0));
            assert_eq!(breaker.check(at(0)), Ok(()));
        }
        breaker.failed(at(0));
        assert_eq!(breaker.check(at(0)), Err(FIRST_PAUSE));
        assert_eq!(breaker.check(at(2)), Ok(()), "one may try");
        assert_eq!(breaker.check(at(2)), Err(PROBE), "and no other");
        breaker.failed(at(3));
        assert_eq!(breaker.check(at(3)), Err(2 * FIRST_PAUSE));
        for _ in 0..40 {
            breaker.failed(at(3));
        }
        assert_eq!(breaker.check(at(3)), Err(LONGEST_PAUSE));
        breaker.well();
        assert_eq!(breaker.check(at(3)), Ok(()));
        breaker.failed(at(3));
        assert_eq!(breaker.check(at(3)), Ok(()), "it counts from the beginning");
    }

    #[test]
    fn a_trial_that_never_ends_does_not_keep_it_open_for_ever() {
        let start = Instant::now();
        let mut breaker = Breaker::default();
        (0..FAILURES).for_each(|_| breaker.failed(start));
        assert_eq!(breaker.check(start + FIRST_PAUSE), Ok(()));
        assert_eq!(breaker.check(start + FIRST_PAUSE + PROBE), Ok(()), "the next one tries");
    }
}
