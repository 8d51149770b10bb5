//! Turns that outlive the process: stored from their acknowledgement until they are done, so that another
//! server can run them after a crash.

use std::sync::Arc;

use nuncio_protocol::{
    CallContext, Caller, Error, Message, MessageId, Metadata, Result, SendMessageConfiguration, Task, Version,
};
use serde::{Deserialize, Serialize};

use super::{
    Core,
    executor::Execution,
    live::{LiveTask, LiveTaskRef},
    turn::ExecutionInput,
};
use crate::{
    id::new_id,
    store::{IdempotencyKey, Refused, Scope, StoreError, StoredTurn, TurnChange},
};

/// The body of a stored turn: all data that is needed to run it.
#[derive(Serialize, Deserialize)]
pub(super) struct TurnBody {
    /// The caller's message; `None` if it begins the task, because then the task's history has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) message: Option<Arc<Message>>,
    /// The id of a message that is in the task's history already. Without it and `message` the turn has the first one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    recorded: Option<MessageId>,
    #[serde(default)]
    pub(super) configuration: SendMessageConfiguration,
    #[serde(default)]
    pub(super) metadata: Metadata,
    /// The idempotency key and digest of a follow-up, by which a repeat is recognised.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    claim: Option<(Arc<str>, [u8; 32])>,
    /// The id that each repeat of the message has (`repeat_id`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) name: Option<Arc<str>>,
    version: String,
    #[serde(default)]
    extensions: Vec<String>,
    /// True if the tenant of the task's scope comes from the request instead of the caller's credential.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    unproved_tenant: bool,
}

impl TurnBody {
    /// The body of a turn that begins a task.
    pub(super) fn opening(job: &ExecutionInput) -> Self {
        Self::of(job, None, None)
    }

    /// The body of a turn of a message to a task, recorded under this key.
    pub(super) fn follow_up(job: &ExecutionInput, key: Option<&IdempotencyKey>) -> Self {
        Self::of(job, Some(Arc::clone(&job.message)), key)
    }

    fn of(job: &ExecutionInput, message: Option<Arc<Message>>, key: Option<&IdempotencyKey>) -> Self {
        Self {
            message,
            recorded: None,
            configuration: job.configuration.clone(),
            metadata: job.metadata.clone(),
            claim: key.map(|key| (Arc::clone(&key.key), key.digest)),
            name: job.repeat_id.clone(),
            version: job.call.version.as_str().to_owned(),
            extensions: job.call.extensions.clone(),
            unproved_tenant: job.call.caller.tenant().is_none(),
        }
    }

    /// The body of a turn whose message is held back.
    pub(super) fn held(execution: &Execution) -> Self {
        Self {
            message: None,
            recorded: Some(execution.message.message_id.clone()),
            configuration: execution.configuration.clone(),
            metadata: execution.metadata.clone(),
            claim: None,
            name: execution.repeat_id.clone(),
            version: execution.call.version.as_str().to_owned(),
            extensions: execution.call.extensions.clone(),
            unproved_tenant: execution.call.caller.tenant().is_none(),
        }
    }

    /// The message of the turn: its own, or the one that the task's history has.
    pub(super) fn take_message(&mut self, task: &Task) -> Option<Arc<Message>> {
        let own = self.message.take();
        own.or_else(|| match &self.recorded {
            Some(id) => task.history.iter().rfind(|message| message.message_id == *id).cloned(),
            None => task.history.first().cloned(),
        })
    }

    /// The key under which the message is to be recorded.
    pub(super) fn key(&self) -> Option<IdempotencyKey> {
        self.claim.clone().map(|(key, digest)| IdempotencyKey { key, digest })
    }

    pub(super) fn encode(&self, begun: bool) -> Result<StoredTurn> {
        let body = serde_json::to_vec(self).map_err(Error::internal)?.into();
        Ok(StoredTurn { id: new_id(), begun, body })
    }

    pub(super) fn decode(turn: &StoredTurn) -> Result<Self, StoreError> {
        serde_json::from_slice(&turn.body).map_err(StoreError::broken)
    }

    /// True if the log has the message of the turn: it begins the task, or was held back.
    pub(super) fn opens(&self) -> bool {
        self.message.is_none()
    }

    /// The context of the original call, as far as it is stored.
    pub(super) fn call(&self, scope: &Scope) -> CallContext {
        let version = Version::ALL.iter().find(|version| version.as_str() == self.version);
        let mut caller = scope.owner.clone().map_or_else(Caller::anonymous, Caller::authenticated);
        if let Some(tenant) = scope.tenant.as_ref().filter(|_| !self.unproved_tenant) {
            caller = caller.of_tenant(Arc::clone(tenant));
        }
        CallContext {
            extensions: self.extensions.clone(),
            tenant: scope.tenant.as_deref().map(str::to_owned),
            caller,
            ..CallContext::new(version.copied().unwrap_or(Version::V1_0))
        }
    }
}

impl Core {
    /// True if turns are stored, because the store outlives the process.
    pub(super) fn keeps_turns(&self) -> bool {
        self.journal.is_durable()
    }

    /// Changes a stored turn; retries while the store is down.
    pub(super) async fn change_turn(&self, live: &LiveTaskRef, change: TurnChange) -> Result<()> {
        self.update_turn(live, change).await?.map_err(|refused| {
            tracing::warn!(task = %live.id, %refused, "the store refused a turn: another server owns the task");
            live.evict();
            super::unavailable()
        })
    }

    /// As [`Self::change_turn`]; a refusal is the caller's to judge.
    pub(super) async fn update_turn(
        &self,
        live: &LiveTask,
        change: TurnChange,
    ) -> Result<Result<(), Refused>, StoreError> {
        let update = || self.store.update_turn(&live.scope, &live.id, change.clone());
        self.journal.retry_while_down(update).await
    }
}
