//! The record of one caller at one agent.

use std::sync::Arc;

use aws_lc_rs::digest;
use base64::{
    Engine as _,
    engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD},
};
use bytes::Bytes;
use nuncio_protocol::{CallContext, TaskId, Timestamp};
use nuncio_server::store::{Expect, PutRecord, Scope, StoreError};
use serde::{Deserialize, Serialize};

use super::KIND;
use crate::clock;

/// An authenticated caller of an agent.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub(crate) struct CallerKey {
    pub(crate) agent: Arc<str>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) tenant: Option<Arc<str>>,
    pub(crate) principal: Arc<str>,
}

/// The standing of a caller with an agent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Standing {
    /// A request waits for a decision.
    Waiting,
    /// The messages of the caller are executed.
    Accepted,
    /// Held messages are rejected; the next message is a new request.
    Declined,
    /// All messages are rejected.
    Blocked,
}

/// The state of one caller at one agent.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct CallerAccess {
    #[serde(flatten)]
    pub(crate) caller: CallerKey,
    pub(crate) standing: Standing,
    /// The time of the request, or of the decision.
    pub(crate) since: Timestamp,
    /// Messages that wait for the decision or for its consequence, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) held: Vec<HeldTurn>,
}

/// A message that is held back.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct HeldTurn {
    pub(crate) task: TaskId,
    /// The tenant of the task's scope, which a request may name without a credential for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tenant: Option<Arc<str>>,
    /// The held bytes, in base64.
    turn: String,
}

/// The prefix of the keys of an agent's callers.
pub(super) fn prefix(agent: &str) -> String {
    format!("{agent}\0")
}

impl CallerKey {
    /// The caller of a call; `None` if it is anonymous.
    pub(super) fn of_call(agent: &Arc<str>, call: &CallContext) -> Option<Self> {
        let principal = Arc::clone(call.caller.principal()?);
        let tenant = call.caller.tenant().map(|tenant| Arc::from(&**tenant));
        Some(Self { agent: Arc::clone(agent), tenant, principal })
    }

    /// The key of the record. It has a digest, because principals are of any length and content.
    pub(crate) fn key(&self) -> String {
        // Serializing strings cannot fail.
        let caller = serde_json::to_vec(&(&self.tenant, &self.principal)).unwrap_or_default();
        let digest = digest::digest(&digest::SHA256, &caller);
        prefix(&self.agent) + &URL_SAFE_NO_PAD.encode(digest)
    }
}

impl CallerAccess {
    /// A caller whose standing changes now.
    pub(super) fn new(caller: CallerKey, standing: Standing, held: Vec<HeldTurn>) -> Self {
        Self { caller, standing, since: clock::now(), held }
    }

    pub(super) fn read(value: &[u8]) -> Result<Self, StoreError> {
        serde_json::from_slice(value).map_err(StoreError::broken)
    }

    /// The change that writes this in place of the expected version.
    pub(super) fn put(&self, expect: Expect) -> nuncio_protocol::Result<PutRecord> {
        let value = serde_json::to_vec(self).map_err(nuncio_protocol::Error::internal)?;
        Ok(PutRecord {
            kind: KIND.into(),
            key: self.caller.key().into(),
            value: value.into(),
            at: clock::now(),
            expect,
        })
    }

    /// The same without the held messages of a task, which are returned.
    pub(super) fn split(mut self, task: &TaskId) -> (Vec<HeldTurn>, Self) {
        let (of_task, others) = self.held.into_iter().partition(|held| held.task == *task);
        self.held = others;
        (of_task, self)
    }
}

impl HeldTurn {
    /// The message that an execution holds back.
    pub(super) fn new(task: &TaskId, call: &CallContext, turn: &Bytes) -> Self {
        let tenant = call.caller.tenant().map(|tenant| &**tenant).or(call.tenant.as_deref());
        Self { task: task.clone(), tenant: tenant.map(Into::into), turn: STANDARD.encode(turn) }
    }

    pub(super) fn turn(&self) -> Result<Bytes, StoreError> {
        STANDARD.decode(&self.turn).map(Into::into).map_err(StoreError::broken)
    }

    /// The scope of the task.
    pub(super) fn scope(&self, caller: &CallerKey) -> Arc<Scope> {
        Arc::new(Scope {
            agent: Arc::clone(&caller.agent),
            tenant: self.tenant.clone(),
            owner: Some(Arc::clone(&caller.principal)),
        })
    }
}
