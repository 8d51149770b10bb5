//! Requests and responses of the eleven operations (spec 3.1 and 3.2).

use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize};

use crate::{
    ContextId, Message, Metadata, PushConfigId, Task, TaskId, TaskPushNotificationConfig, TaskState,
    Timestamp,
    lenient::{int32, int32_or_zero, list, none_if_empty, null_default, oneof},
    metadata::metadata,
};

/// `SendMessage` and `SendStreamingMessage` (spec 3.2.1).
#[derive(Clone, Debug, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct SendMessageRequest {
    /// The tenant for routing; copied from the interface.
    #[serde(deserialize_with = "none_if_empty", skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// The message.
    #[serde(deserialize_with = "null_default")]
    pub message: Message,
    /// Options of the send.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub configuration: Option<SendMessageConfiguration>,
    /// Free-form data about the request.
    #[serde(deserialize_with = "metadata::<_, 1>", skip_serializing_if = "Metadata::is_empty")]
    pub metadata: Metadata,
}

/// Options of a send (spec 3.2.2).
#[derive(Clone, Debug, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct SendMessageConfiguration {
    /// Media types that the caller accepts.
    #[serde(
        alias = "accepted_output_modes",
        deserialize_with = "list",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub accepted_output_modes: Vec<String>,
    /// A webhook for the task of this call.
    #[serde(alias = "task_push_notification_config", skip_serializing_if = "Option::is_none")]
    pub task_push_notification_config: Option<TaskPushNotificationConfig>,
    /// Maximum number of history messages in the answer.
    #[serde(alias = "history_length", deserialize_with = "int32", skip_serializing_if = "Option::is_none")]
    pub history_length: Option<i32>,
    /// True: answer as soon as the task exists. False: wait until it is terminal or interrupted.
    #[serde(
        alias = "return_immediately",
        deserialize_with = "null_default",
        skip_serializing_if = "std::ops::Not::not"
    )]
    pub return_immediately: bool,
}

/// The answer to `SendMessage`: a task, or a direct reply.
#[derive(Clone, Debug, PartialEq)]
pub enum SendMessageResponse {
    /// The task that was created or continued.
    Task(Task),
    /// A direct reply; there is no task.
    Message(Arc<Message>),
}

impl SendMessageResponse {
    /// The text of the answer: that of the reply, or of the task's artifacts, joined by line breaks.
    #[must_use]
    pub fn text(&self) -> String {
        match self {
            Self::Message(message) => message.text().into_owned(),
            Self::Task(task) => {
                let texts: Vec<_> = task.artifacts.iter().map(|artifact| artifact.text()).collect();
                texts.join("\n")
            }
        }
    }
}

oneof!("SendMessageResponse", SendMessageResponse {
    "task" => Task(Task),
    "message" => Message(Arc<Message>),
});

/// `GetTask`.
#[derive(Clone, Debug, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct GetTaskRequest {
    /// The tenant for routing; copied from the interface.
    #[serde(deserialize_with = "none_if_empty", skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// The task.
    #[serde(deserialize_with = "null_default")]
    pub id: TaskId,
    /// Maximum number of history messages in the answer.
    #[serde(alias = "history_length", deserialize_with = "int32", skip_serializing_if = "Option::is_none")]
    pub history_length: Option<i32>,
}

/// `ListTasks`. Filters combine by AND.
#[derive(Clone, Debug, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ListTasksRequest {
    /// The tenant for routing; copied from the interface.
    #[serde(deserialize_with = "none_if_empty", skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// Only tasks of this context.
    #[serde(
        alias = "context_id",
        deserialize_with = "none_if_empty",
        skip_serializing_if = "Option::is_none"
    )]
    pub context_id: Option<ContextId>,
    /// Only tasks in this state.
    #[serde(deserialize_with = "specified", skip_serializing_if = "Option::is_none")]
    pub status: Option<TaskState>,
    /// 1 to 100; the default is 50.
    #[serde(alias = "page_size", deserialize_with = "int32", skip_serializing_if = "Option::is_none")]
    pub page_size: Option<i32>,
    /// The token of the previous page; opaque.
    #[serde(
        alias = "page_token",
        deserialize_with = "none_if_empty",
        skip_serializing_if = "Option::is_none"
    )]
    pub page_token: Option<String>,
    /// Maximum number of history messages in each task.
    #[serde(alias = "history_length", deserialize_with = "int32", skip_serializing_if = "Option::is_none")]
    pub history_length: Option<i32>,
    /// Only tasks with a status from this time or later (trap T-26: inclusive).
    #[serde(alias = "status_timestamp_after", skip_serializing_if = "Option::is_none")]
    pub status_timestamp_after: Option<Timestamp>,
    /// True to include artifacts; the default is false.
    #[serde(alias = "include_artifacts", skip_serializing_if = "Option::is_none")]
    pub include_artifacts: Option<bool>,
}

/// Decodes `TASK_STATE_UNSPECIFIED` as no filter.
fn specified<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<TaskState>, D::Error> {
    Ok(Option::<TaskState>::deserialize(deserializer)?.filter(|state| *state != TaskState::Unspecified))
}

/// A page of tasks. All members are always written (REQ-117).
#[derive(Clone, Debug, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ListTasksResponse {
    /// Newest status first.
    #[serde(deserialize_with = "null_default")]
    pub tasks: Vec<Task>,
    /// The token of the next page; empty on the last.
    #[serde(alias = "next_page_token", deserialize_with = "null_default")]
    pub next_page_token: String,
    /// The page size that was applied.
    #[serde(alias = "page_size", deserialize_with = "int32_or_zero")]
    pub page_size: i32,
    /// The number of matching tasks on all pages.
    #[serde(alias = "total_size", deserialize_with = "int32_or_zero")]
    pub total_size: i32,
    /// True if `total_size` is an estimate. It is no member of the message: servers tell it by a header.
    #[serde(skip)]
    pub total_is_estimate: bool,
}

/// `CancelTask`.
#[derive(Clone, Debug, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct CancelTaskRequest {
    /// The tenant for routing; copied from the interface.
    #[serde(deserialize_with = "none_if_empty", skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// The task.
    #[serde(deserialize_with = "null_default")]
    pub id: TaskId,
    /// Free-form data about the request.
    #[serde(deserialize_with = "metadata::<_, 1>", skip_serializing_if = "Metadata::is_empty")]
    pub metadata: Metadata,
}

/// `SubscribeToTask`.
#[derive(Clone, Debug, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct SubscribeToTaskRequest {
    /// The tenant for routing; copied from the interface.
    #[serde(deserialize_with = "none_if_empty", skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// The task.
    #[serde(deserialize_with = "null_default")]
    pub id: TaskId,
}

/// `GetTaskPushNotificationConfig`.
#[derive(Clone, Debug, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct GetTaskPushNotificationConfigRequest {
    /// The tenant for routing; copied from the interface.
    #[serde(deserialize_with = "none_if_empty", skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// The task.
    #[serde(alias = "task_id", deserialize_with = "null_default")]
    pub task_id: TaskId,
    /// The configuration.
    #[serde(deserialize_with = "null_default")]
    pub id: PushConfigId,
}

/// `ListTaskPushNotificationConfigs`.
#[derive(Clone, Debug, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ListTaskPushNotificationConfigsRequest {
    /// The tenant for routing; copied from the interface.
    #[serde(deserialize_with = "none_if_empty", skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// The task.
    #[serde(alias = "task_id", deserialize_with = "null_default")]
    pub task_id: TaskId,
    /// Maximum number per page; 0 for the server's default.
    #[serde(alias = "page_size", deserialize_with = "int32_or_zero", skip_serializing_if = "is_zero")]
    pub page_size: i32,
    /// The token of the previous page; opaque.
    #[serde(
        alias = "page_token",
        deserialize_with = "none_if_empty",
        skip_serializing_if = "Option::is_none"
    )]
    pub page_token: Option<String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands over a reference")]
fn is_zero(n: &i32) -> bool {
    *n == 0
}

/// A page of push notification configurations.
#[derive(Clone, Debug, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ListTaskPushNotificationConfigsResponse {
    /// The configurations.
    #[serde(deserialize_with = "null_default")]
    pub configs: Vec<TaskPushNotificationConfig>,
    /// The token of the next page; empty on the last.
    #[serde(
        alias = "next_page_token",
        deserialize_with = "null_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub next_page_token: String,
}

/// `DeleteTaskPushNotificationConfig`.
#[derive(Clone, Debug, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct DeleteTaskPushNotificationConfigRequest {
    /// The tenant for routing; copied from the interface.
    #[serde(deserialize_with = "none_if_empty", skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// The task.
    #[serde(alias = "task_id", deserialize_with = "null_default")]
    pub task_id: TaskId,
    /// The configuration.
    #[serde(deserialize_with = "null_default")]
    pub id: PushConfigId,
}

/// `GetExtendedAgentCard`.
#[derive(Clone, Debug, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct GetExtendedAgentCardRequest {
    /// The tenant for routing; copied from the interface.
    #[serde(deserialize_with = "none_if_empty", skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
}
