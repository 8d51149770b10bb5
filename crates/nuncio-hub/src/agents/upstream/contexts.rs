//! Conversations that an upstream agent calls by another name than our callers do: kept as records, by caller.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use nuncio_protocol::{CallContext, ContextId};
use nuncio_server::store::{Expect, PutRecord, RecordQuery, Store};

use super::super::lapse;
use crate::clock;

/// The kind of the records.
pub(super) const KIND: &str = "context";

/// The conversations of one agent.
pub(super) struct Contexts {
    store: Arc<dyn Store>,
    agent: Arc<str>,
    /// False as long as the agent has always taken our names: then there is nothing to look for.
    renamed: AtomicBool,
}

impl Contexts {
    pub(super) fn new(store: &Arc<dyn Store>, agent: &Arc<str>) -> Self {
        // Where others write, they may have written.
        let renamed = AtomicBool::new(true);
        Self { store: Arc::clone(store), agent: Arc::clone(agent), renamed }
    }

    /// Looks whether there is anything to look for.
    pub(super) async fn prepare(&self) {
        let query = RecordQuery {
            kind: KIND.into(),
            prefix: format!("{}\0", self.agent),
            limit: 1,
            ..RecordQuery::default()
        };
        match self.store.records(&query).await {
            Ok(some) => self.renamed.store(!some.is_empty() || self.store.is_shared(), Ordering::Relaxed),
            Err(error) => tracing::warn!(agent = &*self.agent, %error, "contexts cannot be read"),
        }
    }

    /// True if the agent calls this conversation as we do, as it does all others.
    pub(super) fn is_same(&self, ours: &ContextId, theirs: &ContextId) -> bool {
        ours == theirs && !self.renamed.load(Ordering::Relaxed)
    }

    /// What the agent calls this conversation of this caller.
    pub(super) async fn theirs(&self, call: &CallContext, ours: &ContextId) -> ContextId {
        if !self.renamed.load(Ordering::Relaxed) {
            return ours.clone();
        }
        match self.store.record(KIND, &self.key(call, ours)).await {
            Ok(Some(record)) => {
                let theirs = ContextId::new(&*String::from_utf8_lossy(&record.value));
                if lapse::is_due(record.at) {
                    self.keep(call, ours, &theirs).await;
                }
                theirs
            }
            Ok(None) => ours.clone(),
            Err(error) => {
                tracing::warn!(agent = &*self.agent, %error, "a context cannot be read; the agent gets our name of it");
                ours.clone()
            }
        }
    }

    /// The agent calls this conversation of this caller so.
    pub(super) async fn keep(&self, call: &CallContext, ours: &ContextId, theirs: &ContextId) {
        self.renamed.store(true, Ordering::Relaxed);
        let put = PutRecord {
            kind: KIND.into(),
            key: self.key(call, ours).into(),
            value: theirs.as_str().to_owned().into(),
            at: clock::now(),
            expect: Expect::Anything,
        };
        if let Err(error) = self.store.put_records(vec![put]).await {
            tracing::warn!(agent = &*self.agent, %error, "a context cannot be kept; its next task begins a new one");
        }
    }

    /// Conversations of several callers may have the same name.
    fn key(&self, call: &CallContext, ours: &ContextId) -> String {
        let caller = &call.caller;
        let tenant = caller.tenant().map(|tenant| &**tenant).or(call.tenant.as_deref()).unwrap_or_default();
        let owner = caller.principal().map_or("", |owner| owner);
        format!("{}\0{tenant}\0{owner}\0{ours}", self.agent)
    }
}

#[cfg(test)]
mod tests {
    use nuncio_protocol::Caller;
    use nuncio_server::store::MemoryStore;

    use super::*;

    #[tokio::test]
    async fn a_conversation_has_its_name_at_the_agent_for_its_caller_only() {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
        let contexts = Contexts::new(&store, &"billing".into());
        contexts.prepare().await;
        let call = |who: &str| CallContext {
            caller: Caller::authenticated(who.to_owned()),
            ..CallContext::default()
        };
        let ours: ContextId = "c".into();
        assert_eq!(contexts.theirs(&call("ann"), &ours).await, ours);
        contexts.keep(&call("ann"), &ours, &"up-c".into()).await;
        assert_eq!(contexts.theirs(&call("ann"), &ours).await.as_str(), "up-c");
        assert_eq!(contexts.theirs(&call("bob"), &ours).await, ours);
        let again = Contexts::new(&store, &"billing".into());
        again.prepare().await;
        assert_eq!(again.theirs(&call("ann"), &ours).await.as_str(), "up-c", "also after a restart");
        let other = Contexts::new(&store, &"search".into());
        assert_eq!(other.theirs(&call("ann"), &ours).await, ours);
    }
}
