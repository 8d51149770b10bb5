//! Letting a message in: is it well formed, may this caller say it, is there room, and which task is
//! it about.

use std::{collections::hash_map::Entry, sync::Arc};

use nuncio_protocol::{
    CallContext, ContextId, Error, ErrorKind, Message, Result, SendMessageRequest, Seq, Task, TaskId,
    Validate as _, wire::excerpt,
};
use sha2::{Digest as _, Sha256};
use tokio::{
    sync::{oneshot, watch},
    time::timeout_at,
};

use super::{
    Shared,
    execution::{self, Begun, Turn},
    kept::Kept,
    live::LiveRef,
    record::Recorder,
};
use crate::store::{Answer, IdempotencyKey, Outcome, Scope, StoredTurn, TurnChange};

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
    /// It has to wait, and would be lost with the process: it is to be kept first.
    NotKept(Box<Turn>),
}

/// A send that has been let in and is not yet in the store; a repeat joins it.
#[derive(Clone)]
pub(super) struct InFlight {
    digest: [u8; 32],
    live: LiveRef,
    /// Closed when it has come to nothing.
    stage: watch::Receiver<Stage>,
}

/// How far a send in flight has come.
#[derive(Clone, Copy)]
enum Stage {
    /// It may still be refused.
    Undecided,
    /// It waits for its turn.
    Queued,
    /// Its execution has begun, after this entry.
    Begun(Seq),
}

/// Where a send is found by a repeat.
pub(super) type Slot = (Arc<Scope>, Arc<str>);

/// Forgets the send when it is in the store, or has come to nothing.
pub(super) struct InFlightGuard {
    shared: Arc<Shared>,
    slot: Slot,
    stage: watch::Sender<Stage>,
}

impl InFlightGuard {
    /// Tells the repeats that wait where they may join.
    pub(super) fn begins_after(&self, turn: Seq) {
        self.stage.send_replace(Stage::Begun(turn));
    }

    /// Tells them that it waits for its turn.
    pub(super) fn waits(&self) {
        self.stage.send_replace(Stage::Queued);
    }
}

impl Drop for InFlightGuard {
    fn drop(&mut self) {
        self.shared.in_flight().remove(&self.slot);
    }
}

impl Shared {
    /// Lets a message in and starts or joins its execution; `immediately` if the caller only wants to
    /// know the task.
    pub(super) async fn admit(
        self: &Arc<Self>,
        cx: &CallContext,
        scope: &Arc<Scope>,
        req: SendMessageRequest,
        immediately: bool,
    ) -> Result<Admitted> {
        self.check_open()?;
        self.journal.check()?;
        req.validate()?;
        self.check_message(&req.message)?;
        let inline_push =
            req.configuration.as_ref().is_some_and(|c| c.task_push_notification_config.is_some());
        if inline_push && self.card.capabilities.push_notifications != Some(true) {
            return Err(ErrorKind::PushNotificationNotSupported.into());
        }
        match &req.message.task_id {
            Some(_) => self.follow_up(cx, scope, req, immediately).await,
            None => self.begin(cx, scope, req, immediately).await,
        }
    }

    fn check_message(&self, message: &Message) -> Result<()> {
        let limits = &self.limits;
        if message.parts.len() > limits.parts {
            return Err(Error::invalid_field(
                "message.parts",
                format!("at most {} parts are allowed", limits.parts),
            ));
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
        if message.reference_task_ids.len() > limits.parts {
            return Err(Error::invalid_field(
                "message.referenceTaskIds",
                format!("at most {} references are allowed", limits.parts),
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
        !refused && self.card.accepts_input(media_type)
    }

    async fn begin(
        self: &Arc<Self>,
        cx: &CallContext,
        scope: &Arc<Scope>,
        mut req: SendMessageRequest,
        immediately: bool,
    ) -> Result<Admitted> {
        let key = cx.idempotency_key.as_deref().map(|key| idempotency_key(key, &req)).transpose()?;
        let id: TaskId = new_id();
        let context_id = req.message.context_id.get_or_insert_with(new_id).clone();
        req.message.task_id = Some(id.clone());
        let message = Arc::new(std::mem::take(&mut req.message));
        let live = self.registry.begin(id, context_id, Arc::clone(scope), Arc::clone(&message), key.clone());
        let guard = match key {
            Some(key) => match self.claim(cx, &key, &live, immediately).await? {
                Ok(guard) => Some(guard),
                Err(known) => return Ok(known),
            },
            None => None,
        };
        let permit = self.task_permit()?;
        let references = self.references(scope, &message).await?;
        // Once more, after the store was asked: nothing begins behind the back of a drain, which waits
        // for this token.
        let _begins = self.tracker.token();
        self.check_open()?;
        let configuration = req.configuration.unwrap_or_default();
        let kept = (self.keeps_turns() && (immediately || self.idempotent))
            .then(|| Kept::new(cx, None, &configuration, &req.metadata).encode(!immediately))
            .transpose()?;
        {
            let mut state = live.lock();
            // Running before it is there: nobody finds it idle.
            state.running = Some(execution::running());
            state.turn.clone_from(&kept);
        }
        if immediately {
            Recorder::new(self, &live).create().await?;
        }
        let turn = Box::new(Turn {
            message,
            configuration,
            metadata: req.metadata,
            references,
            call: cx.clone(),
            claim: None,
            kept,
            again: false,
            in_flight: guard,
            begun: None,
        });
        if let Some(guard) = &turn.in_flight {
            guard.begins_after(Seq::ZERO);
        }
        let (shared, handle) = (Arc::clone(self), live.clone());
        self.tracker.spawn(async move {
            let _held = permit;
            execution::run(shared, handle, turn).await;
        });
        Ok(Admitted::Task(live, Begun { turn: Seq::ZERO, task: None }))
    }

    /// Claims an idempotency key for this send, or finds what became of the first one under it.
    async fn claim(
        self: &Arc<Self>,
        cx: &CallContext,
        key: &IdempotencyKey,
        live: &LiveRef,
        immediately: bool,
    ) -> Result<Result<InFlightGuard, Admitted>> {
        let patience = self.patience(cx);
        let guard = loop {
            let mut first = match self.reserve(key, live) {
                Ok(guard) => break guard,
                Err(first) => first,
            };
            same_request(first.digest, key)?;
            // The first one may still come to nothing, or find that it is itself a repeat: then it is
            // this one's turn to look.
            let told = |stage: &Stage| match stage {
                Stage::Undecided => false,
                Stage::Queued => immediately,
                Stage::Begun(_) => true,
            };
            let came = timeout_at(patience, first.stage.wait_for(told)).await;
            let stage = match came.map(|came| came.map(|stage| *stage)) {
                Ok(Ok(stage)) => stage,
                Ok(Err(_)) => continue,
                Err(_) => *first.stage.borrow(),
            };
            return match stage {
                Stage::Begun(turn) => Ok(Err(Admitted::Joined(first.live, turn))),
                Stage::Queued => Ok(Err(Admitted::Queued(first.live))),
                Stage::Undecided => {
                    Err(Error::from(ErrorKind::Unavailable).with_retry_after(super::RETRY_AFTER))
                }
            };
        };
        let Some(Answer { digest, outcome }) = self.store.answer(&live.scope, &key.key).await? else {
            return Ok(Ok(guard));
        };
        same_request(digest, key)?;
        Ok(Err(match outcome {
            Outcome::Task(id) => Admitted::Known(id),
            Outcome::Reply(reply) => Admitted::Replied(reply),
        }))
    }

    /// A place in flight for this key; else who has it.
    pub(super) fn reserve(
        self: &Arc<Self>,
        key: &IdempotencyKey,
        live: &LiveRef,
    ) -> Result<InFlightGuard, InFlight> {
        let slot: Slot = (Arc::clone(&live.scope), Arc::clone(&key.key));
        match self.in_flight().entry(slot.clone()) {
            Entry::Occupied(first) => Err(first.get().clone()),
            Entry::Vacant(place) => {
                let (sender, stage) = watch::channel(Stage::Undecided);
                place.insert(InFlight { digest: key.digest, live: live.clone(), stage });
                Ok(InFlightGuard { shared: Arc::clone(self), slot, stage: sender })
            }
        }
    }

    async fn follow_up(
        self: &Arc<Self>,
        cx: &CallContext,
        scope: &Arc<Scope>,
        mut req: SendMessageRequest,
        immediately: bool,
    ) -> Result<Admitted> {
        let Some(id) = req.message.task_id.clone() else {
            return Err(Error::invalid_field("message.taskId", "required"));
        };
        let key = cx.idempotency_key.as_deref().map(|key| idempotency_key(key, &req)).transpose()?;
        let live = self.live(scope, &id).await?;
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
        let configuration = req.configuration.unwrap_or_default();
        let kept = Kept::new(cx, Some(&message), &configuration, &req.metadata).claiming(key.as_ref());
        let (begun, turn_begun) = oneshot::channel();
        let turn = Box::new(Turn {
            message,
            configuration,
            metadata: req.metadata,
            references,
            call: cx.clone(),
            claim: key,
            kept: None,
            again: false,
            in_flight,
            begun: Some(begun),
        });
        // Not by the caller, who may leave: what is kept is also run.
        let (shared, handle) = (Arc::clone(self), live.clone());
        let handed_in = tokio::spawn(async move { shared.hand_in(&handle, turn, &kept).await }).await;
        let queued = handed_in.map_err(Error::internal)??;
        if queued && immediately {
            return Ok(Admitted::Queued(live));
        }
        match timeout_at(self.patience(cx), turn_begun).await {
            Ok(Ok(begun)) => Ok(Admitted::Task(live, begun?)),
            Ok(Err(_)) => Err(ErrorKind::Unavailable.into()),
            Err(_) => Ok(Admitted::Queued(live)),
        }
    }

    /// Keeps a follow-up where it must be, and starts or queues it; true if it is queued.
    async fn hand_in(self: &Arc<Self>, live: &LiveRef, mut turn: Box<Turn>, kept: &Kept) -> Result<bool> {
        let mut waits = live.lock().running.is_some();
        loop {
            turn.kept = self.keep(live, kept, waits).await?;
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
    async fn keep(&self, live: &LiveRef, kept: &Kept, waits: bool) -> Result<Option<StoredTurn>> {
        if !self.keeps_turns() || !(waits || self.idempotent) {
            return Ok(None);
        }
        let turn = kept.encode(!waits)?;
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
            return Err(ErrorKind::Unavailable.into());
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
        if state.running.is_some() {
            if state.queue.len() >= self.limits.queue {
                return Err(Error::new(ErrorKind::ResourceExhausted, "too many messages wait for this task")
                    .with_retry_after(super::RETRY_AFTER));
            }
            if self.keeps_turns() && turn.kept.as_ref().is_none_or(|kept| kept.begun) {
                return Ok(Taken::NotKept(turn));
            }
            turn.in_flight.iter().for_each(InFlightGuard::waits);
            state.queue.push_back(turn);
            return Ok(Taken::Queued);
        }
        let permit = self.task_permit()?;
        state.running = Some(execution::running());
        drop(state);
        let (shared, handle) = (Arc::clone(self), live.clone());
        self.tracker.spawn(async move {
            let _held = permit;
            execution::run(shared, handle, turn).await;
        });
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
            let newest = self.store.task(scope, id).await?.map_or(Seq::ZERO, |stored| stored.seq);
            // What is folded here may be in the store before we are told so.
            if newest <= live.lock().folded.seq {
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
            match self.read(scope, id).await {
                Ok(task) => tasks.push(task),
                Err(error) if error.kind() == ErrorKind::TaskNotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(tasks)
    }
}

fn idempotency_key(key: &str, req: &SendMessageRequest) -> Result<IdempotencyKey> {
    if key.is_empty() || key.len() > 256 {
        return Err(Error::invalid_field("Idempotency-Key", "expected 1 to 256 bytes"));
    }
    let json = serde_json::to_vec(req).map_err(Error::internal)?;
    Ok(IdempotencyKey { key: key.into(), digest: Sha256::digest(&json).into() })
}

fn same_request(digest: [u8; 32], key: &IdempotencyKey) -> Result<()> {
    if digest == key.digest {
        return Ok(());
    }
    Err(Error::invalid_field("Idempotency-Key", "was used with another request; take a new key"))
}
