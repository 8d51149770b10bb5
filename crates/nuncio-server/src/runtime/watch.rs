//! Live tasks that other owners write to, where owners share a store: what is shown here follows what they
//! write, and what runs here stops when one of them has taken its task.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use nuncio_protocol::{Seq, TaskId};

use super::{Shared, live::LiveRef};

/// How often it is looked whether others have written.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// Watches for as long as the runtime lives; one question to the store for all live tasks.
pub(super) fn keep_watch(shared: &Arc<Shared>) {
    if shared.store.is_shared() {
        tokio::spawn(run(Arc::downgrade(shared)));
    }
}

async fn run(shared: Weak<Shared>) {
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        let Some(shared) = shared.upgrade() else { return };
        shared.follow_others().await;
    }
}

impl Shared {
    async fn follow_others(self: &Arc<Self>) {
        let mut live = self.registry.all();
        live.retain(|live| {
            let state = live.lock();
            // What is on its way to the store is checked there.
            state.committed.seq > Seq::ZERO && state.is_committed() && !state.has_ended()
        });
        if live.is_empty() {
            return;
        }
        let known: Vec<(TaskId, Seq)> =
            live.iter().map(|live| (live.id.clone(), live.lock().committed.seq)).collect();
        // A store that is down will be back, and has taken in nothing meanwhile.
        let moved = self.store.changed_since(&known).await.unwrap_or_default();
        for live in live.iter().filter(|live| moved.contains(&live.id)) {
            self.follow_other(live).await;
        }
    }

    async fn follow_other(&self, live: &LiveRef) {
        // One that is gone is found out by whoever reads it.
        let Ok(Some(stored)) = self.store.task(&live.scope, &live.id).await else { return };
        let taken = {
            let state = live.lock();
            // What was recorded here meanwhile is ours.
            state.running.is_some() && stored.seq > state.folded.seq
        };
        if taken {
            tracing::info!(task = %live.id, "another owner has taken a task that runs here; it is stopped");
            live.break_off();
        } else {
            live.follow(stored);
        }
    }
}
