//! The health of a remote agent, as its card and its answers show it. There are no extra health requests,
//! and the health of the hub does not depend on it.

use std::sync::Arc;

use arc_swap::ArcSwap;
use tokio::sync::Notify;

use crate::clock::now;

pub(crate) use crate::fleet::{Condition, Health};

/// The last observed health of an agent.
#[derive(Debug)]
pub(crate) struct Probe {
    health: ArcSwap<Health>,
    /// Notified when the agent is not up any more.
    fell: Notify,
}

impl Default for Probe {
    fn default() -> Self {
        let health = Health { condition: Condition::Unknown, since: now() };
        Self { health: ArcSwap::from_pointee(health), fell: Notify::new() }
    }
}

impl Probe {
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
