//! The network of one subscriber, by which connections, failed logins and refusals are counted.

use std::net::{IpAddr, Ipv6Addr};

/// The address itself; for IPv6 its /64, because one subscriber has all of it.
pub(crate) fn subscriber_network(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
        address @ IpAddr::V4(_) => address,
    }
}
