//! Admission of messages: validates a message, checks limits and permits, finds or begins its task, and
//! starts or queues its turn.

use std::sync::Arc;

use nuncio_protocol::{
    CallContext, Error, ErrorKind, Message, Result, SendMessageRequest, Seq, Task, TaskId, Validate as _,
};
use tokio::{sync::oneshot, time::timeout_at};
use tracing::Instrument as _;

use super::{
    Core,
    capacity::TaskPermit,
    execution,
    in_flight::InFlightGuard,
    live::LiveTaskRef,
    record::Recorder,
    stored_turn::TurnBody,
    turn::{Begun, ExecutionInput, FollowUpTurn, OpeningTurn, Turn},
};
use crate::{
    id::new_id,
    memory::exhausted,
    size,
    store::{Projection, Scope, StoredTurn, TurnChange},
};

/// The outcome of admitting a message.
pub(super) enum Admitted {
    /// The message has begun a turn of this task.
    Task(LiveTaskRef, Begun),
    /// The message waits for its turn at this task, longer than the caller wants to wait.
    Queued(LiveTaskRef),
    /// A repeat of a message that is being executed. Its events come after this entry.
    Joined(LiveTaskRef, Seq),
    /// A repeat of a message that made this task.
    Known(TaskId),
    /// A repeat of a message that got this direct reply.
    Replied(Arc<Message>),
}

/// The outcome of handing in a follow-up.
enum FollowUpOutcome {
    Runs,
    Queued,
    /// The turn has to wait, and it or its webhook is not stored yet. A crash would lose the turn, and the
    /// webhook would miss the events before it.
    NotKept(Box<FollowUpTurn>),
}

impl Core {
    /// Admits a message and starts or joins its execution. `immediately` if the caller does not wait for the
    /// task to settle.
    pub(super) async fn admit(
        self: &Arc<Self>,
        cx: &CallContext,
        scope: &Arc<Scope>,
        req: Box<SendMessageRequest>,
        immediately: bool,
    ) -> Result<Admitted> {
        self.lifecycle.check_open()?;
        self.journal.check()?;
        req.validate()?;
        self.agent.check_message(&req.message, &self.limits)?;
        if !self.registry.memory.admits_task(size::message(&req.message)) {
            return Err(exhausted());
        }
        match &req.message.task_id {
            // Boxed: most messages begin a task.
            Some(_) => Box::pin(self.follow_up(cx, scope, req, immediately)).await,
            None => self.begin(cx, scope, req, immediately).await,
        }
    }

    async fn begin(
        self: &Arc<Self>,
        cx: &CallContext,
        scope: &Arc<Scope>,
        mut req: Box<SendMessageRequest>,
        immediately: bool,
    ) -> Result<Admitted> {
        let key = self.idempotency_key(cx, &req)?;
        let (repeat_id, context) = match &key {
            Some(key) => {
                let names = self.sends.names().await?;
                (Some(names.of_turn(scope, key)?), Some(names.of_context(scope, key)?))
            }
            None => (None, None),
        };
        let id: TaskId = new_id();
        let webhook = self.inline_webhook(cx, &id, &mut req.configuration)?;
        let context_id = req.message.context_id.get_or_insert_with(|| context.unwrap_or_else(new_id)).clone();
        req.message.task_id = Some(id.clone());
        let message = Arc::new(std::mem::take(&mut req.message));
        let live = self.registry.begin(id, context_id, Arc::clone(scope), Arc::clone(&message), key.clone());
        let guard = match &key {
            Some(key) => match Box::pin(self.claim(cx, key, &live, immediately)).await? {
                Ok(guard) => Some(guard),
                Err(known) => return Ok(known),
            },
            None => None,
        };
        let permit = self.capacity.task_permit(scope)?;
        let references = self.references(scope, &message).await?;
        // Checked again, after the reads of the store. A drain that begins after this check waits for the
        // token.
        let _begins = self.lifecycle.executions.token();
        self.lifecycle.check_open()?;
        let job = ExecutionInput {
            message,
            configuration: req.configuration.unwrap_or_default(),
            metadata: req.metadata,
            references,
            call: cx.clone(),
            repeat_id,
            in_flight: guard,
        };
        // Else the agent's first event decides whether there is a task at all.
        let creates = immediately && self.agent.current().executor.always_leaves_task();
        let stored = if self.keeps_turns() && (creates || self.agent.is_idempotent()) {
            Some(TurnBody::opening(&job).encode(!creates)?)
        } else {
            None
        };
        let acknowledged = stored.as_ref().filter(|_| creates).map(|stored| Arc::clone(&stored.id));
        let turn = Box::new(OpeningTurn { job, acknowledged, reservation: None });
        {
            let mut state = live.lock();
            // Marked as running before it can be found, so that no call sees it idle.
            state.running = Some(execution::running());
            (state.attached.turn, state.attached.webhook) = (stored, webhook);
        }
        if !creates && self.writes_ahead(key.is_some()) {
            return Box::pin(self.begin_reserved(cx, live, turn, permit)).await;
        }
        if creates {
            Box::pin(Recorder::new(self, &live).create()).await?;
        }
        if let Some(guard) = &turn.job.in_flight {
            guard.begins_after(Seq::ZERO);
        }
        self.start(&live, Turn::Opening(turn), permit);
        Ok(Admitted::Task(live, Begun { turn: Seq::ZERO, task: None }))
    }

    /// Runs the turn, and the turns that queue behind it.
    pub(super) fn start(self: &Arc<Self>, live: &LiveTaskRef, turn: Turn, permit: TaskPermit) {
        let (core, handle) = (Arc::clone(self), live.clone());
        let run = async move {
            let _held = permit;
            execution::run(core, handle, turn).await;
        };
        // In the span of the call, so that log lines of the execution carry the call's fields.
        self.lifecycle.executions.spawn(run.in_current_span());
    }

    async fn follow_up(
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
        let live = self.live(scope, &id).await?;
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
        let in_flight = match &key {
            Some(key) => match self.claim(cx, key, &live, immediately).await? {
                Ok(guard) => Some(guard),
                Err(known) => return Ok(known),
            },
            None => None,
        };
        let message = Arc::new(std::mem::take(&mut req.message));
        let references = self.references(scope, &message).await?;
        let repeat_id = match &key {
            Some(key) => Some(self.sends.names().await?.of_turn(scope, key)?),
            None => None,
        };
        let (begun, turn_begun) = oneshot::channel();
        let job = ExecutionInput {
            message,
            configuration: req.configuration.unwrap_or_default(),
            metadata: req.metadata,
            references,
            call: cx.clone(),
            repeat_id,
            in_flight,
        };
        let turn = Box::new(FollowUpTurn { job, key: key.clone(), webhook, stored: None, begun });
        let queued = if self.keeps_turns() {
            // Spawned, because the caller may disconnect: a stored turn must also run.
            let (core, handle) = (Arc::clone(self), live.clone());
            let handed_in = tokio::spawn(async move { core.hand_in(&handle, turn).await });
            handed_in.await.map_err(Error::internal)??
        } else {
            self.hand_in(&live, turn).await?
        };
        if queued && immediately {
            return Ok(Admitted::Queued(live));
        }
        match timeout_at(self.patience(cx), turn_begun).await {
            Ok(Ok(Ok(begun))) => Ok(Admitted::Task(live, begun)),
            Ok(Ok(Err(error))) if error.kind() == ErrorKind::Unavailable => {
                // Another server may have received the same message and begun it.
                self.taken_elsewhere(cx, key.as_ref(), &live).await?.ok_or(error)
            }
            Ok(Ok(Err(error))) => Err(error),
            Ok(Err(_)) => Err(super::unavailable()),
            Err(_) => Ok(Admitted::Queued(live)),
        }
    }

    /// Stores a follow-up where needed, then starts or queues it; true if it is queued.
    async fn hand_in(self: &Arc<Self>, live: &LiveTaskRef, mut turn: Box<FollowUpTurn>) -> Result<bool> {
        let mut waits = live.lock().running.is_some();
        loop {
            if waits && let Some(webhook) = turn.webhook.take() {
                // Registered now: the caller may rely on its webhook even if the turn never comes.
                self.register(&live.scope, &live.id, webhook).await?;
            }
            turn.stored = self.store_turn(live, &turn, waits).await?;
            let waiting = turn.stored.as_ref().filter(|_| waits).map(|stored| Arc::clone(&stored.id));
            match self.take_turn(live, turn) {
                Ok(FollowUpOutcome::Runs) => return Ok(false),
                Ok(FollowUpOutcome::Queued) => return Ok(true),
                // Another turn has just begun: this one has to wait after all.
                Ok(FollowUpOutcome::NotKept(unkept)) => (turn, waits) = (unkept, true),
                Err(refused) => {
                    if let Some(id) = waiting {
                        self.change_turn(live, TurnChange::Drop(id)).await?;
                    }
                    return Err(refused);
                }
            }
        }
    }

    /// Stores a follow-up if it has to wait, or if its agent is idempotent and may run it again.
    async fn store_turn(
        &self,
        live: &LiveTaskRef,
        turn: &FollowUpTurn,
        waits: bool,
    ) -> Result<Option<StoredTurn>> {
        if !self.keeps_turns() || !(waits || self.agent.is_idempotent()) {
            return Ok(None);
        }
        let turn = TurnBody::follow_up(&turn.job, turn.key.as_ref()).encode(!waits)?;
        if waits {
            self.change_turn(live, TurnChange::Queue(turn.clone())).await?;
        }
        Ok(Some(turn))
    }

    /// Starts the turn, or queues it behind the running one. A turn that would have to wait but is not stored
    /// as waiting is returned.
    fn take_turn(self: &Arc<Self>, live: &LiveTaskRef, turn: Box<FollowUpTurn>) -> Result<FollowUpOutcome> {
        // Checked again, as in `begin`.
        let _begins = self.lifecycle.executions.token();
        self.lifecycle.check_open()?;
        let mut state = live.lock();
        state.check_kept()?;
        if state.owned_elsewhere {
            return Err(Error::new(ErrorKind::Unavailable, "another server works on this task; try again")
                .with_retry_after(super::RETRY_AFTER));
        }
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
        if state.running.is_some() {
            if state.queue.len() >= self.limits.queue {
                return Err(Error::new(ErrorKind::ResourceExhausted, "too many messages wait for this task")
                    .with_retry_after(super::RETRY_AFTER));
            }
            if (self.keeps_turns() && !turn.is_acknowledged()) || turn.webhook.is_some() {
                return Ok(FollowUpOutcome::NotKept(turn));
            }
            turn.job.in_flight.iter().for_each(InFlightGuard::waits);
            state.queue.push_back(Turn::FollowUp(turn));
            drop(state);
            live.announce();
            return Ok(FollowUpOutcome::Queued);
        }
        let permit = self.capacity.task_permit(&live.scope)?;
        state.running = Some(execution::running());
        drop(state);
        self.start(live, Turn::FollowUp(turn), permit);
        Ok(FollowUpOutcome::Runs)
    }

    /// The live task; loads it from the store if it is not in memory.
    pub(super) async fn live(self: &Arc<Self>, scope: &Arc<Scope>, id: &TaskId) -> Result<LiveTaskRef> {
        if let Some(live) = self.registry.get(scope, id)
            && let Some((committed, folded, ended)) = {
                let state = live.lock();
                // A lost task is about to leave memory.
                let known = || (state.committed().seq, state.folded().seq, state.state().is_terminal());
                (!state.is_lost()).then(known)
            }
        {
            // Its first event has not come: the task does not exist for other callers yet.
            if committed == Seq::ZERO {
                return Err(Error::task_not_found(id));
            }
            // A terminal state is shown only when it is committed.
            if ended {
                self.until_committed(&live, folded).await?;
            }
            return Ok(live);
        }
        loop {
            let stored = self.store.task(scope, id).await?.ok_or_else(|| Error::task_not_found(id))?;
            let live = self.registry.revive(scope, stored);
            // Between the read and `revive` the task may have been live through another call, changed, and
            // released. Now that it is in the registry every local change goes through this copy, so one
            // more read is enough.
            let newest = self.store.task(scope, id).await?;
            let (newest, pushes) = newest.map_or((Seq::ZERO, false), |stored| (stored.seq, stored.pushes));
            // The store may have entries of this server that are not reported as committed yet.
            if newest <= live.lock().folded().seq {
                // A webhook that was registered before the task became live was not reported to it.
                live.lock().pushes |= pushes;
                return Ok(live);
            }
            live.evict();
        }
    }

    /// The tasks that a message refers to, if they are in scope. They are a hint: missing ones are left out.
    pub(super) async fn references(&self, scope: &Arc<Scope>, message: &Message) -> Result<Vec<Task>> {
        let mut tasks = Vec::new();
        for id in message.reference_task_ids.iter().take(self.limits.references) {
            // Boxed: few messages have references.
            match Box::pin(self.read(scope, id, Projection::WHOLE)).await {
                Ok(task) => tasks.push(task),
                Err(error) if error.kind() == ErrorKind::TaskNotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(tasks)
    }
}
