//! Letting a message in: is it well formed, may this caller say it, is there room, and which task is
//! it about.

use std::sync::Arc;

use nuncio_protocol::{
    CallContext, ContextId, Error, ErrorKind, Message, Result, SendMessageRequest, Seq, Task, TaskId,
    Validate as _, wire::excerpt,
};
use tokio::{sync::oneshot, time::timeout_at};
use tracing::Instrument as _;

use super::{
    Shared, TaskPermit,
    execution::{self, Begun, Turn},
    in_flight::{InFlightGuard, idempotency_key},
    kept::Kept,
    live::LiveRef,
    record::Recorder,
};
use crate::{
    memory::exhausted,
    size,
    store::{Projection, Scope, StoredTurn, TurnChange},
};

/// A new identifier: unique, URL-safe, and in the order of time.
pub(crate) fn new_id<T: for<'a> From<&'a str>>() -> T {
    let mut buffer = uuid::Uuid::encode_buffer();
    T::from(uuid::Uuid::now_v7().hyphenated().encode_lower(&mut buffer))
}

/// What became of a message that was let in.
pub(super) enum Admitted {
    /// It is handled by this task from here on.
    Task(LiveRef, Begun),
    /// It waits for its turn at this task, and the caller will not wait as long.
    Queued(LiveRef),
    /// It is being said already: this is the task in the making, from the entry after this one on.
    Joined(LiveRef, Seq),
    /// It was said before: this is the task of then.
    Known(TaskId),
    /// It was said before, and this was the reply.
    Replied(Arc<Message>),
}

/// What became of a turn.
enum Taken {
    Runs,
    Queued,
    /// It has to wait, and would be lost with the process, or its webhook told too late: both are to be kept
    /// first.
    NotKept(Box<Turn>),
}

impl Shared {
    /// Lets a message in and starts or joins its execution; `immediately` if the caller only wants to
    /// know the task.
    pub(super) async fn admit(
        self: &Arc<Self>,
        cx: &CallContext,
        scope: &Arc<Scope>,
        req: Box<SendMessageRequest>,
        immediately: bool,
    ) -> Result<Admitted> {
        self.check_open()?;
        self.journal.check()?;
        req.validate()?;
        self.check_message(&req.message)?;
        match &req.message.task_id {
            // Boxed: most messages begin a task.
            Some(_) => Box::pin(self.follow_up(cx, scope, req, immediately)).await,
            None => self.begin(cx, scope, req, immediately).await,
        }
    }

    fn check_message(&self, message: &Message) -> Result<()> {
        let present = self.present.load();
        let (limits, most) = (&self.limits, present.parts);
        if size::message(message) > present.max_task_bytes {
            let why = format!("a task may have {} bytes (max_task_bytes)", present.max_task_bytes);
            return Err(Error::new(ErrorKind::PayloadTooLarge, why));
        }
        if !self.registry.memory.admits_task(size::message(message)) {
            return Err(exhausted());
        }
        if message.parts.len() > most {
            return Err(Error::invalid_field("message.parts", format!("at most {most} parts are allowed")));
        }
        let ids = [
            ("message.messageId", Some(message.message_id.as_str())),
            ("message.contextId", message.context_id.as_ref().map(ContextId::as_str)),
        ];
        let references = message.reference_task_ids.iter();
        let references = references.map(|id| ("message.referenceTaskIds", Some(id.as_str())));
        for (field, id) in ids.into_iter().chain(references) {
            if id.is_some_and(|id| id.len() > limits.id_bytes) {
                return Err(Error::invalid_field(
                    field,
                    format!("at most {} bytes are allowed", limits.id_bytes),
                ));
            }
        }
        if message.reference_task_ids.len() > most {
            return Err(Error::invalid_field(
                "message.referenceTaskIds",
                format!("at most {most} references are allowed"),
            ));
        }
        let media_types =
            message.parts.iter().enumerate().filter_map(|(i, part)| Some((i, part.media_type.as_deref()?)));
        for (i, media_type) in media_types {
            if !self.accepts(media_type) {
                let media_type = excerpt(media_type.to_owned());
                return Err(Error::new(
                    ErrorKind::ContentTypeNotSupported,
                    format!("message.parts[{i}].mediaType: this agent does not take {media_type}"),
                )
                .with_metadata("mediaType", media_type));
            }
        }
        Ok(())
    }

    /// REQ-105.
    fn accepts(&self, media_type: &str) -> bool {
        let refused = self.refused_media_types.iter().any(|refused| match refused.strip_suffix('*') {
            Some(prefix) => media_type.starts_with(prefix),
            None => media_type == refused,
        });
        !refused && (self.any_media_type || self.present.load().card.accepts_input(media_type))
    }

    async fn begin(
        self: &Arc<Self>,
        cx: &CallContext,
        scope: &Arc<Scope>,
        mut req: Box<SendMessageRequest>,
        immediately: bool,
    ) -> Result<Admitted> {
        let key = cx.idempotency_key.as_deref().map(|key| idempotency_key(key, &req)).transpose()?;
        let (name, context) = match &key {
            Some(key) => {
                let names = self.names().await?;
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
        let permit = self.task_permit(scope)?;
        let references = self.references(scope, &message).await?;
        // Once more, after the store was asked: nothing begins behind the back of a drain, which waits
        // for this token.
        let _begins = self.tracker.token();
        self.check_open()?;
        let mut turn = Box::new(Turn {
            message,
            configuration: req.configuration.unwrap_or_default(),
            metadata: req.metadata,
            references,
            call: cx.clone(),
            claim: None,
            name,
            webhook: None,
            kept: None,
            reserved: None,
            again: false,
            in_flight: guard,
            begun: None,
        });
        // Otherwise the agent's first event tells whether there is a task at all.
        let creates = immediately && self.present.load().executor.always_leaves_task();
        if self.keeps_turns() && (creates || self.is_idempotent()) {
            turn.kept = Some(Kept::of(&turn).encode(!creates)?);
        }
        {
            let mut state = live.lock();
            // Running before it is there: nobody finds it idle.
            state.running = Some(execution::running());
            state.turn.clone_from(&turn.kept);
            state.webhook = webhook;
        }
        if !creates && self.writes_ahead(key.is_some()) {
            return Box::pin(self.begin_reserved(cx, live, turn, permit)).await;
        }
        if creates {
            Box::pin(Recorder::new(self, &live).create()).await?;
        }
        if let Some(guard) = &turn.in_flight {
            guard.begins_after(Seq::ZERO);
        }
        self.start(&live, turn, permit);
        Ok(Admitted::Task(live, Begun { turn: Seq::ZERO, task: None }))
    }

    /// Runs the turn, and those that come to wait behind it.
    pub(super) fn start(self: &Arc<Self>, live: &LiveRef, turn: Box<Turn>, permit: TaskPermit) {
        let (shared, handle) = (Arc::clone(self), live.clone());
        let run = async move {
            let _held = permit;
            execution::run(shared, handle, turn).await;
        };
        // What it logs says whose call it works for.
        self.tracker.spawn(run.in_current_span());
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
        let key = cx.idempotency_key.as_deref().map(|key| idempotency_key(key, &req)).transpose()?;
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
        let name = match &key {
            Some(key) => Some(self.names().await?.of_turn(scope, key)?),
            None => None,
        };
        let (begun, turn_begun) = oneshot::channel();
        let turn = Box::new(Turn {
            message,
            configuration: req.configuration.unwrap_or_default(),
            metadata: req.metadata,
            references,
            call: cx.clone(),
            claim: key.clone(),
            name,
            webhook,
            kept: None,
            reserved: None,
            again: false,
            in_flight,
            begun: Some(begun),
        });
        let queued = if self.keeps_turns() {
            // Not by the caller, who may leave: what is kept is also run.
            let (shared, handle) = (Arc::clone(self), live.clone());
            let handed_in = tokio::spawn(async move { shared.hand_in(&handle, turn).await });
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
                // Another server may have been told the same, and have begun with it.
                self.taken_elsewhere(cx, key.as_ref(), &live).await?.ok_or(error)
            }
            Ok(Ok(Err(error))) => Err(error),
            Ok(Err(_)) => Err(super::unavailable()),
            Err(_) => Ok(Admitted::Queued(live)),
        }
    }

    /// Keeps a follow-up where it must be, and starts or queues it; true if it is queued.
    async fn hand_in(self: &Arc<Self>, live: &LiveRef, mut turn: Box<Turn>) -> Result<bool> {
        let mut waits = live.lock().running.is_some();
        loop {
            if waits && let Some(webhook) = turn.webhook.take() {
                // Whoever sent it may rely on it from now on, also if its turn never comes.
                self.register(&live.scope, &live.id, webhook).await?;
            }
            turn.kept = self.keep(live, &turn, waits).await?;
            let waiting = turn.kept.as_ref().filter(|_| waits).map(|kept| Arc::clone(&kept.id));
            match self.take_turn(live, turn) {
                Ok(Taken::Runs) => return Ok(false),
                Ok(Taken::Queued) => return Ok(true),
                // Another one has just begun: it has to wait after all.
                Ok(Taken::NotKept(unkept)) => (turn, waits) = (unkept, true),
                Err(refused) => {
                    if let Some(id) = waiting {
                        self.change_turn(live, TurnChange::Drop(id)).await?;
                    }
                    return Err(refused);
                }
            }
        }
    }

    /// Keeps a follow-up in the store if it has to wait, or if its agent may be asked again.
    async fn keep(&self, live: &LiveRef, turn: &Turn, waits: bool) -> Result<Option<StoredTurn>> {
        if !self.keeps_turns() || !(waits || self.is_idempotent()) {
            return Ok(None);
        }
        let turn = Kept::of(turn).encode(!waits)?;
        if waits {
            self.change_turn(live, TurnChange::Queue(turn.clone())).await?;
        }
        Ok(Some(turn))
    }

    /// Starts the turn, or queues it behind the one that runs, if it is kept as one that waits.
    fn take_turn(self: &Arc<Self>, live: &LiveRef, turn: Box<Turn>) -> Result<Taken> {
        // Once more, as in `begin`.
        let _begins = self.tracker.token();
        self.check_open()?;
        let mut state = live.lock();
        if state.broken {
            return Err(super::unavailable());
        }
        if state.held {
            return Err(Error::new(ErrorKind::Unavailable, "another server works on this task; try again")
                .with_retry_after(super::RETRY_AFTER));
        }
        if state.task.as_ref().is_some_and(|task| task.status.state.is_terminal()) {
            return Err(execution::terminal());
        }
        if state.task.as_ref().is_some_and(|task| task.history.len() >= self.limits.history) {
            return Err(Error::new(
                ErrorKind::ResourceExhausted,
                "the task has as many messages as are kept",
            ));
        }
        let waiting: usize = state.queue.iter().map(|turn| size::message(&turn.message)).sum();
        let bytes = state.bytes.get() + waiting + size::message(&turn.message);
        let most = self.present.load().max_task_bytes;
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
            let unkept = self.keeps_turns() && turn.kept.as_ref().is_none_or(|kept| kept.begun);
            if unkept || turn.webhook.is_some() {
                return Ok(Taken::NotKept(turn));
            }
            turn.in_flight.iter().for_each(InFlightGuard::waits);
            state.queue.push_back(turn);
            drop(state);
            live.announce();
            return Ok(Taken::Queued);
        }
        let permit = self.task_permit(&live.scope)?;
        state.running = Some(execution::running());
        drop(state);
        self.start(live, turn, permit);
        Ok(Taken::Runs)
    }

    /// The task in memory, from the store if need be.
    pub(super) async fn live(self: &Arc<Self>, scope: &Arc<Scope>, id: &TaskId) -> Result<LiveRef> {
        if let Some(live) = self.registry.get(scope, id) {
            let (committed, folded, ended) = {
                let state = live.lock();
                (state.committed.seq, state.folded.seq, state.state().is_terminal())
            };
            // Begun, but its first event has not come: for everybody else it does not exist yet.
            if committed == Seq::ZERO {
                return Err(Error::task_not_found(id));
            }
            // That it has ended is told when its end is in the store.
            if ended {
                self.until_committed(&live, folded).await?;
            }
            return Ok(live);
        }
        loop {
            let stored = self.store.task(scope, id).await?.ok_or_else(|| Error::task_not_found(id))?;
            let live = self.registry.revive(scope, stored);
            // Between the reading and the reviving the task may have gone on in other hands, and been
            // let go again. From now on nobody passes us by, so one more look is enough.
            let newest = self.store.task(scope, id).await?;
            let (newest, pushes) = newest.map_or((Seq::ZERO, false), |stored| (stored.seq, stored.pushes));
            // What is folded here may be in the store before we are told so.
            if newest <= live.lock().folded.seq {
                // A webhook that was registered before we were there was not told to us.
                live.lock().pushes |= pushes;
                return Ok(live);
            }
            live.break_off();
        }
    }

    /// The tasks that a message refers to, as far as they are in scope; a hint, so what is not there
    /// is left out.
    pub(super) async fn references(&self, scope: &Arc<Scope>, message: &Message) -> Result<Vec<Task>> {
        let mut tasks = Vec::new();
        for id in message.reference_task_ids.iter().take(self.limits.references) {
            // Boxed: few messages refer to any.
            match Box::pin(self.read(scope, id, Projection::WHOLE)).await {
                Ok(task) => tasks.push(task),
                Err(error) if error.kind() == ErrorKind::TaskNotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(tasks)
    }
}
