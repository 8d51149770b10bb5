//! The addresses of agents: exactly the interfaces that are served, as cards list them.

use nuncio_protocol::{AgentInterface, Binding, Version, grpc_target};
use url::Url;

/// The addresses of the hub and its agents as callers see them.
#[derive(Clone, Debug)]
pub(crate) struct AgentUrls {
    base: String,
    /// `host:port` for gRPC; `None` if the base has a path, because gRPC has fixed paths of its own.
    authority: Option<String>,
    /// The agent that also answers at the root.
    default: Option<String>,
}

impl AgentUrls {
    pub(crate) fn new(base: &Url, default: Option<&str>) -> Self {
        let authority = (base.path() == "/").then(|| grpc_target(base.as_str()));
        Self {
            base: base.as_str().trim_end_matches('/').to_owned(),
            authority,
            default: default.map(str::to_owned),
        }
    }

    /// The hub's own address, without a trailing slash.
    pub(crate) fn base(&self) -> &str {
        &self.base
    }

    /// The address of an agent over HTTP.
    pub(crate) fn url(&self, agent: &str) -> String {
        format!("{}{}", self.base, path(agent))
    }

    /// All interfaces of an agent, newest version first.
    pub(crate) fn interfaces(&self, agent: &str) -> Vec<AgentInterface> {
        Version::ALL.iter().flat_map(|version| self.interfaces_of(*version, agent)).collect()
    }

    fn interfaces_of(&self, version: Version, agent: &str) -> Vec<AgentInterface> {
        let interface = |binding: Binding, url: String, tenant: Option<&str>| AgentInterface {
            url,
            protocol_binding: binding.as_str().to_owned(),
            tenant: tenant.map(str::to_owned),
            protocol_version: version.as_str().to_owned(),
        };
        let mut interfaces = vec![
            interface(Binding::JsonRpc, self.url(agent), None),
            interface(Binding::HttpJson, self.url(agent), None),
        ];
        let is_default = self.default.as_deref() == Some(agent);
        // Only 1.0 has a tenant field to select an agent over gRPC.
        if let Some(authority) = &self.authority
            && (is_default || version == Version::V1_0)
        {
            let tenant = Some(agent).filter(|_| !is_default);
            interfaces.push(interface(Binding::Grpc, authority.clone(), tenant));
        }
        interfaces
    }
}

/// The path of an agent.
pub(crate) fn path(agent: &str) -> String {
    format!("/agents/{agent}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(base: &str, default: Option<&str>, expected: &[&str]) {
        let urls = AgentUrls::new(&Url::parse(base).unwrap(), default);
        let listed: Vec<_> = urls
            .interfaces("echo")
            .into_iter()
            .map(|interface| {
                let tenant = interface.tenant.map(|tenant| format!(" of {tenant}")).unwrap_or_default();
                format!(
                    "{} {} {}{tenant}",
                    interface.protocol_binding, interface.protocol_version, interface.url
                )
            })
            .collect();
        assert_eq!(listed, expected, "{base} {default:?}");
    }

    #[test]
    fn every_interface_that_is_served_and_no_other() {
        check(
            "http://127.0.0.1:2602",
            None,
            &[
                "JSONRPC 1.0 http://127.0.0.1:2602/agents/echo",
                "HTTP+JSON 1.0 http://127.0.0.1:2602/agents/echo",
                "GRPC 1.0 127.0.0.1:2602 of echo",
                "JSONRPC 0.3 http://127.0.0.1:2602/agents/echo",
                "HTTP+JSON 0.3 http://127.0.0.1:2602/agents/echo",
            ],
        );
        check(
            "https://agents.example/",
            Some("echo"),
            &[
                "JSONRPC 1.0 https://agents.example/agents/echo",
                "HTTP+JSON 1.0 https://agents.example/agents/echo",
                "GRPC 1.0 agents.example:443",
                "JSONRPC 0.3 https://agents.example/agents/echo",
                "HTTP+JSON 0.3 https://agents.example/agents/echo",
                "GRPC 0.3 agents.example:443",
            ],
        );
    }

    #[test]
    fn below_a_path_there_is_no_grpc() {
        check(
            "https://example.com/hub/",
            Some("echo"),
            &[
                "JSONRPC 1.0 https://example.com/hub/agents/echo",
                "HTTP+JSON 1.0 https://example.com/hub/agents/echo",
                "JSONRPC 0.3 https://example.com/hub/agents/echo",
                "HTTP+JSON 0.3 https://example.com/hub/agents/echo",
            ],
        );
    }
}
