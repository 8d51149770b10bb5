//! The webhooks of one agent, for its runtime.

use std::{fmt, sync::Arc};

use nuncio_protocol::{CallContext, Error, Event, Result, TaskId, TaskPushNotificationConfig};

use super::{Push, config, payload::Dialect, request::Sign};
use crate::store::Webhook;

/// The notification settings of an agent.
#[derive(Clone, Default)]
#[non_exhaustive]
pub struct PushOptions {
    /// Sends artifacts in chunks, as they are emitted; otherwise once, when they are complete.
    pub chunks: bool,
    /// Also sends a new or replaced artifact that is not marked as complete, because many remote agents never
    /// set `lastChunk`. Of an artifact that comes in chunks, the first chunk is then sent as well.
    pub unmarked_artifacts: bool,
    /// The payload format for receivers that registered in v0.3.
    pub dialect: Dialect,
    /// Makes the header `webhook-signature` of a notification.
    pub sign: Option<Sign>,
}

impl fmt::Debug for PushOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { chunks, unmarked_artifacts, dialect, sign } = self;
        let sign = sign.is_some();
        f.debug_struct("PushOptions")
            .field("chunks", chunks)
            .field("unmarked_artifacts", unmarked_artifacts)
            .field("dialect", dialect)
            .field("sign", &sign)
            .finish()
    }
}

/// An agent registered at the engine.
pub(crate) struct AgentPush {
    push: Push,
    options: Arc<PushOptions>,
}

impl AgentPush {
    pub(crate) fn new(push: &Push, agent: &Arc<str>, options: PushOptions) -> Self {
        let options = Arc::new(options);
        push.register(agent, &options);
        Self { push: push.clone(), options }
    }

    /// Seals a caller's config; returns the webhook to store and the config to return to the caller. `field`
    /// is the path of the config in the request, for error messages.
    pub(crate) fn seal(
        &self,
        cx: &CallContext,
        task_id: &TaskId,
        given: TaskPushNotificationConfig,
        field: &str,
    ) -> Result<(Webhook, TaskPushNotificationConfig)> {
        let engine = &self.push.engine;
        config::seal(&engine.vault, &*engine.courier, cx, task_id, given, field)
    }

    /// The config as later calls return it: without the credentials.
    pub(crate) fn open(&self, task_id: &TaskId, webhook: &Webhook) -> Result<TaskPushNotificationConfig> {
        let config = config::open(&self.push.engine.vault, task_id, webhook);
        let mut config =
            config.ok_or_else(|| Error::internal("a webhook was sealed with another key"))?.given;
        if let Some(authentication) = &mut config.authentication {
            authentication.credentials = None;
        }
        Ok(config)
    }

    /// True if webhooks are notified of this event.
    pub(crate) fn tells(&self, event: &Event) -> bool {
        match event {
            Event::Task(_) | Event::StatusUpdate(_) => true,
            Event::ArtifactUpdate(update) => {
                let is_unmarked = !update.append && self.options.unmarked_artifacts;
                update.last_chunk || self.options.chunks || is_unmarked
            }
            // Messages of callers are entries of the log, but no events on the wire.
            Event::Message(_) => false,
        }
    }

    /// Makes the dispatcher look for due deliveries.
    pub(crate) fn wake(&self) {
        self.push.wake();
    }

    /// REQ-159: stops the deliveries of a webhook; when this returns, nothing more is sent.
    pub(crate) async fn forget(&self, uid: &Arc<str>) {
        self.push.forget(uid).await;
    }
}
