//! The target of a request, which the route table reads once from method and path.

/// The credential that a route requires.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RouteAccess {
    /// None: the route reveals nothing about agents.
    Anyone,
    /// None, but pages of other sites are refused as for calls: gRPC's health and reflection.
    Protocol,
    /// None: the URL itself is secret and cannot be guessed.
    Capability,
    /// That of a caller.
    Caller,
}

/// A route of the table, and the agent that the path names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Target {
    /// The index of the route in its table.
    pub(crate) route: usize,
    pub(crate) access: RouteAccess,
    /// The request reads a card, or is the preflight request for that.
    pub(crate) is_card: bool,
    /// The length of the agent's path, `/agents/NAME`; 0 if the path names no agent.
    agent_path: usize,
}

/// The prefix of every agent's path.
const AGENTS: &str = "/agents/";

impl Target {
    /// `agent` is the length of the agent's name in the path.
    pub(crate) fn new(route: usize, access: RouteAccess, is_card: bool, agent: Option<usize>) -> Self {
        let agent_path = agent.map_or(0, |name| AGENTS.len() + name);
        Self { route, access, is_card, agent_path }
    }

    /// The path of the agent, `/agents/NAME`; empty if the path names no agent.
    pub(crate) fn agent_path<'a>(&self, path: &'a str) -> &'a str {
        path.get(..self.agent_path).unwrap_or_default()
    }

    /// The agent's name as sent. A percent-encoded name is another one, and no agent has it.
    pub(crate) fn agent<'a>(&self, path: &'a str) -> Option<&'a str> {
        self.agent_path(path).strip_prefix(AGENTS)
    }

    /// The path below the agent's.
    pub(crate) fn below_agent<'a>(&self, path: &'a str) -> &'a str {
        path.get(self.agent_path..).unwrap_or_default()
    }
}
