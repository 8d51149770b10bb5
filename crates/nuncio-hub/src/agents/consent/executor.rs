//! The gate before an agent: runs the messages of accepted callers, and holds or rejects those of others.

use std::sync::Arc;

use async_trait::async_trait;
use nuncio_protocol::{AgentCard, CallContext, Error, ErrorKind, Result, TaskId};
use nuncio_server::{Emitter, ExecContext, Executor, store::Expect};

use super::{
    Consents, MAX_HELD_BYTES, MAX_HELD_MESSAGES, Stored,
    record::{CallerAccess, CallerKey, HeldTurn, Standing},
};
use crate::trail::{Row, What};

/// The reason of a rejected task. It is the same for a decline, a block and an expired request.
pub(super) const DECLINED: &str = "declined";

/// An agent that gets only the messages of accepted callers.
///
/// Every message is judged, also one that a crash has interrupted: a caller that is blocked meanwhile is rejected.
pub(crate) struct AskFirst {
    agent: Arc<str>,
    consents: Arc<Consents>,
    inner: Arc<dyn Executor>,
}

/// The treatment of a message.
enum Verdict {
    Run,
    Reject,
    /// Add the message to the request, if there is one.
    Hold(Option<Stored>),
}

impl AskFirst {
    pub(crate) fn new(agent: &str, consents: &Arc<Consents>, inner: Arc<dyn Executor>) -> Self {
        Self { agent: agent.into(), consents: Arc::clone(consents), inner }
    }

    async fn judge(&self, caller: &CallerKey) -> Result<Verdict> {
        let Some(stored) = self.consents.find(caller).await? else { return Ok(Verdict::Hold(None)) };
        Ok(match stored.access.standing {
            Standing::Accepted => Verdict::Run,
            Standing::Blocked => Verdict::Reject,
            Standing::Waiting => Verdict::Hold(Some(stored)),
            Standing::Declined if stored.access.held.is_empty() => Verdict::Hold(Some(stored)),
            // The decision is being carried out.
            Standing::Declined => Verdict::Reject,
        })
    }

    /// Holds the message back, unless a decision was made meanwhile.
    async fn hold(&self, cx: &ExecContext, out: &Emitter, caller: CallerKey) -> Result<Verdict> {
        let _alone = self.consents.lock(&caller).await;
        let found = match self.judge(&caller).await? {
            Verdict::Hold(found) => found,
            decided @ (Verdict::Run | Verdict::Reject) => return Ok(decided),
        };
        let expect = found.as_ref().map_or(Expect::Absent, |found| Expect::Version(found.version));
        let waiting = found.map(|found| found.access).filter(|access| access.standing == Standing::Waiting);
        let is_new = waiting.is_none();
        let mut access =
            waiting.unwrap_or_else(|| CallerAccess::new(caller.clone(), Standing::Waiting, Vec::new()));
        if let Err(refused) = self.add(cx, &mut access) {
            turn_away(cx, out, refused).await?;
            return Ok(Verdict::Hold(None));
        }
        out.put_record(access.put(expect)?)?;
        out.auth_required(format!("waits for the consent of {}'s owner", self.agent)).await?;
        // If another hub has changed the record, the caller is asked to try again.
        out.flush().await?;
        if is_new {
            self.consents.trail.note(Row {
                agent: Some(caller.agent.to_string()),
                principal: Some(caller.principal.to_string()),
                ..Row::of(What::AccessRequested)
            });
        }
        Ok(Verdict::Hold(None))
    }

    fn add(&self, cx: &ExecContext, access: &mut CallerAccess) -> Result<()> {
        if access.held.len() >= MAX_HELD_MESSAGES {
            let why = format!(
                "{MAX_HELD_MESSAGES} of your messages wait for the consent of {}'s owner already, and this one is not \
                 kept; send it again when they are answered",
                self.agent
            );
            return Err(Error::new(ErrorKind::ResourceExhausted, why));
        }
        let turn = cx.hold()?;
        if turn.len() > MAX_HELD_BYTES {
            let why = format!(
                "the message waits for the consent of {}'s owner, and its metadata and configuration may then have \
                 {MAX_HELD_BYTES} bytes; send less",
                self.agent
            );
            return Err(Error::new(ErrorKind::PayloadTooLarge, why));
        }
        access.held.push(HeldTurn::new(&cx.task_id, &cx.call, &turn));
        Ok(())
    }

    /// Forgets the held messages of a task that is canceled.
    async fn forget(&self, caller: &CallerKey, task: &TaskId) -> Result<()> {
        let _alone = self.consents.lock(caller).await;
        self.consents.forget_task(caller, task).await
    }
}

/// Tells the caller that its message is not accepted. Without a task the message is refused. A task keeps the messages
/// that it has, and stays open for the next one.
async fn turn_away(cx: &ExecContext, out: &Emitter, error: Error) -> Result<()> {
    let why = error.message().to_owned();
    if cx.task.is_some() {
        return out.auth_required(why).await.map(drop);
    }
    match out.refuse(error) {
        Ok(()) => Ok(()),
        // The caller did not wait, so there is a task already.
        Err(_) => out.rejected(why).await.map(drop),
    }
}

#[async_trait]
impl Executor for AskFirst {
    async fn execute(&self, cx: ExecContext, out: Emitter) -> Result<()> {
        let Some(caller) = CallerKey::of_call(&self.agent, &cx.call) else {
            let why =
                "this agent asks for consent, so its callers need credentials; nuncio key create makes a key";
            return turn_away(&cx, &out, Error::new(ErrorKind::Unauthenticated, why)).await;
        };
        let mut verdict = self.judge(&caller).await;
        if let Ok(Verdict::Hold(_)) = verdict {
            verdict = Box::pin(self.hold(&cx, &out, caller)).await;
        }
        match verdict {
            Ok(Verdict::Run) => self.inner.execute(cx, out).await,
            Ok(Verdict::Reject) => out.rejected(DECLINED).await.map(drop),
            Ok(Verdict::Hold(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    async fn cancel(&self, cx: ExecContext) -> Result<()> {
        let caller = CallerKey::of_call(&self.agent, &cx.call);
        if let Some(caller) = caller
            && let Err(error) = self.forget(&caller, &cx.task_id).await
        {
            // The record keeps them until the decision, which finds that the task has ended.
            tracing::warn!(agent = &*self.agent, task = %cx.task_id, %error, "held messages of a canceled task are kept");
        }
        self.inner.cancel(cx).await
    }

    async fn extended_card(&self, cx: &CallContext) -> Result<Option<AgentCard>> {
        self.inner.extended_card(cx).await
    }

    fn is_idempotent(&self) -> bool {
        self.inner.is_idempotent()
    }

    fn always_leaves_task(&self) -> bool {
        self.inner.always_leaves_task()
    }
}
