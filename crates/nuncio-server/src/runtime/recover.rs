//! Recovery of the tasks of stopped servers, and retention.
//!
//! A turn that had not begun runs. A turn that had begun runs again if the agent is idempotent; otherwise its
//! task ends as failed, with the reason. So does the task of a reserved message (`reserve`). Therefore an
//! agent that is not idempotent gets no message twice, and no task stays in progress for ever.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use nuncio_protocol::{ErrorKind, Message, Result, Task, TaskState, Timestamp};
use tokio::{
    sync::{MutexGuard, oneshot},
    time::{Instant, sleep, timeout},
};

use super::{
    Core, execution,
    in_flight::InFlightGuard,
    live::LiveTaskRef,
    record::Recorder,
    stored_turn::TurnBody,
    turn::{ExecutionInput, FollowUpTurn, OpeningTurn, Turn},
    turns_in_hand::TurnInHand,
};
use crate::{
    clock::now,
    store::{Orphan, Prune, Pruned, Scope, StoreError, StoredTurn, Subscription, Topic},
};

/// The interval at which orphaned tasks are looked for in a store that is not shared, and of attempts after an
/// error. A shared store tells of orphans (`Topic::Orphans`).
const RECOVERY_INTERVAL: Duration = Duration::from_secs(2);

/// The interval at which maintenance checks whether its runtime is still there.
const LIVENESS_INTERVAL: Duration = Duration::from_secs(60);

/// The maximum number of attempts to read the references of a message before it runs without them.
const MAX_REFERENCE_READS: usize = 30;

/// The number of tasks that are adopted, or pruned, at once.
const RECOVERY_BATCH: usize = 256;

/// The interval at which expired tasks are pruned.
const PRUNE_INTERVAL: Duration = Duration::from_secs(600);

pub(super) const NOT_RUN_AGAIN: &str = "the server stopped while the agent was at work on this task; it was not run again, \
                             because the agent is not marked as idempotent";

/// The time for which tasks are kept after their last status. A state without a time is kept for ever.
#[derive(Clone, Debug, Default)]
pub struct Retention {
    tasks: Vec<(TaskState, Duration)>,
    replies: Option<Duration>,
}

impl Retention {
    /// Keeps ended tasks, and direct replies under idempotency keys, for this time.
    #[must_use]
    pub fn finished(age: Duration) -> Self {
        let ended = TaskState::ALL.iter().filter(|state| state.is_terminal());
        Self { tasks: ended.map(|state| (*state, age)).collect(), replies: Some(age) }
    }

    /// Keeps tasks in this state for this time. Has no effect for states that are not settled.
    #[must_use]
    pub fn state(mut self, state: TaskState, age: Duration) -> Self {
        self.tasks.retain(|(known, _)| *known != state);
        if state.is_settled() {
            self.tasks.push((state, age));
        }
        self
    }

    fn is_for_ever(&self) -> bool {
        self.tasks.is_empty() && self.replies.is_none()
    }

    fn due(&self, agent: &Arc<str>, now: Timestamp) -> Vec<Prune> {
        let replies = self.replies.map(|age| (Pruned::Replies, age));
        let tasks = self.tasks.iter().map(|(state, age)| (Pruned::Tasks(*state), *age));
        let due = |(what, age): (Pruned, Duration)| {
            let before = now.as_millis().checked_sub(i64::try_from(age.as_millis()).ok()?)?;
            Some(Prune { agent: Arc::clone(agent), what, before: Timestamp::from_millis(before)? })
        };
        tasks.chain(replies).filter_map(due).collect()
    }
}

/// The state of recovery and retention.
pub(super) struct Recovery {
    /// Held while orphaned tasks are adopted.
    lock: tokio::sync::Mutex<()>,
    retention: Retention,
}

impl Recovery {
    pub(super) fn new(retention: Retention) -> Self {
        Self { lock: tokio::sync::Mutex::default(), retention }
    }

    /// Waits until nobody adopts tasks, and keeps others from it.
    pub(super) async fn alone(&self) -> MutexGuard<'_, ()> {
        self.lock.lock().await
    }
}

/// Spawns recovery and pruning, for as long as the runtime lives.
pub(super) fn spawn_maintenance(core: &Arc<Core>) {
    if core.keeps_turns() || !core.recovery.retention.is_for_ever() {
        let shared = core.store.is_shared();
        let orphans =
            shared.then(|| core.store.signals().subscribe(Topic::Orphans(Arc::clone(&core.agent.name))));
        tokio::spawn(run(Arc::downgrade(core), orphans));
    }
}

async fn run(core: Weak<Core>, mut orphans: Option<Subscription>) {
    let (mut prune_at, mut recover) = (Instant::now(), true);
    while let Some(core) = core.upgrade().filter(|core| core.lifecycle.check_open().is_ok()) {
        let mut failed = false;
        if recover && let Err(error) = core.recover().await {
            tracing::warn!(%error, "tasks of stopped servers could not be adopted; trying again");
            failed = true;
        }
        if Instant::now() >= prune_at {
            prune_at = Instant::now() + PRUNE_INTERVAL;
            if let Err(error) = core.prune().await {
                tracing::warn!(%error, "expired tasks could not be pruned; trying again later");
            }
        }
        drop(core);
        recover = match &mut orphans {
            Some(orphans) if !failed => timeout(LIVENESS_INTERVAL, orphans.next()).await.is_ok(),
            _ => {
                sleep(RECOVERY_INTERVAL).await;
                true
            }
        };
    }
}

impl Core {
    /// Adopts orphaned tasks. When it returns, all of them run or have ended.
    async fn recover(self: &Arc<Self>) -> Result<(), StoreError> {
        let _alone = self.recovery.alone().await;
        loop {
            let orphans = self.store.adopt(&self.agent.name, RECOVERY_BATCH).await?;
            if orphans.is_empty() {
                return self.fail_abandoned().await;
            }
            for orphan in orphans {
                let id = orphan.stored.task.id.clone();
                if let Err(error) = self.take_up(orphan).await {
                    tracing::error!(task = %id, %error, "a task of a stopped server could not be adopted");
                }
            }
        }
    }

    /// Recovers now, for a caller that waits only a short time. Spawned, because the caller may disconnect:
    /// adopted tasks must also run.
    pub(super) async fn recover_now(self: &Arc<Self>) {
        if self.lifecycle.check_open().is_err() {
            return;
        }
        let core = Arc::clone(self);
        let recovered = tokio::spawn(async move { core.recover().await });
        if let Ok(Ok(Err(error))) = timeout(self.limits.cancel_grace, recovered).await {
            tracing::warn!(%error, "tasks of stopped servers could not be adopted");
        }
    }

    async fn take_up(self: &Arc<Self>, orphan: Orphan) -> Result<()> {
        let Orphan { scope, stored, busy, turns } = orphan;
        let live = self.registry.revive(&scope, stored.clone());
        // A copy from before the adoption may be live already.
        live.follow(stored);
        // A webhook may have been registered since the task was read; the store decides at the commit.
        live.lock().pushes = true;
        let first = turns.first().map(|turn| TurnBody::decode(turn).map(|body| (body.opens(), turn.begun)));
        let runs = match first.transpose().unwrap_or_else(|error| {
            tracing::error!(task = %live.id, %error, "a stored turn of a stopped server cannot be decoded");
            None
        }) {
            Some((opens, false)) => opens || !busy,
            Some((_, true)) => self.agent.is_idempotent(),
            None => false,
        };
        if !runs {
            tracing::info!(task = %live.id, "a task of a stopped server was adopted and ends as failed");
            return Recorder::new(self, &live).end(TaskState::Failed, Some(NOT_RUN_AGAIN)).await.map(drop);
        }
        tracing::info!(task = %live.id, turns = turns.len(), "a task of a stopped server was adopted and continues");
        let task = live.lock().task().cloned().ok_or(ErrorKind::Internal)?;
        for turn in turns {
            let in_hand = if turn.begun { None } else { self.turns.note(&turn.id) };
            let turn = self.restore(&live, &task, turn, in_hand).await?;
            live.lock().queue.push_back(turn);
        }
        self.run_queue(&live);
        Ok(())
    }

    /// Restores a turn from the store.
    pub(super) async fn restore(
        self: &Arc<Self>,
        live: &LiveTaskRef,
        task: &Task,
        turn: StoredTurn,
        in_hand: Option<TurnInHand>,
    ) -> Result<Turn> {
        let (scope, mut body) = (&live.scope, TurnBody::decode(&turn)?);
        let opens = body.opens();
        // The key of other turns is recorded already: with the task, or with the beginning of the turn.
        let key = body.key().filter(|_| !opens && !turn.begun);
        let in_flight = key.as_ref().and_then(|key| self.sends.enter(key, live).ok());
        in_flight.iter().for_each(InFlightGuard::waits);
        let call = body.call(scope);
        let message = body.take_message(task).ok_or(ErrorKind::Internal)?;
        let job = ExecutionInput {
            references: self.references_left(scope, &message).await,
            message,
            configuration: body.configuration,
            metadata: body.metadata,
            call,
            repeat_id: body.name,
            in_flight,
        };
        Ok(if turn.begun {
            Turn::Resumed(Box::new(job))
        } else if opens {
            Turn::Opening(Box::new(OpeningTurn { job, acknowledged: in_hand, reservation: None }))
        } else {
            // The webhook was registered before the turn was stored. The caller has gone.
            let (begun, _) = oneshot::channel();
            Turn::FollowUp(Box::new(FollowUpTurn {
                job,
                key,
                webhook: None,
                stored: Some(turn),
                in_hand,
                begun,
            }))
        })
    }

    /// The tasks that the message of an adopted turn refers to. No other server will run the turn, so this
    /// waits while the store is down; but references are only a hint, so it gives up after some attempts.
    async fn references_left(&self, scope: &Arc<Scope>, message: &Message) -> Vec<Task> {
        for _ in 0..MAX_REFERENCE_READS {
            match self.references(scope, message).await {
                Ok(references) => return references,
                Err(error) => {
                    tracing::warn!(%error, "the tasks that a message refers to could not be read; trying again");
                }
            }
            sleep(RECOVERY_INTERVAL).await;
        }
        Vec::new()
    }

    /// Runs the queued turns of this task as soon as there is a permit for another execution.
    pub(super) fn run_queue(self: &Arc<Self>, live: &LiveTaskRef) {
        let (first, stopped) = {
            let mut state = live.lock();
            if state.running.is_some() {
                return;
            }
            let Some(first) = state.queue.pop_front() else { return };
            let running = execution::running();
            let stopped = running.token.clone();
            state.running = Some(running);
            (first, stopped)
        };
        let (core, handle) = (Arc::clone(self), live.clone());
        let counted = self.capacity.resume(&live.scope);
        self.lifecycle.executions.spawn(async move {
            let stopped = stopped.cancelled();
            let _permit = core.capacity.resumed_permit(&handle.scope, counted, stopped).await;
            execution::run(core, handle, first).await;
        });
    }

    async fn prune(&self) -> Result<(), StoreError> {
        let mut forgotten = 0;
        for prune in self.recovery.retention.due(&self.agent.name, now()) {
            loop {
                let pruned = self.store.prune(&prune, RECOVERY_BATCH).await?;
                forgotten += pruned;
                if pruned < RECOVERY_BATCH {
                    break;
                }
            }
        }
        if forgotten > 0 {
            tracing::info!(agent = %self.agent.name, forgotten, "pruned expired tasks and replies");
        }
        Ok(())
    }
}
