//! The scope of a task: agent, tenant and owner.

use std::sync::Arc;

/// The part of the store that a caller can see. A parameter of every read and write, so that a missing check
/// does not compile.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct Scope {
    /// The agent.
    pub agent: Arc<str>,
    /// The tenant, if the agent has tenants.
    pub tenant: Option<Arc<str>>,
    /// The principal that created the task; `None` for the anonymous caller.
    pub owner: Option<Arc<str>>,
}
