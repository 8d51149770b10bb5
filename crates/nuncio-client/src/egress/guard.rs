//! Rules for URLs that callers name: pure functions of the text of a URL and of resolved addresses.
//!
//! The rules are applied twice. [`Policy::check`] reads a URL as text and resolves nothing: it is used when
//! a URL is stored, and before each request. The resolver of the guarded egress asks [`Policy::judge`]
//! about every address of a name; the connector then uses exactly those addresses, so nothing can change in
//! between.

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

/// The policy for URLs that callers name. By default: http and https, the ports 80, 443 and 1024 and above,
/// and addresses of the public internet.
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
    /// Also allows loopback and private networks (RFC 1918, RFC 6598, RFC 4193). Link-local and cloud
    /// metadata addresses stay refused, because no webhook is there; [`Self::allow`] can still allow them
    /// one by one.
    pub allow_private: bool,
    /// Also allows these networks, of any kind.
    pub allow: Vec<IpNet>,
    /// Refuses these networks, with priority over all other settings: for example public addresses of your
    /// own network.
    pub deny: Vec<IpNet>,
    /// Refuses plain http.
    pub https_only: bool,
    /// The allowed ports. The default excludes the system services (mail, SSH and so on).
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

/// The reason why a URL is refused. Its text is fit for the log and for the caller: it repeats the caller's
/// input, but not the resolved addresses.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// Neither http nor https.
    #[error("expected http or https, not {0:?}")]
    Scheme(String),
    /// Plain http, which is not allowed.
    #[error("expected https")]
    NotHttps,
    /// Credentials in the URL: they would be sent, and end up in logs.
    #[error("it holds a user or a password")]
    Userinfo,
    /// The URL has no host.
    #[error("it names no host")]
    NoHost,
    /// A port that is not allowed.
    #[error("port {0} is not allowed")]
    Port(u16),
    /// The host is an IP address that is not allowed, or a name with such an address.
    #[error("{host} is {kind}")]
    Address {
        /// The host as parsed.
        host: String,
        /// The reason.
        kind: AddressKind,
    },
    /// The host name resolves to an address that is not allowed.
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
    /// The unspecified address, in practice this machine.
    Unspecified,
    /// This machine.
    Loopback,
    /// A private network.
    Private,
    /// The local network segment.
    LinkLocal,
    /// A metadata service, where clouds serve credentials to their machines.
    Metadata,
    /// A multicast group.
    Multicast,
    /// For examples in documentation.
    Documentation,
    /// An IPv6 address with an embedded IPv4 address that a gateway would unpack.
    Transition,
    /// Not assigned to public hosts.
    Reserved,
    /// Refused by the operator, see [`Policy::deny`].
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
            Transition => "an address with another one embedded",
            Reserved => "a reserved address",
            Self::Denied => "an address that the operator has denied",
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

/// The IPv4 networks that are not public; the first match wins.
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
    // IETF protocols, 6to4 relays, benchmarks.
    (v4(192, 0, 0, 0, 24), Reserved),
    (v4(192, 88, 99, 0, 24), Reserved),
    (v4(198, 18, 0, 0, 15), Reserved),
    (v4(224, 0, 0, 0, 4), Multicast),
    // The rest, including broadcast.
    (v4(240, 0, 0, 0, 4), Reserved),
];

/// The same for IPv6; [`GLOBAL`] applies to the others.
const V6: &[(Ipv6Net, AddressKind)] = &[
    // AWS, Google.
    (v6([0xfd00, 0x0ec2, 0, 0], 0, 32), Metadata),
    (v6([0xfd20, 0x00ce, 0, 0], 0x254, 128), Metadata),
    (v6([0; 4], 0, 128), Unspecified),
    (v6([0; 4], 1, 128), Loopback),
    // Embedded IPv4 addresses: compatible ones, NAT64 for local use, 6to4.
    (v6([0; 4], 0, 96), Transition),
    (v6([0x64, 0xff9b, 1, 0], 0, 48), Transition),
    (v6([0x2002, 0, 0, 0], 0, 16), Transition),
    // IETF protocols: Teredo, benchmarks, ORCHID.
    (v6([0x2001, 0, 0, 0], 0, 32), Transition),
    (v6([0x2001, 0, 0, 0], 0, 23), Reserved),
    (v6([0x2001, 0x0db8, 0, 0], 0, 32), Documentation),
    (v6([0x3fff, 0, 0, 0], 0, 20), Documentation),
    (v6([0xfc00, 0, 0, 0], 0, 7), Private),
    (v6([0xfe80, 0, 0, 0], 0, 10), LinkLocal),
    // Site-local: deprecated private addresses.
    (v6([0xfec0, 0, 0, 0], 0, 10), Reserved),
    (v6([0xff00, 0, 0, 0], 0, 8), Multicast),
];

/// The part of IPv6 that is assigned to the public internet so far.
const GLOBAL: Ipv6Net = v6([0x2000, 0, 0, 0], 0, 3);
/// IPv4 addresses behind the well-known NAT64 prefix (RFC 6052).
const NAT64: Ipv6Net = v6([0x64, 0xff9b, 0, 0], 0, 96);

const THIS_MACHINE: &[IpAddr] = &[IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];
const METADATA_HOST: &[IpAddr] = &[IpAddr::V4(Ipv4Addr::new(169, 254, 169, 254))];

impl Policy {
    /// Checks a URL by its text alone: no name is resolved, so a URL that passes may still be refused when
    /// it is used.
    ///
    /// # Errors
    /// The policy does not allow the URL.
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

    /// Refuses a name by its text if all of its well-known addresses are refused.
    fn judge_name(&self, name: &str) -> Result<(), AddressKind> {
        let known = known_addresses(name).iter().map(|address| self.judge(*address));
        known.reduce(Result::or).unwrap_or(Ok(()))
    }

    /// Checks a resolved address.
    pub(super) fn judge(&self, address: IpAddr) -> Result<(), AddressKind> {
        // The lists may have the IPv6 address or the embedded IPv4 address.
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

/// Refuses addresses where no agent can be, even for names that the operator configured: link-local and
/// cloud metadata addresses. The owner of the name decides where it resolves to.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Screen {
    /// Exceptions that the operator configured.
    pub(super) named: Vec<IpAddr>,
}

impl Screen {
    /// Checks an address that a name resolved to.
    pub(super) fn judge(&self, address: IpAddr) -> Result<(), AddressKind> {
        let inner = carried(address);
        match kind(inner) {
            Some(kind @ (LinkLocal | Metadata)) if !self.named.contains(&inner) => Err(kind),
            Some(_) | None => Ok(()),
        }
    }
}

/// The kind of an address; `None` if it is public.
fn kind(address: IpAddr) -> Option<AddressKind> {
    match address {
        IpAddr::V4(address) => V4.iter().find(|(network, _)| network.contains(&address)).map(|row| row.1),
        IpAddr::V6(address) => {
            let row = V6.iter().find(|(network, _)| network.contains(&address));
            row.map(|row| row.1).or_else(|| (!GLOBAL.contains(&address)).then_some(Reserved))
        }
    }
}

/// The final destination: the IPv4 address that is embedded in an IPv6 address, if any.
fn carried(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) if NAT64.contains(&address) => {
            let [.., a, b, c, d] = address.octets();
            IpAddr::V4(Ipv4Addr::new(a, b, c, d))
        }
        other => other,
    }
}

/// The addresses of names with a fixed or well-known meaning; empty for all others.
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

/// True for names of this machine, independent of the resolver (RFC 6761).
pub(crate) fn is_localhost(name: &str) -> bool {
    let name = name.trim_end_matches('.');
    name == "localhost" || name.ends_with(".localhost")
}

#[cfg(test)]
mod tests;
