//! Callers that wait for a task, for agents whose tasks end when the last one has left.
//!
//! | who waits | leaves early |
//! |---|---|
//! | the caller of a blocking or a streaming send | the task is canceled, unless somebody else still waits |
//! | a subscriber | nothing, unless a sender had left before and nobody else waits |
//!
//! A send that returns at once does not wait, and its task goes on.

use super::{Core, execution, live::LiveTaskRef, state::Stop};

/// The callers that wait for a task, and whether a sender of a message has left.
#[derive(Default)]
pub(super) struct Attending {
    waiting: usize,
    sender_left: bool,
}

/// A caller that waits for a task. Dropped before [`Self::end`], it has left.
pub(super) struct Attendance {
    live: LiveTaskRef,
    is_sender: bool,
    ended: bool,
}

impl Attendance {
    /// A caller whose message is at work; `None` if the agent's tasks go on without callers.
    pub(super) fn of_sender(core: &Core, live: &LiveTaskRef) -> Option<Self> {
        Self::new(core, live, true)
    }

    /// A caller that only watches.
    pub(super) fn of_subscriber(core: &Core, live: &LiveTaskRef) -> Option<Self> {
        Self::new(core, live, false)
    }

    fn new(core: &Core, live: &LiveTaskRef, is_sender: bool) -> Option<Self> {
        if !core.agent.rules().cancel_on_disconnect {
            return None;
        }
        let mut state = live.lock();
        state.attending.waiting += 1;
        if is_sender {
            state.attending.sender_left = false;
        }
        drop(state);
        Some(Self { live: live.clone(), is_sender, ended: false })
    }

    /// The caller was answered.
    pub(super) fn end(mut self) {
        self.ended = true;
    }
}

impl Drop for Attendance {
    fn drop(&mut self) {
        let is_abandoned = {
            let mut state = self.live.lock();
            let attending = &mut state.attending;
            attending.waiting -= 1;
            attending.sender_left |= self.is_sender && !self.ended;
            attending.sender_left && attending.waiting == 0
        };
        if is_abandoned && execution::stop(&self.live, Stop::Cancel) {
            tracing::info!(task = %self.live.id, "nobody waits for this task any more; it is canceled");
        }
    }
}
