//! Rules for addresses that callers name: pure over the text of an address and over what a name resolved to.
//!
//! The same rules stand at two doors. [`Policy::check`] reads an address as it is written, and resolves
//! nothing: it is for the moment in which an address is stored, and for the moment before a request.
//! The resolver of the guarded way out asks [`Policy::judge`] about every address that a name has; the
//! connector then uses exactly those, so nothing can change in between.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    ops::RangeInclusive,
};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use url::{Host, Url};

use self::AddressKind::{
    Documentation, LinkLocal, Loopback, Metadata, Multicast, Private, Reserved, Transition, Unspecified,
};

/// The policy for addresses that callers name.
/// By default: http and https, the ports 80, 443 and those from 1024 on, and
/// addresses of the public internet.
///
/// ```
/// use nuncio_client::{Policy, Refusal};
///
/// let policy = Policy { https_only: true, allow: vec!["10.2.0.0/16".parse()?], ..Policy::default() };
/// assert_eq!(policy.check(&"https://10.2.0.7/hook".parse()?), Ok(()));
/// assert_eq!(policy.check(&"http://hooks.example/".parse()?), Err(Refusal::NotHttps));
/// assert!(policy.check(&"https://169.254.169.254/".parse()?).is_err());
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Policy {
    /// Also loopback and private networks (RFC 1918, RFC 6598, RFC 4193). Link-local addresses and those
    /// where clouds hand out credentials stay closed: they are nobody's webhook, and [`Self::allow`] can
    /// still open them one by one.
    pub allow_private: bool,
    /// Also these networks, whatever they are.
    pub allow: Vec<IpNet>,
    /// Never these networks, whatever else is said: public addresses that are inside of the house.
    pub deny: Vec<IpNet>,
    /// No plain http.
    pub https_only: bool,
    /// The ports that may be named. By default no service of a machine (mail, SSH and so on) is among them.
    pub ports: Vec<RangeInclusive<u16>>,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            allow_private: false,
            allow: Vec::new(),
            deny: Vec::new(),
            https_only: false,
            ports: vec![80..=80, 443..=443, 1024..=u16::MAX],
        }
    }
}

/// The reason why an address is refused. Its text is fit for the log and for the caller: it repeats what the caller
/// wrote, but not what a name resolved to.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// Not a scheme that we speak.
    #[error("expected http or https, not {0:?}")]
    Scheme(String),
    /// Plain http, where that is not allowed.
    #[error("expected https")]
    NotHttps,
    /// Credentials in the address: they would be sent, and end up in logs.
    #[error("it holds a user or a password")]
    Userinfo,
    /// Nobody to talk to.
    #[error("it names no host")]
    NoHost,
    /// A port that is not allowed.
    #[error("port {0} is not allowed")]
    Port(u16),
    /// The host is written as an address that is not allowed, or is a name that stands for one.
    #[error("{host} is {kind}")]
    Address {
        /// As it was understood.
        host: String,
        /// The reason.
        kind: AddressKind,
    },
    /// The name of the host has an address that is not allowed.
    #[error("{name} resolves to {kind}")]
    Resolved {
        /// The name.
        name: String,
        /// The kind of the refused address.
        kind: AddressKind,
    },
}

/// The kinds of addresses that are refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum AddressKind {
    /// "This host", which in practice is this machine.
    Unspecified,
    /// This machine.
    Loopback,
    /// A network of one's own.
    Private,
    /// The same cable.
    LinkLocal,
    /// The address at which clouds serve secrets to their machines.
    Metadata,
    /// Many machines.
    Multicast,
    /// For examples in books.
    Documentation,
    /// An address of the new family that carries one of the old, to be unpacked by somebody on the way.
    Transition,
    /// Not, or not yet, for machines of the public internet.
    Reserved,
    /// One that the operator has closed, see [`Policy::deny`].
    Denied,
}

impl fmt::Display for AddressKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Unspecified => "an unspecified address",
            Loopback => "a loopback address",
            Private => "a private address",
            LinkLocal => "a link-local address",
            Metadata => "an address of cloud metadata",
            Multicast => "a multicast address",
            Documentation => "an address for documentation",
            Transition => "an address that hides another",
            Reserved => "a reserved address",
            Self::Denied => "an address that is closed here",
        })
    }
}

const fn v4(a: u8, b: u8, c: u8, d: u8, length: u8) -> Ipv4Net {
    Ipv4Net::new_assert(Ipv4Addr::new(a, b, c, d), length)
}

const fn v6(begin: [u16; 4], end: u16, length: u8) -> Ipv6Net {
    let [a, b, c, d] = begin;
    Ipv6Net::new_assert(Ipv6Addr::new(a, b, c, d, 0, 0, 0, end), length)
}

/// The networks of IPv4 that are not public; the first row that fits counts.
const V4: &[(Ipv4Net, AddressKind)] = &[
    // AWS, Azure, Google and most others; AWS for containers; Alibaba; Oracle; Azure's second, which looks
    // public.
    (v4(169, 254, 169, 254, 32), Metadata),
    (v4(169, 254, 170, 2, 32), Metadata),
    (v4(100, 100, 100, 200, 32), Metadata),
    (v4(192, 0, 0, 192, 32), Metadata),
    (v4(168, 63, 129, 16, 32), Metadata),
    (v4(0, 0, 0, 0, 8), Unspecified),
    (v4(127, 0, 0, 0, 8), Loopback),
    (v4(10, 0, 0, 0, 8), Private),
    (v4(172, 16, 0, 0, 12), Private),
    (v4(192, 168, 0, 0, 16), Private),
    // Shared by the customers of a provider, and by overlay networks (RFC 6598).
    (v4(100, 64, 0, 0, 10), Private),
    (v4(169, 254, 0, 0, 16), LinkLocal),
    (v4(192, 0, 2, 0, 24), Documentation),
    (v4(198, 51, 100, 0, 24), Documentation),
    (v4(203, 0, 113, 0, 24), Documentation),
    // IETF protocols, relays of 6to4, measurements.
    (v4(192, 0, 0, 0, 24), Reserved),
    (v4(192, 88, 99, 0, 24), Reserved),
    (v4(198, 18, 0, 0, 15), Reserved),
    (v4(224, 0, 0, 0, 4), Multicast),
    // The rest, broadcast among them.
    (v4(240, 0, 0, 0, 4), Reserved),
];

/// The same for the new family, before [`GLOBAL`].
const V6: &[(Ipv6Net, AddressKind)] = &[
    // AWS, Google.
    (v6([0xfd00, 0x0ec2, 0, 0], 0, 32), Metadata),
    (v6([0xfd20, 0x00ce, 0, 0], 0x254, 128), Metadata),
    (v6([0; 4], 0, 128), Unspecified),
    (v6([0; 4], 1, 128), Loopback),
    // Carriers of old addresses: compatible ones, NAT64 for local use, 6to4.
    (v6([0; 4], 0, 96), Transition),
    (v6([0x64, 0xff9b, 1, 0], 0, 48), Transition),
    (v6([0x2002, 0, 0, 0], 0, 16), Transition),
    // IETF protocols: Teredo, measurements, ORCHID.
    (v6([0x2001, 0, 0, 0], 0, 32), Transition),
    (v6([0x2001, 0, 0, 0], 0, 23), Reserved),
    (v6([0x2001, 0x0db8, 0, 0], 0, 32), Documentation),
    (v6([0x3fff, 0, 0, 0], 0, 20), Documentation),
    (v6([0xfc00, 0, 0, 0], 0, 7), Private),
    (v6([0xfe80, 0, 0, 0], 0, 10), LinkLocal),
    // Site-local: private once, abandoned since.
    (v6([0xfec0, 0, 0, 0], 0, 10), Reserved),
    (v6([0xff00, 0, 0, 0], 0, 8), Multicast),
];

/// All of the new family that is for the public internet so far.
const GLOBAL: Ipv6Net = v6([0x2000, 0, 0, 0], 0, 3);
/// Old addresses behind a translator that everybody knows (NAT64, RFC 6052).
const NAT64: Ipv6Net = v6([0x64, 0xff9b, 0, 0], 0, 96);

const THIS_MACHINE: &[IpAddr] = &[IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];
const METADATA_HOST: &[IpAddr] = &[IpAddr::V4(Ipv4Addr::new(169, 254, 169, 254))];

impl Policy {
    /// Judges an address by its text alone: no name is resolved, so an address that passes may still be
    /// refused when it is used.
    ///
    /// # Errors
    /// The address is not for callers to name.
    pub fn check(&self, url: &Url) -> Result<(), Refusal> {
        match url.scheme() {
            "https" => {}
            "http" if self.https_only => return Err(Refusal::NotHttps),
            "http" => {}
            other => return Err(Refusal::Scheme(other.to_owned())),
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(Refusal::Userinfo);
        }
        let port = url.port_or_known_default().unwrap_or_default();
        if !self.ports.iter().any(|ports| ports.contains(&port)) {
            return Err(Refusal::Port(port));
        }
        let kind = match url.host() {
            None => return Err(Refusal::NoHost),
            Some(Host::Ipv4(address)) => self.judge(address.into()),
            Some(Host::Ipv6(address)) => self.judge(address.into()),
            Some(Host::Domain(name)) => self.judge_name(name),
        };
        kind.map_err(|kind| Refusal::Address { host: url.host_str().unwrap_or_default().to_owned(), kind })
    }

    /// A name is refused by its text if all that it can stand for is refused.
    fn judge_name(&self, name: &str) -> Result<(), AddressKind> {
        let known = known_addresses(name).iter().map(|address| self.judge(*address));
        known.reduce(Result::or).unwrap_or(Ok(()))
    }

    /// Judges the address of a machine.
    pub(super) fn judge(&self, address: IpAddr) -> Result<(), AddressKind> {
        // The lists may mean the carrier or what it carries.
        let inner = carried(address);
        let lists = |networks: &[IpNet]| {
            networks.iter().any(|network| network.contains(&inner) || network.contains(&address))
        };
        if lists(&self.deny) {
            return Err(AddressKind::Denied);
        }
        if lists(&self.allow) {
            return Ok(());
        }
        match kind(inner) {
            None => Ok(()),
            Some(Loopback | Private) if self.allow_private => Ok(()),
            Some(kind) => Err(kind),
        }
    }
}

/// Addresses that the name of an agent never leads to, although the operator has named the agent: link-local ones, and
/// those where clouds hand out credentials. The owner of the name decides what it leads to.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Screen {
    /// These may be led to all the same: the operator has named them, too.
    pub(super) named: Vec<IpAddr>,
}

impl Screen {
    /// Judges an address that a name has.
    pub(super) fn judge(&self, address: IpAddr) -> Result<(), AddressKind> {
        let inner = carried(address);
        match kind(inner) {
            Some(kind @ (LinkLocal | Metadata)) if !self.named.contains(&inner) => Err(kind),
            Some(_) | None => Ok(()),
        }
    }
}

/// The kind of an address; `None` if it is of the public internet.
fn kind(address: IpAddr) -> Option<AddressKind> {
    match address {
        IpAddr::V4(address) => V4.iter().find(|(network, _)| network.contains(&address)).map(|row| row.1),
        IpAddr::V6(address) => {
            let row = V6.iter().find(|(network, _)| network.contains(&address));
            row.map(|row| row.1).or_else(|| (!GLOBAL.contains(&address)).then_some(Reserved))
        }
    }
}

/// The address at which packets arrive: an IPv4 address may be embedded in one of IPv6.
fn carried(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) if NAT64.contains(&address) => {
            let [.., a, b, c, d] = address.octets();
            IpAddr::V4(Ipv4Addr::new(a, b, c, d))
        }
        other => other,
    }
}

/// The addresses of names whose meaning is fixed, or known everywhere; empty for all others.
fn known_addresses(name: &str) -> &'static [IpAddr] {
    let name = name.trim_end_matches('.');
    if is_localhost(name) {
        return THIS_MACHINE;
    }
    match name {
        "metadata.google.internal" | "metadata.goog" => METADATA_HOST,
        _ => &[],
    }
}

/// True for names that mean this machine, whatever resolves them (RFC 6761).
pub(crate) fn is_localhost(name: &str) -> bool {
    let name = name.trim_end_matches('.');
    name == "localhost" || name.ends_with(".localhost")
}

#[cfg(test)]
mod tests;
