//! Messages of a connector for its operator.

use std::fmt;

use nuncio_protocol::{TaskId, TaskState};

/// The end of a lease.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LeaseEnd {
    /// The task is in this state now.
    State(TaskState),
    /// The lease is lost, for this reason.
    Lost(String),
}

/// Something that a connector does or sees.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Report {
    /// The hub has accepted the worker, and its answer to the card of the agent.
    Connected,
    /// The hub cannot be reached, for this reason.
    HubIsAway(String),
    /// The hub answers again.
    HubIsBack,
    /// The agent cannot be reached, for this reason.
    AgentIsAway(String),
    /// The agent answers again.
    AgentIsBack,
    /// The hub refuses the card, for this reason.
    CardRefused(String),
    /// Work on a task begins; true if it goes on with what an earlier worker has begun.
    Begins(TaskId, bool),
    /// Work on a task is over.
    Ends(TaskId, LeaseEnd),
    /// No more work is claimed; so many tasks are finished first.
    Finishing(usize),
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connected => f.write_str("the hub has accepted the worker"),
            Self::HubIsAway(why) => write!(f, "the hub is away: {why}; trying again"),
            Self::HubIsBack => f.write_str("the hub is back"),
            Self::AgentIsAway(why) => {
                write!(f, "the agent is away: {why}; no work is claimed until it is back")
            }
            Self::AgentIsBack => f.write_str("the agent is back"),
            Self::CardRefused(why) => write!(f, "the hub refuses the card of the agent: {why}"),
            Self::Begins(task, false) => write!(f, "task {task} begins"),
            Self::Begins(task, true) => write!(f, "task {task} goes on"),
            Self::Ends(task, LeaseEnd::State(state)) => {
                let state = state.as_str().trim_start_matches("TASK_STATE_").to_lowercase().replace('_', "-");
                write!(f, "task {task} is {state}")
            }
            Self::Ends(task, LeaseEnd::Lost(why)) => write!(f, "task {task}: {why}"),
            Self::Finishing(1) => f.write_str("finishing 1 task; press Ctrl-C again to stop at once"),
            Self::Finishing(count) => {
                write!(f, "finishing {count} tasks; press Ctrl-C again to stop at once")
            }
        }
    }
}
