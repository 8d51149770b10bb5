//! Polls a shared store for writes of other servers to live tasks. Tasks here follow those writes, and an
//! execution here stops when another server has taken its task over.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use nuncio_protocol::{ErrorKind, Result, Seq, TaskId};

use super::{
    Core,
    live::{LiveTask, LiveTaskRef},
};

/// The interval at which the store is polled.
const POLL_INTERVAL: Duration = Duration::from_millis(250);

/// Polls for as long as the runtime lives, with one query for all live tasks.
pub(super) fn spawn_watch(core: &Arc<Core>) {
    if core.store.is_shared() {
        tokio::spawn(run(Arc::downgrade(core)));
    }
}

async fn run(core: Weak<Core>) {
    loop {
        tokio::time::sleep(POLL_INTERVAL).await;
        let Some(core) = core.upgrade() else { return };
        core.follow_others().await;
    }
}

impl Core {
    async fn follow_others(self: &Arc<Self>) {
        let mut live = self.registry.all();
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
        // A store that is down has accepted no writes meanwhile; the next poll finds later ones.
        let moved = self.store.changed_since(&known).await.unwrap_or_default();
        for live in live.iter().filter(|live| moved.contains(&live.id)) {
            self.follow_other(live).await;
        }
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
            state.owned_elsewhere || state.state().is_terminal()
        };
        if continues { Ok(live) } else { Err(super::unavailable()) }
    }

    async fn follow_other(&self, live: &LiveTaskRef) {
        // A deleted task is noticed when it is read.
        let Ok(Some(stored)) = self.store.task(&live.scope, &live.id).await else { return };
        let taken = {
            let state = live.lock();
            // Entries that this server recorded meanwhile do not count.
            state.running.is_some() && stored.seq > state.folded().seq
        };
        if taken {
            tracing::info!(task = %live.id, "another server has taken over a task; its execution here is stopped");
            live.evict();
        } else {
            live.follow(stored);
        }
    }
}
