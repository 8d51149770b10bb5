//! Owners of tasks and contexts that a remote agent stores.
//!
//! | record | key | value |
//! |---|---|---|
//! | `owner` | agent, `task` or `context`, id | the owner |
//! | `owned` | agent, owner, id of a task | empty: these records are only counted |
//!
//! A task belongs to the caller that sent its first message; this is recorded before the answer is
//! forwarded. A context belongs to the caller that was answered with it, or that used it first: callers may
//! choose context ids, so an unowned one is claimed. Answers about another caller's task are not forwarded.
//! Unused records expire (`expiry`).

mod owner_cache;

use std::sync::Arc;

use bytes::Bytes;
use nuncio_protocol::{Caller, Error, ErrorKind, Result, TaskId};
use nuncio_server::{
    bind::Subject,
    store::{Expect, PutRecord, RecordQuery, Store},
};
use parking_lot::{Mutex, MutexGuard};

use self::owner_cache::{CachedOwner, Name, OwnerCache};
use super::owner::{Owner, bounded};
use crate::{agents::expiry, clock::now};

const OWNER: &str = "owner";
const OWNED: &str = "owned";

/// The kinds of records that expire.
pub(super) const KINDS: [&str; 2] = [OWNER, OWNED];

/// Records per query when counting.
const PAGE: usize = 1_000;

/// The kinds of owned things.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum OwnedKind {
    Task,
    Context,
}

/// The owners of the tasks and contexts of one agent.
pub(crate) struct Owners {
    store: Arc<dyn Store>,
    agent: Arc<str>,
    /// The kinds of its records, allocated once.
    owner: Arc<str>,
    owned: Arc<str>,
    /// Prefixes of the keys of its tasks and of its contexts.
    tasks: Box<str>,
    contexts: Box<str>,
    owner_cache: Mutex<OwnerCache>,
}

impl Owners {
    pub(crate) fn new(store: Arc<dyn Store>, agent: &str) -> Self {
        Self {
            store,
            agent: agent.into(),
            owner: OWNER.into(),
            owned: OWNED.into(),
            tasks: format!("{agent}/task/").into(),
            contexts: format!("{agent}/context/").into(),
            owner_cache: Mutex::default(),
        }
    }

    /// Refuses another caller's task with the same error as a task that does not exist.
    ///
    /// # Errors
    /// `TaskNotFound`.
    pub(super) async fn require(&self, caller: &Caller, task: &str) -> Result<()> {
        match self.owner(&self.key(OwnedKind::Task, task)).await? {
            Some(owner) if owner.is(caller) => Ok(()),
            _ => Err(not_found(task)),
        }
    }

    /// True if the task is the caller's.
    pub(super) async fn owns(&self, caller: &Caller, task: &TaskId) -> Result<bool> {
        let owner = self.owner(&self.key(OwnedKind::Task, task.as_str())).await?;
        Ok(owner.is_some_and(|owner| owner.is(caller)))
    }

    /// Refuses a message about tasks or contexts of another caller, and claims its context if it has no
    /// owner.
    ///
    /// # Errors
    /// `TaskNotFound` for a task, `InvalidParams` for a context. The latter reveals that the context
    /// exists, but only to a caller that can guess its id.
    pub(super) async fn admit<'a>(
        &self,
        caller: &Caller,
        task: Option<&str>,
        context: Option<&str>,
        references: impl Iterator<Item = &'a str>,
    ) -> Result<()> {
        if let Some(task) = task {
            self.require(caller, task).await?;
        }
        for task in references {
            self.require(caller, task).await?;
        }
        let Some(context) = context else { return Ok(()) };
        let key = self.key(OwnedKind::Context, context);
        if self.owner_or_taken(caller, &key).await?.is(caller) {
            return Ok(());
        }
        let why = "is not a context of yours; leave it out to begin one";
        Err(Error::invalid_field("message.contextId", why))
    }

    /// Records the caller as the owner of the task and context of an answer.
    ///
    /// # Errors
    /// `InvalidAgentResponse` if the task belongs to another caller, or an error of the store.
    pub(super) async fn record(&self, caller: &Caller, subject: &Subject) -> Result<()> {
        let task = subject.task.as_ref().map(|task| self.key(OwnedKind::Task, task.as_str()));
        let context = subject.context.as_ref().map(|context| self.key(OwnedKind::Context, context.as_str()));
        let mut new: Vec<_> = [&task, &context].into_iter().flatten().collect();
        new.retain(|key| self.recalled(key).is_none());
        // Most answers are about a task without an owner: it is claimed together with its context in one
        // write, without a read. The owner of a known task is checked first.
        let taken =
            if new.first() == task.as_ref().as_ref() { self.take(caller, &new).await? } else { Vec::new() };
        if let Some(task) = task.as_ref().filter(|task| !taken.contains(task))
            && !self.owner_or_taken(caller, task).await?.is(caller)
        {
            self.give_back(caller, task, taken).await?;
            let why = "the agent answered with a task that is not the caller's";
            tracing::error!(agent = &*self.agent, "the agent answers several callers with the same task");
            return Err(Error::new(ErrorKind::InvalidAgentResponse, why));
        }
        if let Some(context) = context.as_ref().filter(|context| !taken.contains(context)) {
            // Another caller may own the context; the cache avoids a query for each event.
            self.owner_or_taken(caller, context).await?;
        }
        Ok(())
    }

    /// Deletes the records that were written with the claim on another caller's task.
    async fn give_back(&self, caller: &Caller, task: &str, taken: Vec<&Arc<str>>) -> Result<()> {
        if let Some(counted) = self.counted(&self.name(&Owner::of(caller)), task) {
            let _ = self.store.delete_record(OWNED, &counted, Expect::Anything).await?;
        }
        for key in taken {
            let _ = self.store.delete_record(OWNER, key, Expect::Version(1)).await?;
            self.owner_cache().forget(key);
        }
        Ok(())
    }

    /// The number of tasks of the caller.
    pub(super) async fn count(&self, caller: &Caller) -> Result<usize> {
        let prefix = self.name(&Owner::of(caller)).counted.to_string();
        let mut query = RecordQuery { kind: OWNED.into(), prefix, limit: PAGE, ..RecordQuery::default() };
        let mut count = 0;
        loop {
            let page = self.store.records(&query).await?;
            count += page.len();
            match page.last() {
                Some(last) if page.len() == PAGE => query.after = Some(last.key.clone()),
                _ => return Ok(count),
            }
        }
    }

    fn key(&self, kind: OwnedKind, id: &str) -> Arc<str> {
        let prefix = match kind {
            OwnedKind::Task => &*self.tasks,
            OwnedKind::Context => &*self.contexts,
        };
        [prefix, &bounded(id)].concat().into()
    }

    /// The key of the `owned` record of a task; `None` if `key` is the key of a context.
    fn counted(&self, owner: &Name, key: &str) -> Option<String> {
        key.strip_prefix(&*self.tasks).map(|task| [&*owner.counted, task].concat())
    }

    fn name(&self, owner: &Owner) -> Arc<Name> {
        self.owner_cache().name(&self.agent, owner)
    }

    /// The cached owner, unless its record has to be renewed.
    fn recalled(&self, key: &str) -> Option<Arc<CachedOwner>> {
        self.owner_cache().get(key).filter(|cached| !expiry::is_due(cached.at))
    }

    async fn owner(&self, key: &Arc<str>) -> Result<Option<Arc<CachedOwner>>> {
        if let Some(cached) = self.recalled(key) {
            return Ok(Some(cached));
        }
        let Some(record) = self.store.record(OWNER, key).await? else { return Ok(None) };
        let owner: Owner = serde_json::from_slice(&record.value).map_err(Error::internal)?;
        let mut owned = Arc::new(CachedOwner { owner, at: record.at });
        if expiry::is_due(record.at) {
            owned = Arc::new(CachedOwner { owner: owned.owner.clone(), at: now() });
            // A conflict means that another hub has just renewed the record.
            self.put(&[key], &owned, Expect::Version(record.version)).await?;
        }
        self.owner_cache().put(Arc::clone(key), &owned);
        Ok(Some(owned))
    }

    /// The owner; the caller becomes the owner if there is none.
    async fn owner_or_taken(&self, caller: &Caller, key: &Arc<str>) -> Result<Arc<CachedOwner>> {
        if let Some(owner) = self.owner(key).await? {
            return Ok(owner);
        }
        self.take(caller, &[key]).await?;
        self.owner(key).await?.ok_or_else(|| Error::internal("a record was deleted meanwhile"))
    }

    /// Makes the caller the owner of the keys without an owner, and returns those keys. A concurrent claim
    /// wins the others.
    async fn take<'a>(&self, caller: &Caller, keys: &[&'a Arc<str>]) -> Result<Vec<&'a Arc<str>>> {
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        let owned = Arc::new(CachedOwner { owner: Owner::of(caller), at: now() });
        let outcomes = self.put(keys, &owned, Expect::Absent).await?;
        let mut outcomes = outcomes.into_iter();
        let mut taken = keys.to_vec();
        taken.retain(|_| outcomes.next() == Some(true));
        let mut owner_cache = self.owner_cache();
        for key in &taken {
            owner_cache.put(Arc::clone(key), &owned);
        }
        drop(owner_cache);
        Ok(taken)
    }

    /// Writes the owner of these keys; returns for each whether it was as expected.
    async fn put(&self, keys: &[&Arc<str>], owned: &CachedOwner, expect: Expect) -> Result<Vec<bool>> {
        let (at, name) = (owned.at, self.name(&owned.owner));
        let mut puts = Vec::with_capacity(keys.len() + 1);
        for key in keys {
            let (kind, key, value) = (Arc::clone(&self.owner), Arc::clone(key), name.value.clone());
            puts.push(PutRecord { kind, key, value, at, expect });
        }
        // Deleted again if another caller owns the task.
        for key in keys.iter().filter_map(|key| self.counted(&name, key)) {
            let (kind, key, value) = (Arc::clone(&self.owned), key.into(), Bytes::new());
            puts.push(PutRecord { kind, key, value, at, expect: Expect::Anything });
        }
        let outcomes = self.store.put_records(puts).await?;
        Ok(outcomes.iter().take(keys.len()).map(Result::is_ok).collect())
    }

    fn owner_cache(&self) -> MutexGuard<'_, OwnerCache> {
        self.owner_cache.lock()
    }
}

/// The error for a task that does not exist or is not the caller's.
pub(super) fn not_found(task: &str) -> Error {
    Error::task_not_found(&TaskId::from(task))
}

#[cfg(test)]
mod tests;
