//! What a caller may know of.

use std::{fmt, net::IpAddr, sync::Arc};

use crate::trail::{Row, Trail, What};

/// Which agents a caller may know of. An extension of every request; one without it may know of none.
#[derive(Clone)]
pub(crate) struct Access {
    /// `None`: all.
    agents: Option<Arc<[String]>>,
    witness: Option<Witness>,
}

/// Who asks, and who is told when it asks for what it may not.
#[derive(Clone)]
pub(super) struct Witness {
    pub(super) trail: Trail,
    pub(super) principal: Option<Arc<str>>,
    pub(super) key: Option<String>,
    pub(super) peer: IpAddr,
}

impl Access {
    /// To all agents.
    pub(crate) const fn all() -> Self {
        Self { agents: None, witness: None }
    }

    /// To these agents; `None`: to all.
    pub(super) fn to(agents: Option<Arc<[String]>>, witness: Witness) -> Self {
        // Who may everything is denied nothing.
        let witness = agents.is_some().then_some(witness);
        Self { agents, witness }
    }

    /// True if there is such an agent as far as this caller knows.
    pub(crate) fn may_call(&self, agent: &str) -> bool {
        self.agents.as_ref().is_none_or(|agents| agents.iter().any(|allowed| allowed == agent))
    }

    /// True if there is such an agent as far as this caller knows; if not, it is written down that it asked.
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
