//! Reservations: for an executor that is not idempotent, the store has a note of a message before the message
//! is executed. So a repeat is not executed again, and each executed message leaves a task or a reply, even
//! after a crash. This applies to messages with an idempotency key, and to all messages of an executor that
//! always leaves a task (`Core::writes_ahead`).
//!
//! | executed | committed before |
//! |---|---|
//! | a message that begins a task | the task's id and the idempotency key ([`Reservation`]); the task itself is committed with its first event |
//! | the same, if the caller does not wait and the executor always leaves a task | the task, with its key and its turn (`stored_turn`) |
//! | a message to a task | the message with its key, as an entry of the log |
//!
//! An idempotent executor needs none of this, and a store in memory ends with the process.

use std::sync::Arc;

use futures_util::future::join_all;
use nuncio_protocol::{CallContext, Error, Message, Result, Seq, TaskState};
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, timeout, timeout_at};
use tracing::Instrument as _;

use super::{
    COMMIT_TIMEOUT, Core,
    admit::Admitted,
    capacity::TaskPermit,
    live::LiveTaskRef,
    record::Recorder,
    recover::NOT_RUN_AGAIN,
    state::{Phase, ReservationEnd},
    turn::{Begun, OpeningTurn, Turn},
    unavailable,
};
use crate::{
    clock::now,
    id::new_id,
    store::{IdempotencyKey, Reservation, StoreError, Subscription, Topic, Webhook},
};

/// The number of reservations that are read at once.
const PAGE: usize = 256;

/// The body of a reservation: the data that its task begins with.
#[derive(Serialize, Deserialize)]
struct ReservationBody {
    message: Arc<Message>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    webhook: Option<Webhook>,
}

impl Core {
    /// True if a message must be in the store before it is executed; `keyed` if it has an idempotency key.
    pub(super) fn writes_ahead(&self, keyed: bool) -> bool {
        self.keeps_turns()
            && !self.agent.is_idempotent()
            && (keyed || self.agent.current().executor.always_leaves_task())
    }

    /// Reserves the task of a turn, then runs it. If another server has the key already, waits for that
    /// server's answer.
    pub(super) async fn begin_reserved(
        self: &Arc<Self>,
        cx: &CallContext,
        live: LiveTaskRef,
        turn: Box<OpeningTurn>,
        permit: TaskPermit,
    ) -> Result<Admitted> {
        let (core, handle) = (Arc::clone(self), live.clone());
        // Spawned, because the caller may disconnect: a reserved message must also run.
        let begun = self
            .lifecycle
            .executions
            .spawn(async move { core.reserve_and_start(&handle, turn, permit).await }.in_current_span());
        let begun = timeout(COMMIT_TIMEOUT, begun).await.map_err(|_| unavailable())?;
        if begun.map_err(Error::internal)?? {
            return Ok(Admitted::Task(live, Begun { turn: Seq::ZERO, task: None }));
        }
        self.taken_elsewhere(cx, live.key.as_ref(), &live).await?.ok_or_else(unavailable)
    }

    /// False if the key is taken; then nothing was started.
    async fn reserve_and_start(
        self: &Arc<Self>,
        live: &LiveTaskRef,
        mut turn: Box<OpeningTurn>,
        permit: TaskPermit,
    ) -> Result<bool> {
        let reservation = reservation_of(live)?;
        match self.store.reserve(reservation.clone()).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) => return Ok(false),
            Err(error) => {
                // The reservation may or may not be stored. Until it is released for certain, a repeat waits
                // behind this turn.
                let (core, live) = (Arc::clone(self), live.clone());
                self.lifecycle.executions.spawn(async move {
                    core.release(&live).await;
                    drop((turn, permit));
                });
                return Err(error.into());
            }
        }
        if live.lock().is_lost() {
            // The caller was erased meanwhile.
            self.release(live).await;
            return Err(unavailable());
        }
        live.lock().attached.reserved = true;
        turn.reservation = Some(reservation);
        if let Some(guard) = &turn.job.in_flight {
            guard.begins_after(Seq::ZERO);
        }
        self.start(live, Turn::Opening(turn), permit);
        Ok(true)
    }

    /// The outcome of a message whose key another server has taken, if one has.
    pub(super) async fn taken_elsewhere(
        self: &Arc<Self>,
        cx: &CallContext,
        key: Option<&IdempotencyKey>,
        live: &LiveTaskRef,
    ) -> Result<Option<Admitted>> {
        let Some(key) = key.filter(|_| self.store.is_shared()) else { return Ok(None) };
        // Boxed: it is rare, and would make every send's future larger.
        Ok(Box::pin(self.claim(cx, key, live, false)).await?.err())
    }

    /// Waits until there may be an answer to a message that another server has reserved. The task of an
    /// abandoned reservation is recorded as failed instead.
    pub(super) async fn await_reserved(
        self: &Arc<Self>,
        reservation: Reservation,
        abandoned: bool,
        until: Instant,
        signals: &mut Option<Subscription>,
    ) -> Result<()> {
        if abandoned {
            return self.fail_reserved(reservation).await;
        }
        if Instant::now() >= until {
            return Err(unavailable());
        }
        match signals {
            Some(signals) => {
                // At the end of the time the answer is read once more.
                let _ = timeout_at(until, signals.until(reservation.task_id.as_str())).await;
            }
            // The answer is read again after this, so that none is missed in between.
            None => {
                let topic = Topic::Tasks(Arc::clone(&self.agent.name));
                *signals = Some(self.store.signals().subscribe(topic));
            }
        }
        Ok(())
    }

    /// Releases a reservation; retries while the store is down.
    pub(super) async fn release(&self, live: &LiveTaskRef) {
        if let Err(error) = self.journal.retry_while_down(|| self.store.release(&live.scope, &live.id)).await
        {
            tracing::error!(task = %live.id, %error, "a reservation could not be released; the next server ends it as failed");
        }
    }

    /// Makes the task of a reservation whose execution left no answer, and ends it as failed. If another
    /// server was faster, or the caller was erased, the store's state stands.
    pub(super) async fn fail_reserved(self: &Arc<Self>, reservation: Reservation) -> Result<()> {
        let Reservation { scope, task_id, body, .. } = reservation;
        let ReservationBody { message, webhook } =
            serde_json::from_slice(&body).map_err(StoreError::broken)?;
        let context_id = message.context_id.clone().unwrap_or_else(new_id);
        let live = self.registry.begin_apart(task_id, context_id, scope, message, None);
        {
            let mut state = live.lock();
            // The owner of the reservation has stopped, so the commit takes the task over.
            state.owned_elsewhere = true;
            (state.attached.reserved, state.attached.webhook) = (true, webhook);
        }
        tracing::info!(task = %live.id, "the server stopped while this message was being executed; its task ends as failed");
        Recorder::new(self, &live).end(TaskState::Failed, Some(NOT_RUN_AGAIN)).await?;
        live.until_committed().await;
        Ok(())
    }

    /// Ends the reservations of stopped servers as failed tasks.
    pub(super) async fn fail_abandoned(self: &Arc<Self>) -> Result<(), StoreError> {
        loop {
            let abandoned = self.store.abandoned(&self.agent.name, PAGE).await?;
            let is_last = abandoned.len() < PAGE;
            let failed = join_all(abandoned.into_iter().map(|left| self.fail_reserved(left))).await;
            let problem = failed.into_iter().find_map(Result::err);
            if let Some(error) = &problem {
                tracing::error!(%error, "an abandoned reservation could not be ended; trying again");
            }
            if is_last || problem.is_some() {
                return Ok(());
            }
        }
    }

    /// Ends the reservation of an execution that is over, if it has made neither a task nor a reply.
    pub(super) async fn close_reservation(self: &Arc<Self>, live: &LiveTaskRef, reservation: Reservation) {
        let end = live.lock().reservation_end();
        match end {
            ReservationEnd::Answered => {}
            ReservationEnd::Released => self.release(live).await,
            ReservationEnd::Failed => {
                if let Err(error) = self.fail_reserved(reservation).await {
                    tracing::error!(task = %live.id, %error, "the end of an execution could not be recorded");
                }
            }
        }
    }
}

/// The reservation to commit before the opening message of this task is executed.
fn reservation_of(live: &LiveTaskRef) -> Result<Reservation> {
    let (message, webhook, idempotency) = {
        let state = live.lock();
        state.check_kept()?;
        let Phase::Opening(Some(message)) = &state.phase else {
            return Err(Error::internal("a reservation comes before its task"));
        };
        (Arc::clone(message), state.attached.webhook.clone(), state.attached.idempotency.clone())
    };
    let body = serde_json::to_vec(&ReservationBody { message, webhook }).map_err(Error::internal)?.into();
    Ok(Reservation { scope: Arc::clone(&live.scope), task_id: live.id.clone(), idempotency, at: now(), body })
}
