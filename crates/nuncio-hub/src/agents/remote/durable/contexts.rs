//! The remote agent's context ids for the conversations of callers: the derived id ([`ContextKey`]), unless
//! the agent has answered with another one, which is stored as a record.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use nuncio_protocol::{Caller, ContextId};
use nuncio_server::store::{Expect, PutRecord, RecordQuery, Store};

use crate::{
    agents::{ContextKey, expiry},
    clock,
};

/// The kind of the records.
pub(super) const KIND: &str = "context";

/// The contexts of one agent.
pub(super) struct Contexts {
    store: Arc<dyn Store>,
    agent: Arc<str>,
    key: ContextKey,
    /// False while the agent has accepted every derived id: then the store is not queried.
    renamed: AtomicBool,
}

impl Contexts {
    pub(super) fn new(store: &Arc<dyn Store>, agent: &Arc<str>, key: &ContextKey) -> Self {
        // True until `prepare` has read the store: an earlier run or another hub may have written records.
        let renamed = AtomicBool::new(true);
        Self { store: Arc::clone(store), agent: Arc::clone(agent), key: key.clone(), renamed }
    }

    /// Reads whether this agent has any records.
    pub(super) async fn prepare(&self) {
        let query = RecordQuery {
            kind: KIND.into(),
            prefix: format!("{}\0", self.agent),
            limit: 1,
            ..RecordQuery::default()
        };
        match self.store.records(&query).await {
            Ok(some) => self.renamed.store(!some.is_empty() || self.store.is_shared(), Ordering::Relaxed),
            Err(error) => tracing::warn!(agent = &*self.agent, %error, "context ids cannot be read"),
        }
    }

    /// True if the agent has accepted every derived id so far, including this one.
    pub(super) fn is_taken(&self, caller: &Caller, ours: &ContextId, theirs: &ContextId) -> bool {
        !self.renamed.load(Ordering::Relaxed) && self.key.derive(caller, ours) == *theirs
    }

    /// The agent's context id for this conversation of this caller.
    pub(super) async fn theirs(&self, caller: &Caller, ours: &ContextId) -> ContextId {
        if !self.renamed.load(Ordering::Relaxed) {
            return self.key.derive(caller, ours);
        }
        match self.store.record(KIND, &self.record_key(caller, ours)).await {
            Ok(Some(record)) => {
                let theirs = ContextId::new(&*String::from_utf8_lossy(&record.value));
                if expiry::is_due(record.at) {
                    self.keep(caller, ours, &theirs).await;
                }
                theirs
            }
            Ok(None) => self.key.derive(caller, ours),
            Err(error) => {
                tracing::warn!(agent = &*self.agent, %error, "a context id cannot be read; the agent gets the derived one");
                self.key.derive(caller, ours)
            }
        }
    }

    /// Stores the agent's own context id for this conversation.
    pub(super) async fn keep(&self, caller: &Caller, ours: &ContextId, theirs: &ContextId) {
        self.renamed.store(true, Ordering::Relaxed);
        let put = PutRecord {
            kind: KIND.into(),
            key: self.record_key(caller, ours).into(),
            value: theirs.as_str().to_owned().into(),
            at: clock::now(),
            expect: Expect::Anything,
        };
        if let Err(error) = self.store.put_records(vec![put]).await {
            tracing::warn!(agent = &*self.agent, %error, "a context id cannot be stored; the next task begins a new context");
        }
    }

    /// The key of a record: includes the caller, because several callers may use the same context id.
    fn record_key(&self, caller: &Caller, ours: &ContextId) -> String {
        let tenant = caller.tenant().map_or("", |tenant| tenant);
        let owner = caller.principal().map_or("", |owner| owner);
        format!("{}\0{tenant}\0{owner}\0{ours}", self.agent)
    }
}

#[cfg(test)]
mod tests {
    use nuncio_server::store::MemoryStore;

    use super::*;

    #[tokio::test]
    async fn a_conversation_has_its_name_at_the_agent_for_its_caller_only() {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
        let key = ContextKey::new(&[7; 32]);
        let contexts = Contexts::new(&store, &"billing".into(), &key);
        contexts.prepare().await;
        let caller = |who: &str| Caller::authenticated(who.to_owned());
        let ours: ContextId = "c".into();
        let derived = |who: &str| key.derive(&caller(who), &ours);
        assert_eq!(contexts.theirs(&caller("ann"), &ours).await, derived("ann"));
        assert!(contexts.is_taken(&caller("ann"), &ours, &derived("ann")));
        assert!(!contexts.is_taken(&caller("ann"), &ours, &ours));
        contexts.keep(&caller("ann"), &ours, &"up-c".into()).await;
        assert_eq!(contexts.theirs(&caller("ann"), &ours).await.as_str(), "up-c");
        assert_eq!(contexts.theirs(&caller("bob"), &ours).await, derived("bob"));
        let again = Contexts::new(&store, &"billing".into(), &key);
        again.prepare().await;
        assert_eq!(again.theirs(&caller("ann"), &ours).await.as_str(), "up-c", "also after a restart");
        let other = Contexts::new(&store, &"search".into(), &key);
        assert_eq!(other.theirs(&caller("ann"), &ours).await, derived("ann"));
    }

    /// As earlier versions wrote it, with the tenant of the credential.
    #[tokio::test]
    async fn a_record_that_is_stored_stays_valid() {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
        let put = PutRecord {
            kind: KIND.into(),
            key: "billing\0north\0ann\0c".into(),
            value: "up-c".into(),
            at: clock::now(),
            expect: Expect::Absent,
        };
        store.put_records(vec![put]).await.unwrap();
        let contexts = Contexts::new(&store, &"billing".into(), &ContextKey::new(&[7; 32]));
        contexts.prepare().await;
        let caller = Caller::authenticated("ann").of_tenant("north");
        assert_eq!(contexts.theirs(&caller, &"c".into()).await.as_str(), "up-c");
    }
}
