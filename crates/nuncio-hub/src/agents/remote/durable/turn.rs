//! One message to a remote agent: it goes out once, and what becomes of it is emitted as our task.
//!
//! | turn | what is done |
//! |---|---|
//! | a message | sent, by a stream if the agent streams, else so that it answers at once |
//! | taken up after a crash, the agent's task is known | followed, not sent |
//! | taken up after a crash, it is not | failed, unless a repeat does no harm |
//! | the agent waits for an authorisation | followed: it may come by another way; a message ends the turn |
//! | canceled before it was sent | not sent |
//! | canceled | the agent is asked to cancel, now or later (`pending_cancels`) |
//!
//! A cancel that comes too late, because the agent's task has ended meanwhile, shows that end, provided that all the
//! agent made had been told before; otherwise the task is canceled, as its caller wanted.

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
    pending_cancels::{CANCEL_TIMEOUT, is_unheard},
    send_once::{self, Claim},
    task_owners,
};
use crate::agents::{
    delegation::{Delegate, Delegation, LateAnswer, Pace, Passage, RemoteIds, TaskIds, refuse},
    remote::link::{
        Connected, Link,
        refusal::{Fate, fate, shown, words},
    },
};

/// How often a message is repeated that may be; the pauses begin as those between two polls of a task.
const MAX_REPEATS: u32 = 4;

/// How long a cancel waits to learn which task there is to cancel, of the time that there is for all.
const LEARN_TIMEOUT: Duration = Duration::from_secs(2);

/// About the bytes of a memo.
const MEMO_BYTES: usize = 256;

/// The agent's task, as it is kept with ours.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Memo {
    pub(super) task: TaskId,
    pub(super) context: ContextId,
    /// The address at which it was begun; for whoever looks into it.
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

/// A remote agent that one message is delegated to.
struct RemoteAgent<'a> {
    durable: &'a Arc<Durable>,
    link: &'a Link,
    connected: &'a Connected,
    cx: &'a ExecContext,
    out: &'a Emitter,
}

impl RemoteAgent<'_> {
    /// Takes a task of the agent's for the caller. Nothing is emitted of one that is another caller's.
    async fn claim_task(&self, task: &TaskId) -> Result<()> {
        match self.durable.task_owners.claim(task, &self.cx.call.caller).await {
            task_owners::Claim::Granted(None) => return Ok(()),
            task_owners::Claim::Granted(Some(record)) => return self.out.put_record(record),
            task_owners::Claim::Foreign => {}
        }
        let agent = &*self.durable.name;
        tracing::error!(agent, task = %self.cx.task_id, theirs = %task, "the agent gives one task to several callers");
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

    /// Claims the task for the caller, and keeps its name with our task.
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

    /// Keeps the agent's name of the conversation, if it is not ours.
    async fn bind_context(&self, context: &ContextId) {
        let (caller, ours) = (&self.cx.call.caller, &self.cx.context_id);
        let contexts = &self.durable.contexts;
        if contexts.is_taken(caller, ours, context) {
            return;
        }
        // Boxed: most agents take our names.
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

/// One message, and what becomes of it.
pub(super) struct RemoteTurn<'a> {
    delegation: Delegation<'a, RemoteAgent<'a>>,
    cx: &'a ExecContext,
    out: &'a Emitter,
}

impl<'a> RemoteTurn<'a> {
    pub(super) fn new(
        durable: &'a Arc<Durable>,
        link: &'a Link,
        connected: &'a Connected,
        cx: &'a ExecContext,
        out: &'a Emitter,
        passage: Passage<'a>,
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
        Self { delegation: Delegation::new(passage, cx, out, pace, agent), cx, out }
    }

    fn durable(&self) -> &'a Arc<Durable> {
        self.delegation.to.durable
    }

    fn link(&self) -> &'a Link {
        self.delegation.to.link
    }

    /// Does the turn, unless it is stopped.
    pub(super) async fn run(&self) -> Result<()> {
        if self.cx.cancellation.is_cancelled() && !self.cx.again && self.out.is_canceled() {
            return Box::pin(self.cancel(Instant::now() + CANCEL_TIMEOUT)).await;
        }
        let mut work = std::pin::pin!(self.work());
        tokio::select! {
            biased;
            done = &mut work => return done,
            () = self.cx.cancellation.cancelled() => {}
            () = self.until_authorized() => return Ok(()),
        }
        if !self.out.is_canceled() {
            // The server ends. The agent goes on, and so will we, if there is a store to take it up from.
            return Ok(());
        }
        let until = Instant::now() + CANCEL_TIMEOUT;
        if self.delegation.remote().is_none() {
            // The message is on its way. What it begins can be canceled once it has a name.
            let _ = timeout(LEARN_TIMEOUT, work).await;
        }
        Box::pin(self.cancel(until)).await
    }

    /// Done when the task was authorised by a message, or not at all: the question stays asked, and the next turn goes
    /// on with it.
    async fn until_authorized(&self) {
        self.out.asked().await;
        // Boxed: few agents ask.
        Box::pin(async {
            tokio::select! {
                () = self.out.answered() => {}
                () = self.until_auth_timeout() => {}
            }
        })
        .await;
    }

    /// Done when nobody has authorised the task for as long as we are patient.
    async fn until_auth_timeout(&self) {
        let mut before = None;
        loop {
            tokio::time::sleep(self.link().settings.give_up).await;
            let now = self.out.look(|task| task.map(|task| task.status.clone()));
            let now = now.filter(|status| status.state == TaskState::AuthRequired);
            if now.is_some() && now == before {
                return;
            }
            before = now;
        }
    }

    async fn work(&self) -> Result<()> {
        let before = Memo::read(self.cx.memo.as_deref());
        if !self.cx.again {
            return self.send(before).await;
        }
        match before {
            Some(memo) => {
                self.delegation.to.claim_task(&memo.task).await?;
                self.delegation.resume(memo.ids());
                self.delegation.follow(None, None).await
            }
            None if self.may_repeat() => self.send(None).await,
            None => Err(send_once::was_left()),
        }
    }

    fn may_repeat(&self) -> bool {
        self.link().settings.idempotent || self.delegation.to.connected.knows_repeats()
    }

    /// Sends the message and follows what becomes of it.
    async fn send(&self, before: Option<Memo>) -> Result<()> {
        let permit = match self.link().admit(&self.cx.call.caller).await {
            Ok(permit) => permit,
            Err(error) => return Box::pin(refuse(self.cx, self.out, error)).await,
        };
        let claim = match self.claim().await {
            Ok(None) => return self.send_under(permit, before).await,
            Ok(Some(claim)) => claim,
            // Nothing was sent now, and it is not settled what becomes of it: no task begins that says so.
            Err(error) if error.kind() == ErrorKind::Unavailable => {
                return Box::pin(refuse(self.cx, self.out, error)).await;
            }
            Err(error) => return Err(error),
        };
        let done = self.send_under(permit, before).await;
        // Of an error nobody knows in what state the agent is; that it was asked is to be known for as long.
        if done.is_ok() && self.out.flush().await.is_ok() {
            claim.give_back().await;
        }
        done
    }

    /// Makes sure that the message goes out once where nothing else would: it has a name by which the caller may
    /// repeat it, the agent would not know the repeat, and we have no task yet that would tell.
    async fn claim(&self) -> Result<Option<Claim<'_>>> {
        let begins = || self.out.look(|task| task.is_none());
        let name = self.cx.name.as_ref().filter(|_| begins() && !self.may_repeat());
        let at_most = self.link().settings.send_timeout.saturating_mul(2);
        let claim = name.map(|name| Claim::take(&*self.durable().store, &self.durable().name, name, at_most));
        OptionFuture::from(claim).await.transpose()
    }

    async fn send_under(&self, permit: Option<CallerPermit>, before: Option<Memo>) -> Result<()> {
        let ids = self.remote_ids(before.as_ref()).await;
        let (mut repeats, mut may_have_it) = (0, false);
        let error = loop {
            let error = match self.delegation.send(&ids).await {
                Ok(answer) => return self.delegation.follow_answer(answer, permit).await,
                Err(error) => error,
            };
            tracing::info!(task = %self.cx.task_id, %error, "the agent did not take a message");
            // That nobody was reached this time says nothing of the time before.
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
            return Box::pin(refuse(self.cx, self.out, told)).await;
        }
        let why =
            format!("{}; whether it took the message is not known, and it is not sent again", words(&told));
        Err(Error::new(told.kind(), why).with_source(error))
    }

    /// True if the agent sees the caller's credentials, and not only the hub's.
    fn as_caller(&self) -> bool {
        self.cx.call.forwardable_headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("authorization"))
    }

    /// The message's subjects in the agent's names.
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

    /// The agent's names of the tasks that the message refers to.
    async fn references(&self) -> HashMap<TaskId, TaskId> {
        let (cx, durable) = (self.cx, self.durable());
        let caller = &cx.call.caller;
        let tenant = caller.tenant().cloned().or_else(|| cx.call.tenant.as_deref().map(Into::into));
        let scope = Scope { agent: Arc::clone(&durable.name), tenant, owner: caller.principal().cloned() };
        let mut names = HashMap::new();
        for task in &cx.references {
            match durable.store.task(&scope, &task.id).await {
                Ok(stored) => {
                    let memo = stored.and_then(|stored| Memo::read(stored.memo.as_deref()));
                    names.extend(memo.map(|memo| (task.id.clone(), memo.task)));
                }
                Err(error) => tracing::warn!(task = %task.id, %error, "a referred task cannot be read"),
            }
        }
        names
    }

    /// Asks the agent to cancel, by then. While a task is being stopped only its end can be told.
    async fn cancel(&self, until: Instant) -> Result<()> {
        // The answer to a question is to the task that asked.
        let known = || Memo::read(self.cx.memo.as_deref()).map(Memo::ids);
        let Some(remote) = self.delegation.remote().or_else(known) else { return Ok(()) };
        let left = until.saturating_duration_since(Instant::now());
        let late = |_| Error::from(ErrorKind::DeadlineExceeded);
        match timeout(left, self.delegation.cancel(&remote, left)).await.map_err(late).flatten() {
            Ok(task) => self.delegation.emit_end(task).await,
            Err(error) => {
                tracing::info!(task = %self.cx.task_id, %error, "the agent did not cancel");
                if is_unheard(&error) {
                    self.durable().pending_cancels.note(&remote.task).await;
                }
                Ok(())
            }
        }
    }
}
