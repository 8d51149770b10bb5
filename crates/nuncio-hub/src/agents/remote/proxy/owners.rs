//! Whose the tasks and contexts of an agent are, although somebody else keeps them.
//!
//! | record | key | says |
//! |---|---|---|
//! | `owner` | agent, `task` or `context`, id | whose it is |
//! | `owned` | agent, owner, id of a task | nothing: it is there to be counted |
//!
//! A task belongs to the caller whose send made it, which is recorded before the answer is handed over. A context
//! belongs to the caller that was told of it, or that was the first to name it: callers may make up contexts, so
//! that one that nobody has is taken. What an agent says of somebody else's task is not handed over. What nobody has
//! asked for in a long time belongs to nobody again (`expiry`).

mod known;

use std::sync::Arc;

use bytes::Bytes;
use nuncio_protocol::{Caller, Error, ErrorKind, Result, TaskId};
use nuncio_server::{
    bind::Subject,
    store::{Expect, PutRecord, RecordQuery, Store},
};
use parking_lot::{Mutex, MutexGuard};

use self::known::{Known, Name, Owned};
use super::owner::{Owner, bounded};
use crate::{agents::expiry, clock::now};

const OWNER: &str = "owner";
const OWNED: &str = "owned";

/// All kinds of records that are of no use when their tasks are gone.
pub(super) const KINDS: [&str; 2] = [OWNER, OWNED];

/// How many records are counted at a time.
const PAGE: usize = 1_000;

/// What can be owned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Task,
    Context,
}

/// The owners of what one agent keeps.
pub(crate) struct Owners {
    store: Arc<dyn Store>,
    agent: Arc<str>,
    /// The kinds of its records, each made once.
    owner: Arc<str>,
    owned: Arc<str>,
    /// How the keys of its tasks and of its contexts begin.
    tasks: Box<str>,
    contexts: Box<str>,
    known: Mutex<Known>,
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
            known: Mutex::default(),
        }
    }

    /// Refuses what is not the caller's, in the same words as what is not there at all.
    ///
    /// # Errors
    /// `TaskNotFound`.
    pub(super) async fn require(&self, caller: &Caller, task: &str) -> Result<()> {
        match self.owner(&self.key(Kind::Task, task)).await? {
            Some(owner) if owner.is(caller) => Ok(()),
            _ => Err(not_found(task)),
        }
    }

    /// True if the task is the caller's.
    pub(super) async fn owns(&self, caller: &Caller, task: &TaskId) -> Result<bool> {
        let owner = self.owner(&self.key(Kind::Task, task.as_str())).await?;
        Ok(owner.is_some_and(|owner| owner.is(caller)))
    }

    /// Refuses a message that touches what is not the caller's, and takes its context if nobody has it.
    ///
    /// # Errors
    /// `TaskNotFound` for a task, `InvalidParams` for a context. That somebody has the context can be told from
    /// that; whoever can guess its id has learnt no more than that.
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
        let key = self.key(Kind::Context, context);
        if self.owner_or_taken(caller, &key).await?.is(caller) {
            return Ok(());
        }
        let why = "is not a context of yours; leave it out to begin one";
        Err(Error::invalid_field("message.contextId", why))
    }

    /// Records whom an answer to the caller is about.
    ///
    /// # Errors
    /// `InvalidAgentResponse` if it is about somebody else's task, or the store's.
    pub(super) async fn record(&self, caller: &Caller, subject: &Subject) -> Result<()> {
        let task = subject.task.as_ref().map(|task| self.key(Kind::Task, task.as_str()));
        let context = subject.context.as_ref().map(|context| self.key(Kind::Context, context.as_str()));
        let mut new: Vec<_> = [&task, &context].into_iter().flatten().collect();
        new.retain(|key| self.recalled(key).is_none());
        // Most answers are about what nobody has yet: it is taken without a question, and all in one piece. With a
        // task that is known, its owner is looked at first.
        let taken =
            if new.first() == task.as_ref().as_ref() { self.take(caller, &new).await? } else { Vec::new() };
        if let Some(task) = task.as_ref().filter(|task| !taken.contains(task))
            && !self.owner_or_taken(caller, task).await?.is(caller)
        {
            self.give_back(caller, task, taken).await?;
            let why = "the agent answered with a task that is not the caller's";
            tracing::error!(agent = &*self.agent, "an agent gives the same task to several callers");
            return Err(Error::new(ErrorKind::InvalidAgentResponse, why));
        }
        if let Some(context) = context.as_ref().filter(|context| !taken.contains(context)) {
            // Somebody else may have it; it is not asked for again with each event.
            self.owner_or_taken(caller, context).await?;
        }
        Ok(())
    }

    /// Undoes what was written with the claim to a task that turned out to be somebody else's.
    async fn give_back(&self, caller: &Caller, task: &str, taken: Vec<&Arc<str>>) -> Result<()> {
        if let Some(counted) = self.counted(&self.name(&Owner::of(caller)), task) {
            let _ = self.store.delete_record(OWNED, &counted, Expect::Anything).await?;
        }
        for key in taken {
            let _ = self.store.delete_record(OWNER, key, Expect::Version(1)).await?;
            self.known().forget(key);
        }
        Ok(())
    }

    /// How many tasks are the caller's.
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

    fn key(&self, kind: Kind, id: &str) -> Arc<str> {
        let prefix = match kind {
            Kind::Task => &*self.tasks,
            Kind::Context => &*self.contexts,
        };
        [prefix, &bounded(id)].concat().into()
    }

    /// Where it is noted that a task is one of the owner's; `None` if it is the key of a context.
    fn counted(&self, owner: &Name, key: &str) -> Option<String> {
        key.strip_prefix(&*self.tasks).map(|task| [&*owner.counted, task].concat())
    }

    fn name(&self, owner: &Owner) -> Arc<Name> {
        self.known().name(&self.agent, owner)
    }

    /// What is known without asking the store.
    fn recalled(&self, key: &str) -> Option<Arc<Owned>> {
        self.known().get(key).filter(|known| !expiry::is_due(known.at))
    }

    async fn owner(&self, key: &Arc<str>) -> Result<Option<Arc<Owned>>> {
        if let Some(known) = self.recalled(key) {
            return Ok(Some(known));
        }
        let Some(record) = self.store.record(OWNER, key).await? else { return Ok(None) };
        let owner: Owner = serde_json::from_slice(&record.value).map_err(Error::internal)?;
        let mut owned = Arc::new(Owned { owner, at: record.at });
        if expiry::is_due(record.at) {
            owned = Arc::new(Owned { owner: owned.owner.clone(), at: now() });
            // Should somebody else do so now, it is done.
            self.put(&[key], &owned, Expect::Version(record.version)).await?;
        }
        self.known().put(Arc::clone(key), &owned);
        Ok(Some(owned))
    }

    /// Whose it is: the caller's, if it was nobody's.
    async fn owner_or_taken(&self, caller: &Caller, key: &Arc<str>) -> Result<Arc<Owned>> {
        if let Some(owner) = self.owner(key).await? {
            return Ok(owner);
        }
        self.take(caller, &[key]).await?;
        self.owner(key).await?.ok_or_else(|| Error::internal("a record was there, and is not"))
    }

    /// Gives the caller what nobody has of these, and says which; whoever was faster has the others.
    async fn take<'a>(&self, caller: &Caller, keys: &[&'a Arc<str>]) -> Result<Vec<&'a Arc<str>>> {
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        let owned = Arc::new(Owned { owner: Owner::of(caller), at: now() });
        let outcomes = self.put(keys, &owned, Expect::Absent).await?;
        let mut outcomes = outcomes.into_iter();
        let mut taken = keys.to_vec();
        taken.retain(|_| outcomes.next() == Some(true));
        let mut known = self.known();
        for key in &taken {
            known.put(Arc::clone(key), &owned);
        }
        drop(known);
        Ok(taken)
    }

    /// Writes down whose these are; for each, whether it was as expected.
    async fn put(&self, keys: &[&Arc<str>], owned: &Owned, expect: Expect) -> Result<Vec<bool>> {
        let (at, name) = (owned.at, self.name(&owned.owner));
        let mut puts = Vec::with_capacity(keys.len() + 1);
        for key in keys {
            let (kind, key, value) = (Arc::clone(&self.owner), Arc::clone(key), name.value.clone());
            puts.push(PutRecord { kind, key, value, at, expect });
        }
        // Should another have the task, this is given back.
        for key in keys.iter().filter_map(|key| self.counted(&name, key)) {
            let (kind, key, value) = (Arc::clone(&self.owned), key.into(), Bytes::new());
            puts.push(PutRecord { kind, key, value, at, expect: Expect::Anything });
        }
        let outcomes = self.store.put_records(puts).await?;
        Ok(outcomes.iter().take(keys.len()).map(Result::is_ok).collect())
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock()
    }
}

/// The error of a task that is not there, as far as the caller may know.
pub(super) fn not_found(task: &str) -> Error {
    Error::task_not_found(&TaskId::from(task))
}

#[cfg(test)]
mod tests;
