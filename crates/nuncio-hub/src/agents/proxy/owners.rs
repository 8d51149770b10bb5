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
//! asked for in a long time belongs to nobody again (`lapse`).

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::SystemTime,
};

use aws_lc_rs::digest;
use bytes::Bytes;
use nuncio_protocol::{Caller, Error, ErrorKind, Result, TaskId, Timestamp};
use nuncio_server::{
    bind::Subject,
    store::{Expect, PutRecord, RecordQuery, Store},
};
use serde::{Deserialize, Serialize};

use super::super::lapse;

const OWNER: &str = "owner";
const OWNED: &str = "owned";

/// All kinds of records that are of no use when their tasks are gone.
pub(super) const KINDS: [&str; 2] = [OWNER, OWNED];

/// How many owners are known without asking the store; twice that for a while.
const KNOWN: usize = 8_192;

/// How many records are counted at a time.
const PAGE: usize = 1_000;

/// Longer ids are kept by their digest: they are the agent's, who can make them as long as it likes.
const LONGEST_ID: usize = 256;

/// Who owns something, as it is recorded.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Owner(Option<Arc<str>>, Option<Arc<str>>);

impl Owner {
    pub(super) fn of(caller: &Caller) -> Self {
        Self(caller.principal().cloned(), caller.tenant().cloned())
    }

    fn is(&self, caller: &Caller) -> bool {
        self.0.as_ref() == caller.principal() && self.1.as_ref() == caller.tenant()
    }

    /// As a part of a key.
    fn key(&self) -> String {
        hash(&serde_json::to_vec(self).unwrap_or_default())
    }

    /// A name that the owner has made up, as one that no other owner has made up.
    pub(super) fn own(&self, name: &str) -> String {
        hash(&serde_json::to_vec(&(self, name)).unwrap_or_default())
    }
}

/// Whose something is, and when that was written down.
#[derive(PartialEq, Eq, Debug)]
struct Owned {
    owner: Owner,
    at: Timestamp,
}

impl Owned {
    fn is(&self, caller: &Caller) -> bool {
        self.owner.is(caller)
    }
}

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
    known: Mutex<Known>,
}

impl Owners {
    pub(crate) fn new(store: Arc<dyn Store>, agent: &str) -> Self {
        Self { store, agent: agent.into(), owner: OWNER.into(), owned: OWNED.into(), known: Mutex::default() }
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
        if let Some(task) = &task
            && !self.owner_or_taken(caller, task).await?.is(caller)
        {
            self.give_back(caller, task, taken).await?;
            let why = "the agent answered with a task that is not the caller's";
            tracing::error!(agent = &*self.agent, "an agent gives the same task to several callers");
            return Err(Error::new(ErrorKind::InvalidAgentResponse, why));
        }
        if let Some(context) = &context {
            // Somebody else may have it; it is not asked for again with each event.
            self.owner_or_taken(caller, context).await?;
        }
        Ok(())
    }

    /// Undoes what was written with the claim to a task that turned out to be somebody else's.
    async fn give_back(&self, caller: &Caller, task: &str, taken: Vec<&String>) -> Result<()> {
        if let Some(task) = task.strip_prefix(&self.key(Kind::Task, "")) {
            let key = self.count_key(&Owner::of(caller), task);
            let _ = self.store.drop_record(OWNED, &key, Expect::Anything).await?;
        }
        for key in taken {
            let _ = self.store.drop_record(OWNER, key, Expect::Version(1)).await?;
            self.known().forget(key);
        }
        Ok(())
    }

    /// How many tasks are the caller's.
    pub(super) async fn count(&self, caller: &Caller) -> Result<usize> {
        let prefix = format!("{}/{}/", self.agent, Owner::of(caller).key());
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

    fn key(&self, kind: Kind, id: &str) -> String {
        let kind = match kind {
            Kind::Task => "task",
            Kind::Context => "context",
        };
        format!("{}/{kind}/{}", self.agent, bounded(id))
    }

    /// Where it is noted that a task is one of the owner's.
    fn count_key(&self, owner: &Owner, task: &str) -> String {
        format!("{}/{}/{task}", self.agent, owner.key())
    }

    /// What is known without asking the store.
    fn recalled(&self, key: &str) -> Option<Arc<Owned>> {
        self.known().get(key).filter(|known| !lapse::is_due(known.at))
    }

    async fn owner(&self, key: &str) -> Result<Option<Arc<Owned>>> {
        if let Some(known) = self.recalled(key) {
            return Ok(Some(known));
        }
        let Some(record) = self.store.record(OWNER, key).await? else { return Ok(None) };
        let owner: Owner = serde_json::from_slice(&record.value).map_err(Error::internal)?;
        let mut owned = Arc::new(Owned { owner, at: record.at });
        if lapse::is_due(record.at) {
            owned = Arc::new(Owned { owner: owned.owner.clone(), at: now() });
            // Should somebody else do so now, it is done.
            self.put(&[key], &owned, Expect::Version(record.version)).await?;
        }
        self.known().put(key, &owned);
        Ok(Some(owned))
    }

    /// Whose it is: the caller's, if it was nobody's.
    async fn owner_or_taken(&self, caller: &Caller, key: &str) -> Result<Arc<Owned>> {
        if let Some(owner) = self.owner(key).await? {
            return Ok(owner);
        }
        self.take(caller, &[&key]).await?;
        self.owner(key).await?.ok_or_else(|| Error::internal("a record was there, and is not"))
    }

    /// Gives the caller what nobody has of these, and says which; whoever was faster has the others.
    async fn take<'a, K: AsRef<str>>(&self, caller: &Caller, keys: &[&'a K]) -> Result<Vec<&'a K>> {
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        let owned = Arc::new(Owned { owner: Owner::of(caller), at: now() });
        let outcomes = self.put(keys, &owned, Expect::Absent).await?;
        let taken: Vec<_> =
            keys.iter().zip(outcomes).filter(|(_, taken)| *taken).map(|(key, _)| *key).collect();
        for key in &taken {
            self.known().put(key.as_ref(), &owned);
        }
        Ok(taken)
    }

    /// Writes down whose these are; for each, whether it was as expected.
    async fn put(&self, keys: &[impl AsRef<str>], owned: &Owned, expect: Expect) -> Result<Vec<bool>> {
        let at = owned.at;
        let value: Bytes = serde_json::to_vec(&owned.owner).map_err(Error::internal)?.into();
        let mut puts = Vec::with_capacity(keys.len() + 1);
        for key in keys {
            let (key, value) = (key.as_ref().to_owned(), value.clone());
            puts.push(PutRecord { kind: Arc::clone(&self.owner), key, value, at, expect });
        }
        // Should another have the task, this is given back.
        let tasks = self.key(Kind::Task, "");
        for task in keys.iter().filter_map(|key| key.as_ref().strip_prefix(&tasks)) {
            let key = self.count_key(&owned.owner, task);
            puts.push(PutRecord {
                kind: Arc::clone(&self.owned),
                key,
                value: Bytes::new(),
                at,
                expect: Expect::Anything,
            });
        }
        let outcomes = self.store.put_records(puts).await?;
        Ok(outcomes.iter().take(keys.len()).map(Result::is_ok).collect())
    }

    fn known(&self) -> std::sync::MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The error of a task that is not there, as far as the caller may know.
pub(super) fn not_found(task: &str) -> Error {
    Error::task_not_found(&TaskId::from(task))
}

/// What was recorded or looked up of late, in two generations: when the young one is full it becomes the old one.
/// What is asked for now and then stays, and there is no list to keep in order.
#[derive(Default)]
struct Known {
    young: HashMap<Box<str>, Arc<Owned>>,
    old: HashMap<Box<str>, Arc<Owned>>,
}

impl Known {
    fn get(&mut self, key: &str) -> Option<Arc<Owned>> {
        if let Some(owned) = self.young.get(key) {
            return Some(Arc::clone(owned));
        }
        let owned = self.old.remove(key)?;
        self.put(key, &owned);
        Some(owned)
    }

    fn forget(&mut self, key: &str) {
        self.young.remove(key);
        self.old.remove(key);
    }

    fn put(&mut self, key: &str, owned: &Arc<Owned>) {
        if self.young.len() >= KNOWN {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(key.into(), Arc::clone(owned));
    }
}

/// An id as a part of a key.
pub(super) fn bounded(id: &str) -> std::borrow::Cow<'_, str> {
    if id.len() <= LONGEST_ID { id.into() } else { format!("\0{}", hash(id.as_bytes())).into() }
}

/// A digest in hex.
pub(super) fn hash(bytes: &[u8]) -> String {
    let digest = digest::digest(&digest::SHA256, bytes);
    digest.as_ref().iter().fold(String::with_capacity(64), |mut hex, byte| {
        for digit in [byte >> 4, byte & 15] {
            hex.push(char::from_digit(u32::from(digit), 16).unwrap_or('0'));
        }
        hex
    })
}

/// The present, to the millisecond.
pub(super) fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).ok().and_then(Timestamp::from_millis).unwrap_or(Timestamp::EPOCH)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use nuncio_server::{
        store::{Asked, MemoryStore, Settled, Watch, watched},
        testing::FailingStore,
    };

    use super::*;

    fn subject(task: &str, context: &str) -> Subject {
        Subject { task: Some(task.into()), context: Some(context.into()) }
    }

    #[tokio::test]
    async fn what_is_recorded_is_the_callers_and_nobody_elses() {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
        let owners = Owners::new(Arc::clone(&store), "a");
        let (ann, bob) = (Caller::authenticated("ann"), Caller::authenticated("bob"));
        let elsewhere = Caller::authenticated("ann").of_tenant("x");
        owners.record(&ann, &subject("t", "c")).await.unwrap();
        // From memory, and by another hub from the store.
        for owners in [&owners, &Owners::new(Arc::clone(&store), "a")] {
            owners.require(&ann, "t").await.unwrap();
            for other in [&bob, &elsewhere, &Caller::anonymous()] {
                let foreign = owners.require(other, "t").await.unwrap_err();
                let unknown = owners.require(other, "u").await.unwrap_err();
                assert_eq!(foreign.kind(), ErrorKind::TaskNotFound);
                assert_eq!(foreign.to_string().replace("\"t\"", "\"u\""), unknown.to_string());
            }
        }
        assert!(
            Owners::new(store, "b").require(&ann, "t").await.is_err(),
            "another agent's t is another task"
        );
        assert_eq!((owners.count(&ann).await.unwrap(), owners.count(&bob).await.unwrap()), (1, 0));
        // From memory, and by another hub from the store.
        for owners in [&owners, &Owners::new(Arc::clone(&owners.store), "a")] {
            let error = owners.record(&bob, &subject("t", "d")).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidAgentResponse);
            assert_eq!(owners.count(&bob).await.unwrap(), 0);
            owners.record(&ann, &subject("t", "c")).await.unwrap();
            owners.require(&ann, "t").await.unwrap();
        }
        owners.admit(&ann, None, Some("d"), std::iter::empty()).await.expect("bob was not told of it");
    }

    #[derive(Default)]
    struct Questions(Mutex<Vec<Asked>>);

    impl Watch for Questions {
        fn answered(&self, asked: Asked, _: Duration, _: bool) {
            self.0.lock().unwrap().push(asked);
        }

        fn settled(&self, _: &[Settled]) {}
    }

    /// The disk is waited for once, however much is new, and not at all for what is known.
    #[tokio::test]
    async fn an_answer_is_recorded_in_one_piece() {
        let questions = Arc::new(Questions::default());
        let store = Arc::new(FailingStore::waiting(MemoryStore::default()));
        let owners = Owners::new(watched(store, Arc::clone(&questions) as Arc<dyn Watch>), "a");
        for _ in 0..2 {
            owners.record(&Caller::authenticated("ann"), &subject("t", "c")).await.unwrap();
            assert_eq!(*questions.0.lock().unwrap(), [Asked::Write]);
        }
        // Some agents have one context for all.
        let elsewhere = Owners::new(Arc::clone(&owners.store), "a");
        for _ in 0..2 {
            elsewhere.record(&Caller::authenticated("bob"), &subject("u", "c")).await.unwrap();
            assert_eq!(*questions.0.lock().unwrap(), [Asked::Write, Asked::Write, Asked::Read]);
        }
    }

    #[tokio::test]
    async fn a_message_touches_only_what_is_the_callers() {
        let owners = Owners::new(Arc::new(MemoryStore::default()), "a");
        let (ann, bob) = (Caller::authenticated("ann"), Caller::anonymous());
        owners.record(&ann, &subject("t", "c")).await.unwrap();
        let none = || std::iter::empty();
        owners.admit(&ann, Some("t"), Some("c"), ["t"].into_iter()).await.unwrap();
        owners.admit(&bob, None, Some("made up"), none()).await.unwrap();
        for (task, context, reference, kind) in [
            (Some("t"), None, None, ErrorKind::TaskNotFound),
            (None, None, Some("t"), ErrorKind::TaskNotFound),
            (None, Some("c"), None, ErrorKind::InvalidParams),
        ] {
            let error = owners.admit(&bob, task, context, reference.into_iter()).await.unwrap_err();
            assert_eq!(error.kind(), kind);
        }
        let error = owners.admit(&ann, None, Some("made up"), none()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidParams, "bob was the first to name it");
    }

    /// As if it had been written so many days ago.
    async fn age(store: &Arc<dyn Store>, days: i64) {
        for kind in KINDS {
            let query = RecordQuery { kind: kind.into(), limit: PAGE, ..RecordQuery::default() };
            for record in store.records(&query).await.unwrap() {
                let (key, value, at) = (record.key, record.value, lapse::days_ago(days));
                let put = PutRecord { kind: kind.into(), key, value, at, expect: Expect::Anything };
                store.put_records(vec![put]).await.unwrap()[0].as_ref().unwrap();
            }
        }
    }

    #[tokio::test]
    async fn what_is_used_stays_and_what_is_not_goes() {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
        let ann = Caller::authenticated("ann");
        let owners = || Owners::new(Arc::clone(&store), "a");
        owners().record(&ann, &subject("used", "c")).await.unwrap();
        owners().record(&ann, &subject("unused", "d")).await.unwrap();
        age(&store, 100).await;
        // Kept in memory, too, it is written again.
        let long_running = owners();
        long_running.require(&ann, "used").await.unwrap();
        long_running.admit(&ann, None, Some("c"), std::iter::empty()).await.unwrap();
        for (kind, gone) in [(OWNER, 2), (OWNED, 1)] {
            let before = lapse::days_ago(99);
            assert_eq!(store.prune_records(kind, before, PAGE).await.unwrap(), gone, "{kind}");
        }
        owners().require(&ann, "used").await.unwrap();
        owners().require(&ann, "unused").await.unwrap_err();
        assert_eq!(owners().count(&ann).await.unwrap(), 1);
        age(&store, 200).await;
        lapse::forget(&*store).await;
        assert_eq!(owners().count(&ann).await.unwrap(), 0);
        owners().require(&ann, "used").await.unwrap_err();
    }

    #[test]
    fn what_is_known_has_a_bound_and_what_is_used_stays() {
        let mut known = Known::default();
        let owner = Arc::new(Owned { owner: Owner(None, None), at: now() });
        known.put("kept", &owner);
        for n in 0..5 * KNOWN {
            known.put(&n.to_string(), &owner);
            if n % 1_000 == 0 {
                assert!(known.get("kept").is_some(), "{n}");
            }
        }
        assert!(known.young.len() + known.old.len() <= 2 * KNOWN + 1);
        assert!(known.get("0").is_none());
    }
}
