//! Owners of the agent's tasks: the caller that was first answered with the task.
//!
//! To the agent all callers of the hub are one. It may answer one caller with the task of another, for
//! example because it numbers its tasks from 1 after a restart. Without this check, the hub would follow
//! that task and show one caller the data of another.
//!
//! An owner is a record, so it is valid after restarts and for all hubs of a database, until it expires (`expiry`).
//! Recent owners are cached in memory. The record has digests instead of names of tasks and callers. While callers are
//! anonymous, all of them are one, and nothing is written.
//!
//! A hub with a store of its own decides by its cache and one read, and commits the record with the first event of the
//! task ([`ClaimOutcome::Granted`]), so no send waits for it. Hubs that share a database write the record before they emit
//! anything, and the database decides.

use std::{collections::HashMap, sync::Arc};

use aws_lc_rs::digest;
use bytes::Bytes;
use foldhash::fast::RandomState;
use nuncio_protocol::{Caller, TaskId, Timestamp};
use nuncio_server::store::{Expect, PutRecord, Store, StoreError};
use parking_lot::{Mutex, MutexGuard};

use crate::{
    agents::{expiry, hex::hex},
    clock,
};

/// The kind of the records.
pub(super) const KIND: &str = "task-owner";

/// Tasks in a generation of the cache; there are two generations.
const MAX_CACHED_TASKS: usize = 32_768;

/// The digest of an id or of a caller. Both are of any length, so the digest bounds the memory.
type Digest = [u8; 32];

/// The owner of a task, and the time of the record.
#[derive(Clone, Copy)]
struct OwnedTask {
    owner: Digest,
    at: Timestamp,
}

/// The outcome of a claim to a task.
pub(super) enum ClaimOutcome {
    /// The caller has the task. The record is yet to be written, with the next event; `None` if there is nothing to write.
    Granted(Option<PutRecord>),
    /// Another caller has it.
    Foreign,
}

/// The owners of one agent's tasks.
pub(super) struct TaskOwners {
    store: Arc<dyn Store>,
    agent: Arc<str>,
    /// True if callers are authenticated.
    apart: Box<dyn Fn() -> bool + Send + Sync>,
    known: Mutex<Generations>,
}

/// A cache in two generations: a full young generation becomes the old one.
#[derive(Default)]
struct Generations {
    young: HashMap<Digest, OwnedTask, RandomState>,
    old: HashMap<Digest, OwnedTask, RandomState>,
}

impl TaskOwners {
    pub(super) fn new(
        store: &Arc<dyn Store>,
        agent: &Arc<str>,
        apart: impl Fn() -> bool + Send + Sync + 'static,
    ) -> Self {
        let (store, agent) = (Arc::clone(store), Arc::clone(agent));
        Self { store, agent, apart: Box::new(apart), known: Mutex::default() }
    }

    /// Takes a task of the agent's for this caller, unless another caller has it.
    pub(super) async fn claim(&self, task: &TaskId, caller: &Caller) -> ClaimOutcome {
        let (task, owner) = (sha256(task.as_str().as_bytes()), digest_of(caller));
        let fresh = OwnedTask { owner, at: clock::now() };
        // Claimed in memory first: of two concurrent callers of this hub, the second is refused at once.
        let known = self.known().get_or_put(task, fresh);
        let is_written = known.is_some_and(|known| !expiry::is_due(known.at));
        if known.is_some_and(|known| known.owner != owner) {
            return ClaimOutcome::Foreign;
        }
        if is_written || !self.is_recorded(caller) {
            return ClaimOutcome::Granted(None);
        }
        let recorded = if self.store.is_shared() {
            self.record(&task, fresh).await.map(|owned| (owned, false))
        } else {
            self.recorded(&task, fresh).await
        };
        match recorded {
            Ok((owned, _)) if owned.owner != owner => {
                self.known().put(task, owned);
                ClaimOutcome::Foreign
            }
            Ok((owned, is_due)) => {
                self.known().put(task, owned);
                ClaimOutcome::Granted(is_due.then(|| self.put_of(&task, owned, Expect::Anything)))
            }
            Err(error) => {
                tracing::warn!(agent = &*self.agent, %error, "the owner of a task is known in memory only");
                ClaimOutcome::Granted(None)
            }
        }
    }

    /// True if another caller owns this task of the agent.
    pub(super) async fn is_foreign(&self, task: &TaskId, caller: &Caller) -> bool {
        let (task, owner) = (sha256(task.as_str().as_bytes()), digest_of(caller));
        let known = self.known().get(&task);
        match known {
            Some(known) => known.owner != owner,
            None if !self.is_recorded(caller) => false,
            None => match self.store.record(KIND, &self.key(&task)).await {
                Ok(record) => record.is_some_and(|record| *record.value != owner),
                Err(error) => {
                    tracing::warn!(agent = &*self.agent, %error, "the owner of a task cannot be read");
                    false
                }
            },
        }
    }

    fn is_recorded(&self, caller: &Caller) -> bool {
        caller.principal().is_some() || (self.apart)()
    }

    /// The owner in a store that this hub alone writes to, and whether the record is to be written.
    async fn recorded(&self, task: &Digest, fresh: OwnedTask) -> Result<(OwnedTask, bool), StoreError> {
        let Some(record) = self.store.record(KIND, &self.key(task)).await? else { return Ok((fresh, true)) };
        let owner = Digest::try_from(&*record.value).map_err(StoreError::broken)?;
        let is_due = owner == fresh.owner && expiry::is_due(record.at);
        Ok(if is_due { (fresh, true) } else { (OwnedTask { owner, at: record.at }, false) })
    }

    /// Stores an owner if there is none; returns the stored owner.
    async fn record(&self, task: &Digest, fresh: OwnedTask) -> Result<OwnedTask, StoreError> {
        if self.put(task, fresh, Expect::Absent).await? {
            return Ok(fresh);
        }
        let Some(record) = self.store.record(KIND, &self.key(task)).await? else { return Ok(fresh) };
        let owner = Digest::try_from(&*record.value).map_err(StoreError::broken)?;
        if owner != fresh.owner || !expiry::is_due(record.at) {
            return Ok(OwnedTask { owner, at: record.at });
        }
        // A conflict means that another hub has just renewed the record.
        self.put(task, fresh, Expect::Version(record.version)).await?;
        Ok(fresh)
    }

    /// Writes the record; false if it was not as expected.
    async fn put(&self, task: &Digest, owned: OwnedTask, expect: Expect) -> Result<bool, StoreError> {
        let outcomes = self.store.put_records(vec![self.put_of(task, owned, expect)]).await?;
        Ok(outcomes.iter().all(Result::is_ok))
    }

    fn put_of(&self, task: &Digest, owned: OwnedTask, expect: Expect) -> PutRecord {
        let value = Bytes::copy_from_slice(&owned.owner);
        PutRecord { kind: KIND.into(), key: self.key(task).into(), value, at: owned.at, expect }
    }

    fn key(&self, task: &Digest) -> String {
        format!("{}\0{}", self.agent, hex(task))
    }

    fn known(&self) -> MutexGuard<'_, Generations> {
        self.known.lock()
    }
}

impl Generations {
    fn get(&self, task: &Digest) -> Option<OwnedTask> {
        self.young.get(task).or_else(|| self.old.get(task)).copied()
    }

    /// Returns the known owner; if there is none, inserts this one and returns `None`.
    fn get_or_put(&mut self, task: Digest, owned: OwnedTask) -> Option<OwnedTask> {
        let known = self.get(&task);
        if known.is_none() {
            self.put(task, owned);
        }
        known
    }

    fn put(&mut self, task: Digest, owned: OwnedTask) {
        if self.young.len() >= MAX_CACHED_TASKS {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(task, owned);
    }
}

fn digest_of(caller: &Caller) -> Digest {
    // Serializing strings cannot fail.
    sha256(&serde_json::to_vec(&(caller.principal(), caller.tenant())).unwrap_or_default())
}

fn sha256(bytes: &[u8]) -> Digest {
    let mut made = Digest::default();
    made.copy_from_slice(digest::digest(&digest::SHA256, bytes).as_ref());
    made
}

#[cfg(test)]
mod tests {
    use nuncio_server::{store::MemoryStore, testing::FailingStore};

    use super::*;

    fn owners(store: &Arc<dyn Store>) -> TaskOwners {
        TaskOwners::new(store, &"billing".into(), || true)
    }

    fn store() -> Arc<dyn Store> {
        Arc::new(MemoryStore::default())
    }

    /// Claims a task, and writes the record that the next event would.
    async fn claims(owners: &TaskOwners, task: &str, caller: &Caller) -> bool {
        match owners.claim(&task.into(), caller).await {
            ClaimOutcome::Foreign => false,
            ClaimOutcome::Granted(record) => {
                let put = owners.store.put_records(record.into_iter().collect()).await.unwrap();
                put.iter().all(Result::is_ok)
            }
        }
    }

    #[tokio::test]
    async fn a_task_belongs_to_the_caller_that_it_was_first_named_to() {
        let shared: Arc<dyn Store> = Arc::new(FailingStore::waiting(MemoryStore::default()));
        assert!(shared.is_shared());
        for store in [store(), shared] {
            check_owners(&store).await;
        }
    }

    async fn check_owners(store: &Arc<dyn Store>) {
        let [ann, bob] = ["ann", "bob"].map(Caller::authenticated);
        let ann_in_north = ann.clone().of_tenant("north");
        let first = owners(store);
        assert!(claims(&first, "t", &ann).await && claims(&first, "t", &ann).await, "as often as it likes");
        // By what this hub knows, and by what another one, or the next, finds in the store.
        for owners in [&first, &owners(store)] {
            for other in [&bob, &ann_in_north, &Caller::anonymous()] {
                assert!(owners.is_foreign(&"t".into(), other).await, "{other:?}");
                assert!(!claims(owners, "t", other).await, "{other:?}");
                assert!(!owners.is_foreign(&"another".into(), other).await, "{other:?}");
            }
            assert!(!owners.is_foreign(&"t".into(), &ann).await);
            assert!(claims(owners, "t", &ann).await);
        }
        assert!(claims(&first, "another", &bob).await);
        assert!(
            claims(&TaskOwners::new(store, &"search".into(), || true), "t", &bob).await,
            "of another agent"
        );
    }

    #[tokio::test]
    async fn a_record_is_used_for_longer_by_being_used() {
        let (store, ann) = (store(), Caller::authenticated("ann"));
        assert!(claims(&owners(&store), "t", &ann).await);
        let key = owners(&store).key(&sha256(b"t"));
        let written = store.record(KIND, &key).await.unwrap().unwrap();
        let old = PutRecord {
            kind: KIND.into(),
            key: key.as_str().into(),
            value: written.value,
            at: expiry::days_ago(100),
            expect: Expect::Anything,
        };
        store.put_records(vec![old]).await.unwrap();
        assert!(claims(&owners(&store), "t", &ann).await);
        let again = store.record(KIND, &key).await.unwrap().unwrap();
        assert!(!expiry::is_due(again.at));
    }

    /// A store of this hub alone is only read: the record goes with the event. One that hubs share is written first.
    #[tokio::test]
    async fn a_claim_waits_for_a_write_only_where_hubs_share_the_store() {
        let shared: Arc<dyn Store> = Arc::new(FailingStore::waiting(MemoryStore::default()));
        for (store, written) in [(store(), false), (shared, true)] {
            let owners = owners(&store);
            let ClaimOutcome::Granted(record) =
                owners.claim(&"t".into(), &Caller::authenticated("ann")).await
            else {
                panic!("nobody else has it");
            };
            assert_eq!(record.is_none(), written, "either the claim writes it or the event");
            let key = owners.key(&sha256(b"t"));
            assert_eq!(store.record(KIND, &key).await.unwrap().is_some(), written);
        }
    }

    #[tokio::test]
    async fn nothing_is_written_where_all_callers_are_one() {
        let (store, anybody) = (store(), Caller::anonymous());
        let owners = TaskOwners::new(&store, &"billing".into(), || false);
        assert!(claims(&owners, "t", &anybody).await);
        assert!(store.record(KIND, &owners.key(&sha256(b"t"))).await.unwrap().is_none());
        assert!(!claims(&owners, "t", &Caller::authenticated("ann")).await, "but it is known");
    }

    #[test]
    fn what_is_known_in_memory_has_a_bound() {
        let (mut known, owned) = (Generations::default(), OwnedTask { owner: [0; 32], at: Timestamp::EPOCH });
        for number in 0..4 * MAX_CACHED_TASKS {
            known.put(sha256(&number.to_le_bytes()), owned);
        }
        assert!(known.young.len() + known.old.len() <= 2 * MAX_CACHED_TASKS);
        assert!(known.get(&sha256(&(4 * MAX_CACHED_TASKS - 1).to_le_bytes())).is_some(), "of late");
    }
}
