//! Translates task and context ids between our side and the remote agent's. Pure.

use std::{collections::HashMap, sync::Arc};

use nuncio_protocol::{
    ContextId, Event, Message, Role, Task, TaskId, TaskState, TaskStatus, TaskStatusUpdateEvent,
};

/// Our ids, for events of the agent.
#[derive(Clone, Debug)]
pub(super) struct LocalIds {
    pub(super) task_id: TaskId,
    pub(super) context_id: ContextId,
}

impl LocalIds {
    /// Translates a task, without the caller's messages, which our history has already.
    pub(super) fn task(&self, mut task: Task) -> Task {
        task.history.retain(|message| message.role != Role::User);
        task.history = task.history.into_iter().map(|message| self.message(message)).collect();
        task.status = self.status(task.status);
        (task.id, task.context_id) = (self.task_id.clone(), self.context_id.clone());
        task
    }

    /// Translates a status. Its timestamp is removed, so that all times of a task come from our clock.
    pub(super) fn status(&self, status: TaskStatus) -> TaskStatus {
        // Some agents leave out the state while they work.
        let state = match status.state {
            TaskState::Unspecified => TaskState::Working,
            state => state,
        };
        TaskStatus { state, message: status.message.map(|message| self.message(message)), timestamp: None }
    }

    /// Translates a message of the agent. Its references are removed: the hub does not know those tasks.
    pub(super) fn message(&self, message: Arc<Message>) -> Arc<Message> {
        let mut message = Arc::unwrap_or_clone(message);
        message.task_id = Some(self.task_id.clone());
        message.context_id = Some(self.context_id.clone());
        message.reference_task_ids.clear();
        Arc::new(message)
    }

    /// Translates a status update. The emitter sets our ids.
    pub(super) fn status_update(&self, update: TaskStatusUpdateEvent) -> Event {
        let status = self.status(update.status);
        Event::StatusUpdate(TaskStatusUpdateEvent { status, ..update })
    }
}

/// The agent's ids, for messages of a caller.
#[derive(Clone, Debug, Default)]
pub(in crate::agents) struct RemoteIds {
    /// The task that the message continues; `None` if it begins one.
    pub(in crate::agents) task_id: Option<TaskId>,
    pub(in crate::agents) context_id: Option<ContextId>,
    /// Our task ids and the agent's ids of the same tasks.
    pub(in crate::agents) references: HashMap<TaskId, TaskId>,
}

impl RemoteIds {
    /// Translates a message of a caller. References to tasks that the agent does not know are removed.
    pub(super) fn message(&self, mut message: Message) -> Message {
        let known = |id: &TaskId| self.references.get(id).cloned();
        message.reference_task_ids = message.reference_task_ids.iter().filter_map(known).collect();
        (message.task_id, message.context_id) = (self.task_id.clone(), self.context_id.clone());
        message
    }
}

#[cfg(test)]
mod tests {
    use nuncio_protocol::Timestamp;
    use serde_json::json;

    use super::*;

    #[test]
    fn everything_the_upstream_says_is_about_our_task() {
        let theirs: Task = serde_json::from_value(json!({
            "id": "up-1", "contextId": "up-c",
            "status": {"timestamp": "2026-01-01T00:00:00Z", "message": {
                "messageId": "m2", "role": "ROLE_AGENT", "taskId": "up-1", "contextId": "up-c",
                "parts": [{"text": "b"}], "metadata": {"k": 1}, "referenceTaskIds": ["up-0"]}},
            "history": [
                {"messageId": "m0", "role": "ROLE_USER", "taskId": "up-1", "parts": [{"text": "ours"}]},
                {"messageId": "m1", "role": "ROLE_AGENT", "taskId": "up-1", "parts": [{"text": "a"}]}],
            "artifacts": [{"artifactId": "a", "parts": [{"text": "x"}], "metadata": {"k": 2}}],
            "metadata": {"k": 3},
        }))
        .unwrap();
        assert_ne!(theirs.status.timestamp, Some(Timestamp::EPOCH));
        let ours = LocalIds { task_id: "t".into(), context_id: "c".into() };
        let expected = json!({
            "id": "t", "contextId": "c",
            "status": {"state": "TASK_STATE_WORKING", "message": {
                "messageId": "m2", "role": "ROLE_AGENT", "taskId": "t", "contextId": "c",
                "parts": [{"text": "b"}], "metadata": {"k": 1}}},
            "history": [{"messageId": "m1", "role": "ROLE_AGENT", "taskId": "t", "contextId": "c",
                "parts": [{"text": "a"}]}],
            "artifacts": [{"artifactId": "a", "parts": [{"text": "x"}], "metadata": {"k": 2}}],
            "metadata": {"k": 3},
        });
        assert_eq!(serde_json::to_value(ours.task(theirs)).unwrap(), expected);
    }

    #[test]
    fn the_upstream_hears_its_own_names_and_no_others() {
        let mut message = Message::user("m", nuncio_protocol::Part::text("hi"));
        message.task_id = Some("t".into());
        message.context_id = Some("c".into());
        message.reference_task_ids = vec!["t-1".into(), "t-2".into()];
        let theirs = RemoteIds {
            task_id: Some("up-1".into()),
            context_id: Some("up-c".into()),
            references: HashMap::from([("t-2".into(), "up-2".into())]),
        };
        let sent = theirs.message(message.clone());
        assert_eq!((sent.task_id, sent.context_id), (Some("up-1".into()), Some("up-c".into())));
        assert_eq!(sent.reference_task_ids, [TaskId::from("up-2")]);
        assert_eq!(RemoteIds::default().message(message).task_id, None, "ours means nothing there");
    }
}
