//! Follows the writes of other servers to live tasks. Tasks here fold the new entries, and an execution here
//! stops when another server has taken its task over.
//!
//! Following costs what happened: signals name the tasks that were written to (`store::Signals`), and only
//! entries after the last known one are read.

use std::sync::{Arc, Weak};

use futures_util::{StreamExt as _, stream};
use nuncio_protocol::{ErrorKind, Result, Seq, TaskId};

use super::{
    Core,
    live::{LiveTask, LiveTaskRef},
};
use crate::store::{Heard, Moved, StoreError, Subscription, Topic};

/// The number of entries that are read at once.
const PAGE: usize = 128;

/// The number of tasks that are read at once.
const CONCURRENT_READS: usize = 8;

/// Follows for as long as the runtime lives.
pub(super) fn spawn_watch(core: &Arc<Core>) {
    if core.store.is_shared() {
        let heard = core.store.signals().subscribe(Topic::Tasks(Arc::clone(&core.agent.name)));
        tokio::spawn(run(Arc::downgrade(core), heard));
    }
}

async fn run(core: Weak<Core>, mut signals: Subscription) {
    loop {
        let heard = signals.next().await;
        let Some(core) = core.upgrade() else { return };
        core.follow_others(&heard).await;
    }
}

impl Core {
    async fn follow_others(self: &Arc<Self>, heard: &Heard) {
        let mut live = match heard {
            Heard::Keys(ids) => self.registry.among(ids),
            Heard::Everything => self.registry.all(),
        };
        live.retain(|live| {
            let state = live.lock();
            // A task with uncommitted entries is skipped: the store checks it at the commit.
            state.committed().seq > Seq::ZERO && state.is_committed() && !state.has_ended()
        });
        if live.is_empty() {
            return;
        }
        let known: Vec<(TaskId, Seq)> =
            live.iter().map(|live| (live.id.clone(), live.lock().committed().seq)).collect();
        // A store that is down has accepted no writes meanwhile; the next look finds later ones.
        let moved = self.store.changed_since(&known).await.unwrap_or_default();
        let moved =
            live.iter().filter_map(|live| Some((live, moved.iter().find(|moved| moved.id == live.id)?)));
        let follow = |(live, moved)| async move {
            if let Err(error) = self.follow_other(live, moved).await {
                tracing::debug!(task = %live.id, %error, "a task of another server could not be read; trying again");
            }
        };
        stream::iter(moved).for_each_concurrent(CONCURRENT_READS, follow).await;
    }

    /// The task that was lost here, as another server continues or has ended it: callers that wait for the
    /// task see that outcome.
    ///
    /// # Errors
    /// No other server has the task, or the store is down.
    pub(super) async fn continued_elsewhere(self: &Arc<Self>, lost: &LiveTask) -> Result<LiveTaskRef> {
        let live = match self.live(&lost.scope, &lost.id).await {
            Err(error) if error.kind() == ErrorKind::TaskNotFound => return Err(super::unavailable()),
            live => live?,
        };
        let continues = {
            let state = live.lock();
            // Another server may have settled the task already, with entries that were never here.
            let goes_on =
                || state.state().is_settled() && !lost.lock().is_stored_up_to(state.committed().seq);
            // It may be here again, with its next turn.
            let is_worked_on = state.owned_elsewhere || state.running.is_some();
            is_worked_on || state.parked || state.state().is_terminal() || goes_on()
        };
        if continues { Ok(live) } else { Err(super::unavailable()) }
    }

    /// Reads the memo of a task that another server has written to since it was read. A store that is down is
    /// asked again.
    pub(super) async fn refresh_memo(&self, live: &LiveTaskRef) {
        if !live.lock().memo_is_old {
            return;
        }
        match self.journal.retry_while_down(|| self.store.task(&live.scope, &live.id)).await {
            Ok(Some(stored)) => {
                let mut state = live.lock();
                (state.memo, state.memo_is_old) = (stored.memo, false);
            }
            Ok(None) => {}
            Err(error) => tracing::error!(task = %live.id, %error, "the memo of a task could not be read"),
        }
    }

    async fn follow_other(&self, live: &LiveTaskRef, moved: &Moved) -> Result<(), StoreError> {
        let taken = {
            let state = live.lock();
            // Entries that this server recorded meanwhile do not count.
            state.running.is_some() && moved.seq > state.folded().seq
        };
        if taken {
            tracing::info!(task = %live.id, "another server has taken over a task; its execution here is stopped");
            live.evict();
            return Ok(());
        }
        loop {
            let after = live.lock().committed().seq;
            if after >= moved.seq {
                return Ok(());
            }
            let entries = self.store.events(&live.scope, &live.id, after, PAGE).await?;
            // A deleted task is noticed when it is read.
            if entries.is_empty() || !live.follow_entries(&entries, moved) {
                return Ok(());
            }
        }
    }
}
