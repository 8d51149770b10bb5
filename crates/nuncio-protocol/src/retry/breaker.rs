//! A circuit breaker: calls to a peer that fails repeatedly are paused.

use std::{ops::Add, time::Duration};

use super::Backoff;

/// The consecutive failures that open a circuit, and the pauses while it is open.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct BreakerPolicy {
    /// The number of consecutive failures that opens the circuit.
    pub failures: u32,
    /// The pauses: the first one when the circuit opens, the next one after each further failure.
    pub pauses: Backoff,
}

/// The circuit to one peer. `T` is a time of the caller's clock.
///
/// A closed circuit lets all calls pass. An open one refuses them until its pause is over; then one trial
/// call passes, and the others wait for its outcome. A success closes the circuit.
#[derive(Clone, Debug)]
pub struct Breaker<T> {
    policy: BreakerPolicy,
    /// Consecutive failures.
    failures: u32,
    /// The end of the pause after the last failure, or of the trial.
    until: Option<T>,
}

impl<T: Copy + Ord + Add<Duration, Output = T>> Breaker<T> {
    /// A closed circuit.
    #[must_use]
    pub const fn new(policy: BreakerPolicy) -> Self {
        Self { policy, failures: 0, until: None }
    }

    /// Passes or refuses a call. After a pause one trial call passes; the others wait for its outcome, for
    /// at most `trial`, so that a call that never ends does not keep the circuit open.
    ///
    /// # Errors
    /// The time before which no call passes.
    pub fn check(&mut self, now: T, trial: Duration) -> Result<(), T> {
        match self.until.filter(|_| self.failures >= self.policy.failures) {
            Some(until) if now < until => Err(until),
            Some(_) => {
                self.until = Some(now + trial);
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Records a success, which closes the circuit.
    pub fn succeeded(&mut self) {
        *self = Self::new(self.policy);
    }

    /// Records a failure, which may open the circuit.
    pub fn failed(&mut self, now: T) {
        self.failures = self.failures.saturating_add(1);
        let beyond = self.failures.saturating_sub(self.policy.failures);
        self.until = Some(now + self.policy.pauses.pause(beyond));
    }

    /// True if the pause after the last failure is over and there was no call since.
    pub fn is_stale(&self, now: T) -> bool {
        self.until.is_none_or(|until| until <= now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POLICY: BreakerPolicy = BreakerPolicy {
        failures: 3,
        pauses: Backoff::doubling(Duration::from_secs(2), Duration::from_secs(60)),
    };
    const TRIAL_TIMEOUT: Duration = Duration::from_secs(10);

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn failures_in_a_row_open_it_one_call_tries_and_success_closes_it() {
        let mut breaker = Breaker::new(POLICY);
        for _ in 1..POLICY.failures {
            breaker.failed(at(0));
            assert_eq!(breaker.check(at(0), TRIAL_TIMEOUT), Ok(()));
        }
        breaker.failed(at(0));
        assert_eq!(breaker.check(at(1), TRIAL_TIMEOUT), Err(at(2)));
        assert_eq!(breaker.check(at(2), TRIAL_TIMEOUT), Ok(()), "one may try");
        assert_eq!(breaker.check(at(2), TRIAL_TIMEOUT), Err(at(12)), "and no other");
        breaker.failed(at(3));
        assert_eq!(breaker.check(at(3), TRIAL_TIMEOUT), Err(at(7)), "longer now");
        for _ in 0..40 {
            breaker.failed(at(3));
        }
        assert_eq!(breaker.check(at(3), TRIAL_TIMEOUT), Err(at(63)), "the cap");
        breaker.succeeded();
        assert_eq!(breaker.check(at(3), TRIAL_TIMEOUT), Ok(()));
        breaker.failed(at(3));
        assert_eq!(breaker.check(at(3), TRIAL_TIMEOUT), Ok(()), "it counts from the beginning");
    }

    #[test]
    fn a_trial_that_never_ends_does_not_keep_it_open_for_ever() {
        let mut breaker = Breaker::new(POLICY);
        (0..POLICY.failures).for_each(|_| breaker.failed(at(0)));
        assert_eq!(breaker.check(at(2), TRIAL_TIMEOUT), Ok(()));
        assert_eq!(breaker.check(at(12), TRIAL_TIMEOUT), Ok(()), "the next one tries");
    }

    #[test]
    fn a_circuit_that_nobody_uses_is_stale_after_its_pause() {
        let mut breaker = Breaker::new(POLICY);
        assert!(breaker.is_stale(at(0)));
        breaker.failed(at(0));
        assert!(!breaker.is_stale(at(1)) && breaker.is_stale(at(2)));
    }
}
