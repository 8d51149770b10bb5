//! Admission of messages: validates a message, checks limits and permits, and begins its task and its turn.
//! Messages to a task are in `follow_up`.

use std::sync::Arc;

use nuncio_protocol::{
    CallContext, Error, ErrorKind, Message, Result, SendMessageRequest, Seq, Task, TaskId, Validate as _,
};
use tracing::Instrument as _;

use super::{
    Core,
    capacity::TaskPermit,
    execution,
    live::LiveTaskRef,
    record::Recorder,
    stored_turn::TurnBody,
    turn::{Begun, ExecutionInput, OpeningTurn, Turn},
};
use crate::{
    id::new_id,
    memory::exhausted,
    size,
    store::{Projection, Scope},
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
        // Noted before it is stored, so that nothing else here takes it for a turn without a server.
        let acknowledged = stored.as_ref().filter(|_| creates).and_then(|stored| self.turns.note(&stored.id));
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
