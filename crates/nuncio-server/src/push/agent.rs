//! The webhooks of one agent, as its runtime sees them.

use std::{fmt, sync::Arc};

use nuncio_protocol::{CallContext, Error, Event, Result, TaskId, TaskPushNotificationConfig};

use super::{Push, config, payload::Dialect, request::Sign};
use crate::store::Webhook;

/// What an agent's receivers get.
#[derive(Clone, Default)]
#[non_exhaustive]
pub struct PushOptions {
    /// Artifacts are sent piece by piece, as they are made; else once, when they are complete.
    pub chunks: bool,
    /// A new or replaced artifact is sent also if it is not marked as complete: many remote agents never set
    /// `lastChunk`. Of an artifact that comes in pieces the first piece is then sent as well.
    pub unmarked_artifacts: bool,
    /// What receivers that registered in v0.3 get.
    pub dialect: Dialect,
    /// Makes the `webhook-signature` of a notification.
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

/// An agent at the engine.
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

    /// A configuration of a caller, as it is to be kept and as it is told. `field` is where in the request it
    /// stands.
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

    /// A configuration as it is told afterwards: without the credentials.
    pub(crate) fn open(&self, task_id: &TaskId, webhook: &Webhook) -> Result<TaskPushNotificationConfig> {
        let config = config::open(&self.push.engine.vault, task_id, webhook);
        let mut config =
            config.ok_or_else(|| Error::internal("a webhook was sealed with another key"))?.given;
        if let Some(authentication) = &mut config.authentication {
            authentication.credentials = None;
        }
        Ok(config)
    }

    /// True if webhooks are owed this.
    pub(crate) fn tells(&self, event: &Event) -> bool {
        match event {
            Event::Task(_) | Event::StatusUpdate(_) => true,
            Event::ArtifactUpdate(update) => {
                let is_unmarked = !update.append && self.options.unmarked_artifacts;
                update.last_chunk || self.options.chunks || is_unmarked
            }
            // What a caller says to a task is no event on the wire.
            Event::Message(_) => false,
        }
    }

    /// Something may be due.
    pub(crate) fn wake(&self) {
        self.push.wake();
    }

    /// REQ-159: what is on its way to this webhook is stopped when this is done.
    pub(crate) async fn forget(&self, uid: &Arc<str>) {
        self.push.forget(uid).await;
    }
}
