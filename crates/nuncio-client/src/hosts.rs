//! The hosts where an agent may be called, independent of its card.
//!
//! A card names the interfaces of its agent, and callers' messages are sent there. The author of a card, or
//! an attacker that answers in its place, could direct them anywhere: to its own host, or to one that only
//! we can reach. So an interface has to be on the host of the card, or on one that is allowed besides.
//!
//! Ports may differ. All names of this machine are one host. A link-local or cloud metadata address has to
//! be allowed itself: see [`Egress::builder`](crate::Egress::builder) for names that resolve to one.

use std::net::IpAddr;

use nuncio_protocol::{AgentInterface, Binding, Error, ErrorKind, Result};
use url::{Host, Url};

use crate::{
    egress::{is_localhost, shown},
    transport::interface_url,
};

/// Metadata key of an error about a foreign interface: its host.
pub const FOREIGN_HOST: &str = "foreignHost";

/// The hosts where an agent may be called. Default: none.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct InterfaceHosts(Vec<Host>);

impl InterfaceHosts {
    /// Also allows this host.
    #[must_use]
    pub fn allow(mut self, host: &Host) -> Self {
        self.0.push(normal(host));
        self
    }

    /// Also allows the host of this URL.
    #[must_use]
    pub fn allow_url(self, url: &Url) -> Self {
        match url.host() {
            Some(host) => self.allow(&host.to_owned()),
            None => self,
        }
    }

    /// True if an agent may be called at this URL.
    #[must_use]
    pub fn contains(&self, url: &Url) -> bool {
        let Some(host) = url.host().map(|host| normal(&host.to_owned())) else { return false };
        self.0.iter().any(|known| *known == host || is_this_machine(known) && is_this_machine(&host))
    }

    /// Checks an interface of a card that came from `home`.
    ///
    /// # Errors
    /// `PermissionDenied` with [`FOREIGN_HOST`] if it is on another host; `InvalidAgentResponse` if it has
    /// no valid URL.
    pub fn judge(&self, interface: &AgentInterface, binding: Binding, home: &Url) -> Result<()> {
        let url = interface_url(interface, binding, home)?;
        if self.contains(&url) {
            return Ok(());
        }
        let host = url.host_str().unwrap_or_default();
        let at = home.host_str().unwrap_or_default();
        let why = format!("the interface {} of the card is at another host than {at}", shown(&url));
        Err(Error::new(ErrorKind::PermissionDenied, why).with_metadata(FOREIGN_HOST, host))
    }
}

/// Normalises a host: names without a trailing dot, IPv4-mapped addresses as IPv4.
fn normal(host: &Host) -> Host {
    match host {
        Host::Domain(name) => Host::Domain(name.trim_end_matches('.').to_ascii_lowercase()),
        Host::Ipv4(address) => Host::Ipv4(*address),
        Host::Ipv6(address) => match IpAddr::V6(*address).to_canonical() {
            IpAddr::V4(address) => Host::Ipv4(address),
            IpAddr::V6(address) => Host::Ipv6(address),
        },
    }
}

fn is_this_machine(host: &Host) -> bool {
    match host {
        Host::Domain(name) => is_localhost(name),
        Host::Ipv4(address) => address.is_loopback(),
        Host::Ipv6(address) => address.is_loopback(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts(named: &[&str]) -> InterfaceHosts {
        let add = |hosts: InterfaceHosts, host: &&str| hosts.allow(&Host::parse(host).unwrap());
        named.iter().fold(InterfaceHosts::default(), add)
    }

    #[test]
    fn an_interface_is_where_somebody_has_named_it() {
        for (named, interface, expected) in [
            (&["agent.example"][..], "https://agent.example/a2a", true),
            (&["agent.example"], "https://agent.example:8443/", true),
            (&["agent.example"], "http://AGENT.example./", true),
            (&["agent.example."], "https://agent.example/", true),
            (&["agent.example"], "https://evil.example/", false),
            (&["agent.example"], "https://x.agent.example/", false),
            (&["agent.example"], "https://agent.example.evil.example/", false),
            (&["agent.example"], "https://agent.example@evil.example/", false),
            (&["agent.example", "calls.example"], "https://calls.example/", true),
            (&["agent.example"], "http://10.0.0.1/", false),
            (&["10.0.0.1"], "http://10.0.0.1:9/", true),
            (&["10.0.0.1"], "http://[::ffff:10.0.0.1]/", true),
            (&["10.0.0.1"], "http://10.0.0.2/", false),
            // All names of this machine are one.
            (&["localhost"], "http://127.0.0.1:9/", true),
            (&["127.0.0.1"], "http://localhost/", true),
            (&["127.0.0.1"], "http://127.8.9.1/", true),
            (&["127.0.0.1"], "http://[::1]/", true),
            (&["[::1]"], "http://a.localhost/", true),
            (&["127.0.0.1"], "http://[::ffff:127.0.0.1]/", true),
            (&["agent.example"], "http://127.0.0.1/", false),
            (&["127.0.0.1"], "http://0.0.0.0/", false),
            // Nobody's interface, unless it is named.
            (&["127.0.0.1", "agent.example"], "http://169.254.169.254/latest/", false),
            (&["127.0.0.1", "agent.example"], "http://[fe80::1]/", false),
            (&["127.0.0.1", "agent.example"], "http://[fd00:ec2::254]/", false),
            (&["169.254.7.7"], "http://169.254.7.7/", true),
            (&["169.254.7.7"], "http://169.254.169.254/", false),
        ] {
            let url = Url::parse(interface).unwrap();
            assert_eq!(hosts(named).contains(&url), expected, "{named:?} {interface}");
        }
    }

    #[test]
    fn the_error_names_the_host_and_no_secret() {
        let home = Url::parse("https://agent.example/card.json").unwrap();
        let own = InterfaceHosts::default().allow_url(&home);
        for (url, binding, host) in [
            ("https://evil.example/a?key=s3cret", Binding::JsonRpc, Some("evil.example")),
            ("https://agent.example/a", Binding::HttpJson, None),
            ("evil.example:443", Binding::Grpc, Some("evil.example")),
            ("grpcs://169.254.169.254:80", Binding::Grpc, Some("169.254.169.254")),
            ("agent.example:443", Binding::Grpc, None),
        ] {
            let interface = AgentInterface { url: url.to_owned(), ..AgentInterface::default() };
            let judged = own.judge(&interface, binding, &home);
            let found = judged.as_ref().err().map(|error| error.metadata()[FOREIGN_HOST].clone());
            assert_eq!(found.as_deref(), host, "{url}");
            if let Err(error) = judged {
                assert!(!error.to_string().contains("s3cret"), "{error}");
            }
        }
    }
}
