//! The scope of a task: agent, tenant and owner.

use std::sync::Arc;

/// The owner of tasks: every read and write names it, so that forgetting it does not compile.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct Scope {
    /// The agent.
    pub agent: Arc<str>,
    /// The tenant within the agent, where the agent has some.
    pub tenant: Option<Arc<str>>,
    /// The principal that made the task; `None` for the anonymous caller.
    pub owner: Option<Arc<str>>,
}
