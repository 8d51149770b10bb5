//! Messages to a task: each becomes a turn, which starts here, waits here behind others, or is handed in to the
//! server that works on the task (`handed_in`).
//!
//! Another server may be faster at any step. What the store has refused for certain is tried again from the
//! beginning; what it may have stored is looked for in the log. Only an outcome that stays unknown is an error.

use std::{sync::Arc, time::Duration};

use nuncio_protocol::{
    CallContext, Error, ErrorKind, Message, Metadata, Result, SendMessageConfiguration, SendMessageRequest,
    Seq,
};
use tokio::{
    sync::oneshot,
    time::{sleep, timeout, timeout_at},
};

use super::{
    COMMIT_TIMEOUT, Core,
    admit::Admitted,
    execution,
    in_flight::InFlightGuard,
    live::LiveTaskRef,
    stored_turn::TurnBody,
    turn::{ExecutionInput, FollowUpTurn, Turn},
};
use crate::{
    size,
    store::{IdempotencyKey, Refused, Scope, TurnChange, Webhook},
};

/// The number of times that a message is tried while other servers are faster.
pub(super) const ATTEMPTS: u32 = 16;

/// The pause after the first attempt; it grows by this much with each.
pub(super) const RETRY_PAUSE: Duration = Duration::from_millis(5);

/// A message to a task, as it is tried.
pub(super) struct FollowUp {
    pub(super) message: Arc<Message>,
    configuration: SendMessageConfiguration,
    metadata: Metadata,
    pub(super) key: Option<IdempotencyKey>,
    repeat_id: Option<Arc<str>>,
    webhook: Option<Webhook>,
    pub(super) immediately: bool,
}

/// The outcome of an attempt.
pub(super) enum Attempt {
    Admitted(Admitted),
    /// Another server was faster, and nothing of the message is stored.
    Refused,
}

/// The place of a turn.
enum Placed {
    Runs,
    /// It is stored, or the store ends with the process.
    Queued,
    /// Another server works on the task.
    Elsewhere(Box<FollowUpTurn>),
    /// The turn has to wait, and it or its webhook is not stored yet. A crash would lose the turn, and the
    /// webhook would miss the events before it.
    NotKept(Box<FollowUpTurn>),
    /// Another server was faster.
    Refused,
}

impl Core {
    /// Admits a message to a task.
    pub(super) async fn follow_up(
        self: &Arc<Self>,
        cx: &CallContext,
        scope: &Arc<Scope>,
        mut req: Box<SendMessageRequest>,
        immediately: bool,
    ) -> Result<Admitted> {
        let Some(id) = req.message.task_id.clone() else {
            return Err(Error::invalid_field("message.taskId", "required"));
        };
        let key = self.idempotency_key(cx, &req)?;
        let mut live = self.live(scope, &id).await?;
        let webhook = self.inline_webhook(cx, &id, &mut req.configuration)?;
        if let Some(webhook) = &webhook {
            self.check_webhooks(scope, &id, webhook).await?;
        }
        match &req.message.context_id {
            Some(context) if *context != live.context_id => {
                return Err(Error::invalid_field("message.contextId", "does not match the task's context"));
            }
            _ => req.message.context_id = Some(live.context_id.clone()),
        }
        let repeat_id = match &key {
            Some(key) => Some(self.sends.names().await?.of_turn(scope, key)?),
            None => None,
        };
        let said = FollowUp {
            message: Arc::new(std::mem::take(&mut req.message)),
            configuration: req.configuration.unwrap_or_default(),
            metadata: req.metadata,
            key,
            repeat_id,
            webhook,
            immediately,
        };
        for tried in 1..=ATTEMPTS {
            match self.attempt(cx, &live, &said).await? {
                Attempt::Admitted(admitted) => return Ok(admitted),
                Attempt::Refused => {
                    sleep(RETRY_PAUSE * tried).await;
                    live = self.look_again(&live).await?;
                }
            }
        }
        Err(super::unavailable())
    }

    async fn attempt(
        self: &Arc<Self>,
        cx: &CallContext,
        live: &LiveTaskRef,
        said: &FollowUp,
    ) -> Result<Attempt> {
        // The entry with the message comes after this one.
        let from = live.lock().committed().seq;
        let in_flight = match &said.key {
            Some(key) => match self.claim(cx, key, live, said.immediately).await? {
                Ok(guard) => Some(guard),
                Err(Admitted::Known(id)) if id == live.id => {
                    return Box::pin(self.known_follow_up(cx, live, said, from)).await.map(Attempt::Admitted);
                }
                Err(known) => return Ok(Attempt::Admitted(known)),
            },
            None => None,
        };
        let references = self.references(&live.scope, &said.message).await?;
        let (begun, turn_begun) = oneshot::channel();
        let job = ExecutionInput {
            message: Arc::clone(&said.message),
            configuration: said.configuration.clone(),
            metadata: said.metadata.clone(),
            references,
            call: cx.clone(),
            repeat_id: said.repeat_id.clone(),
            in_flight,
        };
        let (key, webhook) = (said.key.clone(), said.webhook.clone());
        let turn = Box::new(FollowUpTurn { job, key, webhook, stored: None, in_hand: None, begun });
        let placed = if self.keeps_turns() {
            // Spawned, because the caller may disconnect: a stored turn must also run.
            let (core, handle) = (Arc::clone(self), live.clone());
            let placed = tokio::spawn(async move { core.place(&handle, turn).await });
            placed.await.map_err(Error::internal)??
        } else {
            self.place(live, turn).await?
        };
        let queued = match placed {
            Placed::Runs => false,
            Placed::Queued | Placed::NotKept(_) => true,
            Placed::Elsewhere(turn) => return Box::pin(self.hand_in(cx, live, *turn, said, from)).await,
            Placed::Refused => return Ok(Attempt::Refused),
        };
        if queued && said.immediately {
            return Ok(Attempt::Admitted(Admitted::Queued(live.clone())));
        }
        let error = match timeout_at(self.patience(cx), turn_begun).await {
            Ok(Ok(Ok(begun))) => return Ok(Attempt::Admitted(Admitted::Task(live.clone(), begun))),
            Err(_) => return Ok(Attempt::Admitted(Admitted::Queued(live.clone()))),
            Ok(Ok(Err(error))) => error,
            Ok(Err(_)) => super::unavailable(),
        };
        if error.kind() != ErrorKind::Unavailable || !self.store.is_shared() {
            return Err(error);
        }
        if queued {
            // It is stored, so a server that shares the store begins it.
            return Box::pin(self.until_begun(cx, live, said, from)).await.map(Attempt::Admitted);
        }
        Box::pin(self.after_loss(live, said, from, error)).await
    }

    /// Decides about a message whose entry was not committed in time: the store has refused it, has it
    /// nevertheless, or nobody knows.
    async fn after_loss(
        self: &Arc<Self>,
        live: &LiveTaskRef,
        said: &FollowUp,
        from: Seq,
        error: Error,
    ) -> Result<Attempt> {
        if timeout(COMMIT_TIMEOUT, live.until(|state| state.queued_writes == 0)).await.is_err() {
            return Err(error);
        }
        if let Some(seq) = self.find_message(live, from, &said.message).await? {
            let live = self.live(&live.scope, &live.id).await?;
            return Ok(Attempt::Admitted(Admitted::Joined(live, seq)));
        }
        if live.lock().in_doubt { Err(error) } else { Ok(Attempt::Refused) }
    }

    /// The task as it is now, after another server was faster.
    async fn look_again(self: &Arc<Self>, live: &LiveTaskRef) -> Result<LiveTaskRef> {
        self.check_open()?;
        // What was written here meanwhile is committed, or refused for the same reason.
        timeout(COMMIT_TIMEOUT, live.until_committed()).await.map_err(|_| super::unavailable())?;
        let live = self.live(&live.scope, &live.id).await?;
        let stored = self.store.task(&live.scope, &live.id).await?;
        live.follow(stored.ok_or_else(|| Error::task_not_found(&live.id))?);
        Ok(live)
    }

    fn check_open(&self) -> Result<()> {
        self.lifecycle.check_open()?;
        self.journal.check()
    }

    /// Stores a follow-up where needed, then starts or queues it, unless another server works on the task.
    async fn place(self: &Arc<Self>, live: &LiveTaskRef, mut turn: Box<FollowUpTurn>) -> Result<Placed> {
        let mut waits = live.lock().running.is_some();
        loop {
            if waits && let Some(webhook) = turn.webhook.take() {
                // Registered now: the caller may rely on its webhook even if the turn never comes.
                self.register(&live.scope, &live.id, webhook).await?;
            }
            if !self.store_turn(live, &mut turn, waits).await? {
                return Ok(Placed::Refused);
            }
            let waiting = turn.stored.as_ref().filter(|_| waits).map(|stored| Arc::clone(&stored.id));
            match self.take_turn(live, turn) {
                // Another turn has just begun: this one has to wait after all.
                Ok(Placed::NotKept(unkept)) => (turn, waits) = (unkept, true),
                // It was stored while the task was ours, so whoever has the task now begins it.
                Ok(Placed::Elsewhere(_) | Placed::Refused) if waiting.is_some() => return Ok(Placed::Queued),
                Ok(placed) => return Ok(placed),
                Err(refused) => {
                    if let Some(id) = waiting {
                        self.drop_turn(live, id).await?;
                    }
                    return Err(refused);
                }
            }
        }
    }

    /// Stores a follow-up if it has to wait, or if its agent is idempotent and may run it again. False if
    /// another server has the task.
    async fn store_turn(&self, live: &LiveTaskRef, turn: &mut FollowUpTurn, waits: bool) -> Result<bool> {
        if !self.keeps_turns() || !(waits || self.agent.is_idempotent()) {
            return Ok(true);
        }
        let stored = TurnBody::follow_up(&turn.job, turn.key.as_ref()).encode(!waits)?;
        if waits {
            turn.in_hand = self.turns.note(&stored.id);
            match self.update_turn(live, TurnChange::Queue(stored.clone())).await? {
                Ok(()) => {}
                Err(Refused::NotFound) => return Err(Error::task_not_found(&live.id)),
                Err(_) => return Ok(false),
            }
        }
        turn.stored = Some(stored);
        Ok(true)
    }

    /// Deletes a turn that will not run. If another server has the task, the turn is that server's.
    async fn drop_turn(&self, live: &LiveTaskRef, id: Arc<str>) -> Result<()> {
        let _ = self.update_turn(live, TurnChange::Drop(id)).await?;
        Ok(())
    }

    /// Starts the turn, or queues it behind the running one. A turn that would have to wait but is not stored
    /// as waiting is returned, and so is one whose task another server works on.
    fn take_turn(self: &Arc<Self>, live: &LiveTaskRef, turn: Box<FollowUpTurn>) -> Result<Placed> {
        // Checked again, as in `begin`.
        let _begins = self.lifecycle.executions.token();
        self.lifecycle.check_open()?;
        let mut state = live.lock();
        if state.is_lost() && self.store.is_shared() {
            return Ok(Placed::Refused);
        }
        state.check_kept()?;
        if state.state().is_terminal() {
            return Err(execution::terminal());
        }
        if state.task().is_some_and(|task| task.history.len() >= self.limits.history) {
            return Err(Error::new(
                ErrorKind::ResourceExhausted,
                "the task has reached its limit of messages; begin a new one with the same contextId",
            ));
        }
        let waiting: usize = state.queue.iter().map(|turn| size::message(turn.message())).sum();
        let bytes = state.bytes.get() + waiting + size::message(&turn.job.message);
        let most = self.agent.rules().max_task_bytes;
        if bytes > most {
            let why =
                format!("with this message the task would have more than {most} bytes (max_task_bytes)");
            return Err(Error::new(ErrorKind::PayloadTooLarge, why));
        }
        if state.owned_elsewhere {
            return Ok(Placed::Elsewhere(turn));
        }
        if state.running.is_some() {
            if state.queue.len() >= self.limits.queue {
                return Err(too_many_wait());
            }
            if (self.keeps_turns() && !turn.is_acknowledged()) || turn.webhook.is_some() {
                return Ok(Placed::NotKept(turn));
            }
            turn.job.in_flight.iter().for_each(InFlightGuard::waits);
            state.queue.push_back(Turn::FollowUp(turn));
            drop(state);
            live.announce();
            return Ok(Placed::Queued);
        }
        let permit = self.capacity.task_permit(&live.scope)?;
        state.running = Some(execution::running());
        drop(state);
        self.start(live, Turn::FollowUp(turn), permit);
        Ok(Placed::Runs)
    }
}

/// The error for a message to a task at which as many wait as may.
pub(super) fn too_many_wait() -> Error {
    Error::new(ErrorKind::ResourceExhausted, "too many messages wait for this task")
        .with_retry_after(super::RETRY_AFTER)
}
