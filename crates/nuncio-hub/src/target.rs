//! The target of a request: what the route table reads from its method and path, once, and hands on.

/// What a request has to show before its route sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RouteAccess {
    /// Nothing: the route says nothing about agents.
    Anyone,
    /// Nothing, but a page of another site is refused as for calls: gRPC's health and reflection.
    Protocol,
    /// The address itself, which nobody can guess.
    Capability,
    /// Who calls.
    Caller,
}

/// A route of the table, and the agent whose address the path begins with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Target {
    /// The route in its table.
    pub(crate) route: usize,
    pub(crate) access: RouteAccess,
    /// It reads a card, or asks whether a page may.
    pub(crate) is_card: bool,
    /// The length of the agent's address, `/agents/NAME`; 0 if the path names no agent.
    agent_path: usize,
}

/// Every address of an agent begins so.
const AGENTS: &str = "/agents/";

impl Target {
    pub(crate) fn new(route: usize, access: RouteAccess, is_card: bool, agent: Option<&str>) -> Self {
        let agent_path = agent.map_or(0, |name| AGENTS.len() + name.len());
        Self { route, access, is_card, agent_path }
    }

    /// The path of the agent's address; empty if the path names no agent.
    pub(crate) fn agent_path<'a>(&self, path: &'a str) -> &'a str {
        path.get(..self.agent_path).unwrap_or_default()
    }

    /// The agent's name as it came. An escaped name is another one, and no agent has such a name.
    pub(crate) fn agent<'a>(&self, path: &'a str) -> Option<&'a str> {
        self.agent_path(path).strip_prefix(AGENTS)
    }

    /// The path below the agent's address.
    pub(crate) fn below_agent<'a>(&self, path: &'a str) -> &'a str {
        path.get(self.agent_path..).unwrap_or_default()
    }
}
