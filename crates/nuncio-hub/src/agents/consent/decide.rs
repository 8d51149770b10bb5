//! Decisions about callers, and their consequences for held messages.

use std::{fmt, time::Duration};

use nuncio_protocol::{Error, ErrorKind, TaskId};
use nuncio_server::{
    HeldMessage, Runtime,
    store::{Expect, RecordChange, StoreError},
};

use super::{
    Consents, KIND, Stored,
    executor::DECLINED,
    record::{CallerAccess, CallerKey, HeldTurn, Standing},
};

/// Attempts to change a record that other hubs change at the same time.
const MAX_ATTEMPTS: usize = 16;

/// The pause after such an attempt.
const RETRY_INTERVAL: Duration = Duration::from_millis(20);

/// A decision about a caller.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Decision {
    /// Runs what is held, and everything that comes.
    Accept,
    /// Rejects what is held.
    Decline,
    /// Rejects what is held, and everything that comes.
    Block,
    /// Takes back an earlier decision: the next message is a new request.
    Revoke,
}

/// A decision that was not made.
#[derive(Debug)]
pub(crate) enum DecisionError {
    /// The caller has no standing that this decision could change.
    NothingToDecide,
    /// The store is unavailable, or other hubs change the record all the time.
    Failed(Error),
}

impl<E: Into<Error>> From<E> for DecisionError {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Accept => "accept",
            Self::Decline => "decline",
            Self::Block => "block",
            Self::Revoke => "revoke",
        })
    }
}

impl Decision {
    /// The standing after the decision; `None` if it cannot be made.
    fn after(self, before: Option<Standing>) -> Option<Standing> {
        match (self, before) {
            (Self::Accept, _) => Some(Standing::Accepted),
            (Self::Block, _) => Some(Standing::Blocked),
            (Self::Decline, Some(Standing::Waiting))
            | (Self::Revoke, Some(Standing::Accepted | Standing::Blocked)) => Some(Standing::Declined),
            (Self::Decline | Self::Revoke, _) => None,
        }
    }
}

impl Consents {
    /// Makes a decision, and carries it out if the runtime of the agent is here. What is left, the sweeper does.
    ///
    /// # Errors
    /// See [`DecisionError`].
    pub(crate) async fn decide(
        &self,
        runtime: Option<&Runtime>,
        caller: &CallerKey,
        decision: Decision,
    ) -> Result<CallerAccess, DecisionError> {
        let _alone = self.lock(caller).await;
        for _ in 0..MAX_ATTEMPTS {
            let found = self.find(caller).await?;
            let before = found.as_ref().map(|found| found.access.standing);
            let standing = decision.after(before).ok_or(DecisionError::NothingToDecide)?;
            let (held, expect) = match found {
                Some(found) => (found.access.held, Expect::Version(found.version)),
                None => (Vec::new(), Expect::Absent),
            };
            let access = CallerAccess::new(caller.clone(), standing, held);
            if !self.write(&access, expect).await? {
                tokio::time::sleep(RETRY_INTERVAL).await;
                continue;
            }
            tracing::info!(agent = &*caller.agent, %decision, held = access.held.len(), "a caller was decided on");
            if let Some(runtime) = runtime
                && let Err(error) = self.carry_out(runtime, caller).await
            {
                tracing::warn!(agent = &*caller.agent, %error, "held messages are left for the next round");
            }
            return Ok(access);
        }
        Err(Error::from(ErrorKind::Unavailable).into())
    }

    /// Runs or rejects the held messages of a caller that was decided on. Harmless to repeat.
    pub(super) async fn carry_out(
        &self,
        runtime: &Runtime,
        caller: &CallerKey,
    ) -> nuncio_protocol::Result<()> {
        let mut attempts = 0;
        while let Some(stored) = self.find(caller).await? {
            let Some(first) = stored.access.held.first() else { break };
            let (task, standing) = (first.task.clone(), stored.access.standing);
            let done = match standing {
                Standing::Waiting => break,
                Standing::Accepted => run(runtime, stored, &task).await,
                Standing::Declined | Standing::Blocked => reject(runtime, stored, &task).await,
            };
            match done {
                Ok(true) => attempts = 0,
                // Canceled, erased, or ended in another way.
                Ok(false) => self.forget_task(caller, &task).await?,
                Err(error) => match error.kind() {
                    ErrorKind::TaskNotFound | ErrorKind::UnsupportedOperation => {
                        self.forget_task(caller, &task).await?;
                    }
                    ErrorKind::Unavailable if attempts < MAX_ATTEMPTS => {
                        attempts += 1;
                        tokio::time::sleep(RETRY_INTERVAL).await;
                    }
                    _ => return Err(error),
                },
            }
        }
        Ok(())
    }

    /// Takes the held messages of a task out of the record. A request without messages is no request.
    pub(super) async fn forget_task(&self, caller: &CallerKey, task: &TaskId) -> nuncio_protocol::Result<()> {
        for _ in 0..MAX_ATTEMPTS {
            let Some(Stored { access, version }) = self.find(caller).await? else { return Ok(()) };
            let (of_task, mut rest) = access.split(task);
            if of_task.is_empty() {
                return Ok(());
            }
            if rest.held.is_empty() && rest.standing == Standing::Waiting {
                rest.standing = Standing::Declined;
            }
            if self.write(&rest, Expect::Version(version)).await? {
                return Ok(());
            }
            tokio::time::sleep(RETRY_INTERVAL).await;
        }
        Err(ErrorKind::Unavailable.into())
    }

    /// Writes a record; false if it is not of the expected version.
    pub(super) async fn write(&self, access: &CallerAccess, expect: Expect) -> nuncio_protocol::Result<bool> {
        let outcomes = self.store.put_records(vec![access.put(expect)?]).await?;
        Ok(outcomes.iter().all(Result::is_ok))
    }

    /// Deletes a record of this version; false if it has another one.
    pub(super) async fn delete(&self, caller: &CallerKey, version: u64) -> Result<bool, StoreError> {
        let deleted = self.store.delete_record(KIND, &caller.key(), Expect::Version(version)).await?;
        Ok(deleted.is_ok())
    }
}

/// Runs the held messages of a task, each in one transaction with its removal from the record.
async fn run(runtime: &Runtime, stored: Stored, task: &TaskId) -> nuncio_protocol::Result<bool> {
    let Stored { access, mut version } = stored;
    let (mut messages, mut left) = (Vec::new(), access.clone());
    for held in access.held.iter().filter(|held| held.task == *task) {
        let at = left.held.iter().position(|other| other == held);
        at.map(|at| left.held.remove(at));
        let records = vec![RecordChange::Put(left.put(Expect::Version(version))?)];
        messages.push(HeldMessage { held: held.turn()?, records });
        version += 1;
    }
    runtime.run_held(&scope(&access, task), task, messages).await
}

/// Rejects a task, in one transaction with the removal of its messages.
async fn reject(runtime: &Runtime, stored: Stored, task: &TaskId) -> nuncio_protocol::Result<bool> {
    let Stored { access, version } = stored;
    let out = runtime.write_to(&scope(&access, task), task).await?;
    let (_, rest) = access.split(task);
    out.put_record(rest.put(Expect::Version(version))?)?;
    out.rejected(DECLINED).await?;
    out.flush().await?;
    Ok(true)
}

fn scope(access: &CallerAccess, task: &TaskId) -> std::sync::Arc<nuncio_server::store::Scope> {
    let of_task = access.held.iter().find(|held| held.task == *task);
    of_task.map(|held: &HeldTurn| held.scope(&access.caller)).unwrap_or_default()
}
