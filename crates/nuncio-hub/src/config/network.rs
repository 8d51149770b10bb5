//! IP networks in their written form.

use std::{fmt, net::IpAddr, str::FromStr};

use ipnet::IpNet;

use super::form::text;

/// The addresses of a network.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Network(IpNet);

text!(Network);

impl Network {
    /// The network as a type of `ipnet`.
    pub(crate) fn net(&self) -> IpNet {
        self.0
    }

    /// True if the address belongs to it. IPv4 addresses that a dual-stack socket reports as IPv6 are
    /// recognized.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        self.0.contains(&address.to_canonical())
    }
}

impl FromStr for Network {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let one = || text.parse::<IpAddr>().map(IpNet::from).ok();
        text.parse().ok().or_else(one).map(Self).ok_or_else(|| {
            "expected a network such as 10.0.0.0/8 or fd00::/8, or an address such as 127.0.0.1".to_owned()
        })
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_belongs_to_a_network() {
        for (network, address, expected) in [
            ("10.0.0.0/8", "10.1.2.3", true),
            ("10.1.2.3/8", "10.255.255.255", true),
            ("10.0.0.0/8", "11.0.0.0", false),
            ("10.0.0.0/8", "::ffff:10.1.2.3", true),
            ("10.0.0.0/8", "::1", false),
            ("127.0.0.1", "127.0.0.1", true),
            ("127.0.0.1", "127.0.0.2", false),
            ("::1", "::1", true),
            ("fd00::/8", "fd12::1", true),
            ("fd00::/8", "fe80::1", false),
            ("0.0.0.0/0", "203.0.113.9", true),
            ("0.0.0.0/0", "2001:db8::1", false),
        ] {
            let (network, address): (Network, IpAddr) = (network.parse().unwrap(), address.parse().unwrap());
            assert_eq!(network.contains(address), expected, "{address} in {network}");
        }
        for wrong in ["", "10", "10.0.0.0/33", "10.0.0.0/", "/8", "localhost", "10.0.0.1:80", "fd00::/129"] {
            assert!(wrong.parse::<Network>().unwrap_err().contains("10.0.0.0/8"), "{wrong}");
        }
    }
}
