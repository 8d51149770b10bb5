//! Replaces `push` without the feature of that name: no agent has webhooks, and no HTTP client is compiled.

use std::sync::Arc;

use nuncio_protocol::{CallContext, Event, Result, TaskId, TaskPushNotificationConfig};

use crate::store::Webhook;

/// Has no values: no agent has webhooks.
pub(crate) enum AgentPush {}

impl AgentPush {
    pub(crate) fn seal(
        &self,
        _: &CallContext,
        _: &TaskId,
        _: TaskPushNotificationConfig,
        _: &str,
    ) -> Result<(Webhook, TaskPushNotificationConfig)> {
        match *self {}
    }

    pub(crate) fn open(&self, _: &TaskId, _: &Webhook) -> Result<TaskPushNotificationConfig> {
        match *self {}
    }

    pub(crate) fn tells(&self, _: &Event) -> bool {
        match *self {}
    }

    pub(crate) fn wake(&self) {
        match *self {}
    }

    pub(crate) async fn forget(&self, _: &Arc<str>) {
        match *self {}
    }
}
