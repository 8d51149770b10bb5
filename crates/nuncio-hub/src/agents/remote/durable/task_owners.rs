//! Whose the tasks of an agent are, as far as this hub has seen of late.
//!
//! To the agent all callers are one. If it answers one of them with the task of another, because it counts its tasks
//! from 1 after a restart or takes one message for another, the hub would follow that task and tell the one what the
//! other one said. So a task of the agent's belongs to the caller that it was first named to.
//!
//! Kept in memory: tasks that were left behind are claimed again when they are taken up, and to ask the store with
//! each task costs more than the whole relay. Another hub of the same database, and one that was restarted after the
//! first caller's task had ended, do not know.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

use aws_lc_rs::digest;
use foldhash::fast::RandomState;
use nuncio_protocol::{Caller, TaskId};
use nuncio_server::CallerKey;

/// How many tasks are remembered; twice that for a while.
const MAX_KNOWN: usize = 32_768;

/// The digest of an id: the agent makes ids as long as it likes.
type Key = [u8; 32];

/// The owners of an agent's tasks.
#[derive(Default)]
pub(super) struct TaskOwners(Mutex<Generations>);

/// When the young generation is full it becomes the old one.
#[derive(Default)]
struct Generations {
    young: HashMap<Key, CallerKey, RandomState>,
    old: HashMap<Key, CallerKey, RandomState>,
}

impl TaskOwners {
    /// Takes a task of the agent's for this caller; false if another caller has it.
    pub(super) fn claim(&self, task: &TaskId, caller: &Caller) -> bool {
        let (key, caller) = (key(task), CallerKey::from(caller));
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match known.owner(&key) {
            Some(owner) => *owner == caller,
            None => {
                known.put(key, caller);
                true
            }
        }
    }

    /// True if another caller has this task of the agent's.
    pub(super) fn is_foreign(&self, task: &TaskId, caller: &Caller) -> bool {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.owner(&key(task)).is_some_and(|owner| *owner != CallerKey::from(caller))
    }
}

impl Generations {
    fn owner(&self, key: &Key) -> Option<&CallerKey> {
        self.young.get(key).or_else(|| self.old.get(key))
    }

    fn put(&mut self, key: Key, owner: CallerKey) {
        if self.young.len() >= MAX_KNOWN {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(key, owner);
    }
}

fn key(task: &TaskId) -> Key {
    let digest = digest::digest(&digest::SHA256, task.as_str().as_bytes());
    let mut key = [0; 32];
    key.copy_from_slice(digest.as_ref());
    key
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_belongs_to_the_caller_that_it_was_first_named_to() {
        let owners = TaskOwners::default();
        let [ann, bob] = ["ann", "bob"].map(Caller::authenticated);
        let ann_in_north = ann.clone().of_tenant("north");
        assert!(owners.claim(&"t".into(), &ann) && owners.claim(&"t".into(), &ann), "as often as it likes");
        for other in [&bob, &ann_in_north, &Caller::anonymous()] {
            assert!(owners.is_foreign(&"t".into(), other), "{other:?}");
            assert!(!owners.claim(&"t".into(), other), "{other:?}");
            assert!(!owners.is_foreign(&"another".into(), other), "{other:?}");
        }
        assert!(owners.claim(&"another".into(), &bob));
        assert!(!owners.is_foreign(&"t".into(), &ann));
    }

    #[test]
    fn what_is_remembered_has_a_bound() {
        let owners = TaskOwners::default();
        let (ann, bob) = (Caller::authenticated("ann"), Caller::authenticated("bob"));
        for number in 0..4 * MAX_KNOWN {
            assert!(owners.claim(&number.to_string().into(), &ann));
        }
        let known = owners.0.lock().unwrap();
        assert!(known.young.len() + known.old.len() <= 2 * MAX_KNOWN);
        drop(known);
        assert!(!owners.claim(&(4 * MAX_KNOWN - 1).to_string().into(), &bob), "of late");
    }
}
