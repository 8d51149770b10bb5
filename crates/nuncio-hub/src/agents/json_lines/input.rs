//! The message as an agent reads it: one JSON object.

use nuncio_protocol::{Caller, ContextId, Message, Metadata, Task, TaskId};
use serde::Serialize;

use crate::agents::ContextKey;

/// A message and its conversation, with derived context ids.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::agents) struct Input<'a> {
    agent: &'a str,
    task_id: &'a TaskId,
    context_id: ContextId,
    /// The principal of the caller; absent for the anonymous caller.
    #[serde(skip_serializing_if = "Option::is_none")]
    principal: Option<&'a str>,
    /// The tenant that the caller has proved to belong to.
    #[serde(skip_serializing_if = "Option::is_none")]
    tenant: Option<&'a str>,
    /// The conversation so far: the caller's tasks of this context, oldest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    earlier: Vec<Task>,
    message: Message,
    /// The task as it was, if the message continues one.
    #[serde(skip_serializing_if = "Option::is_none")]
    task: Option<Task>,
    /// The caller's tasks that the message refers to.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    references: Vec<Task>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    accepted_output_modes: &'a [String],
    #[serde(skip_serializing_if = "Metadata::is_empty")]
    metadata: &'a Metadata,
}

/// The parts of an [`Input`], with the caller's own context ids.
pub(in crate::agents) struct Parts<'a> {
    pub(in crate::agents) agent: &'a str,
    pub(in crate::agents) caller: &'a Caller,
    pub(in crate::agents) task_id: &'a TaskId,
    pub(in crate::agents) context_id: &'a ContextId,
    pub(in crate::agents) message: &'a Message,
    pub(in crate::agents) task: Option<&'a Task>,
    pub(in crate::agents) references: &'a [Task],
    pub(in crate::agents) earlier: &'a [Task],
    pub(in crate::agents) accepted_output_modes: &'a [String],
    pub(in crate::agents) metadata: &'a Metadata,
}

impl<'a> Parts<'a> {
    /// Translates the context ids.
    pub(in crate::agents) fn translate(&self, contexts: &ContextKey) -> Input<'a> {
        let caller = self.caller;
        let as_seen = |task: &Task| contexts.task(caller, task.clone());
        Input {
            agent: self.agent,
            task_id: self.task_id,
            context_id: contexts.derive(caller, self.context_id),
            principal: caller.principal().map(|principal| &**principal),
            tenant: caller.tenant().map(|tenant| &**tenant),
            message: contexts.message(caller, self.message.clone()),
            task: self.task.map(as_seen),
            references: self.references.iter().map(as_seen).collect(),
            earlier: self.earlier.iter().map(as_seen).collect(),
            accepted_output_modes: self.accepted_output_modes,
            metadata: self.metadata,
        }
    }
}
