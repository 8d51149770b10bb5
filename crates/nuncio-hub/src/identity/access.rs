//! The agents that a caller may see.

use std::{fmt, net::IpAddr, sync::Arc};

use crate::trail::{Row, Trail, What};

/// The agents that a caller may see; an extension of every request. A request without it may see none.
#[derive(Clone)]
pub(crate) struct Access {
    /// `None`: all.
    agents: Option<Arc<[String]>>,
    witness: Option<Witness>,
}

/// The identity of a caller, for the trail's row about a denied agent.
#[derive(Clone)]
pub(super) struct Witness {
    pub(super) trail: Trail,
    pub(super) principal: Option<Arc<str>>,
    pub(super) key: Option<String>,
    pub(super) peer: IpAddr,
}

impl Access {
    /// Access to all agents.
    pub(crate) const fn all() -> Self {
        Self { agents: None, witness: None }
    }

    /// Access to these agents; `None`: to all.
    pub(super) fn to(agents: Option<Arc<[String]>>, witness: Witness) -> Self {
        // A caller with access to all agents is never denied one.
        let witness = agents.is_some().then_some(witness);
        Self { agents, witness }
    }

    /// True if the caller may see this agent.
    pub(crate) fn may_call(&self, agent: &str) -> bool {
        self.agents.as_ref().is_none_or(|agents| agents.iter().any(|allowed| allowed == agent))
    }

    /// True if the caller may see this agent; a denial is noted in the trail.
    pub(crate) fn admits(&self, agent: &str) -> bool {
        let admits = self.may_call(agent);
        if let Some(witness) = self.witness.as_ref().filter(|_| !admits) {
            witness.trail.note(Row {
                principal: witness.principal.as_deref().map(str::to_owned),
                key: witness.key.clone(),
                peer: Some(witness.peer),
                agent: Some(agent.to_owned()),
                ..Row::of(What::AgentDenied)
            });
        }
        admits
    }
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Access").field("agents", &self.agents).finish_non_exhaustive()
    }
}
