//! Throttle of wrong credentials: after [`MAX_FAILURES`] in a minute from one address, further wrong ones are
//! answered with "wait" until the minute ends. Valid ones pass: many callers share an address, and one of
//! them must not lock out the others. This makes guessing no faster: a key has 256 random bits.

use std::{collections::HashMap, net::IpAddr, time::Duration};

use parking_lot::{Mutex, MutexGuard};
use tokio::time::Instant;

use crate::network::subscriber_network;

/// Period of counting, from the first failure.
const WINDOW: Duration = Duration::from_secs(60);
/// Failures per period. Enough for a program that starts with a wrong key on many connections, and negligible
/// for guessing.
const MAX_FAILURES: u32 = 60;
/// Maximum number of addresses that are tracked. A caller with more addresses can fail more often.
const ADDRESSES: usize = 10_000;

/// Failed attempts by network.
#[derive(Default)]
pub(super) struct AuthThrottle(Mutex<HashMap<IpAddr, Window>>);

struct Window {
    ends: Instant,
    failed: u32,
}

impl AuthThrottle {
    /// The time until attempts of this address are judged again, if it is throttled.
    pub(super) fn wait(&self, peer: IpAddr, now: Instant) -> Option<Duration> {
        let windows = self.windows();
        let window = windows.get(&subscriber_network(peer)).filter(|window| window.failed >= MAX_FAILURES)?;
        window.ends.checked_duration_since(now).filter(|wait| !wait.is_zero())
    }

    /// Counts a failed attempt.
    pub(super) fn failed(&self, peer: IpAddr, now: Instant) {
        let mut windows = self.windows();
        if windows.len() >= ADDRESSES {
            windows.retain(|_, window| window.ends > now);
            // All at once: forgetting some failures is better than a search under the lock.
            if windows.len() >= ADDRESSES {
                windows.clear();
            }
        }
        let window =
            windows.entry(subscriber_network(peer)).or_insert(Window { ends: now + WINDOW, failed: 0 });
        if window.ends <= now {
            *window = Window { ends: now + WINDOW, failed: 0 };
        }
        window.failed = window.failed.saturating_add(1);
    }

    fn windows(&self) -> MutexGuard<'_, HashMap<IpAddr, Window>> {
        self.0.lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_wrong_too_often_waits_for_the_minute_to_end() {
        let (throttle, start) = (AuthThrottle::default(), Instant::now());
        let [one, same, other]: [IpAddr; 3] =
            ["2001:db8::1", "2001:db8::2", "2001:db8:0:1::1"].map(|address| address.parse().unwrap());
        for _ in 1..MAX_FAILURES {
            throttle.failed(one, start);
            assert_eq!(throttle.wait(one, start), None);
        }
        throttle.failed(same, start);
        let soon = start + Duration::from_secs(1);
        assert_eq!(throttle.wait(one, soon), Some(Duration::from_secs(59)));
        assert_eq!(throttle.wait(same, soon), Some(Duration::from_secs(59)), "the same network");
        assert_eq!(throttle.wait(other, soon), None);
        assert_eq!(throttle.wait(one, start + WINDOW), None);
        throttle.failed(one, start + WINDOW);
        assert_eq!(throttle.wait(one, start + WINDOW), None, "counted from the first again");
    }

    #[test]
    fn many_addresses_take_no_more_memory() {
        let (throttle, now) = (AuthThrottle::default(), Instant::now());
        for address in 0..3 * u32::try_from(ADDRESSES).unwrap() {
            throttle.failed(std::net::Ipv4Addr::from_bits(address).into(), now);
            assert!(throttle.windows().len() <= ADDRESSES);
        }
    }
}
