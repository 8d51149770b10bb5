//! The limit of connections per address, so that no single peer can take all of them.
//!
//! Connections from this machine and from trusted proxies are not counted: they carry the calls of many
//! callers. IPv6 addresses are counted by the network of one subscriber.

use std::{collections::HashMap, net::IpAddr, sync::Arc};

use parking_lot::{Mutex, MutexGuard};

use crate::{config::Network, network::subscriber_network};

/// Counts connections by address.
pub(super) struct Addresses {
    /// Maximum per address; `None`: no limit.
    max: Option<usize>,
    /// Trusted proxies, which are not counted.
    exempt: Vec<Network>,
    /// Addresses with at least one connection.
    open: Mutex<HashMap<IpAddr, usize>>,
}

/// A counted connection, until it is dropped.
pub(super) struct CountedConnection {
    addresses: Arc<Addresses>,
    /// `None`: exempt from counting.
    address: Option<IpAddr>,
}

impl Addresses {
    pub(super) fn new(max: Option<usize>, exempt: Vec<Network>) -> Arc<Self> {
        Arc::new(Self { max, exempt, open: Mutex::default() })
    }

    /// Counts a connection; `None` if its address has reached the limit.
    pub(super) fn admit(self: &Arc<Self>, peer: IpAddr) -> Option<CountedConnection> {
        let max = self.max.filter(|_| !self.is_exempt(peer));
        let address = max.map(|_| subscriber_network(peer));
        if let Some((max, address)) = max.zip(address) {
            let mut open = self.open();
            let count = open.entry(address).or_default();
            if *count >= max {
                return None;
            }
            *count += 1;
        }
        Some(CountedConnection { addresses: Arc::clone(self), address })
    }

    fn is_exempt(&self, peer: IpAddr) -> bool {
        peer.to_canonical().is_loopback() || self.exempt.iter().any(|network| network.contains(peer))
    }

    fn open(&self) -> MutexGuard<'_, HashMap<IpAddr, usize>> {
        self.open.lock()
    }
}

impl Drop for CountedConnection {
    fn drop(&mut self) {
        let Some(address) = self.address else { return };
        let mut open = self.addresses.open();
        if let Some(count) = open.get_mut(&address) {
            *count -= 1;
            if *count == 0 {
                open.remove(&address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_address_has_so_many_and_no_more() {
        let addresses = Addresses::new(Some(2), vec!["10.0.0.0/8".parse().unwrap()]);
        let admit = |peer: &str| addresses.admit(peer.parse().unwrap());
        let first = admit("192.0.2.1").unwrap();
        let _second = admit("::ffff:192.0.2.1").expect("the same address");
        assert!(admit("192.0.2.1").is_none());
        let _other = admit("192.0.2.2").expect("another address");
        let _v6 = [admit("2001:db8::1").unwrap(), admit("2001:db8::2").unwrap()];
        assert!(admit("2001:db8::3").is_none(), "one subscriber");
        let _elsewhere = admit("2001:db8:0:1::1").expect("another subscriber");
        drop(first);
        let _again = admit("192.0.2.1").expect("one has gone");
        assert!(admit("192.0.2.1").is_none());
    }

    #[test]
    fn this_machine_and_proxies_are_not_counted() {
        let addresses = Addresses::new(Some(1), vec!["10.0.0.0/8".parse().unwrap()]);
        for peer in ["127.0.0.1", "::1", "::ffff:127.0.0.1", "10.1.2.3"] {
            let open: Vec<_> = (0..3).map(|_| addresses.admit(peer.parse().unwrap())).collect();
            assert!(open.iter().all(Option::is_some), "{peer}");
        }
        let unlimited = Addresses::new(None, Vec::new());
        let open: Vec<_> = (0..3).map(|_| unlimited.admit("192.0.2.1".parse().unwrap())).collect();
        assert!(open.iter().all(Option::is_some));
    }

    /// An address without connections has no entry.
    #[test]
    fn addresses_without_connections_are_forgotten() {
        let addresses = Addresses::new(Some(1), Vec::new());
        for number in 0..1000_u32 {
            drop(addresses.admit(std::net::Ipv4Addr::from_bits(number).into()));
        }
        assert!(addresses.open().is_empty());
    }
}
