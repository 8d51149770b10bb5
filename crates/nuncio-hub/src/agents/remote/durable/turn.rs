//! One message to a remote agent: it is sent once, and its result is emitted as our task.
//!
//! | turn | action |
//! |---|---|
//! | a message | sent: as a stream if the agent streams, else as a call that returns immediately |
//! | resumed after a crash, remote task known | followed, not sent |
//! | resumed after a crash, remote task unknown | failed, unless a repeat is harmless |
//! | resumed after a crash, the message waits for the agent (`outage`) | sent |
//! | certainly not sent | refused by the executor, or it waits |
//! | the agent requires an authorisation | followed, as it may be given outside of A2A; a message ends the turn |
//! | canceled before it was sent | not sent |
//! | canceled | the agent is asked to cancel, now or later (`pending_cancels`) |
//!
//! If the remote task has ended before the cancel, our task gets that end, provided that all artifacts were
//! emitted before. Otherwise our task is canceled, as the caller requested.

use std::{collections::HashMap, sync::Arc, time::Duration};

use futures_util::future::{FutureExt as _, OptionFuture};
use nuncio_client::was_not_sent;
use nuncio_protocol::{
    A2aService, CallContext, ContextId, Error, ErrorKind, Result, TaskId, TaskState, retry::Backoff,
};
use nuncio_server::{CallerPermit, Emitter, ExecContext, store::Scope};
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, timeout};

use super::{
    Durable,
    outage::{Outage, remote_memo},
    pending_cancels::{CANCEL_TIMEOUT, is_unheard},
    send_once::{self, StoredClaim},
    task_owners,
};
use crate::agents::{
    delegation::{Delegate, Delegation, LateAnswer, Pace, Passage, RemoteIds, TaskIds, refuse},
    remote::link::{
        Connected, Link,
        refusal::{Fate, fate, shown, words},
    },
};

/// Maximum number of repeats of an idempotent message. The first pause is the poll interval.
const MAX_REPEATS: u32 = 4;

/// The part of [`CANCEL_TIMEOUT`] for which a cancel waits for the id of the remote task.
const LEARN_TIMEOUT: Duration = Duration::from_secs(2);

/// Typical size of a memo, in bytes.
const MEMO_BYTES: usize = 256;

/// The ids of the remote task, stored with our task.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Memo {
    pub(super) task: TaskId,
    pub(super) context: ContextId,
    /// The URL at which the task was begun; for diagnosis only.
    interface: String,
}

impl Memo {
    pub(super) fn read(memo: Option<&[u8]>) -> Option<Self> {
        memo.and_then(|memo| serde_json::from_slice(memo).ok())
    }

    fn ids(self) -> TaskIds {
        TaskIds { task: self.task, context: self.context }
    }
}

/// The remote agent that one message is delegated to.
struct RemoteAgent<'a> {
    durable: &'a Arc<Durable>,
    link: &'a Link,
    connected: &'a Connected,
    cx: &'a ExecContext,
    out: &'a Emitter,
}

impl RemoteAgent<'_> {
    /// Claims a task of the agent for the caller. No event of another caller's task is emitted.
    async fn claim_task(&self, task: &TaskId) -> Result<()> {
        match self.durable.task_owners.claim(task, &self.cx.call.caller).await {
            task_owners::ClaimOutcome::Granted(None) => return Ok(()),
            task_owners::ClaimOutcome::Granted(Some(record)) => return self.out.put_record(record),
            task_owners::ClaimOutcome::Foreign => {}
        }
        let agent = &*self.durable.name;
        tracing::error!(agent, task = %self.cx.task_id, theirs = %task, "the agent answers several callers with the same task");
        let why = "the agent answered with a task that is not the caller's";
        Err(Error::new(ErrorKind::InvalidAgentResponse, why))
    }
}

impl Delegate for RemoteAgent<'_> {
    fn service(&self) -> Arc<dyn A2aService> {
        let service = self.connected.client().service();
        self.durable.telemetry.outbound(&self.durable.name, self.cx.call.trace.as_ref(), service)
    }

    fn context(&self, call: &CallContext) -> CallContext {
        let client = self.connected.client();
        let declared = |uri: &&String| client.card().extension(uri).is_some();
        CallContext {
            extensions: call.extensions.iter().filter(declared).cloned().collect(),
            headers: call.forwardable_headers.clone(),
            ..client.context()
        }
    }

    fn streams(&self) -> bool {
        self.link.streams(self.connected)
    }

    fn note_no_streams(&self) {
        self.link.note_no_streams();
    }

    fn record_outcome(&self, error: Option<&Error>) {
        self.link.record_outcome(error);
    }

    fn switch_version(&self) -> bool {
        self.connected.switch()
    }

    /// Claims the task for the caller, and stores its ids with our task.
    async fn bind_task(&self, ids: &TaskIds) -> Result<()> {
        self.claim_task(&ids.task).await?;
        let interface = self.connected.client().candidates().first();
        let interface = interface.map(|candidate| candidate.interface.url.clone()).unwrap_or_default();
        let memo = Memo { task: ids.task.clone(), context: ids.context.clone(), interface };
        if self.cx.memo.is_none() || Memo::read(self.cx.memo.as_deref()).as_ref() != Some(&memo) {
            let mut text = Vec::with_capacity(MEMO_BYTES);
            serde_json::to_writer(&mut text, &memo).map_err(Error::internal)?;
            self.out.remember(text)?;
        }
        Ok(())
    }

    /// Stores the agent's context id, if it differs from the derived one.
    async fn bind_context(&self, context: &ContextId) {
        let (caller, ours) = (&self.cx.call.caller, &self.cx.context_id);
        let contexts = &self.durable.contexts;
        if contexts.is_taken(caller, ours, context) {
            return;
        }
        // Boxed to keep this future small: most agents accept derived ids.
        Box::pin(async {
            if contexts.theirs(caller, ours).await != *context {
                contexts.keep(caller, ours, context).await;
            }
        })
        .await;
    }

    fn late_answer(&self) -> Option<LateAnswer> {
        let (durable, caller) = (Arc::clone(self.durable), self.cx.call.caller.clone());
        Some(Box::new(move |task| {
            async move {
                if !durable.task_owners.is_foreign(&task, &caller).await {
                    durable.cancel_or_note(&task).await;
                }
            }
            .boxed()
        }))
    }
}

/// The end of a turn.
pub(super) enum TurnEnd {
    /// Its outcome is emitted.
    Done,
    /// The agent cannot be reached, which proves that it has not received the message.
    NotSent(Error),
}

/// One message and its result.
pub(super) struct RemoteTurn<'a> {
    delegation: Delegation<'a, RemoteAgent<'a>>,
    cx: &'a ExecContext,
    out: &'a Emitter,
    outage: &'a Outage<'a>,
}

impl<'a> RemoteTurn<'a> {
    pub(super) fn new(
        durable: &'a Arc<Durable>,
        link: &'a Link,
        connected: &'a Connected,
        cx: &'a ExecContext,
        out: &'a Emitter,
        passage: &Passage<'a>,
        outage: &'a Outage<'a>,
    ) -> Self {
        let settings = &link.settings;
        let pace = Pace {
            follow: settings.follow,
            send_timeout: settings.send_timeout,
            timeout: settings.timeout,
            poll_interval: settings.poll_every,
            give_up: settings.give_up,
        };
        let agent = RemoteAgent { durable, link, connected, cx, out };
        Self { delegation: Delegation::new(passage.clone(), cx, out, pace, agent), cx, out, outage }
    }

    fn durable(&self) -> &'a Arc<Durable> {
        self.delegation.to.durable
    }

    fn link(&self) -> &'a Link {
        self.delegation.to.link
    }

    /// Runs the turn until it is done or canceled.
    pub(super) async fn run(&self) -> Result<TurnEnd> {
        let waits = !self.cx.resumed || self.outage.waits();
        if self.cx.cancellation.is_cancelled() && waits && self.out.is_canceled() {
            return Box::pin(self.cancel(Instant::now() + CANCEL_TIMEOUT)).await;
        }
        let mut work = std::pin::pin!(self.work());
        tokio::select! {
            biased;
            done = &mut work => return done,
            () = self.cx.cancellation.cancelled() => {}
            () = self.until_authorized() => return Ok(TurnEnd::Done),
        }
        if !self.out.is_canceled() {
            // The hub shuts down. The agent continues, and a durable store lets us resume the task later.
            return Ok(TurnEnd::Done);
        }
        let until = Instant::now() + CANCEL_TIMEOUT;
        if self.delegation.remote().is_none() {
            // The message is being sent. Its task can be canceled once the id is known.
            let _ = timeout(LEARN_TIMEOUT, work).await;
        }
        Box::pin(self.cancel(until)).await
    }

    /// Returns when a message has answered the authorisation request, or after its timeout. The question
    /// stays open, and the next turn continues with it.
    async fn until_authorized(&self) {
        self.out.until_interrupted().await;
        // Boxed to keep this future small: few agents ask.
        Box::pin(async {
            tokio::select! {
                () = self.out.until_follow_up() => {}
                () = self.until_auth_timeout() => {}
            }
        })
        .await;
    }

    /// Returns when the task has waited for an authorisation for the whole `give_up` time.
    async fn until_auth_timeout(&self) {
        let mut before = None;
        loop {
            tokio::time::sleep(self.link().settings.give_up).await;
            let now = self.out.with_task(|task| task.map(|task| task.status.clone()));
            let now = now.filter(|status| status.state == TaskState::AuthRequired);
            if now.is_some() && now == before {
                return;
            }
            before = now;
        }
    }

    async fn work(&self) -> Result<TurnEnd> {
        let before = remote_memo(self.cx.memo.as_deref());
        if !self.cx.resumed || self.outage.waits() {
            return self.send(before).await;
        }
        match before {
            Some(memo) => {
                self.delegation.to.claim_task(&memo.task).await?;
                self.delegation.resume(memo.ids());
                self.delegation.follow(None, None).await.map(|()| TurnEnd::Done)
            }
            None if self.may_repeat() => self.send(None).await,
            None => Err(send_once::was_left()),
        }
    }

    fn may_repeat(&self) -> bool {
        self.link().settings.idempotent || self.delegation.to.connected.knows_repeats()
    }

    /// Sends the message and follows the task.
    async fn send(&self, before: Option<Memo>) -> Result<TurnEnd> {
        let permit = match self.link().admit(&self.cx.call.caller).await {
            Ok(permit) => permit,
            Err(error) if error.kind() == ErrorKind::Unavailable => return Ok(TurnEnd::NotSent(error)),
            Err(error) => return self.refuse(error).await,
        };
        Box::pin(self.outage.end()).await?;
        let claim = match self.claim().await {
            Ok(None) => return self.send_under(permit, before).await,
            Ok(Some(claim)) => claim,
            // Nothing was sent by this call and the outcome is open, so no failed task is created.
            Err(error) if error.kind() == ErrorKind::Unavailable => return self.refuse(error).await,
            Err(error) => return Err(error),
        };
        let done = self.send_under(permit, before).await;
        // After an error the state of the agent is unknown, so the claim stays.
        if done.is_ok() && self.out.flush().await.is_ok() {
            claim.give_back().await;
        }
        done
    }

    /// Refuses the message.
    async fn refuse(&self, error: Error) -> Result<TurnEnd> {
        Box::pin(refuse(self.cx, self.out, error)).await.map(|()| TurnEnd::Done)
    }

    /// Claims the message where nothing else prevents a second send: it has an idempotency key, the agent
    /// does not recognise repeats, and our task is not stored yet.
    async fn claim(&self) -> Result<Option<StoredClaim<'_>>> {
        let begins = || self.out.with_task(|task| task.is_none());
        let name = self.cx.repeat_id.as_ref().filter(|_| begins() && !self.may_repeat());
        let at_most = self.link().settings.send_timeout.saturating_mul(2);
        let claim =
            name.map(|name| StoredClaim::take(&*self.durable().store, &self.durable().name, name, at_most));
        OptionFuture::from(claim).await.transpose()
    }

    async fn send_under(&self, permit: Option<CallerPermit>, before: Option<Memo>) -> Result<TurnEnd> {
        let ids = self.remote_ids(before.as_ref()).await;
        let (mut repeats, mut may_have_it) = (0, false);
        let error = loop {
            let error = match self.delegation.send(&ids).await {
                Ok(answer) => {
                    return self.delegation.follow_answer(answer, permit).await.map(|()| TurnEnd::Done);
                }
                Err(error) => error,
            };
            tracing::info!(task = %self.cx.task_id, %error, "the agent did not accept a message");
            // A failed connection does not prove that an earlier attempt did not arrive.
            may_have_it &= was_not_sent(&error);
            may_have_it |= fate(&error) == Fate::Unknown;
            if !may_have_it || !self.may_repeat() || repeats == MAX_REPEATS {
                break error;
            }
            let pauses = Backoff::doubling(self.link().settings.poll_every, Duration::MAX);
            tokio::time::sleep(pauses.pause(repeats)).await;
            repeats += 1;
        };
        let told = shown(&error, self.as_caller());
        if !may_have_it {
            let not_sent = was_not_sent(&error);
            return if not_sent { Ok(TurnEnd::NotSent(told)) } else { self.refuse(told).await };
        }
        let why =
            format!("{}; whether it received the message is not known; it is not sent again", words(&told));
        Err(Error::new(told.kind(), why).with_source(error))
    }

    /// True if the agent gets the caller's credentials, instead of only the hub's.
    fn as_caller(&self) -> bool {
        self.cx.call.forwardable_headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("authorization"))
    }

    /// The agent's ids for the message: task, context and references.
    async fn remote_ids(&self, before: Option<&Memo>) -> RemoteIds {
        let cx = self.cx;
        let context = match before {
            Some(memo) => Some(memo.context.clone()).filter(|context| !context.is_empty()),
            None => Some(self.durable().contexts.theirs(&cx.call.caller, &cx.context_id).await),
        };
        RemoteIds {
            task_id: before.map(|memo| memo.task.clone()).filter(|task| !task.is_empty()),
            context_id: context,
            references: self.references().await,
        }
    }

    /// The agent's ids of the tasks that the message refers to.
    async fn references(&self) -> HashMap<TaskId, TaskId> {
        let (cx, durable) = (self.cx, self.durable());
        let caller = &cx.call.caller;
        let tenant = caller.tenant().cloned().or_else(|| cx.call.tenant.as_deref().map(Into::into));
        let scope = Scope { agent: Arc::clone(&durable.name), tenant, owner: caller.principal().cloned() };
        let mut names = HashMap::new();
        for task in &cx.references {
            match durable.store.task(&scope, &task.id).await {
                Ok(stored) => {
                    let memo = stored.and_then(|stored| remote_memo(stored.memo.as_deref()));
                    names.extend(memo.map(|memo| (task.id.clone(), memo.task)));
                }
                Err(error) => tracing::warn!(task = %task.id, %error, "a referenced task cannot be read"),
            }
        }
        names
    }

    /// Asks the agent to cancel, until the deadline. While a task is being stopped, only its end can be
    /// emitted.
    async fn cancel(&self, until: Instant) -> Result<TurnEnd> {
        // A follow-up message belongs to the task of the memo.
        let known = || remote_memo(self.cx.memo.as_deref()).map(Memo::ids);
        let Some(remote) = self.delegation.remote().or_else(known) else { return Ok(TurnEnd::Done) };
        let left = until.saturating_duration_since(Instant::now());
        let late = |_| Error::from(ErrorKind::DeadlineExceeded);
        match timeout(left, self.delegation.cancel(&remote, left)).await.map_err(late).flatten() {
            Ok(task) => self.delegation.emit_end(task).await.map(|()| TurnEnd::Done),
            Err(error) => {
                tracing::info!(task = %self.cx.task_id, %error, "the agent did not cancel");
                if is_unheard(&error) {
                    self.durable().pending_cancels.note(&remote.task).await;
                }
                Ok(TurnEnd::Done)
            }
        }
    }
}
