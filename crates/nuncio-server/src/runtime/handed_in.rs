//! Messages to a task that another server works on, where several servers share a store (decision 0018).
//!
//! ```text
//! any server:  message ─► TaskLog::hand_in ─► signal        the owner:  TaskLog::waiting_turns ─► its queue
//!                 └─► waits on the log  ◄──────── the entry with the message ◄──── the turn begins
//! ```
//! An accepted hand-in is committed: the turn begins at the owner, or at the server that adopts the task. The
//! caller waits on the log, and needs nothing of the owner's memory.

use std::{
    collections::HashSet,
    sync::{Arc, Weak},
    time::Duration,
};

use nuncio_protocol::{CallContext, Error, ErrorKind, Event, Message, Result, Seq, TaskId};
use tokio::time::{sleep, timeout, timeout_at};

use super::{
    Core,
    admit::Admitted,
    execution,
    feed::{Awaited, Feed, Start, Until},
    follow_up::{ATTEMPTS, Attempt, FollowUp, RETRY_PAUSE, too_many_wait},
    live::{LiveTask, LiveTaskRef},
    stored_turn::TurnBody,
    turn::FollowUpTurn,
};
use crate::{
    clock::now,
    store::{
        HandIn, Heard, IdempotencyKey, Refused, StoreError, StoredTurn, Subscription, Topic, TurnChange,
        WaitingQuery, WaitingTurn,
    },
};

/// The number of entries that are read at once.
const PAGE: usize = 128;

/// The number of turns that are read at once. Each has a whole message.
const TURNS: usize = 16;

/// The interval at which the loop checks whether its runtime is still there.
const LIVENESS_INTERVAL: Duration = Duration::from_secs(60);

/// Begins the keys of messages that have none. No header can have it, so that no caller's key is taken for one.
const TURN_ID: &str = "\u{1f}turn:";

impl Core {
    /// Hands a message in to the owner of its task, and waits until its turn begins.
    pub(super) async fn hand_in(
        self: &Arc<Self>,
        cx: &CallContext,
        live: &LiveTaskRef,
        mut turn: FollowUpTurn,
        said: &FollowUp,
        from: Seq,
    ) -> Result<Attempt> {
        if let Some(webhook) = turn.webhook.take() {
            // Registered now, as for any turn that waits.
            self.register(&live.scope, &live.id, webhook).await?;
        }
        // The key has its answer from now on. The turn must not claim it once more.
        let stored = TurnBody::follow_up(&turn.job, None).encode(false)?;
        let handed = HandIn {
            key: said.key.clone().unwrap_or_else(|| key_of(&stored)),
            turn: stored,
            at: now(),
            max_waiting: self.limits.queue,
        };
        let hand_in = || self.store.hand_in(&live.scope, &live.id, handed.clone());
        let handed = timeout_at(self.patience(cx), self.journal.retry_while_down(hand_in)).await;
        match handed.map_err(|_| super::unavailable())?? {
            Ok(()) => {}
            Err(Refused::NotFound) => return Err(Error::task_not_found(&live.id)),
            Err(Refused::Version(_)) => return Err(execution::terminal()),
            Err(Refused::Full) => return Err(too_many_wait()),
            // The task is at rest or ours now, or the key has an answer.
            Err(Refused::NotHeld | Refused::KeyTaken | Refused::Held | Refused::Record) => {
                return Ok(Attempt::Refused);
            }
        }
        // Repeats find the answer in the store.
        drop(turn);
        if said.immediately {
            return Ok(Attempt::Admitted(Admitted::Queued(live.clone())));
        }
        self.until_begun(cx, live, said, from).await.map(Attempt::Admitted)
    }

    /// A repeat of a message to a task: its turn is over, has begun, or still waits at any server.
    pub(super) async fn known_follow_up(
        self: &Arc<Self>,
        cx: &CallContext,
        live: &LiveTaskRef,
        said: &FollowUp,
        from: Seq,
    ) -> Result<Admitted> {
        let message = as_stored(&said.message);
        let waits = {
            let state = live.lock();
            let is_recorded =
                state.task().is_some_and(|task| task.history.iter().any(|known| **known == message));
            !said.immediately && !is_recorded && !state.state().is_terminal() && !state.is_lost()
        };
        if waits {
            self.until_begun(cx, live, said, from).await
        } else {
            Ok(Admitted::Known(live.id.clone()))
        }
    }

    /// True if a key has an answer, which another server has stored since its message came here.
    pub(super) async fn is_answered(&self, live: &LiveTask, key: &IdempotencyKey) -> bool {
        if !self.store.is_shared() {
            return false;
        }
        let answer = || self.store.idempotent_outcome(&live.scope, &key.key);
        match self.journal.retry_while_down(answer).await {
            Ok(answer) => answer.is_some(),
            // The commit decides.
            Err(_) => false,
        }
    }

    /// Waits until the turn of a stored message begins, at whichever server: its message is then an entry after
    /// `from`.
    pub(super) async fn until_begun(
        self: &Arc<Self>,
        cx: &CallContext,
        live: &LiveTaskRef,
        said: &FollowUp,
        from: Seq,
    ) -> Result<Admitted> {
        let (patience, message) = (self.patience(cx), as_stored(&said.message));
        for tried in 1..=ATTEMPTS {
            let live = self.live(&live.scope, &live.id).await?;
            let feed = Feed::open(self, live.clone(), None, Start::After(from), Until::Terminal);
            let awaited = async { feed.await?.until_message(&message).await };
            match timeout_at(patience, awaited).await {
                Ok(Ok(Awaited::Message(live, seq))) => return Ok(Admitted::Joined(live, seq)),
                Ok(Ok(Awaited::End)) => return Err(execution::terminal()),
                // It is stored, and begins at another server or after this time.
                Ok(Ok(Awaited::Drain)) | Err(_) => return Ok(Admitted::Queued(live)),
                // Another server has written, and memory was behind: look again.
                Ok(Err(error)) if error.kind() == ErrorKind::Unavailable => {
                    self.journal.check()?;
                    sleep(RETRY_PAUSE * tried).await;
                }
                Ok(Err(error)) => return Err(error),
            }
        }
        Err(super::unavailable())
    }

    /// The number of the first entry after `after` that is this message.
    pub(super) async fn find_message(
        &self,
        live: &LiveTask,
        mut after: Seq,
        message: &Message,
    ) -> Result<Option<Seq>, StoreError> {
        let message = as_stored(message);
        loop {
            let entries = self.store.events(&live.scope, &live.id, after, PAGE).await?;
            let Some(last) = entries.last() else { return Ok(None) };
            after = last.seq;
            let found = entries.iter().find(|entry| is_message(&entry.event, &message));
            if let Some(entry) = found {
                return Ok(Some(entry.seq));
            }
        }
    }
}

/// True if the event is this message of a caller.
pub(super) fn is_message(event: &Event, message: &Message) -> bool {
    matches!(event, Event::Message(said) if **said == *message)
}

/// The message as it is after it was stored, which may have lost details.
fn as_stored(message: &Message) -> Message {
    let stored = || serde_json::from_slice(&serde_json::to_vec(message).ok()?).ok();
    stored().unwrap_or_else(|| message.clone())
}

/// A key that no other message has.
fn key_of(turn: &StoredTurn) -> IdempotencyKey {
    IdempotencyKey { key: format!("{TURN_ID}{}", turn.id).into(), digest: [0; 32] }
}

/// Takes turns that were handed in, for as long as the runtime lives.
pub(super) fn spawn_take(core: &Arc<Core>) {
    if core.store.is_shared() {
        let heard = core.store.signals().subscribe(Topic::Turns(Arc::clone(&core.agent.name)));
        tokio::spawn(run(Arc::downgrade(core), heard));
    }
}

async fn run(core: Weak<Core>, mut signals: Subscription) {
    loop {
        let heard = timeout(LIVENESS_INTERVAL, signals.next()).await;
        let Some(core) = core.upgrade().filter(|core| core.lifecycle.check_open().is_ok()) else { return };
        if let Ok(heard) = heard
            && let Err(error) = core.take_handed_in(&heard).await
        {
            tracing::debug!(%error, "turns that were handed in could not be read; trying again");
        }
    }
}

/// The tasks at which turns may wait; `None`: any.
fn tasks(heard: &Heard) -> Option<Vec<TaskId>> {
    let named = |keys: &HashSet<String>| keys.iter().map(|key| TaskId::from(key.as_str())).collect();
    match heard {
        Heard::Keys(keys) if !keys.contains("") => Some(named(keys)),
        Heard::Keys(_) | Heard::Everything => None,
    }
}

impl Core {
    async fn take_handed_in(self: &Arc<Self>, heard: &Heard) -> Result<(), StoreError> {
        let tasks = tasks(heard);
        loop {
            // Adopted turns are queued before others of their task.
            let _alone = self.recovery.alone().await;
            let (_look, except) = self.turns.look();
            let query = WaitingQuery {
                agent: Arc::clone(&self.agent.name),
                tasks: tasks.clone(),
                except,
                limit: TURNS,
            };
            let waiting = self.store.waiting_turns(&query).await;
            let (found, mut taken) = (waiting.as_ref().map_or(0, Vec::len), 0);
            for waiting in waiting? {
                taken += usize::from(self.take_waiting(waiting).await);
            }
            if found < TURNS || taken == 0 {
                return Ok(());
            }
        }
    }

    /// Queues a turn that waits at a task of ours; false if it could not be taken.
    async fn take_waiting(self: &Arc<Self>, waiting: WaitingTurn) -> bool {
        let WaitingTurn { scope, task_id, turn } = waiting;
        let Some(in_hand) = self.turns.note(&turn.id) else { return false };
        let taken = async {
            let live = self.live(&scope, &task_id).await?;
            let task = live.lock().task().cloned().ok_or_else(super::unavailable)?;
            let id = Arc::clone(&turn.id);
            match self.restore(&live, &task, turn, Some(in_hand)).await {
                Ok(turn) => {
                    let mut state = live.lock();
                    state.check_kept()?;
                    state.queue.push_back(turn);
                }
                Err(error) => {
                    // Nobody can ever run it.
                    let _ = self.update_turn(&live, TurnChange::Drop(id)).await;
                    return Err(error);
                }
            }
            live.announce();
            self.run_queue(&live);
            Ok(())
        };
        let taken: Result<()> = taken.await;
        if let Err(error) = &taken {
            tracing::warn!(task = %task_id, %error, "a message that another server has handed in could not be taken; trying again");
        }
        taken.is_ok()
    }
}
