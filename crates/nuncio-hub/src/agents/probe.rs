//! The health of a remote agent, as its card and its answers show it. There are no extra health requests,
//! and the health of the hub does not depend on it.

use std::sync::Arc;

use arc_swap::ArcSwap;
use tokio::sync::{Notify, watch};

use crate::{clock::now, events::EventLog};

pub(crate) use crate::fleet::{Condition, Health};

/// The last observed health of an agent.
pub(crate) struct Probe {
    health: ArcSwap<Health>,
    /// Notified when the agent is not up any more.
    fell: Notify,
    /// Counts the answers of the agent while messages wait for it.
    answers: watch::Sender<u64>,
    /// The name of the agent, and the log that is told of another condition.
    told: Option<(Arc<str>, Arc<EventLog>)>,
}

impl Default for Probe {
    fn default() -> Self {
        let health = Health { condition: Condition::Unknown, since: now() };
        Self {
            health: ArcSwap::from_pointee(health),
            fell: Notify::new(),
            answers: watch::Sender::new(0),
            told: None,
        }
    }
}

impl Probe {
    /// The health of this agent, which the log is told of.
    pub(in crate::agents) fn of(name: &str, events: &Arc<EventLog>) -> Self {
        Self { told: Some((name.into(), Arc::clone(events))), ..Self::default() }
    }

    pub(crate) fn health(&self) -> Arc<Health> {
        self.health.load_full()
    }

    pub(crate) fn is_up(&self) -> bool {
        self.health.load().condition == Condition::Up
    }

    /// Returns when the agent is not up any more.
    pub(in crate::agents) async fn fell(&self) {
        self.fell.notified().await;
    }

    /// The number of answers so far. It grows only while somebody waits for one.
    pub(in crate::agents) fn answers(&self) -> u64 {
        *self.answers.borrow()
    }

    /// Counts an answer of any kind, such as a fetched card.
    pub(in crate::agents) fn answered(&self) {
        if !self.is_up() || self.answers.receiver_count() > 0 {
            self.answers.send_modify(|count| *count += 1);
        }
    }

    /// Returns when there are more answers than `seen`.
    pub(in crate::agents) async fn until_answer(&self, seen: u64) {
        // The sender is part of `self`, so the channel stays open.
        let _ = self.answers.subscribe().wait_for(|count| *count > seen).await;
    }

    /// Stores the observed condition; true if it differs from the one before. A different reason alone is
    /// no change.
    pub(crate) fn saw(&self, condition: Condition) -> bool {
        let before = self.health.load();
        if before.condition == condition {
            return false;
        }
        let other = std::mem::discriminant(&before.condition) != std::mem::discriminant(&condition);
        let since = if other { now() } else { before.since };
        let fell = before.condition == Condition::Up;
        if let Some((agent, events)) = self.told.as_ref().filter(|_| other) {
            events.agent_is(agent, condition.word());
        }
        self.health.store(Arc::new(Health { condition, since }));
        if fell {
            self.fell.notify_one();
        }
        other
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_reason_is_no_other_condition() {
        let probe = Probe::default();
        assert_eq!(probe.health().condition, Condition::Unknown);
        assert!(probe.saw(Condition::Down("refused".to_owned())));
        let since = probe.health().since;
        assert!(!probe.saw(Condition::Down("no route".to_owned())));
        assert_eq!(*probe.health(), Health { condition: Condition::Down("no route".to_owned()), since });
        assert!(probe.saw(Condition::Up) && !probe.saw(Condition::Up) && probe.is_up());
    }
}
