//! Circuit breakers: a receiver that fails repeatedly is not called for a while, by any of its webhooks.

use std::{collections::HashMap, sync::Arc, time::Duration};

use nuncio_protocol::{
    Timestamp,
    retry::{Backoff, Breaker, BreakerPolicy},
};

/// The consecutive failures that open the breaker of a receiver, and for how long.
const POLICY: BreakerPolicy = BreakerPolicy {
    failures: 5,
    pauses: Backoff::doubling(Duration::from_secs(5), Duration::from_secs(5 * 60)),
};

/// The maximum number of receivers that have a breaker; further ones are retried by the schedule of their
/// deliveries alone.
const MAX_BREAKERS: usize = 10_000;

/// The breakers of failing receivers, by URL.
#[derive(Debug, Default)]
pub(super) struct Breakers(HashMap<Arc<str>, Breaker<Timestamp>>);

impl Breakers {
    /// Checks whether this receiver may be called now; the error is the time to try again. After a pause one
    /// attempt may go as a probe; the others wait for its outcome, at most for `probe`.
    pub(super) fn check(&mut self, url: &str, now: Timestamp, probe: Duration) -> Result<(), Timestamp> {
        self.0.get_mut(url).map_or(Ok(()), |breaker| breaker.check(now, probe))
    }

    /// Closes the breaker: the receiver has responded.
    pub(super) fn well(&mut self, url: &str) {
        self.0.remove(url);
    }

    /// Counts a failure.
    pub(super) fn failed(&mut self, url: &Arc<str>, now: Timestamp) {
        if self.0.len() >= MAX_BREAKERS && !self.0.contains_key(url) {
            // Receivers that are not called any more would be remembered for ever.
            self.0.retain(|_, breaker| !breaker.is_stale(now));
            if self.0.len() >= MAX_BREAKERS {
                return;
            }
        }
        self.0.entry(Arc::clone(url)).or_insert_with(|| Breaker::new(POLICY)).failed(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAILURES: u32 = POLICY.failures;
    const PROBE: Duration = Duration::from_secs(10);

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_millis(seconds * 1_000).unwrap()
    }

    #[test]
    fn the_circuit_opens_after_failures_in_a_row_and_one_probe_closes_it() {
        let (mut breakers, url): (_, Arc<str>) = (Breakers::default(), "http://x/".into());
        let check = |breakers: &mut Breakers, now| breakers.check("http://x/", at(now), PROBE);
        for _ in 0..FAILURES - 1 {
            breakers.failed(&url, at(0));
            assert_eq!(check(&mut breakers, 0), Ok(()));
        }
        breakers.well(&url);
        for _ in 0..FAILURES {
            assert_eq!(check(&mut breakers, 0), Ok(()), "those before the success do not count");
            breakers.failed(&url, at(0));
        }
        assert_eq!(check(&mut breakers, 4), Err(at(5)));
        assert_eq!(breakers.check("http://y/", at(4), PROBE), Ok(()), "each has its own");
        assert_eq!(check(&mut breakers, 5), Ok(()), "one may try");
        assert_eq!(check(&mut breakers, 5), Err(at(15)), "the others wait");
        breakers.failed(&url, at(6));
        assert_eq!(check(&mut breakers, 7), Err(at(16)), "longer now");
        assert_eq!(check(&mut breakers, 16), Ok(()));
        breakers.well(&url);
        assert_eq!((check(&mut breakers, 16), check(&mut breakers, 16)), (Ok(()), Ok(())));
    }

    #[test]
    fn receivers_that_nobody_goes_to_any_more_make_room() {
        let mut breakers = Breakers::default();
        for i in 0..MAX_BREAKERS {
            breakers.failed(&format!("http://x/{i}").into(), at(0));
        }
        let url: Arc<str> = "http://y/".into();
        (0..FAILURES).for_each(|_| breakers.failed(&url, at(1)));
        assert_eq!(breakers.check(&url, at(2), PROBE), Ok(()), "no room");
        (0..FAILURES).for_each(|_| breakers.failed(&url, at(60)));
        assert_eq!(breakers.check(&url, at(61), PROBE), Err(at(65)));
        assert!(breakers.0.len() <= MAX_BREAKERS);
    }

    #[test]
    fn a_probe_that_is_lost_does_not_close_the_way_for_ever() {
        let (mut breakers, url): (_, Arc<str>) = (Breakers::default(), "http://x/".into());
        (0..FAILURES).for_each(|_| breakers.failed(&url, at(0)));
        assert_eq!(breakers.check(&url, at(5), PROBE), Ok(()));
        assert_eq!(breakers.check(&url, at(15), PROBE), Ok(()));
    }
}
