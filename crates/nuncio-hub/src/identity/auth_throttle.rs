//! How often somebody may be wrong: after so many wrong credentials in a minute, wrong ones from that address are
//! told to wait for the minute to end. Right ones pass: many callers share an address, and one of them must not lock
//! out the others. That lets nobody guess faster: a key has 256 random bits, whatever the rate.

use std::{collections::HashMap, net::IpAddr, time::Duration};

use parking_lot::{Mutex, MutexGuard};
use tokio::time::Instant;

use crate::network::subscriber_network;

/// For how long attempts are counted, from the first.
const WINDOW: Duration = Duration::from_secs(60);
/// How many may fail. Enough for a program that starts with the wrong key on many connections, and nothing
/// against what there is to guess.
const MOST: u32 = 60;
/// How many addresses are remembered. Who has more can be wrong more often.
const ADDRESSES: usize = 10_000;

/// The attempts that failed, by address.
#[derive(Default)]
pub(super) struct AuthThrottle(Mutex<HashMap<IpAddr, Window>>);

struct Window {
    ends: Instant,
    failed: u32,
}

impl AuthThrottle {
    /// How long this address has to wait, if it has to.
    pub(super) fn wait(&self, peer: IpAddr, now: Instant) -> Option<Duration> {
        let windows = self.windows();
        let window = windows.get(&subscriber_network(peer)).filter(|window| window.failed >= MOST)?;
        window.ends.checked_duration_since(now).filter(|wait| !wait.is_zero())
    }

    /// One has failed.
    pub(super) fn failed(&self, peer: IpAddr, now: Instant) {
        let mut windows = self.windows();
        if windows.len() >= ADDRESSES {
            windows.retain(|_, window| window.ends > now);
            // All at once: rather some get another chance than all wait for a search.
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
        for _ in 1..MOST {
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
