//! Reservations: the store knows that a message is about to be executed before its executor sees it, so that
//! nothing is done twice, and nothing without a task that tells of it.
//!
//! | what is executed | what is committed before |
//! |---|---|
//! | a message that begins a task | the task's id with the key ([`Reservation`]); the task itself is there from its first event on |
//! | the same, its caller does not wait, and its executor always leaves a task | the task, with its key and its turn (`stored_turn`) |
//! | a message to a task | the message, with its key, as an entry of the log |
//!
//! An executor that is idempotent needs none of this, and a store in memory ends with the process.

use std::{sync::Arc, time::Duration};

use futures_util::future::join_all;
use nuncio_protocol::{CallContext, Error, Message, Result, Seq, TaskState};
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, sleep, timeout};
use tracing::Instrument as _;

use super::{
    COMMIT_PATIENCE, Core,
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
    store::{IdempotencyKey, Reservation, StoreError, Webhook},
};

/// How often a message that another server has reserved is looked for.
const POLL_INTERVAL: Duration = Duration::from_millis(250);

/// How many reservations are read at a time.
const PAGE: usize = 256;

/// The body of a reservation: what the task begins with.
#[derive(Serialize, Deserialize)]
struct ReservationBody {
    message: Arc<Message>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    webhook: Option<Webhook>,
}

impl Core {
    /// True if the store is to know of a message before the executor does; `keyed` if it came with a key.
    pub(super) fn writes_ahead(&self, keyed: bool) -> bool {
        self.keeps_turns()
            && !self.agent.is_idempotent()
            && (keyed || self.agent.current().executor.always_leaves_task())
    }

    /// Reserves the task of a turn, and runs it. Where another server has the key already, that one's answer is
    /// waited for.
    pub(super) async fn begin_reserved(
        self: &Arc<Self>,
        cx: &CallContext,
        live: LiveTaskRef,
        turn: Box<OpeningTurn>,
        permit: TaskPermit,
    ) -> Result<Admitted> {
        let (core, handle) = (Arc::clone(self), live.clone());
        // Not by the caller, who may leave: what is reserved is also run.
        let begun = self
            .lifecycle
            .executions
            .spawn(async move { core.reserve_and_start(&handle, turn, permit).await }.in_current_span());
        let begun = timeout(COMMIT_PATIENCE, begun).await.map_err(|_| unavailable())?;
        if begun.map_err(Error::internal)?? {
            return Ok(Admitted::Task(live, Begun { turn: Seq::ZERO, task: None }));
        }
        self.taken_elsewhere(cx, live.key.as_ref(), &live).await?.ok_or_else(unavailable)
    }

    /// False if the key is taken; then nothing was begun.
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
                // It may be there or not. Until it is certain that it is not, a repeat waits behind this turn.
                let (core, live) = (Arc::clone(self), live.clone());
                self.lifecycle.executions.spawn(async move {
                    core.release(&live).await;
                    drop((turn, permit));
                });
                return Err(error.into());
            }
        }
        if live.lock().is_lost() {
            // Its caller was erased meanwhile.
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

    /// What became of a message under a key that another server has, if one has.
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

    /// Waits a moment for the answer to a message that is reserved. Of one that is abandoned the answer is that it
    /// has failed.
    pub(super) async fn await_reserved(
        self: &Arc<Self>,
        reservation: Reservation,
        abandoned: bool,
        until: Instant,
    ) -> Result<()> {
        if abandoned {
            return self.fail_reserved(reservation).await;
        }
        if Instant::now() >= until {
            return Err(unavailable());
        }
        sleep(POLL_INTERVAL).await;
        Ok(())
    }

    /// Gives a reservation back, when the store is there.
    pub(super) async fn release(&self, live: &LiveTaskRef) {
        if let Err(error) = self.journal.retry_while_down(|| self.store.release(&live.scope, &live.id)).await
        {
            tracing::error!(task = %live.id, %error, "a reservation could not be released; the next server ends it as failed");
        }
    }

    /// Makes the task of a reservation whose execution has come to nothing, as failed. If another server does the
    /// same, or the caller was erased, that stands.
    pub(super) async fn fail_reserved(self: &Arc<Self>, reservation: Reservation) -> Result<()> {
        let Reservation { scope, task_id, body, .. } = reservation;
        let ReservationBody { message, webhook } =
            serde_json::from_slice(&body).map_err(StoreError::broken)?;
        let context_id = message.context_id.clone().unwrap_or_else(new_id);
        let live = self.registry.begin_apart(task_id, context_id, scope, message, None);
        {
            let mut state = live.lock();
            // Whoever owns it has ended.
            state.owned_elsewhere = true;
            (state.attached.reserved, state.attached.webhook) = (true, webhook);
        }
        tracing::info!(task = %live.id, "a message was at work when its server stopped; its task is ended as failed");
        Recorder::new(self, &live).end(TaskState::Failed, Some(NOT_RUN_AGAIN)).await?;
        live.until_committed().await;
        Ok(())
    }

    /// Ends what servers that are gone have reserved.
    pub(super) async fn fail_abandoned(self: &Arc<Self>) -> Result<(), StoreError> {
        loop {
            let abandoned = self.store.abandoned(&self.agent.name, PAGE).await?;
            let is_last = abandoned.len() < PAGE;
            let failed = join_all(abandoned.into_iter().map(|left| self.fail_reserved(left))).await;
            let problem = failed.into_iter().find_map(Result::err);
            if let Some(error) = &problem {
                tracing::error!(%error, "a task of which nothing is known could not be ended");
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

/// What is committed before the message that begins this task is executed.
fn reservation_of(live: &LiveTaskRef) -> Result<Reservation> {
    let (message, webhook, idempotency) = {
        let state = live.lock();
        state.check_kept()?;
        let Phase::Opening(message) = &state.phase else {
            return Err(Error::internal("a reservation comes before its task"));
        };
        (Arc::clone(message), state.attached.webhook.clone(), state.attached.idempotency.clone())
    };
    let body = serde_json::to_vec(&ReservationBody { message, webhook }).map_err(Error::internal)?.into();
    Ok(Reservation { scope: Arc::clone(&live.scope), task_id: live.id.clone(), idempotency, at: now(), body })
}
