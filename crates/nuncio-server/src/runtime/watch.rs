//! Live tasks that other owners write to, where owners share a store: what is shown here follows what they
//! write, and what runs here stops when one of them has taken its task.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use nuncio_protocol::{Seq, TaskId};

use super::{Core, live::LiveTaskRef};

/// How often it is looked whether others have written.
const POLL_INTERVAL: Duration = Duration::from_millis(250);

/// Watches for as long as the runtime lives; one question to the store for all live tasks.
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
            // What is on its way to the store is checked there.
            state.committed().seq > Seq::ZERO && state.is_committed() && !state.has_ended()
        });
        if live.is_empty() {
            return;
        }
        let known: Vec<(TaskId, Seq)> =
            live.iter().map(|live| (live.id.clone(), live.lock().committed().seq)).collect();
        // A store that is down will be back, and has taken in nothing meanwhile.
        let moved = self.store.changed_since(&known).await.unwrap_or_default();
        for live in live.iter().filter(|live| moved.contains(&live.id)) {
            self.follow_other(live).await;
        }
    }

    async fn follow_other(&self, live: &LiveTaskRef) {
        // One that is gone is found out by whoever reads it.
        let Ok(Some(stored)) = self.store.task(&live.scope, &live.id).await else { return };
        let taken = {
            let state = live.lock();
            // What was recorded here meanwhile is ours.
            state.running.is_some() && stored.seq > state.folded().seq
        };
        if taken {
            tracing::info!(task = %live.id, "another owner has taken a task that runs here; it is stopped");
            live.evict();
        } else {
            live.follow(stored);
        }
    }
}
