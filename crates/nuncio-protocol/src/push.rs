//! Push notification configuration (spec 4.3).

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{
    PushConfigId, TaskId,
    lenient::{none_if_empty, null_default},
};

/// A webhook: the URL and credentials for updates of a task. Also the request of
/// `CreateTaskPushNotificationConfig`.
#[derive(Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct TaskPushNotificationConfig {
    /// The tenant for routing; copied from the interface.
    #[serde(deserialize_with = "none_if_empty", skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// Identifies the configuration; the server creates an id if it is absent.
    #[serde(deserialize_with = "none_if_empty", skip_serializing_if = "Option::is_none")]
    pub id: Option<PushConfigId>,
    /// The task; absent when sent along with a message.
    #[serde(alias = "task_id", deserialize_with = "none_if_empty", skip_serializing_if = "Option::is_none")]
    pub task_id: Option<TaskId>,
    /// The URL of the webhook.
    #[serde(deserialize_with = "null_default")]
    pub url: String,
    /// A secret of the receiver, sent back with each notification.
    #[serde(deserialize_with = "none_if_empty", skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// The credentials that the agent presents to the webhook.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub authentication: Option<AuthenticationInfo>,
}

impl fmt::Debug for TaskPushNotificationConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The token is secret, and logs may print this type.
        f.debug_struct("TaskPushNotificationConfig")
            .field("id", &self.id)
            .field("task_id", &self.task_id)
            .field("url", &self.url)
            .field("token", &self.token.as_ref().map(|_| "…"))
            .field("authentication", &self.authentication)
            .finish_non_exhaustive()
    }
}

/// The credentials that an agent presents to a webhook.
#[derive(Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct AuthenticationInfo {
    /// An HTTP authentication scheme, such as `Bearer`.
    #[serde(deserialize_with = "null_default")]
    pub scheme: String,
    /// The secret, in the form of the scheme.
    #[serde(deserialize_with = "none_if_empty", skip_serializing_if = "Option::is_none")]
    pub credentials: Option<String>,
}

impl fmt::Debug for AuthenticationInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AuthenticationInfo")
            .field("scheme", &self.scheme)
            .field("credentials", &self.credentials.as_ref().map(|_| "…"))
            .finish()
    }
}
