//! What an owner that is gone has left behind, and what is past its time.
//!
//! A task that never began runs. One that had begun runs again if the agent is idempotent; else it ends
//! as failed, and says why: nothing is done twice, and nothing stays in progress for ever. So does the task of a
//! message that was reserved (`reserve`).

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use nuncio_protocol::{ErrorKind, Message, Result, Task, TaskState, Timestamp};
use tokio::{
    sync::oneshot,
    time::{Instant, sleep, timeout},
};

use super::{
    Core, execution,
    in_flight::InFlightGuard,
    live::LiveTaskRef,
    record::Recorder,
    stored_turn::TurnBody,
    turn::{FollowUpTurn, Job, OpeningTurn, Turn},
};
use crate::{
    clock::now,
    store::{Orphan, Prune, Pruned, Scope, StoreError, StoredTurn},
};

/// How often it is looked for what others have left. With the time after which an owner counts as gone
/// this stays under ten seconds.
const RECOVERY_INTERVAL: Duration = Duration::from_secs(2);

/// How often the references of a message are looked for before it runs without them.
const MAX_REFERENCE_READS: usize = 30;

/// How many tasks are taken over, or forgotten, at a time.
const AT_A_TIME: usize = 256;

/// How often it is looked for what is past its time.
const PRUNE_INTERVAL: Duration = Duration::from_secs(600);

pub(super) const NOT_RUN_AGAIN: &str = "the server stopped while the agent was at work on this task; it was not run again, \
                             because the agent is not marked as idempotent";

/// How long tasks are kept after their last status. What is not named is kept for ever.
#[derive(Clone, Debug, Default)]
pub struct Retention {
    tasks: Vec<(TaskState, Duration)>,
    replies: Option<Duration>,
}

impl Retention {
    /// Tasks that have ended, and direct replies under idempotency keys, for so long.
    #[must_use]
    pub fn finished(age: Duration) -> Self {
        let ended = TaskState::ALL.iter().filter(|state| state.is_terminal());
        Self { tasks: ended.map(|state| (*state, age)).collect(), replies: Some(age) }
    }

    /// Tasks in this state for so long; no effect for states of progress.
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
    /// Held while what others have left behind is taken up.
    lock: tokio::sync::Mutex<()>,
    retention: Retention,
}

impl Recovery {
    pub(super) fn new(retention: Retention) -> Self {
        Self { lock: tokio::sync::Mutex::default(), retention }
    }
}

/// Looks after the store for as long as the runtime lives.
pub(super) fn spawn_maintenance(core: &Arc<Core>) {
    if core.keeps_turns() || !core.recovery.retention.is_for_ever() {
        tokio::spawn(run(Arc::downgrade(core)));
    }
}

async fn run(core: Weak<Core>) {
    let mut prune_at = Instant::now();
    while let Some(core) = core.upgrade().filter(|core| core.lifecycle.check_open().is_ok()) {
        if let Err(error) = core.recover().await {
            tracing::warn!(%error, "tasks that others left behind could not be taken over; trying again");
        }
        if Instant::now() >= prune_at {
            prune_at = Instant::now() + PRUNE_INTERVAL;
            if let Err(error) = core.prune().await {
                tracing::warn!(%error, "tasks past their time could not be forgotten; trying again later");
            }
        }
        drop(core);
        sleep(RECOVERY_INTERVAL).await;
    }
}

impl Core {
    /// Takes up what others have left behind; when it returns, all of that is running or has ended.
    async fn recover(self: &Arc<Self>) -> Result<(), StoreError> {
        let _alone = self.recovery.lock.lock().await;
        loop {
            let orphans = self.store.adopt(&self.agent.name, AT_A_TIME).await?;
            if orphans.is_empty() {
                return self.fail_abandoned().await;
            }
            for orphan in orphans {
                let id = orphan.stored.task.id.clone();
                if let Err(error) = self.take_up(orphan).await {
                    tracing::error!(task = %id, %error, "a task that was left behind could not be taken up");
                }
            }
        }
    }

    /// The same now, for somebody who will not wait for long, and may leave: what is adopted is also run.
    pub(super) async fn recover_now(self: &Arc<Self>) {
        if self.lifecycle.check_open().is_err() {
            return;
        }
        let core = Arc::clone(self);
        let recovered = tokio::spawn(async move { core.recover().await });
        if let Ok(Ok(Err(error))) = timeout(self.limits.cancel_grace, recovered).await {
            tracing::warn!(%error, "tasks that others left behind could not be taken over");
        }
    }

    async fn take_up(self: &Arc<Self>, orphan: Orphan) -> Result<()> {
        let Orphan { scope, stored, busy, turns } = orphan;
        let live = self.registry.revive(&scope, stored.clone());
        // Somebody may have looked at it before it was ours.
        live.follow(stored);
        // A webhook may have been registered since it was read; the store knows.
        live.lock().pushes = true;
        let first = turns.first().map(|turn| TurnBody::decode(turn).map(|body| (body.opens(), turn.begun)));
        let runs = match first.transpose().unwrap_or_else(|error| {
            tracing::error!(task = %live.id, %error, "a turn that was left behind cannot be read");
            None
        }) {
            Some((opens, false)) => opens || !busy,
            Some((_, true)) => self.agent.is_idempotent(),
            None => false,
        };
        if !runs {
            tracing::info!(task = %live.id, "a task was left in progress and is ended as failed");
            return Recorder::new(self, &live).end(TaskState::Failed, Some(NOT_RUN_AGAIN)).await.map(drop);
        }
        tracing::info!(task = %live.id, turns = turns.len(), "a task was left behind and goes on");
        let task = live.lock().task().cloned().ok_or(ErrorKind::Internal)?;
        for turn in turns {
            let turn = self.restore(&live, &task, turn).await?;
            live.lock().queue.push_back(turn);
        }
        self.run_queue(&live);
        Ok(())
    }

    /// A turn as it was.
    async fn restore(self: &Arc<Self>, live: &LiveTaskRef, task: &Task, turn: StoredTurn) -> Result<Turn> {
        let (scope, body) = (&live.scope, TurnBody::decode(&turn)?);
        let opens = body.opens();
        // Else recorded already, with the task or with the mark that it has begun.
        let key = body.key().filter(|_| !opens && !turn.begun);
        let in_flight = key.as_ref().and_then(|key| self.sends.enter(key, live).ok());
        in_flight.iter().for_each(InFlightGuard::waits);
        let call = body.call(scope);
        let message = body.message.or_else(|| task.history.first().cloned()).ok_or(ErrorKind::Internal)?;
        let job = Job {
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
            Turn::Opening(Box::new(OpeningTurn { job, acknowledged: Some(turn.id), reservation: None }))
        } else {
            // Its webhook was registered before it was stored. Whoever said it is gone.
            let (begun, _) = oneshot::channel();
            Turn::FollowUp(Box::new(FollowUpTurn { job, key, webhook: None, stored: Some(turn), begun }))
        })
    }

    /// The tasks that the message of such a turn refers to. The turn is ours now, and nobody else will run
    /// it: a store that is not there is waited for, but they are a hint, and not worth everything.
    async fn references_left(&self, scope: &Arc<Scope>, message: &Message) -> Vec<Task> {
        for _ in 0..MAX_REFERENCE_READS {
            match self.references(scope, message).await {
                Ok(references) => return references,
                Err(error) => {
                    tracing::warn!(%error, "what a message refers to could not be read; trying again");
                }
            }
            sleep(RECOVERY_INTERVAL).await;
        }
        Vec::new()
    }

    /// Runs what waits for this task, when there is room for another execution.
    fn run_queue(self: &Arc<Self>, live: &LiveTaskRef) {
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
                let pruned = self.store.prune(&prune, AT_A_TIME).await?;
                forgotten += pruned;
                if pruned < AT_A_TIME {
                    break;
                }
            }
        }
        if forgotten > 0 {
            tracing::info!(agent = %self.agent.name, forgotten, "forgot what was past its time");
        }
        Ok(())
    }
}
