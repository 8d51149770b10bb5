//! The addresses of agents: exactly the interfaces that are served, as cards list them.

use std::sync::Arc;

use arc_swap::ArcSwap;
use nuncio_protocol::{AgentInterface, Binding, Version, grpc_target};
use url::Url;

/// The address of the hub as callers see it, and the agent that answers there.
#[derive(Clone, Debug)]
pub(crate) struct AgentUrls {
    base: String,
    /// `host:port` for gRPC; `None` if the base has a path, because gRPC has fixed paths of its own.
    authority: Option<String>,
    /// The agent that also answers without a name. All copies share it: it changes while the hub runs.
    default: Arc<ArcSwap<Option<Arc<str>>>>,
}

impl AgentUrls {
    pub(crate) fn new(base: &Url, default: Option<&str>) -> Self {
        let authority = (base.path() == "/").then(|| grpc_target(base.as_str()));
        Self {
            base: base.as_str().trim_end_matches('/').to_owned(),
            authority,
            default: Arc::new(ArcSwap::from_pointee(default.map(Into::into))),
        }
    }

    /// Lists gRPC as a URL, and not as host and port: one test kit reads no other form, and no SDK reads this one.
    pub(crate) fn with_grpc_urls(mut self) -> Self {
        self.authority = self.authority.map(|authority| format!("http://{authority}"));
        self
    }

    /// The hub's own address, without a trailing slash.
    pub(crate) fn base(&self) -> &str {
        &self.base
    }

    /// The address of an agent over HTTP.
    pub(crate) fn url(&self, agent: &str) -> String {
        format!("{}{}", self.base, path(agent))
    }

    /// The agent that also answers without a name. Whether it is there is another question.
    pub(crate) fn default_agent(&self) -> Option<Arc<str>> {
        Option::clone(&self.default.load())
    }

    /// Another agent answers without a name from now on.
    pub(crate) fn set_default_agent(&self, name: Option<&str>) {
        self.default.store(Arc::new(name.map(Into::into)));
    }

    fn is_default(&self, agent: &str) -> bool {
        self.default.load().as_deref() == Some(agent)
    }

    /// All interfaces of an agent, newest version first.
    pub(crate) fn interfaces(&self, agent: &str) -> Vec<AgentInterface> {
        Version::ALL.iter().flat_map(|version| self.interfaces_of(*version, agent)).collect()
    }

    fn interfaces_of(&self, version: Version, agent: &str) -> Vec<AgentInterface> {
        let interface = |binding: Binding, url: &str, tenant: Option<&str>| AgentInterface {
            url: url.to_owned(),
            protocol_binding: binding.as_str().to_owned(),
            tenant: tenant.map(str::to_owned),
            protocol_version: version.as_str().to_owned(),
        };
        let url = self.url(agent);
        let mut interfaces =
            vec![interface(Binding::JsonRpc, &url, None), interface(Binding::HttpJson, &url, None)];
        let is_default = self.is_default(agent);
        // At the root a tenant says which agent is meant, and only 1.0 has one.
        let has_tenant = version == Version::V1_0 && !is_default;
        let tenant = Some(agent).filter(|_| has_tenant);
        if let Some(authority) = &self.authority
            && (is_default || has_tenant)
        {
            interfaces.push(interface(Binding::Grpc, authority, tenant));
        }
        if has_tenant {
            interfaces.push(interface(Binding::JsonRpc, &self.base, tenant));
            interfaces.push(interface(Binding::HttpJson, &self.base, tenant));
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
                "JSONRPC 1.0 http://127.0.0.1:2602 of echo",
                "HTTP+JSON 1.0 http://127.0.0.1:2602 of echo",
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
            None,
            &[
                "JSONRPC 1.0 https://example.com/hub/agents/echo",
                "HTTP+JSON 1.0 https://example.com/hub/agents/echo",
                "JSONRPC 1.0 https://example.com/hub of echo",
                "HTTP+JSON 1.0 https://example.com/hub of echo",
                "JSONRPC 0.3 https://example.com/hub/agents/echo",
                "HTTP+JSON 0.3 https://example.com/hub/agents/echo",
            ],
        );
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
